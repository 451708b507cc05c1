// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// Inventory is what the management cluster says of a control plane. It does not change once it is made.
type Inventory struct {
	Subject
	// Cached: the Machines were read from a cache.
	Cached bool
	// Machines of the control plane, and by their names also what belongs to them.
	Machines       collections.Machines
	QuoinMachines  map[string]*infrav1.QuoinMachine
	KubeadmConfigs map[string]*bootstrapv1.KubeadmConfig
	Hosts          map[string]*infrav1.QuoinHost
	// ClusterQuoinMachines are those of all Machines of the Cluster.
	ClusterQuoinMachines []infrav1.QuoinMachine
	// Leftovers are QuoinMachines and KubeadmConfigs of a creation that was cut off.
	Leftovers []client.Object
	// Workers are the Machines of the Cluster that are none of a control plane, by name.
	Workers []string
	// LeftBehind says which Machines the wanted version would leave behind; empty when none.
	LeftBehind string
	// all are the Machines of the Cluster: the cache's own, of which none is changed, in any order.
	all []clusterv1.Machine
	// Window in which a replacement may be begun.
	Window Window
	// Spare counts the hosts that a further Machine could claim now, or soon.
	Spare controlplane.Spare

	// fleet are all QuoinHosts, of whatever Cluster.
	fleet []infrav1.QuoinHost
	// versions are those of the Machines of clusterQuoinMachines, by the names of these.
	versions map[string]string
	// freeDomains counts, for each failure domain, the hosts that a further Machine could claim now, pendingDomains those
	// that will be free soon.
	freeDomains, pendingDomains map[string]int
	// failCgroupV1: a further Machine can have no host with cgroup v1.
	failCgroupV1 bool
	// request is what a further Machine asks of a host; nil without a template.
	request *placement.Request
	// claimed are the provider IDs that QuoinMachines and claims of hosts name.
	claimed map[string]bool
	// unfit says of those of ClusterQuoinMachines whose host can take no images now why that is.
	unfit map[string]string
}

// Lists are what was listed for an inventory.
type Lists struct {
	Subject
	// Cached: the Machines were read from a cache.
	Cached bool
	// Machines of the control plane.
	Machines Machines

	quoinMachines []infrav1.QuoinMachine
	configs       []bootstrapv1.KubeadmConfig
	hosts         []infrav1.QuoinHost
	hostsByKey    map[client.ObjectKey]*infrav1.QuoinHost
	// all are the Machines of the Cluster: the cache's own, of which none is changed, in any order.
	all []clusterv1.Machine
	// leftBehind and window are LeftBehind and Window of the inventory.
	leftBehind string
	window     Window
}

// Machines are those that are labeled as a control plane's.
type Machines struct {
	// Owned are controlled by the control plane.
	Owned collections.Machines
	// Unowned have no controller, and may be adopted.
	Unowned []*clusterv1.Machine
}

// Machines reads the control plane's Machines.
func (s *Sources) Machines(ctx context.Context, subject *Subject, cached bool) (Machines, error) {
	reader := s.Live
	if cached {
		reader = s.Cache
	}
	all, err := collections.GetControlPlaneMachinesForCluster(ctx, reader, subject.Cluster)
	if err != nil {
		return Machines{}, err
	}
	machines := Machines{Owned: collections.New()}
	for _, machine := range all {
		switch controller := metav1.GetControllerOf(machine); {
		case metav1.IsControlledBy(machine, subject.ControlPlane):
			machines.Owned.Insert(machine)
		case controller != nil:
			return Machines{}, fmt.Errorf("control-plane Machine %s is labeled as one of this control plane but %s %s "+
				"controls it: remove the label %s",
				machine.Name, controller.Kind, controller.Name, clusterv1.MachineControlPlaneLabel)
		case subject.ControlPlane.DeletionTimestamp.IsZero() && machine.DeletionTimestamp.IsZero():
			machines.Unowned = append(machines.Unowned, machine)
		}
	}
	return machines, nil
}

