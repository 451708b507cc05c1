// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// ErrDamaged is what every snapshot is refused with that does not hold a whole etcd database.
var ErrDamaged = errors.New("the snapshot is damaged")

// Names in etcd's database (etcd's server/storage/schema/bucket.go and constants.go).
const (
	keyBucket     = "key"
	metaBucket    = "meta"
	membersBucket = "members"
	clusterBucket = "cluster"
)

// Database is what was read of a snapshot.
type Database struct {
	// Revision of the newest entry, or of the last compaction; Entries is how many revisions of keys there are.
	Revision, Entries int64
}

// inspect reads every page that can be reached in a snapshot, and asks that it be an etcd database. The digest at the
// end of the file is not its business. tick is called again and again.
//
// bbolt believes what it reads: a damaged page makes it panic, or follow an offset out of the file. Its own check
// (tx_check.go) does that in a goroutine of its own, which takes the process down; walking in this one can be survived.
func inspect(file *os.File, size int64, tick func()) (database Database, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, panicked)
		}
	}()
	db, err := bolt.Open(file.Name(), 0o400, &bolt.Options{ReadOnly: true,
		// The file has no name any more.
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return duplicate(file) },
	})
	if err != nil {
		return Database{}, notDatabase(err)
	}
	defer func() { _ = db.Close() }()
	// An etcd that nothing was written to is at revision 1.
	database.Revision = 1
	reading := &walker{Database: &database, tick: tick}
	err = db.View(func(tx *bolt.Tx) error {
		if tx.Size() > size {
			return fmt.Errorf("%w: the database has %d bytes, and %d of them are there", ErrDamaged, tx.Size(), size)
		}
		for _, name := range []string{keyBucket, metaBucket, membersBucket, clusterBucket} {
			if tx.Bucket([]byte(name)) == nil {
				return fmt.Errorf("%w: it is no database of etcd: it has no bucket %q", ErrDamaged, name)
			}
		}
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			return reading.walk(string(name), bucket)
		})
	})
	return database, err
}

// notDatabase tells a damaged file from one that could not be opened.
func notDatabase(err error) error {
	var failed syscall.Errno
	if errors.As(err, &failed) {
		return fmt.Errorf("opening the snapshot: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// revisionLength is that of the keys of the bucket "key": two numbers of eight bytes and a separator; a tombstone's has
// one byte more (etcd's server/storage/mvcc/revision.go).
const revisionLength = 17

// walker reads a database.
type walker struct {
	*Database
	tick func()
	// last makes sure that what is read is not optimized away.
	last byte
}

func (d *walker) walk(name string, bucket *bolt.Bucket) error {
	var previous []byte
	count := 0
	err := bucket.ForEach(func(key, value []byte) error {
		if count++; count%1024 == 1 {
			d.tick()
		}
		if count > 1 && bytes.Compare(previous, key) >= 0 {
			return fmt.Errorf("%w: bucket %q is out of order at %x", ErrDamaged, name, key)
		}
		previous = append(previous[:0], key...)
		// A value may lie on many pages, of which finding it touched the first only.
		for i := len(value) - 1; i >= 0; i -= os.Getpagesize() {
			d.last ^= value[i]
		}
		if name != keyBucket {
			return nil
		}
		if len(key) < revisionLength || len(key) > revisionLength+1 || key[8] != '_' || value == nil {
			return fmt.Errorf("%w: %x is no revision", ErrDamaged, key)
		}
		d.Entries++
		d.Revision = max(d.Revision, int64(binary.BigEndian.Uint64(key[:8]))) //nolint:gosec // etcd's revisions are int64
		return nil
	})
	if err != nil || name != metaBucket {
		return err
	}
	// After a compaction everything may be gone but the number.
	for _, compacted := range []string{"finishedCompactRev", "scheduledCompactRev"} {
		if value := bucket.Get([]byte(compacted)); len(value) >= 8 {
			d.Revision = max(d.Revision, int64(binary.BigEndian.Uint64(value[:8]))) //nolint:gosec // etcd's revisions are int64
		}
	}
	return nil
}
