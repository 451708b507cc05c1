// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// spares is what is known of hosts for Machines that find none.
type spares struct {
	// machines are the QuoinMachines of the Cluster by name.
	machines map[string]*infrav1.QuoinMachine
	// hosts of all namespaces; none unless they matter.
	hosts []infrav1.QuoinHost
	// taken is what identifies the hosts that the Cluster has.
	taken []placement.Identity
	// promised hosts, by UID, are for a replacement of another pool.
	promised map[types.UID]bool
	// wanting says why no host was found, by QuoinMachine.
	wanting map[string]string
}

// spares reads which QuoinMachines find no host, with the given reader where some do. The hosts are read as well then:
// one is claimed before its QuoinMachine says so, and a Machine that has a host is not deleted for having none.
func (r *Reconciler) spares(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, cached []infrav1.QuoinMachine,
) (*spares, error) {
	s := &spares{promised: map[types.UID]bool{}}
	s.take(cached)
	if len(s.wanting) == 0 {
		return s, nil
	}
	live := &infrav1.QuoinMachineList{}
	if err := reader.List(ctx, live, client.InNamespace(cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		return nil, fmt.Errorf("list the QuoinMachines of Cluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
	s.take(live.Items)
	return s, r.readHosts(ctx, reader, s)
}

// findsNoHost is what a QuoinMachine says that finds no host; empty when it has one, or waits for something else.
func findsNoHost(machine *infrav1.QuoinMachine) string {
	claimed := conditions.Get(machine, infrav1.MachineHostClaimedCondition)
	if machine.Spec.ProviderID != "" || claimed == nil || claimed.Reason != infrav1.MachineNoMatchingHostReason {
		return ""
	}
	return claimed.Message
}

// readHosts reads the hosts, once.
func (r *Reconciler) readHosts(ctx context.Context, reader client.Reader, s *spares) error {
	if s.hosts != nil {
		return nil
	}
	hosts := &infrav1.QuoinHostList{}
	if err := reader.List(ctx, hosts); err != nil {
		return fmt.Errorf("list QuoinHosts: %w", err)
	}
	s.hosts = hosts.Items
	for i := range s.hosts {
		ref := s.hosts[i].Spec.ConsumerRef
		if ref != nil && s.machines[ref.Name] != nil && s.hosts[i].ClaimedBy(s.machines[ref.Name]) {
			s.taken = append(s.taken, placement.IdentitiesOf(&s.hosts[i])...)
		}
	}
	return nil
}

// take what QuoinMachines say of their hosts.
func (s *spares) take(machines []infrav1.QuoinMachine) {
	s.machines, s.wanting = map[string]*infrav1.QuoinMachine{}, map[string]string{}
	for i := range machines {
		machine := &machines[i]
		s.machines[machine.Name] = machine
		if why := findsNoHost(machine); why != "" {
			s.wanting[machine.Name] = why
		}
	}
}

// of adds to a pool what is known of hosts for it. Its Machines without one are alike: the first of them asks.
func (s *spares) of(pool *rollout.Pool, machines map[string]*clusterv1.Machine) {
	var request *placement.Request
	for i := range pool.Machines {
		machine := machines[pool.Machines[i].Name]
		infra := machine.Spec.InfrastructureRef.Name
		if s.hostOf(s.machines[infra]) != nil {
			continue // claimed, and its QuoinMachine does not say so yet
		}
		pool.Machines[i].NoHost = s.wanting[infra]
		if s.wanting[infra] != "" && request == nil && !pool.Machines[i].Outdated {
			request = requestOf(machine, s.machines[infra])
		}
	}
	if request == nil {
		return
	}
	request.Worker = true // for which no host is that is reserved for a control plane
	for i := range pool.Machines {
		infra := machines[pool.Machines[i].Name].Spec.InfrastructureRef.Name
		if host := s.hostOf(s.machines[infra]); host != nil {
			left := placement.HostOf(host)
			if pool.Machines[i].Deleting && left.State != string(infrav1.HostStateQuarantined) {
				// It answers no more while it boots after its reset. Another Machine that is deleted meanwhile is not brought back.
				left.Serving, left.Maintenance = true, false
			}
			pool.Machines[i].Returns = placement.Returning(*request, left)
		}
	}
	for i := range s.hosts {
		if s.comes(*request, &s.hosts[i]) {
			pool.Coming++
		}
	}
}

// contest adds to the Machines of pools which Machines of other pools find no host and could have theirs once they are
// left: whoever comes first claims it.
func (s *spares) contest(pools []rollout.Pool, machines map[string]*clusterv1.Machine) {
	requests := map[rollout.Rival]*placement.Request{}
	for _, pool := range pools {
		for _, m := range pool.Machines {
			infra := s.machines[machines[m.Name].Spec.InfrastructureRef.Name]
			if m.NoHost == "" || m.Deleting || infra == nil {
				continue
			}
			if request := requestOf(machines[m.Name], infra); request != nil {
				request.Worker = true
				requests[rollout.Rival{Machine: m.Name, Pool: pool.Name}] = request
			}
		}
	}
	for i := range pools {
		for j := range pools[i].Machines {
			m := &pools[i].Machines[j]
			host := s.hostOf(s.machines[machines[m.Name].Spec.InfrastructureRef.Name])
			if !m.Returns || host == nil {
				continue
			}
			for rival, request := range requests {
				if rival.Pool != pools[i].Name && placement.Returning(*request, placement.HostOf(host)) {
					m.Rivals = append(m.Rivals, rival)
				}
			}
			slices.SortFunc(m.Rivals, func(a, b rollout.Rival) int { return strings.Compare(a.Machine, b.Machine) })
		}
	}
}

// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get

// wanted finds out which Machines that are being deleted have a host that the control plane waits for. It asks for what
// its Machines ask for.
func (r *Reconciler) wanted(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, seen *observation, s *spares,
	all []clusterv1.Machine,
) error {
	ref := cluster.Spec.ControlPlaneRef
	if seen.state.Outdated == "" && seen.state.Unhealthy == "" || ref.Kind != "QuoinControlPlane" {
		return nil
	}
	var leaving []*rollout.Machine
	for i := range seen.state.Pools {
		for j := range seen.state.Pools[i].Machines {
			if m := &seen.state.Pools[i].Machines[j]; m.Deleting && m.Hosted {
				leaving = append(leaving, m)
			}
		}
	}
	member := slices.IndexFunc(all, func(m clusterv1.Machine) bool {
		_, is := m.Labels[clusterv1.MachineControlPlaneLabel]
		return is && s.machines[m.Spec.InfrastructureRef.Name] != nil
	})
	if len(leaving) == 0 || member < 0 {
		return nil
	}
	controlPlane := &unstructured.Unstructured{}
	controlPlane.SetAPIVersion(controlplanev1.GroupVersion.String())
	controlPlane.SetKind(ref.Kind)
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}
	if err := r.APIReader.Get(ctx, key, controlPlane); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read QuoinControlPlane %s: %w", key, err)
	}
	waits, _, _ := unstructured.NestedString(controlPlane.Object, "status", "operation", "waitingOn")
	request := requestOf(&all[member], s.machines[all[member].Spec.InfrastructureRef.Name])
	if !strings.HasPrefix(waits, controlplane.ReasonNoSpareHost) || request == nil {
		return nil
	}
	request.FailureDomain = ""
	if err := r.readHosts(ctx, reader, s); err != nil {
		return err
	}
	for _, m := range leaving {
		host := s.hostOf(s.machines[seen.machines[m.Name].Spec.InfrastructureRef.Name])
		m.Wanted = host != nil && placement.Returning(*request, placement.HostOf(host))
	}
	return nil
}

// comes reports whether the request can have the host in a while: it is free, is prepared, or a Machine of the Cluster
// leaves it.
func (s *spares) comes(request placement.Request, object *infrav1.QuoinHost) bool {
	host := placement.HostOf(object)
	if ref := object.Spec.ConsumerRef; ref != nil {
		leaving := s.machines[ref.Name]
		return leaving != nil && object.ClaimedBy(leaving) && !leaving.DeletionTimestamp.IsZero() &&
			placement.Returning(request, host)
	}
	request.Taken = s.taken
	if placement.Pending(request, host) {
		return true
	}
	// Its QuoinMachine knows more of the kubelet, and says that it finds none: such a host must not be waited for for
	// ever.
	request.FailCgroupV1 = true
	return placement.Select(request, []placement.Host{host}).Chosen != nil
}

// hostOf is the host that carries the claim of the QuoinMachine.
func (s *spares) hostOf(machine *infrav1.QuoinMachine) *infrav1.QuoinHost {
	for i := range s.hosts {
		if machine != nil && s.hosts[i].ClaimedBy(machine) {
			return &s.hosts[i]
		}
	}
	return nil
}

// requestOf is what a Machine asks of a host; nil when its selector cannot be read, which its QuoinMachine says.
func requestOf(machine *clusterv1.Machine, infra *infrav1.QuoinMachine) *placement.Request {
	request := &placement.Request{Namespace: infra.Namespace, HostNamespaces: infra.Spec.HostNamespaces,
		FailureDomain: machine.Spec.FailureDomain, Version: machine.Spec.Version, Pool: placement.Pool(machine),
		Selector: labels.Everything()}
	if infra.Spec.HostSelector == nil {
		return request
	}
	selector, err := metav1.LabelSelectorAsSelector(infra.Spec.HostSelector)
	if err != nil {
		return nil
	}
	request.Selector = selector
	return request
}
