// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/backuptest"
)

func signing(g *WithT, lines ...string) SigningKeys {
	keys, err := ParseSigningKeys([]byte(strings.Join(lines, "\n")))
	g.Expect(err).NotTo(HaveOccurred())
	return keys
}

// Who has the store's credentials writes what he likes, and nobody believes it.
func TestASidecarThatNoKeySignedIsNotBelieved(t *testing.T) {
	g := NewWithT(t)
	store := newVolume(t)
	first, second := strings.Repeat("1", 64), strings.Repeat("2", 64)
	raw := backuptest.Signed(backuptest.Database(t, 10))
	take := func(hours int, keys SigningKeys) Metadata {
		taken := job(t, store, raw)
		taken.Began, taken.Signing = noon.Add(time.Duration(hours)*time.Hour), keys
		metadata, err := Take(t.Context(), taken)
		g.Expect(err).NotTo(HaveOccurred())
		return metadata
	}
	good := func(keys SigningKeys) []Metadata {
		found, err := Good(t.Context(), store, directory, authority, keys)
		g.Expect(err).NotTo(HaveOccurred())
		return found
	}
	unsigned, old, recent := take(1, nil), take(2, signing(g, first)), take(3, signing(g, second, first))
	g.Expect(good(nil)).To(Equal([]Metadata{recent, old, unsigned}))
	g.Expect(good(signing(g, second, first))).To(Equal([]Metadata{recent, old}), "while the key is changed both hold")
	g.Expect(good(signing(g, "# only the new one", second, ""))).To(Equal([]Metadata{recent}))
	g.Expect(good(signing(g, strings.Repeat("3", 64)))).To(BeEmpty())

	// What is not believed pushes nothing out, and is left alone.
	kept, err := Prune(t.Context(), store, directory, old, Retention{Last: 1}, signing(g, first), noon.Add(4*time.Hour))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(kept).To(Equal([]Metadata{old}))
	g.Expect(good(nil)).To(HaveLen(3))

	// Nothing of a signed sidecar can be changed, its name and its time least of all: that is how an old one is replayed.
	for _, change := range []func(*Metadata){
		func(m *Metadata) { m.Revision++ },
		func(m *Metadata) { m.SHA256, m.SnapshotSHA256 = m.Authority, m.Authority },
		func(m *Metadata) { m.Authority = strings.Repeat("cd", 32) },
		func(m *Metadata) { m.Time = m.Time.Add(time.Hour); m.Name = newName(m.Time, false) },
		func(m *Metadata) { m.Signature = "" },
		func(m *Metadata) { m.Signature = "zz" },
	} {
		forged := recent
		change(&forged)
		g.Expect(signing(g, second).believe(forged)).To(BeFalse(), "%+v", forged)
	}
	g.Expect(signing(g, second).believe(recent)).To(BeTrue())
}

// What was signed years ago is still believed: the bytes that the signature covers never change.
func TestASignatureCoversTheSameBytesForEver(t *testing.T) {
	g := NewWithT(t)
	key := strings.Repeat("1", 64)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("quoin snapshot\n" + `{"format":1,"name":"n","authority":"a","time":"2026-11-30T08:00:00Z","node":"c1",` +
		`"etcdVersion":"3.6.8","revision":7,"entries":5,"size":3,"snapshotSHA256":"b","storedSize":4,"sha256":"d",` +
		`"recipients":["age1"]}` + "\n"))
	metadata := Metadata{Format: 1, Name: "n", Authority: "a", Node: "c1", EtcdVersion: "3.6.8", Revision: 7, Entries: 5,
		Size: 3, SnapshotSHA256: "b", StoredSize: 4, SHA256: "d", Recipients: []string{"age1"},
		Time: time.Date(2026, 11, 30, 10, 0, 0, 0, time.FixedZone("there", 7200)), Signature: "of before"}
	g.Expect(signing(g, key).sign(metadata).Signature).To(Equal(hex.EncodeToString(mac.Sum(nil))))
	g.Expect(SigningKeys(nil).sign(metadata).Signature).To(BeEmpty(), "none is kept that nobody made")
}

func TestParseSigningKeys(t *testing.T) {
	for raw, says := range map[string]string{
		"":                       "holds no key",
		"# nothing\n\n":          "holds no key",
		"\nhunter2-is-too-short": "line 2 has less than 32 characters",
	} {
		_, err := ParseSigningKeys([]byte(raw))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(says)))
		NewWithT(t).Expect(err).NotTo(MatchError(ContainSubstring("hunter2")))
	}
}
