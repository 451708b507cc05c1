// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// follow tells where a plan stands, and keeps it going. What the host says counts, never what was recorded: the status
// may have been lost, and the manager may have died between starting a plan and writing that down. So a process asks
// the host at least once before it takes the record for true.
func (r *reconciliation) follow(ctx context.Context, id string) (run.Status, outcome) {
	op := callFollow(id)
	recorded := r.host.Status.Operation
	if recorded != nil && recorded.ID == id && r.pace().marked(op) {
		phase := run.Phase(recorded.Phase)
		if phase.Final() || phase == run.NotStarted {
			return run.Status{Phase: phase, Step: recorded.Step}, ready
		}
	}
	if wait := r.pace().remaining(op, r.timings().PollPause); wait > 0 {
		return run.Status{}, pending(after(wait))
	}
	order := FollowOrder{ID: id, Owner: r.ownerRecord(), Resume: !r.paused}
	if recorded != nil && recorded.ID == id && r.pace().marked(op) {
		order.Within = r.timings().Poll
		if beginsKubeadm(recorded.Step, infrav1.HostOperationStepJoin) {
			order.Step = infrav1.HostOperationStepJoin
		}
	}
	status, o := call(ctx, r, op, shortCall, with(order, r.controller.Provisioner.Follow))
	if o.pending {
		return status, o
	}
	if recorded != nil && recorded.ID == id && lostJournal(run.Phase(recorded.Phase), status) {
		status = run.Status{Phase: run.Interrupted, Message: journalLost}
	}
	if recorded != nil && recorded.ID == id && !status.Phase.Final() && string(status.Phase) == recorded.Phase &&
		!beginsKubeadm(recorded.Step, status.Step) && r.pace().remaining(progressNoted(id), r.timings().Poll) > 0 {
		// Any other step of a plan that runs is no news so soon.
		return status, pending(r.poll())
	}
	r.pace().mark(progressNoted(id))
	r.record(id, status)
	return status, ready
}

// beginsKubeadm reports whether a plan has come to kubeadm join. The control plane makes its next Machine from then on.
func beginsKubeadm(before, now string) bool {
	return now != before && now == infrav1.HostOperationStepJoin
}

// poll asks for another look at a running plan.
func (r *reconciliation) poll() result { return after(r.timings().PollPause) }

// journalLost is the sentence of a plan that ran and that its host knows nothing about any more.
const journalLost = "the host lost its journal (it was reinstalled, or /var/lib/quoin was removed), so how far the " +
	"plan came is unknown"

// lostJournal says that the host does not know a plan that once began. Running is recorded only after the host took the
// whole plan, and a plan that is there but not started is Lost; so a plan that began and is on no disk was wiped away,
// and to start it would be to run it twice.
func lostJournal(recorded run.Phase, now run.Status) bool {
	return recorded != "" && recorded != run.NotStarted && now.Phase == run.NotStarted && !now.Lost
}

// started notes that the plan was handed to the host.
func (r *reconciliation) started(id string) (result, error) {
	r.pace().mark(callFollow(id))
	r.record(id, run.Status{Phase: run.Running})
	return r.poll(), nil
}

func (r *reconciliation) record(id string, status run.Status) {
	operation := &infrav1.HostOperation{ID: id, Phase: string(status.Phase), Step: status.Step}
	if !status.Since.IsZero() {
		operation.Since = &metav1.Time{Time: status.Since}
	}
	if before := r.host.Status.Operation; before != nil && before.ID == id {
		operation.Verifications = before.Verifications
		if status.Phase == run.Succeeded && staged(before.Step) {
			// What was reached after the end of the plan is no news of the plan.
			operation.Step = before.Step
		}
	}
	r.host.Status.Operation = operation
}

