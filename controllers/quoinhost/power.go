// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

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

// verifyBMC asks the BMC of a host that needs nothing of it, so that a wrong password, pin or computer shows before an
// incident. It returns when the BMC is to be asked again; zero when there is nothing to ask.
func (r *reconciliation) verifyBMC() time.Duration {
	bmc, state := r.host.Spec.BMC, r.host.Status.State
	if bmc == nil {
		conditions.Delete(r.host, infrav1.HostBMCVerifiedCondition)
		return 0
	}
	if state != infrav1.HostStateAvailable && state != infrav1.HostStateProvisioned || r.paused || isDetached(r.host) ||
		r.host.Status.UnreachableSince != nil || !r.host.DeletionTimestamp.IsZero() {
		// What needs the power of the host now asks itself.
		return 0
	}
	if wait := r.untilBMC(); wait > 0 && !r.pace().marked(askingBMC) {
		return wait
	}
	r.pace().mark(askingBMC)
	host := r.host.DeepCopy()
	op := fmt.Sprintf("verify %s %s %d", bmc.Address, bmc.System, host.Generation)
	power, done, err := async.Do(r.controller.PowerCalls, r.key(), op, shortCall,
		func(ctx context.Context) (string, error) {
			power, err := r.controller.Power.State(ctx, host)
			return power, r.controller.redacted(ctx, host, err)
		})
	if !done {
		return longest
	}
	r.pace().unmark(askingBMC)
	r.pace().mark(bmcAsked)
	if err == nil && power == powerOff {
		err = fmt.Errorf("the BMC at %s says that the power is off, and the host answers: it is another computer's, or "+
			"misbehaves; correct spec.bmc", bmc.Address)
	}
	if is[*redfish.AuthenticationError](err) {
		r.pace().mark(bmcRefused)
	}
	if err != nil {
		r.warn(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCFailedReason, fmt.Sprintf("%v; as it is, the host cannot be "+
			"fenced; to ask again now: %s", err, annotate(r.host, infrav1.RetryAnnotation, "")))
		return r.untilBMC()
	}
	// The state is not noted: it is old when somebody needs it, and would speak against a person's word for it then.
	if r.host.Status.Power == nil {
		r.host.Status.Power = &infrav1.HostPower{}
	}
	r.host.Status.Power.ReadAt = &metav1.Time{Time: r.now}
	r.setTrue(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)
	return r.untilBMC()
}

// untilBMC is when the BMC is to be asked again; zero is now. That a BMC did well is in the status, so that a fleet is
// not asked anew by each manager that starts.
func (r *reconciliation) untilBMC() time.Duration {
	known := conditions.Get(r.host, infrav1.HostBMCVerifiedCondition)
	if known == nil || known.ObservedGeneration != r.host.Generation || r.retried {
		return 0
	}
	if power := r.host.Status.Power; known.Status == metav1.ConditionTrue {
		if power == nil || power.ReadAt == nil {
			return 0
		}
		return max(0, power.ReadAt.Add(r.timings().BMC).Sub(r.now))
	}
	return max(r.pace().remaining(bmcAsked, r.timings().BMCRetry), r.pace().remaining(bmcRefused, r.timings().BMC))
}
