// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// renewal is how often a run says that it lives.
const renewal = pivot.Lease / 4

// journal is the merged one; nil when there is none.
func (p *Pivot) journal(ctx context.Context) (*pivot.Journal, error) {
	local, err := p.Local.Load()
	if err != nil {
		return nil, err
	}
	source, err := p.Source.journal(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	target, err := p.Target.journal(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	j := pivot.Merge(source, target)
	// The workspace may be about another pivot, or older than what both sides have.
	if local != nil && local.Between(p.Namespace, p.Source.UID, p.Target.UID) == "" && (j == nil || j.ID == local.ID) {
		j = pivot.Merge(local, source, target)
	}
	if j == nil {
		return nil, nil
	}
	merged := *j
	merged.Holder, merged.Renewed = "", time.Time{}
	if target != nil && target.ID == j.ID {
		merged.Holder, merged.Renewed = target.Holder, target.Renewed
	}
	p.behind = nil
	late := func(kept *pivot.Journal) bool {
		return !merged.Open() && kept != nil && kept.ID == merged.ID && kept.Phase != merged.Phase
	}
	for _, side := range []*Side{p.Target, p.Source} {
		if kept := map[*Side]*pivot.Journal{p.Target: target, p.Source: source}[side]; late(kept) {
			p.behind = append(p.behind, func(ctx context.Context) error { return side.keep(ctx, &merged, p.holder) })
		}
	}
	if late(local) {
		p.behind = append(p.behind, func(context.Context) error { return p.Local.Save(&merged) })
	}
	return &merged, nil
}

func (p *Pivot) time() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now().UTC()
}

// save writes the journal at all three places. The target is first, and decides which of two runs goes on; the others
// are copies, in case that the target is lost.
func (p *Pivot) save(ctx context.Context, j *pivot.Journal) error {
	if err := p.hold(ctx, j); err != nil {
		return err
	}
	if err := p.Source.keep(ctx, j, p.holder); err != nil {
		return err
	}
	return p.Local.Save(j)
}

// hold writes the journal on the target, with this run as the one that works on it.
func (p *Pivot) hold(ctx context.Context, j *pivot.Journal) error {
	j.Holder, j.Renewed = p.holder, p.time()
	if !j.Open() {
		j.Holder, j.Renewed = "", time.Time{}
	}
	if err := p.Target.keep(ctx, j, p.holder); err != nil {
		return err
	}
	held := *j
	p.held = &held
	return nil
}

// alive says now and then that this run lives, and ends it when another one has gone on. A target that does not answer
// is no reason to end.
func (p *Pivot) alive(ctx context.Context) error {
	if !p.held.Open() || p.time().Sub(p.held.Renewed) < renewal {
		return nil
	}
	held := *p.held
	if err := p.hold(ctx, &held); errors.Is(err, errOvertaken) {
		return err
	}
	return nil
}

// leave lets the next run go on at once.
func (p *Pivot) leave(ctx context.Context) {
	if !p.held.Open() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	left := *p.held
	left.Holder, left.Renewed = "", time.Time{}
	_ = p.Target.keep(ctx, &left, p.holder) // It is free after a while otherwise.
}
