// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// DefaultRoot is where everything of ours lies on a host, mode 0700, owner root.
const DefaultRoot = "/var/lib/quoin"

// Runner starts and polls plans. The zero value is what production uses.
type Runner struct {
	// Root is the directory of ours on the host; empty means DefaultRoot.
	Root string
	// Starter detaches the plan from the SSH session; nil means Systemd.
	Starter Starter
	// BootIDPath is read to notice a reboot; empty means /proc/sys/kernel/random/boot_id.
	BootIDPath string
}

// Starter makes a command outlive the session that starts it. Its methods return sh text.
type Starter interface {
	// Start begins argv detached under the unit name. It must fail or do nothing when the unit already runs.
	Start(unit string, argv []string) string
	// Alive ends with code 0 when the unit runs.
	Alive(unit string) string
	// Stop ends the unit with everything that it started, and waits for that.
	Stop(unit string) string
}

// Start uploads the plan unless the host already holds it complete, and starts it unless it runs or has ended. It is one
// SSH exchange, and repeating it after any error is safe.
func Start(ctx context.Context, host ssh.Host, plan Plan) error {
	return Runner{}.Start(ctx, host, plan)
}

// Resume starts again a plan that the host holds and that is Lost, without sending it again.
func Resume(ctx context.Context, host ssh.Host, id string) error {
	return Runner{}.Resume(ctx, host, id)
}

// Poll reads where a plan stands, in one SSH exchange.
func Poll(ctx context.Context, host ssh.Host, id string) (Status, error) {
	return Runner{}.Poll(ctx, host, id)
}

// Stop ends the plan and everything it started; an unfinished plan becomes Interrupted. Stopping what never began is fine.
func Stop(ctx context.Context, host ssh.Host, id string) error { return Runner{}.Stop(ctx, host, id) }

// StopOthers stops every unfinished plan on the host but the one named. Cleaning calls it before it starts its own plan,
// with its own plan's ID.
func StopOthers(ctx context.Context, host ssh.Host, except string) error {
	return Runner{}.StopOthers(ctx, host, except)
}
