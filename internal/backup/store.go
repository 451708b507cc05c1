// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps snapshots of etcd away from the hosts that they protect.
//
// A snapshot is two files in a store: the data, which is what etcd sent and perhaps encrypted, and beside it a sidecar
// with its metadata. The sidecar is written last, after the data was opened, stored, read back and found the same. A
// snapshot is good when it has a sidecar that fits it, so whatever was cut off in between is never taken for one. All
// that is known of snapshots can be read from the store again: an object that lost its status, by a move to another
// management cluster for one, loses no snapshot.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// Store keeps files by their names, which are slash-separated paths.
type Store interface {
	// Put stores what r yields. Until it returned without an error nobody sees the file, and afterwards it is there
	// although the power fails. An error of r is returned and nothing is stored. Memory stays bounded whatever the length.
	Put(ctx context.Context, name string, r io.Reader) error
	// List returns the files directly in a directory, in no order; none when there is no such directory.
	List(ctx context.Context, directory string) ([]File, error)
	// Open reads a file. An absent one is fs.ErrNotExist, from here or from the first Read.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete removes a file; an absent one is no error.
	Delete(ctx context.Context, name string) error
	// Sweep removes what interrupted Puts into a directory left before a time. List shows nothing of it.
	Sweep(ctx context.Context, directory string, before time.Time) error
}

// File of a Store.
type File struct {
	// Name is the last element of the path.
	Name string
	// Size in bytes.
	Size int64
}

// roomed is a Store that knows how many bytes fit into it.
type roomed interface {
	Room() (int64, error)
}

// errName refuses a name that is not a path inside of a store.
var errName = errors.New("not a relative path of plain elements")

// validName refuses names that could lead out of a store, and hidden ones, which are the store's own.
func validName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
		return fmt.Errorf("%q: %w", name, errName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return fmt.Errorf("%q: %w", name, errName)
		}
	}
	return nil
}
