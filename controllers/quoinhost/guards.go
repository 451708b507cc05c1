// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// guard may take a reconcile over before the handler of the host's state gets it. One that lets it pass withdraws what
// it said when it did not.
type guard func(*reconciliation, context.Context) (res result, handled bool, err error)

// guards are asked in this order, which is one of rank: each may rest on what those before it have let pass.
var guards = []guard{
	(*reconciliation).guardDetached,
	(*reconciliation).guardPaused,
	(*reconciliation).guardAbandoned,
	(*reconciliation).guardNamespace,
	(*reconciliation).guardWords,
	(*reconciliation).guardConsumer,
	(*reconciliation).guardAdopted,
	(*reconciliation).guardToken,
	(*reconciliation).guardStuck,
	(*reconciliation).guardDead,
	(*reconciliation).guardTokenAtWord,
}

// step takes the host one step further.
func (r *reconciliation) step(ctx context.Context) (result, error) {
	for _, guard := range guards {
		if res, handled, err := guard(r, ctx); err != nil || handled {
			return res, err
		}
	}
	return handlers[r.host.Status.State](r, ctx)
}

// guardDetached: nobody connects to the host.
func (r *reconciliation) guardDetached(context.Context) (res result, handled bool, err error) {
	if isDetached(r.host) {
		return r.detached(), true, nil
	}
	r.attach()
	return result{}, false, nil
}

// guardPaused: nothing new starts. A person's words are heard after that.
func (r *reconciliation) guardPaused(ctx context.Context) (res result, handled bool, err error) {
	if r.paused {
		res = r.watchOnly(ctx)
		// While nothing is tried, nothing fails.
		r.host.Status.CleaningFailsSince = nil
		return res, true, nil
	}
	r.notQuiet()
	r.takeRetry()
	r.forgetQuestion()
	r.forgetMaintenance()
	return result{}, false, nil
}

// guardAbandoned: a person gives the host up.
func (r *reconciliation) guardAbandoned(context.Context) (res result, handled bool, err error) {
	if why := r.notAbandoned(); why != "" {
		r.takeBack(infrav1.AbandonAnnotation, why)
	} else if r.said(infrav1.AbandonAnnotation) {
		return r.abandon(), true, nil
	}
	r.restoreQuarantine()
	r.acceptHostKey()
	return result{}, false, nil
}

// guardNamespace: host and QuoinMachine do not both consent to the claim. What passes has its state from here on.
func (r *reconciliation) guardNamespace(context.Context) (res result, handled bool, err error) {
	if why := r.objection(); why.reason != "" {
		return r.refuseClaim(why), true, nil
	}
	r.forgetRefusal()
	r.enter(nextState(r.host.Status.State, r.claim.status, trusted(r.host), r.ownerlessCleaning()))
	return result{}, false, nil
}

// guardWords: what a person said of a quarantine that is none, or of another claim, is taken back.
func (r *reconciliation) guardWords(context.Context) (res result, handled bool, err error) {
	r.forgetWords()
	return result{}, false, nil
}

// guardConsumer: the consumer is missing, and nobody saw it go.
func (r *reconciliation) guardConsumer(ctx context.Context) (res result, handled bool, err error) {
	if r.claim.status != missing || !r.claimStands() {
		return result{}, false, nil
	}
	return r.consumerMissing(ctx), true, nil
}

// guardAdopted: the claim has come from another management cluster, or from a backup.
func (r *reconciliation) guardAdopted(ctx context.Context) (res result, handled bool, err error) {
	bumped, err := r.adopt(ctx)
	if err != nil || bumped {
		r.keepRetry()
	}
	return after(0), bumped, err
}

// guardToken: the host has not heard of the token of its claim.
func (r *reconciliation) guardToken(ctx context.Context) (res result, handled bool, err error) {
	if r.claim.status != held || !r.claimStands() || !r.pace().marked(adopted) {
		return result{}, false, nil
	}
	o := r.acquireToken(ctx)
	return o.result, o.pending, nil
}

// guardStuck: a person lets the Machine of a host go that cannot be cleaned.
func (r *reconciliation) guardStuck(context.Context) (res result, handled bool, err error) {
	return after(0), r.host.Status.State == infrav1.HostStateCleaning && r.releaseUnclean(), nil
}

// guardDead: the host does not answer while its claim must end.
func (r *reconciliation) guardDead(ctx context.Context) (res result, handled bool, err error) {
	r.notePool()
	return r.dead(ctx)
}

// guardTokenAtWord: a person says that the management cluster which the host obeys is gone for good.
func (r *reconciliation) guardTokenAtWord(ctx context.Context) (res result, handled bool, err error) {
	if res, handled, err = r.bumpTokenAtWord(ctx); err != nil || handled {
		r.keepRetry()
	}
	return res, handled, err
}
