// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// margin is what stays free beside a snapshot on the disks that it goes to.
const margin = 64 << 20

// newSpool makes a file without a name: however this process ends, no snapshot stays behind in the clear.
func newSpool(directory string) (*os.File, error) {
	file, err := os.CreateTemp(directory, "quoin-snapshot-")
	if err != nil {
		return nil, fmt.Errorf("making a file for the snapshot in the spool directory: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("making a file for the snapshot in the spool directory: %w", err)
	}
	return file, nil
}

// duplicate opens a file once more, which may have no name.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s again: %w", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// NoRoomError says that a snapshot does not fit.
type NoRoomError struct {
	// Where it does not fit: the spool directory or the store.
	Where string
	// Need and Free in bytes.
	Need, Free int64
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the %s has %d MiB free and the snapshot needs %d MiB", e.Where, e.Free>>20, (e.Need+1<<20-1)>>20)
}

func needRoom(where string, need, free int64) error {
	if free < need+margin {
		return &NoRoomError{Where: where, Need: need + margin, Free: free}
	}
	return nil
}

// workspaces are what directories of Workspace begin with.
const workspaces = "quoin-restore-"

var makingWorkspace sync.Mutex

// Workspace makes a directory in a spool for what must have names, such as a member's data, and refuses with a
// *NoRoomError where so many bytes have no room. release removes it. What a process that was killed left behind is
// removed by the next Workspace, or by SweepSpool: the lock of a directory ends with its process.
func Workspace(spool string, need int64) (path string, release func(), err error) {
	makingWorkspace.Lock()
	defer makingWorkspace.Unlock()
	if spool == "" {
		spool = os.TempDir()
	}
	sweepSpool(spool)
	if path, err = os.MkdirTemp(spool, workspaces); err != nil {
		return "", nil, fmt.Errorf("making a directory in the spool directory: %w", err)
	}
	lock, err := lockDirectory(path)
	if err != nil {
		_ = os.RemoveAll(path)
		return "", nil, fmt.Errorf("making a directory in the spool directory: %w", err)
	}
	release = func() {
		_ = os.RemoveAll(path)
		_ = lock.Close()
	}
	free, err := room(lock)
	if err == nil {
		err = needRoom("spool directory", need, free)
	}
	if err != nil {
		release()
		return "", nil, err
	}
	return path, release, nil
}

// SweepSpool removes what workspaces of processes that were killed left in a spool: a database in the clear among it.
func SweepSpool(spool string) {
	makingWorkspace.Lock()
	defer makingWorkspace.Unlock()
	if spool == "" {
		spool = os.TempDir()
	}
	sweepSpool(spool)
}

func sweepSpool(spool string) {
	left, _ := filepath.Glob(filepath.Join(spool, workspaces+"*"))
	for _, path := range left {
		if lock, err := lockDirectory(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

func lockDirectory(path string) (*os.File, error) {
	directory, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = directory.Close()
		return nil, err
	}
	return directory, nil
}
