// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
)

// powerOff is what a BMC says of a host that cannot run.
const powerOff = string(redfish.Off)

// Orders that take the power from a host, if only for a moment.
const (
	orderCycle = "cycle"
	orderOff   = "off"
)

// Power changes the power of hosts through their BMCs. Each method is one bounded conversation, apart from those with
// the host itself, so that neither waits for the other.
type Power interface {
	// State is what the BMC says now: On, Off, PoweringOn or PoweringOff.
	State(ctx context.Context, host *infrav1.QuoinHost) (string, error)
	// Off turns the host off, and returns when that was read back. due is asked right before the order, which is not
	// given where it returns an error; nil lets it pass.
	Off(ctx context.Context, host *infrav1.QuoinHost, due func(context.Context) error) error
	// On turns the host on.
	On(ctx context.Context, host *infrav1.QuoinHost) error
	// Cycle makes the host boot. due is as that of Off.
	Cycle(ctx context.Context, host *infrav1.QuoinHost, due func(context.Context) error) error
}

// powerOrder tells a host's BMC something beside the workers, and reads back what the power is then.
func (r *reconciliation) powerOrder(op string,
	fn func(context.Context, *infrav1.QuoinHost) error) (state string, done bool, err error) {
	host := r.host.DeepCopy() // the order outlives this reconcile
	if since := host.Status.UnreachableSince; since != nil {
		// An order of an earlier silence, whose end nobody waited for because the host answered, is none for this one.
		op = fmt.Sprintf("%s %d", op, since.Unix())
	}
	// Nor is one to the BMC before spec.bmc was corrected: that may be another computer.
	op += " " + computerOf(host.Spec.BMC)
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

// withdrawPower ends an order that would take the power from a host which answers. What only asks its BMC goes on.
func (r *reconciliation) withdrawPower() {
	op, _, runs := r.controller.PowerCalls.Running(r.key())
	if kind, _, _ := strings.Cut(op, " "); runs && (kind == orderCycle || kind == orderOff) {
		r.controller.PowerCalls.Cancel(r.key())
	}
}

func (r *reconciliation) notePower(state string) {
	if r.host.Status.Power == nil {
		r.host.Status.Power = &infrav1.HostPower{}
	}
	r.host.Status.Power.State, r.host.Status.Power.ReadAt = state, &metav1.Time{Time: r.now}
	r.host.Status.Power.ReadOf = computerOf(r.host.Spec.BMC)
}

// disown drops what a BMC said of the power that spec.bmc does not mean any more: it may have been another computer's,
// and the host run. What a person said stands. The state stays as it was left, so that a reset turns the host on;
// without a time it is read again before anything rests on it.
func (r *reconciliation) disown() {
	power := r.host.Status.Power
	if power == nil || power.ReadOf == "" || power.ReadOf == computerOf(r.host.Spec.BMC) {
		return
	}
	power.ReadAt, power.ReadOf = nil, ""
	if r.host.Fenced() && conditions.GetMessage(r.host, infrav1.HostFencedCondition) != abandonedWord {
		r.notFenced(infrav1.HostNotFencedReason, "spec.bmc was changed since its BMC said that the power is off, so nothing "+
			"says any more that the host does not run"+r.wayOut())
	}
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
	power, done, err := async.Do(r.controller.PowerCalls, r.key(), "verify "+r.askedOf(), shortCall,
		func(ctx context.Context) (string, error) {
			power, err := r.controller.Power.State(ctx, host)
			return power, r.controller.redacted(ctx, host, err)
		})
	if !done {
		return longest
	}
	r.pace().unmark(askingBMC)
	if r.host.Status.Power == nil {
		r.host.Status.Power = &infrav1.HostPower{}
	}
	// The state is not noted: it is old when somebody needs it, and would speak against a person's word for it then.
	r.host.Status.Power.AskedAt, r.host.Status.Power.AskedOf = &metav1.Time{Time: r.now}, r.askedOf()
	if err == nil && power == powerOff {
		err = fmt.Errorf("the BMC at %s says that the power is off, and the host answers: it is another computer's, or "+
			"misbehaves; correct spec.bmc", bmc.Address)
	}
	if err == nil {
		r.setTrue(infrav1.HostBMCVerifiedCondition, infrav1.HostBMCVerifiedReason)
		return r.untilBMC()
	}
	reason := infrav1.HostBMCFailedReason
	if is[*redfish.AuthenticationError](err) {
		reason = infrav1.HostBMCLoginRefusedReason
	}
	r.warn(infrav1.HostBMCVerifiedCondition, reason, fmt.Sprintf("%v; as it is, the host cannot be fenced; "+
		"to ask again now: %s", err, annotate(r.host, infrav1.RetryAnnotation, "")))
	return r.untilBMC()
}

// untilBMC is when the BMC is to be asked again; zero is now. All of it is in the status, so that managers that start
// one after another do not ask a fleet anew, or lock its accounts.
func (r *reconciliation) untilBMC() time.Duration {
	known, power := conditions.Get(r.host, infrav1.HostBMCVerifiedCondition), r.host.Status.Power
	if r.retried || known == nil || power == nil || power.AskedAt == nil ||
		power.AskedOf != r.askedOf() {
		return 0
	}
	every := r.timings().BMC
	if known.Reason == infrav1.HostBMCFailedReason {
		every = r.timings().BMCRetry
	}
	return max(0, power.AskedAt.Add(every).Sub(r.now))
}

// comparison is the number of the rules by which a computer is taken for a host's. With new ones each BMC is asked
// again.
const comparison = 3

// askedOf stands for what a QuoinHost says of its BMC, for the other host that it may be, and for what tells them
// apart.
func (r *reconciliation) askedOf() string {
	return digest(r.host.Spec.BMC, r.sharesIdentity, comparison)
}

// computerOf stands for the computer that a BMC is asked about. Another account asks about the same one.
func computerOf(bmc *infrav1.BMC) string {
	if bmc == nil {
		return "none"
	}
	computer := *bmc
	computer.CredentialsRef = infrav1.SecretReference{}
	return digest(computer)
}

func digest(values ...any) string {
	text, _ := json.Marshal(values) // They have strings and numbers alone.
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
