// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

const (
	// pollEvery is how often a running plan is asked for its progress: its end is an event on the host, not here. In its first
	// seconds, in which a short one ends, that is more often.
	pollEvery = 3 * time.Second
	pollFirst = 500 * time.Millisecond
	// probeEvery is how often a host that nothing happens to is asked whether it is there.
	probeEvery = 3 * time.Minute

	shortExchange = time.Minute
	longExchange  = 5 * time.Minute
)

// outcome of exchange: pending means that the handler returns result now.
type outcome struct {
	pending bool
	result  result
}

var ready = outcome{}

func pending(r result) outcome { return outcome{pending: true, result: r} }

// exchange has one conversation with the host beside the workers. Its failure is put into the conditions and tried again
// with growing distance; until then exchange says pending.
func exchange[T any](t *turn, op string, timeout time.Duration, fn func(context.Context, *infrav1.QuoinHost) (T, error)) (T, outcome) {
	var none T
	if wait := t.backOff(); wait > 0 {
		return none, pending(after(wait))
	}
	host := t.host.DeepCopy() // the exchange outlives this reconcile
	value, done, err := async.Do(t.r.Calls, client.ObjectKeyFromObject(host), op, timeout, func(ctx context.Context) (T, error) {
		begin := time.Now()
		value, err := fn(ctx, host)
		observeExchange(op, time.Since(begin), err)
		return value, err
	})
	switch {
	case !done:
		return none, pending(onEvent())
	case err != nil:
		return none, pending(t.failed(err))
	}
	t.succeeded()
	t.r.pace.mark(t.key(), op, t.now)
	return value, ready
}

// order is an exchange that returns nothing.
func order(t *turn, op string, timeout time.Duration, fn func(context.Context, *infrav1.QuoinHost) error) outcome {
	_, o := exchange(t, op, timeout, func(ctx context.Context, host *infrav1.QuoinHost) (struct{}, error) {
		return struct{}{}, fn(ctx, host)
	})
	return o
}

func (t *turn) key() client.ObjectKey { return client.ObjectKeyFromObject(t.host) }

// follow tells where a plan stands, and keeps it going. What the host says counts, never what was recorded: the status
// may have been lost, and the manager may have died between starting a plan and writing that down. So a process asks the
// host at least once before it takes the record for true.
func (t *turn) follow(id string) (run.Status, outcome) {
	op := "follow " + id
	recorded := t.host.Status.Operation
	if recorded != nil && recorded.ID == id && t.r.pace.marked(t.key(), op) {
		phase := run.Phase(recorded.Phase)
		if phase.Final() || phase == run.NotStarted {
			return run.Status{Phase: phase, Step: recorded.Step}, ready
		}
	}
	if wait := t.r.pace.remaining(t.key(), op, t.pollPause(id), t.now); wait > 0 {
		return run.Status{}, pending(after(wait))
	}
	ours, resume := t.ownerRecord(), !t.paused
	status, o := exchange(t, op, shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) (run.Status, error) {
		return t.r.Exchanges.Follow(ctx, host, id, ours, resume)
	})
	if o.pending {
		return status, o
	}
	if recorded != nil && recorded.ID == id && lostJournal(run.Phase(recorded.Phase), status) {
		status = run.Status{Phase: run.Interrupted, Message: journalLost}
	}
	if recorded != nil && recorded.ID == id && !status.Phase.Final() && string(status.Phase) == recorded.Phase &&
		!beginsKubeadm(recorded.Step, status.Step) && t.r.pace.remaining(t.key(), tell(id), pollEvery, t.now) > 0 {
		// Any other step of a plan that runs is no news so soon.
		return status, pending(t.poll(id))
	}
	t.r.pace.mark(t.key(), tell(id), t.now)
	t.record(id, status)
	return status, ready
}

// beginsKubeadm tells that a plan has come to kubeadm join. The control plane makes its next Machine from then on.
func beginsKubeadm(before, now string) bool {
	return now != before && now == cloudinit.JoinStep
}

// pollPause lies between two looks at a running plan: it grows with the time that the plan has run.
func (t *turn) pollPause(id string) time.Duration {
	return min(max(t.r.pace.since(t.key(), begun(id), t.now)/6, pollFirst), pollEvery)
}

// poll asks for another look at a running plan.
func (t *turn) poll(id string) result {
	return after(t.pollPause(id) / time.Duration(max(t.r.pace.haste, 1)))
}

// tell and begun name what pace remembers of a plan: when its progress was last recorded, and when it was handed over.
func tell(id string) string  { return "tell " + id }
func begun(id string) string { return "begun " + id }

// journalLost is the sentence of a plan that ran and that its host knows nothing about any more.
const journalLost = "the host lost its journal (it was reinstalled, or /var/lib/quoin was removed), so how far the plan came is unknown"

// lostJournal says that the host does not know a plan that once began. Running is recorded only after the host took the
// whole plan, and a plan that is there but not started is Lost; so a plan that began and is on no disk was wiped away, and
// to start it would be to run it twice.
func lostJournal(recorded run.Phase, now run.Status) bool {
	return recorded != "" && recorded != run.NotStarted && now.Phase == run.NotStarted && !now.Lost
}

// started notes that the plan was handed to the host.
func (t *turn) started(id string) (result, error) {
	t.r.pace.mark(t.key(), "follow "+id, t.now)
	t.r.pace.mark(t.key(), begun(id), t.now)
	t.record(id, run.Status{Phase: run.Running})
	return t.poll(id), nil
}

func (t *turn) record(id string, status run.Status) {
	operation := &infrav1.HostOperation{ID: id, Phase: string(status.Phase), Step: status.Step}
	if !status.Since.IsZero() {
		operation.Since = &metav1.Time{Time: status.Since}
	}
	if before := t.host.Status.Operation; before != nil && before.ID == id {
		operation.Verifications = before.Verifications
		if status.Phase == run.Succeeded && staged(before.Step) {
			// What was reached after the end of the plan is no news of the plan.
			operation.Step = before.Step
		}
	}
	t.host.Status.Operation = operation
}
