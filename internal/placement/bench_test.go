// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// BenchmarkSelect shows what placement costs per host in fleets of different size. The time per host should stay nearly
// the same: "growth" is that of the largest fleet over that of the smallest, within one run.
func BenchmarkSelect(b *testing.B) {
	perHost := map[int]float64{}
	sizes := []int{40, 400, 2000, 4000}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("hosts=%d", size), func(b *testing.B) {
			hosts := fleet(size)
			request := Request{Namespace: "default", Selector: labels.SelectorFromSet(labels.Set{"role": "worker"}),
				Pool: "default/a", PreferFormer: true, Now: now}
			for b.Loop() {
				if Select(request, hosts).Chosen == nil {
					b.Fatal("no host was chosen")
				}
			}
			perHost[size] = float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(size)
			b.ReportMetric(perHost[size], "ns/host")
			if first := perHost[sizes[0]]; first > 0 {
				b.ReportMetric(perHost[size]/first, "growth")
			}
		})
	}
}

// fleet is a fleet of which half is in use and every eighth host is a control plane's.
func fleet(size int) []Host {
	hosts := make([]Host, size)
	for i := range hosts {
		role := "worker"
		if i%8 == 0 {
			role = "control-plane"
		}
		hosts[i] = Host{
			Namespace: "default", Name: fmt.Sprintf("srv-%04d", i), Labels: map[string]string{"role": role},
			State: StateAvailable, Ready: true, InUse: i%2 == 0, FailureDomain: fmt.Sprintf("rack-%d", i%20),
			FailedAt: now.Add(-time.Duration(i) * time.Minute), FailedPool: "default/a", FormerPool: fmt.Sprintf("default/%d",
				i%7),
		}
	}
	return hosts
}
