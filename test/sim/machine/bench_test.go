// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// BenchmarkMachine makes machines and prints what one that idles costs: booted, with its services running.
func BenchmarkMachine(b *testing.B) {
	machine.New(machine.Options{}).PowerOff()
	before := heap()
	machines := make([]*machine.Machine, 0, b.N)
	for b.Loop() {
		machines = append(machines, machine.New(machine.Options{Hostname: "host", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}}))
	}
	b.ReportMetric(float64(heap()-before)/float64(len(machines)), "bytes/machine")
	for _, m := range machines {
		m.PowerOff()
	}
}

func BenchmarkPoll(b *testing.B) {
	m := machine.New(machine.Options{})
	defer m.PowerOff()
	h := &machine.Host{Machine: m}
	if err := (run.Runner{}).Start(b.Context(), h, run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "sleep 600"}}}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (run.Runner{}).Poll(b.Context(), h, "p"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInspect(b *testing.B) {
	m := machine.New(machine.Options{})
	defer m.PowerOff()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := inspect.Collect(b.Context(), &machine.Host{Machine: m}); err != nil {
			b.Fatal(err)
		}
	}
}
