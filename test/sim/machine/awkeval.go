// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"math"
	"strconv"
	"strings"
)

func (r *awkRun) eval(n awkNode) awkValue {
	switch x := n.(type) {
	case awkNumber:
		return number(float64(x))
	case awkText:
		return awkValue{text: string(x)}
	case awkRegex:
		return truth(r.regexp(string(x)).MatchString(r.record))
	case awkName:
		switch x {
		case "NF":
			return number(float64(len(r.fields)))
		case "NR", "FNR":
			return number(float64(r.nr))
		case "FILENAME":
			return awkValue{text: r.name}
		}
		return r.vars[string(x)]
	case awkField:
		i := int(r.eval(x.x).number())
		switch {
		case i == 0:
			return fieldValue(r.record)
		case i > 0 && i <= len(r.fields):
			return fieldValue(r.fields[i-1])
		}
		return awkValue{}
	case awkIndex:
		key := r.key(x.keys)
		v, ok := r.arrays[x.name][key]
		if !ok {
			r.assign(x, awkValue{})
		}
		return v
	case awkOp:
		return r.operate(x)
	}
	return awkValue{}
}

func (r *awkRun) operate(x awkOp) awkValue {
	if name, ok := strings.CutPrefix(x.op, "call "); ok {
		return r.call(name, x.args)
	}
	switch x.op {
	case "group":
		return r.eval(x.args[0])
	case "=":
		v := r.eval(x.args[1])
		r.assign(x.args[0], v)
		return v
	case "+=", "-=", "*=", "/=", "%=":
		v := arithmetic(x.op[:1], r.eval(x.args[0]).number(), r.eval(x.args[1]).number())
		r.assign(x.args[0], v)
		return v
	case "pre++", "pre--", "post++", "post--":
		old := r.eval(x.args[0]).number()
		step := 1.0
		if strings.HasSuffix(x.op, "--") {
			step = -1
		}
		r.assign(x.args[0], number(old+step))
		if strings.HasPrefix(x.op, "pre") {
			return number(old + step)
		}
		return number(old)
	case "?":
		if r.eval(x.args[0]).bool() {
			return r.eval(x.args[1])
		}
		return r.eval(x.args[2])
	case "&&":
		return truth(r.eval(x.args[0]).bool() && r.eval(x.args[1]).bool())
	case "||":
		return truth(r.eval(x.args[0]).bool() || r.eval(x.args[1]).bool())
	case "!":
		return truth(!r.eval(x.args[0]).bool())
	case "neg-":
		return number(-r.eval(x.args[0]).number())
	case "neg+":
		return number(r.eval(x.args[0]).number())
	case "~":
		return truth(r.pattern(x.args[1]).MatchString(r.eval(x.args[0]).String()))
	case "!~":
		return truth(!r.pattern(x.args[1]).MatchString(r.eval(x.args[0]).String()))
	case "in":
		array, _ := x.args[1].(awkName)
		keys := []awkNode{x.args[0]}
		if group, ok := x.args[0].(awkOp); ok && group.op == "group" {
			keys = group.args
		}
		_, ok := r.arrays[string(array)][r.key(keys)]
		return truth(ok)
	case "concat":
		left := r.eval(x.args[0]).String()
		return awkValue{text: left + r.eval(x.args[1]).String()}
	case "<", "<=", "==", "!=", ">", ">=":
		return truth(compare(x.op, r.eval(x.args[0]), r.eval(x.args[1])))
	}
	return arithmetic(x.op, r.eval(x.args[0]).number(), r.eval(x.args[1]).number())
}

func arithmetic(op string, a, b float64) awkValue {
	switch op {
	case "+":
		return number(a + b)
	case "-":
		return number(a - b)
	case "*":
		return number(a * b)
	case "/":
		return number(a / b)
	case "%":
		return number(math.Mod(a, b))
	}
	return number(math.Pow(a, b))
}

