// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// nightly runs take hours.
func nightly() bool { return os.Getenv("QUOIN_NIGHTLY") != "" }

// long runs take minutes of both processors.
func long() bool { return os.Getenv("QUOIN_SIM_LONG") != "" }

// needsTime skips what `make test` has no time for; `make test-sim` and nightly runs have it.
func needsTime(t *testing.T) {
	t.Helper()
	if !long() && !nightly() {
		t.Skip("QUOIN_SIM_LONG is not set: run `make test-sim`")
	}
}

const (
	surge       = controlplanev1.RolloutStrategySurge
	removeFirst = controlplanev1.RolloutStrategyRemoveFirst
	auto        = controlplanev1.RolloutStrategyAuto
)

// Proves: S2-31, S3-35
//
// Control planes of one, three and five come up and are replaced with each strategy, while somebody writes and somebody
// looks at etcd.
func TestAControlPlaneRolls(t *testing.T) {
	t.Parallel()
	type one struct {
		strategy controlplanev1.RolloutStrategyType
		// hosts that are free; they are never taken away again.
		spare int
		// below is how many voters fewer than desired there may be.
		below int
	}
	for _, c := range []struct {
		replicas int32
		rollouts []one
	}{
		{1, []one{{surge, 1, 0}, {auto, 1, 0}}},
		{3, []one{{removeFirst, 0, 1}, {surge, 1, 0}, {auto, 1, 0}, {auto, 0, 1}}},
		{5, []one{{auto, 0, 1}, {surge, 1, 0}, {removeFirst, 1, 1}}},
	} {
		name := fmt.Sprintf("roll-%d", c.replicas)
		t.Run(name, func(t *testing.T) {
			if c.replicas != 3 {
				needsTime(t)
			}
			t.Parallel()
			court := newCourt(t, courtOptions{
				name: name, replicas: c.replicas, hosts: int(c.replicas) + c.rollouts[0].spare, domains: 3, strategy: c.rollouts[0].strategy, admission: true,
			})
			court.untilWhole("coming up")
			writer := court.write()
			for i, r := range c.rollouts {
				// The others take their time.
				if i == 2 && !long() && !nightly() {
					break
				}
				for len(court.hosts) < int(c.replicas)+r.spare {
					court.addHost()
				}
				court.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Rollout.Strategy = r.strategy })
				judge := court.watchMembers(int(c.replicas) - r.below)
				court.roll(fmt.Sprintf("%s with %d hosts to spare", r.strategy, r.spare))
				judge.end()
			}
			writer.end()
			court.judgeDepartures()
		})
	}
}

// All Machines of a control plane are deleted at once. Without admission nothing stops that; Cluster API then drains
// nobody. The cluster answers all the time, no key is lost, and three replacements later it is whole.
func TestAllMachinesAreDeletedAtOnce(t *testing.T) {
	t.Parallel()
	for _, admission := range []bool{false, true} {
		name := map[bool]string{false: "delete-all", true: "delete-all-admitted"}[admission]
		t.Run(name, func(t *testing.T) {
			if admission {
				needsTime(t)
			}
			t.Parallel()
			g := NewWithT(t)
			court := newCourt(t, courtOptions{name: name, replicas: 3, domains: 3, admission: admission})
			court.untilWhole("coming up")
			old := map[types.UID]bool{}
			for _, machine := range court.machines() {
				old[machine.UID] = true
			}
			judge, writer, prober := court.watchMembers(2), court.write(), court.probe()
			err := court.plane.Client.DeleteAllOf(t.Context(), &clusterv1.Machine{}, client.InNamespace(name))
			if admission {
				t.Logf("admission: %v", err)
				g.Expect(err).To(HaveOccurred())
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			deleted := 0
			for _, machine := range court.machines() {
				if !machine.DeletionTimestamp.IsZero() {
					deleted++
				}
			}
			if admission {
				g.Expect(deleted).To(BeNumerically("<=", 1))
			} else {
				g.Expect(deleted).To(Equal(3))
			}
			court.untilWhole(fmt.Sprintf("replacing %d Machines", deleted))
			kept := 0
			for _, machine := range court.machines() {
				if old[machine.UID] {
					kept++
				}
			}
			g.Expect(kept).To(Equal(3 - deleted))
			longest := prober.end()
			t.Logf("asked every 500 ms, the longest time without an answer was %s", longest.Round(10*time.Millisecond))
			writer.end()
			judge.end()
		})
	}
}
