// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
)

// identities are the UIDs of the Machines and the IDs of the etcd members.
func (c *court) identities() (machines []types.UID, members []uint64) {
	c.t.Helper()
	for _, machine := range c.machines() {
		machines = append(machines, machine.UID)
	}
	slices.Sort(machines)
	c.until("reading the members", func() string {
		read, err := c.members(c.t.Context())
		if err != nil {
			return err.Error()
		}
		for _, member := range read {
			members = append(members, member.ID)
		}
		return ""
	})
	slices.Sort(members)
	return machines, members
}

// All hosts of a control plane lose their power, and get it back one after another. Although a MachineHealthCheck asks for
// Machines that are away, the control plane that comes back is the one that went.
func TestAColdStartEndsWithTheSameControlPlane(t *testing.T) {
	needsTime(t)
	for _, replicas := range []int32{1, 3} {
		name := fmt.Sprintf("cold-%d", replicas)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			court := newCourt(t, courtOptions{name: name, replicas: replicas, domains: 3, admission: true})
			court.untilWhole("coming up")
			court.healthCheck()
			judge, writer := court.watchMembers(int(replicas)), court.write()
			machines, members := court.identities()
			judge.lose(int(replicas))
			for _, host := range court.hosts {
				host.PowerOff()
			}
			court.until("noticing that nothing answers", func() string {
				if object := court.object(); conditions.IsTrue(object, controlplanev1.ControlPlaneAvailableCondition) {
					return "it is said to be available"
				}
				return ""
			})
			// Long enough for whoever wants to mend what is not broken.
			time.Sleep(10 * time.Second)
			for _, host := range court.hosts {
				host.PowerOn()
				time.Sleep(500 * time.Millisecond)
			}
			court.untilWhole("coming back")
			judge.lose(-int(replicas))
			nowMachines, nowMembers := court.identities()
			g.Expect(nowMachines).To(Equal(machines))
			g.Expect(nowMembers).To(Equal(members))
			writer.end()
			judge.end()
		})
	}
}

// A failure domain that has two of five members is lost for good. What a MachineHealthCheck says of both is not followed,
// because they went together; what a person says is: then each is replaced in the domains that are left.
func TestAFailureDomainIsLostForGood(t *testing.T) {
	needsTime(t)
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "domain", replicas: 5, hosts: 6, domains: 3, admission: true})
	court.untilWhole("coming up")
	court.healthCheck()
	lost := map[types.UID]clusterv1.Machine{}
	var rack []*sim.Host
	for _, domain := range []string{"rack-1", "rack-2", "rack-3"} {
		clear(lost)
		rack = nil
		for _, host := range court.hosts {
			if court.domains[host] != domain {
				continue
			}
			rack = append(rack, host)
			if machine, _ := court.machineOn(host); machine != nil {
				lost[machine.UID] = *machine
			}
		}
		if len(lost) == 2 {
			break
		}
	}
	g.Expect(lost).To(HaveLen(2))
	judge, writer := court.watchMembers(5), court.write()
	before, _ := court.identities()
	judge.burn(2)
	for _, host := range rack {
		host.PowerOff()
		court.burnt[host] = true
	}
	court.until("suspending remediation", func() string {
		if reason := conditions.GetReason(court.object(), controlplanev1.ControlPlaneRemediatingCondition); reason != controlplanev1.RemediationSuspendedReason {
			return "Remediating has the reason " + reason
		}
		return ""
	})
	now, _ := court.identities()
	g.Expect(now).To(Equal(before), "nothing is replaced by itself")

	for _, domain := range []string{"rack-1", "rack-2", "rack-3"} {
		if domain != court.domains[rack[0]] {
			court.addHostTo(domain)
		}
	}
	for _, machine := range lost {
		court.annotate(&machine, clusterv1.RemediateMachineAnnotation)
	}
	court.until("replacing what a person says is gone", func() string {
		for _, host := range rack {
			// A host that does not answer is not released before somebody says that it is gone.
			if machine, object := court.machineOn(host); machine != nil && !machine.DeletionTimestamp.IsZero() && object.Status.State != infrav1.HostStateQuarantined {
				court.giveUp(object)
			}
		}
		for _, machine := range court.machines() {
			if _, is := lost[machine.UID]; is {
				return machine.Name + " is still there"
			}
		}
		return court.lacks()
	})
	now, _ = court.identities()
	kept := 0
	for _, uid := range now {
		if slices.Contains(before, uid) {
			kept++
		}
	}
	g.Expect(kept).To(Equal(3), "whoever was well stays")
	writer.end()
	judge.end()
}
