// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup/restore"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/backuptest"
)

func freeURL(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

// startEtcd runs a real member on a data directory, which may hold what was restored, and returns a client of it.
func startEtcd(t *testing.T, name, dataDirectory, peer string) *clientv3.Client {
	t.Helper()
	g := NewWithT(t)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	address := freeURL(t)
	command := exec.Command(filepath.Join(assets, "etcd"), "--name", name, "--data-dir", dataDirectory,
		"--listen-client-urls", address, "--advertise-client-urls", address, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", name+"="+peer,
		"--quota-backend-bytes", strconv.Itoa(8<<30), "--unsafe-no-fsync", "--log-level", "error")
	g.Expect(command.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = client.Close() })
	g.Eventually(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := client.Get(ctx, "x")
		return err
	}, 3*time.Minute, 100*time.Millisecond).Should(Succeed())
	return client
}

// of streams the snapshots of a member.
func of(client *clientv3.Client) func(context.Context) (Stream, error) {
	return func(ctx context.Context) (Stream, error) {
		status, err := client.Status(ctx, client.Endpoints()[0])
		if err != nil {
			return Stream{}, err
		}
		stream, err := client.Snapshot(ctx)
		return Stream{ReadCloser: stream, Size: status.DbSize, Revision: status.Header.Revision, Version: status.Version}, err
	}
}

// A snapshot of a real etcd, encrypted and not, in each store, ends as an etcd with every key.
func TestRestore(t *testing.T) {
	g := NewWithT(t)
	etcd := startEtcd(t, "old", t.TempDir(), freeURL(t))
	for i := range 300 {
		_, err := etcd.Put(t.Context(), fmt.Sprintf("/registry/pods/%03d", i), strings.Repeat(strconv.Itoa(i), 50))
		g.Expect(err).NotTo(HaveOccurred())
	}
	compacted, err := etcd.Delete(t.Context(), "/registry/pods/007")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = etcd.Compact(t.Context(), compacted.Header.Revision-100)
	g.Expect(err).NotTo(HaveOccurred())
	want, err := etcd.Get(t.Context(), "/", clientv3.WithPrefix())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(want.Kvs).To(HaveLen(299))
	identity, err := age.GenerateX25519Identity()
	g.Expect(err).NotTo(HaveOccurred())

	inStores(t, func(t *testing.T, store Store) {
		for _, recipients := range []Recipients{nil, {identity.Recipient()}} {
			t.Run(fmt.Sprintf("to %d recipients", len(recipients)), func(t *testing.T) {
				g := NewWithT(t)
				taken := job(t, store, nil)
				taken.Source, taken.Recipients = of(etcd), recipients
				metadata, err := Take(t.Context(), taken)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(metadata.Revision).To(Equal(want.Header.Revision))

				file, err := os.Create(filepath.Join(t.TempDir(), "snapshot.db"))
				g.Expect(err).NotTo(HaveOccurred())
				defer func() { _ = file.Close() }()
				g.Expect(Fetch(t.Context(), store, directory, metadata, file, identity)).To(Succeed())
				data, peer := filepath.Join(t.TempDir(), "etcd"), freeURL(t)
				g.Expect(restore.Restore(file.Name(), restore.Member{Name: "new", PeerURL: peer, DataDirectory: data})).
					To(Succeed())

				restored := startEtcd(t, "new", data, peer)
				got, err := restored.Get(t.Context(), "/", clientv3.WithPrefix())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.Kvs).To(Equal(want.Kvs))
				// No client takes an old revision for one of the restored cluster.
				g.Expect(got.Header.Revision).To(BeNumerically(">", want.Header.Revision+restore.DefaultRevisionBump-1))
				g.Expect(got.Header.ClusterId).NotTo(Equal(want.Header.ClusterId))
				members, err := restored.MemberList(t.Context())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(members.Members).To(HaveLen(1))
				g.Expect(members.Members[0].Name).To(Equal("new"))
				_, err = restored.Put(t.Context(), "/registry/pods/new", "")
				g.Expect(err).NotTo(HaveOccurred())
			})
		}
	})
	t.Run("into a directory that is not empty", func(t *testing.T) {
		g := NewWithT(t)
		data := t.TempDir()
		g.Expect(os.WriteFile(filepath.Join(data, "precious"), nil, 0o600)).To(Succeed())
		g.Expect(restore.Restore("absent", restore.Member{Name: "new", PeerURL: "http://127.0.0.1:1", DataDirectory: data})).
			To(MatchError(ContainSubstring("not empty")))
	})
	t.Run("of what is no snapshot", func(t *testing.T) {
		g := NewWithT(t)
		file := filepath.Join(t.TempDir(), "snapshot.db")
		g.Expect(os.WriteFile(file, backuptest.Database(t, 10), 0o600)).To(Succeed())
		g.Expect(restore.Restore(file, restore.Member{Name: "new", PeerURL: "http://127.0.0.1:1",
			DataDirectory: filepath.Join(t.TempDir(), "d")})).
			To(MatchError(ContainSubstring("hash")))
	})
}

