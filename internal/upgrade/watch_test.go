// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What a person is asked to mend, and a control plane of another provider, is looked at each minute: nobody tells when
// it changes.
func TestWhatNobodyWatchesIsLookedAtAgain(t *testing.T) {
	until := func(there func(*fleet) bool) func(*fleet) {
		return func(f *fleet) {
			for range 20 {
				if f.step(false); there(f) {
					return
				}
				f.advance()
			}
			panic("it never comes to that")
		}
	}
	begun := until(func(f *fleet) bool { return Begun(&f.upgrade) })
	set := until(func(f *fleet) bool { return f.plane.spec == f.upgrade.Spec.Version })
	for name, c := range map[string]struct {
		happens []func(*fleet)
		reason  string
		again   time.Duration
	}{
		"a version that was set back": {reason: quoinv1.RevertedReason, again: unwatched,
			happens: []func(*fleet){set, func(f *fleet) { f.plane.spec = "v1.35.4" }}},
		"a version that is later": {reason: quoinv1.AheadReason, again: unwatched,
			happens: []func(*fleet){begun, func(f *fleet) { f.plane.spec = "v1.36.9" }}},
		"no plan": {reason: quoinv1.NoPlanReason, again: unwatched,
			happens: []func(*fleet){func(f *fleet) { f.plane.nodes = []string{"v1.37.0"} }}},
		"no hops": {reason: quoinv1.HopsUnknownReason, again: unwatched,
			happens: []func(*fleet){func(f *fleet) { f.plane.nodes = []string{"v1.34.4"} }}},
		"the rollout of another provider": {reason: string(quoinv1.UpgradeStepControlPlane), again: unwatched,
			happens: []func(*fleet){func(f *fleet) { f.foreign = true }, set}},
		"a rollout of ours, which tells": {reason: string(quoinv1.UpgradeStepControlPlane),
			happens: []func(*fleet){set}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := large(1)
			for _, happens := range c.happens {
				happens(f)
			}
			d := f.step(false)
			for d.Change != nil {
				d = f.step(false)
			}
			g.Expect(d.Status.Conditions).To(ContainElement(And(HaveField("Type", "Progressing"),
				HaveField("Reason", c.reason))))
			if c.reason == quoinv1.RevertedReason || c.reason == quoinv1.AheadReason {
				w := f.world()
				g.Expect(Next(w, &f.upgrade, f.now).Live).To(BeFalse())
				w.ControlPlane.Owner = ""
				g.Expect(Next(w, &f.upgrade, f.now).Live).To(BeTrue(), "who wrote it is read anew")
			}
			if c.again > 0 {
				g.Expect(d.Again).To(Equal(c.again))
			} else {
				g.Expect(d.Again).To(BeNumerically(">", time.Hour), "the deadline")
			}
		})
	}
}

// In the middle of a rollout a preflight could only block.
func TestWhatWasBegunIsNotAskedAgain(t *testing.T) {
	g, f := NewWithT(t), large(1)
	metav1.SetMetaDataAnnotation(&f.upgrade.ObjectMeta, quoinv1.ClusterUpgradeBegunAnnotation, Mark(&f.upgrade, f.now))
	for range 3 {
		f.step(false)
	}
	g.Expect(f.checks).To(BeEmpty())
	g.Expect(f.writes).To(ContainElement("SetVersion QuoinControlPlane prod v1.36.3"))
}

// An upgrade of which nothing can be decided is late all the same, and its windows count.
func TestAnUpgradeThatCannotBeDecidedIsLate(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC) // a Monday
	begun := &quoinv1.ClusterUpgrade{}
	begun.Name, begun.Spec.Version, begun.Spec.DeadlineSeconds = "prod", "v1.36.3", ptr.To[int32](60)
	begun.Annotations = map[string]string{quoinv1.ClusterUpgradeBegunAnnotation: Mark(begun, now)}
	windows := &quoinv1.RolloutPolicy{}
	windows.Spec.Windows = []quoinv1.RolloutWindow{{Start: "07:00", DurationMinutes: ptr.To[int32](60)}}
	for name, c := range map[string]struct {
		after  time.Duration
		policy *quoinv1.RolloutPolicy
		late   metav1.ConditionStatus
	}{
		"on time":            {after: 59 * time.Second, late: metav1.ConditionFalse},
		"late":               {after: time.Minute, late: metav1.ConditionTrue},
		"outside of windows": {after: time.Minute, policy: windows, late: metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			status := Late(begun, c.policy, now.Add(c.after), nil)
			NewWithT(t).Expect(meta.IsStatusConditionPresentAndEqual(status.Conditions,
				quoinv1.ClusterUpgradeStalledCondition, c.late)).To(BeTrue(), "%v", status)
		})
	}
}

// Of an upgrade that is over nothing is read any more, once its status says what ran and that nothing keeps it back.
func TestAnUpgradeIsSettledWhenItsStatusIsWhole(t *testing.T) {
	whole := &quoinv1.ClusterUpgrade{}
	whole.Annotations = map[string]string{quoinv1.ClusterUpgradeCompletedAnnotation: Mark(whole, time.Now())}
	whole.Status.Versions = counted([]string{"v1.36.3"})
	for name, c := range map[string]struct {
		change  func(*quoinv1.ClusterUpgrade)
		settled bool
	}{
		"whole":        {func(*quoinv1.ClusterUpgrade) {}, true},
		"not over":     {func(of *quoinv1.ClusterUpgrade) { of.Annotations = nil }, false},
		"after a move": {func(of *quoinv1.ClusterUpgrade) { of.Status.Versions = nil }, false},
		"while paused": {func(of *quoinv1.ClusterUpgrade) {
			meta.SetStatusCondition(&of.Status.Conditions, metav1.Condition{Type: quoinv1.ClusterUpgradePausedCondition,
				Status: metav1.ConditionTrue, Reason: quoinv1.PausedReason})
		}, false},
	} {
		of := whole.DeepCopy()
		c.change(of)
		NewWithT(t).Expect(Settled(of)).To(Equal(c.settled), name)
	}
}
