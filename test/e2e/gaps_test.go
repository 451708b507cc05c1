//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// gaps measures for how long a client of a control plane of three is not answered while the three are replaced, three
// times. Times are printed and not judged, for they are mostly those of the disk that all hosts share:
// QUOIN_E2E_ETCD_IN_MEMORY=1 takes etcd off it. That nothing acknowledged is lost is judged.
func gaps() {
	It("rolls a control plane of three, three times, beside somebody who writes", func(ctx SpecContext) {
		must(the.lab.AddRacks(ctx))
		trio := need(the.lab.Create(ctx, lab.Trio()))
		must(trio.AwaitAPI(ctx))
		must(trio.ApplyNetwork(ctx))
		must(trio.AwaitReady(ctx, 15*time.Minute, lab.OldVersion, lab.OldVersion))
		var longest, slowest time.Duration
		for range 3 {
			before := slices.Collect(maps.Keys(controlPlaneMachines(ctx, trio)))
			insider := need(trio.Inside(ctx))
			writer := need(trio.Write(ctx))
			timeline := trio.Watch(ctx)
			DeferCleanup(timeline.Stop)
			began := time.Now()
			must(trio.EditControlPlane(ctx, func(spec *controlplanev1.QuoinControlPlaneSpec) {
				spec.Rollout.After = metav1.NewTime(began.Add(-time.Second))
			}))
			Eventually(func(ctx context.Context) map[string]string { return controlPlaneMachines(ctx, trio) }).WithContext(ctx).
				WithTimeout(20 * time.Minute).WithPolling(time.Second).
				Should(And(HaveLen(3), WithTransform(func(m map[string]string) []string { return slices.Collect(maps.Keys(m)) },
					Not(ContainElements(BeElementOf(before))))))
			must(trio.AwaitReady(ctx, 10*time.Minute, lab.OldVersion, lab.OldVersion))
			took := time.Since(began)
			writer.Stop()
			timeline.Stop()
			seen := need(insider.Report(ctx))
			the.lab.Printf("\nA rollout of %s: %s\n  from a pod: longest gap between reads %s, between writes %s, between names that DNS knew %s",
				took.Round(time.Second), writer.Report(), seen.Reads, seen.Writes, seen.Names)
			ends := endsOfAPIServers(timeline.Lives())
			the.lab.Printf("  of it %s, %.1f %%, between drains and the removal of members, which is at most what is waited for clients",
				ends.Round(time.Second), 100*ends.Seconds()/took.Seconds())
			Expect(need(writer.Lost(ctx))).To(BeEmpty(), "acknowledged keys that are lost")
			Expect(seen.Names.Longest).To(BeNumerically("<", 10*time.Second))
			Expect(seen.Names.Last).To(BeTemporally(">", time.Now().Add(-time.Minute)), "names that are known again")
			Expect(writer.Deaf()).To(BeNumerically("<", 10*time.Second))
			longest, slowest = max(longest, writer.Longest()), max(slowest, took)
		}
		the.lab.Printf("\nOf three rollouts: longest gap %s, slowest %s", longest.Round(time.Millisecond), slowest.Round(time.Second))
	}, NodeTimeout(80*time.Minute))
}

// endsOfAPIServers is for how long Machines that were drained had their API servers end, and their members removed.
func endsOfAPIServers(lives []lab.Life) (sum time.Duration) {
	for _, life := range lives {
		if !life.Drained.IsZero() && life.Terminable.After(life.Drained) {
			sum += life.Terminable.Sub(life.Drained)
		}
	}
	return sum
}
