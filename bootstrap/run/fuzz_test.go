// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var bootstrapToken = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)

// A host that is broken, or taken over, may answer anything.
func FuzzPollAnswer(f *testing.F) {
	for _, answer := range []string{
		"", "now 1700000000\n", "now x\ncomplete\n", "now 1\ncomplete\nalive\nstep a 0 0 60\njournal 1 b a start\n",
		"now 1\ncomplete\nresult succeeded\nstep a 0 0 60\n",
		"now 1\ncomplete\nresult failed a 124 60\nstep a 0 0 60\njournal 1 b a failed 124 60\ntail error: x\ntail " +
			"abcdef.0123456789abcdef\n",
		"complete\nresult interrupted -\n", "complete\nresult failed\n", "result failed " + strings.Repeat("x", 100) +
			" 99999999999999999999 -5\n",
		"complete\nresult failed a 1\nstep a 0 1 60\ntail hush\n", "tail -----BEGIN X-----\ntail -----END\n",
		"complete\nresult failed a 1\nstep a 0 0 60\ntail -----END X-----\ntail \xff\xfe\n",
		"journal 99999999999999999999 b a start\n",
	} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		status := parseStatus(answer, unknown)
		switch status.Phase {
		case NotStarted, Running, Succeeded, Failed, Interrupted:
		default:
			t.Fatalf("phase %q", status.Phase)
		}
		if len(status.Step) > maxName || len(status.Tail) > tailBytes*4 || len(status.Message) > tailBytes*4+200 {
			t.Fatalf("%d bytes of step, %d of tail, %d of message", len(status.Step), len(status.Tail), len(status.Message))
		}
		if bootstrapToken.MatchString(status.Tail) {
			t.Fatalf("a token in %q", status.Tail)
		}
		for _, text := range []string{status.Step, status.Tail, status.Message} {
			if !utf8.ValidString(text) {
				t.Fatalf("%q can be written to no status", text)
			}
		}
	})
}

func FuzzClockAnswer(f *testing.F) {
	for _, answer := range []string{"clock 1700000000.5 12 b\n", "clock 1700000000.%N 12 b", "clock -1 -1 b", "clock 1 2",
		"x\nclock 99999999999999999999 1 b"} {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		clock, err := parseClock(answer)
		if err != nil {
			return
		}
		_ = clock.check()
		if strings.ContainsAny(clock.bring(), "\x00") && !strings.Contains(answer, "\x00") {
			t.Fatal("made up a NUL byte")
		}
	})
}
