// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
)

// trSet spells out a set of tr: ranges, classes, escapes.
func trSet(text string) []byte {
	var out []byte
	classes := map[string]string{"[:space:]": " \t\n\v\f\r", "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
		"[:digit:]": "0123456789", "[:blank:]": " \t"}
	classes["[:alnum:]"] = classes["[:digit:]"] + classes["[:upper:]"] + classes["[:lower:]"]
	for text != "" {
		if strings.HasPrefix(text, "[:") {
			if i := strings.Index(text, ":]"); i > 0 {
				out = append(out, classes[text[:i+2]]...)
				text = text[i+2:]
				continue
			}
		}
		n := 1
		if text[0] == '\\' && len(text) > 1 {
			n = 2
			for n < 4 && n < len(text) && text[1] >= '0' && text[1] <= '7' && text[n] >= '0' && text[n] <= '7' {
				n++
			}
		}
		piece, _ := unescape(text[:n], false)
		text = text[n:]
		c := piece[0]
		if len(text) > 1 && text[0] == '-' {
			for d := int(c); d <= int(text[1]); d++ {
				out = append(out, byte(d))
			}
			text = text[2:]
			continue
		}
		out = append(out, c)
	}
	return out
}

func trCommand(p *Process, o options, args []string) int {
	if len(args) == 0 {
		return p.Fail("missing operand")
	}
	from := trSet(args[0])
	var in [256]bool
	for _, c := range from {
		in[c] = true
	}
	if o.on("c") {
		for i := range in {
			in[i] = !in[i]
		}
	}
	var to []byte
	if len(args) > 1 {
		to = trSet(args[1])
	}
	content, err := io.ReadAll(p.Stdin)
	if err != nil {
		return p.Fail("%s", errText(err))
	}
	out := make([]byte, 0, len(content))
	squeeze := in
	if len(to) > 0 {
		squeeze = [256]bool{}
		for _, c := range to {
			squeeze[c] = true
		}
	}
	for _, c := range content {
		if in[c] {
			if o.on("d") {
				continue
			}
			if len(to) > 0 {
				i := bytes.IndexByte(from, c)
				if o.on("c") || i >= len(to) {
					i = len(to) - 1
				}
				c = to[i]
			}
		}
		if o.on("s") && squeeze[c] && len(out) > 0 && out[len(out)-1] == c {
			continue
		}
		out = append(out, c)
	}
	return p.say(string(out))
}

func grepCommand(p *Process, o options, args []string) int {
	wants := o["e"]
	if len(wants) == 0 {
		if len(args) == 0 {
			return p.Fail("usage: grep PATTERN [FILE]...")
		}
		wants, args = args[:1], args[1:]
	}
	var rules []func(string) (int, int)
	for _, all := range wants {
		for want := range strings.SplitSeq(all, "\n") {
			rule, err := grepRule(want, o)
			if err != nil {
				p.Fail("%v", err)
				return 2
			}
			rules = append(rules, rule)
		}
	}
	named := len(args) > 1 && !o.on("h")
	if len(args) == 0 {
		args = []string{"-"}
	}
	found, failed := false, false
	for _, name := range args {
		content, err := p.slurp(name)
		if err != nil {
			failed = true
			if !o.on("s") {
				p.Fail("%s: %s", name, errText(err))
			}
			continue
		}
		count := 0
		prefix := ""
		if named {
			prefix = name + ":"
		}
		var out strings.Builder
		for i, line := range lines(string(content)) {
			from, to := -1, -1
			for _, rule := range rules {
				if from, to = rule(line); from >= 0 {
					break
				}
			}
			if (from >= 0) == o.on("v") {
				continue
			}
			count++
			switch {
			case o.on("q"), o.on("c"), o.on("l"):
			case o.on("o"):
				if from >= 0 {
					out.WriteString(prefix + line[from:to] + "\n")
				}
			case o.on("n"):
				out.WriteString(prefix + strconv.Itoa(i+1) + ":" + line + "\n")
			default:
				out.WriteString(prefix + line + "\n")
			}
			if m := o.last("m"); m != "" && strconv.Itoa(count) == m {
				break
			}
		}
		found = found || count > 0
		switch {
		case o.on("q"):
			if found {
				return 0
			}
		case o.on("c"):
			out.WriteString(prefix + strconv.Itoa(count) + "\n")
		case o.on("l") && count > 0:
			out.WriteString(name + "\n")
		}
		if code := p.say(out.String()); code != 0 {
			return 2
		}
	}
	switch {
	case failed:
		return 2
	case found:
		return 0
	}
	return 1
}

func grepRule(want string, o options) (func(string) (int, int), error) {
	if o.on("F") && !o.on("i") && !o.on("w") {
		return func(line string) (int, int) {
			if o.on("x") {
				if line == want {
					return 0, len(line)
				}
				return -1, -1
			}
			i := strings.Index(line, want)
			return i, i + len(want)
		}, nil
	}
	expr, err := compileRegexp(want, map[bool]dialect{true: fixed}[o.on("F")]|map[bool]dialect{true: extended}[o.on("E")], o.on("i"))
	if err != nil {
		return nil, err
	}
	return func(line string) (int, int) {
		for _, at := range expr.FindAllStringIndex(line, -1) {
			if o.on("x") && (at[0] != 0 || at[1] != len(line)) {
				continue
			}
			if o.on("w") && (at[0] > 0 && wordByte(line[at[0]-1]) || at[1] < len(line) && wordByte(line[at[1]])) {
				continue
			}
			return at[0], at[1]
		}
		return -1, -1
	}, nil
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func shaCommand(p *Process, o options, args []string) int {
	if !o.on("c") {
		return p.each(args, func(name string, content []byte) bool {
			sum := sha256.Sum256(content)
			return p.say(hex.EncodeToString(sum[:])+"  "+name+"\n") == 0
		})
	}
	code := 0
	if c := p.each(args, func(_ string, content []byte) bool {
		for _, line := range lines(string(content)) {
			want, name, ok := strings.Cut(line, "  ")
			if !ok {
				want, name, ok = strings.Cut(line, " *")
			}
			if !ok {
				code = p.Fail("no properly formatted checksum lines found")
				continue
			}
			data, err := p.ReadFile(name)
			if err != nil {
				code = p.Fail("%s: %s", name, errText(err))
				continue
			}
			sum := sha256.Sum256(data)
			switch {
			case hex.EncodeToString(sum[:]) != want:
				code = 1
				if !o.on("S") {
					p.Printf("%s: FAILED\n", name)
				}
			case !o.on("q") && !o.on("S"):
				p.Printf("%s: OK\n", name)
			}
		}
		return true
	}); c != 0 {
		return c
	}
	if code != 0 && !o.on("S") {
		p.Fail("WARNING: 1 computed checksum did NOT match")
	}
	return code
}
