// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

var (
	hostState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quoin_host_state", Help: "Number of QuoinHosts in each state.",
	}, []string{"state"})
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quoin_host_transitions_total", Help: "Number of changes of a QuoinHost's state.",
	}, []string{"from", "to"})
	callSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quoin_host_exchange_seconds", Help: "Duration of the conversations with QuoinHosts, by operation and " +
			"outcome (ok or failed).",
		Buckets: prometheus.ExponentialBuckets(0.01, 3, 10), // 10 ms to 3 min: a conversation is bounded by 5 min
	}, []string{"operation", "outcome"})
	callFailures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quoin_host_exchange_failures_total", Help: "Number of conversations with QuoinHosts that failed, by the " +
			"reason that the host's condition gives.",
	}, []string{"reason"})

	states = &stateCounts{of: map[types.NamespacedName]infrav1.HostState{}}
)

func init() { metrics.Registry.MustRegister(hostState, transitions, callSeconds, callFailures) }

// observeCall notes how long a conversation took. Its operation is the first word of op: the rest names plans and would
// make a time series of each.
func observeCall(op string, took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	operation, _, _ := strings.Cut(op, " ")
	callSeconds.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

// stateCounts keeps the gauge right when hosts change their state or go.
type stateCounts struct {
	mu sync.Mutex
	of map[types.NamespacedName]infrav1.HostState
}

func (s *stateCounts) set(key types.NamespacedName, state infrav1.HostState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.of[key]
	if state == "" || known && old == state {
		return
	}
	if known {
		hostState.WithLabelValues(string(old)).Dec()
	}
	s.of[key] = state
	hostState.WithLabelValues(string(state)).Inc()
}

func (s *stateCounts) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, known := s.of[key]; known {
		hostState.WithLabelValues(string(old)).Dec()
		delete(s.of, key)
	}
}
