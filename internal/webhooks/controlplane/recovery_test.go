// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func recovered(giveUp ...string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "cp-0", GiveUp: giveUp}
	}
}

func survivor(name string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: name, GiveUp: []string{"cp-1"}}
	}
}

func asked(id string) change {
	return func(c *controlplanev1.QuoinControlPlane) { c.Spec.Recovery.ID = id }
}

// begun is the record of r1, of cp-0, which gives two others up.
const begun = `{"id":"r1","state":"Begun","machine":"cp-0","giveUp":["cp-1","cp-2"]}`

func fromSnapshot(c *controlplanev1.QuoinControlPlane) {
	c.Spec.Recovery.Snapshot = &controlplanev1.RecoverySnapshot{Name: "20261121T120000Z-5f3a2c91b044.db"}
}

// byDigest is a recovery from that snapshot, with the digest that somebody took note of.
func byDigest(digest string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		recovered("cp-1")(c)
		fromSnapshot(c)
		c.Spec.Recovery.Snapshot.SHA256 = digest
	}
}

// begunWith is the record of r1 with that snapshot, as the data on the host are described.
func begunWith(data string) change {
	return recorded(`{"id":"r1","state":"Begun","machine":"cp-0","giveUp":["cp-1"],` +
		`"snapshot":"20261121T120000Z-5f3a2c91b044.db","data":` + data + `}`)
}

// delivered are data of the snapshot whose digest is aa.
const delivered = `{"snapshot":"20261121T120000Z-5f3a2c91b044.db","sha256":"0f","snapshotSHA256":"aa","size":512}`

func storing(c *controlplanev1.QuoinControlPlane) {
	c.Spec.Backup = &controlplanev1.EtcdBackup{
		Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "site"}}}
}

func recorded(record string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: record}
	}
}

func read(agreed bool, age time.Duration) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Status.Etcd = &controlplanev1.EtcdStatus{Agreed: &agreed, Voters: ptr.To[int32](3),
			ObservedTime: metav1.NewTime(time.Now().Add(-age))}
	}
}

// A quorum that was read is believed in for three minutes.
func TestWhenAQuorumIsNoLongerBelievedIn(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	after := controlPlane(recovered("cp-1"), read(true, 0))
	after.Status.Etcd.Voters = nil
	for age, refused := range map[time.Duration]string{
		3*time.Minute - time.Second: "etcd had a quorum of 0 voters at 2026-03-01T11:57:01Z", 3 * time.Minute: "",
	} {
		after.Status.Etcd.ObservedTime = metav1.NewTime(now.Add(-age))
		expectRefusal(t, validateRecovery(field.NewPath("spec", "recovery"), controlPlane(), after, now).ToAggregate(),
			refused)
	}
}

