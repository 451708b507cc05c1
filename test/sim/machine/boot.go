// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"time"
)

// downCode marks the end of a process that the machine took with it.
const downCode = -1

// PowerOn boots a machine that is off.
func (m *Machine) PowerOn() {
	m.mu.Lock()
	if m.powered {
		m.mu.Unlock()
		return
	}
	m.powered = true
	id := randomHex(32)
	m.bootID = fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:])
	m.boots++
	m.booted, m.skipped = time.Now(), 0
	m.procs = map[int]*Process{}
	m.nextPID = 100
	m.ports = nil
	m.locks = nil
	m.firewall = nil
	m.resetNetwork()
	m.clean("/run")
	m.clean("/tmp")
	m.settings()
	m.mountFstab()
	start := m.loadUnits()
	m.mu.Unlock()
	for _, name := range start {
		m.startUnit(name)
	}
}

// clean empties a directory that lives in memory.
func (m *Machine) clean(path string) {
	at, err := m.get(rootCred, path, own|follow)
	if err != nil {
		return
	}
	fresh := m.image.tmpfs(path)
	at.n.kids = fresh
}

// PowerOff takes the power: every process ends where it is.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.powered {
		return
	}
	m.powered = false
	for _, p := range m.procs {
		p.finish(downCode, true)
	}
	m.procs = map[int]*Process{}
	for _, u := range m.units {
		u.forget()
	}
	m.units = nil
	m.unmountAll()
}

// Powered says whether the machine is on.
func (m *Machine) Powered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.powered
}

// Reboot is PowerOff and PowerOn: as a crash does it, nothing is told before.
func (m *Machine) Reboot() {
	m.PowerOff()
	m.PowerOn()
}

var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "CHLD": 17, "CONT": 18, "STOP": 19}

// signal delivers a signal by its name without SIG.
func (p *Process) signal(name string) {
	p.Machine.mu.Lock()
	defer p.Machine.mu.Unlock()
	p.signalLocked(name)
}

func (p *Process) signalLocked(name string) {
	if p.over {
		return
	}
	if name != "KILL" {
		switch {
		case p.ignored[name], name == "CHLD", name == "CONT", name == "STOP":
			return
		case p.caught[name]:
			p.pending = append(p.pending, name)
			if p.wake != nil {
				close(p.wake)
				p.wake = nil
			}
			return
		}
	}
	p.finish(128+signals[name], true)
}

// Kill sends a signal (KILL, TERM, HUP) to a process of the machine.
func (m *Machine) Kill(pid int, signal string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.procs[pid]
	if p == nil || p.over {
		return false
	}
	p.signalLocked(signal)
	return true
}

// signalGroup sends a signal to every process of a group, and says whether there was one. An empty name only looks.
func (m *Machine) signalGroup(group int, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := false
	for _, p := range m.procs {
		if p.pgid == group && !p.over {
			found = true
			if name != "" {
				p.signalLocked(name)
			}
		}
	}
	return found
}

// Running lists the processes of the machine as their command lines, by number.
func (m *Machine) Running() map[int][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[int][]string{}
	for pid, p := range m.procs {
		if !p.over {
			out[pid] = p.Args
		}
	}
	return out
}
