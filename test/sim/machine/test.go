// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// testCommand is test and [.
func testCommand(p *Process, args []string) int {
	name := baseName(args[0])
	args = args[1:]
	if name == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			p.Fail("missing ]")
			return 2
		}
		args = args[:len(args)-1]
	}
	t := &tester{p: p, args: args}
	if len(args) == 0 {
		return 1
	}
	// POSIX gives meaning by the number of arguments, so that an operand may look like an operator.
	var ok bool
	switch {
	case len(args) == 1:
		ok = args[0] != ""
	case len(args) == 2 && args[0] == "!":
		ok = args[1] == ""
	case len(args) == 3 && binaryTests[args[1]]:
		ok = t.binary(args[0], args[1], args[2])
	case len(args) == 4 && args[0] == "!" && binaryTests[args[2]]:
		ok = !t.binary(args[1], args[2], args[3])
	default:
		ok = t.or()
		if t.at != len(args) && t.bad == "" {
			t.bad = "unexpected operator " + args[t.at]
		}
	}
	if t.bad != "" {
		p.Fail("%s: %s", name, t.bad)
		return 2
	}
	return map[bool]int{false: 1}[ok]
}

var binaryTests = map[string]bool{"=": true, "==": true, "!=": true, "-eq": true, "-ne": true, "-lt": true, "-le": true, "-gt": true, "-ge": true,
	"-nt": true, "-ot": true, "-ef": true, "<": true, ">": true}

type tester struct {
	p    *Process
	args []string
	at   int
	bad  string
}

func (t *tester) peek(n int) string {
	if t.at+n < len(t.args) {
		return t.args[t.at+n]
	}
	return ""
}

func (t *tester) or() bool {
	ok := t.and()
	for t.peek(0) == "-o" {
		t.at++
		right := t.and()
		ok = ok || right
	}
	return ok
}

func (t *tester) and() bool {
	ok := t.not()
	for t.peek(0) == "-a" {
		t.at++
		right := t.not()
		ok = ok && right
	}
	return ok
}

func (t *tester) not() bool {
	if t.peek(0) == "!" && t.at+1 < len(t.args) {
		t.at++
		return !t.not()
	}
	if t.at+2 < len(t.args) && binaryTests[t.peek(1)] {
		t.at += 3
		return t.binary(t.args[t.at-3], t.args[t.at-2], t.args[t.at-1])
	}
	if t.peek(0) == "(" {
		t.at++
		ok := t.or()
		if t.peek(0) != ")" {
			t.bad = "closing paren expected"
		}
		t.at++
		return ok
	}
	if op := t.peek(0); len(op) == 2 && op[0] == '-' && t.at+1 < len(t.args) {
		t.at += 2
		return t.unary(op, t.args[t.at-1])
	}
	if t.at >= len(t.args) {
		t.bad = "argument expected"
		return false
	}
	t.at++
	return t.args[t.at-1] != ""
}

func (t *tester) binary(a, op, b string) bool {
	switch op {
	case "=", "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case ">":
		return a > b
	case "-nt", "-ot", "-ef":
		x, errX := t.p.Stat(a)
		y, errY := t.p.Stat(b)
		switch op {
		case "-ef":
			return errX == nil && errY == nil && x.node == y.node
		case "-nt":
			return errX == nil && (errY != nil || x.ModTime.After(y.ModTime))
		}
		return errY == nil && (errX != nil || y.ModTime.After(x.ModTime))
	}
	x, errX := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
	y, errY := strconv.ParseInt(strings.TrimSpace(b), 10, 64)
	if errX != nil || errY != nil {
		if errX != nil {
			b = a
		}
		t.bad = "Illegal number: " + b
		return false
	}
	switch op {
	case "-eq":
		return x == y
	case "-ne":
		return x != y
	case "-lt":
		return x < y
	case "-le":
		return x <= y
	case "-gt":
		return x > y
	}
	return x >= y
}

func (t *tester) unary(op, arg string) bool {
	switch op {
	case "-z":
		return arg == ""
	case "-n":
		return arg != ""
	case "-t":
		return false
	case "-L", "-h":
		st, err := t.p.Lstat(arg)
		return err == nil && st.Mode&os.ModeSymlink != 0
	}
	st, err := t.p.Stat(arg)
	if err != nil {
		return false
	}
	switch op {
	case "-e":
		return true
	case "-f":
		return st.Mode.IsRegular()
	case "-d":
		return st.Mode.IsDir()
	case "-s":
		return st.Size > 0
	case "-S":
		return st.Mode&os.ModeSocket != 0
	case "-p":
		return st.Mode&os.ModeNamedPipe != 0
	case "-b":
		return st.Mode&os.ModeDevice != 0 && st.Mode&os.ModeCharDevice == 0
	case "-c":
		return st.Mode&os.ModeCharDevice != 0
	case "-u":
		return st.Mode&os.ModeSetuid != 0
	case "-r":
		return t.p.may(st.node, readBit)
	case "-w":
		return t.p.writable(st) == nil
	case "-x":
		return t.p.may(st.node, execBit)
	}
	t.bad = "unknown operator " + op
	return false
}

func (p *Process) may(n *node, bits os.FileMode) bool {
	p.enter()
	defer p.leave()
	return p.cred.may(n, bits)
}

func (p *Process) writable(st Stat) error {
	p.enter()
	defer p.leave()
	if !p.cred.may(st.node, writeBit) {
		return syscall.EACCES
	}
	return nil
}
