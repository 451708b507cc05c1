// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
)

func init() {
	add("awk", awkCommand)
	add("mawk", awkCommand)
	add("gawk", awkCommand)
}

func awkCommand(_ context.Context, p *Process) int {
	args := p.Args[1:]
	run := &awkRun{p: p, vars: map[string]awkValue{"FS": {text: " "}, "OFS": {text: " "}, "ORS": {text: "\n"}, "SUBSEP": {text: "\x1c"}}, arrays: map[string]map[string]awkValue{}}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
		case strings.HasPrefix(arg, "-F") || strings.HasPrefix(arg, "-v"):
			value := arg[2:]
			if value == "" && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			if arg[1] == 'F' {
				value = "FS=" + value
			}
			name, text, _ := strings.Cut(value, "=")
			run.vars[name] = fieldValue(unescapeAwk(text))
			continue
		default:
			return p.unknown("awk %s", arg)
		}
		break
	}
	if len(args) == 0 {
		return p.Fail("no program text")
	}
	prog, err := parseAwk(args[0])
	if err != nil {
		return p.unknown("%v", err)
	}
	return run.all(prog, args[1:])
}

// awkValue is a text, a number, or a text from outside that looks like a number.
type awkValue struct {
	text  string
	num   float64
	isNum bool
	// loose is a field that counts as a number when it looks like one.
	loose bool
}

func number(n float64) awkValue { return awkValue{num: n, isNum: true} }
func truth(ok bool) awkValue    { return number(map[bool]float64{true: 1}[ok]) }

var numeric = regexp.MustCompile(`^[ \t\n]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?`)

func fieldValue(text string) awkValue {
	v := awkValue{text: text}
	if at := numeric.FindStringIndex(text); len(at) == 2 && strings.Trim(text[at[1]:], " \t\n") == "" {
		v.num, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
		v.loose = true
	}
	return v
}

func (v awkValue) number() float64 {
	if v.isNum || v.loose {
		return v.num
	}
	n, _ := strconv.ParseFloat(strings.TrimSpace(numeric.FindString(v.text)), 64)
	return n
}

func (v awkValue) String() string {
	if !v.isNum {
		return v.text
	}
	if v.num == math.Trunc(v.num) && math.Abs(v.num) < 1e16 {
		return strconv.FormatInt(int64(v.num), 10)
	}
	return strconv.FormatFloat(v.num, 'g', 6, 64)
}

func (v awkValue) bool() bool {
	if v.isNum || v.loose {
		return v.num != 0
	}
	return v.text != ""
}

type awkRun struct {
	p       *Process
	vars    map[string]awkValue
	arrays  map[string]map[string]awkValue
	record  string
	fields  []string
	nr      int
	name    string
	inRange []bool
	out     strings.Builder
	code    int
}

// awkFlow leaves a statement early.
type awkFlow string

func (r *awkRun) all(prog *awkProgram, files []string) int {
	r.inRange = make([]bool, len(prog.rules))
	if r.list(prog.begin) != "exit" && (len(prog.rules) > 0 || len(prog.end) > 0) {
		if len(files) == 0 {
			files = []string{"-"}
		}
		for _, name := range files {
			if key, value, ok := strings.Cut(name, "="); ok && regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(key) {
				r.vars[key] = fieldValue(unescapeAwk(value))
				continue
			}
			content, err := r.p.slurp(name)
			if err != nil {
				r.p.Fail("cannot open \"%s\" (%s)", name, errText(err))
				r.code = 2
				continue
			}
			r.name = name
			if r.file(prog, string(content)) {
				break
			}
		}
	}
	r.list(prog.end)
	if code := r.p.say(r.out.String()); code != 0 {
		return 2
	}
	return r.code
}

// file runs the rules over one input and says whether the program exited.
func (r *awkRun) file(prog *awkProgram, content string) bool {
	for _, line := range lines(content) {
		r.nr++
		r.setRecord(line)
		for i, rule := range prog.rules {
			if !r.selects(i, rule) {
				continue
			}
			if rule.bare {
				r.out.WriteString(r.record + "\n")
				continue
			}
			flow := r.list(rule.body)
			if flow == "exit" {
				return true
			}
			if flow == "next" {
				break
			}
		}
	}
	return false
}

func (r *awkRun) selects(i int, rule awkRule) bool {
	if rule.pattern == nil {
		return true
	}
	if rule.last == nil {
		return r.eval(rule.pattern).bool()
	}
	if !r.inRange[i] && !r.eval(rule.pattern).bool() {
		return false
	}
	r.inRange[i] = !r.eval(rule.last).bool()
	return true
}

func (r *awkRun) setRecord(line string) {
	r.record = line
	r.fields = r.split(line, r.vars["FS"].String())
}

