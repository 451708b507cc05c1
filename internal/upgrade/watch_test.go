// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

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
			if c.again > 0 {
				g.Expect(d.Again).To(Equal(c.again))
			} else {
				g.Expect(d.Again).To(BeNumerically(">", time.Hour), "the deadline")
			}
		})
	}
}
