// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"os"
	"sort"
	"strings"
)

// build makes the default image: directories, commands, units, and what the kernel shows.
func build(m *Machine) {
	for _, dir := range []string{"/bin", "/boot", "/dev", "/etc/cni/net.d", "/etc/sudoers.d", "/etc/systemd/system", "/home", "/mnt", "/opt", "/opt/cni/bin", "/proc", "/run/systemd/system",
		"/run/containerd", "/run/netns", "/run/lock", "/srv", "/sys", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/systemd/system", "/var/lib/containerd",
		"/var/log", "/var/tmp", "/var/cache"} {
		must(m.mkdirAll(rootCred, dir, 0o755))
	}
	must(m.mkdirAll(rootCred, "/root", 0o700))
	must(m.mkdir(rootCred, "/tmp", 0o777))
	must(m.chmod(rootCred, "/tmp", 0o777|os.ModeSticky))
	must(m.remove(rootCred, "/bin", true))
	must(m.symlink(rootCred, "usr/bin", "/bin"))
	must(m.symlink(rootCred, "usr/sbin", "/sbin"))
	must(m.symlink(rootCred, "usr/lib", "/lib"))
	must(m.symlink(rootCred, "/run", "/var/run"))
	for name := range commands {
		dir := "/usr/bin/"
		if sbin[name] {
			dir = "/usr/sbin/"
		}
		m.mustPut(dir+name, File{Mode: 0o755, Content: Executable(name)})
	}
	for path, text := range map[string]string{
		"/etc/os-release":             "PRETTY_NAME=\"Simulated Linux 1\"\nNAME=\"Simulated Linux\"\nVERSION_ID=\"1\"\nID=simulated\nID_LIKE=debian\n",
		"/etc/fstab":                  "/dev/root / ext4 defaults 0 1\n",
		"/etc/hosts":                  "127.0.0.1 localhost\n",
		"/etc/passwd":                 "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nquoin:x:1000:1000::/home/quoin:/bin/sh\n",
		"/etc/group":                  "root:x:0:\ndaemon:x:1:\nsudo:x:27:quoin\nnogroup:x:65534:\nquoin:x:1000:\n",
		"/etc/systemd/timesyncd.conf": "[Time]\n",
		"/usr/lib/systemd/system/containerd.service":        "[Service]\nExecStart=/usr/bin/containerd\nRestart=always\nRestartSec=5\n[Install]\nWantedBy=multi-user.target\n",
		"/usr/lib/systemd/system/keepalived.service":        "[Service]\nExecStart=/usr/sbin/keepalived --dont-fork\nRestart=on-failure\n[Install]\nWantedBy=multi-user.target\n",
		"/usr/lib/systemd/system/systemd-timesyncd.service": "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
	} {
		m.mustPut(path, File{Content: []byte(text)})
	}
	m.mustPut("/etc/shadow", File{Mode: 0o640, Content: []byte("root:*:20000:0:99999:7:::\nquoin:!:20000:0:99999:7:::\n")})
	m.mustPut("/home/quoin", File{Mode: os.ModeDir | 0o755, UID: 1000, GID: 1000})
	must(m.mkdirAll(rootCred, "/usr/lib/systemd/system/multi-user.target.wants", 0o755))
	must(m.symlink(rootCred, "../containerd.service", "/usr/lib/systemd/system/multi-user.target.wants/containerd.service"))
	must(m.symlink(rootCred, "../systemd-timesyncd.service", "/usr/lib/systemd/system/multi-user.target.wants/systemd-timesyncd.service"))
	for _, name := range []string{"null", "zero", "tty"} {
		m.mustPut("/dev/"+name, File{Mode: os.ModeDevice | os.ModeCharDevice | 0o666})
	}
	dev, err := m.get(rootCred, "/dev", own)
	must(err)
	dev.n.volatile = true
	dev.n.dyn = devices
	kernel(m, "/proc", procTree)
	kernel(m, "/sys", sysTree)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func kernel(m *Machine, path string, d *dynamic) {
	at, err := m.get(rootCred, path, own)
	must(err)
	at.n.dyn, at.n.volatile = d, true
}

func init() {
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore", "ip", "mount", "umount", "sysctl",
		"modprobe", "useradd", "userdel", "usermod", "groupadd", "chpasswd", "keepalived", "sshd", "reboot", "poweroff", "blkid", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "swapoff", "blockdev", "conntrack", "ethtool"} {
		sbin[name] = true
	}
	// Daemons: they do nothing but be there.
	add("containerd", func(ctx context.Context, p *Process) int {
		if len(p.Args) > 1 && p.Args[1] == "--version" {
			return p.say("containerd github.com/containerd/containerd/v2 v2.1.0 0000000\n")
		}
		_ = p.MkdirAll("/run/containerd", 0o711)
		p.Socket("/run/containerd/containerd.sock")
		<-ctx.Done()
		return 0
	})
	add("keepalived", keepalivedDaemon)
	add("sshd", func(_ context.Context, p *Process) int {
		return p.say("port 22\nallowtcpforwarding yes\ndisableforwarding no\n")
	})
	// Commands whose presence is all that is asked for.
	for _, name := range []string{"conntrack", "socat", "ethtool"} {
		add(name, func(_ context.Context, p *Process) int { return p.unknown("what it does") })
	}
	simple("modprobe", "rqn", nil, func(p *Process, _ options, args []string) int {
		p.enter()
		defer p.leave()
		if p.Machine.modules == nil {
			p.Machine.modules = map[string]bool{}
		}
		for _, name := range args {
			p.Machine.modules[name] = true
		}
		return 0
	})
	simple("sysctl", "wnp:qe", map[string]string{"system": "S", "values": "n", "load": "p:"}, sysctlCommand)
}

