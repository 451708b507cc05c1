// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// Plan is what a run would do.
type Plan struct {
	Namespace string `json:"namespace"`
	// Phase is empty when no pivot is under way.
	Phase pivot.Phase `json:"phase,omitempty"`
	Next  pivot.Step  `json:"next"`
	// Checks of the preflight, which is made before a pivot begins.
	Checks []pivot.Check `json:"checks,omitempty"`
	// Objects that move, in the order in which they are made on the target.
	Objects []pivot.Object `json:"objects,omitempty"`
	// PointOfNoReturn says when that comes, or that it is behind.
	PointOfNoReturn string `json:"pointOfNoReturn,omitempty"`
	// Undo says what an undoing would do, or why there is none.
	Undo string `json:"undo,omitempty"`
}

// Refused reports whether the run would do nothing until a person has seen to what was found.
func (p Plan) Refused() bool { return p.Next.Action == pivot.Refuse || pivot.Blocks(p.Checks) }

// Plan says what Run would do with the wish. It writes nothing, on neither side and not in the workspace, so that
// nobody is asked from the target, and its admission only where it has the namespace.
func (p *Pivot) Plan(ctx context.Context, wish pivot.Wish) (Plan, error) {
	j, w, err := p.prepare(ctx, wish)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Namespace: p.Namespace, Next: pivot.Next(j, w, wish)}
	var existing []pivot.Object
	switch {
	case j != nil:
		plan.Phase, plan.Objects, existing = j.Phase, j.Objects, j.Existing
	case plan.Next.Action == pivot.Begin && !wish.TakeOver:
		facts, r, err := p.facts(ctx)
		if err != nil {
			return Plan{}, err
		}
		facts.Reach.Unasked = cmp.Or(skipped(wish), unaskedBefore)
		plan.Checks, plan.Objects, existing = pivot.Preflight(facts), r.seen, r.existing
	case plan.Next.Action == pivot.Begin, plan.Next.Action == pivot.Copy:
		r, err := p.takenOver(ctx)
		if err != nil {
			return Plan{}, err
		}
		plan.Objects, existing = r.seen, r.existing
	case plan.Next.Action == pivot.Release:
		plan.Objects = w.Source.Present
	}
	switch plan.Next.Action {
	case pivot.Begin, pivot.Copy:
		plan.PointOfNoReturn = "when " + everything(len(plan.Objects)) + ": " + behindIt
		copies := slices.DeleteFunc(slices.Clone(plan.Objects), func(o pivot.Object) bool {
			return slices.Contains(existing, o) || o.Namespace != p.Namespace
		})
		keeps := ""
		if kept := len(plan.Objects) - len(copies); kept > 0 {
			keeps = fmt.Sprintf(", leaves %d others, which it has already or which are of another namespace,", kept)
		}
		plan.Undo = fmt.Sprintf("until then --abort, and a failure by itself, deletes the copies on the target (%d "+
			"objects)%s and resumes the source", len(copies), keeps)
	case pivot.Undo:
		plan.PointOfNoReturn = "not reached: the pivot is undone"
		plan.Undo = "the copies on the target are deleted, and the source resumes"
	case pivot.Release, pivot.Resume:
		plan.PointOfNoReturn, plan.Undo = "behind: "+behindIt, "impossible"
	case pivot.Refuse, pivot.Nothing:
	}
	return plan, nil
}

// unaskedBefore is why nobody was asked from the target by what writes nothing.
const unaskedBefore = "this needs a Pod on the target, which a pivot and `preflight --from-target` run and delete"

// skipped says why the wish leaves the question out what the target reaches; empty where it does not.
func skipped(wish pivot.Wish) string {
	if reason := wish.Skip[pivot.SkipHosts]; reason != "" {
		return "--skip says: " + reason
	}
	return ""
}
