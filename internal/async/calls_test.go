// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

var host = types.NamespacedName{Namespace: "metal", Name: "host-1"}

func calls(t *testing.T, o async.Options) *async.Calls {
	c := async.New(o)
	t.Cleanup(c.Close)
	return c
}

func answer(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, nil }
}

func TestTheResultIsTakenOnce(t *testing.T) {
	g := NewWithT(t)
	c := calls(t, async.Options{})
	_, done, _ := async.Do(c, host, "poll", 0, answer(7))
	g.Expect(done).To(BeFalse())
	e := <-c.Events()
	g.Expect(e.Object.GetName()).To(Equal("host-1"))
	g.Expect(e.Object.GetNamespace()).To(Equal("metal"))
	n, done, err := async.Do(c, host, "poll", 0, answer(8))
	g.Expect(n).To(Equal(7))
	g.Expect(done).To(BeTrue())
	g.Expect(err).NotTo(HaveOccurred())
	_, done, _ = async.Do(c, host, "poll", 0, answer(9))
	g.Expect(done).To(BeFalse(), "taken, so it runs again")
	<-c.Events()
	n, _, _ = async.Do(c, host, "poll", 0, answer(10))
	g.Expect(n).To(Equal(9))
}

func TestOneCallPerKeyAtATime(t *testing.T) {
	g := NewWithT(t)
	c := calls(t, async.Options{})
	gate := make(chan struct{})
	slow := func(context.Context) (int, error) { <-gate; return 1, nil }
	_, _, _ = async.Do(c, host, "inspect", 0, slow)
	op, since, ok := c.Running(host)
	g.Expect(ok).To(BeTrue())
	g.Expect(op).To(Equal("inspect"))
	g.Expect(time.Since(since)).To(BeNumerically("<", time.Minute))
	started := false
	_, done, _ := async.Do(c, host, "clean", 0, func(context.Context) (int, error) { started = true; return 2, nil })
	g.Expect(done).To(BeFalse())
	close(gate)
	<-c.Events()
	g.Expect(started).To(BeFalse())
	// The untaken result of inspect is dropped, clean begins.
	_, done, _ = async.Do(c, host, "clean", 0, answer(3))
	g.Expect(done).To(BeFalse())
	<-c.Events()
	n, done, _ := async.Do(c, host, "clean", 0, answer(0))
	g.Expect(done).To(BeTrue())
	g.Expect(n).To(Equal(3))
}

func TestErrorsTimeoutsAndPanicsAreResults(t *testing.T) {
	g := NewWithT(t)
	c := calls(t, async.Options{})
	take := func(timeout time.Duration, fn func(context.Context) (string, error)) error {
		_, done, _ := async.Do(c, host, "op", timeout, fn)
		g.Expect(done).To(BeFalse())
		<-c.Events()
		_, done, err := async.Do(c, host, "op", timeout, fn)
		g.Expect(done).To(BeTrue())
		return err
	}
	boom := errors.New("boom")
	g.Expect(take(0, func(context.Context) (string, error) { return "", boom })).To(MatchError(boom))
	g.Expect(take(20*time.Millisecond, func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })).
		To(MatchError(context.DeadlineExceeded))
	g.Expect(take(0, func(context.Context) (string, error) {
		panic("oops")
	})).To(MatchError(ContainSubstring("panic: oops")))
}

func TestConcurrencyIsBounded(t *testing.T) {
	g := NewWithT(t)
	c := calls(t, async.Options{MaxConcurrent: 3})
	var running, most atomic.Int32
	for i := range 20 {
		_, _, _ = async.Do(c, types.NamespacedName{Name: fmt.Sprint(i)}, "op", 0, func(context.Context) (int, error) {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(5 * time.Millisecond)
			running.Add(-1)
			return 0, nil
		})
	}
	for range 20 {
		<-c.Events()
	}
	g.Expect(most.Load()).To(BeNumerically("<=", 3))
}

func TestCancelDropsTheResultAndWaitsForTheFunction(t *testing.T) {
	g := NewWithT(t)
	c := calls(t, async.Options{})
	begun, gate := make(chan struct{}), make(chan struct{})
	_, _, _ = async.Do(c, host, "op", 0, func(ctx context.Context) (int, error) {
		close(begun)
		<-ctx.Done()
		<-gate
		return 1, nil
	})
	<-begun
	c.Cancel(host)
	_, done, _ := async.Do(c, host, "op", 0, answer(2))
	g.Expect(done).To(BeFalse(), "the old one has not returned")
	_, _, ok := c.Running(host)
	g.Expect(ok).To(BeTrue())
	close(gate)
	<-c.Events()
	_, done, _ = async.Do(c, host, "op", 0, answer(2))
	g.Expect(done).To(BeFalse())
	<-c.Events()
	n, done, _ := async.Do(c, host, "op", 0, answer(3))
	g.Expect(done).To(BeTrue())
	g.Expect(n).To(Equal(2))
	c.Cancel(host)
}

func TestTheEndOfAManagerEndsWaitingCalls(t *testing.T) {
	g := NewWithT(t)
	c := async.New(async.Options{MaxConcurrent: 1})
	for i := range 3 {
		_, _, _ = async.Do(c, types.NamespacedName{Name: fmt.Sprint(i)}, "op", 0,
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	}
	over, end := context.WithCancel(t.Context())
	end()
	g.Expect(c.Start(over)).To(Succeed())
	_, done, err := async.Do(c, types.NamespacedName{Name: "late"}, "op", 0, answer(1))
	g.Expect(done).To(BeTrue())
	g.Expect(err).To(MatchError(context.Canceled))
}
