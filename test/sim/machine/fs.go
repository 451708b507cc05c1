// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// FS is the file tree as a test sees it: as root, from outside, also while the machine is off.
type FS struct{ m *Machine }

// FS gives the file tree.
func (m *Machine) FS() *FS { return &FS{m} }

func pathErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// ReadFile returns a copy of a file's content.
func (f *FS) ReadFile(path string) ([]byte, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	at, err := f.m.get(rootCred, path, follow)
	if err == nil && at.n.isDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathErr("open", path, err)
	}
	return append([]byte(nil), f.m.content(at.n, nil)...), nil
}

// Text is ReadFile for tests: the content, or empty when there is none.
func (f *FS) Text(path string) string {
	content, _ := f.ReadFile(path)
	return string(content)
}

// Exists says whether something lies there, a dangling link included.
func (f *FS) Exists(path string) bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	_, err := f.m.get(rootCred, path, 0)
	return err == nil
}

// Lstat says what lies there.
func (f *FS) Lstat(path string) (Stat, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	at, err := f.m.get(rootCred, path, 0)
	if err != nil {
		return Stat{}, pathErr("lstat", path, err)
	}
	return statOf(at), nil
}

// WriteFile writes a file, whatever the disk says, and makes its directories.
func (f *FS) WriteFile(path string, file File) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	full := f.m.full
	f.m.full = false
	defer func() { f.m.full = full }()
	return pathErr("write", path, f.m.put(path, file))
}

// put is WriteFile without the lock.
func (m *Machine) put(path string, file File) error {
	if err := m.mkdirAll(rootCred, dirName(path), 0o755); err != nil {
		return err
	}
	if file.Mode.IsDir() {
		if err := m.mkdirAll(rootCred, path, file.Mode.Perm()); err != nil {
			return err
		}
		return m.chown(rootCred, path, file.UID, file.GID, 0)
	}
	how := own | follow
	if file.Mode&os.ModeSymlink != 0 {
		how = own
	}
	at, err := m.look(rootCred, path, how)
	if err != nil {
		return err
	}
	if at.n == nil {
		if at.n, err = m.create(rootCred, at, file.Mode); err != nil {
			return err
		}
	}
	if at.n.dyn != nil {
		return syscall.EPERM
	}
	at.n.mode = file.Mode
	if file.Mode == 0 {
		at.n.mode = 0o644
	}
	at.n.uid, at.n.gid = int32(file.UID), int32(file.GID)
	at.n.data, at.n.ours = file.Content, false
	return nil
}

func (f *FS) mustWrite(path string, file File) {
	if err := f.WriteFile(path, file); err != nil {
		panic(err)
	}
}

// Remove takes away a file or a directory with everything below; nothing there is fine. Mounts stay.
func (f *FS) Remove(path string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return pathErr("remove", path, f.m.removeAll(rootCred, path))
}

func (m *Machine) removeAll(c *cred, path string) error {
	at, err := m.get(c, path, 0)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	if !at.n.isDir() {
		return m.remove(c, path, false)
	}
	for _, name := range at.n.names(m) {
		if err := m.removeAll(c, path+"/"+name); err != nil {
			return err
		}
	}
	return m.remove(c, path, true)
}

// List walks a directory and returns the paths of everything below that is not a directory, sorted.
func (f *FS) List(path string) []string {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	var out []string
	var walk func(path string)
	walk = func(path string) {
		at, err := f.m.get(rootCred, path, 0)
		switch {
		case err != nil:
		case !at.n.isDir():
			out = append(out, path)
		default:
			for _, name := range at.n.names(f.m) {
				walk(strings.TrimSuffix(path, "/") + "/" + name)
			}
		}
	}
	walk(path)
	return out
}

// SetFull makes the system disk full: what is there can be read, overwritten and removed, nothing can grow.
func (f *FS) SetFull(full bool) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.full = full
}

// Stat is what is known of a file.
type Stat struct {
	// Path is the place with every link resolved but the last.
	Path     string
	Mode     os.FileMode
	Size     int64
	UID, GID int
	Inode    uint32
	Links    int
	ModTime  time.Time
	node     *node
}

func statOf(at place) Stat {
	n := at.n
	size := int64(len(n.data))
	if n.isDir() {
		size = 4096
	}
	return Stat{Path: at.path, Mode: n.mode, Size: size, UID: int(n.uid), GID: int(n.gid), Inode: n.ino, Links: int(n.nlink),
		ModTime: time.Unix(0, n.mtime), node: n}
}

func dirName(path string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	switch {
	case i > 0:
		return strings.TrimRight(path[:i], "/") + map[bool]string{true: "/"}[strings.Trim(path[:i], "/") == ""]
	case i == 0 || path == "":
		return "/"
	}
	return "."
}

func baseName(path string) string {
	trimmed := strings.TrimRight(path, "/")
	if trimmed == "" && path != "" {
		return "/"
	}
	return trimmed[strings.LastIndexByte(trimmed, '/')+1:]
}