// compare is by number when both sides are numbers, or look like ones and come from outside; an unset value is both.
func compare(op string, a, b awkValue) bool {
	empty := func(v awkValue) bool { return v == awkValue{} }
	numbers := (a.isNum || a.loose || empty(a)) && (b.isNum || b.loose || empty(b)) && (!empty(a) || !empty(b))
	order := 0
	if numbers {
		switch x, y := a.number(), b.number(); {
		case x < y:
			order = -1
		case x > y:
			order = 1
		}
	} else {
		order = strings.Compare(a.String(), b.String())
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case "==":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	}
	return order >= 0
}

func (r *awkRun) call(name string, args []awkNode) awkValue {
	text := func(i int) string {
		if i < len(args) {
			return r.eval(args[i]).String()
		}
		return ""
	}
	switch name {
	case "length":
		if len(args) == 0 {
			return number(float64(len(r.record)))
		}
		if array, ok := args[0].(awkName); ok && r.arrays[string(array)] != nil {
			return number(float64(len(r.arrays[string(array)])))
		}
		return number(float64(len(text(0))))
	case "substr":
		s := text(0)
		from := math.Round(r.eval(args[1]).number())
		to := float64(len(s) + 1)
		if len(args) > 2 {
			to = math.Min(to, from+math.Round(r.eval(args[2]).number()))
		}
		from = math.Max(from, 1)
		if to <= from {
			return awkValue{}
		}
		return awkValue{text: s[int(from)-1 : int(to)-1]}
	case "index":
		return number(float64(strings.Index(text(0), text(1)) + 1))
	case "tolower":
		return awkValue{text: strings.ToLower(text(0))}
	case "toupper":
		return awkValue{text: strings.ToUpper(text(0))}
	case "int":
		return number(math.Trunc(r.eval(args[0]).number()))
	case "sprintf":
		return awkValue{text: r.format(args)}
	case "match":
		at := r.pattern(args[1]).FindStringIndex(text(0))
		start, length := 0, -1
		if at != nil {
			start, length = at[0]+1, at[1]-at[0]
		}
		r.vars["RSTART"], r.vars["RLENGTH"] = number(float64(start)), number(float64(length))
		return number(float64(start))
	case "split":
		sep := r.vars["FS"].String()
		var parts []string
		if len(args) > 2 {
			if re, ok := args[2].(awkRegex); ok {
				if s := text(0); s != "" {
					parts = r.regexp(string(re)).Split(s, -1)
				}
			} else {
				parts = r.split(text(0), text(2))
			}
		} else {
			parts = r.split(text(0), sep)
		}
		array := map[string]awkValue{}
		for i, part := range parts {
			array[strconv.Itoa(i+1)] = fieldValue(part)
		}
		r.arrays[string(args[1].(awkName))] = array
		return number(float64(len(parts)))
	case "sub", "gsub":
		return r.substitute(name == "gsub", args)
	}
	return awkValue{}
}

func (r *awkRun) substitute(all bool, args []awkNode) awkValue {
	var target awkNode = awkField{awkNumber(0)}
	if len(args) > 2 {
		target = args[2]
	}
	expr, with := r.pattern(args[0]), r.eval(args[1]).String()
	old := r.eval(target).String()
	var out strings.Builder
	last, count := 0, 0
	for _, at := range expr.FindAllStringIndex(old, -1) {
		out.WriteString(old[last:at[0]])
		for i := 0; i < len(with); i++ {
			switch {
			case with[i] == '\\' && i+1 < len(with) && (with[i+1] == '&' || with[i+1] == '\\'):
				i++
				out.WriteByte(with[i])
			case with[i] == '&':
				out.WriteString(old[at[0]:at[1]])
			default:
				out.WriteByte(with[i])
			}
		}
		last = at[1]
		count++
		if !all {
			break
		}
	}
	if count > 0 {
		out.WriteString(old[last:])
		r.assign(target, awkValue{text: out.String()})
	}
	return number(float64(count))
}
