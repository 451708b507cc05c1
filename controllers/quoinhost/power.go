// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// powerOff is what a BMC says of a host that cannot run.
const powerOff = string(redfish.Off)

// Power changes the power of hosts through their BMCs. Each method is one bounded conversation, apart from those with
// the host itself, so that neither waits for the other.
type Power interface {
	// State is what the BMC says now: On, Off, PoweringOn or PoweringOff.
	State(ctx context.Context, host *infrav1.QuoinHost) (string, error)
	// Off turns the host off, and returns when that was read back.
	Off(ctx context.Context, host *infrav1.QuoinHost) error
	// On turns the host on.
	On(ctx context.Context, host *infrav1.QuoinHost) error
	// Cycle makes the host boot.
	Cycle(ctx context.Context, host *infrav1.QuoinHost) error
}

// powerOrder tells a host's BMC something beside the workers, and reads back what the power is then.
func (r *reconciliation) powerOrder(op string,
	fn func(context.Context, *infrav1.QuoinHost) error) (state string, done bool, err error) {
	host := r.host.DeepCopy() // the order outlives this reconcile
	if since := host.Status.UnreachableSince; since != nil {
		// An order of an earlier silence, whose end nobody waited for because the host answered, is none for this one.
		op = fmt.Sprintf("%s %d", op, since.Unix())
	}
	if bmc := host.Spec.BMC; bmc != nil {
		// Nor is one to another BMC, whose address was corrected meanwhile: that is another computer.
		op += " " + bmc.Address + bmc.System
	}
	state, done, err = async.Do(r.controller.PowerCalls, r.key(), op, longCall, func(ctx context.Context) (string, error) {
		err := fn(ctx, host)
		now := ""
		if err == nil {
			now, err = r.controller.Power.State(ctx, host)
		}
		return now, r.controller.redacted(ctx, host, err)
	})
	if done && err == nil {
		r.notePower(state)
	}
	return state, done, err
}

func (r *reconciliation) notePower(state string) {
	if r.host.Status.Power == nil {
		r.host.Status.Power = &infrav1.HostPower{}
	}
	r.host.Status.Power.State, r.host.Status.Power.ReadAt = state, &metav1.Time{Time: r.now}
}
