// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The users are what /etc/passwd and /etc/group say.

// entries reads a file of lines with colons; mu is held.
func (m *Machine) entries(path string) [][]string {
	at, err := m.get(rootCred, path, follow)
	if err != nil {
		return nil
	}
	var out [][]string
	for _, line := range lines(string(at.n.data)) {
		out = append(out, strings.Split(line, ":"))
	}
	return out
}

// entry finds a line by its name, or by the number in its third field.
func (m *Machine) entry(path, key string) []string {
	for _, fields := range m.entries(path) {
		if len(fields) > 2 && (fields[0] == key || fields[2] == key) {
			return fields
		}
	}
	return nil
}

func (m *Machine) userID(name string) (int, int) {
	if e := m.entry("/etc/passwd", name); len(e) > 3 {
		uid, _ := strconv.Atoi(e[2])
		gid, _ := strconv.Atoi(e[3])
		return uid, gid
	}
	return 65534, 65534
}

func (m *Machine) home(name string) string {
	if name == "" {
		name = "root"
	}
	if e := m.entry("/etc/passwd", name); len(e) > 5 {
		if _, err := m.get(rootCred, e[5], follow); err == nil {
			return e[5]
		}
	}
	return "/"
}

func (m *Machine) userNameLocked(uid int) string {
	if e := m.entry("/etc/passwd", strconv.Itoa(uid)); e != nil {
		return e[0]
	}
	return strconv.Itoa(uid)
}

func (m *Machine) userName(uid int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.userNameLocked(uid)
}

func (m *Machine) groupName(gid int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entry("/etc/group", strconv.Itoa(gid)); e != nil {
		return e[0]
	}
	return "UNKNOWN"
}

// ownerOf reads user[:group]. -1 leaves one alone.
func (p *Process) ownerOf(text string) (uid, gid int, err error) {
	p.enter()
	defer p.leave()
	user, group, hasGroup := strings.Cut(text, ":")
	uid, gid = -1, -1
	if user != "" {
		e := p.Machine.entry("/etc/passwd", user)
		if e == nil {
			n, bad := strconv.Atoi(user)
			if bad != nil {
				return 0, 0, fmt.Errorf("invalid user: '%s'", text)
			}
			uid = n
		} else {
			uid, _ = strconv.Atoi(e[2])
			if hasGroup && group == "" {
				gid, _ = strconv.Atoi(e[3])
			}
		}
	}
	if group != "" {
		e := p.Machine.entry("/etc/group", group)
		if e == nil {
			n, bad := strconv.Atoi(group)
			if bad != nil {
				return 0, 0, fmt.Errorf("invalid group: '%s'", text)
			}
			gid = n
		} else {
			gid, _ = strconv.Atoi(e[2])
		}
	}
	return uid, gid, nil
}

// rewrite changes the lines of a file of users.
func (p *Process) rewrite(path string, change func([]string) []string) error {
	content, err := p.ReadFile(path)
	if err != nil {
		return err
	}
	return p.writeOver(path, []byte(strings.Join(change(lines(string(content))), "\n")+"\n"))
}

