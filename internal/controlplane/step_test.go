// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"
)

// A step that waits or is refused waits on its reason and its Machine. One that nothing depends on ends no waiting.
func TestWhatAStepIs(t *testing.T) {
	g := NewWithT(t)
	wait := Step{Kind: Wait, Reason: "Draining", Machine: "m"}
	for _, tc := range []struct {
		step           Step
		waiting, joins bool
		on             string
	}{
		{Step{Kind: Done}, true, false, ""},
		{wait, true, false, "Draining m"},
		{Step{Kind: Wait, Reason: "QuorumAtRisk"}, true, false, "QuorumAtRisk"},
		{Step{Kind: Refuse, Reason: "VersionSkew"}, true, false, "VersionSkew"},
		{Step{Kind: CreateMachine, Reason: "ScaleUp"}, false, true, ""},
		{Step{Kind: AllowHostClaim, Reason: "ScaleUp", Machine: "m"}, false, true, ""},
		{Step{Kind: DeleteMachine, Reason: "Replaced", Machine: "m"}, false, false, ""},
		{Step{Kind: PreCreateMachine, Reason: "Surge", Machine: "n", Fallback: &wait}, false, false, "Draining m"},
	} {
		g.Expect([]any{tc.step.Waiting(), tc.step.Joins(), tc.step.WaitingOn()}).To(
			Equal([]any{tc.waiting, tc.joins, tc.on}), "%+v", tc.step)
	}
	g.Expect((&Step{Kind: Wait, Reason: "Draining"}).WithMachine("m")).To(Equal(&wait))
}

// An outcome is about the Machine that the step made, or else about its own, and has the detail at its end.
func TestTheOutcomeOfAStep(t *testing.T) {
	g := NewWithT(t)
	step := Step{Kind: PreCreateMachine, Machine: "leaves", Message: "beside it"}
	g.Expect(step.Done(Effect{})).To(Equal(Outcome{step}))
	g.Expect(step.Done(Effect{Made: "made", Detail: ": made"})).To(
		Equal(Outcome{Step{Kind: PreCreateMachine, Machine: "made", Message: "beside it: made"}}))
}
