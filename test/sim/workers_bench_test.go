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
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
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
// under a RolloutPolicy that takes no time of its own, no soak and nobody who is asked, and alone again. A tenth surges.
// QUOIN_BENCH_WORKERS has the sizes of the pools, 10 when unset. QUOIN_BENCH_REPLACED has how many Machines of a larger
// pool are replaced each time, in the midst of a rollout that begins anew afterwards: all of a thousand take hours.
func BenchmarkReplacedWorker(b *testing.B) {
	part := number(b, cmp.Or(os.Getenv("QUOIN_BENCH_REPLACED"), strconv.Itoa(math.MaxInt32)))
	for _, word := range strings.Fields(cmp.Or(os.Getenv("QUOIN_BENCH_WORKERS"), "10")) {
		size := number(b, word)
		b.Run(word, func(b *testing.B) {
			var alone, led workerCost
			court := newWorkerBench(b, size)
			entire := size <= part
			b.ResetTimer()
			for range b.N {
				court.measure(&alone, size, part)
				court.rest(entire)
				court.addPolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.SoakSeconds, spec.Drain = ptr.To[int32](0), nil })
				court.until("being looked at", func() string {
					reason := conditions.GetReason(court.policy(), quoinv1.RolloutPolicyProgressingCondition)
					if reason == quoinv1.UpToDateReason || reason != "" && !entire {
						return ""
					}
					return "Progressing: " + reason
				})
				court.measure(&led, size, part)
				court.halt(entire)
				court.withoutPolicy()
				court.rest(entire)
				// Once more, because a lab becomes slower the longer it runs.
				court.measure(&alone, size, part)
				court.rest(entire)
			}
			b.StopTimer()
			reportWorkers(b, alone, led, float64(atOnce(size)))
		})
	}
}

func number(b *testing.B, word string) int {
	b.Helper()
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 {
		b.Fatalf("QUOIN_BENCH_WORKERS has sizes of pools, such as \"10 100\", and QUOIN_BENCH_REPLACED one number, and not %q", word)
	}
	return n
}

// atOnce is how many Machines of a pool surge, which is a round.
func atOnce(size int) int { return max(size/10, 1) }

func newWorkerBench(b *testing.B, size int) *court {
	b.Helper()
	surging := atOnce(size)
	// Hundreds of hosts that are asked ten times as often as real ones, each with a server of SSH in this process, leave two
	// cores no time: connections are given up before they are made, and made again.
	haste := max(1, min(hurry, 300/size))
	court := newCourt(b, courtOptions{name: fmt.Sprintf("bench-workers-%d", size), replicas: 1, hosts: 1 + size + 2*surging,
		strategy: surge, admission: true, workers: true, haste: haste})
	court.patience = whole + time.Duration(size)*time.Minute
	court.pause = 250*time.Millisecond + time.Duration(size)*time.Millisecond
	court.untilWhole("coming up")
	// What comes up at once shares the cores.
	const most = 100
	have := min(size, most)
	court.addPool("amber", int32(have)) //nolint:gosec // small numbers
	court.patchPool("amber", surgeBy(surging))
	for have < size {
		court.untilAvailable(fmt.Sprintf("half of the last %d of %d", most, have), time.Time{}, have-most/2)
		have = min(size, have+most/2)
		court.patchPool("amber", fmt.Sprintf(`{"spec":{"replicas":%d}}`, have))
	}
	court.untilAvailable("amber", time.Time{}, size)
	court.until("order", func() string { return court.lacksOrder(false) })
	return court
}

// halt ends a rollout that is not measured to its end.
func (c *court) halt(entire bool) {
	if !entire {
		c.patchPool("amber", `{"spec":{"paused":true}}`)
	}
}

// rest waits until no Machine comes or goes.
func (c *court) rest(entire bool) {
	c.halt(entire)
	c.until("being at rest", c.lacksRest)
}

// lacksRest says which Machine comes or goes.
func (c *court) lacksRest() string {
	machines, _ := c.workers("amber", time.Now().Add(time.Hour))
	for i := range machines {
		if !machines[i].DeletionTimestamp.IsZero() || !conditions.IsTrue(&machines[i], clusterv1.MachineAvailableCondition) {
			return machines[i].Name + " comes or goes"
		}
	}
	return ""
}

// untilAvailable waits for so many Machines of the pool amber that were made since then, and says how many there are.
func (c *court) untilAvailable(what string, since time.Time, want int) {
	c.t.Helper()
	begin := time.Now()
	said := begin
	c.until(what, func() string {
		_, young := c.workers("amber", since)
		young = slices.DeleteFunc(young, func(machine clusterv1.Machine) bool {
			return !conditions.IsTrue(&machine, clusterv1.MachineAvailableCondition)
		})
		if len(young) >= want {
			return ""
		}
		lack := fmt.Sprintf("%d of %d are available after %s", len(young), want, time.Since(begin).Round(time.Second))
		if time.Since(said) > 2*time.Minute {
			said = time.Now()
			c.t.Log(lack)
		}
		return lack
	})
}

// measure one rollout of the pool amber, or of a large one that part which is replaced after the first round: as many are
// on their way when it begins as when it ends.
func (c *court) measure(cost *workerCost, size, part int) {
	c.t.Helper()
	ours, upstream, kinds := c.site.Manager().Requests(), c.site.Upstream().Requests(), c.site.Manager().Kinds()
	edit, begin := c.rollOut("amber"), time.Now()
	if size <= part {
		part = size
		c.until("amber", func() string { return c.lacksPool("amber", edit, size) })
		cost.time += time.Since(begin)
		// What leaves last is part of it.
		c.until("  order", func() string { return c.lacksOrder(false) })
	} else {
		c.patchPool("amber", `{"spec":{"paused":false}}`)
		c.untilAvailable("the first round", edit, atOnce(size))
		ours, upstream, kinds = c.site.Manager().Requests(), c.site.Upstream().Requests(), c.site.Manager().Kinds()
		begin = time.Now()
		c.untilAvailable("the part that is measured", edit, atOnce(size)+part)
		cost.time += time.Since(begin)
	}
	cost.machines += part
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
