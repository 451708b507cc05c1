// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

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

func TestPollAsksAgainAfterAnErrorUnlessItIsFinal(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	asked := 0

	err := New(&out).Step(t.Context(), "Boiling", time.Minute, func(ctx context.Context, step *Step) error {
		return step.Poll(ctx, time.Millisecond, func(context.Context) (bool, []string, error) {
			if asked++; asked < 3 {
				return false, nil, errors.New("no answer")
			}
			return false, nil, Final("the kettle is broken")
		})
	})

	g.Expect(err).To(MatchError("boiling: the kettle is broken"))
	g.Expect(asked).To(Equal(3))
}
