// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const (
	preDrain     = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
	preTerminate = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// pair is a Machine and its QuoinMachine.
type pair struct {
	machine *clusterv1.Machine
	quoin   *infrav1.QuoinMachine
}

func newPair(changes ...func(*pair)) *pair {
	p := &pair{
		machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "m"}},
		quoin:   &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "m"}},
	}
	p.machine.Spec.InfrastructureRef.Name = "m"
	for _, change := range changes {
		change(p)
	}
	return p
}

func entry(point Point, name, owner string) func(*pair) {
	return func(p *pair) {
		hooks := &p.quoin.Spec.LifecycleHooks
		if point == PreDrain {
			hooks.PreDrain = append(hooks.PreDrain, infrav1.LifecycleHook{Name: name, Owner: owner})
		} else {
			hooks.PreTerminate = append(hooks.PreTerminate, infrav1.LifecycleHook{Name: name, Owner: owner})
		}
	}
}

func annotated(key, value string) func(*pair) {
	return func(p *pair) {
		if p.machine.Annotations == nil {
			p.machine.Annotations = map[string]string{}
		}
		p.machine.Annotations[key] = value
	}
}

func machineDeleting(p *pair) { p.machine.DeletionTimestamp = &metav1.Time{Time: noon} }
func quoinDeleting(p *pair)   { p.quoin.DeletionTimestamp = &metav1.Time{Time: noon} }
func machineGone(p *pair)     { p.machine = nil }
func withNode(p *pair)        { p.machine.Status.NodeRef.Name = "n1" }

// at is how far Cluster API came with the deletion.
func at(reason, message string) func(*pair) {
	return func(p *pair) {
		machineDeleting(p)
		conditions.Set(p.machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
			Reason: reason, Message: message})
	}
}

func times(change func(*clusterv1.MachineDeletionStatus)) func(*pair) {
	return func(p *pair) {
		if p.machine.Status.Deletion == nil {
			p.machine.Status.Deletion = &clusterv1.MachineDeletionStatus{}
		}
		change(p.machine.Status.Deletion)
	}
}

func drainBegan(before time.Duration) func(*pair) {
	return times(func(d *clusterv1.MachineDeletionStatus) { d.NodeDrainStartTime = metav1.NewTime(noon.Add(-before)) })
}

func volumesAwaited(before time.Duration) func(*pair) {
	return times(func(d *clusterv1.MachineDeletionStatus) {
		d.WaitForNodeVolumeDetachStartTime = metav1.NewTime(noon.Add(-before))
	})
}

func drainTimeout(seconds int32) func(*pair) {
	return func(p *pair) { p.machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To(seconds) }
}

