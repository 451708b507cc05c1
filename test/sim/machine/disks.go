// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// disk is a block device with what is on it.
type disk struct {
	Disk
	root *node
}

// mount is a line of /proc/self/mounts.
type mount struct {
	source, point, fstype, options string
	// on is the directory that the mount covers, root what shows there.
	on, root *node
}

func (m *Machine) attachDisks(disks []Disk) {
	if disks == nil {
		disks = []Disk{{Name: "sda", WWN: "0x" + randomHex(16), Bytes: 100 << 30, System: true}}
	}
	for i, d := range disks {
		k := &disk{Disk: d}
		if i == 0 && !slices.ContainsFunc(disks, func(d Disk) bool { return d.System }) {
			k.System = true
		}
		if d.FileSystem != "" && d.FileSystem != "swap" {
			k.format()
			// The files of a disk are put through a machine that holds nothing else.
			t := &Machine{o: m.o, root: k.root, inode: 1}
			for _, path := range sortedKeys(d.Files) {
				t.mustPut(path, d.Files[path])
			}
			k.root = t.root
			k.root.busy, k.root.volatile = true, true
		}
		m.disks = append(m.disks, k)
	}
}

// ReplaceDisk puts another disk, which is blank, in the place of the one with that name.
func (m *Machine) ReplaceDisk(name string, by Disk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range m.disks {
		if d.Name == name {
			m.disks[i] = &disk{Disk: by}
		}
	}
}

// SetFirmware has the machine's disks in another machine, whose firmware says this.
func (m *Machine) SetFirmware(productUUID, serial string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.o.ProductUUID, m.o.Serial = productUUID, serial
}

func (d *disk) format() {
	d.root = &node{mode: os.ModeDir | 0o755, nlink: 1, ino: 2, busy: true, volatile: true, ours: true}
}

// Disks returns the machine's disks as they are now, without their files.
func (m *Machine) Disks() []Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Disk
	for _, d := range m.disks {
		out = append(out, d.Disk)
	}
	return out
}

// DiskFile reads a file of a disk's file system, mounted or not.
func (m *Machine) DiskFile(disk, path string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.disk(disk)
	if d == nil || d.root == nil {
		return nil, pathErr("open", path, syscall.ENODEV)
	}
	t := &Machine{o: m.o, root: d.root}
	at, err := t.get(rootCred, path, follow)
	if err != nil {
		return nil, pathErr("open", path, err)
	}
	return append([]byte(nil), at.n.data...), nil
}

