// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// scope is one look at a control plane: what was read, what was concluded, what comes next.
type scope struct {
	cluster *clusterv1.Cluster
	plane   *controlplanev1.QuoinControlPlane
	clock   clock.PassiveClock

	// template of infrastructure machines; nil when it does not exist, and then templateProblem says so.
	template        *unstructured.Unstructured
	templateProblem string
	// certificates is the condition to set; nil when they were not looked at.
	certificates *metav1.Condition

	// cached: Machines and the workload cluster are read from caches.
	cached bool
	// machines of the control plane; by their names also what belongs to them.
	machines collections.Machines
	infra    map[string]*infrav1.QuoinMachine
	configs  map[string]*bootstrapv1.KubeadmConfig
	hosts    map[string]*infrav1.QuoinHost
	outdated map[string][]string
	// clusterInfra are the QuoinMachines of all Machines of the Cluster, and versions their Machines' versions by name.
	clusterInfra []infrav1.QuoinMachine
	versions     map[string]string
	// freeDomains are the failure domains of the hosts that a further Machine could claim now.
	freeDomains map[string]bool
	// comingDomains are those of hosts that will be free soon.
	comingDomains map[string]bool
	// failCgroupV1: a further Machine can have no host with cgroup v1.
	failCgroupV1 bool
	// request is what a further Machine asks of a host; nil without a template.
	request *placement.Request
	// claimed are the provider IDs that QuoinMachines and claims of hosts name.
	claimed map[string]bool
	// unfit says of those of clusterInfra whose host can take no images now why that is.
	unfit map[string]string
	// fleet are all QuoinHosts, of whatever Cluster.
	fleet []infrav1.QuoinHost
	// remains are QuoinMachines and KubeadmConfigs of a creation that was cut off.
	remains []client.Object

	workload workload
	members  membership
	// fence is what changes of the workload cluster and of etcd go through.
	fence fence

	snapshot controlplane.State
	// assessment is what the snapshot means; empty until that was asked.
	assessment controlplane.Assessment
	// step that was decided, and what became of it.
	step     controlplane.Step
	outcome  controlplane.Outcome
	observed bool
	// configErr is why a Machine got no KubeadmConfig.
	configErr error
}

func (s *scope) replicas() int { return int(ptr.Deref(s.plane.Spec.Replicas, 1)) }

func (s *scope) deleting() bool {
	return !s.plane.DeletionTimestamp.IsZero() || !s.cluster.DeletionTimestamp.IsZero()
}

// readMachines reads the control plane's Machines and adopts those that nobody owns.
func (r *Reconciler) readMachines(ctx context.Context, s *scope) (collections.Machines, error) {
	if s.machines != nil {
		return s.machines, nil
	}
	all, err := collections.GetControlPlaneMachinesForCluster(ctx, s.machineReader(r), s.cluster)
	if err != nil {
		return nil, err
	}
	owned := collections.New()
	for _, machine := range all {
		switch controller := metav1.GetControllerOf(machine); {
		case metav1.IsControlledBy(machine, s.plane):
			owned.Insert(machine)
		case controller != nil:
			return nil, fmt.Errorf("control-plane Machine %s is labeled as one of this control plane but %s %s controls it: "+
				"remove the label %s",
				machine.Name, controller.Kind, controller.Name, clusterv1.MachineControlPlaneLabel)
		case s.plane.DeletionTimestamp.IsZero() && machine.DeletionTimestamp.IsZero():
			original := machine.DeepCopy()
			machine.SetOwnerReferences(util.EnsureOwnerRef(machine.GetOwnerReferences(), desired.ControllerRef(s.plane)))
			if err := r.Client.Patch(ctx, machine, client.MergeFrom(original)); err != nil {
				return nil, fmt.Errorf("adopting Machine %s: %w", machine.Name, err)
			}
			owned.Insert(machine)
		}
	}
	s.machines = owned
	return owned, nil
}

// machineReader reads Machines from the API server, unless the cache will do.
func (s *scope) machineReader(r *Reconciler) client.Reader {
	if s.cached {
		return r.Client
	}
	return r.APIReader
}

