// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

func TestWhoMayChangeThePowerOfASilentHost(t *testing.T) {
	silent, unasked := voice{asked: true}, voice{}
	confirms, denies := voice{confirmed: true}, voice{denied: true}
	for _, c := range []struct {
		why   string
		peers []voice
		word  bool
		want  verdict
	}{
		{"the Cluster has no other host", nil, false, needsWord},
		{"and a person says so", nil, true, proceed},
		{"one confirms", []voice{unasked, confirms}, false, proceed},
		{"nobody was asked yet", []voice{unasked, silent}, false, askPeers},
		{"a word does not save the question, which may bring up that another plane has the Cluster", []voice{unasked}, true,
			askPeers},
		{"all are silent", []voice{silent, silent}, false, needsWord},
		{"all are silent, and a person says so", []voice{silent, silent}, true, proceed},
		{"one serves another", []voice{denies, silent}, false, refuse},
		{"one that serves another is believed for all", []voice{confirms, denies}, false, refuse},
		{"a word does not make a stale plane the right one", []voice{denies}, true, refuse},
	} {
		t.Run(c.why, func(t *testing.T) { NewWithT(t).Expect(vouched(c.peers, c.word)).To(Equal(c.want)) })
	}
}

func TestAPlaneThatAnotherHostDeniesPowersNothingOff(t *testing.T) {
	for name, change := range map[string]func(*owner.Record){
		"a newer generation":            func(r *owner.Record) { r.Generation = 2 },
		"released by a newer one":       func(r *owner.Record) { r.Generation, r.Machine, r.UID = 2, "", "" },
		"of a plane made from one copy": func(r *owner.Record) { r.ManagementCluster = "another" },
		"another claim":                 func(r *owner.Record) { r.UID = "ffffffff" },
	} {
		t.Run(name, func(t *testing.T) {
			w := loneWorld(t, withBMC)
			w.addPeer("h2", change)
			deleteMachine(w)
			found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostContradictedReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("hosts/h2"), Not(ContainSubstring(infrav1.PowerOffAnnotation))))
			w.annotate(infrav1.PowerOffAnnotation, w.host().ProviderID())
			w.never("was let go", (*infrav1.QuoinHost).GivenUp, 30)
			w.g.Expect(w.bmc.told()).To(BeEmpty(), "not even at a person's word")
		})
	}
}

// What the host said when it was last looked at counts as well: it may be silent by now.
func TestAPlaneThatAnotherHostDeniedPowersNothingOff(t *testing.T) {
	w := silentWorld(t, withBMC)
	denied := w.addPeer("h3", nil)
	denied.Status.Conditions = []metav1.Condition{{Type: infrav1.HostAddonImagesCondition, Status: metav1.ConditionFalse,
		Reason: infrav1.HostStaleClaimReason, LastTransitionTime: metav1.Time{Time: w.now}}}
	w.g.Expect(w.client.Status().Update(context.Background(), denied)).To(Succeed())
	deleteMachine(w)
	w.untilReason(infrav1.HostFencedCondition, infrav1.HostContradictedReason)
	w.linger(30)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
}

func TestPowerThatNoOtherHostVouchesForNeedsAPersonsWord(t *testing.T) {
	for name, others := range map[string]func(*world){
		"the only host":    func(*world) {},
		"all are silent":   func(w *world) { w.addPeer("h2", nil); w.addPeer("h3", nil) },
		"it has not heard": func(w *world) { w.addPeer("h2", func(r *owner.Record) { r.Generation = 0 }) },
		"it is detached": func(w *world) {
			h := w.addPeer("h2", func(*owner.Record) {})
			h.Annotations = map[string]string{infrav1.DetachedAnnotation: ""}
			w.g.Expect(w.client.Update(context.Background(), h)).To(Succeed())
		},
		"it is of another Cluster": func(w *world) {
			h := w.addPeer("h2", func(*owner.Record) {})
			h.Spec.ConsumerRef.Machine = "of-another"
			w.g.Expect(w.client.Update(context.Background(), h)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := loneWorld(t, withBMC)
			others(w)
			deleteMachine(w)
			found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostUnconfirmedReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("Cluster team/c1"),
				ContainSubstring("kubectl -n hosts annotate quoinhost h1 "+
					infrav1.PowerOffAnnotation+"=quoin://hosts/h1/0123abcd")))
			w.linger(20)
			w.g.Expect(w.bmc.told()).To(BeEmpty())
			w.annotate(infrav1.PowerOffAnnotation, "quoin://hosts/h1/ffffffff")
			w.linger(20)
			w.g.Expect(w.bmc.told()).To(BeEmpty(), "the word is about another claim")

			w.annotate(infrav1.PowerOffAnnotation, "quoin://hosts/h1/0123abcd")
			host := w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
			w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off"}), "one word is for both")
			w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.PowerOffAnnotation), "and for no other silence")
		})
	}
}

