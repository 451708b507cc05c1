// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func init() {
	simple("mkdir", "pm:", map[string]string{"parents": "p", "mode": "m"}, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			var err error
			perm := os.FileMode(0o777)
			if o.on("p") {
				err = p.MkdirAll(name, perm)
			} else {
				p.enter()
				err = p.Machine.mkdir(&p.cred, name, perm)
				p.leave()
			}
			if err == nil && o.on("m") {
				err = p.chmodText(name, o.last("m"))
			}
			if err != nil {
				code = p.Fail("cannot create directory '%s': %s", name, errText(err))
			}
		}
		return code
	})
	simple("rmdir", "p", map[string]string{"ignore-fail-on-non-empty": "i"}, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			p.enter()
			err := p.Machine.remove(&p.cred, name, true)
			p.leave()
			if err != nil && !(o.on("i") && err == syscall.ENOTEMPTY) {
				code = p.Fail("failed to remove '%s': %s", name, errText(err))
			}
		}
		return code
	})
	simple("rm", "rRfdv", map[string]string{"recursive": "r", "force": "f", "one-file-system": "x"}, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			var err error
			if o.on("r") || o.on("R") {
				err = p.removeTree(name)
			} else {
				p.enter()
				err = p.Machine.remove(&p.cred, name, false)
				p.leave()
			}
			if err != nil && !(o.on("f") && (err == syscall.ENOENT || err == syscall.ENOTDIR)) {
				code = p.Fail("cannot remove '%s': %s", name, errText(err))
			}
		}
		return code
	})
	simple("mv", "fTn", map[string]string{"force": "f", "no-target-directory": "T"}, moveCommand)
	simple("cp", "afrRpTPdL", map[string]string{"archive": "a", "recursive": "r", "force": "f", "no-target-directory": "T", "preserve": "p", "reflink": "x:", "no-dereference": "P"}, copyCommand)
	simple("ln", "sfnT", map[string]string{"symbolic": "s", "force": "f"}, func(p *Process, o options, args []string) int {
		if len(args) != 2 {
			return p.unknown("ln of other than two paths")
		}
		to := args[1]
		if st, err := p.Stat(to); err == nil && st.Mode.IsDir() && !o.on("T") && !o.on("n") {
			to += "/" + baseName(args[0])
		}
		p.enter()
		defer p.leave()
		m := p.Machine
		if o.on("f") {
			_ = m.remove(&p.cred, to, false)
		}
		var err error
		if o.on("s") {
			err = m.symlink(&p.cred, args[0], to)
		} else {
			err = m.link(&p.cred, args[0], to)
		}
		if err != nil {
			m.mu.Unlock()
			code := p.Fail("failed to create link '%s': %s", to, errText(err))
			m.mu.Lock()
			return code
		}
		return 0
	})
	simple("touch", "acmhd:r:t:", nil, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			if o.on("c") {
				if _, err := p.Stat(name); err != nil {
					continue
				}
			}
			if _, err := p.open(name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil && err != syscall.EISDIR {
				code = p.Fail("cannot touch '%s': %s", name, errText(err))
			}
		}
		return code
	})
	simple("chmod", "Rf", map[string]string{"recursive": "R"}, func(p *Process, o options, args []string) int {
		if len(args) < 2 {
			return p.Fail("missing operand")
		}
		return p.eachBelow(o.on("R"), args[1:], func(name string) error { return p.chmodText(name, args[0]) })
	})
	simple("chown", "Rhf", map[string]string{"recursive": "R", "no-dereference": "h"}, func(p *Process, o options, args []string) int {
		if len(args) < 2 {
			return p.Fail("missing operand")
		}
		uid, gid, err := p.ownerOf(args[0])
		if err != nil {
			return p.Fail("%v", err)
		}
		how := follow
		if o.on("h") {
			how = 0
		}
		return p.eachBelow(o.on("R"), args[1:], func(name string) error {
			p.enter()
			defer p.leave()
			return p.Machine.chown(&p.cred, name, uid, gid, how)
		})
	})
	simple("mktemp", "dp:tqu", map[string]string{"directory": "d", "tmpdir": "p:"}, func(p *Process, o options, args []string) int {
		name := "tmp.XXXXXXXXXX"
		if len(args) > 0 {
			name = args[0]
		}
		if dir := o.last("p"); dir != "" {
			name = dir + "/" + name
		} else if len(args) == 0 || o.on("t") || o.on("p") {
			name = "/tmp/" + name
		}
		base := strings.TrimRight(name, "X")
		if len(name)-len(base) < 3 {
			return p.Fail("too few X's in template '%s'", name)
		}
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		for {
			path := base
			for range len(name) - len(base) {
				path += string(letters[rand.IntN(len(letters))])
			}
			var err error
			if o.on("d") {
				p.enter()
				err = p.Machine.mkdir(&p.cred, path, 0o700)
				p.leave()
			} else {
				_, err = p.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			}
			if err == syscall.EEXIST {
				continue
			}
			if err != nil {
				return p.Fail("failed to create via template '%s': %s", name, errText(err))
			}
			return p.say(path + "\n")
		}
	})
	simple("sync", "df", map[string]string{"data": "d", "file-system": "f"}, func(p *Process, _ options, args []string) int {
		p.enter()
		fails := p.Machine.syncFail
		p.leave()
		for _, name := range args {
			if _, err := p.Stat(name); err != nil {
				return p.Fail("error opening '%s': %s", name, errText(err))
			}
			if fails {
				return p.Fail("error syncing '%s': Input/output error", name)
			}
		}
		return 0
	})
	simple("install", "dDm:o:g:Tv", map[string]string{"directory": "d", "mode": "m", "owner": "o", "group": "g"}, installCommand)
	simple("cmp", "s", map[string]string{"silent": "s", "quiet": "s"}, func(p *Process, o options, args []string) int {
		if len(args) != 2 {
			return p.unknown("cmp of other than two files")
		}
		a, err := p.slurp(args[0])
		if err == nil {
			var b []byte
			if b, err = p.slurp(args[1]); err == nil {
				if bytes.Equal(a, b) {
					return 0
				}
				if !o.on("s") {
					p.Printf("%s %s differ\n", args[0], args[1])
				}
				return 1
			}
		}
		if !o.on("s") {
			p.Fail("%s", errText(err))
		}
		return 2
	})
	simple("truncate", "s:c", map[string]string{"size": "s"}, func(p *Process, o options, args []string) int {
		n, err := strconv.Atoi(o.last("s"))
		if err != nil {
			return p.unknown("truncate -s %s", o.last("s"))
		}
		for _, name := range args {
			old, _ := p.ReadFile(name)
			if len(old) < n {
				old = append(old, make([]byte, n-len(old))...)
			}
			if err := p.writeOver(name, old[:n]); err != nil {
				return p.Fail("cannot open '%s': %s", name, errText(err))
			}
		}
		return 0
	})
}

