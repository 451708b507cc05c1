// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
)

// busy are calls that end when they are told to.
type busy struct {
	calls *async.Calls
	mu    sync.Mutex
	runs  map[string]int
	ends  map[string]chan struct{}
}

func (b *busy) begin(namespace string, number int) {
	end := b.end(namespace)
	_, _, _ = async.Do(b.calls, types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(number)}, "op", 0,
		func(ctx context.Context) (int, error) {
			b.count(namespace, 1)
			defer b.count(namespace, -1)
			select {
			case <-end:
			case <-ctx.Done():
			}
			return 0, nil
		})
}

func (b *busy) count(namespace string, more int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[namespace] += more
}

func (b *busy) running(namespace string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[namespace]
}

func (b *busy) end(namespace string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends[namespace] == nil {
		b.ends[namespace] = make(chan struct{})
	}
	return b.ends[namespace]
}

// 600 hosts of one tenant that take the time that a call has, and another tenant's 50 that do not.
func TestHostsOfOneNamespaceThatAnswerSlowlyStarveNoOther(t *testing.T) {
	g := NewWithT(t)
	b := &busy{calls: calls(t, async.Options{}), runs: map[string]int{}, ends: map[string]chan struct{}{}}
	for number := range 600 {
		b.begin("tarpits", number)
	}
	// What may fall silent together still finds a slot where nobody else is.
	g.Eventually(func() int { return b.running("tarpits") }).WithTimeout(30 * time.Second).Should(Equal(512))
	for number := range 50 {
		b.begin("good", number)
	}
	g.Eventually(func() int { return b.running("good") }).WithTimeout(30 * time.Second).Should(Equal(50))
	g.Expect(b.running("tarpits")).To(Equal(512))
	// Whoever waited gets what others leave.
	close(b.end("good"))
	close(b.end("tarpits"))
	for range 650 {
		<-b.calls.Events()
	}
	g.Expect(b.running("tarpits") + b.running("good")).To(BeZero())
}

func TestACallSaysWhatItWaitsFor(t *testing.T) {
	g := NewWithT(t)
	b := &busy{calls: calls(t, async.Options{MaxConcurrent: 5}), runs: map[string]int{}, ends: map[string]chan struct{}{}}
	for number := range 4 {
		b.begin("tarpits", number)
	}
	g.Eventually(func() int { return b.running("tarpits") }).Should(Equal(4))
	b.begin("tarpits", 4)
	why, waits := b.calls.Waits(types.NamespacedName{Namespace: "tarpits", Name: "4"})
	g.Expect(waits).To(BeTrue())
	g.Expect(why).To(And(ContainSubstring("namespace tarpits"), ContainSubstring("at most 4 of 5"),
		ContainSubstring("kubectl -n tarpits get quoinhosts")))
	for _, name := range []string{"3", "5"} {
		_, waits = b.calls.Waits(types.NamespacedName{Namespace: "tarpits", Name: name})
		g.Expect(waits).To(BeFalse(), name)
	}
	close(b.end("tarpits"))
	for range 5 {
		<-b.calls.Events()
	}
	_, waits = b.calls.Waits(types.NamespacedName{Namespace: "tarpits", Name: "4"})
	g.Expect(waits).To(BeFalse(), "its call is over")
}
