// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"io"
	"os"
	"path"
	"strings"
)

// commands are what every machine can do, by name. Their files lie below /usr/bin and /usr/sbin.
var commands = map[string]Program{}

// sbin are the commands that lie below /usr/sbin.
var sbin = map[string]bool{}

// shellPrograms are commands that a shell has built in as well.
func init() {
	add("sh", shProgram)
	for _, name := range []string{"dash", "bash"} {
		add(name, shProgram)
	}
	for name, body := range map[string]func(*Process, []string) int{
		"echo": echoCommand, "printf": printfCommand, "test": testCommand, "[": testCommand, "kill": killCommand,
		"true":  func(*Process, []string) int { return 0 },
		"false": func(*Process, []string) int { return 1 },
	} {
		add(name, func(_ context.Context, p *Process) int { return body(p, p.Args) })
	}
}

func add(name string, program Program) {
	if commands[name] != nil {
		panic("two commands " + name)
	}
	commands[name] = program
}

// simple adds a command that wants its flags parsed. short is as for getopt(3): a letter, with a colon when it takes a
// value; long maps names to letters.
func simple(name, short string, long map[string]string, body func(p *Process, o options, args []string) int) {
	add(name, func(_ context.Context, p *Process) int {
		o, rest, bad := parseFlags(p.Args[1:], short, long, true)
		if bad != "" {
			return p.unknown("the flag %s", bad)
		}
		return body(p, o, rest)
	})
}

// leading is simple for commands that run another one: flags end at the first word.
func leading(name, short string, long map[string]string, body func(p *Process, o options, args []string) int) {
	add(name, func(_ context.Context, p *Process) int {
		o, rest, bad := parseFlags(p.Args[1:], short, long, false)
		if bad != "" {
			return p.unknown("the flag %s", bad)
		}
		return body(p, o, rest)
	})
}

// options are the flags that were set, by letter, with their values.
type options map[string][]string

func (o options) on(letter string) bool { return o[letter] != nil }

func (o options) last(letter string) string {
	if values := o[letter]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

func parseFlags(args []string, short string, long map[string]string, permute bool) (o options, rest []string, bad string) {
	o = options{}
	takes := func(letter string) bool {
		if len(letter) > 1 {
			return strings.HasSuffix(letter, ":")
		}
		i := strings.Index(short, letter)
		return i >= 0 && i+1 < len(short) && short[i+1] == ':'
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return o, append(rest, args...), ""
		case strings.HasPrefix(arg, "--"):
			name, value, has := strings.Cut(arg[2:], "=")
			letter, ok := long[name]
			if !ok {
				return nil, nil, arg
			}
			key := strings.TrimSuffix(letter, ":")
			if takes(letter) {
				if !has {
					if len(args) == 0 {
						return nil, nil, arg
					}
					value, args = args[0], args[1:]
				}
			}
			o[key] = append(o[key], value)
		case len(arg) > 1 && arg[0] == '-':
			for i := 1; i < len(arg); i++ {
				letter := arg[i : i+1]
				if letter == ":" || !strings.Contains(short, letter) {
					return nil, nil, arg
				}
				if !takes(letter) {
					o[letter] = append(o[letter], "")
					continue
				}
				value := arg[i+1:]
				if value == "" {
					if len(args) == 0 {
						return nil, nil, arg
					}
					value, args = args[0], args[1:]
				}
				o[letter] = append(o[letter], value)
				break
			}
		case permute:
			rest = append(rest, arg)
		default:
			return o, append([]string{arg}, args...), ""
		}
	}
	return o, rest, ""
}

// shProgram is /bin/sh: sh [-eu] -c text [name [args]], sh file [args], sh -s [args].
func shProgram(_ context.Context, p *Process) int {
	args := p.Args[1:]
	s := newShell(p)
	has, stdin := false, false
	for len(args) > 0 && len(args[0]) > 1 && (args[0][0] == '-' || args[0][0] == '+') {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		for _, c := range arg[1:] {
			switch c {
			case 'c':
				has = true
			case 's':
				stdin = true
			case 'e', 'u', 'x', 'f':
				setBuiltin(s, []string{"set", arg[:1] + string(c)})
			case 'l', 'i':
			default:
				return p.unknown("sh %s", arg)
			}
		}
	}
	var text string
	switch {
	case has:
		if len(args) == 0 {
			p.Fail("-c requires an argument")
			return 2
		}
		text = args[0]
		if args = args[1:]; len(args) > 0 {
			s.name, args = args[0], args[1:]
		}
	case stdin || len(args) == 0:
		all, err := io.ReadAll(p.Stdin)
		if err != nil {
			p.Fail("%s", errText(err))
			return 2
		}
		text = string(all)
	default:
		content, err := p.ReadFile(args[0])
		if err != nil {
			p.Fail("0: cannot open %s: %s", args[0], errText(err))
			return 2
		}
		text, s.name, args = string(content), args[0], args[1:]
	}
	s.args = args
	return s.runText(text)
}

// abs makes a path absolute without looking at the tree.
func (p *Process) abs(name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	return path.Clean(p.cred.dir + "/" + name)
}

// each opens the named files one after the other, or the standard input, and gives their content.
func (p *Process) each(names []string, body func(name string, content []byte) bool) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	code := 0
	for _, name := range names {
		content, err := p.slurp(name)
		if err != nil {
			code = p.Fail("%s: %s", name, errText(err))
			continue
		}
		if !body(name, content) {
			break
		}
	}
	return code
}

// slurp reads a file as a command does, or the standard input for -.
func (p *Process) slurp(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(p.Stdin)
	}
	return p.ReadFile(name)
}

// writeOver writes a file as the shell's > does.
func (p *Process) writeOver(name string, content []byte) error {
	f, err := p.open(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.write(p, content)
	return err
}

// lines splits text into its lines, without their ends.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
