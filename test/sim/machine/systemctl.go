// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func init() {
	leading("systemd-run", "qtp:u:G", map[string]string{"quiet": "q", "collect": "G", "unit": "u:", "property": "p:", "description": "D:", "no-block": "b", "wait": "w", "setenv": "E:", "slice": "x:", "on-active": "t:", "scope": "s"}, systemdRun)
	simple("systemctl", "qp:n:t:", map[string]string{"quiet": "q", "now": "N", "property": "p:", "value": "v", "no-block": "b", "no-reload": "R", "force": "f", "no-pager": "P", "plain": "l", "no-legend": "L", "full": "F", "all": "a", "type": "t:", "state": "S:", "system": "y"}, systemctlCommand)
	simple("journalctl", "u:n:b", map[string]string{"unit": "u:", "lines": "n:", "no-pager": "P", "output": "o:"}, func(*Process, options, []string) int { return 0 })
}

func systemdRun(p *Process, o options, args []string) int {
	if o.on("w") || o.on("s") || o.on("t") {
		return p.unknown("systemd-run that waits, has a timer or makes a scope")
	}
	if len(args) == 0 {
		return p.Fail("Command line to execute required.")
	}
	if _, _, code := p.find(args[0]); code != 0 {
		return p.Fail("Failed to find executable %s: No such file or directory", args[0])
	}
	m := p.Machine
	p.enter()
	defer p.leave()
	name := o.last("u")
	if name == "" {
		name = "run-" + randomHex(8)
	}
	name = unitName(name)
	fail := func(text string) int {
		m.mu.Unlock()
		defer m.mu.Lock()
		return p.Fail("%s", text)
	}
	if u := m.units[name]; u != nil && (u.state != "inactive" && (u.state != "failed" || !u.transient)) {
		return fail("Failed to start transient service unit: Unit " + name + " was already loaded or has a fragment file.")
	}
	delete(m.units, name)
	u := m.unit(name)
	u.transient, u.argv = true, args
	u.env = o["E"]
	for _, property := range o["p"] {
		key, value, _ := strings.Cut(property, "=")
		switch key {
		case "TimeoutStopSec":
			u.stopTime, _ = duration(value)
		case "WorkingDirectory":
			u.dir = value
		case "Environment":
			u.env = append(u.env, unitWords(value)...)
		}
	}
	u.launch()
	return 0
}

func systemctlCommand(p *Process, o options, args []string) int {
	if len(args) == 0 {
		return p.unknown("systemctl without a verb")
	}
	verb, names := args[0], args[1:]
	for i := range names {
		names[i] = unitName(names[i])
	}
	m := p.Machine
	switch verb {
	case "daemon-reload", "reset-failed":
		if verb == "reset-failed" {
			p.enter()
			for _, u := range m.units {
				if u.state == "failed" && (len(names) == 0 || slices.Contains(names, u.name)) {
					u.state = "inactive"
				}
			}
			p.leave()
		}
		return 0
	case "show":
		return systemctlShow(p, o, names)
	case "cat":
		code := 0
		for _, name := range names {
			p.enter()
			path, text := m.unitFile(name)
			p.leave()
			if path == "" {
				code = p.Fail("No files found for %s.", name)
				continue
			}
			p.say("# " + path + "\n" + text)
		}
		return code
	case "is-active", "is-failed", "is-enabled":
		good := false
		for _, name := range names {
			p.enter()
			state := m.unitState(name)
			if verb == "is-enabled" {
				state = m.enabled(name)
			}
			p.leave()
			switch {
			case verb == "is-active" && state == "active", verb == "is-failed" && state == "failed", verb == "is-enabled" && (state == "enabled" || state == "static"):
				good = true
			}
			if !o.on("q") {
				p.Printf("%s\n", state)
			}
		}
		switch {
		case good:
			return 0
		case verb == "is-active":
			return 3
		}
		return 1
	case "is-system-running":
		return p.say("running\n")
	case "start", "restart", "reload-or-restart", "try-restart", "reload", "stop", "enable", "disable", "mask", "unmask", "kill":
		code := 0
		for _, name := range names {
			if text := systemctlChange(p, verb, name, o); text != "" {
				code = 1
				if verb == "stop" || verb == "start" || strings.Contains(text, "not found") {
					code = 5
				}
				if verb == "enable" || verb == "disable" {
					code = 1
				}
				_, _ = p.Stderr.Write([]byte(text + "\n"))
			}
		}
		return code
	case "list-unit-files", "list-units":
		return p.unknown("this listing")
	case "reboot":
		m.Reboot()
		p.check()
		return 0
	case "poweroff":
		m.PowerOff()
		p.check()
		return 0
	}
	return p.unknown("the verb %s", verb)
}