// observe reads everything once and makes the snapshot.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	if err := r.gather(ctx, s); err != nil {
		return err
	}
	return r.study(ctx, s)
}

// gather lists the Machines and what may belong to them. Remains are looked for among what was listed before the
// Machines: whatever is in that list and has no Machine in the later one was left behind.
func (r *Reconciler) gather(ctx context.Context, s *scope) error {
	if err := r.listParts(ctx, s); err != nil {
		return err
	}
	// Again, when they were read for the certificates.
	s.machines = nil
	_, err := r.readMachines(ctx, s)
	return err
}

// study reads what the Machines run, and makes the snapshot.
func (r *Reconciler) study(ctx context.Context, s *scope) error {
	if err := r.addOrphans(ctx, s); err != nil {
		return err
	}
	s.sortParts()
	early := s.cached && s.initialized()
	if early {
		// Before anything remote is read: Cluster API waits for it, and to make what has a name once the cache is enough.
		s.configErr = r.complete(ctx, s)
	}
	if err := r.readHosts(ctx, s); err != nil {
		return err
	}
	s.countReturning()
	if err := s.compare(); err != nil {
		return err
	}
	if s.plane.DeletionTimestamp.IsZero() {
		if s.awaitsNodes() {
			// The name of a Node is that of its etcd member.
			r.readWorkload(ctx, s)
			r.readEtcd(ctx, s)
		} else {
			// At once: each may take its whole time when hosts are down.
			var readings sync.WaitGroup
			readings.Go(func() { r.readWorkload(ctx, s) })
			readings.Go(func() { r.readEtcd(ctx, s) })
			readings.Wait()
		}
	}
	r.conclude(s)
	if s.cached && !early {
		// Only now it is known whether kubeadm init has run.
		s.configErr = r.complete(ctx, s)
	}
	return nil
}

// conclude makes the snapshot of what was read.
func (r *Reconciler) conclude(s *scope) {
	if s.workload.configVersion != "" {
		s.plane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	}
	s.fillSnapshot()
	s.judgeKubeadm()
	s.snapshot.DeadMemberTimeout = r.Timings.DeadMember
	noteUnhealthy(&r.history, s.plane.UID, &s.snapshot.Etcd, s.members.readAt)
	r.recallAheads(s)
	s.snapshot.DrainInGrace = debounceDrains(&r.history, s.plane.UID, s.snapshot.Machines, s.clock.Now(),
		r.Timings.SkippedDrain)
	s.fillAPIServers(s.clock.Now(), r.Timings.APIServerStop)
	s.fillHealth()
	s.snapshot.Recovery = s.recovery()
	s.observed = true
}

func (r *Reconciler) listParts(ctx context.Context, s *scope) error {
	ofCluster := []client.ListOption{client.InNamespace(s.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}}
	infra := &infrav1.QuoinMachineList{}
	if err := r.Client.List(ctx, infra, ofCluster...); err != nil {
		return fmt.Errorf("listing the Cluster's QuoinMachines: %w", err)
	}
	s.clusterInfra = infra.Items
	machines, err := collections.GetFilteredMachinesForCluster(ctx, r.Client, s.cluster)
	if err != nil {
		return err
	}
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing QuoinHosts: %w", err)
	}
	s.fleet = hosts.Items
	if s.failCgroupV1, err = r.failsOnCgroupV1(ctx, s, hosts.Items); err != nil {
		return err
	}
	if err := s.countSpares(hosts.Items); err != nil {
		return err
	}
	s.claimed = map[string]bool{}
	for i := range hosts.Items {
		if hosts.Items[i].Spec.ConsumerRef != nil {
			s.claimed[hosts.Items[i].ProviderID()] = true
		}
	}
	for i := range s.clusterInfra {
		s.claimed[s.clusterInfra[i].Spec.ProviderID] = true
	}
	nodeWell := map[string]bool{}
	s.versions = map[string]string{}
	for _, machine := range machines {
		s.versions[machine.Spec.InfrastructureRef.Name] = machine.Spec.Version
		nodeWell[machine.Spec.InfrastructureRef.Name] = conditions.IsTrue(machine, clusterv1.MachineNodeReadyCondition)
		if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; !ok {
			s.snapshot.Workers++
		}
	}
	if err := r.leaveBehind(ctx, s, machines); err != nil {
		return err
	}
	s.unfit = unfitHosts(s.clusterInfra, hosts.Items, nodeWell)
	configs := &bootstrapv1.KubeadmConfigList{}
	ofControlPlane := slices.Concat(ofCluster, []client.ListOption{client.HasLabels{clusterv1.MachineControlPlaneLabel}})
	if err := r.Client.List(ctx, configs, ofControlPlane...); err != nil {
		return fmt.Errorf("listing the control plane's KubeadmConfigs: %w", err)
	}
	s.infra, s.configs = map[string]*infrav1.QuoinMachine{}, map[string]*bootstrapv1.KubeadmConfig{}
	for i := range s.clusterInfra {
		s.infra[s.clusterInfra[i].Name] = &s.clusterInfra[i]
	}
	for i := range configs.Items {
		s.configs[configs.Items[i].Name] = &configs.Items[i]
	}
	return nil
}

