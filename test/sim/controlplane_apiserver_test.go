// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// judgeDepartures looks whether every API server had left when the etcd member beside it was removed.
func (c *court) judgeDepartures() {
	c.t.Helper()
	removed, hung := c.cluster.Departures()
	if len(removed) == 0 {
		c.t.Error("no etcd member has left, so nothing was seen")
	}
	if len(hung) > 0 {
		c.t.Errorf("the API servers of %v ran when their etcd members were removed, and would hang with all who are connected to them", hung)
	}
}

// A host cannot end its API server, because its kubelet stands still. That holds up nobody for ever: a while later its member goes
// all the same, and the rollout is like any other.
func TestAnAPIServerThatCannotLeaveHoldsNoRolloutUp(t *testing.T) {
	needsTime(t)
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "api-stays", replicas: 3, domains: 3, strategy: surge, admission: true})
	court.untilWhole("coming up")
	judge, writer := court.watchMembers(3), court.write()
	old := court.outdateOldest(1)
	var stopped string
	court.until("the drain of the first", func() string {
		for _, leaver := range court.machines() {
			_, held := leaver.Annotations[controlplanev1.PreDrainHookAnnotation]
			if leaver.DeletionTimestamp.IsZero() || held {
				continue
			}
			for _, host := range court.hosts {
				if host.Machine.Hostname() != leaver.Status.NodeRef.Name {
					continue
				}
				_, err := (&machine.Host{Machine: host.Machine}).Run(t.Context(), ssh.Command{Script: "systemctl stop kubelet.service", Sudo: true})
				g.Expect(err).NotTo(HaveOccurred())
				stopped = leaver.Status.NodeRef.Name
				return ""
			}
		}
		time.Sleep(10 * time.Millisecond)
		return "nobody leaves"
	})
	court.until("the rollout", func() string {
		if left := court.lacksReplacements(old); left != "" {
			return left
		}
		return court.lacks()
	})
	removed, hung := court.cluster.Departures()
	g.Expect(removed).To(ContainElement(stopped))
	g.Expect(hung).To(Equal([]string{stopped}), "the one that its kubelet did not end")
	g.Expect(slices.Index(removed, stopped)).To(Equal(0))
	writer.end()
	judge.end()
}
