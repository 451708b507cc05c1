// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
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
			case 'A':
				out.WriteString(st.Mode.String())
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
