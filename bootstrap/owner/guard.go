// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Lease is how long a host keeps its owner record as it is for somebody who does not end that himself, because his
// connection or his process is gone. What is done meanwhile must be over before.
const Lease = 30 * time.Second

// guardedCode is the exit code of a script whose guard found another record, which nothing else in it ends with.
const guardedCode = 76

// ErrMoved says that somebody wrote the owner record between the look at it and the change: nothing was changed, and
// the next look says whether it may be.
var ErrMoved = errors.New("the owner record changed before the host was to be changed, so nothing was done")

// Guard ties a change of a host to the owner record that it was decided by: the host compares both and makes the change
// under one lock, so a command that was sent before somebody else took over, and arrives after that, changes nothing.
type Guard struct {
	store Store
	ours  Record
	// raw is the record as it lay on the host; empty when there was none.
	raw string
}

// Guard reads the record, and ties to it what follows; the errors are those of Check. It writes nothing.
func (s Store) Guard(ctx context.Context, host ssh.Host, ours Record) (Guard, error) {
	raw, err := s.raw(ctx, host)
	if err != nil {
		return Guard{}, err
	}
	if raw != "" {
		holder, err := Parse(raw)
		if err != nil {
			return Guard{}, err
		}
		if err := Check(ours, *holder); err != nil {
			return Guard{}, err
		}
	}
	return Guard{store: s, ours: ours, raw: raw}, nil
}

// Script is sh text that goes on only while the host's record is the guard's. Until the shell ends, or closes
// descriptor 6, nobody writes another one. Those who change the host under one record do not wait for each other here.
func (g Guard) Script() string {
	return fmt.Sprintf(`quoin_root=%s
mkdir -p "$quoin_root" || exit 1
exec 6>"$quoin_root/owner.lock"
flock -s -w 10 6 || { echo "another exchange with this host has held $quoin_root/owner.lock for 10 s; it is tried again" >&2; exit 1; }
[ "$(cat "$quoin_root/owner.json" 2>/dev/null || :)" = %s ] || exit %d
`, ssh.Quote(g.store.root()), ssh.Quote(g.raw), guardedCode)
}

// On is the host with every script under the guard. One that waits for input looks and lets the lock go, which a peer
// that fell silent would hold: such a script receives into a file that only another one gives its name.
func (g Guard) On(host ssh.Host) ssh.Host { return guarded{host, g} }

type guarded struct {
	ssh.Host
	guard Guard
}

// Run implements ssh.Host.
func (h guarded) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	if command.Sudo {
		guard := h.guard.Script()
		if command.Stdin != nil {
			guard += "exec 6>&-\n"
		}
		command.Script = guard + command.Script
	}
	result, err := h.Host.Run(ctx, command)
	return result, h.guard.Explain(ctx, h.Host, err)
}

// Upload implements ssh.Host.
func (h guarded) Upload(ctx context.Context, path string, mode os.FileMode, content []byte) error {
	part := path + ".part"
	_, err := h.Run(ctx, ssh.UploadCommand(part, mode, content))
	if err == nil {
		_, err = h.Run(ctx, ssh.Command{Script: fmt.Sprintf("mv -fT %s %s\n", ssh.Quote(part), ssh.Quote(path)), Sudo: true})
	}
	if err != nil {
		return fmt.Errorf("uploading %s: %w", path, err)
	}
	return nil
}

// Unguarded implements ssh.Guarded.
func (h guarded) Unguarded() ssh.Host { return h.Host }

// Explain turns the end of a script by its guard into what the host's record says now: *StaleError or *HeldError, or
// ErrMoved when that does not speak against another try. Other errors stay what they are.
func (g Guard) Explain(ctx context.Context, host ssh.Host, err error) error {
	var exit *ssh.ExitError
	if !errors.As(err, &exit) || exit.Code != guardedCode {
		return err
	}
	if _, now := g.store.Guard(ctx, host, g.ours); now != nil {
		return now
	}
	return ErrMoved
}

// UnheardError says that the host does not serve exactly our generation of our claim, though no newer one either.
type UnheardError struct {
	Ours Record
	// Holder is nil when the host has no record.
	Holder *Record
}

func (e *UnheardError) Error() string {
	const heard = "It is told as soon as it can be reached and is neither paused nor detached"
	if e.Holder == nil {
		return fmt.Sprintf("the host has no owner record, so it cannot confirm generation %d of its claim. %s",
			e.Ours.Generation, heard)
	}
	return fmt.Sprintf("the host knows generation %d of its claim and has not heard of ours, %d, so it cannot confirm "+
		"it. %s",
		e.Holder.Generation, e.Ours.Generation, heard)
}

// Hold has the host keep its record as it is, if that is ours to the generation, so that nobody takes over while
// something else than the host is changed. release ends that, and says whether it lasted until then; without it, it
// ends after Lease. A process on the host keeps the lock, because a session may need all its streams for sudo.
func (s Store) Hold(ctx context.Context, host ssh.Host, ours Record) (release func(context.Context) error, err error) {
	guard, err := s.Guard(ctx, host, ours)
	if err != nil {
		return nil, err
	}
	if err := guard.confirms(); err != nil {
		return nil, err
	}
	// The process inherits the lock, and nothing else of the session, which would not end before it.
	script := guard.Script() + fmt.Sprintf(`token=$(mktemp "$quoin_root/.hold.XXXXXX") || exit 1
(
	trap '' HUP
	n=0
	while [ -e "$token" ] && [ "$n" -lt %d ]; do
		sleep 0.1
		n=$((n + 1))
	done
	rm -f "$token"
) </dev/null >/dev/null 2>&1 &
echo "$token"
`, Lease/(100*time.Millisecond))
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return nil, fmt.Errorf("holding the owner record: %w", guard.Explain(ctx, host, err))
	}
	token := strings.TrimSpace(result.Stdout)
	return func(ctx context.Context) error {
		_, err := host.Run(ctx, ssh.Command{Script: "rm " + ssh.Quote(token) + "\n", Sudo: true})
		if err != nil {
			return fmt.Errorf("letting the owner record go, which may have been free for some time: %w", err)
		}
		return nil
	}, nil
}

// confirms is Confirm for the guard's record.
func (g Guard) confirms() error {
	if g.raw == "" {
		return &UnheardError{Ours: g.ours}
	}
	holder, err := Parse(g.raw)
	if err != nil {
		return err
	}
	return Confirm(g.ours, holder)
}

// Confirm returns nil when the host's record, which is nil when it has none, says that it serves exactly ours; else
// *UnheardError, or what Check says against us.
func Confirm(ours Record, holder *Record) error {
	if holder == nil {
		return &UnheardError{Ours: ours}
	}
	if err := Check(ours, *holder); err != nil {
		return err
	}
	sameCluster := ours.ManagementCluster == "" || holder.ManagementCluster == "" ||
		ours.ManagementCluster == holder.ManagementCluster
	if holder.UID != ours.UID || holder.Generation != ours.Generation || !sameCluster {
		return &UnheardError{Ours: ours, Holder: holder}
	}
	return nil
}
