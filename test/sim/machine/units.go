// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"slices"
	"strings"
	"time"
)

// unit is a service as systemd has it: from a file, or transient.
type unit struct {
	m    *Machine
	name string
	// file is the path of the unit file; empty for a transient unit.
	file string
	// text is the file with its drop-ins behind it.
	text      string
	transient bool
	argv      []string
	env       []string
	dir       string
	// state is inactive, activating, active, deactivating or failed.
	state    string
	main     *Process
	code     int
	stopping bool
	starts   int
	stopTime time.Duration
}

// forget ends a unit with its machine.
func (u *unit) forget() { u.stopping = true }

// loadUnits forgets the last boot and returns what is enabled; mu is held.
func (m *Machine) loadUnits() []string {
	m.units = map[string]*unit{}
	var enabled []string
	for _, dir := range unitDirs {
		at, err := m.get(rootCred, dir+"/multi-user.target.wants", follow)
		if err != nil {
			continue
		}
		for _, name := range at.n.names(m) {
			if !slices.Contains(enabled, name) {
				enabled = append(enabled, name)
			}
		}
	}
	return enabled
}

func (m *Machine) unit(name string) *unit {
	u := m.units[name]
	if u == nil {
		u = &unit{m: m, name: name, state: "inactive", stopTime: 90 * time.Second}
		m.units[name] = u
	}
	return u
}

// startUnit starts a unit from its file. It returns a sentence when it cannot.
func (m *Machine) startUnit(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.powered {
		return ""
	}
	u := m.unit(name)
	if u.state == "active" || u.state == "activating" {
		return ""
	}
	if !u.transient {
		if u.file, u.text = m.unitFile(name); u.file == "" {
			delete(m.units, name)
			return "Failed to start " + name + ": Unit " + name + " not found."
		}
		if u.file == "/dev/null" {
			return "Failed to start " + name + ": Unit " + name + " is masked."
		}
	}
	u.stopping = false
	u.launch()
	if u.state == "failed" {
		return "Job for " + name + " failed because the control process exited with error code."
	}
	return ""
}

// launch starts the main process; mu is held.
func (u *unit) launch() {
	m := u.m
	argv := u.argv
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !u.transient {
		vars, ok := u.environment()
		command := lastOf(unitValues(u.text, "Service", "ExecStart"))
		if !ok || command == "" {
			u.state = "failed"
			return
		}
		argv = nil
		for _, word := range unitWords(strings.TrimLeft(command, "-+@:!")) {
			if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") {
				// A variable that is a word of its own is split; an empty one vanishes.
				argv = append(argv, unitWords(vars[name])...)
				continue
			}
			argv = append(argv, os.Expand(word, func(name string) string { return vars[name] }))
		}
		for _, name := range sortedKeys(vars) {
			env = append(env, name+"="+vars[name])
		}
		if text := lastOf(unitValues(u.text, "Service", "TimeoutStopSec")); text != "" {
			if d, ok := duration(text); ok {
				u.stopTime = d
			}
		}
	}
	u.state = "active"
	u.starts++
	p := m.newProcess(nil, argv)
	env = append(env, u.env...)
	p.unit, p.env = u, env
	if u.dir != "" {
		p.cred.dir = u.dir
	}
	for fd := range 3 {
		p.setFD(fd, &file{refs: 1, null: fd == 0 || m.o.Printed == nil, sink: m.o.Printed})
	}
	u.main = p
	go func() {
		p.spawnWait(func() int { return p.exec(argv, "systemd") })
		u.ended(p)
	}()
}

// spawnWait runs the body and swallows the end of a killed one.
func (p *Process) spawnWait(body func() int) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(gone); !ok {
				panic(r)
			}
		}
	}()
	p.run(body)
}

// ended is what systemd does when a main process is over: the rest of its group goes too, and Restart= counts.
func (u *unit) ended(p *Process) {
	m := u.m
	m.mu.Lock()
	if u.main != p || m.units[u.name] != u {
		m.mu.Unlock()
		return
	}
	u.code = p.code
	u.killAll("KILL")
	failed := u.code != 0 && !u.stopping
	u.state = "inactive"
	if failed {
		u.state = "failed"
	}
	if lastOf(unitValues(u.text, "Service", "Type")) == "oneshot" && !failed && lastOf(unitValues(u.text, "Service", "RemainAfterExit")) == "yes" {
		u.state = "active"
	}
	u.main = nil
	restart := lastOf(unitValues(u.text, "Service", "Restart"))
	again := !u.stopping && !u.transient && (restart == "always" || restart == "on-failure" && failed)
	if u.transient {
		delete(m.units, u.name)
	}
	pause := 100 * time.Millisecond
	if text := lastOf(unitValues(u.text, "Service", "RestartSec")); text != "" {
		if d, ok := duration(text); ok {
			pause = d
		}
	}
	if again {
		u.state = "activating"
	}
	m.mu.Unlock()
	if !again {
		return
	}
	<-m.after(pause)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.units[u.name] == u && u.state == "activating" && !u.stopping && m.powered {
		if path, text := m.unitFile(u.name); path != "" {
			u.file, u.text = path, text
			u.launch()
			return
		}
		u.state = "inactive"
	}
}

// killAll signals every process of the unit; mu is held.
func (u *unit) killAll(signal string) {
	for _, p := range u.m.procs {
		if p.unit == u && !p.over {
			p.signalLocked(signal)
		}
	}
}

// stopUnit ends a unit with all it started, on behalf of p, and waits for that.
func (m *Machine) stopUnit(p *Process, name string) bool {
	p.enter()
	u := m.units[name]
	if u == nil {
		path, _ := m.unitFile(name)
		p.leave()
		return path != ""
	}
	u.stopping = true
	if u.main == nil {
		u.state = "inactive"
		p.leave()
		return true
	}
	u.state = "deactivating"
	main := u.main
	u.killAll("TERM")
	limit := u.stopTime
	p.leave()
	kill := m.after(limit)
	for waiting := true; waiting; {
		select {
		case <-main.ended:
			waiting = false
		case <-kill:
			m.mu.Lock()
			u.killAll("KILL")
			m.mu.Unlock()
		case <-p.ended:
			p.check()
		}
	}
	p.enter()
	u.killAll("KILL")
	if u.main == main {
		u.main, u.state = nil, "inactive"
		if u.transient {
			delete(m.units, name)
		}
	}
	p.leave()
	return true
}

// state of a unit by its name; mu is held.
func (m *Machine) unitState(name string) string {
	if u := m.units[name]; u != nil {
		return u.state
	}
	return "inactive"
}

// UnitState is what systemctl is-active would say.
func (m *Machine) UnitState(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unitState(unitName(name))
}

func (m *Machine) enabled(name string) string {
	path, text := m.unitFile(name)
	switch path {
	case "":
		return "not-found"
	case "/dev/null":
		return "masked"
	}
	for _, dir := range unitDirs {
		if _, err := m.get(rootCred, dir+"/multi-user.target.wants/"+name, 0); err == nil {
			return "enabled"
		}
	}
	if len(unitValues(text, "Install", "WantedBy")) == 0 {
		return "static"
	}
	return "disabled"
}
