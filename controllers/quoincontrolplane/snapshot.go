// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
// end. An operation of another name came before it or after it.
func joining(host *infrav1.QuoinHost, infra *infrav1.QuoinMachine) (running, ended bool) {
	_, _, claim, err := infrav1.ParseProviderID(infra.Spec.ProviderID)
	operation := host.Status.Operation
	if err != nil || operation == nil || operation.ID != infrav1.ProvisionOperation(claim) {
		return false, false
	}
	return operation.Began() && !operation.Final(), operation.Succeeded()
}

func provisioned(infra *infrav1.QuoinMachine) bool {
	return ptr.Deref(infra.Status.Initialization.Provisioned, false)
}

// fillSnapshot says in the decision's words what was read.
func (s *scope) fillSnapshot() {
	s.snapshot.Name = fmt.Sprintf("-n %s %s", s.plane.Namespace, s.plane.Name)
	s.snapshot.Replicas, s.snapshot.Version = s.replicas(), s.plane.Spec.Version
	s.snapshot.StackedEtcd = desired.StackedEtcd(s.plane)
	s.snapshot.Deleting = !s.plane.DeletionTimestamp.IsZero()
	s.snapshot.ClusterDeleting = !s.cluster.DeletionTimestamp.IsZero()
	s.snapshot.Certificates = conditionTrue(s.certificates)
	s.snapshot.Initialized = s.initialized()
	s.snapshot.Reachable = s.workload.err == nil && s.workload.client != nil
	s.snapshot.ConfigVersion = s.workload.configVersion
	s.snapshot.AddonsCurrent = s.workload.addonsCurrent
	s.snapshot.AddonsProblem = message(s.workload.addonsErr, "")
	s.snapshot.AddonsVersion = s.workload.addonsVersion
	s.snapshot.Strategy = controlplane.Strategy(s.plane.Spec.Rollout.Strategy)
	s.snapshot.Backup = s.backup()
	if doing := s.plane.Status.Operation; doing != nil {
		s.snapshot.InFlight = controlplane.InFlight{Operation: controlplane.Operation(doing.Type), Machine: doing.Machine}
	}
	machineOf := map[string]string{}
	for name, infra := range s.infra {
		machineOf[infra.Name] = name
	}
	prepared := map[string]bool{}
	for _, machine := range s.machines.SortedByCreationTimestamp() {
		if s.isPrepared(machine) {
			prepared[machine.Name] = true
			s.snapshot.Prepared = append(s.snapshot.Prepared, s.preparedOf(machine, len(s.snapshot.Prepared), s.clock.Now()))
			continue
		}
		s.snapshot.Machines = append(s.snapshot.Machines, s.snapshotOf(machine))
	}
	s.snapshot.Etcd, s.snapshot.RemoveMembers = s.etcdSnapshot(), s.membersToRemove()
	s.snapshot.OrphanNodes, s.snapshot.StaleHosts = s.orphanNodes(), s.staleHosts()
	for i := range s.clusterInfra {
		infra := &s.clusterInfra[i]
		if !infra.DeletionTimestamp.IsZero() || prepared[machineOf[infra.Name]] {
			continue
		}
		s.snapshot.Hosts = append(s.snapshot.Hosts, controlplane.Host{
			Name:        infra.Name,
			Version:     s.versions[infra.Name],
			Provisioned: provisioned(infra),
			Requested:   slices.Contains(infra.Spec.AddonVersions, s.plane.Spec.Version),
			Present:     slices.Contains(infra.Status.AddonVersions, s.plane.Spec.Version),
			Machine:     machineOf[infra.Name],
			Unfit:       s.unfit[infra.Name],

			RequestedRunning: slices.Contains(infra.Spec.AddonVersions, s.workload.addonsVersion),
			PresentRunning:   slices.Contains(infra.Status.AddonVersions, s.workload.addonsVersion),
		})
	}
}

func (s *scope) snapshotOf(machine *clusterv1.Machine) controlplane.Machine {
	health := s.workload.health[machine.Name]
	result := controlplane.Machine{
		Name:          machine.Name,
		Version:       machine.Spec.Version,
		FailureDomain: s.failureDomainOf(machine),
		Created:       machine.CreationTimestamp.Unix(),
		HostClaimed:   s.hostClaimed(machine),
		Node:          machine.Status.NodeRef.Name,
		UpToDate:      len(s.outdated[machine.Name]) == 0,
		Healthy:       health.problem == "" && health.seen,
		Problem:       health.problem,
		Serving:       health.serving,
		Kubelet:       kubeletVersion(machine, health),
		Deleting:      !machine.DeletionTimestamp.IsZero(),
	}
	result.NoHost = s.hostless(machine)
	_, result.Preferred = machine.Annotations[clusterv1.DeleteMachineAnnotation]
	if infra := s.infra[machine.Name]; infra != nil {
		result.Bootstrapped = provisioned(infra)
		if result.Node == "" {
			result.Problem = conditions.GetMessage(infra, infrav1.MachineReadyCondition)
		}
	}
	if host, infra := s.hosts[machine.Name], s.infra[machine.Name]; host != nil && infra != nil {
		result.Joining, result.Joined = joining(host, infra)
		result.KubeadmBegan = result.Joining && kubeadmBegan(host, s.clock.Now())
		if s.request != nil {
			result.NoReturn = string(placement.NoReturn(*s.request, placement.HostOf(host)))
			result.Returns = result.NoReturn == ""
		}
	}
	result.Joined = result.Joined || result.Bootstrapped
	if result.Deleting {
		result.DeletedAt = machine.DeletionTimestamp.Unix()
	}
	result.DrainHook = hasHook(machine, controlplanev1.PreDrainHookAnnotation)
	result.Hook = hasHook(machine, controlplanev1.PreTerminateHookAnnotation) || hostHeld(s.infra[machine.Name])
	for annotation := range machine.Annotations {
		if annotation != controlplanev1.PreTerminateHookAnnotation &&
			strings.HasPrefix(annotation, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			result.OtherHooks = append(result.OtherHooks, annotation)
		}
	}
	slices.Sort(result.OtherHooks)
	result.AtTermination = atTermination(machine, s.infra[machine.Name])
	result.Undrained = lifecycle.DrainOf(machine, s.clock.Now()).Skipped()
	result.Registered = health.seen
	return result
}

func kubeletVersion(machine *clusterv1.Machine, health machineHealth) string {
	if health.kubelet != "" {
		return health.kubelet
	}
	if machine.Status.NodeInfo != nil {
		return machine.Status.NodeInfo.KubeletVersion
	}
	return ""
}

// addressesOf are the addresses that the etcd member of a Machine may use towards its peers.
func (s *scope) addressesOf(machine *clusterv1.Machine) []string {
	var addresses []string
	for _, address := range machine.Status.Addresses {
		addresses = append(addresses, address.Address)
	}
	if infra := s.infra[machine.Name]; infra != nil {
		for _, address := range infra.Status.Addresses {
			addresses = append(addresses, address.Address)
		}
	}
	if host := s.hosts[machine.Name]; host != nil {
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

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}
