// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sort"
	"sync"
	"time"
)

// Program is a simulated command: it returns its exit code. It ends soon after ctx is done, which is when it was killed;
// what it does through Process after that has no effect, for the first such call ends it.
type Program func(ctx context.Context, p *Process) int

// File is content of an Image or a machine.
type File struct {
	// Mode holds the permissions and, for directories and links, os.ModeDir or os.ModeSymlink; 0 means 0644.
	Mode os.FileMode
	// Content of a file, or the target of a symlink. It is not copied and must not be changed.
	Content []byte
	// UID and GID of the owner.
	UID, GID int
}

// Disk is a block device. What is on it survives a reboot and any removal of files elsewhere.
type Disk struct {
	// Name is the kernel's: sda, nvme0n1.
	Name string
	// IDs are the names below /dev/disk/by-id; WWN becomes wwn-<WWN> there.
	IDs []string
	WWN string
	// Serial is what /sys/block/<name>/device/serial says.
	Serial string
	Bytes  int64
	// Rotational disks are slow, others are not.
	Rotational bool
	// FileSystem, Label and UUID are what blkid would say; empty is a blank disk.
	FileSystem, Label, UUID string
	// Files are the content of the file system.
	Files map[string]File
	// System marks the disk that / lies on. At most one; by default the first.
	System bool
}

// Link is a network interface.
type Link struct {
	Name string
	// Addresses with the length of their network. Host-only addresses (127.0.0.1) have scope host.
	Addresses []netip.Prefix
	// Kind as in ip -d link: "", "veth", "bridge", "dummy", "vxlan".
	Kind string
	// Master is the bridge that the link belongs to.
	Master string
}

// Options make a machine.
type Options struct {
	Hostname string
	// Addresses of eth0. The default route leads through it.
	Addresses []netip.Prefix
	Disks     []Disk
	// ProductUUID and Serial are what the firmware says; nothing when empty.
	ProductUUID, Serial string
	// Image is what the machine shares with others; nil means DefaultImage().
	Image *Image
	// Files are put on top of the image, by absolute path.
	Files map[string]File
	// Programs are on the machine from the beginning: below /usr/bin, or at the key when that is an absolute path. They
	// replace simulated commands of the same name.
	Programs map[string]Program
	// Installable programs run only where a file with their Executable lies.
	Installable map[string]Program
	// Clock is the wall clock; nil means time.Now. ClockOffset is how much this machine's differs from it.
	Clock       func() time.Time
	ClockOffset time.Duration
	// Speed is how many seconds of sleeps and timeouts pass in one second; 0 means 1. A timeout that ends sets the uptime
	// ahead by what it did not wait; the wall clock stays right.
	Speed float64
	// MemoryKiB and CPUs are what /proc says; 0 means 16 GiB and 4.
	MemoryKiB int64
	CPUs      int
	// Architecture as uname -m says; empty means x86_64.
	Architecture string
	// Web answers what curl asks for; nil means that nothing can be reached.
	Web http.RoundTripper
	// Sudo says why the user may not run argv as root; nil lets everybody.
	Sudo func(user string, argv []string) error
	// Printed gets what units print and do not redirect, which systemd's journal keeps on a host; nobody does when nil.
	Printed io.Writer
	// OnProcess hooks are called before each process start, without any lock held. They may call any method, Reboot too.
	OnProcess []func(Event)
	// OnJournal hooks are called before a line is appended to the journal of a plan.
	OnJournal []func(m *Machine, plan, step, word string)
	// Owner is whatever the maker of the machine wants to find again from a Program.
	Owner any
}

// Event is the start of a process.
type Event struct {
	Machine *Machine
	PID     int
	// Args are the command and its arguments.
	Args []string
}

// ErrDown says that the machine was switched off, or lost power or rebooted while the command ran: nobody knows its end.
var ErrDown = errors.New("the machine is down")

