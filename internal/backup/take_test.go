// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	bolt "go.etcd.io/bbolt"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/backuptest"
)

const directory = "ns/cp"

var (
	authority = strings.Repeat("ab", 32)
	noon      = time.Date(2026, 11, 21, 12, 0, 0, 987654321, time.UTC)
)

func source(raw []byte) func(context.Context) (Stream, error) {
	return func(context.Context) (Stream, error) {
		return Stream{ReadCloser: io.NopCloser(bytes.NewReader(raw)), Size: int64(len(raw)), Revision: 1, Node: "node-1",
			Version: "3.6.14"}, nil
	}
}

func job(t *testing.T, store Store, raw []byte) Job {
	return Job{Store: store, Directory: directory, Authority: authority, Source: source(raw), Spool: t.TempDir(),
		Began: noon}
}

func TestTake(t *testing.T) {
	inStores(t, func(t *testing.T, store Store) {
		g := NewWithT(t)
		raw := backuptest.Signed(backuptest.Database(t, 1000))
		taken := job(t, store, raw)
		metadata, err := Take(t.Context(), taken)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(metadata.Name).To(MatchRegexp(`^20261121T120000Z-[0-9a-f]{12}\.db$`))
		// Never later than it was begun.
		g.Expect(metadata.Time).To(Equal(noon.Truncate(time.Second)))
		g.Expect(metadata.Revision).To(BeEquivalentTo(1001))
		g.Expect(metadata.Entries).To(BeEquivalentTo(1000))
		g.Expect(metadata.Size).To(BeEquivalentTo(len(raw)))
		g.Expect(metadata.StoredSize).To(Equal(metadata.Size))
		g.Expect(metadata.Node).To(Equal("node-1"))
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(ConsistOf(metadata))
		g.Expect(names(t, store, directory)).To(ConsistOf(metadata.Name, metadata.Name+".json"))
		g.Expect(bytes.Equal(content(t, store, directory+"/"+metadata.Name), raw)).To(BeTrue())
		g.Expect(os.ReadDir(taken.Spool)).To(BeEmpty())
		// Of another cluster that had the same name.
		g.Expect(Good(t.Context(), store, directory, strings.Repeat("cd", 32), nil)).To(BeEmpty())
	})
}

func TestTakeEncrypts(t *testing.T) {
	inStores(t, func(t *testing.T, store Store) {
		g := NewWithT(t)
		mine, err := age.GenerateX25519Identity()
		g.Expect(err).NotTo(HaveOccurred())
		other, err := age.GenerateX25519Identity()
		g.Expect(err).NotTo(HaveOccurred())
		raw := backuptest.Signed(backuptest.Database(t, 1000))
		taken := job(t, store, raw)
		taken.Recipients, err = ParseRecipients([]byte("# ours\n" + mine.Recipient().String() + "\n"))
		g.Expect(err).NotTo(HaveOccurred())
		metadata, err := Take(t.Context(), taken)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(metadata.Encrypted()).To(BeTrue())
		g.Expect(metadata.Recipients).To(ConsistOf(mine.Recipient().String()))
		g.Expect(metadata.StoredSize).To(BeNumerically(">", metadata.Size))
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(ConsistOf(metadata))
		stored := content(t, store, directory+"/"+metadata.Name)
		g.Expect(bytes.HasPrefix(stored, []byte("age-encryption.org/v1\n"))).To(BeTrue())
		g.Expect(bytes.Contains(stored, bytes.Repeat([]byte{7}, 64))).To(BeFalse())

		fetch := func(identities ...age.Identity) (*os.File, error) {
			file, err := os.Create(filepath.Join(t.TempDir(), "fetched"))
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(func() { _ = file.Close() })
			return file, Fetch(t.Context(), store, directory, metadata, file, identities...)
		}
		_, err = fetch()
		g.Expect(err).To(MatchError(ErrIdentity))
		_, err = fetch(other)
		g.Expect(err).To(HaveOccurred())
		file, err := fetch(other, mine)
		g.Expect(err).NotTo(HaveOccurred())
		fetched, err := os.ReadFile(file.Name())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bytes.Equal(fetched, raw)).To(BeTrue())
	})
}

func TestParseRecipients(t *testing.T) {
	g := NewWithT(t)
	identity, err := age.GenerateX25519Identity()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ParseRecipients([]byte(identity.Recipient().String()))).To(HaveLen(1))
	for raw, want := range map[string]string{
		"":                        "no age public key",
		"# nobody":                "no age public key",
		"age1nonsense":            "line 1 is no age public key",
		identity.String():         "private key",
		"# ssh\nssh-rsa nonsense": "line 2 is no age public key",
		strings.Repeat(identity.Recipient().String()+"\n", 65): "more than 64",
	} {
		_, err := ParseRecipients([]byte(raw))
		g.Expect(err).To(MatchError(ContainSubstring(want)), "%q", raw)
		g.Expect(err.Error()).NotTo(Or(ContainSubstring(identity.String()), ContainSubstring("nonsense")))
	}
}

