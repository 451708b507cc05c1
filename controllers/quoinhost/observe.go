// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
)

// claimStatus is how a host stands towards the consumer that its spec names.
type claimStatus string

const (
	// unclaimed: nobody has the host.
	unclaimed claimStatus = "unclaimed"
	// held: the QuoinMachine has the host and wants it, or something holds its deletion.
	held claimStatus = "held"
	// leaving: the QuoinMachine is being deleted and nothing holds that, or another one has its name by now.
	leaving claimStatus = "leaving"
	// missing: there is no such QuoinMachine, and nobody saw it go.
	missing claimStatus = "missing"
)

// claim is the consumer of a host and what belongs to it.
type claim struct {
	status claimStatus
	// quoinMachine is nil when missing or when another one has its name.
	quoinMachine *infrav1.QuoinMachine
	machine      *clusterv1.Machine
	cluster      *clusterv1.Cluster
	quoinCluster *infrav1.QuoinCluster
}

// observe reads what the claim of the host leads to.
func (r *Reconciler) observe(ctx context.Context, host *infrav1.QuoinHost) (claim, error) {
	ref := host.Spec.ConsumerRef
	key := client.ObjectKeyFromObject(host)
	if ref == nil {
		r.confirmed.forget(key)
		return claim{status: unclaimed}, nil
	}
	c, err := r.observeConsumer(ctx, r.Client, host)
	if err != nil {
		return claim{}, err
	}
	doubtful := c.status == missing || c.quoinMachine == nil || c.status == leaving && c.machine == nil
	// What is missing may yet come: a move or a restore brings the same claim back. What leaves does not.
	returns := c.status == missing && host.Status.State != infrav1.HostStateCleaning &&
		host.Status.State != infrav1.HostStateQuarantined
	if doubtful && (returns || !r.confirmed.known(key, consumerStateOf(host, c))) {
		// A cache that lags behind the claim must not look like a consumer that is gone.
		if c, err = r.observeConsumer(ctx, r.APIReader, host); err != nil {
			return claim{}, err
		}
		r.confirmed.note(key, consumerStateOf(host, c))
	}
	if c.status == missing && c.machine == nil {
		c.cluster, err = r.pausedCluster(ctx, ref.Namespace)
		return c, err
	}
	if c.machine == nil || c.machine.Spec.ClusterName == "" {
		return c, nil
	}
	c.cluster, err = util.GetClusterByName(ctx, r.Client, ref.Namespace, c.machine.Spec.ClusterName)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return c, nil
		}
		return claim{}, fmt.Errorf("reading Cluster %s/%s: %w", ref.Namespace, c.machine.Spec.ClusterName, err)
	}
	if c.cluster.Spec.InfrastructureRef.Name == "" {
		return c, nil
	}
	quoinCluster := &infrav1.QuoinCluster{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: c.cluster.Spec.InfrastructureRef.Name},
		quoinCluster)
	if client.IgnoreNotFound(err) != nil {
		return claim{}, fmt.Errorf("reading the QuoinCluster of Cluster %s: %w", c.cluster.Name, err)
	}
	if err == nil {
		c.quoinCluster = quoinCluster
	}
	return c, nil
}

