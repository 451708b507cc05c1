// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Errors of a Snapshot.
var (
	// ErrLearner is returned instead of a learner's database, which may still lack what the voters have acknowledged.
	ErrLearner = errors.New("the etcd member is a learner, whose data may not be complete")
	// ErrDigest ends a stream whose bytes are not those that the member read from its database.
	ErrDigest = errors.New("the etcd snapshot does not match its digest")
)

// maxSize is more than any database of etcd can have, and far from where numbers end.
const maxSize = 1 << 50

// Snapshot is a member's database as a stream: the bytes that `etcdctl snapshot save` writes, which are the database
// file and, after it, its SHA-256. Reading ends with io.EOF only when that digest matched, so a stream that was cut
// short or changed on its way is an error and never a shorter file. It must be closed.
type Snapshot struct {
	// Member that sent it, and the cluster that it is of.
	Member, Cluster uint64
	// Revision that the snapshot holds at least: the member had applied it before the snapshot was taken.
	Revision int64
	// Version of etcd that the member runs. StorageVersion is that of the file, which decides what can restore it; empty
	// before etcd 3.6.
	Version, StorageVersion string
	// Size of the database file in bytes, without the digest.
	Size int64

	client *clientv3.Client
	stream pb.Maintenance_SnapshotClient
	cancel context.CancelFunc
	// chunk is what was received and not read yet; behind is how many bytes of the file were received.
	chunk  []byte
	behind int64
	digest hash.Hash
	end    []byte
	err    error
}

// Snapshot asks one member for its database. The stream lasts until it is closed or ctx ends, and is fetched no faster
// than it is read. It needs no quorum, so a survivor can be saved before a restore.
func (Client) Snapshot(ctx context.Context, endpoint Endpoint, credentials Credentials) (*Snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	snapshot, err := openSnapshot(ctx, endpoint, credentials)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("etcd snapshot of node %s: %w", endpoint.Name, err)
	}
	snapshot.cancel = cancel
	return snapshot, nil
}

func openSnapshot(ctx context.Context, endpoint Endpoint, credentials Credentials) (_ *Snapshot, err error) {
	client, err := connect(ctx, endpoint, credentials)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = client.Close()
		}
	}()
	asked, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	// The header of a snapshot is empty (etcd's v3rpc/maintenance.go), so what it is of is asked before.
	status, err := memberStatus(asked, client)
	if err != nil {
		return nil, err
	}
	if status.IsLearner {
		return nil, ErrLearner
	}
	// The client library would start a broken stream again from its beginning, in the middle of what was read.
	stream, err := pb.NewMaintenanceClient(client.ActiveConnection()).Snapshot(ctx, &pb.SnapshotRequest{})
	if err != nil {
		return nil, err
	}
	// The first message tells the size, and that the member does send.
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	// A member is believed no more than its host is.
	if first.RemainingBytes > maxSize {
		return nil, fmt.Errorf("%w: it claims another %d bytes", ErrDigest, first.RemainingBytes)
	}
	snapshot := &Snapshot{Version: status.Version, StorageVersion: first.Version, client: client, stream: stream,
		digest: sha256.New(),
		Size:   int64(first.RemainingBytes) + int64(len(first.Blob))}
	if status.Header != nil {
		snapshot.Member, snapshot.Cluster, snapshot.Revision = status.Header.MemberId, status.Header.ClusterId,
			status.Header.Revision
	}
	snapshot.take(first.Blob)
	return snapshot, nil
}

// Read reads on. It returns an error of the stream as often as it is asked.
func (s *Snapshot) Read(p []byte) (int, error) {
	for len(s.chunk) == 0 && s.err == nil {
		message, err := s.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			s.err = s.verify()
		case err != nil:
			s.err = fmt.Errorf("etcd snapshot after %d of %d bytes: %w", s.behind, s.Size, err)
		default:
			s.take(message.Blob)
			if len(s.end) > sha256.Size {
				// Without this, it would send until the disk and the memory of who reads are full.
				s.chunk, s.err = nil, fmt.Errorf("%w: more than %d bytes and a digest were sent", ErrDigest, s.Size)
			}
		}
	}
	if len(s.chunk) > 0 {
		n := copy(p, s.chunk)
		s.chunk = s.chunk[n:]
		return n, nil
	}
	return 0, s.err
}

// take accounts for bytes that came: of the file first, of the digest after it.
func (s *Snapshot) take(blob []byte) {
	s.chunk = blob
	file := min(int64(len(blob)), s.Size-s.behind)
	s.digest.Write(blob[:file])
	s.behind += file
	s.end = append(s.end, blob[file:]...)
}

func (s *Snapshot) verify() error {
	if s.behind != s.Size || string(s.end) != string(s.digest.Sum(nil)) {
		return fmt.Errorf("%w: %d of %d bytes, and %d bytes of digest", ErrDigest, s.behind, s.Size, len(s.end))
	}
	return io.EOF
}

// Remaining is how many bytes of the database file have not been received yet.
func (s *Snapshot) Remaining() int64 { return s.Size - s.behind }

// Close ends the stream, also in its middle, and the connection.
func (s *Snapshot) Close() error {
	s.cancel()
	return s.client.Close()
}
