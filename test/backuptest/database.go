// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backuptest makes what looks like a snapshot of etcd, for tests that need no etcd.
package backuptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// Database is a file as etcd would have it: n keys, at the revisions from 2 on.
func Database(t testing.TB, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error { return fill(tx, n) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func fill(tx *bolt.Tx, n int) error {
	for _, name := range []string{"alarm", "cluster", "key", "members", "meta"} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	for i := range n {
		revision := binary.BigEndian.AppendUint64(nil, uint64(i+2))
		revision = binary.BigEndian.AppendUint64(append(revision, '_'), 0)
		if err := tx.Bucket([]byte("key")).Put(revision, bytes.Repeat([]byte{byte(i)}, 900)); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte("meta")).Put([]byte("finishedCompactRev"), binary.BigEndian.AppendUint64(nil, 1))
}

// Signed is a database as a member sends it, with its digest behind it.
func Signed(db []byte) []byte {
	digest := sha256.Sum256(db)
	return append(bytes.Clone(db), digest[:]...)
}
