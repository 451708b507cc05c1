// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

func init() {
	add("find", findCommand)
	simple("ls", "Aa1dlLrt", map[string]string{"all": "a", "almost-all": "A"}, lsCommand)
	simple("stat", "c:Lf", map[string]string{"format": "c:", "printf": "p:"}, statCommand)
	simple("readlink", "femn", map[string]string{"canonicalize": "f"}, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			if o.on("f") || o.on("e") || o.on("m") {
				path, ok := p.canonical(name, o.on("e"))
				if !ok {
					code = 1
					continue
				}
				p.Printf("%s\n", path)
				continue
			}
			st, err := p.Lstat(name)
			if err != nil || st.Mode&os.ModeSymlink == 0 {
				code = 1
				continue
			}
			p.Printf("%s\n", st.node.data)
		}
		return code
	})
	simple("realpath", "esm", nil, func(p *Process, o options, args []string) int {
		for _, name := range args {
			path, ok := p.canonical(name, o.on("e"))
			if !ok {
				return p.Fail("%s: No such file or directory", name)
			}
			p.Printf("%s\n", path)
		}
		return 0
	})
	leading("xargs", "0rn:I:t", map[string]string{"null": "0", "no-run-if-empty": "r", "max-args": "n:"}, xargsCommand)
	simple("du", "skbxch", map[string]string{"bytes": "b", "summarize": "s"}, func(p *Process, o options, args []string) int {
		for _, name := range args {
			total := int64(0)
			p.below(name, func(_ string, st Stat) { total += st.Size })
			if !o.on("b") {
				total = (total + 1023) / 1024
			}
			p.Printf("%d\t%s\n", total, name)
		}
		return 0
	})
}

// canonical resolves every link. The last part need not exist unless strict.
func (p *Process) canonical(name string, strict bool) (string, bool) {
	p.enter()
	defer p.leave()
	at, err := p.Machine.look(&p.cred, name, follow)
	if err != nil || strict && at.n == nil {
		return "", false
	}
	return at.path, true
}

func (p *Process) below(name string, visit func(string, Stat)) {
	st, err := p.Lstat(name)
	if err != nil {
		return
	}
	visit(name, st)
	if st.Mode.IsDir() {
		names, _ := p.ReadDir(name)
		for _, child := range names {
			p.below(strings.TrimRight(name, "/")+"/"+child, visit)
		}
	}
}

func lsCommand(p *Process, o options, args []string) int {
	if o.on("t") {
		return p.unknown("ls -t")
	}
	if len(args) == 0 {
		args = []string{"."}
	}
	code := 0
	var out []string
	add := func(name string, st Stat) {
		if o.on("l") {
			name = fmt.Sprintf("%s %d %d %d %d %s %s", st.Mode, st.Links, st.UID, st.GID, st.Size, st.ModTime.Format("Jan _2 15:04"), name)
		}
		out = append(out, name)
	}
	for _, name := range args {
		st, err := p.Stat(name)
		if err != nil {
			st, err = p.Lstat(name)
		}
		if err != nil {
			p.Fail("cannot access '%s': %s", name, errText(err))
			code = 2
			continue
		}
		if !st.Mode.IsDir() || o.on("d") {
			add(name, st)
			continue
		}
		names, err := p.ReadDir(name)
		if err != nil {
			p.Fail("cannot open directory '%s': %s", name, errText(err))
			code = 2
			continue
		}
		if len(args) > 1 {
			out = append(out, name+":")
		}
		if o.on("a") {
			names = append([]string{".", ".."}, names...)
		}
		for _, child := range names {
			if strings.HasPrefix(child, ".") && !o.on("A") && !o.on("a") {
				continue
			}
			if st, err := p.Lstat(name + "/" + child); err == nil {
				add(child, st)
			}
		}
	}
	if o.on("r") {
		slices.Reverse(out)
	}
	if c := p.sayLines(out); c != 0 {
		return c
	}
	return code
}

func statCommand(p *Process, o options, args []string) int {
	if !o.on("c") || o.on("f") {
		return p.unknown("stat without -c, or of a file system")
	}
	code := 0
	for _, name := range args {
		st, err := p.Lstat(name)
		if err == nil && o.on("L") {
			st, err = p.Stat(name)
		}
		if err != nil {
			code = p.Fail("cannot stat '%s': %s", name, errText(err))
			continue
		}
		format := o.last("c")
		var out strings.Builder
		for i := 0; i < len(format); i++ {
			if format[i] != '%' || i+1 == len(format) {
				out.WriteByte(format[i])
				continue
			}
			i++
			switch format[i] {
			case 's':
				out.WriteString(strconv.FormatInt(st.Size, 10))
			case 'a':
				out.WriteString(strconv.FormatUint(uint64(modeNumber(st.Mode)), 8))
			case 'u':
				out.WriteString(strconv.Itoa(st.UID))
			case 'g':
				out.WriteString(strconv.Itoa(st.GID))
			case 'U':
				out.WriteString(p.Machine.userName(st.UID))
			case 'G':
				out.WriteString(p.Machine.groupName(st.GID))
			case 'n':
				out.WriteString(name)
			case 'i':
				out.WriteString(strconv.Itoa(int(st.Inode)))
			case 'Y':
				out.WriteString(strconv.FormatInt(st.ModTime.Unix(), 10))
			case 'd':
				out.WriteString(strconv.Itoa(p.device(st.Path)))
			case 'h':
				out.WriteString(strconv.Itoa(st.Links))
			case 'F':
				out.WriteString(fileType(st.Mode))
			case 't', 'T':
				out.WriteString("0")
			default:
				return p.unknown("stat -c %%%c", format[i])
			}
		}
		p.Printf("%s\n", out.String())
	}
	return code
}

func fileType(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&os.ModeSymlink != 0:
		return "symbolic link"
	case mode&os.ModeSocket != 0:
		return "socket"
	case mode&os.ModeCharDevice != 0:
		return "character special file"
	case mode&os.ModeDevice != 0:
		return "block special file"
	}
	return "regular file"
}

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
	if st.Mode.IsDir() && depth < f.max && !f.prune && !(f.oneDevice && f.p.device(st.Path) != f.device) {
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

func xargsCommand(p *Process, o options, args []string) int {
	content, err := p.slurp("-")
	if err != nil {
		return p.Fail("%s", errText(err))
	}
	words := strings.Fields(string(content))
	if o.on("0") {
		words = strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
	}
	if len(args) == 0 {
		args = []string{"echo"}
	}
	if len(words) == 0 || len(content) == 0 {
		if o.on("r") {
			return 0
		}
		words = nil
	}
	size := max(len(words), 1)
	if o.on("n") {
		size, _ = strconv.Atoi(o.last("n"))
	}
	if o.on("I") {
		size = 1
	}
	code := 0
	for first := true; first || len(words) > 0; first = false {
		batch := words[:min(size, len(words))]
		words = words[len(batch):]
		command := append([]string(nil), args...)
		if o.on("I") {
			for i := range command {
				command[i] = strings.ReplaceAll(command[i], o.last("I"), batch[0])
			}
		} else {
			command = append(command, batch...)
		}
		if p.Run(command...) != 0 {
			code = 123
		}
	}
	return code
}
