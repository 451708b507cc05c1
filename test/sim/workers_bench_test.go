// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// workerCost is what replaced Machines of a pool cost.
type workerCost struct {
	machines       int
	time           time.Duration
	ours, upstream int64
	kinds          map[string]int64
}

func (w workerCost) seconds() float64 { return w.time.Seconds() / float64(w.machines) }

func (w workerCost) requests() float64 { return float64(w.ours) / float64(w.machines) }

// BenchmarkReplacedWorker replaces pools on simulated hosts by Cluster API's own controllers, in turn as they do it alone,
// and under a RolloutPolicy that takes no time of its own: no soak, nobody who is asked. A tenth surges.
// QUOIN_BENCH_WORKERS has the sizes of the pools, 10 when unset.
func BenchmarkReplacedWorker(b *testing.B) {
	for _, word := range strings.Fields(cmp.Or(os.Getenv("QUOIN_BENCH_WORKERS"), "10")) {
		size, err := strconv.Atoi(word)
		if err != nil {
			b.Fatalf("QUOIN_BENCH_WORKERS has sizes of pools, such as \"10 100\": %v", err)
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var alone, led workerCost
			court := newWorkerBench(b, size)
			b.ResetTimer()
			for range b.N {
				court.measure(&alone, size)
				court.addPolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.SoakSeconds, spec.Drain = ptr.To[int32](0), nil })
				court.until("being up to date", func() string {
					if reason := conditions.GetReason(court.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
						return reason
					}
					return ""
				})
				court.measure(&led, size)
				court.withoutPolicy()
			}
			b.StopTimer()
			reportWorkers(b, alone, led, float64(atOnce(size)))
		})
	}
}

// atOnce is how many Machines of a pool surge, which is a round.
func atOnce(size int) int { return max(size/10, 1) }

func newWorkerBench(b *testing.B, size int) *court {
	b.Helper()
	surging := atOnce(size)
	// A thousand hosts that are asked ten times as often as real ones, each with a server of SSH in this process, leave two
	// cores no time: connections are given up before they are made, and made again.
	haste := max(1, min(hurry, 1000/size))
	court := newCourt(b, courtOptions{name: fmt.Sprintf("bench-workers-%d", size), replicas: 1, hosts: 1 + size + 2*surging,
		strategy: surge, admission: true, workers: true, haste: haste})
	court.patience = whole + time.Duration(size)*time.Minute
	court.pause = 250*time.Millisecond + time.Duration(size)*time.Millisecond
	court.untilWhole("coming up")
	court.addPool("amber", int32(size)) //nolint:gosec // small numbers
	court.patchPool("amber", surgeBy(surging))
	court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, size) })
	court.until("order", func() string { return court.lacksOrder(false) })
	return court
}

// measure one rollout of the pool amber.
func (c *court) measure(cost *workerCost, size int) {
	c.t.Helper()
	ours, upstream, kinds := c.site.Manager().Requests(), c.site.Upstream().Requests(), c.site.Manager().Kinds()
	edit, begin := c.rollOut("amber"), time.Now()
	c.until("amber", func() string { return c.lacksPool("amber", edit, size) })
	cost.machines += size
	cost.time += time.Since(begin)
	// What leaves last is part of it.
	c.until("  order", func() string { return c.lacksOrder(false) })
	cost.ours += c.site.Manager().Requests() - ours
	cost.upstream += c.site.Upstream().Requests() - upstream
	if cost.kinds == nil {
		cost.kinds = map[string]int64{}
	}
	for kind, n := range c.site.Manager().Kinds() {
		cost.kinds[kind] += n - kinds[kind]
	}
}

// reportWorkers says what one Machine costs, and the delay that the gates of a round make.
func reportWorkers(b *testing.B, alone, led workerCost, round float64) {
	b.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "per replaced worker\talone\twith a policy\tratio")
	for _, line := range []struct {
		what       string
		alone, led float64
	}{
		{"seconds", alone.seconds(), led.seconds()},
		{"requests of our manager", alone.requests(), led.requests()},
		{"requests of Cluster API's managers", float64(alone.upstream) / float64(alone.machines), float64(led.upstream) / float64(led.machines)},
	} {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\n", line.what, line.alone, line.led, line.led/line.alone)
	}
	for _, kind := range slices.Sorted(maps.Keys(led.kinds)) {
		without := float64(alone.kinds[kind]) / float64(alone.machines)
		if with := float64(led.kinds[kind]) / float64(led.machines); math.Abs(with-without) >= 0.2 {
			fmt.Fprintf(w, "  %s\t%.2f\t%.2f\t%+.2f\n", kind, without, with, with-without)
		}
	}
	_ = w.Flush()
	b.Logf("\n%stargets: 1.05 of the time, 2 s more for a round, 10 requests more", text.String())
	b.ReportMetric(led.seconds()/alone.seconds(), "time-ratio")
	b.ReportMetric((led.seconds()-alone.seconds())*round, "seconds-more/round")
	b.ReportMetric(led.requests()-alone.requests(), "requests-more/machine")
}
