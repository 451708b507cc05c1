// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"mvdan.cc/sh/v3/expand"
)

// errText is an error in the words of a C library.
func errText(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		text := no.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return err.Error()
}

// line reads up to and with the next newline, and not a byte more.
func (p *Process) line(fd int) (string, error) {
	f := p.fd(fd)
	if f == nil {
		return "", syscall.EBADF
	}
	if f.n != nil && f.pipe == nil && f.source == nil && !f.null && !f.n.isDir() {
		p.enter()
		defer p.leave()
		data := f.n.data
		if f.n.dyn != nil {
			data = f.snapshot
		}
		if f.off >= len(data) {
			return "", io.EOF
		}
		rest := data[f.off:]
		if i := strings.IndexByte(string(rest), '\n'); i >= 0 {
			rest = rest[:i+1]
		}
		f.off += len(rest)
		return string(rest), nil
	}
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := f.read(p, one)
		if n == 1 {
			line = append(line, one[0])
			if one[0] == '\n' {
				return string(line), nil
			}
		}
		if err != nil {
			if len(line) > 0 {
				return string(line), nil
			}
			return "", err
		}
	}
}

func readBuiltin(s *shell, args []string) int {
	args = args[1:]
	raw := false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-r":
			raw = true
		case "--":
		default:
			return s.p.unknown("read %s", args[0])
		}
		args = args[1:]
	}
	text := ""
	status := 0
	for {
		line, err := s.p.line(0)
		body, whole := strings.CutSuffix(line, "\n")
		if err != nil || !whole {
			status = 1
		}
		if whole && !raw && strings.HasSuffix(body, `\`) && !strings.HasSuffix(body, `\\`) {
			text += strings.TrimSuffix(body, `\`)
			continue
		}
		text += body
		break
	}
	if len(args) == 0 {
		args = []string{"REPLY"}
	}
	fields := expand.ReadFields(&s.cfg, text, len(args), raw)
	for i, name := range args {
		value := ""
		if i < len(fields) {
			value = fields[i]
		}
		s.setText(name, value)
	}
	return status
}

// say writes to the standard output; a disk that is full makes the command fail, as it does for real ones.
func (p *Process) say(text string) int {
	if text == "" {
		return 0
	}
	if _, err := io.WriteString(p.Stdout, text); err != nil {
		return p.Fail("write error: %s", errText(err))
	}
	return 0
}

func echoCommand(p *Process, args []string) int {
	args = args[1:]
	end := "\n"
	if len(args) > 0 && args[0] == "-n" {
		end, args = "", args[1:]
	}
	text, stop := unescape(strings.Join(args, " "), true)
	if stop {
		end = ""
	}
	return p.say(text + end)
}

// unescape resolves backslashes as echo and %b do; \c ends everything.
func unescape(text string, zeroOctal bool) (string, bool) {
	if !strings.Contains(text, `\`) {
		return text, false
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch c := text[i]; c {
		case 'a':
			b.WriteByte(7)
		case 'b':
			b.WriteByte(8)
		case 'c':
			return b.String(), true
		case 'f':
			b.WriteByte(12)
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'v':
			b.WriteByte(11)
		case '\\':
			b.WriteByte('\\')
		default:
			if c >= '0' && c <= '7' && (c == '0' || !zeroOctal) {
				j, limit := i, 3
				if c == '0' && zeroOctal {
					j, limit = i+1, 3
				}
				n, k := 0, 0
				for ; k < limit && j+k < len(text) && text[j+k] >= '0' && text[j+k] <= '7'; k++ {
					n = n*8 + int(text[j+k]-'0')
				}
				b.WriteByte(byte(n))
				i = j + k - 1
				continue
			}
			b.WriteByte('\\')
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

func printfCommand(p *Process, args []string) int {
	args = args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return p.Fail("usage: printf format [arg ...]")
	}
	text, err := formatAll(args[0], args[1:])
	if code := p.say(text); code != 0 {
		return code
	}
	if err != nil {
		return p.Fail("%v", err)
	}
	return 0
}

// formatAll is printf(1): the format again and again until the arguments are used up.
func formatAll(format string, args []string) (string, error) {
	var out strings.Builder
	var failed error
	for first := true; first || len(args) > 0; first = false {
		before := len(args)
		text, rest, stop, err := formatOnce(format, args, false)
		out.WriteString(text)
		args = rest
		if err != nil {
			failed = err
		}
		if stop || len(args) == before {
			break
		}
	}
	return out.String(), failed
}

func formatOnce(format string, args []string, loose bool) (text string, rest []string, stop bool, err error) {
	var out strings.Builder
	next := func() string {
		if len(args) == 0 {
			return ""
		}
		arg := args[0]
		args = args[1:]
		return arg
	}
	for i := 0; i < len(format); i++ {
		if format[i] == '\\' {
			j := i + 1
			for j < len(format) && j < i+4 && format[j] >= '0' && format[j] <= '7' {
				j++
			}
			j = min(max(j, i+2), len(format))
			text, end := unescape(format[i:j], false)
			if end {
				return out.String(), args, true, err
			}
			out.WriteString(text)
			i = j - 1
			continue
		}
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		if i+1 < len(format) && format[i+1] == '%' {
			out.WriteByte('%')
			i++
			continue
		}
		j := i + 1
		spec := "%"
		for j < len(format) && strings.IndexByte("-+ #0123456789.*", format[j]) >= 0 {
			if format[j] == '*' {
				spec += next()
			} else {
				spec += string(format[j])
			}
			j++
		}
		if j == len(format) {
			return out.String(), args, true, fmt.Errorf("%s: invalid directive", format[i:])
		}
		arg := next()
		switch c := format[j]; c {
		case 's':
			fmt.Fprintf(&out, spec+"s", arg)
		case 'c':
			if arg != "" {
				arg = arg[:1]
			}
			fmt.Fprintf(&out, spec+"s", arg)
		case 'b':
			text, end := unescape(arg, true)
			fmt.Fprintf(&out, spec+"s", text)
			if end {
				return out.String(), args, true, err
			}
		case 'd', 'i', 'u', 'x', 'X', 'o':
			n, e := integer(arg)
			if e != nil && loose {
				// awk takes whatever looks like a number, down to the whole.
				f, _ := strconv.ParseFloat(leadingNumber(arg), 64)
				n, e = int64(f), nil
			}
			if e != nil {
				err = e
			}
			if c == 'i' || c == 'u' {
				c = 'd'
			}
			fmt.Fprintf(&out, spec+string(c), n)
		case 'f', 'g', 'e':
			n, _ := strconv.ParseFloat(arg, 64)
			fmt.Fprintf(&out, spec+string(c), n)
		default:
			return out.String(), args, true, fmt.Errorf("%%%c: invalid directive", c)
		}
		i = j
	}
	return out.String(), args, false, err
}

func integer(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if len(text) > 1 && (text[0] == '\'' || text[0] == '"') {
		return int64([]rune(text[1:])[0]), nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: expected numeric value", text)
	}
	return n, nil
}

func killCommand(p *Process, args []string) int {
	args = args[1:]
	name := "TERM"
	if len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" {
		switch arg := args[0]; arg {
		case "-l":
			return p.say(strings.Join(sortedKeys(signals), " ") + "\n")
		case "-s", "-n":
			if len(args) < 2 {
				return p.Fail("usage: kill -s signal pid")
			}
			name, args = args[1], args[2:]
		default:
			name, args = arg[1:], args[1:]
		}
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	name = signalName(name)
	if name == "EXIT" {
		name = ""
	} else if signals[name] == 0 {
		return p.Fail("invalid signal %s", name)
	}
	code := 0
	for _, arg := range args {
		pid, err := strconv.Atoi(arg)
		found := false
		switch {
		case err != nil:
			p.Fail("Illegal number: %s", arg)
			code = 2
			continue
		case pid < 0:
			found = p.Machine.signalGroup(-pid, name)
		case pid == 0:
			found = p.Machine.signalGroup(p.pgid, name)
		default:
			p.Machine.mu.Lock()
			if q := p.Machine.procs[pid]; q != nil && (!q.over || q.zombie) {
				found = true
				if name != "" {
					q.signalLocked(name)
				}
			}
			p.Machine.mu.Unlock()
		}
		p.check()
		if !found {
			code = p.Fail("No such process")
		}
	}
	return code
}