func (r *awkRun) split(text, sep string) []string {
	switch {
	case text == "":
		return nil
	case sep == " ":
		return strings.Fields(text)
	case len(sep) == 1 && sep != `\`:
		return strings.Split(text, sep)
	}
	return r.regexp(sep).Split(text, -1)
}

func (r *awkRun) list(nodes []awkNode) awkFlow {
	for _, n := range nodes {
		if flow := r.exec(n); flow != "" {
			return flow
		}
	}
	return ""
}

func (r *awkRun) exec(n awkNode) awkFlow {
	if block, ok := n.(awkBlock); ok {
		return r.list(block)
	}
	op := n.(awkOp)
	switch op.op {
	case "do":
		r.eval(op.args[0])
	case "if":
		if r.eval(op.args[0]).bool() {
			return r.exec(op.args[1])
		}
		if len(op.args) > 2 {
			return r.exec(op.args[2])
		}
	case "for":
		if op.args[0] != nil {
			r.eval(op.args[0])
		}
		for op.args[1] == nil || r.eval(op.args[1]).bool() {
			r.p.check()
			switch flow := r.exec(op.args[3]); flow {
			case "break":
				return ""
			case "next", "exit":
				return flow
			}
			if op.args[2] != nil {
				r.eval(op.args[2])
			}
		}
	case "forin":
		array := r.arrays[string(op.args[1].(awkName))]
		for _, key := range sortedKeys(array) {
			r.assign(op.args[0], fieldValue(key))
			switch flow := r.exec(op.args[2]); flow {
			case "break":
				return ""
			case "next", "exit":
				return flow
			}
		}
	case "next", "break", "continue":
		return awkFlow(op.op)
	case "exit":
		if len(op.args) > 0 {
			r.code = int(r.eval(op.args[0]).number()) & 255
		}
		return "exit"
	case "delete":
		switch x := op.args[0].(type) {
		case awkName:
			delete(r.arrays, string(x))
		case awkIndex:
			delete(r.arrays[x.name], r.key(x.keys))
		}
	case "print":
		if len(op.args) == 0 {
			r.out.WriteString(r.record)
		}
		for i, arg := range op.args {
			if i > 0 {
				r.out.WriteString(r.vars["OFS"].String())
			}
			r.out.WriteString(r.eval(arg).String())
		}
		r.out.WriteString(r.vars["ORS"].String())
	case "printf":
		r.out.WriteString(r.format(op.args))
	}
	return ""
}

// awkVerb is one place of a format for a value.
var awkVerb = regexp.MustCompile(`%[-+ #0]*[0-9]*(\.[0-9]*)?[a-zA-Z]`)

func (r *awkRun) format(args []awkNode) string {
	if len(args) == 0 {
		return ""
	}
	verbs := awkVerb.FindAllString(strings.ReplaceAll(r.eval(args[0]).String(), "%%", ""), -1)
	var words []string
	for i, arg := range args[1:] {
		value := r.eval(arg)
		word := value.String()
		if i < len(verbs) && strings.HasSuffix(verbs[i], "c") && value.isNum && value.text == "" {
			word = string([]byte{byte(math.Mod(value.num, 256))}) // the one with this number
		}
		words = append(words, word)
	}
	// The text is unescaped already: what looks like an escape now is none.
	format := strings.ReplaceAll(r.eval(args[0]).String(), `\`, `\\`)
	text, _, _, _ := formatOnce(format, words, true)
	return text
}

func (r *awkRun) regexp(text string) *regexp.Regexp {
	expr, err := compileRegexp(text, extended, false)
	if err != nil {
		r.p.Fail("%v", err)
		return regexp.MustCompile(`[^\s\S]`)
	}
	return expr
}

// pattern is what a node means where an expression is wanted.
func (r *awkRun) pattern(n awkNode) *regexp.Regexp {
	if re, ok := n.(awkRegex); ok {
		return r.regexp(string(re))
	}
	return r.regexp(r.eval(n).String())
}

func (r *awkRun) key(keys []awkNode) string {
	words := make([]string, 0, len(keys))
	for _, k := range keys {
		words = append(words, r.eval(k).String())
	}
	return strings.Join(words, r.vars["SUBSEP"].String())
}

func (r *awkRun) assign(to awkNode, v awkValue) {
	switch x := to.(type) {
	case awkName:
		if x == "NF" {
			n := int(v.number())
			for len(r.fields) < n {
				r.fields = append(r.fields, "")
			}
			r.fields = r.fields[:n]
			r.record = strings.Join(r.fields, r.vars["OFS"].String())
			return
		}
		r.vars[string(x)] = v
	case awkIndex:
		if r.arrays[x.name] == nil {
			r.arrays[x.name] = map[string]awkValue{}
		}
		r.arrays[x.name][r.key(x.keys)] = v
	case awkField:
		n := int(r.eval(x.x).number())
		if n == 0 {
			r.setRecord(v.String())
			return
		}
		for len(r.fields) < n {
			r.fields = append(r.fields, "")
		}
		r.fields[n-1] = v.String()
		r.record = strings.Join(r.fields, r.vars["OFS"].String())
	case awkOp:
		if x.op == "group" && len(x.args) == 1 {
			r.assign(x.args[0], v)
		}
	}
}
