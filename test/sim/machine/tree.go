// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"syscall"
)

// The changes of the tree. mu is held in all of them.

func (m *Machine) make(mode os.FileMode, c *cred) *node {
	m.inode++
	return &node{mode: mode, uid: int32(c.uid), gid: int32(c.gid), ino: m.inode, nlink: 1, mtime: m.o.Clock().Add(m.offset).UnixNano(), ours: true}
}

// spare says why nothing can be added at a place.
func (m *Machine) spare(at place) error {
	if m.full && !at.volatile {
		return syscall.ENOSPC
	}
	return nil
}

func (m *Machine) changeable(at place, c *cred) error {
	if at.dir != nil && !c.may(at.dir, writeBit) {
		return syscall.EACCES
	}
	return nil
}

// create makes a file at a free place.
func (m *Machine) create(c *cred, at place, mode os.FileMode) (*node, error) {
	if at.dir.dyn != nil {
		return nil, syscall.EPERM
	}
	if err := m.changeable(at, c); err != nil {
		return nil, err
	}
	n := m.make(mode, c)
	at.dir.set(at.name, n)
	at.dir.mtime = n.mtime
	return n, nil
}

func (m *Machine) mkdir(c *cred, path string, perm os.FileMode) error {
	at, err := m.look(c, path, own)
	switch {
	case err != nil:
		return err
	case at.n != nil:
		return syscall.EEXIST
	}
	if err := m.spare(at); err != nil {
		return err
	}
	_, err = m.create(c, at, os.ModeDir|perm&^c.umask)
	return err
}

func (m *Machine) mkdirAll(c *cred, path string, perm os.FileMode) error {
	if at, err := m.look(c, path, follow); err == nil && at.n != nil {
		if at.n.isDir() {
			return nil
		}
		return syscall.ENOTDIR
	}
	if path == "/" || path == "" {
		return nil
	}
	if err := m.mkdirAll(c, dirName(path), 0o777); err != nil {
		return err
	}
	// A link that leads nowhere exists.
	return m.mkdir(c, path, perm)
}

func (m *Machine) symlink(c *cred, target, path string) error {
	at, err := m.look(c, path, own)
	switch {
	case err != nil:
		return err
	case at.n != nil:
		return syscall.EEXIST
	}
	n, err := m.create(c, at, os.ModeSymlink|0o777)
	if err == nil {
		n.data = []byte(target)
	}
	return err
}

func (m *Machine) link(c *cred, from, to string) error {
	src, err := m.get(c, from, own)
	if err != nil {
		return err
	}
	if src.n.isDir() {
		return syscall.EPERM
	}
	at, err := m.look(c, to, own)
	switch {
	case err != nil:
		return err
	case at.n != nil:
		return syscall.EEXIST
	}
	if err := m.changeable(at, c); err != nil {
		return err
	}
	src.n.nlink++
	at.dir.set(at.name, src.n)
	return nil
}

// remove takes away a file, or an empty directory when dir is set.
func (m *Machine) remove(c *cred, path string, dir bool) error {
	at, err := m.get(c, path, own)
	if err != nil {
		return err
	}
	switch {
	case at.dir == nil || at.n.busy:
		return syscall.EBUSY
	case at.n.isDir() && !dir:
		return syscall.EISDIR
	case !at.n.isDir() && dir:
		return syscall.ENOTDIR
	case at.n.isDir() && len(at.n.names(m)) > 0:
		return syscall.ENOTEMPTY
	}
	if _, ok := at.dir.find(at.name); !ok {
		return syscall.EPERM
	}
	if err := m.changeable(at, c); err != nil {
		return err
	}
	at.dir.drop(at.name)
	at.n.nlink--
	return nil
}

func (m *Machine) rename(c *cred, from, to string) error {
	src, err := m.get(c, from, own)
	if err != nil {
		return err
	}
	dst, err := m.look(c, to, own)
	if err != nil {
		return err
	}
	if src.dir == nil || src.n.busy {
		return syscall.EBUSY
	}
	if err := m.changeable(src, c); err != nil {
		return err
	}
	if err := m.changeable(dst, c); err != nil {
		return err
	}
	if dst.n == src.n {
		return nil
	}
	if dst.n != nil {
		switch {
		case dst.n.isDir() && !src.n.isDir():
			return syscall.EISDIR
		case !dst.n.isDir() && src.n.isDir():
			return syscall.ENOTDIR
		case dst.n.busy:
			return syscall.EBUSY
		case dst.n.isDir() && len(dst.n.kids) > 0:
			return syscall.ENOTEMPTY
		}
		dst.n.nlink--
	}
	// A directory must not move below itself.
	if src.n.isDir() && len(dst.path) > len(src.path) && dst.path[:len(src.path)+1] == src.path+"/" {
		return syscall.EINVAL
	}
	src.dir.drop(src.name)
	dst.dir.set(dst.name, src.n)
	return nil
}

func (m *Machine) chmod(c *cred, path string, mode os.FileMode) error {
	at, err := m.get(c, path, own|follow)
	if err != nil {
		return err
	}
	if c.uid != 0 && c.uid != int(at.n.uid) {
		return syscall.EPERM
	}
	const bits = os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky
	at.n.mode = at.n.mode&^bits | mode&bits
	return nil
}

func (m *Machine) chown(c *cred, path string, uid, gid int, how lookup) error {
	at, err := m.get(c, path, own|how)
	if err != nil {
		return err
	}
	if c.uid != 0 && (uid != c.uid || c.uid != int(at.n.uid)) {
		return syscall.EPERM
	}
	if uid >= 0 {
		at.n.uid = int32(uid)
	}
	if gid >= 0 {
		at.n.gid = int32(gid)
	}
	return nil
}

// content is what reading a file gives.
func (m *Machine) content(n *node, p *Process) []byte {
	if n.dyn != nil && n.dyn.read != nil {
		return []byte(n.dyn.read(m, p))
	}
	return n.data
}
