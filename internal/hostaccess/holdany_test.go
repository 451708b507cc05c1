// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

// holders are hosts that each answer after a while; who has no answer is silent until nobody waits any more.
type holders struct {
	answers map[string]answer

	mu          sync.Mutex
	asked, free []string
}

type answer struct {
	after time.Duration
	err   error
	// deaf hosts do not even notice that nobody waits.
	deaf bool
}

func (f *holders) HoldHost(ctx context.Context, host *infrav1.QuoinHost) (func(context.Context) error, error) {
	f.mu.Lock()
	f.asked = append(f.asked, host.Name)
	f.mu.Unlock()
	answer, ok := f.answers[host.Name]
	if !ok {
		<-ctx.Done()
		return nil, fmt.Errorf("dialing: %w", ctx.Err())
	}
	gone := ctx.Done()
	if answer.deaf {
		gone = nil
	}
	select {
	case <-time.After(answer.after):
	case <-gone:
		return nil, ctx.Err()
	}
	return func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.free = append(f.free, host.Name)
		return nil
	}, answer.err
}

func TestAnyHostIsHeldAndAWorkerWaitsOnceOnly(t *testing.T) {
	stale := &owner.StaleError{Ours: owner.Record{Generation: 1}, Holder: owner.Record{Generation: 2}}
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		answers map[string]answer
		held    string
		took    time.Duration
		asked   []string
		says    []string
	}{
		"the first confirms": {
			answers: map[string]answer{"a": {}, "b": {}, "c": {}},
			held:    "a", asked: []string{"a"},
		},
		"the first refuses the connection": {
			answers: map[string]answer{"a": {err: refused}, "b": {}, "c": {}},
			held:    "b", asked: []string{"a", "b"},
		},
		"the first is silent": {
			answers: map[string]answer{"b": {after: 100 * time.Millisecond}, "c": {}},
			held:    "b", took: headStart + 100*time.Millisecond, asked: []string{"a", "b"},
		},
		"the first is slow": {
			answers: map[string]answer{"a": {after: 700 * time.Millisecond}},
			held:    "a", took: 700 * time.Millisecond, asked: []string{"a", "b"},
		},
		"only the last answers": {
			answers: map[string]answer{"c": {}},
			held:    "c", took: 2 * headStart, asked: []string{"a", "b", "c"},
		},
		"all are silent": {
			took: HoldTimeout, asked: []string{"a", "b", "c"},
			says: []string{"host hosts/a of Machine m-a did not answer in time", "host hosts/b", "host hosts/c"},
		},
		"one is silent, and does not heed that nobody waits": {
			answers: map[string]answer{"a": {after: time.Minute, deaf: true}, "b": {err: refused}, "c": {err: refused}},
			took:    HoldTimeout, asked: []string{"a", "b", "c"},
			says: []string{"host hosts/a", "host hosts/b of Machine m-b: connection refused"},
		},
		"all refuse": {
			answers: map[string]answer{"a": {err: refused}, "b": {err: refused}, "c": {err: refused}},
			asked:   []string{"a", "b", "c"}, says: []string{"host hosts/a", "host hosts/b", "host hosts/c"},
		},
		"one serves another, which is believed for all": {
			answers: map[string]answer{"a": {err: refused}, "b": {err: stale}, "c": {}},
			asked:   []string{"a", "b"}, says: []string{"another management plane took over"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				holders, begin := &holders{answers: c.answers}, time.Now()
				held, err := HoldAny(t.Context(), holders, hostsNamed("a", "b", "c")...)
				g.Expect(time.Since(begin)).To(Equal(c.took))
				g.Expect(holders.asked).To(Equal(c.asked))
				if c.held == "" {
					for _, text := range c.says {
						g.Expect(err).To(MatchError(ContainSubstring(text)))
					}
					g.Expect(owner.ServesAnother(err)).To(Equal(slices.Contains(c.says, "another management plane took over")))
				} else {
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(held.Host.Name).To(Equal(c.held))
					held.Release(t.Context())
					g.Expect(holders.free).To(Equal([]string{c.held}))
				}
				time.Sleep(time.Hour) // for those that answer when nobody waits any more
			})
		})
	}
}

func hostsNamed(names ...string) []*infrav1.QuoinHost {
	var hosts []*infrav1.QuoinHost
	for _, name := range names {
		hosts = append(hosts, &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name},
			Spec:       infrav1.QuoinHostSpec{ConsumerRef: &infrav1.ConsumerReference{Machine: "m-" + name}},
		})
	}
	return hosts
}

// Nor is one cut off that is still asked: it would keep its lock for the whole lease.
func TestAHostThatConfirmsTooLateIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		holders := &holders{answers: map[string]answer{"a": {after: 2 * time.Second}, "b": {}}}
		held, err := HoldAny(t.Context(), holders, hostsNamed("a", "b")...)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(held.Host.Name).To(Equal("b"))
		time.Sleep(time.Minute)
		g.Expect(holders.free).To(Equal([]string{"a"}))
		held.Release(t.Context())
		g.Expect(holders.free).To(Equal([]string{"a", "b"}))
	})
}

func TestAHostThatCannotBeLetGoIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, begin := &Held{release: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}, time.Now()
		held.Release(t.Context())
		NewWithT(t).Expect(time.Since(begin)).To(Equal(releaseWait))
		time.Sleep(HoldTimeout)
	})
}

func TestNobodyIsHeldWhereNoHostIsKnown(t *testing.T) {
	_, err := HoldAny(t.Context(), &holders{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("no host is known")))
}
