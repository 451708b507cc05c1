// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func init() {
	simple("cat", "u", nil, func(p *Process, _ options, args []string) int {
		if len(args) == 0 {
			args = []string{"-"}
		}
		code := 0
		for _, name := range args {
			if name == "-" {
				if _, err := io.Copy(p.Stdout, p.Stdin); err != nil {
					code = p.Fail("%s", errText(err))
				}
				continue
			}
			content, err := p.ReadFile(name)
			if err != nil {
				code = p.Fail("%s: %s", name, errText(err))
			} else if c := p.say(string(content)); c != 0 {
				return c
			}
		}
		return code
	})
	add("head", headCommand)
	simple("tail", "n:c:q", map[string]string{"lines": "n:", "bytes": "c:"}, func(p *Process, o options, args []string) int {
		return p.each(args, func(_ string, content []byte) bool {
			if o.on("c") {
				text := o.last("c")
				n, _ := strconv.Atoi(strings.TrimPrefix(text, "+"))
				if strings.HasPrefix(text, "+") {
					content = content[min(max(n-1, 0), len(content)):]
				} else {
					content = content[max(0, len(content)-n):]
				}
				return p.say(string(content)) == 0
			}
			text := "10"
			if o.on("n") {
				text = o.last("n")
			}
			n, _ := strconv.Atoi(strings.TrimPrefix(text, "+"))
			all := strings.SplitAfter(string(content), "\n")
			if all[len(all)-1] == "" {
				all = all[:len(all)-1]
			}
			if strings.HasPrefix(text, "+") {
				all = all[min(max(n-1, 0), len(all)):]
			} else {
				all = all[max(0, len(all)-n):]
			}
			return p.say(strings.Join(all, "")) == 0
		})
	})
	simple("tee", "ai", map[string]string{"append": "a"}, func(p *Process, o options, args []string) int {
		content, err := io.ReadAll(p.Stdin)
		if err != nil {
			return p.Fail("%s", errText(err))
		}
		code := p.say(string(content))
		for _, name := range args {
			flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
			if o.on("a") {
				flags = os.O_WRONLY | os.O_CREATE | os.O_APPEND
			}
			f, err := p.open(name, flags, 0o666)
			if err == nil {
				_, err = f.write(p, content)
			}
			if err != nil {
				code = p.Fail("%s: %s", name, errText(err))
			}
		}
		return code
	})
	simple("wc", "lcwm", map[string]string{"lines": "l", "bytes": "c", "words": "w"}, func(p *Process, o options, args []string) int {
		return p.each(args, func(name string, content []byte) bool {
			var words []string
			all := len(o) == 0
			if all || o.on("l") {
				words = append(words, strconv.Itoa(bytes.Count(content, []byte("\n"))))
			}
			if all || o.on("w") {
				words = append(words, strconv.Itoa(len(bytes.Fields(content))))
			}
			if all || o.on("c") || o.on("m") {
				words = append(words, strconv.Itoa(len(content)))
			}
			if name != "-" {
				words = append(words, name)
			}
			return p.say(strings.Join(words, " ")+"\n") == 0
		})
	})
	simple("tac", "", nil, func(p *Process, _ options, args []string) int {
		return p.each(args, func(_ string, content []byte) bool {
			all := lines(string(content))
			slices.Reverse(all)
			return p.sayLines(all) == 0
		})
	})
	simple("sort", "ruVnk:t:fb", map[string]string{"unique": "u", "reverse": "r", "numeric-sort": "n", "version-sort": "V"}, func(p *Process, o options, args []string) int {
		column, err := strconv.Atoi(o.last("k"))
		if o.on("k") && err != nil || o.on("t") || o.on("V") {
			return p.unknown("sort by such keys")
		}
		var all []string
		if code := p.each(args, func(_ string, content []byte) bool {
			all = append(all, lines(string(content))...)
			return true
		}); code != 0 {
			return code
		}
		slices.SortStableFunc(all, func(a, b string) int {
			if column > 0 {
				if c := strings.Compare(fromField(a, column), fromField(b, column)); c != 0 {
					return c
				}
			}
			if o.on("n") {
				x, _ := strconv.ParseFloat(leadingNumber(a), 64)
				y, _ := strconv.ParseFloat(leadingNumber(b), 64)
				if x != y {
					return map[bool]int{true: -1, false: 1}[x < y]
				}
			}
			return strings.Compare(a, b)
		})
		if o.on("r") {
			slices.Reverse(all)
		}
		if o.on("u") {
			all = slices.Compact(all)
		}
		return p.sayLines(all)
	})
	simple("uniq", "cd", nil, func(p *Process, o options, args []string) int {
		return p.each(args, func(_ string, content []byte) bool {
			var out []string
			all := lines(string(content))
			for i := 0; i < len(all); {
				j := i
				for j < len(all) && all[j] == all[i] {
					j++
				}
				switch {
				case o.on("d") && j-i < 2:
				case o.on("c"):
					out = append(out, fmt.Sprintf("%7d %s", j-i, all[i]))
				default:
					out = append(out, all[i])
				}
				i = j
			}
			return p.sayLines(out) == 0
		})
	})
	simple("cut", "c:d:f:b:s", map[string]string{"delimiter": "d:", "fields": "f:", "characters": "c:"}, func(p *Process, o options, args []string) int {
		delim := "\t"
		if o.on("d") {
			delim = o.last("d")
		}
		list := o.last("f") + o.last("c") + o.last("b")
		wanted := func(n int) bool {
			for part := range strings.SplitSeq(list, ",") {
				from, to, span := strings.Cut(part, "-")
				a, _ := strconv.Atoi(from)
				b, _ := strconv.Atoi(to)
				if !span {
					b = a
				} else if to == "" {
					b = 1 << 30
				}
				if n >= a && n <= b {
					return true
				}
			}
			return false
		}
		return p.each(args, func(_ string, content []byte) bool {
			var out []string
			for _, line := range lines(string(content)) {
				parts := strings.Split(line, "")
				sep := ""
				if o.on("f") {
					parts, sep = strings.Split(line, delim), delim
					if len(parts) == 1 {
						if !o.on("s") {
							out = append(out, line)
						}
						continue
					}
				}
				var kept []string
				for i, part := range parts {
					if wanted(i + 1) {
						kept = append(kept, part)
					}
				}
				out = append(out, strings.Join(kept, sep))
			}
			return p.sayLines(out) == 0
		})
	})
	simple("tr", "dsc", map[string]string{"delete": "d", "squeeze-repeats": "s", "complement": "c"}, trCommand)
	simple("grep", "qxFEsvcnilohe:rm:w", map[string]string{"quiet": "q", "line-regexp": "x", "fixed-strings": "F", "count": "c", "invert-match": "v", "extended-regexp": "E", "only-matching": "o", "ignore-case": "i", "no-messages": "s", "no-filename": "h"}, grepCommand)
	simple("sha256sum", "c", map[string]string{"check": "c", "quiet": "q", "status": "S", "strict": "x"}, shaCommand)
	simple("base64", "dw:", map[string]string{"decode": "d", "wrap": "w:"}, func(p *Process, o options, args []string) int {
		return p.each(args, func(_ string, content []byte) bool {
			if !o.on("d") {
				return p.say(base64.StdEncoding.EncodeToString(content)+"\n") == 0
			}
			plain, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(content)), ""))
			if err != nil {
				p.Fail("invalid input")
			}
			return p.say(string(plain)) == 0
		})
	})
	simple("basename", "", nil, func(p *Process, _ options, args []string) int {
		if len(args) == 0 {
			return p.Fail("missing operand")
		}
		name := baseName(args[0])
		if len(args) > 1 && name != args[1] {
			name = strings.TrimSuffix(name, args[1])
		}
		return p.say(name + "\n")
	})
	simple("dirname", "", nil, func(p *Process, _ options, args []string) int {
		for _, arg := range args {
			if code := p.say(dirName(arg) + "\n"); code != 0 {
				return code
			}
		}
		return 0
	})
	add("seq", func(_ context.Context, p *Process) int {
		args, from := p.Args[1:], 1
		if len(args) == 2 {
			from, _ = strconv.Atoi(args[0])
			args = args[1:]
		}
		if len(args) != 1 {
			return p.unknown("seq with a step")
		}
		to, _ := strconv.Atoi(args[0])
		var out []string
		for i := from; i <= to; i++ {
			out = append(out, strconv.Itoa(i))
		}
		return p.sayLines(out)
	})
}