func TestARecoveryIsAdmittedOnlyWithoutAQuorum(t *testing.T) {
	for name, test := range map[string]struct {
		before, after []change
		want          string
	}{
		"the quorum is lost":                          {nil, []change{recovered("cp-1", "cp-2"), read(false, 0)}, ""},
		"etcd was never read":                         {nil, []change{recovered("cp-1", "cp-2")}, ""},
		"etcd has not answered for long":              {nil, []change{recovered("cp-1", "cp-2"), read(true, time.Hour)}, ""},
		"etcd answered before the clock was set back": {nil, []change{recovered("cp-1", "cp-2"), read(true, -time.Hour)}, ""},
		"etcd has a quorum": {nil, []change{recovered("cp-1", "cp-2"), read(true, time.Second)},
			"throws data away"},
		"another edit while it has a quorum": {[]change{recovered("cp-1")}, []change{recovered("cp-1"), version("v1.35.5"),
			read(true, 0)}, ""},
		"it is taken away":         {[]change{recovered("cp-1")}, []change{read(true, 0)}, ""},
		"the survivor is given up": {nil, []change{recovered("cp-0", "cp-1"), read(false, 0)}, "name the others"},
		"etcd answered a minute ago, and a snapshot would not make it better": {[]change{storing},
			[]change{storing, recovered("cp-1"), fromSnapshot, read(true, time.Minute)},
			"after that reading"},
		"from a snapshot": {[]change{storing}, []change{storing, recovered("cp-1"), fromSnapshot}, ""},
		"from a snapshot of no store": {nil, []change{recovered("cp-1"), fromSnapshot},
			"set spec.backup.store to where the snapshot is"},
		"the snapshot is fetched still": {[]change{storing, recovered("cp-1"), recorded(`{"id":"r1","state":"Fetching"}`)},
			[]change{storing, recovered("cp-1"), fromSnapshot}, ""},
		"another snapshot after the members were stopped": {[]change{storing, recovered("cp-1"),
			recorded(`{"id":"r1","state":"Begun"}`)},
			[]change{storing, recovered("cp-1"), fromSnapshot}, "ask under another id"},
		"another digest after the members were stopped": {[]change{storing, byDigest("aa"), begunWith(delivered)},
			[]change{storing, byDigest("bb")}, "ask under another id"},
		"another digest than that of what was delivered, when none was named": {
			[]change{storing, byDigest(""), begunWith(delivered)}, []change{storing, byDigest("bb")}, "ask under another id"},
		"the digest of what was delivered, when none was named": {
			[]change{storing, byDigest(""), begunWith(delivered)}, []change{storing, byDigest("aa")}, ""},
		"no digest any more, once what had it was delivered": {
			[]change{storing, byDigest("aa"), begunWith(delivered)}, []change{storing, byDigest("")}, ""},
		"another digest was let through, and the right one is put back": {
			[]change{storing, byDigest("bb"), begunWith(delivered)}, []change{storing, byDigest("aa")}, ""},
		"it was taken away once it began, and another digest is put back": {[]change{storing, begunWith(delivered)},
			[]change{storing, byDigest("bb")}, "ask under another id"},
		"a digest that an older release has not recorded": {
			[]change{storing, byDigest("aa"), begunWith(`{"snapshot":"s","sha256":"0f","size":512}`)},
			[]change{storing, byDigest("bb")}, ""},
		"a digest while the snapshot is fetched": {[]change{storing, byDigest("aa"),
			recorded(`{"id":"r1","state":"Fetching"}`)}, []change{storing, byDigest("bb")}, ""},
		"another one is given up after the members were stopped": {[]change{recovered("cp-1"),
			recorded(`{"id":"r1","state":"Begun"}`)}, []change{recovered("cp-1", "cp-2"), read(false, 0)},
			"ask under another id"},
		"another one survives after it began": {[]change{recovered("cp-1"), recorded(`{"id":"r1","state":"Complete"}`)},
			[]change{survivor("cp-2"), read(false, 0)}, "ask under another id"},
		"it is asked for again once it was over": {[]change{recorded(`{"id":"r1","state":"Complete"}`)},
			[]change{recovered("cp-1"), read(false, 0)}, "recovery r1 is over"},
		"it is asked for again once it was void": {[]change{recorded(`{"id":"r1","state":"Void"}`)},
			[]change{recovered("cp-1"), read(false, 0)}, "recovery r1 is over"},
		"it is asked for again while the next one is there, once it was over": {
			[]change{survivor("cp-2"), asked("r2"), recorded(`{"id":"r1","state":"Complete"}`)},
			[]change{recovered("cp-1"), read(false, 0)}, "recovery r1 is over"},
		"another one survives before anything was done": {[]change{recovered("cp-1")}, []change{survivor("cp-2")}, ""},
		"it is asked for anew under another id": {[]change{recovered("cp-1"), recorded(`{"id":"r1","state":"Begun"}`)},
			[]change{survivor("cp-2"), asked("r2")}, ""},
		"it was taken away once it began, and another one survives": {
			[]change{recorded(`{"id":"r1","state":"Begun","machine":"cp-0","giveUp":["cp-1"]}`)},
			[]change{survivor("cp-2"), read(false, 0)}, "ask under another id"},
		"it was taken away once it began, and others are given up": {[]change{recorded(begun)},
			[]change{recovered("cp-1"), read(false, 0)}, "ask under another id"},
		"it was taken away once it began, and is put back": {[]change{recorded(begun)},
			[]change{recovered("cp-2", "cp-1"), read(false, 0)}, ""},
		"it was taken away once it began, before its record said with what": {
			[]change{recorded(`{"id":"r1","state":"Begun"}`)}, []change{recovered("cp-1"), read(false, 0)},
			"ask under another id"},
		"it was edited all the same, and is put back": {[]change{survivor("cp-2"), recorded(begun)},
			[]change{recovered("cp-1", "cp-2"), read(false, 0)}, ""},
		"it was taken away once it began, and is put back with a snapshot": {[]change{storing, recorded(begun)},
			[]change{storing, recovered("cp-2", "cp-1"), fromSnapshot}, "ask under another id"},
		"another one was asked for meanwhile, which has not begun": {
			[]change{survivor("cp-2"), asked("r2"), recorded(begun)}, []change{survivor("cp-2"), read(false, 0)},
			"ask under another id"},
		"it is put back after another one was asked for, which has not begun": {
			[]change{survivor("cp-2"), asked("r2"), recorded(begun)}, []change{recovered("cp-1", "cp-2"), read(false, 0)}, ""},
		"it is put back after another one has begun": {[]change{survivor("cp-2"), asked("r2"),
			recorded(`{"id":"r2","state":"Begun","machine":"cp-2","giveUp":["cp-1"],"earlier":["r1"]}`)},
			[]change{recovered("cp-1"), read(false, 0)}, "came before another one"},
		"the last one is put back after an earlier one was asked for": {[]change{recovered("cp-1"),
			recorded(`{"id":"r2","state":"Begun","machine":"cp-2","giveUp":["cp-1"],"earlier":["r1"]}`)},
			[]change{survivor("cp-2"), asked("r2"), read(false, 0)}, ""},
		"etcd is external": {[]change{externalEtcd}, []change{externalEtcd, recovered("cp-1")}, "where it runs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(test.before...),
				controlPlane(test.after...))
			if test.want == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
}