// Proves: S2-2, S2-3, S2-4, S2-5, S2-21, S2-22, S2-23, S2-36
func TestEntriesBecomeAnnotations(t *testing.T) {
	record := infrav1.LifecycleHooksAnnotation
	for name, c := range map[string]struct {
		pair *pair
		want map[string]string
	}{
		"none": {newPair(), map[string]string{}},
		"an operator's": {newPair(entry(PreDrain, "EtcdQuorumOperator", "clusteroperator/etcd")), map[string]string{
			preDrain + "EtcdQuorumOperator": "clusteroperator/etcd", record: `{"` + preDrain +
				`EtcdQuorumOperator":"clusteroperator/etcd"}`}},
		"both points, two of one owner": {
			newPair(entry(PreDrain, "MigrateImportantApp", "my-app-migration-controller"),
				entry(PreTerminate, "CloudProviderSpecialCase", "my-custom-storage-detach-controller"),
				entry(PreTerminate, "WaitForStorageDetach", "my-custom-storage-detach-controller")),
			map[string]string{
				preDrain + "MigrateImportantApp":          "my-app-migration-controller",
				preTerminate + "CloudProviderSpecialCase": "my-custom-storage-detach-controller",
				preTerminate + "WaitForStorageDetach":     "my-custom-storage-detach-controller",
				record: `{"` + preDrain + `MigrateImportantApp":"my-app-migration-controller","` +
					preTerminate + `CloudProviderSpecialCase":"my-custom-storage-detach-controller","` +
					preTerminate + `WaitForStorageDetach":"my-custom-storage-detach-controller"}`}},
		"what is there stays": {newPair(entry(PreDrain, "a", "x"), annotated(preDrain+"a", "x"),
			annotated(record, `{"`+preDrain+`a":"x"}`)),
			map[string]string{preDrain + "a": "x", record: `{"` + preDrain + `a":"x"}`}},
		"what was taken away by hand comes back": {newPair(entry(PreDrain, "a", "x"),
			annotated(record, `{"`+preDrain+`a":"x"}`)),
			map[string]string{preDrain + "a": "x", record: `{"` + preDrain + `a":"x"}`}},
		"but not once the deletion has begun": {newPair(entry(PreDrain, "a", "x"), annotated(record, `{"`+preDrain+`a":"x"}`),
			machineDeleting),
			map[string]string{}},
		"nor is anything added then": {newPair(entry(PreDrain, "a", "x"), machineDeleting), map[string]string{}},
		"an entry that is gone takes its annotation along": {newPair(annotated(preDrain+"a", "x"),
			annotated(record, `{"`+preDrain+`a":"x"}`)),
			map[string]string{}},
		"also in deletion": {newPair(annotated(preDrain+"a", "x"), annotated(record, `{"`+preDrain+`a":"x"}`),
			machineDeleting), map[string]string{}},
		"another owner is written down": {newPair(entry(PreDrain, "a", "y"), annotated(preDrain+"a", "x"),
			annotated(record, `{"`+preDrain+`a":"x"}`)),
			map[string]string{preDrain + "a": "y", record: `{"` + preDrain + `a":"y"}`}},
		"what somebody took over is theirs": {newPair(annotated(preDrain+"a", "z"),
			annotated(record, `{"`+preDrain+`a":"x"}`)),
			map[string]string{preDrain + "a": "z"}},
		"annotations of others are left alone": {newPair(entry(PreDrain, "a", "x"), annotated(preDrain+"a", "x"),
			annotated(preTerminate+"b", "y"), annotated("c", "d")),
			map[string]string{preDrain + "a": "x", preTerminate + "b": "y", "c": "d"}},
		"the control plane's own is the control plane's": {newPair(entry(PreTerminate, "quoin", "QuoinControlPlane/prod")),
			map[string]string{}},
		"a record that cannot be read": {newPair(annotated(preDrain+"a", "x"), annotated(record, "what")),
			map[string]string{preDrain + "a": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			got := Annotations(c.pair.quoin, c.pair.machine)
			g.Expect(got).To(Equal(c.want))
			c.pair.machine.Annotations = got
			g.Expect(Annotations(c.pair.quoin, c.pair.machine)).To(Equal(c.want), "written once, it holds")
		})
	}
}

