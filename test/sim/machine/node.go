// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"sort"
	"strings"
	"syscall"
)

// node is a file, directory, link or device. A frozen node belongs to an Image and is never written: who wants to change
// it gets a copy along the whole path, so that machines share what they leave alone.
type node struct {
	mode   os.FileMode
	uid    int32
	gid    int32
	ino    uint32
	nlink  int32
	frozen bool
	// ours says that data belongs to this node alone and may be written in place.
	ours bool
	// volatile marks the root of a tree that lives in memory: it is never full.
	volatile bool
	// busy marks a directory that is a mount's root.
	busy  bool
	mtime int64
	data  []byte
	kids  []entry
	dyn   *dynamic
	over  *node
}

type entry struct {
	name string
	n    *node
}

// dynamic is what a node of /proc, /sys or /dev says at each look.
type dynamic struct {
	read  func(m *Machine, p *Process) string
	write func(m *Machine, text string) error
	list  func(m *Machine) []string
	child func(m *Machine, name string) *node
}

func (n *node) isDir() bool  { return n.mode.IsDir() }
func (n *node) isLink() bool { return n.mode&os.ModeSymlink != 0 }

func (n *node) find(name string) (int, bool) {
	return sort.Find(len(n.kids), func(i int) int { return strings.Compare(name, n.kids[i].name) })
}

func (n *node) child(m *Machine, name string) *node {
	if i, ok := n.find(name); ok {
		return n.kids[i].n
	}
	if n.dyn != nil && n.dyn.child != nil && m != nil {
		return n.dyn.child(m, name)
	}
	return nil
}

func (n *node) set(name string, child *node) {
	i, ok := n.find(name)
	if ok {
		n.kids[i].n = child
		return
	}
	n.kids = append(n.kids, entry{})
	copy(n.kids[i+1:], n.kids[i:])
	n.kids[i] = entry{strings.Clone(name), child}
}

func (n *node) drop(name string) {
	if i, ok := n.find(name); ok {
		n.kids = append(n.kids[:i], n.kids[i+1:]...)
	}
}

func (n *node) names(m *Machine) []string {
	names := make([]string, 0, len(n.kids))
	for _, e := range n.kids {
		names = append(names, e.name)
	}
	if n.dyn != nil && n.dyn.list != nil {
		names = append(names, n.dyn.list(m)...)
		sort.Strings(names)
	}
	return names
}

func (n *node) thaw() *node {
	if !n.frozen {
		return n
	}
	c := *n
	c.frozen, c.ours = false, false
	c.kids = append([]entry(nil), n.kids...)
	return &c
}

func (n *node) freeze() {
	if n.frozen {
		return
	}
	n.frozen = true
	for _, e := range n.kids {
		e.n.freeze()
	}
}

// cred is on whose behalf a path is walked.
type cred struct {
	uid, gid int
	dir      string
	umask    os.FileMode
}

var rootCred = &cred{dir: "/", umask: 0o022}

const (
	readBit  = 4
	writeBit = 2
	execBit  = 1
)

func (c *cred) may(n *node, bits os.FileMode) bool {
	if c.uid == 0 {
		return bits&execBit == 0 || n.isDir() || n.mode&0o111 != 0
	}
	perm := n.mode.Perm()
	switch {
	case int(n.uid) == c.uid:
		perm >>= 6
	case int(n.gid) == c.gid:
		perm >>= 3
	}
	return perm&bits == bits
}

type lookup uint8

const (
	// follow resolves a link at the end of the path.
	follow lookup = 1 << iota
	// own makes everything on the path this machine's own.
	own
)

// place is where a path leads. Without n the name does not exist in dir.
type place struct {
	dir      *node
	name     string
	n        *node
	path     string
	volatile bool
}

// look walks a path; mu is held. It is an error when a directory on the way is missing, but not when only the last name is.
func (m *Machine) look(c *cred, path string, how lookup) (place, error) {
	if path == "" {
		return place{}, syscall.ENOENT
	}
	if path[0] != '/' {
		path = c.dir + "/" + path
	}
	if how&own != 0 {
		m.root = m.root.thaw()
	}
	type step struct {
		n        *node
		name     string
		volatile bool
	}
	stack := make([]step, 1, 12)
	stack[0] = step{n: m.root}
	rest, links := path, 0
	for {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			break
		}
		name := rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			name, rest = rest[:i], rest[i:]
		} else {
			rest = ""
		}
		last := strings.Trim(rest, "/") == ""
		top := stack[len(stack)-1]
		if !top.n.isDir() {
			return place{}, syscall.ENOTDIR
		}
		switch name {
		case ".":
			continue
		case "..":
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			continue
		}
		if len(name) > 255 {
			return place{}, syscall.ENAMETOOLONG
		}
		if !c.may(top.n, execBit) {
			return place{}, syscall.EACCES
		}
		child := top.n.child(m, name)
		if child == nil {
			if !last {
				return place{}, syscall.ENOENT
			}
			var b strings.Builder
			for _, s := range stack[1:] {
				b.WriteString("/" + s.name)
			}
			b.WriteString("/" + name)
			return place{dir: top.n, name: name, path: b.String(), volatile: top.volatile}, nil
		}
		if child.isLink() && (!last || how&follow != 0 || rest != "") {
			if links++; links > 40 {
				return place{}, syscall.ELOOP
			}
			target := string(child.data)
			if strings.HasPrefix(target, "/") {
				stack = stack[:1]
			}
			rest = target + rest
			continue
		}
		if how&own != 0 && child.frozen {
			child = child.thaw()
			top.n.set(name, child)
		}
		for child.over != nil {
			child = child.over
		}
		stack = append(stack, step{child, name, top.volatile || child.volatile})
	}
	top := stack[len(stack)-1]
	var b strings.Builder
	for _, s := range stack[1:] {
		b.WriteString("/" + s.name)
	}
	at := place{name: top.name, n: top.n, path: b.String(), volatile: top.volatile}
	if at.path == "" {
		at.path = "/"
	}
	if len(stack) > 1 {
		at.dir = stack[len(stack)-2].n
	}
	return at, nil
}

// get is look for what must exist.
func (m *Machine) get(c *cred, path string, how lookup) (place, error) {
	at, err := m.look(c, path, how)
	if err == nil && at.n == nil {
		err = syscall.ENOENT
	}
	return at, err
}
