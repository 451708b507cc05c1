// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restore makes the data directory of an etcd member from a snapshot. It is apart from package backup because
// it brings half of an etcd server with it.
package restore

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// DefaultRevisionBump is more than what a cluster writes between two snapshots.
const DefaultRevisionBump = 1_000_000_000

// Member is the only member of a new etcd cluster.
type Member struct {
	// Name of the member, which is that of its node.
	Name string
	// PeerURL that it advertises, such as https://192.0.2.1:2380.
	PeerURL string
	// DataDirectory is made; when it exists it must be empty.
	DataDirectory string
	// Token makes the new cluster another one than any other that begins with the snapshot; random when empty.
	Token string
	// RevisionBump is added to the revision of the snapshot, and everything before counts as compacted: clients that saw
	// revisions which the snapshot lacks then list again, instead of waiting for revisions that mean something else now.
	// DefaultRevisionBump when 0.
	RevisionBump uint64
}

// Restore makes the data directory of the only member of a new cluster, with the keys of a snapshot: a file that
// `etcdctl snapshot save` or backup.Fetch wrote, with its digest. Other members join it later; none of the old cluster
// can, because the new one has another ID. On an error the directory is worth nothing.
func Restore(file string, member Member) (err error) {
	if member.Name == "" || member.PeerURL == "" || member.DataDirectory == "" {
		return errors.New("restoring a snapshot needs a name, a peer URL and a data directory")
	}
	// Others could read every Secret.
	if err := os.MkdirAll(member.DataDirectory, 0o700); err != nil {
		return fmt.Errorf("restoring a snapshot: %w", err)
	}
	bump := member.RevisionBump
	if bump == 0 {
		bump = DefaultRevisionBump
	}
	token := cmp.Or(member.Token, rand.Text())
	defer func() {
		// The library panics about files that it cannot write.
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("restoring snapshot %s: %v", file, panicked)
		}
	}()
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:        file,
		Name:                member.Name,
		OutputDataDir:       member.DataDirectory,
		PeerURLs:            []string{member.PeerURL},
		InitialCluster:      member.Name + "=" + member.PeerURL,
		InitialClusterToken: token,
		RevisionBump:        bump,
		MarkCompacted:       true,
	}); err != nil {
		return fmt.Errorf("restoring snapshot %s: %w", file, err)
	}
	return nil
}
