// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package needs tells those who have hosts, and know nothing of etcd, what control planes need of these.
package needs

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Hosts are what control planes need of the hosts of their Machines.
type Hosts struct {
	// Reader asks the API server itself, because a cache may be behind.
	Reader client.Reader
}

// Power says why a silent host of this Machine, which is being deleted, is to keep its power; empty when it need not.
// The Machine was let go to be drained, but another member may die before its own is out of the list, and a host that
// nobody reaches over SSH may well vote. Its member is out once the control plane's last hook is off the Machine and
// off its QuoinMachine. A boot may bring a quorum back that is lost.
func (n Hosts) Power(ctx context.Context, of *clusterv1.Machine, boots bool, now time.Time) (why string, err error) {
	machine := &clusterv1.Machine{}
	if err := n.Reader.Get(ctx, client.ObjectKeyFromObject(of), machine); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	controlPlane, err := n.controlPlane(ctx, machine)
	if err != nil || controlPlane == nil ||
		controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined() {
		return "", err
	}
	if guarded, err := n.guarded(ctx, machine); err != nil || !guarded {
		return "", err
	}
	if recovery := controlPlane.Spec.Recovery; controlplane.RecoveryUnderWay(controlPlane) != "" &&
		slices.Contains(recovery.GiveUp, machine.Name) {
		return "", nil // its member must never come back
	}
	name, machines := client.ObjectKeyFromObject(controlPlane), &clusterv1.MachineList{}
	if err := n.Reader.List(ctx, machines, client.InNamespace(machine.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return "", fmt.Errorf("listing the Machines of QuoinControlPlane %s: %w", name, err)
	}
	var holders []quorum.Holder
	for _, m := range machines.Items {
		_, held := m.Annotations[controlplanev1.PreDrainHookAnnotation]
		holders = append(holders, quorum.Holder{Name: m.Name, Deleting: !m.DeletionTimestamp.IsZero(), Held: held})
	}
	membership := controlplane.MembershipFrom(controlPlane.Status.Etcd, now).HeldBy(holders, nil)
	lost := conditions.GetReason(controlPlane, controlplanev1.ControlPlaneEtcdClusterHealthyCondition) ==
		controlplanev1.QuorumLostReason && !membership.Agreed
	if membership.Age <= controlplane.ReadingMaxAge && (membership.StandsWithout(machine.Name) || boots && lost) {
		return "", nil
	}
	read := "has not read it yet"
	if etcd := controlPlane.Status.Etcd; etcd != nil {
		read = "read it at " + etcd.ObservedTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("its etcd member is not removed yet, and by what is known the others have no quorum without it "+
		"(QuoinControlPlane %s %s; its condition EtcdClusterHealthy says more): mend them, delete the Machine of one that "+
		"is dead, or bring this host back", name, read), nil
}

// Claim says why this Machine is to claim no host now; empty when it may. While etcd is recovered, one that claimed
// a host and joined would be given up with the others, by a cluster that it votes in, and the recovery would wait for
// it.
func (n Hosts) Claim(ctx context.Context, of *clusterv1.Machine) (why string, err error) {
	controlPlane, err := n.controlPlane(ctx, of)
	if err != nil || controlPlane == nil {
		return "", err
	}
	id := controlplane.RecoveryUnderWay(controlPlane)
	if id == "" {
		return "", nil
	}
	return fmt.Sprintf("recovery %s of etcd is under way, and nobody joins before it is over: condition Recovering of "+
		"QuoinControlPlane %s says how far it came", id, client.ObjectKeyFromObject(controlPlane)), nil
}

// guarded reports whether a hook of the control plane is on the Machine, or on its QuoinMachine, where it stays when
// somebody takes the annotation off.
func (n Hosts) guarded(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	if _, annotated := machine.Annotations[controlplanev1.PreTerminateHookAnnotation]; annotated {
		return true, nil
	}
	infra := &infrav1.QuoinMachine{}
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := n.Reader.Get(ctx, key, infra); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading QuoinMachine %s: %w", key, err)
	}
	return slices.ContainsFunc(infra.Spec.LifecycleHooks.PreTerminate, func(hook infrav1.LifecycleHook) bool {
		return hook.Name == controlplanev1.HookName
	}), nil
}

// controlPlane of a Machine; nil when it has none of ours, or that is gone.
func (n Hosts) controlPlane(ctx context.Context, of *clusterv1.Machine) (*controlplanev1.QuoinControlPlane, error) {
	owner := metav1.GetControllerOf(of)
	if owner == nil || owner.Kind != "QuoinControlPlane" {
		return nil, nil
	}
	controlPlane := &controlplanev1.QuoinControlPlane{}
	key := client.ObjectKey{Namespace: of.Namespace, Name: owner.Name}
	if err := n.Reader.Get(ctx, key, controlPlane); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading QuoinControlPlane %s: %w", key, err)
	}
	return controlPlane, nil
}
