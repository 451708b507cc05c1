// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

// Two management clusters that were made from one snapshot of etcd have the same UIDs, so no generation tells them apart. Each plan that is
// started makes an order of its own, with a name drawn at random, and the host keeps the last one. Whoever did not give that is the copy.
// The name is in spec before the host hears it, so a manager that dies in between finds it there; a second one is made only when the first
// is known to have been heard, so the host never shows another than the two in spec.

// given reports whether the order of the plan is written down.
func (t *turn) given(id string) bool {
	order := t.host.Spec.Order
	return order != nil && order.Plan == id
}

// heard marks that the host has shown an order, or taken it.
func heard(order string) string { return "heard " + order }

// nextOrder is what spec says when the order of another plan is to be given; known says that the host has heard the one before.
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
func (t *turn) giveOrder() error {
	if t.orders == "" {
		return nil
	}
	before := t.host.Spec.Order
	known := before != nil && t.r.pace.marked(t.key(), heard(before.Given))
	changed := t.host.DeepCopy()
	changed.Spec.Order = nextOrder(before, t.orders, known, rand.String(8))
	if err := t.r.Client.Patch(t.ctx, changed, client.MergeFromWithOptions(t.host.DeepCopy(), client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing down what QuoinHost %s is told to do: %w", t.key(), err)
	}
	return nil
}

// askHeard asks the host for its last order, once in a process: without that, a manager that restarts would give the same one again.
func (t *turn) askHeard() outcome {
	order := t.host.Spec.Order
	if order == nil || order.Given == "" || t.r.pace.marked(t.key(), heard(order.Given)) {
		return ready
	}
	pulse, o := exchange(t, "what it heard", shortExchange, t.r.Exchanges.Probe)
	if !o.pending {
		t.noteHeard(pulse.Owner)
	}
	return o
}

// noteHeard remembers that the host has heard our last order.
func (t *turn) noteHeard(record *owner.Record) {
	if o := t.host.Spec.Order; o != nil && o.Given != "" && record != nil && record.Order == o.Given {
		t.r.pace.mark(t.key(), heard(o.Given), t.now)
	}
}