// Whatever etcd or the way from it makes of a snapshot: it is whole, or it is refused and nothing of it is in the
// store.
func TestTakeRefusesDamage(t *testing.T) {
	db := backuptest.Database(t, 1000)
	whole := backuptest.Signed(db)
	changed := func(at int) []byte {
		raw := bytes.Clone(whole)
		raw[at] ^= 1
		return raw
	}
	zeroed := bytes.Clone(db)
	clear(zeroed[4*4096:])
	for name, raw := range map[string][]byte{
		"nothing":                    nil,
		"a digest of nothing":        backuptest.Signed(nil),
		"a changed byte":             changed(len(whole) / 2),
		"a changed digest":           changed(len(whole) - 1),
		"its last byte missing":      whole[:len(whole)-1],
		"the digest missing":         db,
		"a page missing":             whole[:len(whole)-4096],
		"half of it":                 backuptest.Signed(db[:len(db)/2/4096*4096]),
		"no pages but the first":     backuptest.Signed(db[:4*4096]),
		"zeros for pages":            backuptest.Signed(zeroed),
		"no database":                backuptest.Signed(bytes.Repeat([]byte("x"), 8192)),
		"a database but not etcd's":  backuptest.Signed(foreignDatabase(t)),
		"a byte more":                append(bytes.Clone(whole), 0),
		"a page more after the file": append(bytes.Clone(whole), make([]byte, 4096)...),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			store := newVolume(t)
			_, err := Take(t.Context(), job(t, store, raw))
			g.Expect(err).To(MatchError(ErrDamaged))
			g.Expect(names(t, store, directory)).To(BeEmpty())
		})
	}
	t.Run("less than the member had", func(t *testing.T) {
		g := NewWithT(t)
		store := newVolume(t)
		taken := job(t, store, whole)
		taken.Source = func(ctx context.Context) (Stream, error) {
			stream, err := source(whole)(ctx)
			stream.Revision = 1002
			return stream, err
		}
		_, err := Take(t.Context(), taken)
		g.Expect(err).To(MatchError(ErrDamaged))
	})
}

func foreignDatabase(t *testing.T) []byte {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(db.Close()).To(Succeed())
	raw, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	return raw
}

// A database may be damaged on the member's own disk, and then its digest fits. That may go unnoticed where the damage
// is in a value; it must never take the process down.
func TestInspectSurvives(t *testing.T) {
	db := backuptest.Database(t, 300)
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 300 {
		damaged := bytes.Clone(db)
		page := random.IntN(len(damaged) / 4096)
		for range 1 + random.IntN(8) {
			// The beginning of a page says what it is and where its elements are.
			damaged[page*4096+random.IntN(64)] = byte(random.Uint32())
		}
		spool, err := newSpool(t.TempDir())
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = spool.Write(damaged)
		g.Expect(err).NotTo(HaveOccurred())
		if _, err := inspect(spool, int64(len(damaged)), func() {}); err != nil {
			g.Expect(err).To(MatchError(ErrDamaged))
			refused++
		}
		g.Expect(spool.Close()).To(Succeed())
	}
	t.Logf("%d of 300 refused", refused)
	NewWithT(t).Expect(refused).To(BeNumerically(">", 100))
}

// cut is a store whose process ends: from one call on nothing happens any more.
type cut struct {
	Store
	after int
	// torn makes the call that fails do its work all the same.
	torn bool
}

var errCut = errors.New("the process ended")

func (c *cut) next() (work bool, err error) {
	c.after--
	switch {
	case c.after > 0:
		return true, nil
	case c.after == 0:
		return c.torn, errCut
	}
	return false, errCut
}

func (c *cut) Put(ctx context.Context, name string, r io.Reader) error {
	work, err := c.next()
	if work {
		err = errors.Join(err, c.Store.Put(ctx, name, r))
	}
	return err
}

func (c *cut) Delete(ctx context.Context, name string) error {
	work, err := c.next()
	if work {
		err = errors.Join(err, c.Store.Delete(ctx, name))
	}
	return err
}

func (c *cut) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if _, err := c.next(); err != nil {
		return nil, err
	}
	return c.Store.Open(ctx, name)
}

