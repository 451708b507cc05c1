// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"time"

	"filippo.io/age"
)

// StallTimeout ends a snapshot of which nothing moved for so long: no byte from etcd, none to the store, none back.
const StallTimeout = 5 * time.Minute

// cleanupTimeout bounds what is done after a snapshot has failed.
const cleanupTimeout = time.Minute

// ErrStore is every failure of the store in Take.
var ErrStore = errors.New("the store failed")

func ofStore(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// Stream is a snapshot as a member of etcd sends it: its database, and behind it the SHA-256 of that.
type Stream struct {
	io.ReadCloser
	// Size of the database in bytes, for the free space; unknown when 0.
	Size int64
	// Revision that the snapshot holds at least.
	Revision int64
	// Node whose member sends it, and etcd's version there.
	Node, Version string
}

// Job is one snapshot to be taken.
type Job struct {
	Store Store
	// Directory in the store.
	Directory string
	// Authority is the SHA-256 of etcd's authority, in hexadecimal.
	Authority string
	// Source opens the stream.
	Source func(context.Context) (Stream, error)
	// Recipients that it is encrypted to; it is stored in the clear when there are none.
	Recipients Recipients
	// Signing keys, of which the first one signs the sidecar; none for no signature.
	Signing SigningKeys
	// Spool is a directory with room for one snapshot; the system's for temporary files when empty. What lies there has no
	// name, and is gone with the process.
	Spool string
	// Began is now.
	Began time.Time
	// Stall is StallTimeout when 0.
	Stall time.Duration
}

// Take takes a snapshot and returns what its sidecar says. On an error there is none, and nothing of it is left but
// what Prune removes later.
//
// The member is done with once the spool holds the stream: however slow the store, etcd keeps old pages no longer than
// that. The spool is opened as a database before anything is stored; what was stored is then read back to its last byte
// and has the digest of what was opened. So it is proved also of what is encrypted, which nobody here can read.
func Take(ctx context.Context, job Job) (_ Metadata, err error) {
	stall := job.Stall
	if stall == 0 {
		stall = StallTimeout
	}
	ctx, progress, stop := watch(ctx, stall)
	defer stop()
	defer func() {
		// What was canceled says so in many words; the cause says why.
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
	}()
	metadata := Metadata{Format: Format, Authority: job.Authority, Time: job.Began.UTC().Truncate(time.Second),
		Recipients: job.Recipients.names()}
	metadata.Name = newName(metadata.Time, len(job.Recipients) > 0)

	spool, err := newSpool(job.Spool)
	if err != nil {
		return Metadata{}, err
	}
	defer func() { _ = spool.Close() }()
	if err := receive(ctx, job, spool, &metadata, progress); err != nil {
		return Metadata{}, err
	}
	name := path.Join(job.Directory, metadata.Name)
	if err := job.Store.Put(ctx, name+pendingSuffix, bytes.NewReader([]byte("{}\n"))); err != nil {
		return Metadata{}, ofStore(err)
	}
	if err := store(ctx, job, spool, &metadata, progress); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		return Metadata{}, errors.Join(err, discard(cleanup, job.Store, name))
	}
	// The snapshot is good from here on: a mark that stays does it no harm.
	_ = job.Store.Delete(ctx, name+pendingSuffix)
	return metadata, nil
}

