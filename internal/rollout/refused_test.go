// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// What was not written is remembered by nobody, of that pool alone; a refusal is said besides, after what stalls already.
//
// Proves: K-6, S3-10
func TestAPlanSaysWhatWasNotWritten(t *testing.T) {
	g := NewWithT(t)
	was := Pool{Name: "blue", Proofs: []Proof{{}}, Selected: "before", DoneOf: 1}
	planned := func() *Result {
		return &Result{Progress: []Progress{{Pool: "green", Selected: "now", DoneOf: 2, Reason: RollingOut},
			{Pool: "blue", Selected: "now", DoneOf: 2, Reason: RollingOut}}}
	}
	d := Decision{Pool: "blue", Machine: "m", Action: Delete}

	undone := planned()
	undone.Undone(was, d, "")
	g.Expect(undone.Progress[0]).To(Equal(planned().Progress[0]), "another pool's")
	g.Expect(undone.Progress[1]).To(Equal(Progress{Pool: "blue", Selected: "before", DoneOf: 1, Proofs: was.Proofs,
		Reason: RollingOut}))
	g.Expect(undone.Stalled).To(BeEmpty())

	undone = planned()
	undone.Undone(was, d, "no")
	g.Expect(undone.Progress[1].Selected).To(Equal("before"))
	g.Expect(undone.Cause).To(Equal(Refused))
	g.Expect(undone.Stalled).To(And(Equal(undone.Progress[1].Message), ContainSubstring("Permit it: no")))

	refused := planned()
	refused.Stalled, refused.Cause = "the deadline is over", "DeadlineExceeded"
	refused.Refuse(d, "no")
	g.Expect(refused.Progress[0]).To(Equal(planned().Progress[0]))
	g.Expect(refused.Progress[1]).To(And(HaveField("Reason", Refused), HaveField("Selected", "now"),
		HaveField("Message", ContainSubstring("Machine m of MachineDeployment blue"))))
	g.Expect(refused.Stalled).To(Equal("the deadline is over"))
	g.Expect(refused.Cause).To(BeEquivalentTo("DeadlineExceeded"))

	g.Expect(Decision{Machine: "m", Action: Delete}.Refusal("no")).To(Equal(
		"Machine m: Delete is refused and tried again; other MachineDeployments go on. Permit it: no"), "of no pool")

	// What another decision of the pool measured stays.
	undone.Counted(Decision{Pool: "blue", Pace: Pace{time.Minute}})
	g.Expect(undone.Progress[0].Pace).To(BeEmpty(), "another pool's")
	g.Expect(undone.Progress[1].Pace).To(Equal(Pace{time.Minute}))

	postponed := planned()
	postponed.Postpone(was, d, "the Cluster does not answer", time.Minute)
	g.Expect(postponed.Progress[0]).To(Equal(planned().Progress[0]))
	g.Expect(postponed.Progress[1]).To(Equal(Progress{Pool: "blue", Selected: "before", DoneOf: 1, Proofs: was.Proofs,
		Held: 1, Reason: NodeUnknown, Message: "Machine m: the Cluster does not answer"}))
	g.Expect(postponed.Stalled).To(BeEmpty(), "nobody has to permit anything")
	for _, c := range []struct{ before, want time.Duration }{
		{0, time.Minute}, {time.Second, time.Second}, {time.Hour, time.Minute},
	} {
		r := Result{Again: c.before}
		r.Postpone(was, d, "", time.Minute)
		g.Expect(r.Again).To(Equal(c.want), "it was to be planned again after %s", c.before)
	}
}