func (r *Reconciler) observeConsumer(ctx context.Context, reader client.Reader,
	host *infrav1.QuoinHost) (claim, error) {
	ref := host.Spec.ConsumerRef
	machine := &clusterv1.Machine{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Machine}, machine)
	if client.IgnoreNotFound(err) != nil {
		return claim{}, fmt.Errorf("reading Machine %s/%s: %w", ref.Namespace, ref.Machine, err)
	}
	if err != nil {
		machine = nil
	}
	quoinMachine := &infrav1.QuoinMachine{}
	err = reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, quoinMachine)
	if client.IgnoreNotFound(err) != nil {
		return claim{}, fmt.Errorf("reading QuoinMachine %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	found := err == nil
	switch {
	case !found:
		return claim{status: missing, machine: machine}, nil
	case !claims(quoinMachine, machine, host):
		return claim{status: leaving, machine: machine}, nil
	case !quoinMachine.DeletionTimestamp.IsZero() && mayLeave(host, quoinMachine, machine):
		return claim{status: leaving, quoinMachine: quoinMachine, machine: machine}, nil
	}
	return claim{status: held, quoinMachine: quoinMachine, machine: machine}, nil
}

// mayLeave says whether the host of a QuoinMachine in deletion may be touched. A reset that has begun goes on, whatever
// hook somebody adds meanwhile.
func mayLeave(host *infrav1.QuoinHost, quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine) bool {
	return host.Status.State == infrav1.HostStateCleaning || host.Status.State == infrav1.HostStateQuarantined ||
		lifecycle.Release(quoinMachine, machine).Allowed
}

// claims says whether the claim on the host is that of this QuoinMachine, and not of an earlier one of its name. The
// provider ID decides, because UIDs change in a move; before it is set, the Machine's UID does.
func claims(quoinMachine *infrav1.QuoinMachine, machine *clusterv1.Machine, host *infrav1.QuoinHost) bool {
	if quoinMachine.Spec.ProviderID != "" {
		return quoinMachine.Spec.ProviderID == host.ProviderID()
	}
	return machine == nil || infrav1.ClaimOf(string(machine.UID)) == host.Spec.ConsumerRef.Claim
}

// consumerGone says, from the API server itself, that the claim's QuoinMachine and Machine do not exist any more.
// Objects of the same name that have another claim do not count, and neither does a Machine whose QuoinMachine settled
// on another host, unless its Node is this one's. That one of them is there may be said by the cache: it tells when
// that changes.
func (r *Reconciler) consumerGone(ctx context.Context,
	host *infrav1.QuoinHost) (gone bool, waitsFor string, err error) {
	if gone, waitsFor, err = consumerGone(ctx, r.Client, host); err != nil || !gone {
		return gone, waitsFor, err
	}
	return consumerGone(ctx, r.APIReader, host)
}

func consumerGone(ctx context.Context, reader client.Reader,
	host *infrav1.QuoinHost) (gone bool, waitsFor string, err error) {
	ref := host.Spec.ConsumerRef
	quoinMachine := &infrav1.QuoinMachine{}
	err = reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, quoinMachine)
	if client.IgnoreNotFound(err) != nil {
		return false, "", fmt.Errorf("reading QuoinMachine %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	machine := &clusterv1.Machine{}
	machineErr := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Machine}, machine)
	if client.IgnoreNotFound(machineErr) != nil {
		return false, "", fmt.Errorf("reading Machine %s/%s: %w", ref.Namespace, ref.Machine, machineErr)
	}
	if machineErr != nil {
		machine = nil
	}
	if err == nil && claims(quoinMachine, machine, host) {
		return false, fmt.Sprintf("QuoinMachine %s/%s", ref.Namespace, ref.Name), nil
	}
	// Whoever writes a claim names any Machine: it counts where the QuoinMachine of the claim is its own.
	elsewhere := err == nil && quoinMachine.Spec.ProviderID != "" ||
		machine != nil && machine.Spec.InfrastructureRef.Name != ref.Name
	if machine != nil && (infrav1.ClaimOf(string(machine.UID)) == ref.Claim && !elsewhere ||
		machine.Spec.ProviderID == host.ProviderID()) {
		return false, fmt.Sprintf("Machine %s/%s, and its Node with it,", ref.Namespace, ref.Machine), nil
	}
	return true, "", nil
}

// bootstrapData reads the Secret that the Machine names. A *bootstrapDataError says that it cannot be used; any other
// error passes.
func (r *Reconciler) bootstrapData(ctx context.Context, machine *clusterv1.Machine) ([]byte, error) {
	name := client.ObjectKey{Namespace: machine.Namespace, Name: ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "")}
	secret := &corev1.Secret{}
	if err := r.APIReader.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("reading bootstrap data Secret %s: %w", name, err)
	}
	// Whoever may name a Secret in a Machine must not have any Secret's content carried to a host: this one was made for
	// it.
	if secret.Type != clusterv1.ClusterSecretType {
		return nil, &bootstrapDataError{err: fmt.Errorf("the bootstrap data Secret %s has type %q, not %q, so no bootstrap "+
			"provider made it", name, secret.Type, clusterv1.ClusterSecretType)}
	}
	if cluster := secret.Labels[clusterv1.ClusterNameLabel]; cluster != machine.Spec.ClusterName {
		return nil, &bootstrapDataError{err: fmt.Errorf("the bootstrap data Secret %s has label %s=%q, but the Machine "+
			"belongs to Cluster %s", name, clusterv1.ClusterNameLabel, cluster, machine.Spec.ClusterName)}
	}
	if format := string(secret.Data["format"]); format != "" && format != "cloud-config" {
		return nil, &bootstrapDataError{err: fmt.Errorf("the bootstrap data in Secret %s has format %q; only cloud-config "+
			"can be carried out: set format: cloud-config in the KubeadmConfig", name, format)}
	}
	if len(secret.Data["value"]) == 0 {
		return nil, &bootstrapDataError{err: fmt.Errorf("the bootstrap data Secret %s has no key \"value\"", name)}
	}
	return secret.Data["value"], nil
}

