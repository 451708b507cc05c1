// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"sync"

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

	states = &stateCounts{of: map[types.NamespacedName]infrav1.HostState{}}
)

func init() { metrics.Registry.MustRegister(hostState, transitions) }

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
