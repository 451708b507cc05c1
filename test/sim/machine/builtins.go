// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"io"
	"os"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

type builtin func(s *shell, args []string) int

// specials are the built-in commands whose assignments stay and whose errors end the shell.
var specials = map[string]bool{":": true, ".": true, "break": true, "continue": true, "eval": true, "exec": true, "exit": true, "export": true,

	"readonly": true, "return": true, "set": true, "shift": true, "times": true, "trap": true, "unset": true}

var builtins map[string]builtin

func init() {
	builtins = map[string]builtin{
		":": func(*shell, []string) int { return 0 }, "true": func(*shell, []string) int { return 0 },
		"false": func(*shell, []string) int { return 1 },
		".":     source_, "eval": evalBuiltin, "exit": exitBuiltin, "return": returnBuiltin, "break": breakBuiltin, "continue": breakBuiltin,
		"set": setBuiltin, "shift": shiftBuiltin, "export": exportBuiltin, "readonly": exportBuiltin, "unset": unsetBuiltin, "local": localBuiltin,
		"trap": trapBuiltin, "read": readBuiltin, "cd": cdBuiltin, "pwd": pwdBuiltin, "umask": umaskBuiltin, "wait": waitBuiltin,
		"command": commandBuiltin, "type": typeBuiltin, "hash": func(*shell, []string) int { return 0 }, "ulimit": ulimitBuiltin,
		"echo": asBuiltin(echoCommand), "printf": asBuiltin(printfCommand), "test": asBuiltin(testCommand), "[": asBuiltin(testCommand),
		"kill": asBuiltin(killCommand), "getopts": getoptsBuiltin,
	}
}

// asBuiltin runs a command in the process of the shell itself.
func asBuiltin(command func(p *Process, args []string) int) builtin {
	return func(s *shell, args []string) int { return command(s.p, args) }
}

func source_(s *shell, args []string) int {
	if len(args) < 2 {
		return 0
	}
	path := args[1]
	if !strings.Contains(path, "/") {
		if found, _, code := s.p.find(path); code == 0 {
			path = found
		}
	}
	text, err := s.p.ReadFile(path)
	if err != nil {
		s.fatal(".: cannot open %s: %s", path, errText(err))
		return 2
	}
	s.status = 0
	s.eval(string(text))
	if s.flow == returning {
		s.flow = onward
	}
	return s.status
}

func evalBuiltin(s *shell, args []string) int {
	s.status = 0
	s.eval(strings.Join(args[1:], " "))
	return s.status
}

func exitBuiltin(s *shell, args []string) int {
	code := s.status
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			s.complain("exit: Illegal number: %s", args[1])
			n = 2
		}
		code = n & 255
	}
	s.flow = exiting
	return code
}

func returnBuiltin(s *shell, args []string) int {
	code := exitBuiltin(s, args)
	s.flow = returning
	return code
}

func breakBuiltin(s *shell, args []string) int {
	if s.loops == 0 {
		return 0
	}
	s.levels = 1
	if len(args) > 1 {
		if n, err := strconv.Atoi(args[1]); err == nil {
			s.levels = min(n, s.loops)
		}
	}
	s.status, s.flow = 0, breaking
	if args[0] == "continue" {
		s.flow = continuing
	}
	return 0
}

func setBuiltin(s *shell, args []string) int {
	args = args[1:]
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			s.args = args[1:]
			return 0
		}
		if len(arg) < 2 || (arg[0] != '-' && arg[0] != '+') {
			break
		}
		on := arg[0] == '-'
		args = args[1:]
		for _, c := range arg[1:] {
			switch c {
			case 'e':
				s.errexit = on
			case 'u':
				s.nounset = on
			case 'f':
				s.noglob = on
			case 'x':
				s.xtrace = on
			case 'C':
				s.noclobber = on
			case 'o':
				if len(args) > 0 {
					args = args[1:]
				}
			case 'a', 'b', 'h', 'm', 'n', 'v':
			default:
				s.fatal("set: Illegal option -%c", c)
				return 2
			}
		}
		s.configure()
	}
	if len(args) > 0 {
		s.args = args
	}
	return 0
}

func shiftBuiltin(s *shell, args []string) int {
	n := 1
	if len(args) > 1 {
		n, _ = strconv.Atoi(args[1])
	}
	if n > len(s.args) {
		s.fatal("shift: can't shift that many")
		return 2
	}
	s.args = s.args[n:]
	return 0
}

func exportBuiltin(s *shell, args []string) int {
	readonly := args[0] == "readonly"
	args = args[1:]
	if len(args) == 0 || args[0] == "-p" {
		for _, name := range sortedKeys(s.vars) {
			v := s.vars[name]
			if readonly && !v.ReadOnly || !readonly && !v.Exported {
				continue
			}
			word := map[bool]string{true: "readonly ", false: "export "}[readonly]
			if v.IsSet() {
				_, _ = io.WriteString(s.p.Stdout, word+name+"='"+strings.ReplaceAll(v.String(), "'", `'"'"'`)+"'\n")
			} else {
				_, _ = io.WriteString(s.p.Stdout, word+name+"\n")
			}
		}
		return 0
	}
	for _, arg := range args {
		if arg == "--" {
			continue
		}
		name, value, set := strings.Cut(arg, "=")
		v := s.vars[name]
		if set {
			v.Set, v.Kind, v.Str = true, expand.String, value
		}
		if readonly {
			v.ReadOnly = true
		} else {
			v.Exported = true
		}
		if err := s.Set(name, v); err != nil {
			s.fatal("%v", err)
			return 2
		}
	}
	return 0
}

