// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

var ctx = context.Background()

func record(uid string, generation int64) owner.Record {
	return owner.Record{Namespace: "metal", Host: "host-1", Machine: "m-" + uid, UID: uid, Generation: generation}
}

func TestOnlyTheHolderMayChangeTheRecord(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: filepath.Join(t.TempDir(), "quoin")}

	none, err := store.Read(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(none).To(BeNil())

	g.Expect(store.Acquire(ctx, host, record("a", 2))).To(Succeed())
	g.Expect(store.Acquire(ctx, host, record("a", 2))).To(Succeed())
	var held *owner.HeldError
	g.Expect(errors.As(store.Acquire(ctx, host, record("b", 9)), &held)).To(BeTrue())
	g.Expect(held.Holder).To(Equal(record("a", 2)))
	g.Expect(errors.As(store.Release(ctx, host, record("b", 9)), &held)).To(BeTrue())

	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	var stale *owner.StaleError
	g.Expect(errors.As(store.Acquire(ctx, host, record("a", 2)), &stale)).To(BeTrue())
	g.Expect(errors.As(store.Release(ctx, host, record("a", 2)), &stale)).To(BeTrue())
	got, err := store.Read(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*got).To(Equal(record("a", 3)))

}

func TestAReleasedHostKeepsItsGeneration(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: t.TempDir()}
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	g.Expect(store.Release(ctx, host, record("a", 3))).To(Succeed())
	g.Expect(store.Release(ctx, host, record("a", 3))).To(Succeed(), "a release is repeated when its answer was lost")
	got, err := store.Read(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*got).To(Equal(owner.Record{Namespace: "metal", Host: "host-1", Generation: 3}))
	g.Expect(got.Released()).To(BeTrue())

	var stale *owner.StaleError
	for _, uid := range []string{"a", "b"} {
		g.Expect(errors.As(store.Acquire(ctx, host, record(uid, 2)), &stale)).To(BeTrue())
		g.Expect(errors.As(store.Release(ctx, host, record(uid, 2)), &stale)).To(BeTrue())
	}
	g.Expect(store.Acquire(ctx, host, record("b", 4))).To(Succeed())
	g.Expect(errors.As(store.Acquire(ctx, host, record("a", 3)), &stale)).
		To(BeTrue(), "the claim before is stale, not merely late")
	var held *owner.HeldError
	g.Expect(errors.As(store.Acquire(ctx, host, record("c", 4)), &held)).To(BeTrue(), "one generation has one owner")
}

func TestAHostThatNobodyHadRemembersItsRelease(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: t.TempDir()}
	g.Expect(store.Release(ctx, host, record("a", 2))).To(Succeed())
	var stale *owner.StaleError
	g.Expect(errors.As(store.Acquire(ctx, host, record("b", 1)), &stale)).To(BeTrue())
}

// Two planes that were restored from one backup raise the generation of its claim to the same number.
func TestOfTwoPlanesWithOneGenerationTheFirstHasTheHost(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: t.TempDir()}
	of := func(plane string, generation int64) owner.Record {
		r := record("a", generation)
		r.ManagementCluster = plane
		return r
	}
	g.Expect(store.Acquire(ctx, host, of("", 3))).To(Succeed())
	g.Expect(store.Acquire(ctx, host, of("first", 3))).To(Succeed(), "a record of before planes were told apart")
	g.Expect(store.Acquire(ctx, host, of("first", 3))).To(Succeed())
	var stale *owner.StaleError
	err := store.Acquire(ctx, host, of("second", 3))
	g.Expect(errors.As(err, &stale)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("generation 3 of its claim, ours is 3 as well")))
	g.Expect(errors.As(store.Release(ctx, host, of("second", 3)), &stale)).To(BeTrue())

	g.Expect(store.Release(ctx, host, of("first", 3))).To(Succeed())
	g.Expect(errors.As(store.Acquire(ctx, host, of("second", 3)), &stale)).
		To(BeTrue(), "what was released is not taken by a copy of the claim")
	g.Expect(store.Acquire(ctx, host, of("second", 4))).To(Succeed(), "a person raises it, or a claim does")
}

