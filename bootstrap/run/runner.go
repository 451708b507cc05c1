// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// DefaultRoot is where everything of ours lies on a host, mode 0700, owner root.
const DefaultRoot = "/var/lib/quoin"

// Prelude is the sh text that runs before each step: functions to fail with a sentence, to wait, and to install files
// so that cleaning can take them back (quoin_fail, quoin_settle, quoin_record, quoin_claim, quoin_dirs, quoin_put).
//
//go:embed prelude.sh
var Prelude string

//go:embed runner.sh
var runnerScript string

// Runner starts and polls plans. The zero value is what production uses.
type Runner struct {
	// Root is the directory of ours on the host; empty means DefaultRoot.
	Root string
	// Starter detaches the plan from the SSH session; nil means Systemd.
	Starter Starter
	// BootIDPath is read to notice a reboot; empty means /proc/sys/kernel/random/boot_id.
	BootIDPath string
	// Guard is sh text that runs before anything is changed, each time under the lock of plans, and ends the script where
	// that must not be: the text of an owner.Guard. It may keep descriptor 6 open.
	Guard string
	// Alone has Start end every other plan on the host that has not ended, before this one begins.
	Alone bool
	// Secrets says what must not be told of what a step printed. It is asked when a plan has failed; nil hides only what
	// looks like a secret.
	Secrets func(context.Context) *redact.Redactor
	// Now is the controller's clock, with which a host's is compared; nil means time.Now.
	Now func() time.Time
}

func (r Runner) root() string {
	if r.Root == "" {
		return DefaultRoot
	}
	return r.Root
}

func (r Runner) starter() Starter {
	if r.Starter == nil {
		return Systemd{}
	}
	return r.Starter
}

func (r Runner) bootIDPath() string {
	if r.BootIDPath == "" {
		return "/proc/sys/kernel/random/boot_id"
	}
	return r.BootIDPath
}

func (r Runner) dir(id string) string { return r.root() + "/runs/" + id }

func (r Runner) argv(id, verb string) []string {
	return []string{"/bin/sh", r.dir(id) + "/runner.sh", r.root(), r.dir(id), r.bootIDPath(), verb}
}

func unit(id string) string { return "quoin-run-" + id }

// Start uploads the plan unless the host already holds it complete, and starts it unless it runs or has ended. It is
// one SSH exchange, and another before it for a plan with a ClockStep; repeating it after any error is safe. A
// *ClockError means that nothing was done.
func (r Runner) Start(ctx context.Context, host ssh.Host, plan Plan) error {
	if err := plan.Validate(); err != nil {
		return err
	}
	clock, err := r.clockFor(ctx, host, plan)
	if err != nil {
		return fmt.Errorf("starting plan %s: %w", plan.ID, err)
	}
	upload, content := r.upload(plan)
	if r.Alone {
		upload += r.stopFunction() + stopOthers(plan.ID)
	}
	command := ssh.Command{Script: upload + r.startScript(plan.ID, clock), Stdin: content, Sudo: true}
	if _, err := host.Run(ctx, command); err != nil {
		return fmt.Errorf("starting plan %s: %w", plan.ID, err)
	}
	return nil
}

// Resume starts again a plan that the host holds and that is Lost, without sending it again.
func (r Runner) Resume(ctx context.Context, host ssh.Host, id string) error {
	if !planID.MatchString(id) {
		return fmt.Errorf("plan ID %q must match %s", id, planID)
	}
	// The plan is on the host and says there whether it needs the clock, which started anew with the boot. A clock that is
	// wrong is the step's to refuse: what is begun ends by its own rules.
	clock, err := r.readClock(ctx, host)
	if err != nil {
		return fmt.Errorf("resuming plan %s: %w", id, err)
	}
	script := fmt.Sprintf(`set -eu
%s
dir=%s
take_lock
known_format "$dir"
[ -f "$dir/complete" ] || { echo "the host does not hold plan %s" >&2; exit 1; }
`, r.lock(), ssh.Quote(r.dir(id)), id)
	if _, err := host.Run(ctx, ssh.Command{Script: script + r.startScript(id, clock.bring()), Sudo: true}); err != nil {
		return fmt.Errorf("resuming plan %s: %w", id, err)
	}
	return nil
}

// startScript starts a complete plan that neither runs nor has ended. The lock is held. The plan outlives the script,
// so it must inherit neither the locks nor the mark on its directory. clock is sh text that runs before.
func (r Runner) startScript(id, clock string) string {
	s := r.starter()
	return fmt.Sprintf(`[ -s "$dir/result" ] && exit 0
if (%s); then exit 0; fi
%s(
exec 6>&- 7>&- 8<&-
%s
)
`, s.Alive(unit(id)), clock, s.Start(unit(id), r.argv(id, "run")))
}

// Stop ends the plan and everything it started; an unfinished plan becomes Interrupted. Stopping what never began is
// fine.
func (r Runner) Stop(ctx context.Context, host ssh.Host, id string) error {
	if !planID.MatchString(id) {
		return fmt.Errorf("plan ID %q must match %s", id, planID)
	}
	script := "set -u\n" + r.lock() + r.stopFunction() + "take_lock\nstop_plan " + id + "\n"
	if _, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true}); err != nil {
		return fmt.Errorf("stopping plan %s: %w", id, err)
	}
	return nil
}

// StopOthers stops every unfinished plan on the host but the one named. Cleaning calls it before it starts its own
// plan, with its own plan's ID.
func (r Runner) StopOthers(ctx context.Context, host ssh.Host, except string) error {
	script := fmt.Sprintf(`set -u
%s%stake_lock
%s`, r.lock(), r.stopFunction(), stopOthers(except))
	if _, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true}); err != nil {
		return fmt.Errorf("stopping the plans on the host: %w", err)
	}
	return nil
}

// stopOthers is sh text that stops every plan but one. The lock is held.
func stopOthers(except string) string {
	return fmt.Sprintf(`# A plan still on its way, from a session that was cut, must not begin after this.
rm -rf "$root"/runs/.upload.*
for other in "$root"/runs/*/; do
	[ -d "$other" ] || continue
	id=$(basename "$other")
	[ "$id" = %s ] || stop_plan "$id" || exit 1
done
`, ssh.Quote(except))
}

// stopFunction is sh text that defines stop_plan. The lock is held when that is called.
func (r Runner) stopFunction() string {
	const id = `"$1"`
	// The starter's text is made for a placeholder unit name and gets the shell variable in its place, unquoted parts
	// excepted.
	stop := strings.ReplaceAll(r.starter().Stop(placeholder), placeholder, "quoin-run-"+id)
	return fmt.Sprintf(`stop_plan() {
	stopped=$root/runs/$1
	if ! [ -f "$stopped/complete" ]; then
		[ -e "$stopped/journal" ] || { rm -rf "$stopped"; return 0; }
		# Only a complete plan begins: the mark was lost, not missing.
		: >"$stopped/complete"
	fi
	[ -s "$stopped/result" ] && return 0
	known_format "$stopped"
	%s
	/bin/sh "$stopped/runner.sh" "$root" "$stopped" %s stop
	[ -s "$stopped/result" ] || { echo "plan $1 would not stop" >&2; return 1; }
}
`, stop, ssh.Quote(r.bootIDPath()))
}

const placeholder = "QUOIN_UNIT"
