// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// database is what a fake member sends, in chunks.
type database struct {
	chunks  []string
	digest  []byte
	learner bool
	// stuck: after the first chunk nothing comes. endless: it does not end. claims, when set, is what is said to remain.
	stuck, endless bool
	claims         uint64
}

func (f *fakeMember) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) error {
	remaining := len(strings.Join(f.cluster.database.chunks, ""))
	for _, chunk := range f.cluster.database.chunks {
		remaining -= len(chunk)
		claimed := uint64(remaining)
		if f.cluster.database.claims != 0 {
			claimed = f.cluster.database.claims
		}
		if err := stream.Send(&pb.SnapshotResponse{RemainingBytes: claimed, Blob: []byte(chunk),
			Version: "3.6.0"}); err != nil {
			return err
		}
		if f.cluster.database.stuck {
			<-stream.Context().Done()
			return stream.Context().Err()
		}
	}
	for f.cluster.database.endless {
		if err := stream.Send(&pb.SnapshotResponse{Blob: make([]byte, 32<<10)}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.SnapshotResponse{Blob: f.cluster.database.digest, Version: "3.6.0"})
}

func digestOf(content string) []byte {
	sum := sha256.Sum256([]byte(content))
	return sum[:]
}

func TestSnapshotEndsOnlyWithItsDigest(t *testing.T) {
	for name, test := range map[string]struct {
		database database
		whole    bool
	}{
		"whole":                          {database{chunks: []string{"data", "base"}, digest: digestOf("database")}, true},
		"the member read something else": {database{chunks: []string{"data", "base"}, digest: digestOf("datebase")}, false},
		"half a digest":                  {database{chunks: []string{"database"}, digest: digestOf("database")[:16]}, false},
		"no digest":                      {database{chunks: []string{"database"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ca, cluster := newAuthority(t), three()
			cluster.database = test.database
			snapshot, err := Client{}.Snapshot(t.Context(), start(t, ca, cluster, 1, "a", "a"), credentialsOf(t, ca))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(snapshot.Size).To(Equal(int64(len("database"))))
			g.Expect(snapshot.StorageVersion).To(Equal("3.6.0"))
			content, err := io.ReadAll(snapshot)
			if test.whole {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(content).To(Equal(append([]byte("database"), digestOf("database")...)))
				g.Expect(snapshot.Remaining()).To(BeZero())
			} else {
				g.Expect(err).To(MatchError(ErrDigest))
			}
			g.Expect(snapshot.Close()).To(Succeed())
		})
	}
}

func TestSnapshotDoesNotBelieveWhatCannotBe(t *testing.T) {
	t.Run("more than it said", func(t *testing.T) {
		g := NewWithT(t)
		ca, cluster := newAuthority(t), three()
		cluster.database = database{chunks: []string{"database"}, endless: true}
		snapshot, err := Client{}.Snapshot(t.Context(), start(t, ca, cluster, 1, "a", "a"), credentialsOf(t, ca))
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = snapshot.Close() }()
		content, err := io.ReadAll(snapshot)
		g.Expect(err).To(MatchError(ErrDigest))
		g.Expect(len(content)).To(BeNumerically("<=", len("database")+sha256.Size))
	})
	t.Run("a negative size", func(t *testing.T) {
		g := NewWithT(t)
		ca, cluster := newAuthority(t), three()
		cluster.database = database{chunks: []string{"data", "base"}, claims: 1 << 63}
		_, err := Client{}.Snapshot(t.Context(), start(t, ca, cluster, 1, "a", "a"), credentialsOf(t, ca))
		g.Expect(err).To(MatchError(ErrDigest))
	})
}

func TestSnapshotOfALearnerIsRefused(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.database.learner = true
	_, err := Client{}.Snapshot(t.Context(), start(t, ca, cluster, 1, "a", "a"), credentialsOf(t, ca))
	g.Expect(err).To(MatchError(ErrLearner))
}

func TestSnapshotVerifiesTheServerName(t *testing.T) {
	g := NewWithT(t)
	ca := newAuthority(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := Client{}.Snapshot(ctx, start(t, ca, three(), 1, "a", "other"), credentialsOf(t, ca))
	g.Expect(err).To(HaveOccurred())
}

func TestSnapshotIsCanceled(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.database = database{chunks: []string{"data", "base"}, stuck: true}
	ctx, cancel := context.WithCancel(t.Context())
	snapshot, err := Client{}.Snapshot(ctx, start(t, ca, cluster, 1, "a", "a"), credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = snapshot.Close() }()
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = io.ReadAll(snapshot)
	g.Expect(err).To(HaveOccurred())
	g.Expect(errors.Is(err, ErrDigest)).To(BeFalse())
	g.Expect(err).To(MatchError(ContainSubstring("after 4 of 8 bytes")))
}

func TestSnapshotOfARealMember(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	value := strings.Repeat("kept ", 40_000)
	put, err := cluster.client(cluster.members[0]).Put(t.Context(), "key", value)
	g.Expect(err).NotTo(HaveOccurred())
	snapshot, err := Client{}.Snapshot(t.Context(), cluster.members[0].endpoint, credentialsOf(t, cluster.ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.Revision).To(BeNumerically(">=", put.Header.Revision))
	g.Expect(snapshot.Version).To(HavePrefix("3."))
	g.Expect(snapshot.Member).To(Equal(put.Header.MemberId))
	g.Expect(snapshot.Cluster).To(Equal(put.Header.ClusterId))
	content, err := io.ReadAll(snapshot)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.Close()).To(Succeed())
	g.Expect(int64(len(content))).To(Equal(snapshot.Size + sha256.Size))
	g.Expect(bytes.Contains(content, []byte(value))).To(BeTrue())

	// Given up in its middle, it holds nothing back.
	snapshot, err = Client{}.Snapshot(t.Context(), cluster.members[0].endpoint, credentialsOf(t, cluster.ca))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.ReadFull(snapshot, make([]byte, 1000))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.Close()).To(Succeed())
	_, err = io.ReadAll(snapshot)
	g.Expect(err).To(HaveOccurred())
}