func sysctlCommand(p *Process, o options, args []string) int {
	if o.on("S") || o.on("p") {
		p.enter()
		p.Machine.settings()
		p.leave()
		return 0
	}
	for _, arg := range args {
		name, value, set := strings.Cut(arg, "=")
		p.enter()
		old, known := p.Machine.sysctl[name]
		if set && known {
			p.Machine.sysctl[name] = value
			old = value
		}
		p.leave()
		switch {
		case !known:
			return p.Fail("cannot stat /proc/sys/%s: No such file or directory", strings.ReplaceAll(name, ".", "/"))
		case o.on("n"):
			p.Printf("%s\n", old)
		default:
			p.Printf("%s = %s\n", name, old)
		}
	}
	return 0
}

// Socket makes a socket file, which goes with the process.
func (p *Process) Socket(path string) {
	p.enter()
	defer p.leave()
	m := p.Machine
	_ = m.remove(rootCred, path, false)
	if at, err := m.look(rootCred, path, own); err == nil {
		_, _ = m.create(rootCred, at, os.ModeSocket|0o660)
	}
}

// settings are what the kernel is told at boot: defaults, then /etc/modules-load.d and /etc/sysctl.d; mu is held.
func (m *Machine) settings() {
	if m.sysctl == nil || m.bootID != m.settingsOf {
		m.sysctl = map[string]string{"net.ipv4.ip_forward": "0", "net.ipv6.conf.all.forwarding": "0", "net.bridge.bridge-nf-call-iptables": "1",
			"net.bridge.bridge-nf-call-ip6tables": "1", "vm.overcommit_memory": "0", "kernel.panic": "0", "kernel.panic_on_oops": "1", "net.ipv4.ip_nonlocal_bind": "0",
			"kernel.hostname": m.hostname}
		m.modules, m.settingsOf = nil, m.bootID
	}
	each := func(dir string, take func(line string)) {
		at, err := m.get(rootCred, dir, follow)
		if err != nil {
			return
		}
		for _, name := range at.n.names(m) {
			if strings.HasSuffix(name, ".conf") {
				for _, line := range lines(string(at.n.child(m, name).data)) {
					take(strings.TrimSpace(line))
				}
			}
		}
	}
	each("/etc/modules-load.d", func(line string) {
		if line != "" && line[0] != '#' {
			if m.modules == nil {
				m.modules = map[string]bool{}
			}
			m.modules[line] = true
		}
	})
	each("/etc/sysctl.d", func(line string) {
		if name, value, ok := strings.Cut(line, "="); ok && line[0] != '#' {
			m.sysctl[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	})
}

// pids lists the process table.
func (m *Machine) pids() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pidsLocked()
}

func (m *Machine) pidsLocked() []int {
	pids := make([]int, 0, len(m.procs))
	for pid := range m.procs {
		pids = append(pids, pid)
	}
	sort.Ints(pids)
	return pids
}

func (m *Machine) process(pid int) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.procs[pid]
}

var (
	byID = linksToDisks(func(d *Disk) []string {
		names := append([]string(nil), d.IDs...)
		if d.WWN != "" {
			names = append(names, "wwn-"+d.WWN)
		}
		return names
	})
	byLabel = linksToDisks(func(d *Disk) []string {
		if d.Label == "" {
			return nil
		}
		return []string{d.Label}
	})
	byUUID = linksToDisks(func(d *Disk) []string {
		if d.UUID == "" {
			return nil
		}
		return []string{d.UUID}
	})
)
