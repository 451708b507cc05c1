// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestGapsLieBetweenAnswers(t *testing.T) {
	g := NewWithT(t)
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	gaps := Gaps{}
	gaps.Note(at(0), at(1), nil)
	gaps.Note(at(2), at(3), errors.New("refused"))
	gaps.Note(at(4), at(7), nil)
	gaps.Note(at(8), at(9), nil)
	g.Expect(gaps.Longest).To(Equal(6 * time.Second))
	g.Expect(gaps.Successes).To(Equal(3))
	g.Expect(gaps.Failures).To(Equal(1))
	g.Expect(gaps.String()).To(ContainSubstring("refused"))
	gaps.Note(at(10), at(20), nil)
	g.Expect(gaps.Longest).To(Equal(11*time.Second), "an answer that comes late")
	g.Expect(gaps.String()).NotTo(ContainSubstring("refused"))
}

func TestACallerCountsFromItsFirstAnswer(t *testing.T) {
	g := NewWithT(t)
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	calls := Calls{Node: "host-3"}
	calls.Note(at(0), at(1), errors.New("no route"))
	calls.Note(at(2), at(3), nil)
	g.Expect(calls.Gaps.Failures).To(BeZero(), "nothing leads there yet")

	calls.Note(at(3), at(4), errors.New("refused"))
	g.Expect(calls.Gaps).To(And(HaveField("Successes", 1), HaveField("Failures", 1)))
	g.Expect(calls.Failures).To(ConsistOf(HaveSuffix("from host-3: refused")))
	for range 2 * maxFailures {
		calls.Note(at(5), at(6), errors.New("refused"))
	}
	g.Expect(calls.Failures).To(HaveLen(maxFailures))
	g.Expect(calls.Gaps.Failures).To(Equal(1 + 2*maxFailures))
}
