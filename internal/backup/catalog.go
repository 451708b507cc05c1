// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// abandoned is how old what was cut off must be to be removed. Nobody works on a snapshot for so long.
const abandoned = 24 * time.Hour

// Good returns the good snapshots of one etcd cluster in a directory, newest first. Whatever else lies there is left
// out: files of others, snapshots of another cluster, sidecars that say nothing sensible, data of another length than
// its sidecar says, and, where there are keys, sidecars that none of them signed.
func Good(
	ctx context.Context, store Store, directory, authority string, keys SigningKeys,
) ([]Metadata, error) {
	files, err := store.List(ctx, directory)
	if err != nil {
		return nil, err
	}
	return good(ctx, store, directory, authority, keys, files)
}

func good(
	ctx context.Context, store Store, directory, authority string, keys SigningKeys, files []File,
) ([]Metadata, error) {
	sizes := map[string]int64{}
	for _, file := range files {
		sizes[file.Name] = file.Size
	}
	var found []Metadata
	for _, file := range files {
		name, sidecar := strings.CutSuffix(file.Name, sidecarSuffix)
		size, exists := sizes[name]
		if !sidecar || !exists || !dataName.MatchString(name) || file.Size > maxSidecar {
			continue
		}
		raw, err := read(ctx, store, path.Join(directory, file.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			// Not knowing is not the same as knowing that it is bad: nothing may be concluded from it.
			return nil, err
		}
		metadata, err := ParseMetadata(raw)
		if err != nil || metadata.Name != name || metadata.StoredSize != size || metadata.Authority != authority ||
			!keys.believe(metadata) {
			continue
		}
		found = append(found, metadata)
	}
	slices.SortFunc(found, func(a, b Metadata) int {
		if order := b.Time.Compare(a.Time); order != 0 {
			return order
		}
		return strings.Compare(b.Name, a.Name)
	})
	return found, nil
}

func read(ctx context.Context, store Store, name string) ([]byte, error) {
	file, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxSidecar+1))
}

// Prune deletes the good snapshots of a cluster that the retention does not keep, and what interrupted work left a day
// ago. verified is the snapshot that was just taken: without it being among those that stay, nothing is deleted.
func Prune(
	ctx context.Context, store Store, directory string, verified Metadata, keep Retention, keys SigningKeys,
	now time.Time,
) ([]Metadata, error) {
	files, err := store.List(ctx, directory)
	if err != nil {
		return nil, err
	}
	found, err := good(ctx, store, directory, verified.Authority, keys, files)
	if err != nil {
		return nil, err
	}
	kept := keep.keeps(found, now)
	if i := slices.IndexFunc(found, func(m Metadata) bool { return m.Name == verified.Name }); i < 0 || !kept[i] {
		return found, fmt.Errorf("nothing is deleted: snapshot %s, which was just stored, is not among those of the store "+
			"that would stay", verified.Name)
	}
	var failures []error
	for i := len(found) - 1; i >= 0; i-- {
		if kept[i] {
			continue
		}
		if err := drop(ctx, store, path.Join(directory, found[i].Name)); err != nil {
			failures = append(failures, fmt.Errorf("deleting the old snapshot %s: %w", found[i].Name, err))
			break
		}
		found = slices.Delete(found, i, i+1)
	}
	failures = append(failures, sweep(ctx, store, directory, files, now.Add(-abandoned)))
	return found, errors.Join(failures...)
}

// drop deletes a good snapshot. The mark comes first, so that data that lost its sidecar here is known to be refuse and
// not a snapshot whose sidecar somebody lost.
func drop(ctx context.Context, store Store, name string) error {
	if err := store.Put(ctx, name+pendingSuffix, bytes.NewReader([]byte("{}\n"))); err != nil {
		return err
	}
	return discard(ctx, store, name)
}

// discard deletes marked data: first what makes it good, last the mark.
func discard(ctx context.Context, store Store, name string) error {
	if err := store.Delete(ctx, name+sidecarSuffix); err != nil {
		return err
	}
	if err := store.Delete(ctx, name); err != nil {
		return err
	}
	return store.Delete(ctx, name+pendingSuffix)
}

// sweep removes marked data that no sidecar makes good.
func sweep(ctx context.Context, store Store, directory string, files []File, before time.Time) error {
	exists := map[string]bool{}
	for _, file := range files {
		exists[file.Name] = true
	}
	var failures []error
	for _, file := range files {
		name, pending := strings.CutSuffix(file.Name, pendingSuffix)
		if !pending || !dataName.MatchString(name) {
			continue
		}
		began, err := time.Parse(stampLayout, name[:strings.IndexByte(name, '-')])
		if err != nil || !began.Before(before) {
			continue
		}
		if exists[name+sidecarSuffix] {
			failures = append(failures, store.Delete(ctx, path.Join(directory, file.Name)))
			continue
		}
		failures = append(failures, discard(ctx, store, path.Join(directory, name)))
	}
	return errors.Join(append(failures, store.Sweep(ctx, directory, before))...)
}
