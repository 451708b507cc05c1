// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// joining reads from the host's operation whether the bootstrap data of a QuoinMachine runs, and whether it ran to its
// end. An operation of another name came before it or after it. What a host said last does not run any more once it is
// known to be off, and nobody waits for one that was given up, or that has been silent for joinLasts: a member that it
// adds all the same has no Machine.
func joining(host *infrav1.QuoinHost, infra *infrav1.QuoinMachine, silence time.Duration) (running, ended bool) {
	_, _, claim, err := infrav1.ParseProviderID(infra.Spec.ProviderID)
	operation := host.Status.Operation
	if err != nil || operation == nil || operation.ID != infrav1.ProvisionOperation(claim) {
		return false, false
	}
	lost := host.Fenced() || host.GivenUp() || silence >= joinLasts
	return operation.Began() && !operation.Final() && !lost, operation.Succeeded()
}

// joinLasts is longer than a step of the bootstrap lasts on a host that nobody reaches: it ends there by its own time.
const joinLasts = time.Hour

// urgentExpiry is how long before its certificates expire a Machine is replaced whatever time it is.
const urgentExpiry = 24 * time.Hour

// Provisioned reports whether a host has run the bootstrap data of a QuoinMachine.
func Provisioned(infra *infrav1.QuoinMachine) bool {
	return ptr.Deref(infra.Status.Initialization.Provisioned, false)
}

// fillState says in the decision's words what was read.
func (o *Observation) fillState() {
	o.State.Name = fmt.Sprintf("-n %s %s", o.ControlPlane.Namespace, o.ControlPlane.Name)
	o.State.Replicas, o.State.Version = o.Replicas(), o.ControlPlane.Spec.Version
	o.State.StackedEtcd = desired.StackedEtcd(o.ControlPlane)
	o.State.Deleting = !o.ControlPlane.DeletionTimestamp.IsZero()
	o.State.ClusterDeleting = !o.Cluster.DeletionTimestamp.IsZero()
	o.State.Certificates = isTrue(o.Certificates)
	o.State.Initialized, o.State.Unanswered = o.Initialized(), !o.Answered()
	o.State.Reachable = o.Workload.Err == nil && o.Workload.Connected
	o.State.ConfigVersion = o.Workload.ConfigVersion
	o.State.AddonsCurrent, o.State.ProxyHeld = o.Workload.AddonsCurrent, o.Workload.ProxyHeld != ""
	if o.Workload.AddonsErr != nil {
		o.State.AddonsProblem = o.Workload.AddonsErr.Error()
	}
	o.State.AddonsVersion = o.Workload.AddonsVersion
	o.State.Spare, o.State.Workers, o.State.LeftBehind = o.Spare, len(o.Workers), o.LeftBehind
	o.State.Window, o.State.AwaitedVersion = o.Window.Closed, o.awaitedVersion()
	o.State.Domains = o.domains()
	o.State.Strategy = controlplane.Strategy(o.ControlPlane.Spec.Rollout.Strategy)
	o.State.Backup = o.backup()
	if inFlight := o.ControlPlane.Status.Operation; inFlight != nil {
		o.State.InFlight = controlplane.InFlight{Operation: controlplane.Operation(inFlight.Type), Machine: inFlight.Machine}
	}
	machineOf := map[string]string{}
	for name, infra := range o.QuoinMachines {
		machineOf[infra.Name] = name
	}
	preCreated := map[string]bool{}
	for _, machine := range o.Machines.SortedByCreationTimestamp() {
		if o.PreCreated(machine) {
			preCreated[machine.Name] = true
			o.State.PreCreated = append(o.State.PreCreated, o.preCreatedOf(machine, len(o.State.PreCreated)))
			continue
		}
		o.State.Machines = append(o.State.Machines, o.stateOf(machine))
	}
	o.State.Etcd, o.State.RemoveMembers = o.Membership(), MembersToRemove(o.ControlPlane)
	o.State.OrphanNodes, o.State.StaleHosts = o.orphanNodes(), o.staleHosts()
	for i := range o.ClusterQuoinMachines {
		infra := &o.ClusterQuoinMachines[i]
		if !infra.DeletionTimestamp.IsZero() || preCreated[machineOf[infra.Name]] {
			continue
		}
		o.State.Hosts = append(o.State.Hosts, controlplane.Host{
			Name:        infra.Name,
			Version:     o.versions[infra.Name],
			Provisioned: Provisioned(infra),
			Requested:   slices.Contains(infra.Spec.AddonVersions, o.ControlPlane.Spec.Version),
			Present:     slices.Contains(infra.Status.AddonVersions, o.ControlPlane.Spec.Version),
			Machine:     machineOf[infra.Name],
			Unfit:       o.unfit[infra.Name],

			RequestedRunning: slices.Contains(infra.Spec.AddonVersions, o.Workload.AddonsVersion),
			PresentRunning:   slices.Contains(infra.Status.AddonVersions, o.Workload.AddonsVersion),
		})
	}
}

