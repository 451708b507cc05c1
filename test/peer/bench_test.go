// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer_test measures the replacement of control-plane Machines against Cluster API's own provider; see
// docs/benchmarks.md for what is compared, and why that is fair.
package peer_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

const (
	// oldVersion is what both begin with, newVersion what the first round comes to. Later rounds change a command.
	oldVersion, newVersion = "v1.35.4", "v1.36.3"
	replicas               = 3
	rounds                 = 2
)

// roles of the managers that a Cluster is served by; the first two are the same processes for both.
var roles = [...]string{"core", "bootstrap", "control plane", "infrastructure"}

// BenchmarkReplacedControlPlaneMachine rolls two control planes of three Machines in turn, with the same core and kubeadm
// bootstrap managers, every manager a process at its production pace.
func BenchmarkReplacedControlPlaneMachine(b *testing.B) {
	if os.Getenv(rig.AssetsVariable) == "" {
		b.Skipf("%[1]s is not set: run `export %[1]s=$(hack/bundle/envtest-assets.sh)` first", rig.AssetsVariable)
	}
	ctrl.SetLogger(logr.Discard())
	shared := []string{repository.CoreLabel, repository.BootstrapLabel}
	theirs := []string{repository.PeerControlPlaneLabel, repository.PeerInfrastructureLabel}
	ours := []string{repository.ControlPlaneLabel, repository.InfrastructureLabel}
	plane, err := rig.Start(b.Context(), rig.Options{
		Name: "peer", Providers: slices.Concat(shared, theirs, ours),
		// Nothing here needs machine pools, and the infrastructure for development did not start with them.
		Variables: map[string]string{"EXP_MACHINE_POOL": "false"},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			b.Error(err)
		}
	})
	if _, err := plane.Init(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := plane.StartManagers(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := kubeadmv1.AddToScheme(plane.Client.Scheme()); err != nil {
		b.Fatal(err)
	}
	peer := newContender(b, plane, kubeadm{}, slices.Concat(shared, theirs))
	own := newContender(b, plane, newQuoin(b), slices.Concat(shared, ours))
	// Both exist before either is measured: the core managers look after two Clusters all the time.
	for _, c := range []*contender{peer, own} {
		c.create()
		c.untilWhole(nil)
	}
	b.ResetTimer()
	for range b.N {
		for range rounds {
			peer.roll()
			own.roll()
		}
	}
	b.StopTimer()
	report(b, peer, own)
}

// cost of replaced Machines.
type cost struct {
	machines int
	// raw is what a clock says; hosts is that part of it in which hosts were at work.
	raw, hosts time.Duration
	// managers by role, in the order of roles.
	managers [len(roles)]rig.Usage
}

func (c *cost) usage() rig.Usage {
	sum := rig.Usage{}
	for _, used := range c.managers {
		sum = sum.Plus(used)
	}
	return sum
}

func (c *cost) each(what float64) float64 { return what / float64(c.machines) }

func (c *cost) net() time.Duration { return c.raw - c.hosts }

func report(b *testing.B, peer, own *contender) {
	b.Helper()
	table := &strings.Builder{}
	fmt.Fprintf(table, "per replaced control-plane Machine   %10s %10s %8s\n", peer.world.name(), own.world.name(), "ratio")
	metrics := map[string]float64{}
	line := func(what, metric string, of func(*cost) float64) {
		theirs, ours := peer.cost.each(of(&peer.cost)), own.cost.each(of(&own.cost))
		fmt.Fprintf(table, "%-36s %10.2f %10.2f %8.2f\n", what, theirs, ours, ours/theirs)
		if metric != "" {
			metrics[metric] = ours / theirs
		}
	}
	line("seconds", "", func(c *cost) float64 { return c.raw.Seconds() })
	line("seconds without the hosts' own", "time-ratio", func(c *cost) float64 { return c.net().Seconds() })
	line("API requests, management", "requests-ratio", func(c *cost) float64 { return c.usage().Management })
	line("API requests, workload", "", func(c *cost) float64 { return c.usage().Workload })
	line("CPU seconds, all managers", "cpu-ratio", func(c *cost) float64 { return c.usage().CPU.Seconds() })
	for i, role := range roles {
		line("  "+role+": requests", "", func(c *cost) float64 { return c.managers[i].Management })
		line("  "+role+": CPU seconds", "", func(c *cost) float64 { return c.managers[i].CPU.Seconds() })
	}
	fmt.Fprintf(table, "targets: a third of the time (0.33), half of the requests (0.50); %d and %d Machines\n", peer.cost.machines, own.cost.machines)
	b.Logf("\n%s", table)
	for name, value := range metrics {
		b.ReportMetric(value, name)
	}
	b.ReportMetric(own.cost.each(own.cost.net().Seconds()), "s/machine")
	b.ReportMetric(own.cost.each(own.cost.usage().Management), "requests/machine")
	b.ReportMetric(own.cost.each(own.cost.usage().CPU.Seconds()), "cpu-s/machine")
}