// removeTree removes with everything below, and goes on after what cannot be removed.
func (p *Process) removeTree(name string) error {
	st, err := p.Lstat(name)
	if err != nil {
		return unwrapPath(err)
	}
	var failed error
	if st.Mode.IsDir() {
		names, err := p.ReadDir(name)
		if err != nil {
			return unwrapPath(err)
		}
		for _, child := range names {
			if err := p.removeTree(name + "/" + child); err != nil {
				failed = err
			}
		}
	}
	if failed != nil {
		return failed
	}
	p.enter()
	defer p.leave()
	return p.Machine.remove(&p.cred, name, st.Mode.IsDir())
}

func unwrapPath(err error) error {
	if path, ok := err.(*os.PathError); ok {
		return path.Err
	}
	return err
}

func (p *Process) eachBelow(recursive bool, names []string, body func(string) error) int {
	code := 0
	for _, name := range names {
		if err := body(name); err != nil {
			code = p.Fail("cannot access '%s': %s", name, errText(err))
			continue
		}
		if !recursive {
			continue
		}
		if st, err := p.Lstat(name); err == nil && st.Mode.IsDir() {
			children, _ := p.ReadDir(name)
			for _, child := range children {
				if c := p.eachBelow(true, []string{name + "/" + child}, body); c != 0 {
					code = c
				}
			}
		}
	}
	return code
}

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
				if err = p.copyTree(from, target, true, true); err == nil {
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
		if err := p.copyTree(source, target, recursive, keep); err != nil {
			code = p.Fail("cannot copy '%s' to '%s': %s", from, target, errText(err))
		}
	}
	return code
}

// copyTree copies without following links; keep brings modes, owners and times along.
func (p *Process) copyTree(from, to string, recursive, keep bool) error {
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
		if err != nil && err != syscall.EEXIST {
			return err
		}
		names, err := p.ReadDir(from)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := p.copyTree(from+"/"+name, to+"/"+name, recursive, keep); err != nil {
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

var _ = time.Now
