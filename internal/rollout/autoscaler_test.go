// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// scaler is a model of the cluster autoscaler with its provider for Cluster API, for one pool. A Machine without a
// provider ID is an instance that never registered (removeOldUnregisteredNodes in core/static_autoscaler.go): after
// longest it marks it with cluster.x-k8s.io/delete-machine and lowers replicas by one, not below least (DeleteNodes in
// cloudprovider/clusterapi/clusterapi_nodegroup.go). It takes no Node away from a pool in the middle of a rollout.
type scaler struct {
	least   int
	longest time.Duration
}

func (s *scaler) looks(d *deployment, now time.Time) {
	for _, n := range d.machines {
		if n.joined || !n.deleted.IsZero() || n.mark != "" || now.Sub(n.created) < s.longest || d.replicas <= s.least {
			continue
		}
		n.mark = byThem
		d.replicas--
	}
}

// held is a pool of 3 in the middle of a rollout, whose next Machine is held for so long.
func held(t *testing.T, s *scaler, lasts time.Duration) (f *fleet, d *deployment, least int) {
	t.Helper()
	f = newFleet()
	d = &deployment{name: "blue", replicas: 3, surge: 1, template: 1}
	d.whole(f.now)
	f.pools = append(f.pools, d)
	f.edit("blue")
	f.policy.PauseAfter = quoinv1.RolloutPauseNone
	f.unhealthy = "etcd has no leader" // which holds whatever is new
	least = d.replicas
	for range int(lasts / tick) {
		f.beside(s, d)
		have := 0
		for _, n := range d.machines {
			if n.available() {
				have++
			}
		}
		least = min(least, have)
	}
	return f, d, least
}

// Proves: S2-9
//
// A Node that the autoscaler finds unneeded leaves, and that one alone: a policy holds up nobody's scale-down.
func TestTheAutoscalerTakesAnIdleNode(t *testing.T) {
	g := NewWithT(t)
	f := newFleet()
	d := &deployment{name: "blue", replicas: 3, surge: 1, template: 1}
	d.whole(f.now)
	f.pools = append(f.pools, d)
	f.policy.Windows = []quoinv1.RolloutWindow{windowOf("20:00", 60, "")} // none is open
	d.node("blue-2").mark = byThem
	d.replicas--
	for range 10 {
		f.beside(&scaler{least: 1, longest: time.Minute}, d)
	}
	g.Expect(f.draw()).To(Equal("blue ++"))
	g.Expect(d.node("blue-2")).To(BeNil())
	g.Expect(f.settled()).To(BeTrue())
	g.Expect(f.result.Progress).To(HaveExactElements(HaveField("Reason", UpToDate)))
}

// For the autoscaler a Machine that is held is an instance that never comes. By its default it gives it up after a
// quarter of an hour and lowers replicas, so one that serves is gone in exchange for it, and no more than that. With a
// time longer than any hold nothing is touched.
func TestTheAutoscalerNeedsToKnowHowLongMachinesAreHeld(t *testing.T) {
	g := NewWithT(t)
	stock := &scaler{least: 1, longest: 15 * time.Minute}
	_, d, least := held(t, stock, 2*time.Hour)
	g.Expect(d.replicas).To(Equal(2), "it takes the Machine that is held for one that failed, once")
	g.Expect(least).To(Equal(2), "never fewer than are left to be")

	waits := &scaler{least: 1, longest: 24 * time.Hour}
	f, d, least := held(t, waits, 2*time.Hour)
	g.Expect(d.replicas).To(Equal(3))
	g.Expect(least).To(Equal(3))
	f.unhealthy = ""
	for range 200 {
		f.beside(waits, d)
	}
	g.Expect(f.settled()).To(BeTrue(), f.draw())
	g.Expect(d.replicas).To(Equal(3))
}

// beside has everybody look once, the autoscaler included.
func (f *fleet) beside(s *scaler, d *deployment) {
	f.decide()
	s.looks(d, f.now)
	f.moves()
	f.now = f.now.Add(tick)
}
