// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	// tailLines and tailBytes bound Status.Tail.
	tailLines = 30
	tailBytes = 8000
	// maxList bounds in bytes what is read of the list of steps and of the journal: far more than any plan has.
	maxList = 256 << 10
	// maxName bounds the names that an answer can bring into a status.
	maxName = 63
)

// Poll reads where a plan stands, in one SSH exchange.
func (r Runner) Poll(ctx context.Context, host ssh.Host, id string) (Status, error) {
	return r.Await(ctx, host, id, "", 0)
}

// looks are how often the host itself looks at a plan within Await.
const looks = 15

// Await is Poll when the plan has ended or has come to a step, if one is named, and at the latest after within. The
// host does the waiting, so that the answer comes when there is news.
func (r Runner) Await(
	ctx context.Context, host ssh.Host, id, step string, within time.Duration,
) (Status, error) {
	if !planID.MatchString(id) {
		return Status{}, fmt.Errorf("plan ID %q must match %s", id, planID)
	}
	// Whether the unit runs is asked before the result is read: the other way round a plan that ends in between would
	// look lost.
	script := fmt.Sprintf(`set -u
%[9]sdir=%[1]s
known_format "$dir"
left=%[6]d
while [ $left -gt 0 ] && [ -f "$dir/complete" ] && ! [ -s "$dir/result" ]; do
	set -- $(tail -n 1 "$dir/journal" 2>/dev/null)
	[ "${3:-}" = %[7]s ] && break
	sleep %.3[8]f
	left=$((left - 1))
done
echo "now $(date +%%s)"
[ -f "$dir/complete" ] || exit 0
echo complete
if (%[2]s); then echo alive; fi
[ -s "$dir/result" ] && echo "result $(head -c 512 "$dir/result")"
head -c %[4]d "$dir/steps" | sed 's/^/step /'
if [ -f "$dir/journal" ]; then
	# The end of it says where the plan stands.
	tail -c %[4]d "$dir/journal" | sed 's/^/journal /'
	failed=$(awk '$4 == "failed" { print $3; exit }' "$dir/journal")
	if [ -n "$failed" ] && [ -f "$dir/log/$failed" ]; then
		tail -n %[3]d "$dir/log/$failed" | tail -c %[5]d | sed 's/^/tail /'
	fi
fi
exit 0
`, ssh.Quote(r.dir(id)), r.starter().Alive(unit(id)), tailLines, maxList, tailBytes,
		min(within.Milliseconds(), looks), ssh.Quote(cmp.Or(step, "-")), within.Seconds()/looks, knownFormat)
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return Status{}, fmt.Errorf("polling plan %s: %w", id, err)
	}
	return parseStatus(result.Stdout, func() *redact.Redactor {
		if r.Secrets == nil {
			return nil
		}
		return r.Secrets(ctx)
	}), nil
}

// parseStatus takes out of the tail what must not be told; secrets are only asked for where there is one.
func parseStatus(output string, secrets func() *redact.Redactor) Status {
	status := Status{Phase: NotStarted}
	var complete, alive bool
	var ended []string
	var steps []string
	secret := map[string]bool{}
	var tail []string
	for line := range strings.SplitSeq(output, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		// What is no text can be written to no status.
		fields := strings.Fields(strings.ToValidUTF8(rest, "?"))
		switch {
		case word == "now":
			status.HostTime = unixTime(rest)
		case word == "complete":
			complete = true
		case word == "alive":
			alive = true
		case word == "result" && ended == nil:
			ended = fields
		case word == "step" && len(fields) >= 3 && len(fields[0]) <= maxName:
			steps = append(steps, fields[0])
			secret[fields[0]] = fields[2] == "1"
		case word == "journal" && len(fields) >= 4 && fields[3] == "start" && len(fields[2]) <= maxName:
			status.Phase, status.Step, status.Since = Running, fields[2], unixTime(fields[0])
		case word == "tail":
			tail = append(tail, rest)
		}
	}
	status.end(ended)
	if status.Phase == Failed && !secret[status.Step] && len(tail) > 0 {
		status.Tail = readable(strings.Join(tail, "\n"), secrets())
	}
	status.StepCount = len(steps)
	for i, name := range steps {
		if name == status.Step {
			status.StepIndex = i + 1
		}
	}
	if complete && alive && status.Phase == NotStarted {
		status.Phase = Running
	}
	status.Lost = complete && !alive && len(ended) == 0
	status.Message = status.sentence()
	return status
}

// readable is a tail for people.
func readable(tail string, secrets *redact.Redactor) string {
	hide := secrets.Text
	if len(tail) >= tailBytes-1 {
		hide = secrets.Tail
	}
	return strings.TrimSpace(strings.ToValidUTF8(hide(tail), "?"))
}

// end takes in the result: succeeded | failed <step> <code> [<seconds it was given>] | interrupted <step>. Only the
// result makes a phase final: the journal's last line precedes the removal of the secrets.
func (s *Status) end(result []string) {
	if len(result) == 0 {
		return
	}
	switch result[0] {
	case "succeeded":
		s.Phase = Succeeded
		return
	case "failed":
		s.Phase = Failed
	default:
		s.Phase = Interrupted
	}
	if len(result) > 1 && result[1] != "-" && len(result[1]) <= maxName {
		s.Step = result[1]
	}
	if len(result) > 2 {
		s.ExitCode, _ = strconv.Atoi(result[2])
	}
	if len(result) > 3 {
		seconds, _ := strconv.Atoi(result[3])
		s.exceeded = time.Duration(seconds) * time.Second
	}
}

func (s *Status) sentence() string {
	where := fmt.Sprintf("step %d of %d, %s", s.StepIndex, s.StepCount, s.Step)
	switch {
	case s.Phase == Succeeded:
		return fmt.Sprintf("all %d steps are done", s.StepCount)
	case s.exceeded > 0 && s.Tail != "":
		return fmt.Sprintf("step %s did not end within %s: %s", s.Step, s.exceeded, telling(s.Tail))
	case s.exceeded > 0:
		return fmt.Sprintf("step %s did not end within %s", s.Step, s.exceeded)
	case s.Phase == Failed && s.Tail != "":
		return fmt.Sprintf("%s, failed with code %d: %s", where, s.ExitCode, telling(s.Tail))
	case s.Phase == Failed:
		return fmt.Sprintf("%s, failed with code %d", where, s.ExitCode)
	case s.Phase == Interrupted && s.Step == "":
		return "stopped before its first step"
	case s.Phase == Interrupted:
		return where + ", was cut off and must not run twice; the host has to be cleaned"
	case s.Lost && s.Phase == Running:
		return where + ", began but nothing runs it any more; the host may have rebooted"
	case s.Lost:
		return "uploaded, but not started"
	case s.Phase == Running && s.Step == "":
		return "about to begin"
	case s.Phase == Running:
		return fmt.Sprintf("%s, since %s", where, s.Since.UTC().Format(time.RFC3339))
	}
	return "not on the host yet"
}

// telling is the line that says most: the last one that speaks of an error, for kubeadm ends with advice on its own
// flags; else the last one.
func telling(tail string) string {
	lines := strings.Split(tail, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(strings.ToLower(lines[i]), "error") {
			return lines[i]
		}
	}
	return lines[len(lines)-1]
}

func unixTime(text string) time.Time {
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