// Machine is one simulated computer. All methods may be called at any time from any goroutine.
type Machine struct {
	o     Options
	image *Image
	Owner any

	// mu guards everything below. No hook and no Program runs under it.
	mu      sync.Mutex
	powered bool
	bootID  string
	boots   int
	booted  time.Time
	// skipped is what a timeout that ended early at Speed adds to the uptime.
	skipped  time.Duration
	offset   time.Duration
	hostname string
	root     *node
	inode    uint32
	full     bool
	mounts   []mount
	disks    []*disk
	links    []*Link
	routes   []string
	rules    []string
	firewall map[string]*ruleset
	ports    map[int]*Listener
	procs    map[int]*Process
	nextPID  int
	units    map[string]*unit
	locks    map[*node]*lockState
	onProc   []func(Event)
	onJrnl   []func(m *Machine, plan, step, word string)
	unknown  []string

	sysctl     map[string]string
	settingsOf string
	modules    map[string]bool
}

// New makes a machine and boots it.
func New(o Options) *Machine {
	if o.Image == nil {
		o.Image = DefaultImage()
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Hostname == "" {
		o.Hostname = "host"
	}
	if o.MemoryKiB == 0 {
		o.MemoryKiB = 16 << 20
	}
	if o.CPUs == 0 {
		o.CPUs = 4
	}
	if o.Architecture == "" {
		o.Architecture = "x86_64"
	}
	m := &Machine{o: o, image: o.Image, Owner: o.Owner, offset: o.ClockOffset, hostname: o.Hostname,
		root: o.Image.root, onProc: o.OnProcess, onJrnl: o.OnJournal, inode: 1 << 20}
	m.attachDisks(o.Disks)
	fs := m.FS()
	fs.mustWrite("/etc/hostname", File{Content: []byte(o.Hostname + "\n")})
	fs.mustWrite("/etc/machine-id", File{Mode: 0o444, Content: []byte(randomHex(32) + "\n")})
	for _, path := range sortedKeys(o.Files) {
		fs.mustWrite(path, o.Files[path])
	}
	for _, name := range sortedKeys(o.Programs) {
		path := name
		if name[0] != '/' {
			path = "/usr/bin/" + name
		}
		fs.mustWrite(path, File{Mode: 0o755, Content: Executable(baseName(path))})
	}
	m.PowerOn()
	return m
}

// program finds what an Executable of that name does.
func (m *Machine) program(name string) Program {
	for _, from := range []map[string]Program{m.o.Programs, m.o.Installable, m.image.programs, commands} {
		if program := from[name]; program != nil {
			return program
		}
	}
	for path, program := range m.o.Programs {
		if path[0] == '/' && baseName(path) == name {
			return program
		}
	}
	return nil
}

// OnProcess adds a hook that is called before each process start.
func (m *Machine) OnProcess(hook func(Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onProc = append(m.onProc[:len(m.onProc):len(m.onProc)], hook)
}

// OnJournal adds a hook that is called before a line is appended to the journal of a plan. A line that the plan's runner
// is about to write is "<step> <word>": start, done, failed, interrupted.
func (m *Machine) OnJournal(hook func(m *Machine, plan, step, word string)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onJrnl = append(m.onJrnl[:len(m.onJrnl):len(m.onJrnl)], hook)
}

// Now is the machine's own clock.
func (m *Machine) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o.Clock().Add(m.offset)
}

// SetClockOffset moves the machine's clock away from Options.Clock.
func (m *Machine) SetClockOffset(offset time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset = offset
}

// Hostname is what the machine calls itself now.
func (m *Machine) Hostname() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hostname
}

// BootID is that of the present boot, or of the last one.
func (m *Machine) BootID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

// Boots counts how often the machine has come up.
func (m *Machine) Boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

// Unknown lists the commands that were asked for and do not exist on the machine, and the flags nobody taught them.
func (m *Machine) Unknown() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.unknown...)
}

// Dial connects to a port that a Program listens on, as from the machine itself.
func (m *Machine) Dial(port int) (net.Conn, error) {
	m.mu.Lock()
	l := m.ports[port]
	powered := m.powered
	m.mu.Unlock()
	if !powered {
		return nil, ErrDown
	}
	if l == nil {
		return nil, fmt.Errorf("dial tcp 127.0.0.1:%d: connect: connection refused", port)
	}
	return l.dial()
}

func randomHex(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for i := range b {
		b[i] = digits[rand.IntN(16)]
	}
	return string(b)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
