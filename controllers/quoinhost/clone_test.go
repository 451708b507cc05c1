// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// cloneOf is another management cluster made from a snapshot of this one's etcd: everything is equal, UIDs and status
// too.
func cloneOf(w *world) *world {
	w.t.Helper()
	host := w.host()
	host.ResourceVersion = ""
	cluster, quoinCluster, machine, quoinMachine, secret := consumer(false)
	other := newWorld(w.t, host, cluster, quoinCluster, machine, quoinMachine, secret)
	other.now, other.room = w.now, w.room
	other.restart()
	return other
}

// hasAddons waits until the host has taken an order for the version.
func hasAddons(w *world, version string) {
	w.t.Helper()
	wantAddons(w, version)
	w.until("with add-ons", func(h *infrav1.QuoinHost) bool {
		return len(h.Status.AddonVersions) > 0 && h.Status.AddonVersions[len(h.Status.AddonVersions)-1] == version
	})
}

// expectRefusal lets the management cluster work towards an end for a long time, in which nothing changes on the host.
func expectRefusal(w *world, what string) {
	w.t.Helper()
	before, record := w.changes(), *w.room.record
	w.now = w.now.Add(time.Hour)
	deleteMachine(w)
	w.linger(40)
	w.g.Expect(w.changes()).To(Equal(before), what)
	w.g.Expect(*w.room.record).To(Equal(record), what)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal(infrav1.HostStaleClaimReason), "%s: %s", what, describe(w.host()))
	w.g.Expect(ready.Message).To(And(ContainSubstring("was given order "+record.Order), ContainSubstring("is a copy"),
		ContainSubstring("shut it down"),
		ContainSubstring("annotate quoinhosts --all "+infrav1.RaiseGenerationAnnotation+"=")), what)
}

func TestAManagementClusterFromAnEarlierSnapshotOnlyReads(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(2)
	clone, atWork := cloneOf(w), cloneOf(w)
	hasAddons(w, "v1.36.0")
	expectRefusal(clone, "a reset")
	wantAddons(atWork, "v1.36.1")
	atWork.linger(20)
	wantAddons(atWork, "v1.36.2")
	expectRefusal(atWork, "a reset after other plans that were refused")

	// The one that the host obeys goes on, restarted or not.
	w.restart()
	hasAddons(w, "v1.36.3")
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	clone.restart()
	expectRefusal(clone, "a host that was released meanwhile")
}

func TestOfTwoManagementClustersWithTheSameObjectsTheFirstToGiveAnOrderHasTheHost(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(2)
	clone := cloneOf(w)
	hasAddons(clone, "v1.36.0")
	expectRefusal(w, "the original is the one that the host does not know")
}

// The management cluster was restored from a backup, and the one from before is gone.
func TestARestoredManagementClusterHasItsHostsBackAtAPersonsWord(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(2)
	restored := cloneOf(w)
	hasAddons(w, "v1.36.0")
	restored.now = w.now.Add(time.Hour)
	restored.untilReason(infrav1.HostReadyCondition, infrav1.HostStaleClaimReason)
	restored.annotate(infrav1.RaiseGenerationAnnotation, "")
	restored.until("told", func(*infrav1.QuoinHost) bool { return restored.room.record.Generation == 2 })
	restored.untilReason(infrav1.HostReadyCondition, infrav1.HostProvisionedReason)
	deleteMachine(restored)
	restored.until("clean", (*infrav1.QuoinHost).Released)
}

// A backup that is as new as the last order needs no word.
func TestARestoredManagementClusterThatMissedNothingGoesOn(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.linger(2)
	restored := cloneOf(w)
	deleteMachine(restored)
	restored.until("clean", (*infrav1.QuoinHost).Released)
}

// Wherever a manager dies, it finds what the host may have heard.
func TestAManagerThatDiesAtAnyPointIsNotTakenForACopy(t *testing.T) {
	for every := 1; every <= 3; every++ {
		w := claimedWorld(t, false)
		work := func(what string, done func(*infrav1.QuoinHost) bool) {
			t.Helper()
			for n := 0; !done(w.host()); n++ {
				if n > 400 {
					t.Fatalf("never %s: %s", what, describe(w.host()))
				}
				result := w.reconcile()
				w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
				if ready := condition1(w.host(), infrav1.HostReadyCondition); ready != nil {
					w.g.Expect(ready.Reason).NotTo(Equal(infrav1.HostStaleClaimReason), ready.Message)
				}
				// One that never lives through a call gets nowhere.
				if n%every == 0 && result.RequeueAfter > 0 {
					w.restart()
				}
			}
		}
		work("a node", func(h *infrav1.QuoinHost) bool { return h.Status.State == infrav1.HostStateProvisioned })
		wantAddons(w, "v1.36.0")
		work("with add-ons", func(h *infrav1.QuoinHost) bool { return len(h.Status.AddonVersions) == 2 })
		deleteMachine(w)
		work("clean", (*infrav1.QuoinHost).Released)
		finish(w, &infrav1.QuoinMachine{}, "qm1")
		finish(w, &clusterv1.Machine{}, "m1")
		work("free", func(h *infrav1.QuoinHost) bool { return h.Status.State == infrav1.HostStateAvailable })
	}
}

func TestTheNextOrder(t *testing.T) {
	for _, c := range []struct {
		why    string
		before *infrav1.HostOrder
		known  bool
		want   infrav1.HostOrder
	}{
		{"the first", nil, false, infrav1.HostOrder{Given: "1-t", Plan: "p"}},
		{"one that was not heard yet is given again", &infrav1.HostOrder{Heard: "3-a", Given: "4-b", Plan: "o"}, false,
			infrav1.HostOrder{Heard: "3-a", Given: "4-b", Plan: "p"}},
		{"the one after", &infrav1.HostOrder{Heard: "3-a", Given: "4-b", Plan: "o"}, true,
			infrav1.HostOrder{Heard: "4-b", Given: "5-t", Plan: "p"}},
	} {
		t.Run(c.why, func(t *testing.T) { NewWithT(t).Expect(*nextOrder(c.before, "p", c.known, "t")).To(Equal(c.want)) })
	}
}