// declare is export, local and readonly when the parser took them for a clause.
func (s *shell) declare(d *syntax.DeclClause) {
	args := []string{d.Variant.Value}
	for _, a := range d.Args {
		value, ok := s.literal(a.Value)
		switch {
		case !ok:
			return
		case a.Name == nil:
			args = append(args, value)
		case a.Naked:
			args = append(args, a.Name.Value)
		default:
			args = append(args, a.Name.Value+"="+value)
		}
	}
	if b := builtins[args[0]]; b != nil {
		s.status = b(s, args)
		return
	}
	s.fatal("the simulated shell does not know %s", args[0])
}

func unsetBuiltin(s *shell, args []string) int {
	for _, name := range args[1:] {
		switch {
		case name == "-f" || name == "-v":
		case args[1] == "-f":
			funcs := make(map[string]*syntax.Stmt, len(s.funcs))
			for k, v := range s.funcs {
				if k != name {
					funcs[k] = v
				}
			}
			s.funcs, s.sharedFunc = funcs, false
		default:
			if err := s.Set(name, expand.Variable{}); err != nil {
				s.fatal("%v", err)
				return 2
			}
		}
	}
	return 0
}

func localBuiltin(s *shell, args []string) int {
	if len(s.locals) == 0 {
		s.fatal("local: not in a function")
		return 2
	}
	at := len(s.locals) - 1
	if s.locals[at] == nil {
		s.locals[at] = map[string]expand.Variable{}
	}
	for _, arg := range args[1:] {
		name, value, set := strings.Cut(arg, "=")
		if _, had := s.locals[at][name]; !had {
			s.locals[at][name] = s.vars[name]
		}
		if set {
			s.setText(name, value)
		}
	}
	return 0
}

func cdBuiltin(s *shell, args []string) int {
	to := s.Get("HOME").String()
	args = args[1:]
	for len(args) > 0 && (args[0] == "--" || args[0] == "-P" || args[0] == "-L") {
		args = args[1:]
	}
	if len(args) > 0 {
		to = args[0]
	}
	if to == "-" {
		to = s.Get("OLDPWD").String()
	}
	s.p.enter()
	at, err := s.p.Machine.get(&s.p.cred, to, follow)
	ok := err == nil && at.n.isDir() && s.p.cred.may(at.n, execBit)
	old := s.p.cred.dir
	if ok {
		s.p.cred.dir = at.path
	}
	s.p.leave()
	if !ok {
		s.complain("cd: can't cd to %s", to)
		return 2
	}
	s.setText("OLDPWD", old)
	s.setText("PWD", s.p.cred.dir)
	return 0
}

func pwdBuiltin(s *shell, _ []string) int {
	s.p.Printf("%s\n", s.p.cred.dir)
	return 0
}

func umaskBuiltin(s *shell, args []string) int {
	if len(args) == 1 {
		s.p.Printf("%04o\n", s.p.cred.umask)
		return 0
	}
	n, err := strconv.ParseUint(args[1], 8, 32)
	if err != nil {
		s.complain("umask: Illegal mode: %s", args[1])
		return 2
	}
	s.p.cred.umask = os.FileMode(n) & 0o777
	return 0
}

func ulimitBuiltin(s *shell, args []string) int {
	if len(args) < 3 {
		s.p.Printf("unlimited\n")
	}
	return 0
}

func commandBuiltin(s *shell, args []string) int {
	args = args[1:]
	look := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-v" || args[0] == "-V" {
			look = args[0]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return 0
	}
	if look != "" {
		return s.where(args[0], look == "-V")
	}
	if b := builtins[args[0]]; b != nil {
		return b(s, args)
	}
	s.external(args, nil, nil, false)
	return s.status
}

func typeBuiltin(s *shell, args []string) int {
	code := 0
	for _, name := range args[1:] {
		if c := s.where(name, true); c != 0 {
			code = c
		}
	}
	return code
}

func (s *shell) where(name string, wordy bool) int {
	found := name
	if s.funcs[name] == nil && builtins[name] == nil && !specials[name] {
		s.p.env = s.environ()
		path, _, code := s.p.find(name)
		if code != 0 {
			if wordy {
				s.p.Printf("%s: not found\n", name)
			}
			return 127
		}
		found = path
	}
	if wordy {
		found = name + " is " + found
	}
	s.p.Printf("%s\n", found)
	return 0
}

func getoptsBuiltin(s *shell, _ []string) int {
	s.fatal("test/sim/machine does not simulate getopts")
	return 2
}
