// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
)

func init() {
	add("sleep", func(_ context.Context, p *Process) int {
		for _, arg := range p.Args[1:] {
			d, ok := duration(arg)
			if !ok {
				return p.Fail("invalid time interval '%s'", arg)
			}
			p.Sleep(d)
		}
		return 0
	})
	leading("timeout", "k:s:v", map[string]string{"kill-after": "k:", "signal": "s:", "foreground": "f", "preserve-status": "p"}, timeoutCommand)
	leading("flock", "nw:sxuoe", map[string]string{"nonblock": "n", "nb": "n", "wait": "w:", "timeout": "w:", "shared": "s", "exclusive": "x", "unlock": "u", "close": "o"}, flockCommand)
	leading("setsid", "wfc", map[string]string{"wait": "w", "fork": "f"}, func(p *Process, o options, args []string) int {
		start := func(q *Process) {
			q.Machine.mu.Lock()
			q.sid, q.pgid = q.PID, q.PID
			q.Machine.mu.Unlock()
		}
		// Only the leader of a group has to fork for a session of its own.
		if p.pgid == p.PID || o.on("f") {
			child := p.child(args)
			start(child)
			if o.on("w") {
				code := child.run(func() int { return child.exec(args, "setsid") })
				child.reap()
				return code
			}
			child.spawn(func() int { return child.exec(args, "setsid") })
			return 0
		}
		start(p)
		return p.Exec(args...)
	})
	leading("nohup", "", nil, func(p *Process, _ options, args []string) int {
		p.enter()
		p.ignored = with(p.ignored, "HUP")
		p.leave()
		return p.Exec(args...)
	})
	leading("nice", "n:", nil, func(p *Process, _ options, args []string) int { return p.Exec(args...) })
	leading("ionice", "c:n:t", nil, func(p *Process, _ options, args []string) int { return p.Exec(args...) })
	leading("nsenter", "t:muinpCT", map[string]string{"target": "t:", "mount": "m", "net": "n"}, func(p *Process, _ options, args []string) int { return p.Exec(args...) })
	leading("env", "iu:", map[string]string{"ignore-environment": "i", "unset": "u:"}, func(p *Process, o options, args []string) int {
		env := p.Environ()
		if o.on("i") {
			env = nil
		}
		for _, name := range o["u"] {
			kept := env[:0]
			for _, pair := range env {
				if !strings.HasPrefix(pair, name+"=") {
					kept = append(kept, pair)
				}
			}
			env = kept
		}
		for len(args) > 0 && strings.Contains(args[0], "=") {
			env = append(env, args[0])
			args = args[1:]
		}
		if len(args) == 0 {
			return p.sayLines(env)
		}
		p.env = env
		return p.Exec(args...)
	})
	leading("sudo", "nEHSu:k", map[string]string{"non-interactive": "n", "user": "u:"}, func(p *Process, _ options, args []string) int {
		p.enter()
		name := p.Machine.userNameLocked(p.cred.uid)
		p.leave()
		if may := p.Machine.o.Sudo; may != nil && p.cred.uid != 0 {
			if err := may(name, args); err != nil {
				return p.Fail("%v", err)
			}
		}
		if len(args) == 0 {
			return p.Fail("a command is needed")
		}
		p.enter()
		p.cred.uid, p.cred.gid = 0, 0
		p.leave()
		p.env = append(p.Environ(), "SUDO_USER="+name, "HOME=/root", "USER=root", "LOGNAME=root")
		return p.Exec(args...)
	})
	simple("date", "ud:I", map[string]string{"utc": "u", "date": "d:"}, dateCommand)
	simple("uname", "rmsnav", map[string]string{"kernel-release": "r", "machine": "m"}, func(p *Process, o options, _ []string) int {
		var words []string
		add := func(letter, word string) {
			if o.on(letter) || o.on("a") {
				words = append(words, word)
			}
		}
		if len(o) == 0 {
			o["s"] = []string{""}
		}
		add("s", "Linux")
		add("n", p.Machine.Hostname())
		add("r", kernelRelease)
		add("v", "#1 SMP")
		add("m", p.Machine.o.Architecture)
		return p.say(strings.Join(words, " ") + "\n")
	})
	simple("nproc", "", nil, func(p *Process, _ options, _ []string) int { return p.say(strconv.Itoa(p.Machine.o.CPUs) + "\n") })
	simple("hostname", "sfI", nil, func(p *Process, o options, args []string) int {
		if len(args) > 0 || o.on("I") {
			return p.unknown("hostname that sets, or -I")
		}
		name := p.Machine.Hostname()
		if o.on("s") {
			name, _, _ = strings.Cut(name, ".")
		}
		return p.say(name + "\n")
	})
	simple("hostnamectl", "", map[string]string{"static": "s", "transient": "t"}, func(p *Process, o options, args []string) int {
		switch {
		case len(args) == 2 && (args[0] == "set-hostname" || args[0] == "hostname"):
			if err := p.WriteFile("/etc/hostname", []byte(args[1]+"\n"), 0o644); err != nil {
				return p.Fail("Could not set static hostname: %s", errText(err))
			}
			p.enter()
			p.Machine.hostname = args[1]
			p.leave()
			return 0
		case len(args) == 1 && args[0] == "hostname" || len(args) == 0 && o.on("s"):
			return p.say(p.Machine.Hostname() + "\n")
		}
		return p.unknown("this verb")
	})
	simple("reboot", "f", map[string]string{"force": "f"}, func(p *Process, _ options, _ []string) int {
		p.Machine.Reboot()
		p.check()
		return 0
	})
	simple("poweroff", "f", nil, func(p *Process, _ options, _ []string) int {
		p.Machine.PowerOff()
		p.check()
		return 0
	})
	simple("ps", "eo:p:", nil, func(p *Process, _ options, _ []string) int { return p.unknown("ps") })
	simple("pgrep", "xf", nil, func(p *Process, o options, args []string) int {
		code := 1
		for _, pid := range p.Machine.pids() {
			q := p.Machine.process(pid)
			if q == nil || q.over || q == p || len(args) == 0 {
				continue
			}
			if o.on("x") && q.comm == args[0] || !o.on("x") && strings.Contains(q.comm, args[0]) || o.on("f") && strings.Contains(strings.Join(q.Args, " "), args[0]) {
				p.Printf("%d\n", pid)
				code = 0
			}
		}
		return code
	})
}