// No cut makes a snapshot good that is not, or costs one that is.
func TestCutOffAnywhere(t *testing.T) {
	raw := backuptest.Signed(backuptest.Database(t, 100))
	for _, torn := range []bool{false, true} {
		for after := 1; after <= 14; after++ {
			t.Run(fmt.Sprintf("call %d torn %t", after, torn), func(t *testing.T) {
				g := NewWithT(t)
				store := newVolume(t)
				// A good one from before, and one that the retention is to delete.
				for i := range 2 {
					before := job(t, store, raw)
					before.Began = noon.Add(time.Duration(i-3) * time.Hour)
					_, err := Take(t.Context(), before)
					g.Expect(err).NotTo(HaveOccurred())
				}
				ending := &cut{Store: store, after: after, torn: torn}
				taken := job(t, ending, raw)
				metadata, err := Take(t.Context(), taken)
				if err == nil {
					_, err = Prune(t.Context(), ending, directory, metadata, Retention{Last: 2}, nil, noon)
				}
				if ending.after > 0 {
					g.Expect(err).NotTo(HaveOccurred())
				}
				found, err := Good(t.Context(), store, directory, authority, nil)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(len(found)).To(BeNumerically(">=", 2))
				for _, m := range found {
					g.Expect(sum(content(t, store, directory+"/"+m.Name))).To(Equal(m.SHA256))
				}
				// A day later another one clears away what was left.
				later := job(t, store, raw)
				later.Began = noon.Add(25 * time.Hour)
				metadata, err = Take(t.Context(), later)
				g.Expect(err).NotTo(HaveOccurred())
				found, err = Prune(t.Context(), store, directory, metadata, Retention{Last: 2}, nil, later.Began)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found).To(HaveLen(2))
				g.Expect(names(t, store, directory)).To(ConsistOf(found[0].Name, found[0].Name+".json", found[1].Name,
					found[1].Name+".json"))
			})
		}
	}
}

func sum(raw []byte) string { return fmt.Sprintf("%x", sha256.Sum256(raw)) }

// liar returns other bytes than were stored.
type liar struct {
	Store
	change func([]byte) []byte
}

func (l liar) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := l.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(file)
	return io.NopCloser(bytes.NewReader(l.change(raw))), errors.Join(err, file.Close())
}

func TestTakeReadsBack(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"a bit":  func(raw []byte) []byte { raw[len(raw)/3] ^= 4; return raw },
		"short":  func(raw []byte) []byte { return raw[:len(raw)-1] },
		"long":   func(raw []byte) []byte { return append(raw, 0) },
		"nought": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			store := newVolume(t)
			_, err := Take(t.Context(), job(t, liar{store, change}, backuptest.Signed(backuptest.Database(t, 10))))
			g.Expect(err).To(MatchError(ErrDamaged))
			g.Expect(names(t, store, directory)).To(BeEmpty())
		})
	}
}

func TestTakeEndsWhenNothingMoves(t *testing.T) {
	g := NewWithT(t)
	store := newVolume(t)
	taken := job(t, store, nil)
	taken.Stall = 50 * time.Millisecond
	taken.Source = func(ctx context.Context) (Stream, error) {
		return Stream{ReadCloser: io.NopCloser(readerFunc(func([]byte) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}))}, nil
	}
	_, err := Take(t.Context(), taken)
	g.Expect(err).To(MatchError(ErrStalled))
	g.Expect(names(t, store, directory)).To(BeEmpty())
}

func TestTakeWantsRoom(t *testing.T) {
	g := NewWithT(t)
	store := newVolume(t)
	taken := job(t, store, nil)
	taken.Source = func(ctx context.Context) (Stream, error) {
		stream, err := source(nil)(ctx)
		stream.Size = 1 << 60
		return stream, err
	}
	_, err := Take(t.Context(), taken)
	var noRoom *NoRoomError
	g.Expect(errors.As(err, &noRoom)).To(BeTrue(), "%v", err)
	g.Expect(noRoom.Where).To(Equal("spool directory"))
	g.Expect(names(t, store, directory)).To(BeEmpty())
}

