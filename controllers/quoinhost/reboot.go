// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Stages between the end of a reset and its last verification, kept as the operation's step so that a manager which dies at
// any point goes on there.
const (
	// stageVerified: the reset was read back, and the boot is about to be asked for.
	stageVerified = "verified"
	// stageReboot begins the stage in which the host is to leave the boot whose ID follows.
	stageReboot = "reboot "
	// stageRebooted: the host runs another boot, and is read back once more.
	stageRebooted = "rebooted"
)

func staged(step string) bool {
	return step == stageVerified || step == stageRebooted || strings.HasPrefix(step, stageReboot)
}

// rebootAfterReset boots a host that was reset, once, so that what only a boot brings back is found.
func (t *turn) rebootAfterReset(order CleanOrder, stage string) (result, error) {
	if t.maintained("the reboot after the reset") {
		return onEvent(), nil
	}
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostCleaningReason, "the reset was verified; the host reboots, and is verified once more")
	before := strings.TrimPrefix(stage, stageReboot)
	if stage == stageVerified {
		before = ""
	}
	boot, o := exchange(t, "reboot "+before, shortExchange, func(ctx context.Context, host *infrav1.QuoinHost) (string, error) {
		return t.r.Exchanges.Reboot(ctx, host, order, before)
	})
	switch {
	case o.pending:
		return o.result, nil
	case before == "":
		t.host.Status.Operation.Step = stageReboot + boot
		return after(0), nil
	case boot == before:
		// It is going down, and still answers.
		t.host.Status.NextAttempt = &metav1.Time{Time: t.now.Add(firstDistance)}
		return after(firstDistance), nil
	}
	t.host.Status.Operation.Step = stageRebooted
	t.event("Normal", "Rebooted", "the host rebooted after its reset")
	return after(0), nil
}