// Proves: S2-2, S2-3, S2-20, C13
func TestAHostIsReleasedWhenNothingHoldsItAnyMore(t *testing.T) {
	own := entry(PreTerminate, "quoin", "QuoinControlPlane/prod")
	infrastructure := at(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason, "")
	for name, c := range map[string]struct {
		pair         *pair
		reason, says string
	}{
		"the Machine's turn came": {newPair(quoinDeleting, infrastructure), "", ""},
		"the Machine is gone":     {newPair(quoinDeleting, machineGone), "", ""},
		"the Machine lives": {newPair(quoinDeleting), infrav1.MachineInUseReason,
			"Machine prod/m is not: nothing is done to the host"},
		"the Machine lives, whatever hooks say": {newPair(quoinDeleting, own), infrav1.MachineInUseReason,
			"Delete the Machine"},
		"moved to another management plane": {newPair(quoinDeleting, machineGone, func(p *pair) {
			p.quoin.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		}), infrav1.MachineInUseReason, "moved"},
		"a Machine of the same name and other infrastructure": {newPair(quoinDeleting, func(p *pair) {
			p.machine.Spec.InfrastructureRef.Name = "m-new"
		}), "", ""},

		"an entry before the drain holds, though Cluster API skipped it": {newPair(quoinDeleting, infrastructure,
			entry(PreDrain, "MigrateImportantApp", "my-app-migration-controller")),
			infrav1.MachineHooksHoldReason, "pre-drain MigrateImportantApp (owner my-app-migration-controller)"},
		"an entry holds though its annotation was stripped": {newPair(quoinDeleting, infrastructure, own),
			infrav1.MachineHooksHoldReason, "pre-terminate quoin (owner QuoinControlPlane/prod)"},
		"an entry holds though the Machine is gone": {newPair(quoinDeleting, own, machineGone),
			infrav1.MachineHooksHoldReason, "quoin"},
		"an annotation before termination holds": {newPair(quoinDeleting,
			at(clusterv1.MachineDeletingWaitingForPreTerminateHookReason, ""), annotated(preTerminate+"BackupFileSystem",
				"my-backup-controller")),
			infrav1.MachineHooksHoldReason, "pre-terminate BackupFileSystem (owner my-backup-controller)"},
		"an annotation before the drain holds as long as Cluster API waits for it": {newPair(quoinDeleting,
			at(clusterv1.MachineDeletingWaitingForPreDrainHookReason, ""), annotated(preDrain+"a", "x")),
			infrav1.MachineHooksHoldReason, "pre-drain a (owner x)"},
		"and before Cluster API has looked at all": {newPair(quoinDeleting, machineDeleting, annotated(preDrain+"a", "x")),
			infrav1.MachineHooksHoldReason, "pre-drain a"},
		"but not when Cluster API went past it": {newPair(quoinDeleting, infrastructure, annotated(preDrain+"a", "x")), "",
			""},
		"nobody knows the owner": {newPair(quoinDeleting, infrastructure, annotated(preTerminate+"a", "")),
			infrav1.MachineHooksHoldReason, "a (owner unknown)"},
		"the bare prefix is a hook to Cluster API": {newPair(quoinDeleting, infrastructure,
			annotated(clusterv1.PreTerminateDeleteHookAnnotationPrefix, "x")), infrav1.MachineHooksHoldReason, "(owner x)"},
		"many": {newPair(quoinDeleting, infrastructure, entry(PreDrain, "a", "x"), entry(PreDrain, "b", "x"),
			entry(PreDrain, "c", "x"),
			entry(PreDrain, "d", "x"), entry(PreDrain, "e", "x"), entry(PreDrain, "f", "x"), entry(PreDrain, "g", "x")),
			infrav1.MachineHooksHoldReason, "and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			verdict := Release(c.pair.quoin, c.pair.machine)
			g.Expect(verdict.Allowed).To(Equal(c.reason == ""), verdict.Message)
			g.Expect(verdict.Reason).To(Equal(c.reason))
			g.Expect(verdict.Message).To(ContainSubstring(c.says))
		})
	}
}