func (o *Observation) stateOf(machine *clusterv1.Machine) controlplane.Machine {
	health := o.Workload.Health[machine.Name]
	result := controlplane.Machine{
		Name:          machine.Name,
		Version:       machine.Spec.Version,
		FailureDomain: o.failureDomainOf(machine),
		Created:       machine.CreationTimestamp.Unix(),
		HostClaimed:   o.hostClaimed(machine),
		Node:          machine.Status.NodeRef.Name,
		UpToDate:      len(o.Outdated[machine.Name]) == 0,
		Healthy:       health.Problem == "" && health.seen,
		Problem:       health.Problem,
		Serving:       health.Serving,
		Kubelet:       KubeletVersion(machine, health),
		Deleting:      !machine.DeletionTimestamp.IsZero(),
	}
	result.NoHost = o.hostless(machine)
	expiry := machine.Status.CertificatesExpiryDate
	result.CertificatesExpire = !expiry.IsZero() && o.At.Add(urgentExpiry).After(expiry.Time)
	if !expiry.IsZero() && !o.At.Before(expiry.Time) {
		result.CertificatesEnded = expiry.UTC().Format(time.RFC3339)
	}
	_, result.Preferred = machine.Annotations[clusterv1.DeleteMachineAnnotation]
	if infra := o.QuoinMachines[machine.Name]; infra != nil {
		result.Bootstrapped = Provisioned(infra)
		if result.Node == "" {
			result.Problem = conditions.GetMessage(infra, infrav1.MachineReadyCondition)
		}
	}
	if host, infra := o.Hosts[machine.Name], o.QuoinMachines[machine.Name]; host != nil && infra != nil {
		result.Joining, result.Joined = joining(host, infra, o.silence(host))
		result.KubeadmBegan = result.Joining && kubeadmBegan(host, o.At)
		if o.request != nil {
			result.NoReturn = string(placement.NoReturn(*o.request, placement.HostOf(host)))
			result.Returns = result.NoReturn == ""
		}
	}
	result.Joined = result.Joined || result.Bootstrapped
	if result.Deleting {
		result.DeletedAt = machine.DeletionTimestamp.Unix()
	}
	result.DrainHook = HasHook(machine, controlplanev1.PreDrainHookAnnotation)
	result.Hook = HasHook(machine, controlplanev1.PreTerminateHookAnnotation) || HasHostHook(o.QuoinMachines[machine.Name])
	for annotation := range machine.Annotations {
		if annotation != controlplanev1.PreTerminateHookAnnotation &&
			strings.HasPrefix(annotation, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			result.OtherHooks = append(result.OtherHooks, annotation)
		}
	}
	slices.Sort(result.OtherHooks)
	result.AtTermination = atTermination(machine, o.QuoinMachines[machine.Name])
	result.Undrained = lifecycle.DrainOf(machine, o.ago).Skipped()
	result.Registered = health.seen && !health.goes
	return result
}

// KubeletVersion is that of a Machine; empty when nothing runs there yet.
func KubeletVersion(machine *clusterv1.Machine, health Health) string {
	if health.kubelet != "" {
		return health.kubelet
	}
	if machine.Status.NodeInfo != nil {
		return machine.Status.NodeInfo.KubeletVersion
	}
	return ""
}

// addressesOf are the addresses that the etcd member of a Machine may use towards its peers.
func (inv *Inventory) addressesOf(machine *clusterv1.Machine) []string {
	var addresses []string
	for _, address := range machine.Status.Addresses {
		addresses = append(addresses, address.Address)
	}
	if infra := inv.QuoinMachines[machine.Name]; infra != nil {
		for _, address := range infra.Status.Addresses {
			addresses = append(addresses, address.Address)
		}
	}
	if host := inv.Hosts[machine.Name]; host != nil {
		addresses = append(addresses, host.Spec.NodeNetwork.Addresses...)
		if host.Status.Facts != nil {
			addresses = append(addresses, host.Status.Facts.NodeAddresses...)
		}
	}
	for i, address := range addresses {
		if ip := net.ParseIP(address); ip != nil {
			addresses[i] = ip.String()
		}
	}
	return addresses
}

func isTrue(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionTrue
}