func TestPrune(t *testing.T) {
	inStores(t, func(t *testing.T, store Store) {
		g := NewWithT(t)
		raw := backuptest.Signed(backuptest.Database(t, 10))
		take := func(hours int, change ...func(*Job)) Metadata {
			taken := job(t, store, raw)
			taken.Began = noon.Add(time.Duration(hours) * time.Hour)
			for _, c := range change {
				c(&taken)
			}
			metadata, err := Take(t.Context(), taken)
			g.Expect(err).NotTo(HaveOccurred())
			return metadata
		}
		other := take(0, func(j *Job) { j.Authority = strings.Repeat("cd", 32) })
		first, second, third := take(1), take(2), take(3)
		orphan := take(0)
		g.Expect(store.Delete(t.Context(), directory+"/"+orphan.Name+".json")).To(Succeed())
		pending := newName(noon.Add(-30*time.Hour), false)
		recent := newName(noon.Add(-time.Hour), false)
		now := noon.Add(4 * time.Hour)
		foreign := []string{"notes.txt", "20261121T110000Z-0123456789ab.db.bak", "other.json", "x.db.pending"}
		for _, name := range append([]string{pending, pending + ".pending", recent, recent + ".pending"}, foreign...) {
			g.Expect(store.Put(t.Context(), directory+"/"+name, strings.NewReader("x"))).To(Succeed())
		}
		bad := newName(noon.Add(9*time.Hour), false)
		g.Expect(store.Put(t.Context(), directory+"/"+bad, strings.NewReader("x"))).To(Succeed())
		g.Expect(store.Put(t.Context(), directory+"/"+bad+".json", strings.NewReader("{}"))).To(Succeed())

		// Of one that the store does not show as the newest nothing follows.
		_, err := Prune(t.Context(), store, directory, first, Retention{Last: 1}, nil, now)
		g.Expect(err).To(MatchError(ContainSubstring("nothing is deleted")))
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(ConsistOf(third, second, first))

		kept, err := Prune(t.Context(), store, directory, third, Retention{Last: 2}, nil, now)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kept).To(Equal([]Metadata{third, second}))
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(Equal([]Metadata{third, second}))
		left := append([]string{third.Name, third.Name + ".json", second.Name, second.Name + ".json", other.Name, other.Name +
			".json",
			orphan.Name, recent, recent + ".pending", bad, bad + ".json"}, foreign...)
		g.Expect(names(t, store, directory)).To(ConsistOf(left))
		// At least one stays whatever is asked.
		kept, err = Prune(t.Context(), store, directory, third, Retention{}, nil, now)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kept).To(Equal([]Metadata{third}))
	})
}

// A store that does not answer is not one that has nothing.
func TestGoodSaysWhatItCouldNotRead(t *testing.T) {
	g := NewWithT(t)
	store := newVolume(t)
	_, err := Take(t.Context(), job(t, store, backuptest.Signed(backuptest.Database(t, 10))))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = Good(t.Context(), &cut{Store: store, after: 1}, directory, authority, nil)
	g.Expect(err).To(MatchError(errCut))
}

func TestGoodLeavesOutWhatDoesNotFit(t *testing.T) {
	g := NewWithT(t)
	store := newVolume(t)
	metadata, err := Take(t.Context(), job(t, store, backuptest.Signed(backuptest.Database(t, 10))))
	g.Expect(err).NotTo(HaveOccurred())
	name := directory + "/" + metadata.Name
	sidecar, data := content(t, store, name+".json"), content(t, store, name)
	for _, put := range []struct{ name, content string }{
		{name, string(data[:len(data)-1])},
		{name + ".json", string(sidecar[:len(sidecar)/2])},
		{name + ".json", strings.Replace(string(sidecar), metadata.Name, newName(noon, false), 1)},
		{name + ".json", strings.Repeat(" ", maxSidecar) + string(sidecar)},
	} {
		g.Expect(store.Put(t.Context(), put.name, strings.NewReader(put.content))).To(Succeed())
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(BeEmpty())
		g.Expect(store.Put(t.Context(), name, bytes.NewReader(data))).To(Succeed())
		g.Expect(store.Put(t.Context(), name+".json", bytes.NewReader(sidecar))).To(Succeed())
		g.Expect(Good(t.Context(), store, directory, authority, nil)).To(ConsistOf(metadata))
	}
}

func FuzzParseMetadata(f *testing.F) {
	digest := strings.Repeat("0f", 32)
	f.Add(fmt.Appendf(nil,
		`{"format":1,"name":"20261121T120000Z-0123456789ab.db","authority":%q,"time":"2026-11-21T12:00:00Z","revision":7,`+
			`"entries":5,"size":512,"snapshotSHA256":%q,"storedSize":512,"sha256":%q}`, digest, digest, digest))
	f.Add(fmt.Appendf(nil,
		`{"format":1,"name":"20261121T120000Z-0123456789ab.db.age","authority":%q,"time":"2026-11-21T13:00:00+01:00","revision":7,`+
			`"entries":5,"size":512,"snapshotSHA256":%q,"storedSize":712,"sha256":%q,"recipients":["age1x"],"more":1}`, digest,
		digest, digest))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		metadata, err := ParseMetadata(raw)
		if err != nil {
			if !errors.Is(err, errMetadata) {
				t.Fatalf("%v is not a refusal", err)
			}
			return
		}
		g := NewWithT(t)
		g.Expect(ours(metadata.Name)).To(BeTrue())
		g.Expect(validName(directory + "/" + metadata.Name)).To(Succeed())
		again, err := metadata.marshal()
		g.Expect(err).NotTo(HaveOccurred())
		if len(again) <= maxSidecar {
			g.Expect(ParseMetadata(again)).To(Equal(metadata))
		}
	})
}