// start names the call that starts a plan. The status names the plan first: whoever finds the host paused, in this
// process or a later one, asks the host about the plan that the status names. Its order is written down before, too.
func start[O any](
	ctx context.Context, r *reconciliation, id string, order O, give func(context.Context, *infrav1.QuoinHost, O) error,
) outcome {
	if !r.given(id) {
		if o := r.askHeard(ctx); o.pending {
			return o
		}
		r.orders = id
		return pending(after(time.Millisecond))
	}
	if r.noted != id {
		return pending(after(time.Millisecond))
	}
	o := command(ctx, r, callStart(id), longCall, order, give)
	if given := r.host.Spec.Order; !o.pending && given != nil {
		r.pace().mark(heard(given.Given))
	}
	return o
}

// attempt returns the recorded attempt of the plan, else the plan itself. A plan that failed is never run again under
// its ID, so another attempt has another one.
func (r *reconciliation) attempt(id string) string {
	if operation := r.host.Status.Operation; operation != nil && attemptOf(operation.ID, id) > 0 {
		return operation.ID
	}
	return id
}

// attemptOf is which attempt of plan an ID names: "reset-x" is 1, "reset-x-2" is 2; 0 when it names another plan.
func attemptOf(id, plan string) int {
	if id == plan {
		return 1
	}
	var n int
	if rest, ok := strings.CutPrefix(id, plan+"-"); ok {
		if _, err := fmt.Sscanf(rest, "%d", &n); err == nil && fmt.Sprint(n) == rest && n > 1 {
			return n
		}
	}
	return 0
}

// nextAttempt names the attempt of plan that follows id.
func nextAttempt(id, plan string) string {
	return fmt.Sprintf("%s-%d", plan, attemptOf(id, plan)+1)
}

// Two management clusters that were made from one snapshot of etcd have the same UIDs, so no generation tells them
// apart. Each plan that is started makes an order of its own, with a name drawn at random, and the host keeps the last
// one. Whoever did not give that is the copy. The name is in spec before the host hears it, so a manager that dies in
// between finds it there; a second one is made only when the first is known to have been heard, so the host never shows
// another than the two in spec.

// given reports whether the order of the plan is written down.
func (r *reconciliation) given(id string) bool {
	order := r.host.Spec.Order
	return order != nil && order.Plan == id
}

// nextOrder is what spec says when the order of another plan is to be given; known says that the host has heard the one
// before.
func nextOrder(before *infrav1.HostOrder, plan string, known bool, token string) *infrav1.HostOrder {
	next := infrav1.HostOrder{}
	if before != nil {
		next = *before
	}
	next.Plan = plan
	if next.Given != "" {
		if !known {
			return &next
		}
		next.Heard = next.Given
	}
	var number int
	_, _ = fmt.Sscanf(next.Heard, "%d-", &number) // for people; the token is what counts
	next.Given = fmt.Sprintf("%d-%s", number+1, token)
	return &next
}

// giveOrder writes the order of the plan down that start asked for.
func (r *reconciliation) giveOrder(ctx context.Context) error {
	if r.orders == "" {
		return nil
	}
	before := r.host.Spec.Order
	known := before != nil && r.pace().marked(heard(before.Given))
	return r.patch(ctx, "writing down the order of", func(h *infrav1.QuoinHost) {
		h.Spec.Order = nextOrder(before, r.orders, known, rand.String(8))
	})
}

// askHeard asks the host for its last order, once in a process: without that, a manager that restarts would give the
// same one again.
func (r *reconciliation) askHeard(ctx context.Context) outcome {
	order := r.host.Spec.Order
	if order == nil || order.Given == "" || r.pace().marked(heard(order.Given)) {
		return ready
	}
	probed, o := call(ctx, r, callHeard, shortCall, r.controller.Provisioner.Probe)
	if !o.pending {
		r.noteHeard(probed.Owner)
	}
	return o
}

// noteHeard remembers that the host has heard our last order.
func (r *reconciliation) noteHeard(record *owner.Record) {
	if o := r.host.Spec.Order; o != nil && o.Given != "" && record != nil && record.Order == o.Given {
		r.pace().mark(heard(o.Given))
	}
}
