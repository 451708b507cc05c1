// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
)

// What is shown is the last line of a terminal, whatever is printed meanwhile, and is gone when it ends.
func TestTheLastLineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var out bytes.Buffer
		printer := &Printer{out: &out, terminal: true, began: time.Now()}

		printer.Show("apply the objects,\n  which takes longer than the width of many a terminal is in its columns")
		time.Sleep(time.Minute)
		fmt.Fprintln(printer, "a line")
		time.Sleep(time.Second)
		printer.Show("wait")
		time.Sleep(2 * time.Second)
		printer.Show("")
		fmt.Fprint(printer, "Is it? [y/N] ")
		time.Sleep(time.Second)

		const cleared = "\r\x1b[K"
		g.Expect(out.String()).To(And(
			HavePrefix(cleared+" ⠋ apply the objects, which takes longer than the width of many ... (0s)"+cleared),
			ContainSubstring("... (1m00s)"+cleared+"a line\n"), HaveSuffix(" wait (2s)"+cleared+"Is it? [y/N] ")))
	})
}

func TestALogHasNoLineThatMoves(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	printer := New(&out)
	printer.Show("apply the objects")
	fmt.Fprintln(printer, "a line")
	printer.Show("")
	g.Expect(out.String()).To(Equal("a line\n"))
}

func TestStepSaysHowItWent(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	printer := New(&out)

	g.Expect(printer.Step(t.Context(), "Making tea", time.Minute, func(context.Context, *Step) error { return nil })).To(Succeed())
	err := printer.Step(t.Context(), "Drinking it", time.Minute, func(context.Context, *Step) error { return errors.New("too hot") })

	g.Expect(err).To(MatchError("drinking it: too hot"))
	g.Expect(out.String()).To(Equal(" • Making tea ...\n ✓ Making tea (0s, 0s in all)\n • Drinking it ...\n ✗ Drinking it (0s, 0s in all)\n"))
}

func TestPollNamesWhatItStillWaitedForAtItsDeadline(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer

	err := New(&out).Step(t.Context(), "Boiling", 20*time.Millisecond, func(ctx context.Context, step *Step) error {
		return step.Poll(ctx, time.Millisecond, func(context.Context) (bool, []string, error) {
			return false, []string{"the kettle"}, nil
		})
	})

	g.Expect(err).To(MatchError(context.DeadlineExceeded))
	g.Expect(err.Error()).To(And(ContainSubstring("not done within 20ms"), ContainSubstring("the kettle")))
}

func TestPollAsksAgainAfterAnError(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	asked := 0

	err := New(&out).Step(t.Context(), "Boiling", time.Minute, func(ctx context.Context, step *Step) error {
		return step.Poll(ctx, time.Millisecond, func(context.Context) (bool, []string, error) {
			if asked++; asked < 3 {
				return false, nil, errors.New("no answer")
			}
			return true, nil, nil
		})
	})

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(asked).To(Equal(3))
}