// List lists the Machines and what may belong to them. Leftovers are looked for among what is listed before the
// Machines: whatever is in that list and has no Machine in the later one was left behind.
func (s *Sources) List(ctx context.Context, subject Subject, cached bool) (*Lists, error) {
	lists := &Lists{Subject: subject, Cached: cached}
	ofCluster := []client.ListOption{client.InNamespace(subject.Cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: subject.Cluster.Name}}
	infra := &infrav1.QuoinMachineList{}
	if err := s.Cache.List(ctx, infra, ofCluster...); err != nil {
		return nil, fmt.Errorf("listing the Cluster's QuoinMachines: %w", err)
	}
	lists.quoinMachines = infra.Items
	var err error
	if lists.all, err = observed.Machines(ctx, s.Cache, client.ObjectKeyFromObject(subject.Cluster)); err != nil {
		return nil, err
	}
	hosts := &infrav1.QuoinHostList{}
	if err := s.Cache.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	lists.hosts, lists.hostsByKey = hosts.Items, map[client.ObjectKey]*infrav1.QuoinHost{}
	for i := range hosts.Items {
		lists.hostsByKey[client.ObjectKeyFromObject(&hosts.Items[i])] = &hosts.Items[i]
	}
	configs := &bootstrapv1.KubeadmConfigList{}
	ofControlPlane := slices.Concat(ofCluster, []client.ListOption{client.HasLabels{clusterv1.MachineControlPlaneLabel}})
	if err := s.Cache.List(ctx, configs, ofControlPlane...); err != nil {
		return nil, fmt.Errorf("listing the control plane's KubeadmConfigs: %w", err)
	}
	lists.configs = configs.Items
	if lists.leftBehind, err = s.leftBehind(ctx, lists); err != nil {
		return nil, err
	}
	if lists.window, err = s.window(ctx, lists); err != nil {
		return nil, err
	}
	lists.Machines, err = s.Machines(ctx, &subject, cached)
	return lists, err
}

// Inventory puts together what was listed, and the Machines that the control plane has by now. What cannot be listed is
// read one by one: Machines of QuoinMachines that have our hook, and hosts out of sight of the cache.
func (s *Sources) Inventory(ctx context.Context, lists *Lists, machines collections.Machines) (*Inventory, error) {
	inv := &Inventory{Subject: lists.Subject, Cached: lists.Cached, ClusterQuoinMachines: lists.quoinMachines,
		fleet: lists.hosts, all: lists.all, LeftBehind: lists.leftBehind, Window: lists.window,
		versions: map[string]string{}, claimed: map[string]bool{}}
	nodeWell := map[string]bool{}
	for i := range lists.all {
		machine := &lists.all[i]
		inv.versions[machine.Spec.InfrastructureRef.Name] = machine.Spec.Version
		nodeWell[machine.Spec.InfrastructureRef.Name] = conditions.IsTrue(machine, clusterv1.MachineNodeReadyCondition)
		if _, ok := machine.Labels[clusterv1.MachineControlPlaneLabel]; !ok {
			inv.Workers = append(inv.Workers, machine.Name)
		}
	}
	slices.Sort(inv.Workers)
	inv.unfit = lists.unfitHosts(nodeWell)
	for i := range lists.hosts {
		if lists.hosts[i].Spec.ConsumerRef != nil {
			inv.claimed[lists.hosts[i].ProviderID()] = true
		}
	}
	for i := range lists.quoinMachines {
		inv.claimed[lists.quoinMachines[i].Spec.ProviderID] = true
	}
	orphaned, err := s.orphaned(ctx, lists, machines)
	if err != nil {
		return nil, err
	}
	inv.Machines = maps.Clone(machines)
	inv.Machines.Insert(orphaned...)
	inv.assign(lists)
	if err := s.readHosts(ctx, inv, lists.hostsByKey); err != nil {
		return nil, err
	}
	if inv.failCgroupV1, err = s.failsOnCgroupV1(ctx, inv); err != nil {
		return nil, err
	}
	if err := inv.countSpares(); err != nil {
		return nil, err
	}
	return inv, nil
}

