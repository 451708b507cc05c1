// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

func text(read func(m *Machine, p *Process) string) *node {
	return &node{mode: 0o444, nlink: 1, dyn: &dynamic{read: read}}
}

func constant(s string) *node { return text(func(*Machine, *Process) string { return s }) }

func directory(d *dynamic) *node { return &node{mode: os.ModeDir | 0o555, nlink: 2, dyn: d} }

// table is a directory whose names are known.
func table(nodes map[string]*node) *dynamic {
	names := sortedKeys(nodes)
	return &dynamic{
		list:  func(*Machine) []string { return names },
		child: func(_ *Machine, name string) *node { return nodes[name] },
	}
}

var procTree = func() *dynamic {
	fixed := table(map[string]*node{
		"uptime": text(func(m *Machine, _ *Process) string {
			up := (time.Since(m.booted) + m.skipped).Seconds()
			return fmt.Sprintf("%.2f %.2f\n", up, up)
		}),
		"meminfo": text(func(m *Machine, _ *Process) string { return fmt.Sprintf("MemTotal:       %d kB\n", m.o.MemoryKiB) }),
		"cpuinfo": text(func(m *Machine, _ *Process) string {
			var b strings.Builder
			for i := range m.o.CPUs {
				fmt.Fprintf(&b, "processor\t: %d\n\n", i)
			}
			return b.String()
		}),
		"swaps":   constant("Filename\tType\tSize\tUsed\tPriority\n"),
		"cmdline": constant("BOOT_IMAGE=/vmlinuz root=/dev/root ro\n"),
		"mounts":  text(func(m *Machine, _ *Process) string { return m.mountTable() }),
		"modules": text(func(m *Machine, _ *Process) string {
			var b strings.Builder
			for _, name := range sortedKeys(m.modules) {
				fmt.Fprintf(&b, "%s 16384 0 - Live 0x0\n", name)
			}
			return b.String()
		}),
		"self": directory(table(map[string]*node{
			"mounts":    text(func(m *Machine, _ *Process) string { return m.mountTable() }),
			"mountinfo": text(func(m *Machine, _ *Process) string { return m.mountTable() }),
		})),
		"net": directory(table(map[string]*node{
			"tcp":  text(func(m *Machine, _ *Process) string { return m.sockets() }),
			"tcp6": constant("  sl  local_address rem_address   st\n"),
		})),
		"sys": directory(sysctlTree("")),
	})
	return &dynamic{
		list: func(m *Machine) []string {
			names := fixed.list(m)
			for _, pid := range m.pidsLocked() {
				names = append(names[:len(names):len(names)], strconv.Itoa(pid))
			}
			return names
		},
		child: func(m *Machine, name string) *node {
			if pid, err := strconv.Atoi(name); err == nil {
				if p := m.procs[pid]; p != nil {
					return directory(p.tree())
				}
				return nil
			}
			return fixed.child(m, name)
		},
	}
}()

// tree is /proc/<pid>.
func (p *Process) tree() *dynamic {
	state := "S (sleeping)"
	if p.over {
		state = "Z (zombie)"
	}
	return table(map[string]*node{
		"comm":    constant(p.comm + "\n"),
		"cmdline": constant(strings.Join(p.Args, "\x00") + "\x00"),
		"stat":    constant(fmt.Sprintf("%d (%s) %s %d %d %d 0 -1\n", p.PID, p.comm, state[:1], p.ppid, p.pgid, p.sid)),
		"status":  constant(fmt.Sprintf("Name:\t%s\nState:\t%s\nPid:\t%d\nPPid:\t%d\n", p.comm, state, p.PID, p.ppid)),
	})
}

func (m *Machine) sockets() string {
	var b strings.Builder
	b.WriteString("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n")
	ports := make([]int, 0, len(m.ports))
	for port := range m.ports {
		ports = append(ports, port)
	}
	slices.Sort(ports)
	for i, port := range ports {
		fmt.Fprintf(&b, "%4d: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 0\n", i, port)
	}
	return b.String()
}