const kernelRelease = "6.12.0-sim"

// duration reads what sleep and timeout take.
func duration(text string) (time.Duration, bool) {
	unit := time.Second
	switch {
	case strings.HasSuffix(text, "s"):
		text = text[:len(text)-1]
	case strings.HasSuffix(text, "m"):
		text, unit = text[:len(text)-1], time.Minute
	case strings.HasSuffix(text, "h"):
		text, unit = text[:len(text)-1], time.Hour
	case strings.HasSuffix(text, "d"):
		text, unit = text[:len(text)-1], 24*time.Hour
	}
	if text == "infinity" || text == "inf" {
		return 1 << 62, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return time.Duration(n * float64(unit)), err == nil && n >= 0
}

// timeoutCommand makes a group of its own number, as the real one does, so that who waits can kill all that it left.
func timeoutCommand(p *Process, o options, args []string) int {
	if len(args) < 2 {
		return p.Fail("missing operand")
	}
	limit, ok := duration(args[0])
	if !ok {
		return p.Fail("invalid time interval '%s'", args[0])
	}
	m := p.Machine
	p.enter()
	if !o.on("f") {
		p.pgid = p.PID
	}
	p.caught = with(nil, "TERM", "INT", "HUP")
	child := m.newProcess(p, args[1:])
	p.leave()
	child.spawn(func() int { return child.exec(args[1:], "timeout") })
	signal := "TERM"
	if o.on("s") {
		signal = signalName(o.last("s"))
	}
	var timer, grace <-chan time.Time
	if limit > 0 {
		timer = m.after(limit)
	}
	expired := false
	send := func(name string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, q := range m.procs {
			// All of the group but timeout itself, which waits.
			if q != p && !q.over && (q == child || !o.on("f") && q.pgid == p.PID) {
				q.signalLocked(name)
			}
		}
	}
	for {
		p.enter()
		p.wake = make(chan struct{})
		wake := p.wake
		for _, name := range p.pending {
			child.signalLocked(name)
		}
		p.pending = nil
		p.leave()
		select {
		case <-child.ended:
			child.reap()
			p.check()
			if !expired || o.on("p") {
				return child.code
			}
			if child.code == 128+signals["KILL"] {
				return 137
			}
			return 124
		case <-wake:
		case <-timer:
			expired, timer = true, nil
			m.mu.Lock()
			m.skipped += limit - time.Duration(float64(limit)/m.o.Speed)
			m.mu.Unlock()
			send(signal)
			if o.on("k") {
				if d, ok := duration(o.last("k")); ok {
					grace = m.after(d)
				}
			}
		case <-grace:
			grace = nil
			send("KILL")
		case <-p.ended:
			p.check()
		}
	}
}

// after is time.After by the machine's speed.
func (m *Machine) after(d time.Duration) <-chan time.Time {
	return time.After(time.Duration(float64(d) / m.o.Speed))
}

func flockCommand(p *Process, o options, args []string) int {
	if len(args) == 0 {
		return p.Fail("requires a file descriptor, file, or directory")
	}
	var f *file
	if fd, err := strconv.Atoi(args[0]); err == nil && len(args) == 1 {
		if f = p.fd(fd); f == nil {
			p.Fail("%d: Bad file descriptor", fd)
			return 65
		}
	} else {
		f, err = p.open(args[0], os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			if f, err = p.open(args[0], os.O_RDONLY, 0); err != nil {
				p.Fail("cannot open lock file %s: %s", args[0], errText(err))
				return 66
			}
		}
		// The lock is held through a descriptor of this process, and goes with it.
		p.enter()
		fd := 3
		for p.fdLocked(fd) != nil {
			fd++
		}
		p.setFD(fd, f)
		p.leave()
	}
	if o.on("u") {
		p.enter()
		p.Machine.unlock(f)
		p.leave()
		return 0
	}
	if f.n == nil {
		return p.unknown("a lock on what is no file")
	}
	var timer <-chan time.Time
	if o.on("w") {
		d, ok := duration(o.last("w"))
		if !ok {
			return p.Fail("invalid timeout value '%s'", o.last("w"))
		}
		timer = p.Machine.after(d)
	}
	for {
		p.enter()
		wait := p.Machine.tryLock(f, o.on("s"))
		p.leave()
		if wait == nil {
			break
		}
		if o.on("n") {
			return 1
		}
		select {
		case <-wait:
		case <-timer:
			return 1
		case <-p.ended:
			p.check()
		}
	}
	if len(args) == 1 {
		return 0
	}
	command := args[1:]
	if command[0] == "-c" {
		command = []string{"/bin/sh", "-c", strings.Join(command[1:], " ")}
	}
	return p.Run(command...)
}

func dateCommand(p *Process, o options, args []string) int {
	now := p.Machine.Now()
	now = now.UTC()
	if o.on("d") {
		text := o.last("d")
		n, err := strconv.ParseInt(strings.TrimPrefix(text, "@"), 10, 64)
		switch {
		case err == nil && strings.HasPrefix(text, "@"):
			now = time.Unix(n, 0).UTC()
		default:
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return p.unknown("date -d %s", text)
			}
			now = at.UTC()
		}
	}
	if len(args) == 0 {
		return p.say(now.Format("Mon Jan _2 15:04:05 UTC 2006") + "\n")
	}
	format, ok := strings.CutPrefix(args[0], "+")
	if !ok {
		return p.unknown("date that sets the clock")
	}
	var out strings.Builder
	layouts := map[byte]string{'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'F': "2006-01-02", 'T': "15:04:05", 'Z': "MST", 'z': "-0700", 'N': ""}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		switch c := format[i]; {
		case c == 's':
			out.WriteString(strconv.FormatInt(now.Unix(), 10))
		case c == 'N':
			nanos := strconv.Itoa(now.Nanosecond())
			out.WriteString(strings.Repeat("0", 9-len(nanos)) + nanos)
		case layouts[c] != "":
			out.WriteString(now.Format(layouts[c]))
		default:
			return p.unknown("date %%%c", c)
		}
	}
	return p.say(out.String() + "\n")
}