func init() {
	simple("id", "ungGr", map[string]string{"user": "u", "group": "g", "name": "n", "groups": "G"}, func(p *Process, o options, args []string) int {
		p.enter()
		key := strconv.Itoa(p.cred.uid)
		if len(args) > 0 {
			key = args[0]
		}
		e := p.Machine.entry("/etc/passwd", key)
		p.leave()
		if e == nil {
			return p.Fail("'%s': no such user", key)
		}
		gid, _ := strconv.Atoi(e[3])
		switch {
		case o.on("u") && o.on("n"):
			return p.say(e[0] + "\n")
		case o.on("u"):
			return p.say(e[2] + "\n")
		case (o.on("g") || o.on("G")) && o.on("n"):
			return p.say(p.Machine.groupName(gid) + "\n")
		case o.on("g") || o.on("G"):
			return p.say(e[3] + "\n")
		}
		return p.say(fmt.Sprintf("uid=%s(%s) gid=%s(%s)\n", e[2], e[0], e[3], p.Machine.groupName(gid)))
	})
	simple("whoami", "", nil, func(p *Process, _ options, _ []string) int { return p.say(p.Machine.userName(p.cred.uid) + "\n") })
	simple("getent", "", nil, func(p *Process, _ options, args []string) int {
		if len(args) == 0 || args[0] != "passwd" && args[0] != "group" && args[0] != "hosts" && args[0] != "shadow" {
			return p.unknown("getent of another table")
		}
		if args[0] == "hosts" {
			return 2
		}
		p.enter()
		all := p.Machine.entries("/etc/" + args[0])
		p.leave()
		code := 0
		for _, key := range args[1:] {
			i := slices.IndexFunc(all, func(e []string) bool { return e[0] == key || len(e) > 2 && args[0] != "shadow" && e[2] == key })
			if i < 0 {
				code = 2
				continue
			}
			p.Printf("%s\n", strings.Join(all[i], ":"))
		}
		return code
	})
	simple("groupadd", "rg:f", map[string]string{"system": "r", "gid": "g:"}, func(p *Process, o options, args []string) int {
		err := p.rewrite("/etc/group", func(all []string) []string {
			gid := o.last("g")
			if gid == "" {
				gid = freeID(all)
			}
			return append(all, args[0]+":x:"+gid+":")
		})
		if err != nil {
			return p.Fail("cannot open /etc/group: %s", errText(err))
		}
		return 0
	})
	simple("useradd", "mMrc:d:s:g:G:u:N", map[string]string{"create-home": "m", "comment": "c:", "home-dir": "d:", "shell": "s:", "gid": "g:", "groups": "G:", "uid": "u:", "system": "r", "no-create-home": "M", "home": "d:"}, useraddCommand)
	simple("userdel", "rf", map[string]string{"remove": "r", "force": "f"}, func(p *Process, o options, args []string) int {
		p.enter()
		e := p.Machine.entry("/etc/passwd", args[0])
		p.leave()
		if e == nil {
			p.Fail("user '%s' does not exist", args[0])
			return 6
		}
		for _, path := range []string{"/etc/passwd", "/etc/shadow", "/etc/group"} {
			_ = p.rewrite(path, func(all []string) []string {
				return slices.DeleteFunc(all, func(line string) bool { return strings.HasPrefix(line, args[0]+":") })
			})
		}
		if o.on("r") && len(e) > 5 {
			_ = p.removeTree(e[5])
		}
		return 0
	})
	simple("usermod", "LUe:aG:s:p:", map[string]string{"lock": "L", "unlock": "U", "expiredate": "e:", "groups": "G:", "append": "a"}, func(p *Process, o options, args []string) int {
		err := p.rewrite("/etc/shadow", func(all []string) []string {
			for i, line := range all {
				e := strings.Split(line, ":")
				if e[0] != args[0] {
					continue
				}
				if o.on("L") && !strings.HasPrefix(e[1], "!") {
					e[1] = "!" + e[1]
				}
				if o.on("e") {
					e[7] = o.last("e")
				}
				all[i] = strings.Join(e, ":")
			}
			return all
		})
		if err != nil {
			return p.Fail("cannot open /etc/shadow: %s", errText(err))
		}
		return 0
	})
	simple("chpasswd", "e", map[string]string{"encrypted": "e"}, func(p *Process, _ options, _ []string) int {
		content, err := p.slurp("-")
		if err != nil {
			return p.Fail("%s", errText(err))
		}
		for _, pair := range lines(string(content)) {
			name, hash, _ := strings.Cut(pair, ":")
			if err := p.rewrite("/etc/shadow", func(all []string) []string {
				for i, line := range all {
					if e := strings.Split(line, ":"); e[0] == name {
						e[1] = hash
						all[i] = strings.Join(e, ":")
					}
				}
				return all
			}); err != nil {
				return p.Fail("%s", errText(err))
			}
		}
		return 0
	})
}

func freeID(all []string) string {
	next := 1000
	for _, line := range all {
		if e := strings.Split(line, ":"); len(e) > 2 {
			if n, _ := strconv.Atoi(e[2]); n >= next && n < 60000 {
				next = n + 1
			}
		}
	}
	return strconv.Itoa(next)
}

func useraddCommand(p *Process, o options, args []string) int {
	name := args[0]
	p.enter()
	taken := p.Machine.entry("/etc/passwd", name) != nil
	p.leave()
	if taken {
		p.Fail("user '%s' already exists", name)
		return 9
	}
	home, shell := "/home/"+name, "/bin/sh"
	if o.on("d") {
		home = o.last("d")
	}
	if o.on("s") {
		shell = o.last("s")
	}
	gid := ""
	if o.on("g") {
		_, id, err := p.ownerOf(":" + o.last("g"))
		if err != nil {
			return p.Fail("%v", err)
		}
		gid = strconv.Itoa(id)
	} else {
		_ = p.rewrite("/etc/group", func(all []string) []string {
			gid = freeID(all)
			return append(all, name+":x:"+gid+":")
		})
	}
	if groups := o.last("G"); groups != "" {
		for group := range strings.SplitSeq(groups, ",") {
			if err := p.rewrite("/etc/group", func(all []string) []string {
				for i, line := range all {
					if strings.HasPrefix(line, group+":") {
						all[i] = strings.TrimPrefix(line+","+name, "")
						if strings.HasSuffix(line, ":") {
							all[i] = line + name
						}
					}
				}
				return all
			}); err != nil {
				return p.Fail("%s", errText(err))
			}
		}
	}
	uid := o.last("u")
	if err := p.rewrite("/etc/passwd", func(all []string) []string {
		if uid == "" {
			uid = freeID(all)
		}
		return append(all, strings.Join([]string{name, "x", uid, gid, o.last("c"), home, shell}, ":"))
	}); err != nil {
		return p.Fail("cannot open /etc/passwd: %s", errText(err))
	}
	if err := p.rewrite("/etc/shadow", func(all []string) []string { return append(all, name+":!:20000:0:99999:7:::") }); err != nil {
		return p.Fail("cannot open /etc/shadow: %s", errText(err))
	}
	if o.on("m") {
		if err := p.MkdirAll(home, 0o755); err != nil {
			return p.Fail("cannot create directory %s: %s", home, errText(err))
		}
		u, _ := strconv.Atoi(uid)
		g, _ := strconv.Atoi(gid)
		p.enter()
		_ = p.Machine.chown(&p.cred, home, u, g, 0)
		p.leave()
	}
	return 0
}