func TestAWordForPowerEndsWhenTheHostAnswers(t *testing.T) {
	w := loneWorld(t, withBMC)
	w.annotate(infrav1.PowerOffAnnotation, "quoin://hosts/h1/0123abcd")
	w.room.set(func() { w.room.err = nil })
	w.until("back", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince == nil })
	w.linger(1)
	w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.PowerOffAnnotation))
}

// Whoever chose AfterTimeout waits for no proof, and so for no word either.
func TestAHostWhosePolicyAsksForNoProofIsLetGoWithoutItsPower(t *testing.T) {
	w := loneWorld(t, func(h *infrav1.QuoinHost) {
		withBMC(h)
		h.Spec.Unreachable.Release = infrav1.UnreachableReleaseAfterTimeout
	})
	deleteMachine(w)
	host := w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.g.Expect(host.Fenced()).To(BeFalse())
	w.g.Expect(w.bmc.told()).To(BeEmpty())
}

// What a host showed last counts, and not what it showed before.
func TestAHostThatShowsAnotherRecordVouchesNoMore(t *testing.T) {
	w := silentWorld(t, withBMC)
	look := &reconciliation{controller: w.r, host: w.host(), now: w.now}
	look.host.Spec.Order = &infrav1.HostOrder{Plan: "addons", Heard: "1-a", Given: "2-b"}
	record := look.ownerRecord()
	look.noteVoice(&record)
	w.g.Expect(look.pace().marked(confirmed)).To(BeTrue())
	record.Generation++
	look.noteVoice(&record)
	w.g.Expect(look.pace().marked(confirmed)).To(BeFalse())

	look.pace().unmark(heard("2-b"))
	record.Order = "1-a"
	look.noteHeard(&record)
	w.g.Expect(look.pace().marked(heard("2-b"))).To(BeFalse(), "the order before")
	record.Order = "2-b"
	look.noteHeard(&record)
	w.g.Expect(look.pace().marked(heard("2-b"))).To(BeTrue())
}

// The looks at the other hosts, which are made anyway, are not made twice; what they showed counts for a minute.
func TestWhatAnotherHostShowedCountsForAMinute(t *testing.T) {
	w := silentWorld(t, withBMC)
	peerKey := client.ObjectKey{Namespace: "hosts", Name: "beside"}
	look := func() {
		_, err := w.r.Reconcile(context.Background(), ctrl.Request{NamespacedName: peerKey})
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	for range 30 { // until the peer's own reconciles have shown its record
		look()
		time.Sleep(time.Millisecond)
		if w.r.pace.of(peerKey, w.now).marked(confirmed) {
			break
		}
	}
	w.g.Expect(w.r.pace.of(peerKey, w.now).marked(confirmed)).To(BeTrue())
	peers, err := w.peers()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(peers).To(HaveLen(1))
	w.g.Expect(peers[0].confirmed).To(BeTrue())
	w.now = w.now.Add(DefaultTimings().Vouch + time.Second)
	peers, err = w.peers()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(peers[0].confirmed).To(BeFalse())
	deleteMachine(w)
	asked := w.room.count("probe beside")
	w.until("cycled", func(*infrav1.QuoinHost) bool { return len(w.bmc.told()) == 1 })
	w.g.Expect(w.room.count("probe beside")).To(Equal(asked+1), "it is asked when its last word is too old")
}

func (w *world) peers() ([]voice, error) {
	host := w.host()
	c, err := w.r.observe(context.Background(), host)
	w.g.Expect(err).NotTo(HaveOccurred())
	return (&reconciliation{controller: w.r, host: host, claim: c, now: w.now}).peers(context.Background())
}