// sortParts gives each Machine its parts by the Machine's references, and finds the remains.
func (s *scope) sortParts() {
	for name, infra := range s.infra {
		if s.isRemains(infra) {
			s.remains = append(s.remains, s.infra[name])
		}
	}
	for name, config := range s.configs {
		if s.isRemains(config) {
			s.remains = append(s.remains, s.configs[name])
		}
	}
	infra, configs := map[string]*infrav1.QuoinMachine{}, map[string]*bootstrapv1.KubeadmConfig{}
	for name, machine := range s.machines {
		if found, ok := s.infra[machine.Spec.InfrastructureRef.Name]; ok {
			infra[name] = found
		}
		if found, ok := s.configs[machine.Spec.Bootstrap.ConfigRef.Name]; ok {
			configs[name] = found
		}
	}
	s.infra, s.configs = infra, configs
}

// isRemains tells that the object was made here for a Machine that does not exist: we own it, and no Machine ever did.
func (s *scope) isRemains(object client.Object) bool {
	mine := false
	for _, owner := range object.GetOwnerReferences() {
		mine = mine || owner.UID == s.plane.UID
	}
	return mine && metav1.GetControllerOf(object) == nil && s.machines[object.GetName()] == nil &&
		object.GetDeletionTimestamp().IsZero()
}

// readHosts finds the hosts that the Machines have among those that were listed, or reads them: they may live in
// namespaces that the cache does not cover. What a host does is told late by its status anyhow, so nothing is decided
// by its freshness.
func (r *Reconciler) readHosts(ctx context.Context, s *scope) error {
	listed := map[client.ObjectKey]*infrav1.QuoinHost{}
	for i := range s.fleet {
		listed[client.ObjectKeyFromObject(&s.fleet[i])] = &s.fleet[i]
	}
	s.hosts = map[string]*infrav1.QuoinHost{}
	for name, machine := range s.machines {
		key, ok := hostOfProvider(machine.Spec.ProviderID)
		if infra := s.infra[name]; infra != nil {
			key, ok = hostOf(infra)
		}
		if !ok {
			continue
		}
		if host := listed[key]; host != nil {
			s.hosts[name] = host
			continue
		}
		host := &infrav1.QuoinHost{}
		if err := r.APIReader.Get(ctx, key, host); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return fmt.Errorf("reading QuoinHost %s: %w", key, err)
		}
		s.hosts[name] = host
	}
	return nil
}

// hostOf names the host of a QuoinMachine.
func hostOf(infra *infrav1.QuoinMachine) (client.ObjectKey, bool) {
	namespace, name, ok := infrav1.HostOf(infra)
	return client.ObjectKey{Namespace: namespace, Name: name}, ok
}

// hostOfProvider names the host in a provider ID, which a Machine has also when its QuoinMachine was torn away.
func hostOfProvider(id string) (client.ObjectKey, bool) {
	namespace, name, _, err := infrav1.ParseProviderID(id)
	return client.ObjectKey{Namespace: namespace, Name: name}, err == nil
}
