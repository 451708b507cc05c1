// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// partialPrefix begins the names of files that are being written.
const partialPrefix = ".quoin-partial-"

// Volume is a Store in a directory. Nothing outside of it can be reached, neither by a name nor by a symbolic link.
type Volume struct {
	root *os.Root
}

var _ Store = (*Volume)(nil)

// OpenVolume opens the directory below the volume's own, and makes it when it is not there. The volume's own directory
// is never made: where it is missing nothing is mounted. Close it.
func OpenVolume(directory, below string) (*Volume, error) {
	if err := ValidatePath(below); err != nil {
		return nil, err
	}
	volume, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("opening the backup directory: %w", err)
	}
	defer func() { _ = volume.Close() }()
	if err := volume.MkdirAll(below, 0o700); err != nil {
		return nil, fmt.Errorf("making %s in the backup directory: %w", below, err)
	}
	root, err := volume.OpenRoot(below)
	if err != nil {
		return nil, fmt.Errorf("opening %s in the backup directory: %w", below, err)
	}
	return &Volume{root: root}, nil
}

// ValidatePath tells what is wrong with the path of a volume store.
func ValidatePath(below string) error {
	if err := validName(below); err != nil {
		return fmt.Errorf("%w, such as clusters/production: no leading slash, no empty or hidden element, no element of dots",
			err)
	}
	return nil
}

// Close releases the directory.
func (v *Volume) Close() error { return v.root.Close() }

// Put writes beside the name and renames: readers see the whole file or none.
func (v *Volume) Put(ctx context.Context, name string, r io.Reader) (err error) {
	if err := validName(name); err != nil {
		return err
	}
	directory, base := path.Split(name)
	directory = path.Clean(directory)
	if err := v.root.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	partial := path.Join(directory, partialPrefix+base)
	file, err := v.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = v.root.Remove(partial)
		}
	}()
	if _, err := io.Copy(file, withContext(ctx, r)); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	// What is read back shall come from the disk, not from memory.
	dropCached(file)
	if err := file.Close(); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	if err := v.root.Rename(partial, name); err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}
	return v.syncDirectory(directory)
}

// syncDirectory makes a rename or a removal last.
func (v *Volume) syncDirectory(directory string) error {
	opened, err := v.root.Open(directory)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	// Some network file systems cannot, and need not.
	if err := opened.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}

// List leaves out hidden files.
func (v *Volume) List(_ context.Context, directory string) ([]File, error) {
	entries, err := v.entries(directory)
	if err != nil {
		return nil, err
	}
	var files []File
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", directory, err)
		}
		files = append(files, File{Name: entry.Name(), Size: info.Size()})
	}
	return files, nil
}

func (v *Volume) entries(directory string) ([]fs.DirEntry, error) {
	if err := validName(directory); err != nil {
		return nil, err
	}
	opened, err := v.root.Open(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", directory, err)
	}
	defer func() { _ = opened.Close() }()
	entries, err := opened.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", directory, err)
	}
	return entries, nil
}

// Open opens a file.
func (v *Volume) Open(_ context.Context, name string) (io.ReadCloser, error) {
	if err := validName(name); err != nil {
		return nil, err
	}
	// Its error is an *fs.PathError and names the file.
	return v.root.Open(name)
}

// Delete removes a file.
func (v *Volume) Delete(_ context.Context, name string) error {
	if err := validName(name); err != nil {
		return err
	}
	if err := v.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes partial files.
func (v *Volume) Sweep(_ context.Context, directory string, before time.Time) error {
	entries, err := v.entries(directory)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), partialPrefix) {
			continue
		}
		if info, err := entry.Info(); err != nil || !info.ModTime().Before(before) {
			continue
		}
		if err := v.root.Remove(path.Join(directory, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Room is how many bytes fit into the volume.
func (v *Volume) Room() (int64, error) {
	directory, err := v.root.Open(".")
	if err != nil {
		return 0, err
	}
	defer func() { _ = directory.Close() }()
	return room(directory)
}

// room is how many bytes an unprivileged user can write where a file is.
func room(file *os.File) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &stat); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", file.Name(), err)
	}
	return int64(stat.Bavail) * int64(stat.Bsize), nil //nolint:gosec,unconvert // types differ by system
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // it bounds the reader, which has no other way to get it
	r   io.Reader
}

func withContext(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
