// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup/restore"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

const (
	// sendings are how often it is tried to send within one call, so that a connection that broke does not cost the data
	// that were made.
	sendings = 10
	// sendingEvery is the time between them.
	sendingEvery = 5 * time.Second
	// overhead is what the data of a member take beside the database: two segments of its log.
	overhead = 128 << 20
)

// deliveryJob makes the data of a member of a snapshot, and brings them to its host.
type deliveryJob struct {
	recoveryID, snapshot, spool string
	// sha256 that the stored data must have; empty when nobody knows it.
	sha256 string
	// last good snapshot that is known of the store; nil when none is.
	last       *controlplanev1.BackupRecord
	target     *target
	identities []age.Identity
	host       *infrav1.QuoinHost
	connect    func(context.Context) (ssh.Host, error)
}

func (j deliveryJob) run(ctx context.Context) (found, error) {
	store, done, err := j.target.open()
	if err != nil {
		return found{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
	}
	defer done()
	metadata, err := j.find(ctx, store)
	if err != nil {
		return found{}, err
	}
	conn, err := j.connect(ctx)
	if err != nil {
		return found{}, err
	}
	if _, err := serves(ctx, conn, j.host); err != nil {
		return found{}, err
	}
	peer, err := recovery.ReadPeer(ctx, conn)
	if err != nil {
		return found{}, err
	}
	workspace, release, err := backup.Workspace(j.spool, 2*metadata.Size+overhead)
	if err != nil {
		return found{}, err
	}
	defer release()
	data, err := j.makeData(ctx, store, metadata, peer, workspace)
	if err != nil {
		return found{}, err
	}
	files, closeAll, err := filesOf(data)
	defer closeAll()
	if err != nil {
		return found{}, err
	}
	delivered, err := j.send(ctx, recovery.Delivery{ID: infrav1.RecoverOperation(j.recoveryID), Files: files})
	return found{delivered: delivered, stored: metadata.SHA256}, err
}

// find looks for the snapshot among the good ones of this very cluster.
func (j deliveryJob) find(ctx context.Context, store backup.Store) (backup.Metadata, error) {
	keys := j.target.signing
	if j.sha256 != "" {
		// Who names a digest needs nobody else to vouch for the data.
		keys = nil
	}
	good, err := backup.Good(ctx, store, j.target.directory, j.target.authority, keys)
	if err != nil {
		return backup.Metadata{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
	}
	for _, metadata := range good {
		if metadata.Name != j.snapshot {
			continue
		}
		if j.sha256 != "" && metadata.SHA256 != j.sha256 {
			return backup.Metadata{}, fmt.Errorf("snapshot %s in %s has the SHA-256 %s, and spec.recovery.snapshot.sha256 is "+
				"%s: the store has another snapshot under this name than the one that was taken note of. Look who wrote to "+
				"it, and name another snapshot", j.snapshot, j.target.where, metadata.SHA256, j.sha256)
		}
		if j.sha256 == "" && j.last != nil && !metadata.Time.After(j.last.Time.Time) && !isRecord(metadata, j.last) {
			return backup.Metadata{}, fmt.Errorf("snapshot %s in %s is not the last good one, which is %s with the SHA-256 %s: "+
				"what was written since would be lost. Look whether somebody took that one away. When %s is the one that "+
				"you want, say so with its SHA-256 in spec.recovery.snapshot.sha256", j.snapshot, j.target.where, j.last.Name,
				j.last.SHA256, j.snapshot)
		}
		if j.sha256 == "" && j.last != nil && len(keys) == 0 && metadata.Time.After(j.last.Time.Time) {
			return backup.Metadata{}, fmt.Errorf("snapshot %s in %s is newer than the last good one, %s with the SHA-256 %s, "+
				"and none that was taken here: without signing keys anybody who can write to the store may have made it. When you "+
				"know its SHA-256 from elsewhere, name it in spec.recovery.snapshot.sha256", j.snapshot, j.target.where,
				j.last.Name, j.last.SHA256)
		}
		return metadata, nil
	}
	if len(keys) > 0 {
		all, err := backup.Good(ctx, store, j.target.directory, j.target.authority, nil)
		if err != nil {
			return backup.Metadata{}, fmt.Errorf("%w: %w", backup.ErrStore, err)
		}
		if slices.ContainsFunc(all, func(m backup.Metadata) bool { return m.Name == j.snapshot }) {
			return backup.Metadata{}, fmt.Errorf("snapshot %s in %s is not signed with any key of "+
				"spec.backup.encryptionKeyRef: anybody who can write to the store may have made it. When you know its "+
				"SHA-256 from elsewhere, name it in spec.recovery.snapshot.sha256", j.snapshot, j.target.where)
		}
	}
	if len(good) == 0 {
		return backup.Metadata{}, fmt.Errorf("%s has no good snapshot of this cluster in %s", j.target.where,
			j.target.directory)
	}
	return backup.Metadata{},
		fmt.Errorf("%s has no good snapshot %s of this cluster in %s; the newest of %d is %s: name one of them under "+
			"another id",
			j.target.where, j.snapshot, j.target.directory, len(good), good[0].Name)
}

// makeData fetches the snapshot, which is checked on the way, and makes a member's data of it.
func (j deliveryJob) makeData(
	ctx context.Context, store backup.Store, metadata backup.Metadata, peer recovery.Peer, workspace string,
) (string, error) {
	file, err := os.OpenFile(filepath.Join(workspace, "snapshot.db"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("making a file for the snapshot in the spool directory: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := backup.Fetch(ctx, store, j.target.directory, metadata, file, j.identities...); err != nil {
		return "", err
	}
	data := filepath.Join(workspace, "data")
	// A token that is the same in each attempt, so that what the host has of an earlier one may be what it needs.
	member := restore.Member{Name: peer.Name, PeerURL: peer.URL, DataDirectory: data, Token: "quoin-" + j.recoveryID +
		"-" + metadata.SnapshotSHA256}
	if err := restore.Restore(file.Name(), member); err != nil {
		return "", err
	}
	return data, os.Remove(file.Name())
}

// filesOf are the files of a data directory with their checksums, the smallest first.
func filesOf(directory string) (files []recovery.File, closeAll func(), err error) {
	var opened []*os.File
	closeAll = func() {
		for _, file := range opened {
			_ = file.Close()
		}
	}
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		opened = append(opened, file)
		digest := sha256.New()
		size, err := io.Copy(digest, file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(directory, path)
		files = append(files, recovery.File{Name: filepath.ToSlash(name), Content: file, Size: size,
			SHA256: hex.EncodeToString(digest.Sum(nil))})
		return err
	})
	if err != nil {
		return nil, closeAll, fmt.Errorf("reading the data that were made of the snapshot: %w", err)
	}
	slices.SortFunc(files, func(a, b recovery.File) int {
		if a.Size != b.Size {
			return int(min(max(a.Size-b.Size, -1), 1))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return files, closeAll, nil
}

// send brings the data to the host. A connection that breaks is made again.
func (j deliveryJob) send(ctx context.Context, data recovery.Delivery) (recovery.Snapshot, error) {
	for attempt := 1; ; attempt++ {
		err := j.sendOnce(ctx, data)
		if err == nil {
			return data.Snapshot(), nil
		}
		if attempt == sendings || ctx.Err() != nil || !ssh.IsTransient(err) {
			return recovery.Snapshot{}, err
		}
		pause := time.NewTimer(sendingEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return recovery.Snapshot{}, err
		}
	}
}

func (j deliveryJob) sendOnce(ctx context.Context, data recovery.Delivery) error {
	conn, err := j.connect(ctx)
	if err != nil {
		return err
	}
	guard, err := serves(ctx, conn, j.host)
	if err != nil {
		return err
	}
	return recovery.Deliver(ctx, guard.On(conn), data)
}

// deliveredIn is where what is delivered for a recovery lies on its host.
func deliveredIn(recoveryID string) string {
	return recovery.Directory(infrav1.RecoverOperation(recoveryID))
}

// errServes says that a host does not serve the Machine any more, or not yet in this management cluster.
var errServes = errors.New("the host does not say that it serves the Machine")

// serves asks a host whether it serves the claim that it is thought to, and ties to that what follows: nothing is
// written on another's host.
func serves(ctx context.Context, conn ssh.Host, host *infrav1.QuoinHost) (owner.Guard, error) {
	// Read after the guard's own look: whoever writes a record in between has changed what the guard compares.
	guard, checked := owner.Store{}.Guard(ctx, conn, hostaccess.OwnerRecord(host))
	ref := host.Spec.ConsumerRef
	record, err := owner.Read(ctx, conn)
	switch {
	case err != nil:
		return guard, err
	case ref == nil || record == nil || record.Released() || record.UID != ref.Claim ||
		record.Namespace != host.Namespace || record.Host != host.Name:
		return guard, errServes
	}
	return guard, checked
}

// discardFrom removes what was delivered. Of a host that serves another the reset has removed it, and one that another
// management cluster has is left to that.
func discardFrom(ctx context.Context, conn ssh.Host, host *infrav1.QuoinHost, id string) error {
	guard, err := serves(ctx, conn, host)
	if err == nil {
		err = recovery.Discard(ctx, guard.On(conn), id)
	}
	var stale *owner.StaleError
	if errors.Is(err, errServes) || errors.As(err, &stale) {
		return nil
	}
	return err
}