// receive fetches the stream into the spool and opens it.
func receive(ctx context.Context, job Job, spool *os.File, metadata *Metadata, progress *watchdog) error {
	stream, err := job.Source(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	progress.tick()
	metadata.Node, metadata.EtcdVersion = stream.Node, stream.Version
	free, err := room(spool)
	if err != nil {
		return err
	}
	if err := needRoom("spool directory", stream.Size, free); err != nil {
		return err
	}
	if roomed, ok := job.Store.(roomed); ok {
		if free, err = roomed.Room(); err != nil {
			return ofStore(err)
		}
		if err := needRoom("store", stream.Size, free); err != nil {
			return err
		}
	}
	whole := sha256.New()
	size, err := io.Copy(io.MultiWriter(spool, whole), progress.reader(withContext(ctx, stream)))
	if err != nil {
		return fmt.Errorf("receiving the snapshot after %d bytes: %w", size, err)
	}
	if err := stream.Close(); err != nil {
		return fmt.Errorf("receiving the snapshot: %w", err)
	}
	metadata.Size, metadata.SnapshotSHA256 = size, hex.EncodeToString(whole.Sum(nil))
	database, err := verify(spool, size, progress)
	if err != nil {
		return err
	}
	if database.Revision < stream.Revision {
		return fmt.Errorf("%w: it ends at revision %d, and the member had %d before it was asked", ErrDamaged,
			database.Revision, stream.Revision)
	}
	metadata.Revision, metadata.Entries = database.Revision, database.Entries
	return nil
}

// verify compares a snapshot with the digest at its end, and opens it.
func verify(snapshot *os.File, size int64, progress *watchdog) (Database, error) {
	// Pages are multiples of 512 bytes: any other length has no digest behind them (etcd's etcdutl/snapshot).
	if size < 512+sha256.Size || size%512 != sha256.Size {
		return Database{}, fmt.Errorf("%w: its length %d is not that of a database and a digest", ErrDamaged, size)
	}
	length := size - sha256.Size
	digest := sha256.New()
	if _, err := io.Copy(digest, progress.reader(io.NewSectionReader(snapshot, 0, length))); err != nil {
		return Database{}, fmt.Errorf("reading the snapshot: %w", err)
	}
	end := make([]byte, sha256.Size)
	if _, err := snapshot.ReadAt(end, length); err != nil {
		return Database{}, fmt.Errorf("reading the snapshot: %w", err)
	}
	if !bytes.Equal(end, digest.Sum(nil)) {
		return Database{}, fmt.Errorf("%w: it does not match the digest that etcd sent with it", ErrDamaged)
	}
	return inspect(snapshot, length, progress.tick)
}

// store writes the data, reads it back, and writes the sidecar.
func store(ctx context.Context, job Job, spool *os.File, metadata *Metadata, progress *watchdog) error {
	name := path.Join(job.Directory, metadata.Name)
	var data io.Reader = io.NewSectionReader(spool, 0, metadata.Size)
	if len(job.Recipients) > 0 {
		encrypted, err := age.EncryptReader(data, job.Recipients...)
		if err != nil {
			return fmt.Errorf("encrypting the snapshot: %w", err)
		}
		data = encrypted
	}
	digest := sha256.New()
	var counted counter
	if err := job.Store.Put(ctx, name, io.TeeReader(progress.reader(data), io.MultiWriter(digest, &counted))); err != nil {
		return ofStore(err)
	}
	metadata.StoredSize, metadata.SHA256 = int64(counted), hex.EncodeToString(digest.Sum(nil))
	// The spool is the only other copy: it is read, as a whole, before this one counts.
	if metadata.SHA256 != metadata.SnapshotSHA256 && len(job.Recipients) == 0 {
		return fmt.Errorf("%w: the spool directory returned other bytes than were written to it", ErrDamaged)
	}
	if err := compare(ctx, job.Store, job.Directory, *metadata, progress); err != nil {
		return err
	}
	*metadata = job.Signing.sign(*metadata)
	sidecar, err := metadata.marshal()
	if err != nil {
		return err
	}
	return ofStore(job.Store.Put(ctx, name+sidecarSuffix, bytes.NewReader(sidecar)))
}

// compare reads the stored data of a snapshot to its end.
func compare(ctx context.Context, from Store, directory string, metadata Metadata, progress *watchdog) error {
	stored, err := from.Open(ctx, path.Join(directory, metadata.Name))
	if err != nil {
		return ofStore(err)
	}
	defer func() { _ = stored.Close() }()
	digest := sha256.New()
	size, err := io.Copy(digest, progress.reader(withContext(ctx, stored)))
	if err != nil {
		return ofStore(fmt.Errorf("reading back %s: %w", metadata.Name, err))
	}
	return metadata.matches(size, digest)
}

// matches reports whether the store returned what was stored.
func (m Metadata) matches(size int64, digest hash.Hash) error {
	if found := hex.EncodeToString(digest.Sum(nil)); size != m.StoredSize || found != m.SHA256 {
		return fmt.Errorf("%w: the store returned %d bytes with SHA-256 %s for %s, and %d with %s were stored",
			ErrDamaged, size, found, m.Name, m.StoredSize, m.SHA256)
	}
	return nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