// assign gives each Machine its parts by the Machine's references, and finds the leftovers.
func (inv *Inventory) assign(lists *Lists) {
	infra, configs := map[string]*infrav1.QuoinMachine{}, map[string]*bootstrapv1.KubeadmConfig{}
	leftover := func(object client.Object) {
		if inv.isLeftover(object) {
			inv.Leftovers = append(inv.Leftovers, object)
		}
	}
	for i := range lists.quoinMachines {
		infra[lists.quoinMachines[i].Name] = &lists.quoinMachines[i]
		leftover(&lists.quoinMachines[i])
	}
	for i := range lists.configs {
		configs[lists.configs[i].Name] = &lists.configs[i]
		leftover(&lists.configs[i])
	}
	inv.QuoinMachines = map[string]*infrav1.QuoinMachine{}
	inv.KubeadmConfigs = map[string]*bootstrapv1.KubeadmConfig{}
	for name, machine := range inv.Machines {
		if found, ok := infra[machine.Spec.InfrastructureRef.Name]; ok {
			inv.QuoinMachines[name] = found
		}
		if found, ok := configs[machine.Spec.Bootstrap.ConfigRef.Name]; ok {
			inv.KubeadmConfigs[name] = found
		}
	}
}

// isLeftover reports whether the object was made here for a Machine that does not exist: we own it, and no Machine ever
// did.
func (inv *Inventory) isLeftover(object client.Object) bool {
	mine := func(owner metav1.OwnerReference) bool { return owner.UID == inv.ControlPlane.UID }
	return slices.ContainsFunc(object.GetOwnerReferences(), mine) && metav1.GetControllerOf(object) == nil &&
		inv.Machines[object.GetName()] == nil && object.GetDeletionTimestamp().IsZero()
}

// readHosts finds the hosts that the Machines have among those that were listed, or reads them: they may live in
// namespaces that the cache does not cover. What a host does shows late in its status anyhow, so nothing is decided by
// its freshness.
func (s *Sources) readHosts(
	ctx context.Context, inv *Inventory, listed map[client.ObjectKey]*infrav1.QuoinHost,
) error {
	inv.Hosts = map[string]*infrav1.QuoinHost{}
	for name, machine := range inv.Machines {
		key, ok := hostOfProvider(machine.Spec.ProviderID)
		if infra := inv.QuoinMachines[name]; infra != nil {
			key, ok = hostOf(infra)
		}
		if !ok {
			continue
		}
		if host := listed[key]; host != nil {
			inv.Hosts[name] = host
			continue
		}
		host := &infrav1.QuoinHost{}
		switch err := s.Live.Get(ctx, key, host); {
		case err == nil:
			inv.Hosts[name] = host
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading QuoinHost %s: %w", key, err)
		}
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

// Incomplete are the Machines whose bootstrap data cannot be made yet, because nobody has made their KubeadmConfig.
func (inv *Inventory) Incomplete() []*clusterv1.Machine {
	var incomplete []*clusterv1.Machine
	for name, machine := range inv.Machines {
		if inv.KubeadmConfigs[name] == nil && inv.QuoinMachines[name] != nil &&
			machine.Spec.Bootstrap.ConfigRef.Kind == desired.ConfigKind && machine.DeletionTimestamp.IsZero() &&
			machine.Spec.Bootstrap.DataSecretName == nil && !machine.Status.NodeRef.IsDefined() {
			incomplete = append(incomplete, machine)
		}
	}
	return incomplete
}

// Initialized reports whether kubeadm init is known to have run: the cluster's API has answered, or a Machine has a
// provider ID, which Cluster API copies once its host has run its bootstrap data.
func (inv *Inventory) Initialized() bool {
	return inv.Answered() || slices.ContainsFunc(inv.Machines.UnsortedList(), func(machine *clusterv1.Machine) bool {
		return machine.Spec.ProviderID != ""
	})
}

// OwnHost is the host of a Machine, if its claim is still the Machine's.
func (inv *Inventory) OwnHost(machine string) *infrav1.QuoinHost {
	host, id := inv.Hosts[machine], inv.Machines[machine].Spec.ProviderID
	if infra := inv.QuoinMachines[machine]; infra != nil {
		id = infra.Spec.ProviderID
	}
	if host == nil || host.Spec.ConsumerRef == nil || host.ProviderID() != id {
		return nil
	}
	return host
}

// staleHosts are the hosts of the Machines that say that they serve a newer generation of their claim.
func (inv *Inventory) staleHosts() []controlplane.StaleHost {
	var stale []controlplane.StaleHost
	for _, machine := range inv.Machines.SortedByCreationTimestamp() {
		if found := inv.Hosts[machine.Name].StaleClaim(); found != nil {
			stale = append(stale, controlplane.StaleHost{Name: client.ObjectKeyFromObject(inv.Hosts[machine.Name]).String(),
				Message: found.Message})
		}
	}
	return stale
}
