// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// chmodText takes an octal mode, or clauses such as u+x,go-rwx.
func (p *Process) chmodText(name, text string) error {
	st, err := p.Stat(name)
	if err != nil {
		return err
	}
	mode := st.Mode
	if n, err := strconv.ParseUint(text, 8, 32); err == nil {
		mode = modeBits(uint32(n))
	} else {
		for clause := range strings.SplitSeq(text, ",") {
			i := strings.IndexAny(clause, "+-=")
			if i < 0 {
				return fmt.Errorf("invalid mode: '%s'", text)
			}
			who, op, what := clause[:i], clause[i], clause[i+1:]
			if who == "" || strings.Contains(who, "a") {
				who = "ugo"
			}
			for _, w := range who {
				shift := map[rune]uint{'u': 6, 'g': 3, 'o': 0}[w]
				var bits os.FileMode
				for _, c := range what {
					bits |= map[rune]os.FileMode{'r': 4, 'w': 2, 'x': 1}[c] << shift
				}
				switch op {
				case '+':
					mode |= bits
				case '-':
					mode &^= bits
				default:
					mode = mode&^(7<<shift) | bits
				}
			}
		}
	}
	p.enter()
	defer p.leave()
	return p.Machine.chmod(&p.cred, name, mode)
}

func modeBits(n uint32) os.FileMode {
	mode := os.FileMode(n & 0o777)
	if n&0o4000 != 0 {
		mode |= os.ModeSetuid
	}
	if n&0o2000 != 0 {
		mode |= os.ModeSetgid
	}
	if n&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return mode
}

func modeNumber(mode os.FileMode) uint32 {
	n := uint32(mode.Perm())
	if mode&os.ModeSetuid != 0 {
		n |= 0o4000
	}
	if mode&os.ModeSetgid != 0 {
		n |= 0o2000
	}
	if mode&os.ModeSticky != 0 {
		n |= 0o1000
	}
	return n
}

// into is where a command puts a source: below a directory unless -T says otherwise.
func (p *Process) into(o options, from, to string) string {
	if !o.on("T") {
		if st, err := p.Stat(to); err == nil && st.Mode.IsDir() {
			return strings.TrimRight(to, "/") + "/" + baseName(from)
		}
	}
	return to
}

func moveCommand(p *Process, o options, args []string) int {
	if len(args) < 2 {
		return p.Fail("missing file operand")
	}
	to := args[len(args)-1]
	code := 0
	for _, from := range args[:len(args)-1] {
		target := p.into(o, from, to)
		src, err := p.Lstat(from)
		if err == nil {
			// Another file system takes a copy, as rename(2) says EXDEV there.
			dir, derr := p.Stat(dirName(p.abs(target)))
			if derr == nil && p.device(src.Path) != p.device(dir.Path) {
				if err = p.copyTree(from, target, true); err == nil {
					err = p.removeTree(from)
				}
			} else {
				p.enter()
				err = p.Machine.rename(&p.cred, from, target)
				p.leave()
			}
		}
		if err != nil {
			code = p.Fail("cannot move '%s' to '%s': %s", from, target, errText(err))
		}
	}
	return code
}

func copyCommand(p *Process, o options, args []string) int {
	if len(args) < 2 {
		return p.Fail("missing file operand")
	}
	to := args[len(args)-1]
	recursive, keep := o.on("a") || o.on("r") || o.on("R"), o.on("a") || o.on("p")
	code := 0
	for _, from := range args[:len(args)-1] {
		target := p.into(o, from, to)
		source := from
		if !recursive && !o.on("P") && !o.on("d") {
			if st, err := p.Stat(from); err == nil {
				if st.Mode.IsDir() {
					code = p.Fail("-r not specified; omitting directory '%s'", from)
					continue
				}
				source = st.Path
			}
		}
		if err := p.copyTree(source, target, keep); err != nil {
			code = p.Fail("cannot copy '%s' to '%s': %s", from, target, errText(err))
		}
	}
	return code
}

// copyTree copies without following links; keep brings modes, owners and times along.
func (p *Process) copyTree(from, to string, keep bool) error {
	st, err := p.Lstat(from)
	if err != nil {
		return err
	}
	m := p.Machine
	switch {
	case st.Mode&os.ModeSymlink != 0:
		p.enter()
		defer p.leave()
		_ = m.remove(&p.cred, to, false)
		return m.symlink(&p.cred, string(st.node.data), to)
	case st.Mode.IsDir():
		p.enter()
		err := m.mkdir(&p.cred, to, st.Mode.Perm())
		p.leave()
		if err != nil && !errors.Is(err, syscall.EEXIST) {
			return err
		}
		names, err := p.ReadDir(from)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := p.copyTree(from+"/"+name, to+"/"+name, keep); err != nil {
				return err
			}
		}
	default:
		content, err := p.ReadFile(from)
		if err != nil {
			return err
		}
		if err := p.writeMode(to, content, st.Mode.Perm()); err != nil {
			return err
		}
	}
	if !keep {
		return nil
	}
	p.enter()
	defer p.leave()
	_ = m.chown(&p.cred, to, st.UID, st.GID, 0)
	if at, err := m.get(&p.cred, to, own); err == nil {
		at.n.mtime = st.ModTime.UnixNano()
	}
	return m.chmod(&p.cred, to, st.Mode)
}

func (p *Process) writeMode(name string, content []byte, perm os.FileMode) error {
	f, err := p.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.write(p, content)
	return err
}

func installCommand(p *Process, o options, args []string) int {
	uid, gid := -1, -1
	var err error
	if name := o.last("o"); name != "" {
		uid, _, err = p.ownerOf(name)
	}
	if name := o.last("g"); name != "" && err == nil {
		_, gid, err = p.ownerOf(":" + name)
	}
	if err != nil {
		return p.Fail("%v", err)
	}
	mode := o.last("m")
	if mode == "" {
		mode = "0755"
	}
	finish := func(name string) int {
		err := p.chmodText(name, mode)
		if err == nil {
			p.enter()
			err = p.Machine.chown(&p.cred, name, uid, gid, follow)
			p.leave()
		}
		if err != nil {
			return p.Fail("'%s': %s", name, errText(err))
		}
		return 0
	}
	if o.on("d") {
		for _, name := range args {
			if err := p.MkdirAll(name, 0o755); err != nil {
				return p.Fail("cannot create directory '%s': %s", name, errText(err))
			}
			if code := finish(name); code != 0 {
				return code
			}
		}
		return 0
	}
	if len(args) != 2 {
		return p.unknown("install of several files")
	}
	if o.on("D") {
		_ = p.MkdirAll(dirName(args[1]), 0o755)
	}
	to := p.into(o, args[0], args[1])
	content, err := p.slurp(args[0])
	if err == nil {
		p.enter()
		_ = p.Machine.remove(&p.cred, to, false)
		p.leave()
		err = p.writeMode(to, content, 0o600)
	}
	if err != nil {
		return p.Fail("cannot install '%s': %s", to, errText(err))
	}
	return finish(to)
}