// Two management clusters made from one snapshot of etcd have equal objects; the host tells them apart by the last
// order.
func TestAHostKnowsTheLastOrderThatItWasGiven(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: t.TempDir()}
	of := func(heard, given string) owner.Record {
		r := record("a", 3)
		r.ManagementCluster, r.Heard, r.Order = "plane", heard, given
		return r
	}
	g.Expect(store.Acquire(ctx, host, of("", ""))).To(Succeed(), "a record of before orders were named")
	g.Expect(store.Acquire(ctx, host, of("", "1-a"))).To(Succeed())
	g.Expect(store.Acquire(ctx, host, of("", "1-a"))).To(Succeed(), "the same order, sent again")
	g.Expect(store.Acquire(ctx, host, of("1-a", "2-b"))).To(Succeed())
	for _, copied := range []owner.Record{of("", ""), of("", "1-a"), of("1-a", "2-c"), of("2-c", "3-d")} {
		err := store.Acquire(ctx, host, copied)
		var stale *owner.StaleError
		g.Expect(errors.As(err, &stale)).To(BeTrue(), "%+v", copied)
		g.Expect(stale.Order()).To(BeTrue())
		g.Expect(err).To(MatchError(ContainSubstring("order 2-b of generation 3")))
		_, err = store.Hold(ctx, host, copied)
		g.Expect(errors.As(err, &stale)).To(BeTrue(), "nor is it confirmed")
	}
	got, err := store.Read(ctx, host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Order).To(Equal("2-b"))
	g.Expect(got.Heard).To(BeEmpty(), "that is ours alone")

	raised := of("", "1-a")
	raised.Generation = 4
	g.Expect(store.Acquire(ctx, host, raised)).To(Succeed(), "a higher generation begins anew")
	g.Expect(store.Release(ctx, host, raised)).To(Succeed())
	behind := of("", "1-z")
	behind.Generation = 4
	var stale *owner.StaleError
	g.Expect(errors.As(store.Acquire(ctx, host, behind), &stale)).To(BeTrue(), "a released host remembers it, too")
}

func TestOneOfManyWins(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	store := owner.Store{Root: t.TempDir()}
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if store.Acquire(ctx, host, record(fmt.Sprint("u", i), 1)) == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	g.Expect(won.Load()).To(BeEquivalentTo(1))
}

func TestARecordNobodyCanReadStopsEverybody(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	store := owner.Store{Root: root}
	g.Expect(os.WriteFile(filepath.Join(root, "owner.json"), []byte("{"), 0o600)).To(Succeed())
	g.Expect(store.Acquire(ctx, &sshtest.Local{}, record("a", 1))).To(MatchError(ContainSubstring("owner.json")))
	g.Expect(store.Acquire(ctx, &sshtest.Local{}, owner.Record{UID: "x'y"})).To(MatchError(ContainSubstring("must match")))
}

// Objects that are older than the quarantine know nothing of it; the host does.
func TestAQuarantineOutlivesWhoeverTakesTheHost(t *testing.T) {
	g := NewWithT(t)
	host := &sshtest.Local{}
	why := owner.Quarantine{Reason: "NotClean", Message: `a mount "x\y"
is left`, Since: "2026-01-01T00:00:00Z"}
	kept := owner.Quarantine{Reason: "NotClean", Message: "a mount 'x/y' is left", Since: "2026-01-01T00:00:00Z"}
	read := func(store owner.Store) owner.Record {
		got, err := store.Read(ctx, host)
		g.Expect(err).NotTo(HaveOccurred())
		return *got
	}

	free := owner.Store{Root: t.TempDir()}
	g.Expect(free.Isolate(ctx, host, owner.Record{Namespace: "metal", Host: "host-1", Generation: 2}, why)).To(Succeed())
	g.Expect(free.Isolate(ctx, host, owner.Record{Namespace: "metal", Host: "host-1", Generation: 2}, why)).To(Succeed())
	g.Expect(read(free).Released()).To(BeTrue())
	g.Expect(free.Acquire(ctx, host, record("a", 3))).To(Succeed())
	g.Expect(read(free).Quarantine).To(Equal(kept))

	claimed := owner.Store{Root: t.TempDir()}
	g.Expect(claimed.Acquire(ctx, host, record("a", 3))).To(Succeed())
	g.Expect(claimed.Isolate(ctx, host, record("a", 3), why)).To(Succeed())
	g.Expect(read(claimed).UID).To(Equal("a"))
	var stale *owner.StaleError
	g.Expect(errors.As(claimed.Isolate(ctx, host, record("a", 2), why), &stale)).To(BeTrue())
	g.Expect(claimed.Acquire(ctx, host, record("a", 4))).To(Succeed(), "another management plane")
	g.Expect(read(claimed).Quarantine).To(Equal(kept))

	g.Expect(claimed.Release(ctx, host, record("a", 4))).To(Succeed())
	g.Expect(read(claimed).Quarantine).To(Equal(owner.Quarantine{}), "a verified reset ends it")
}