// Proves: S2-11, S2-14, S2-15
func TestHowFarTheDrainCame(t *testing.T) {
	terminating := at(clusterv1.MachineDeletingWaitingForPreTerminateHookReason,
		"Waiting for pre-terminate hooks to succeed (hooks: a)")
	stripped := at(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
		"Waiting for QuoinMachine to be deleted")
	draining := at(clusterv1.MachineDeletingDrainingNodeReason,
		"Drain not completed yet: * Pod app/one: cannot evict pod as it would violate the pod's disruption budget.")
	for name, c := range map[string]struct {
		pair   *pair
		reason string
		done   bool
		says   string
	}{
		"not deleting":       {newPair(withNode), infrav1.MachineNotDeletingReason, false, ""},
		"the deletion began": {newPair(withNode, machineDeleting), infrav1.MachineDrainingReason, false, ""},
		"hooks are waited for": {newPair(withNode, at(clusterv1.MachineDeletingWaitingForPreDrainHookReason,
			"hooks: a")), infrav1.MachineHooksHoldReason, false, "hooks: a"},
		"draining": {newPair(withNode, draining, drainBegan(time.Minute)), infrav1.MachineDrainingReason,
			false, "disruption budget"},
		"failing to drain": {newPair(withNode, at(clusterv1.MachineDeletingDrainingNodeReason,
			"Error draining Node"), drainBegan(time.Minute)), infrav1.MachineDrainingReason, false, "Error draining"},
		"no node": {newPair(terminating), infrav1.MachineNoNodeReason, true, ""},
		"excluded": {newPair(withNode, terminating, annotated(clusterv1.ExcludeNodeDrainingAnnotation, "")),
			infrav1.MachineDrainExcludedReason, true, ""},
		"drained, volumes next": {newPair(withNode, at(clusterv1.MachineDeletingWaitingForVolumeDetachReason, ""),
			drainBegan(time.Minute), volumesAwaited(0)), infrav1.MachineDrainedReason, true, ""},
		"drained": {newPair(withNode, terminating, drainBegan(time.Minute), volumesAwaited(0)),
			infrav1.MachineDrainedReason, true, ""},
		"drained, volumes excluded": {newPair(withNode, terminating, drainBegan(time.Minute),
			annotated(clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")), infrav1.MachineDrainedReason, true, ""},
		"drained in time, long ago": {newPair(withNode, terminating, drainTimeout(60), drainBegan(time.Hour),
			volumesAwaited(time.Hour-time.Second)), infrav1.MachineDrainedReason, true, ""},
		"given up": {newPair(withNode, terminating, drainTimeout(60), drainBegan(time.Hour),
			volumesAwaited(time.Minute)), infrav1.MachineDrainTimedOutReason, false, "60 s after 2026-01-01T11:00:00Z"},
		"skipped": {newPair(withNode, terminating), infrav1.MachineDrainSkippedReason, false,
			"without a drain of Node n1"},
		"skipped half way": {newPair(withNode, terminating, drainBegan(time.Minute)),
			infrav1.MachineDrainSkippedReason, false, "begun at 2026-01-01T11:59:00Z"},
		"skipped, no hook is left": {newPair(withNode, stripped), infrav1.MachineDrainSkippedReason, false, ""},
		"evicting": {newPair(withNode, terminating, annotated(controlplanev1.EvictionStartedAnnotation,
			"2026-01-01T11:59:50Z"), drainTimeout(60)), infrav1.MachineDrainSkippedReason, false, ""},
		"evicted for too long": {newPair(withNode, terminating, annotated(controlplanev1.EvictionStartedAnnotation,
			"2026-01-01T11:58:00Z"), drainTimeout(60)), infrav1.MachineDrainTimedOutReason, false, ""},
		"evicted": {newPair(withNode, terminating, annotated(controlplanev1.EvictionEndedAnnotation,
			"2026-01-01T11:58:00Z")), infrav1.MachineDrainedReason, true, ""},
		"with as much time as it takes": {newPair(withNode, terminating, annotated(controlplanev1.EvictionStartedAnnotation,
			"2025-01-01T00:00:00Z"), drainTimeout(0)),
			infrav1.MachineDrainSkippedReason, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			drain := DrainOf(c.pair.machine, noon.Sub)
			g.Expect(drain.Reason).To(Equal(c.reason), drain.Message)
			g.Expect(drain.Done).To(Equal(c.done))
			g.Expect(drain.Skipped()).To(Equal(c.reason == infrav1.MachineDrainSkippedReason))
			g.Expect(drain.Message).To(ContainSubstring(c.says))
		})
	}
}

// Proves: S2-12, S2-13, S2-14, S2-15, S2-16, S2-17, C13
func TestConditionsMirrorTheDeletionFromTheCreationOn(t *testing.T) {
	waiting := times(func(d *clusterv1.MachineDeletionStatus) {
		d.WaitForPreDrainHookStartTime = metav1.NewTime(noon)
		d.WaitForPreTerminateHookStartTime = metav1.NewTime(noon.Add(time.Minute))
	})
	// state is "<status>/<reason>" of Drainable, Drained and Terminable.
	type state [3]string
	for name, c := range map[string]struct {
		pair *pair
		want state
		says string
	}{
		"just created, no Machine yet": {newPair(machineGone), state{"True/NoHooks", "False/NotDeleting", "True/NoHooks"},
			""},
		"created": {newPair(), state{"True/NoHooks", "False/NotDeleting", "True/NoHooks"}, ""},
		"created with hooks": {newPair(entry(PreDrain, "EtcdQuorumOperator", "clusteroperator/etcd"),
			entry(PreTerminate, "WaitForStorageDetach", "my-custom-storage-detach-controller")),
			state{"False/WaitingForHooks", "False/NotDeleting", "False/WaitingForHooks"},
			"pre-drain hooks: EtcdQuorumOperator (owner clusteroperator/etcd)"},
		"an annotation of somebody": {newPair(annotated(preDrain+"MigrateImportantApp", "my-app-migration-controller")),
			state{"False/WaitingForHooks", "False/NotDeleting", "True/NoHooks"},
			"pre-drain hooks: MigrateImportantApp (owner my-app-migration-controller)"},
		"entry and annotation are one hook": {newPair(entry(PreDrain, "a", "x"), annotated(preDrain+"a", "x")),
			state{"False/WaitingForHooks", "False/NotDeleting", "True/NoHooks"}, "pre-drain hooks: a (owner x)"},
		"the control plane's own annotation": {newPair(annotated(controlplanev1.PreDrainHookAnnotation, ""), func(p *pair) {
			p.machine.OwnerReferences = []metav1.OwnerReference{{Kind: "QuoinControlPlane", Name: "prod",
				Controller: ptr.To(true)}}
		}), state{"False/WaitingForHooks", "False/NotDeleting", "True/NoHooks"},
			"pre-drain hooks: quoin (owner QuoinControlPlane/prod)"},
		"held before the drain": {newPair(withNode, at(clusterv1.MachineDeletingWaitingForPreDrainHookReason, "hooks: a"),
			annotated(preDrain+"a", "x"), waiting),
			state{"False/WaitingForHooks", "False/WaitingForHooks", "True/NoHooks"},
			"pre-drain hooks: a (owner x). Waited for since 2026-01-01T12:00:00Z"},
		"draining": {newPair(withNode, at(clusterv1.MachineDeletingDrainingNodeReason, "Drain not completed yet"),
			drainBegan(time.Second)),
			state{"True/NoHooks", "False/Draining", "True/NoHooks"}, ""},
		"held before the termination": {newPair(withNode, at(clusterv1.MachineDeletingWaitingForPreTerminateHookReason, ""),
			drainBegan(time.Minute), volumesAwaited(0), entry(PreTerminate, "a", "x"), waiting),
			state{"True/NoHooks", "True/Drained", "False/WaitingForHooks"},
			"pre-terminate hooks: a (owner x). Waited for since 2026-01-01T12:01:00Z"},
		"free to go": {newPair(withNode, quoinDeleting, at(clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason,
			""), drainBegan(time.Minute), volumesAwaited(0)),
			state{"True/NoHooks", "True/Drained", "True/NoHooks"}, ""},
		"the Machine is gone": {newPair(quoinDeleting, machineGone), state{"True/NoHooks", "Unknown/NoNode", "True/NoHooks"},
			""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var got state
			var messages string
			for i, condition := range Conditions(c.pair.quoin, c.pair.machine, noon) {
				got[i] = string(condition.Status) + "/" + condition.Reason
				messages += condition.Message
			}
			g.Expect(got).To(Equal(c.want), messages)
			g.Expect(messages).To(ContainSubstring(c.says))
			g.Expect(Conditions(c.pair.quoin, c.pair.machine, noon.Add(time.Second))).
				To(Equal(Conditions(c.pair.quoin, c.pair.machine, noon)),
					"a second later nothing has to be written")
		})
	}
}