func systemctlShow(p *Process, o options, names []string) int {
	for _, name := range names {
		p.enter()
		m := p.Machine
		path, _ := m.unitFile(name)
		load := "loaded"
		u := m.units[name]
		if path == "" && (u == nil || !u.transient) {
			load = "not-found"
		}
		code, pid := 0, 0
		if u != nil {
			code = u.code
			if u.main != nil {
				pid = u.main.PID
			}
		}
		all := map[string]string{"ActiveState": m.unitState(name), "LoadState": load, "UnitFileState": m.enabled(name), "FragmentPath": path,
			"ExecMainStatus": strconv.Itoa(code), "MainPID": strconv.Itoa(pid), "Id": name, "Result": "success",
			"SubState": map[string]string{"active": "running", "inactive": "dead", "failed": "failed"}[m.unitState(name)]}
		p.leave()
		for _, list := range o["p"] {
			for key := range strings.SplitSeq(list, ",") {
				value, known := all[key]
				if !known {
					return p.unknown("the property %s", key)
				}
				if o.on("v") {
					p.Printf("%s\n", value)
				} else {
					p.Printf("%s=%s\n", key, value)
				}
			}
		}
	}
	return 0
}

// systemctlChange does one verb to one unit and returns a sentence when it fails.
func systemctlChange(p *Process, verb, name string, o options) string {
	m := p.Machine
	switch verb {
	case "start":
		return m.startUnit(name)
	case "stop", "kill":
		if !m.stopUnit(p, name) {
			return "Failed to stop " + name + ": Unit " + name + " not loaded."
		}
		return ""
	case "restart", "reload-or-restart", "try-restart", "reload":
		p.enter()
		active := m.unitState(name) == "active"
		p.leave()
		if verb == "reload" || verb == "try-restart" && !active {
			return ""
		}
		m.stopUnit(p, name)
		return m.startUnit(name)
	case "mask", "unmask":
		p.enter()
		defer p.leave()
		link := "/etc/systemd/system/" + name
		var err error
		if verb == "mask" {
			_ = m.remove(rootCred, link, false)
			err = m.symlink(rootCred, "/dev/null", link)
		} else if at, e := m.get(rootCred, link, 0); e == nil && at.n.isLink() {
			err = m.remove(rootCred, link, false)
		}
		if err != nil {
			return "Failed to " + verb + " unit: " + errText(err)
		}
		return ""
	}
	p.enter()
	path, text := m.unitFile(name)
	if path == "" {
		p.leave()
		return "Failed to " + verb + " unit: Unit file " + name + " does not exist."
	}
	var failed error
	for _, target := range unitValues(text, "Install", "WantedBy") {
		dir := "/etc/systemd/system/" + target + ".wants"
		if verb == "enable" {
			if err := m.mkdirAll(rootCred, dir, 0o755); err != nil {
				failed = err
			} else if err := m.symlink(rootCred, path, dir+"/"+name); err != nil && !errors.Is(err, syscall.EEXIST) {
				failed = err
			}
		} else {
			for _, from := range []string{dir, "/usr/lib/systemd/system/" + target + ".wants"} {
				_ = m.remove(rootCred, from+"/"+name, false)
			}
		}
	}
	p.leave()
	if failed != nil {
		return "Failed to " + verb + " unit: " + errText(failed)
	}
	if o.on("N") {
		if verb == "enable" {
			return m.startUnit(name)
		}
		m.stopUnit(p, name)
	}
	return ""
}