// write puts a record onto the host as another release of Quoin would.
func write(t *testing.T, store owner.Store, raw string) string {
	t.Helper()
	file := filepath.Join(store.Root, "owner.json")
	NewWithT(t).Expect(os.WriteFile(file, []byte(raw+"\n"), 0o600)).To(Succeed())
	return file
}

// A later release of Quoin that was at work before finds again what it wrote beside what this one knows.
func TestFieldsOfALaterReleaseStayUntilTheHostIsReleased(t *testing.T) {
	g := NewWithT(t)
	host, store := &sshtest.Local{}, owner.Store{Root: t.TempDir()}
	file := write(t, store, `{"epoch":{"of":"b","n":[1,2]},"namespace":"metal","host":"host-1","machine":"m-a","uid":"a",`+
		`"generation":3,"seal":"x<y"}`)
	expect := func(matches ...string) {
		t.Helper()
		raw, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range matches {
			g.Expect(string(raw)).To(ContainSubstring(match))
		}
		got, err := store.Read(ctx, host)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.UID).To(Equal("a"))
	}
	g.Expect(store.Acquire(ctx, host, record("a", 4))).To(Succeed())
	expect(`"generation":4`, `"epoch":{"of":"b","n":[1,2]}`, `"seal":"x`)
	g.Expect(store.Acquire(ctx, host, record("a", 4))).To(Succeed())
	g.Expect(store.Isolate(ctx, host, record("a", 4), owner.Quarantine{Reason: "NotClean"})).To(Succeed())
	expect(`"reason":"NotClean"`, `"epoch":{"of":"b","n":[1,2]}`, `"seal":"x`)
	g.Expect(store.Release(ctx, host, record("a", 4))).To(Succeed())
	raw, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(raw)).To(Equal(`{"namespace":"metal","host":"host-1","machine":"","uid":"","generation":4}` + "\n"))
}

// Whoever does not know the format does not know whom the host serves, whatever the fields that it knows say.
func TestARecordOfALaterFormatKeepsItsHostAsItIs(t *testing.T) {
	for name, raw := range map[string]string{
		"with the fields of this one": `{"format":2,"namespace":"metal","host":"host-1","machine":"m-a","uid":"a","generation":3}`,
		"with other fields":           `{"format":3,"claims":["a"],"generation":{"major":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, store := &sshtest.Local{}, owner.Store{Root: t.TempDir()}
			file := write(t, store, raw)
			_, reading := store.Read(ctx, host)
			_, guarding := store.Guard(ctx, host, record("a", 9))
			_, holding := store.Hold(ctx, host, record("a", 9))
			for verb, err := range map[string]error{"Read": reading, "Guard": guarding, "Hold": holding,
				"Acquire": store.Acquire(ctx, host, record("a", 9)), "Release": store.Release(ctx, host, record("a", 9)),
				"Isolate": store.Isolate(ctx, host, record("a", 9), owner.Quarantine{Reason: "NotClean"}),
			} {
				var unreadable *owner.UnreadableError
				g.Expect(errors.As(err, &unreadable)).To(BeTrue(), verb)
				g.Expect(err).To(MatchError(ContainSubstring("install that release again")), verb)
				g.Expect(err).NotTo(MatchError(ContainSubstring("remove that file")), verb)
			}
			kept, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(kept)).To(Equal(raw + "\n"))
		})
	}
}
