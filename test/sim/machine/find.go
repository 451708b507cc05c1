// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
)

// findCommand knows tests in a row, !, -o without parentheses, and the actions print, delete, exec.
func findCommand(_ context.Context, p *Process) int {
	args := p.Args[1:]
	var roots []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && args[0] != "!" && args[0] != "(" {
		roots = append(roots, args[0])
		args = args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	f := &finder{p: p, max: 1 << 30}
	for len(args) > 0 {
		if args[0] == "-quit" {
			f.tests = append(f.tests, func(string, Stat) bool { f.quit = true; return true })
			args = args[1:]
			continue
		}
		used, bad := f.test(args)
		if bad != "" {
			return p.unknown("find %s", bad)
		}
		args = args[used:]
	}
	f.groups = append(f.groups, f.tests)
	for _, root := range roots {
		st, err := p.Lstat(root)
		if err != nil {
			f.code = p.Fail("'%s': %s", root, errText(err))
			continue
		}
		f.device = p.device(st.Path)
		f.visit(root, st, 0)
	}
	if f.batch != nil && len(f.paths) > 0 {
		if p.Run(append(f.batch, f.paths...)...) != 0 {
			f.code = 1
		}
	}
	return f.code
}

type finder struct {
	p          *Process
	tests      []func(string, Stat) bool
	groups     [][]func(string, Stat) bool
	min, max   int
	oneDevice  bool
	deep       bool
	acts       bool
	quit       bool
	prune      bool
	device     int
	batch      []string
	paths      []string
	code       int
	negateNext bool
}

func (f *finder) test(args []string) (used int, bad string) {
	value := ""
	if len(args) > 1 {
		value = args[1]
	}
	var test func(string, Stat) bool
	used = 2
	switch args[0] {
	case "!", "-not":
		f.negateNext = !f.negateNext
		return 1, ""
	case "-o", "-or":
		f.groups = append(f.groups, f.tests)
		f.tests = nil
		return 1, ""
	case "-a", "-and":
		return 1, ""
	case "-type":
		test = func(_ string, st Stat) bool {
			switch value {
			case "f":
				return st.Mode.IsRegular()
			case "d":
				return st.Mode.IsDir()
			case "l":
				return st.Mode&os.ModeSymlink != 0
			case "s":
				return st.Mode&os.ModeSocket != 0
			case "b":
				return st.Mode&os.ModeDevice != 0 && st.Mode&os.ModeCharDevice == 0
			}
			return false
		}
	case "-name":
		test = func(path string, _ Stat) bool { return matches(value, baseName(path)) }
	case "-path", "-wholename":
		test = func(path string, _ Stat) bool { return matches(value, path) }
	case "-empty":
		used = 1
		test = func(path string, st Stat) bool {
			if st.Mode.IsDir() {
				names, _ := f.p.ReadDir(path)
				return len(names) == 0
			}
			return st.Size == 0
		}
	case "-user", "-uid":
		test = func(_ string, st Stat) bool {
			return strconv.Itoa(st.UID) == value || f.p.Machine.userName(st.UID) == value
		}
	case "-perm":
		test = func(_ string, st Stat) bool {
			n, _ := strconv.ParseUint(strings.TrimLeft(value, "-/"), 8, 32)
			has := uint64(modeNumber(st.Mode))
			switch value[0] {
			case '-':
				return has&n == n
			case '/':
				return has&n != 0
			}
			return has == n
		}
	case "-size":
		test = func(_ string, st Stat) bool {
			n, err := strconv.ParseInt(strings.TrimRight(strings.TrimLeft(value, "+-"), "c"), 10, 64)
			if err != nil {
				f.code = f.p.unknown("find -size %s", value)
			}
			if strings.HasPrefix(value, "+") {
				return st.Size > n
			}
			return st.Size == n
		}
	case "-mindepth":
		f.min, _ = strconv.Atoi(value)
		return 2, ""
	case "-maxdepth":
		f.max, _ = strconv.Atoi(value)
		return 2, ""
	case "-xdev", "-mount":
		f.oneDevice = true
		return 1, ""
	case "-depth":
		f.deep = true
		return 1, ""
	case "-prune":
		used = 1
		test = func(string, Stat) bool { f.prune = true; return true }
	case "-print":
		used, f.acts = 1, true
		test = func(path string, _ Stat) bool { return f.p.say(path+"\n") == 0 }
	case "-print0":
		used, f.acts = 1, true
		test = func(path string, _ Stat) bool { return f.p.say(path+"\x00") == 0 }
	case "-delete":
		used, f.acts, f.deep = 1, true, true
		test = f.remove
	case "-exec":
		end := slices.IndexFunc(args, func(a string) bool { return a == ";" || a == "+" })
		if end < 2 {
			return 0, "-exec without an end"
		}
		f.acts = true
		command := args[1:end]
		if args[end] == "+" {
			f.batch = command[:len(command)-1]
			test = func(path string, _ Stat) bool {
				f.paths = append(f.paths, path)
				return true
			}
		} else {
			test = func(path string, _ Stat) bool {
				words := make([]string, 0, len(command))
				for _, word := range command {
					words = append(words, strings.ReplaceAll(word, "{}", path))
				}
				return f.p.Run(words...) == 0
			}
		}
		used = end + 1
	default:
		return 0, args[0]
	}
	if f.negateNext {
		plain := test
		test = func(path string, st Stat) bool { return !plain(path, st) }
		f.negateNext = false
	}
	f.tests = append(f.tests, test)
	return used, ""
}

func (f *finder) remove(path string, st Stat) bool {
	f.p.enter()
	err := f.p.Machine.remove(&f.p.cred, path, st.Mode.IsDir())
	f.p.leave()
	if err != nil {
		f.code = f.p.Fail("cannot delete '%s': %s", path, errText(err))
	}
	return err == nil
}

func (f *finder) visit(path string, st Stat, depth int) {
	if f.quit {
		return
	}
	f.prune = false
	if !f.deep {
		f.apply(path, st, depth)
	}
	if st.Mode.IsDir() && depth < f.max && !f.prune && (!f.oneDevice || f.p.device(st.Path) == f.device) {
		names, err := f.p.ReadDir(path)
		if err != nil {
			f.code = f.p.Fail("'%s': %s", path, errText(err))
		}
		for _, name := range names {
			child := strings.TrimRight(path, "/") + "/" + name
			if st, err := f.p.Lstat(child); err == nil {
				f.visit(child, st, depth+1)
			}
		}
	}
	if f.deep {
		f.apply(path, st, depth)
	}
}

func (f *finder) apply(path string, st Stat, depth int) {
	if depth < f.min || f.quit {
		return
	}
	for _, group := range f.groups {
		ok := true
		for _, test := range group {
			if !test(path, st) {
				ok = false
				break
			}
		}
		if ok {
			if !f.acts {
				f.p.say(path + "\n")
			}
			return
		}
	}
}
