// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
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
			if err != nil && (!o.on("i") || !errors.Is(err, syscall.ENOTEMPTY)) {
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
			if err != nil && (!o.on("f") || !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR)) {
				code = p.Fail("cannot remove '%s': %s", name, errText(err))
			}
		}
		return code
	})
	simple("mv", "fTn", map[string]string{"force": "f", "no-target-directory": "T"}, moveCommand)
	simple("cp", "afrRpTPdL", map[string]string{"archive": "a", "recursive": "r", "force": "f", "no-target-directory": "T", "preserve": "p", "reflink": "x:", "no-dereference": "P", "remove-destination": "f"}, copyCommand)
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
			if _, err := p.open(name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil && !errors.Is(err, syscall.EISDIR) {
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
			if errors.Is(err, syscall.EEXIST) {
				continue
			}
			if err != nil {
				return p.Fail("failed to create via template '%s': %s", name, errText(err))
			}
			return p.say(path + "\n")
		}
	})
	simple("sync", "df", map[string]string{"data": "d", "file-system": "f"}, func(p *Process, _ options, args []string) int {
		for _, name := range args {
			if _, err := p.Stat(name); err != nil {
				return p.Fail("error opening '%s': %s", name, errText(err))
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
	var path *os.PathError
	if errors.As(err, &path) {
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