// fromField is the line from its n-th field to the end, the space before included.
func fromField(line string, n int) string {
	for i := 1; i < n; i++ {
		line = strings.TrimLeft(line, " \t")
		at := strings.IndexAny(line, " \t")
		if at < 0 {
			return ""
		}
		line = line[at:]
	}
	return line
}

func leadingNumber(text string) string {
	text = strings.TrimLeft(text, " \t")
	i := 0
	for i < len(text) && (text[i] >= '0' && text[i] <= '9' || text[i] == '.' || i == 0 && text[i] == '-') {
		i++
	}
	return text[:i]
}

func (p *Process) sayLines(all []string) int {
	if len(all) == 0 {
		return 0
	}
	return p.say(strings.Join(all, "\n") + "\n")
}

// headCommand never reads more than it prints when it counts bytes, for what is behind them belongs to somebody else.
func headCommand(_ context.Context, p *Process) int {
	args := p.Args[1:]
	for i, arg := range args {
		if len(arg) > 1 && arg[0] == '-' && arg[1] >= '0' && arg[1] <= '9' {
			args = append(append(append([]string(nil), args[:i]...), "-n", arg[1:]), args[i+1:]...)
		}
	}
	o, names, bad := parseFlags(args, "n:c:q", map[string]string{"lines": "n:", "bytes": "c:"}, true)
	if bad != "" {
		return p.unknown("the flag %s", bad)
	}
	if len(names) == 0 && o.on("c") {
		n, err := strconv.ParseInt(o.last("c"), 10, 64)
		if err != nil {
			return p.unknown("head -c %s", o.last("c"))
		}
		if n == 0 {
			return 0
		}
		buf := make([]byte, min(n, 64<<10))
		for n > 0 {
			k, err := p.Stdin.Read(buf[:min(int64(len(buf)), n)])
			if k > 0 {
				if code := p.say(string(buf[:k])); code != 0 {
					return code
				}
			}
			n -= int64(k)
			if errors.Is(err, io.EOF) {
				return 0
			}
			if err != nil {
				return p.Fail("%s", errText(err))
			}
		}
		return 0
	}
	limit := 10
	if o.on("n") {
		limit, _ = strconv.Atoi(o.last("n"))
	}
	if len(names) == 0 {
		for range limit {
			line, err := p.line(0)
			if errors.Is(err, io.EOF) {
				return 0
			}
			if err != nil {
				return p.Fail("%s", errText(err))
			}
			if code := p.say(line); code != 0 {
				return code
			}
		}
		return 0
	}
	return p.each(names, func(_ string, content []byte) bool {
		if o.on("c") {
			n, _ := strconv.Atoi(o.last("c"))
			return p.say(string(content[:min(n, len(content))])) == 0
		}
		all := strings.SplitAfter(string(content), "\n")
		return p.say(strings.Join(all[:min(limit, len(all))], "")) == 0
	})
}