// peerProvisioned says whether another control-plane member of the claim's cluster is up, which may then hold the
// cluster's virtual address.
func (r *Reconciler) peerProvisioned(ctx context.Context, c claim) (bool, error) {
	if ptr.Deref(c.cluster.Status.Initialization.ControlPlaneInitialized, false) {
		return true, nil
	}
	peers := &infrav1.QuoinMachineList{}
	err := r.Client.List(ctx, peers, client.InNamespace(c.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: c.cluster.Name},
		client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return false, fmt.Errorf("listing the control-plane QuoinMachines of Cluster %s: %w", c.cluster.Name, err)
	}
	for _, peer := range peers.Items {
		if peer.Name != c.quoinMachine.Name && ptr.Deref(peer.Status.Initialization.Provisioned, false) {
			return true, nil
		}
	}
	return false, nil
}

func (r *Reconciler) hostsOfQuoinMachine(ctx context.Context, o client.Object) []ctrl.Request {
	return r.hostsWith(ctx, fieldindex.HostsOfQuoinMachine(client.ObjectKeyFromObject(o)))
}

func (r *Reconciler) hostsOfMachine(ctx context.Context, o client.Object) []ctrl.Request {
	return r.hostsWith(ctx, fieldindex.HostsOfMachine(client.ObjectKeyFromObject(o)))
}

func (r *Reconciler) hostsOfCluster(ctx context.Context, o client.Object) []ctrl.Request {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the Machines of a Cluster", "cluster", o.GetName())
		return nil
	}
	var requests []ctrl.Request
	for i := range machines.Items {
		requests = append(requests, r.hostsOfMachine(ctx, &machines.Items[i])...)
	}
	// A Machine that is not here has no host by its name; a pause and its end concern the host all the same.
	return append(requests, r.hostsWith(ctx, fieldindex.HostsAwaitingConsumer(o.GetNamespace()))...)
}

func (r *Reconciler) hostsWith(ctx context.Context, selected client.ListOption) []ctrl.Request {
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy, selected); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinHosts")
		return nil
	}
	var requests []ctrl.Request
	for i := range hosts.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
	}
	return requests
}

// confirmedAbsenceCache remembers, while the process lives, what the API server said of consumers that the cache does
// not show. That is asked once and not in each of the many reconciles of a host that is being released. The zero value
// is ready.
type confirmedAbsenceCache struct{ of sync.Map }

// consumerState is what is there and what is not.
type consumerState struct {
	host     types.UID
	consumer infrav1.ConsumerReference
	status   claimStatus
	// UIDs; empty for what is not there.
	quoinMachine, machine types.UID
}

func consumerStateOf(host *infrav1.QuoinHost, c claim) consumerState {
	a := consumerState{host: host.UID, consumer: *host.Spec.ConsumerRef, status: c.status}
	if c.quoinMachine != nil {
		a.quoinMachine = c.quoinMachine.UID
	}
	if c.machine != nil {
		a.machine = c.machine.UID
	}
	return a
}

// known says that the API server has said the same before.
func (a *confirmedAbsenceCache) known(key types.NamespacedName, seen consumerState) bool {
	confirmed, ok := a.of.Load(key)
	return ok && confirmed == seen
}

// note keeps what the API server says.
func (a *confirmedAbsenceCache) note(key types.NamespacedName, said consumerState) {
	a.of.Store(key, said)
}

// forget drops what is known of the host's consumer.
func (a *confirmedAbsenceCache) forget(key types.NamespacedName) { a.of.Delete(key) }
