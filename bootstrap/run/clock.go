// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// ClockStepName is the step that refuses a host whose clock is wrong.
const ClockStepName = "check-clock"

// MaxClockOffset is how far a host's clock may be off: certificates made now are not valid yet for one that is behind,
// and tokens are no longer for one that is ahead.
const MaxClockOffset = 30 * time.Second

// ClockStep ends the plan when the host's clock is wrong at that very moment. A plan that holds it is started on a host
// with the right clock only (see ClockError). Both compare with the controller's clock, which Start and Resume bring to
// the host as a pair: this time was at that uptime. The uptime goes on by itself, so neither a long installation nor a
// clock that is set meanwhile falsifies the comparison. It counts from the boot, so the pair is good for one boot;
// whoever takes the plan up after a reboot brings another.
func ClockStep() Step {
	return Step{Name: ClockStepName, Script: fmt.Sprintf(`if read -r boot up right margin <"$QUOIN_RUN_DIR/clock" && [ "$boot" = "$QUOIN_BOOT_ID" ]; then
	read -r now _ </proc/uptime
	now=${now%%.*}
	off=$(($(date +%%s) - right - now + up))
	side="ahead of"
	[ $off -ge 0 ] || { off=$((-off)); side=behind; }
	[ $off -le $((%d + margin)) ] || quoin_fail "the host's clock is $off s $side the manager's, so certificates and tokens would not be valid; let both follow a time server"
fi
`, int(MaxClockOffset/time.Second))}
}

// ClockError says that the host's clock is wrong, before anything was done.
type ClockError struct {
	// Offset of the host against the controller; positive when the host is ahead.
	Offset time.Duration
}

func (e *ClockError) Error() string {
	side := "ahead of"
	if e.Offset < 0 {
		side = "behind"
	}
	return fmt.Sprintf(
		"the host's clock is %s %s the manager's, so certificates and tokens would not be valid; let both follow a time "+
			"server", e.Offset.Abs().Round(time.Second), side)
}

// reading is one look at a host's clock.
type reading struct {
	boot string
	// uptime of the host when the controller's clock showed right, and the host's own showed wrong, give or take margin.
	uptime       int64
	right, wrong time.Time
	margin       time.Duration
}

// readClock asks the host for its time. Half of the way there and back is what is not known about the moment.
func (r Runner) readClock(ctx context.Context, host ssh.Host) (reading, error) {
	script := fmt.Sprintf("read -r up _ </proc/uptime\necho \"clock $(date +%%s.%%N) ${up%%%%.*} $(cat %s)\"\n",
		ssh.Quote(r.bootIDPath()))
	begin := r.now()
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return reading{}, fmt.Errorf("reading the host's clock: %w", err)
	}
	span := r.now().Sub(begin)
	answer, err := parseClock(result.Stdout)
	if err != nil {
		return reading{}, err
	}
	answer.right, answer.margin = begin.Add(span/2), span/2
	return answer, nil
}

func parseClock(output string) (reading, error) {
	for line := range strings.SplitSeq(output, "\n") {
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0] != "clock" || len(fields[3]) > 64 {
			continue
		}
		whole, fraction, _ := strings.Cut(fields[1], ".")
		seconds, err1 := strconv.ParseInt(whole, 10, 64)
		uptime, err2 := strconv.ParseInt(fields[2], 10, 64)
		// A date without %N prints it as it is.
		nanos, err := strconv.ParseInt(fraction, 10, 64)
		if err != nil || nanos < 0 || nanos >= int64(time.Second) {
			nanos = 0
		}
		if err1 == nil && err2 == nil && seconds >= 0 && uptime >= 0 {
			return reading{boot: fields[3], uptime: uptime, wrong: time.Unix(seconds, nanos)}, nil
		}
	}
	return reading{}, errors.New("reading the host's clock: the answer cannot be understood; it is asked again")
}

// check fails when the clock is wrong however the margin is taken.
func (c reading) check() error {
	if offset := c.wrong.Sub(c.right); offset.Abs()-c.margin > MaxClockOffset {
		return &ClockError{Offset: offset}
	}
	return nil
}

// bring is sh text that leaves the pair where ClockStep finds it.
func (c reading) bring() string {
	margin := int64((c.margin+time.Second-1)/time.Second) + 1
	return fmt.Sprintf("printf '%%s\\n' %s >\"$dir/clock.part\" && mv -f \"$dir/clock.part\" \"$dir/clock\"\n",
		ssh.Quote(fmt.Sprintf("%s %d %d %d", c.boot, c.uptime, c.right.Unix(), margin)))
}

// clockFor returns what brings the clock to a plan that needs it: nothing for others.
func (r Runner) clockFor(ctx context.Context, host ssh.Host, plan Plan) (string, error) {
	if !slices.ContainsFunc(plan.Steps, func(s Step) bool { return s.Name == ClockStepName }) {
		return "", nil
	}
	clock, err := r.readClock(ctx, host)
	if err == nil {
		err = clock.check()
	}
	if err != nil {
		return "", err
	}
	return clock.bring(), nil
}

func (r Runner) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