// sysctlTree is a directory of /proc/sys below a prefix such as "net.ipv4.".
func sysctlTree(prefix string) *dynamic {
	return &dynamic{
		list: func(m *Machine) []string {
			seen := map[string]bool{}
			for name := range m.sysctl {
				if rest, ok := strings.CutPrefix(name, prefix); ok {
					first, _, _ := strings.Cut(rest, ".")
					seen[first] = true
				}
			}
			return sortedKeys(seen)
		},
		child: func(m *Machine, name string) *node {
			full := prefix + name
			if full == "kernel.random" {
				return directory(table(map[string]*node{"boot_id": text(func(m *Machine, _ *Process) string { return m.bootID + "\n" })}))
			}
			if full == "kernel.hostname" {
				return text(func(m *Machine, _ *Process) string { return m.hostname + "\n" })
			}
			if _, ok := m.sysctl[full]; ok {
				return &node{mode: 0o644, nlink: 1, dyn: &dynamic{
					read: func(m *Machine, _ *Process) string { return m.sysctl[full] + "\n" },
					write: func(m *Machine, text string) error {
						m.sysctl[full] = strings.TrimSpace(text)
						return nil
					},
				}}
			}
			for known := range m.sysctl {
				if strings.HasPrefix(known, full+".") {
					return directory(sysctlTree(full + "."))
				}
			}
			return nil
		},
	}
}

// Sysctl is a setting of the kernel.
func (m *Machine) Sysctl(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sysctl[name]
}

var sysTree = table(map[string]*node{
	"fs": directory(table(map[string]*node{"cgroup": directory(table(map[string]*node{"cgroup.controllers": constant("cpuset cpu io memory pids\n")}))})),
	"block": directory(&dynamic{
		list: func(m *Machine) []string {
			var names []string
			for _, d := range m.disks {
				names = append(names, d.Name)
			}
			return names
		},
		child: func(m *Machine, name string) *node {
			if d := m.disk(name); d != nil {
				return directory(d.tree(""))
			}
			return nil
		},
	}),
	"class": directory(table(map[string]*node{"dmi": directory(table(map[string]*node{"id": directory(table(map[string]*node{
		"product_uuid":   text(func(m *Machine, _ *Process) string { return m.o.ProductUUID + "\n" }),
		"product_serial": text(func(m *Machine, _ *Process) string { return m.o.Serial + "\n" }),
	}))})), "net": directory(&dynamic{
		list: func(m *Machine) []string {
			var names []string
			for _, l := range m.links {
				names = append(names, l.Name)
			}
			return names
		},
		child: func(m *Machine, name string) *node {
			if m.link_(name) != nil {
				return directory(m.linkTree(name))
			}
			return nil
		},
	})})),
})

func (d *disk) tree(prefix string) *dynamic {
	nodes := map[string]*node{}
	for _, path := range []string{"size", "queue/rotational", "device/serial", "wwid"} {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		value, has := d.sysfs(path)
		if !has {
			continue
		}
		if dir, _, deeper := strings.Cut(rest, "/"); deeper {
			nodes[dir] = directory(d.tree(prefix + dir + "/"))
		} else {
			nodes[rest] = constant(value)
		}
	}
	return table(nodes)
}

// devices are the disks, by name and by id.
var devices = &dynamic{
	list: func(m *Machine) []string {
		names := []string{"disk"}
		for _, d := range m.disks {
			names = append(names, d.Name)
		}
		return names
	},
	child: func(m *Machine, name string) *node {
		if name == "disk" {
			return directory(table(map[string]*node{"by-id": directory(byID), "by-label": directory(byLabel), "by-uuid": directory(byUUID)}))
		}
		if d := m.disk(name); d != nil {
			return &node{mode: os.ModeDevice | 0o660, nlink: 1, dyn: &dynamic{read: func(*Machine, *Process) string { return "" }}}
		}
		return nil
	},
}

func linksToDisks(names func(*Disk) []string) *dynamic {
	return &dynamic{
		list: func(m *Machine) []string {
			var out []string
			for _, d := range m.disks {
				out = append(out, names(&d.Disk)...)
			}
			sort.Strings(out)
			return out
		},
		child: func(m *Machine, name string) *node {
			for _, d := range m.disks {
				if slices.Contains(names(&d.Disk), name) {
					return &node{mode: os.ModeSymlink | 0o777, nlink: 1, data: []byte("../../" + d.Name)}
				}
			}
			return nil
		},
	}
}
