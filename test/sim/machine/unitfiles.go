// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
)

var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

func unitName(name string) string {
	if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".timer") || strings.HasSuffix(name, ".target") || strings.HasSuffix(name, ".socket") || strings.HasSuffix(name, ".mount") {
		return name
	}
	return name + ".service"
}

// unitFile finds a unit and reads it with its drop-ins; mu is held.
func (m *Machine) unitFile(name string) (path, text string) {
	for _, dir := range unitDirs {
		at, err := m.get(rootCred, dir+"/"+name, follow)
		if err != nil {
			continue
		}
		if at.path == "/dev/null" {
			return at.path, ""
		}
		path, text = dir+"/"+name, string(at.n.data)
		break
	}
	if path == "" {
		return "", ""
	}
	drops := map[string]string{}
	for _, dir := range slices.Backward(unitDirs) {
		at, err := m.get(rootCred, dir+"/"+name+".d", follow)
		if err != nil || !at.n.isDir() {
			continue
		}
		for _, file := range at.n.names(m) {
			if strings.HasSuffix(file, ".conf") {
				drops[file] = string(at.n.child(m, file).data)
			}
		}
	}
	for _, file := range sortedKeys(drops) {
		text += "\n# " + file + "\n" + drops[file]
	}
	return path, text
}

// settings returns the values of a key of a unit file, in order; an empty one forgets those before.
func unitValues(text, section, key string) []string {
	var values []string
	in := ""
	joined := strings.ReplaceAll(text, "\\\n", " ")
	for _, line := range lines(joined) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = strings.Trim(line, "[]")
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok || in != section || strings.TrimSpace(k) != key || strings.HasPrefix(line, "#") {
			continue
		}
		if v = strings.TrimSpace(v); v == "" {
			values = nil
		} else {
			values = append(values, v)
		}
	}
	return values
}

func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// environment is what a unit's files and lines say.
func (u *unit) environment() (map[string]string, bool) {
	env := map[string]string{}
	take := func(text string) {
		for _, line := range lines(text) {
			line = strings.TrimSpace(line)
			if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
				env[name] = strings.Trim(value, `"'`)
			}
		}
	}
	for _, line := range unitValues(u.text, "Service", "Environment") {
		for _, word := range unitWords(line) {
			take(word)
		}
	}
	for _, path := range unitValues(u.text, "Service", "EnvironmentFile") {
		optional := strings.HasPrefix(path, "-")
		at, err := u.m.get(rootCred, strings.TrimPrefix(path, "-"), follow)
		if err != nil {
			if !optional {
				return nil, false
			}
			continue
		}
		take(string(at.n.data))
	}
	return env, true
}

// unitWords splits as systemd does: quotes keep together.
func unitWords(line string) []string {
	var words []string
	var b strings.Builder
	quote, in := byte(0), false
	for i := range len(line) {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in = c, true
		case c == ' ' || c == '\t':
			if in {
				words = append(words, b.String())
				b.Reset()
				in = false
			}
		default:
			b.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, b.String())
	}
	return words
}