// bigEnv asks for TestRestoreBig and says where it may write: it needs four times the size of the database.
const bigEnv = "QUOIN_BACKUP_BIG"

// The same with a database of 2 GB, encrypted, on a volume: how long it takes, and that it takes no more memory than a
// small one.
func TestRestoreBig(t *testing.T) {
	scratch := os.Getenv(bigEnv)
	if scratch == "" {
		t.Skipf("%s names no directory with 10 GB free", bigEnv)
	}
	g := NewWithT(t)
	below := func() string {
		directory, err := os.MkdirTemp(scratch, "quoin-backup-big-")
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = os.RemoveAll(directory) })
		return directory
	}
	const size = 2_000_000_000
	value := func(i int) string {
		random, raw := rand.New(rand.NewPCG(1, uint64(i))), make([]byte, 0, 8<<10)
		for len(raw) < 8<<10 {
			raw = strconv.AppendUint(raw, random.Uint64(), 36)
		}
		return string(raw)
	}
	began := time.Now()
	lap := func(what string) {
		t.Logf("%-28s %6.1f s", what, time.Since(began).Seconds())
		began = time.Now()
	}
	etcd := startEtcd(t, "old", below(), freeURL(t))
	count := 0
	for written := 0; written < size; count += 64 {
		var puts []clientv3.Op
		for i := range 64 {
			v := value(count + i)
			written += len(v)
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/registry/big/%08d", count+i), v))
		}
		_, err := etcd.Txn(t.Context()).Then(puts...).Commit()
		g.Expect(err).NotTo(HaveOccurred())
	}
	lap("writing the keys")

	identity, err := age.GenerateX25519Identity()
	g.Expect(err).NotTo(HaveOccurred())
	store, err := OpenVolume(below(), "a")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = store.Close() }()
	taken := Job{Store: store, Directory: directory, Authority: authority, Source: of(etcd), Spool: below(), Began: noon,
		Recipients: Recipients{identity.Recipient()}}
	runtime.GC()
	before, stop := anonymous(t), make(chan struct{})
	var peak atomic.Int64
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				peak.Store(max(peak.Load(), anonymous(t)))
			}
		}
	}()
	began = time.Now()
	metadata, err := Take(t.Context(), taken)
	close(stop)
	g.Expect(err).NotTo(HaveOccurred())
	lap("taking the snapshot")
	grown := peak.Load() - before
	t.Logf("%d bytes, %d entries; memory grew by %d MiB", metadata.Size, metadata.Entries, grown>>20)
	g.Expect(metadata.Size).To(BeNumerically(">", size))
	g.Expect(grown).To(BeNumerically("<", 128<<20))

	file, err := os.Create(filepath.Join(below(), "snapshot.db"))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	g.Expect(Fetch(t.Context(), store, directory, metadata, file, identity)).To(Succeed())
	lap("fetching and decrypting it")
	data, peer := filepath.Join(below(), "etcd"), freeURL(t)
	g.Expect(restore.Restore(file.Name(), restore.Member{Name: "new", PeerURL: peer, DataDirectory: data})).To(Succeed())
	lap("restoring it")
	restored := startEtcd(t, "new", data, peer)
	lap("starting etcd on it")
	for i := 0; i < count; i += 500 {
		got, err := restored.Get(t.Context(), fmt.Sprintf("/registry/big/%08d", i), clientv3.WithFromKey(),
			clientv3.WithLimit(500))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(got.Kvs).To(HaveLen(min(500, count-i)))
		for j, kv := range got.Kvs {
			g.Expect(string(kv.Key)).To(Equal(fmt.Sprintf("/registry/big/%08d", i+j)))
			g.Expect(string(kv.Value) == value(i+j)).To(BeTrue(), "%s", kv.Key)
		}
	}
	lap("reading every key")
}

// anonymous is the memory of this process that is not that of files, in bytes.
func anonymous(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("needs /proc")
	}
	_, after, _ := bytes.Cut(raw, []byte("RssAnon:"))
	var kilobytes int64
	if _, err := fmt.Fscan(bytes.NewReader(after), &kilobytes); err != nil {
		t.Error(err)
	}
	return kilobytes << 10
}