// disk finds a device by its kernel name.
func (m *Machine) disk(name string) *disk {
	for _, d := range m.disks {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// device resolves what stands in fstab or a command: /dev/..., LABEL=, UUID=; mu is held.
func (m *Machine) resolveDevice(source string) *disk {
	for _, d := range m.disks {
		if label, ok := strings.CutPrefix(source, "LABEL="); ok && d.Label == label && label != "" {
			return d
		}
		if uuid, ok := strings.CutPrefix(source, "UUID="); ok && d.UUID == uuid && uuid != "" {
			return d
		}
	}
	at, err := m.get(rootCred, source, follow)
	if err != nil {
		return nil
	}
	name, ok := strings.CutPrefix(at.path, "/dev/")
	if !ok {
		return nil
	}
	return m.disk(name)
}

// device numbers the file system that a path lies on: the longest mount above it.
func (p *Process) device(path string) int {
	p.enter()
	defer p.leave()
	m := p.Machine
	best, length := 0, 0
	for i, at := range m.mounts {
		if (path == at.point || strings.HasPrefix(path, at.point+"/")) && len(at.point) >= length {
			best, length = i+1, len(at.point)
		}
	}
	for i, top := range []string{"/run", "/tmp", "/proc", "/sys", "/dev"} {
		if length == 0 && (path == top || strings.HasPrefix(path, top+"/")) {
			return -1 - i
		}
	}
	return best
}

// attach mounts root over a directory; mu is held.
func (m *Machine) attach(c *cred, source, fstype, options, point string, root *node) error {
	at, err := m.get(c, point, own|follow)
	if err != nil {
		return err
	}
	if !at.n.isDir() {
		return syscall.ENOTDIR
	}
	if root == at.n {
		return syscall.EBUSY
	}
	if options == "" {
		options = "rw,relatime"
	}
	at.n.over = root
	m.mounts = append(m.mounts, mount{source, at.path, fstype, options, at.n, root})
	return nil
}

// detach unmounts what was mounted last at a point.
func (m *Machine) detach(point string) error {
	for i, at := range slices.Backward(m.mounts) {
		if at.point == point {
			at.on.over = nil
			m.mounts = append(m.mounts[:i:i], m.mounts[i+1:]...)
			return nil
		}
	}
	return syscall.EINVAL
}

func (m *Machine) unmountAll() {
	for len(m.mounts) > 0 {
		_ = m.detach(m.mounts[len(m.mounts)-1].point)
	}
}

// Mount mounts an empty file system in memory at a directory, as a kubelet does for a volume.
func (m *Machine) Mount(point string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	root := m.make(os.ModeDir|0o755, rootCred)
	root.busy, root.volatile = true, true
	return pathErr("mount", point, m.attach(rootCred, "tmpfs", "tmpfs", "", point, root))
}

// Mounts lists the mount points besides /.
func (m *Machine) Mounts() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, at := range m.mounts {
		out = append(out, at.point)
	}
	return out
}

// mountDisk mounts a device with its file system; mu is held.
func (m *Machine) mountDisk(c *cred, source, fstype, options, point string) error {
	d := m.resolveDevice(source)
	if d == nil {
		return fmt.Errorf("special device %s does not exist", source)
	}
	if d.root == nil {
		return fmt.Errorf("wrong fs type, bad option, bad superblock on %s", source)
	}
	if fstype != "" && fstype != "auto" && fstype != d.FileSystem {
		return fmt.Errorf("wrong fs type, bad option, bad superblock on %s", source)
	}
	return m.attach(c, "/dev/"+d.Name, d.FileSystem, options, point, d.root)
}

// fstab returns the lines of /etc/fstab as fields; mu is held.
func (m *Machine) fstab() [][]string {
	at, err := m.get(rootCred, "/etc/fstab", follow)
	if err != nil {
		return nil
	}
	var out [][]string
	for _, line := range lines(string(at.n.data)) {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[0][0] != '#' {
			out = append(out, append(fields, "defaults")[:4:4])
		}
	}
	return out
}

func (m *Machine) mountFstab() {
	for _, f := range m.fstab() {
		if f[1] == "none" || f[1] == "/" || f[2] == "swap" || strings.Contains(f[3], "noauto") {
			continue
		}
		_ = m.mkdirAll(rootCred, f[1], 0o755)
		_ = m.mountDisk(rootCred, f[0], f[2], "", f[1])
	}
}

func (m *Machine) mountTable() string {
	var b strings.Builder
	b.WriteString("/dev/root / ext4 rw,relatime 0 0\ntmpfs /run tmpfs rw,nosuid,nodev 0 0\ntmpfs /tmp tmpfs rw,nosuid,nodev 0 0\n")
	for _, at := range m.mounts {
		point := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(at.point)
		fmt.Fprintf(&b, "%s %s %s %s 0 0\n", at.source, point, at.fstype, at.options)
	}
	return b.String()
}

func init() {
	simple("mount", "t:o:arv", map[string]string{"types": "t:", "options": "o:", "all": "a", "bind": "B", "make-rshared": "S", "make-rprivate": "S"}, func(p *Process, o options, args []string) int {
		p.enter()
		defer p.leave()
		m := p.Machine
		fail := func(format string, args ...any) int {
			m.mu.Unlock()
			defer m.mu.Lock()
			p.Fail(format, args...)
			return 32
		}
		switch {
		case o.on("S"):
			return 0
		case o.on("a"):
			for _, f := range m.fstab() {
				if f[2] != "swap" && f[1] != "/" && !slices.ContainsFunc(m.mounts, func(at mount) bool { return at.point == f[1] }) {
					if err := m.mountDisk(&p.cred, f[0], f[2], "", f[1]); err != nil {
						return fail("%s: %s", f[1], errText(err))
					}
				}
			}
			return 0
		case len(args) == 0:
			text := m.mountTable()
			m.mu.Unlock()
			defer m.mu.Lock()
			return p.say(text)
		case len(args) == 1:
			for _, f := range m.fstab() {
				if f[1] == args[0] || f[0] == args[0] {
					if err := m.mountDisk(&p.cred, f[0], f[2], "", f[1]); err != nil {
						return fail("%s: %s.", f[1], errText(err))
					}
					return 0
				}
			}
			return fail("%s: can't find in /etc/fstab.", args[0])
		}
		var err error
		switch {
		case o.on("B") || o.last("o") == "bind":
			var at place
			if at, err = m.get(&p.cred, args[0], own|follow); err == nil {
				err = m.attach(&p.cred, args[0], "none", "rw,bind", args[1], at.n)
			}
		case o.last("t") == "tmpfs" || o.last("t") == "bpf" || o.last("t") == "cgroup2":
			root := m.make(os.ModeDir|0o755, &p.cred)
			root.busy, root.volatile = true, true
			err = m.attach(&p.cred, args[0], o.last("t"), "", args[1], root)
		default:
			err = m.mountDisk(&p.cred, args[0], o.last("t"), o.last("o"), args[1])
		}
		if err != nil {
			return fail("%s: %s", args[1], errText(err))
		}
		return 0
	})
	simple("umount", "lfR", map[string]string{"lazy": "l", "force": "f", "recursive": "R"}, func(p *Process, _ options, args []string) int {
		code := 0
		for _, name := range args {
			path, ok := p.canonical(name, false)
			p.enter()
			if d := p.Machine.resolveDevice(name); d != nil {
				for _, at := range p.Machine.mounts {
					if at.source == "/dev/"+d.Name {
						path = at.point
					}
				}
			}
			err := p.Machine.detach(path)
			p.leave()
			if !ok || err != nil {
				p.Fail("%s: not mounted.", name)
				code = 32
			}
		}
		return code
	})
	simple("mountpoint", "q", map[string]string{"quiet": "q"}, func(p *Process, o options, args []string) int {
		path, _ := p.canonical(args[0], false)
		p.enter()
		is := path == "/" || path == "/run" || path == "/tmp" || slices.ContainsFunc(p.Machine.mounts, func(at mount) bool { return at.point == path })
		p.leave()
		if !o.on("q") {
			p.Printf("%s is %sa mountpoint\n", args[0], map[bool]string{false: "not "}[is])
		}
		return map[bool]int{false: 32}[is]
	})
	simple("df", "PkmhT", map[string]string{"portability": "P", "output": "O:"}, func(p *Process, o options, args []string) int {
		if o.on("O") || o.on("h") || o.on("T") {
			return p.unknown("df that prints other columns")
		}
		p.enter()
		free := int64(50 << 20)
		if p.Machine.full {
			free = 0
		}
		p.leave()
		unit := "1024-blocks"
		if o.on("m") {
			free, unit = free>>10, "1048576-blocks"
		}
		p.Printf("Filesystem %s Used Available Capacity Mounted on\n", unit)
		for _, name := range args {
			if _, err := p.Stat(name); err != nil {
				return p.Fail("%s: %s", name, errText(err))
			}
			p.Printf("/dev/root %d %d %d 50%% /\n", free*2, free, free)
		}
		return 0
	})
	simple("udevadm", "", map[string]string{"timeout": "t:"}, func(*Process, options, []string) int { return 0 })
	simple("swapoff", "a", nil, func(*Process, options, []string) int { return 0 })
}

func (d *disk) sysfs(name string) (string, bool) {
	switch name {
	case "size":
		return strconv.FormatInt(d.Bytes/512, 10) + "\n", true
	case "queue/rotational":
		return map[bool]string{true: "1\n", false: "0\n"}[d.Rotational], true
	case "device/serial":
		return d.Serial + "\n", d.Serial != ""
	case "wwid":
		return d.WWN + "\n", d.WWN != ""
	}
	return "", false
}
