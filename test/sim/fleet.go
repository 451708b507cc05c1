// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sim is a fleet of simulated hosts in one process: each a machine (package machine) with a real SSH server on a
// loopback address (package sshd) and the programs of a Kubernetes node (package kube). What runs against it is the real
// controllers, over real SSH, with scripts that no one changed; docs/sim.md says what is claimed about the real world.
//
// A test makes a Fleet, adds hosts, and lets them fail: the network through Host.Server (refuse, hang, cut at byte n, be
// slow, present another key), the computer through Host (reboot, power) and Host.Machine (full disk, hooks before each
// process and each journal line).
package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/sshd"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// Options of a fleet.
type Options struct {
	// Cluster that the machines can join; one without an API server when nil.
	Cluster *kube.Cluster
	// Users may log in beside root; their sudo needs no password.
	Users []string
	// Machine changes the options of a machine before it is made.
	Machine func(*machine.Options)
	// Boot is how long a machine is away when it reboots; nothing when 0.
	Boot time.Duration
	// Command is called before each command that somebody starts over SSH.
	Command func(h *Host, command string)
	// Input is what each command reads that came over SSH, its script among it; nobody sees it when nil.
	Input func(h *Host, input []byte)
}

// Fleet is a number of hosts that one key opens.
type Fleet struct {
	options Options
	image   *machine.Image
	signer  ssh.Signer
	private []byte

	mu    sync.Mutex
	hosts map[string]*Host
}

// New makes an empty fleet. Close it.
func New(o Options) (*Fleet, error) {
	if o.Cluster == nil {
		var err error
		if o.Cluster, err = kube.New(kube.Options{Versions: []string{"v1.36.3"}}); err != nil {
			return nil, err
		}
	}
	f := &Fleet{options: o, image: o.Cluster.Image(), hosts: map[string]*Host{}}
	f.signer, f.private = sshtest.NewKeyPair()
	return f, nil
}

// PrivateKey opens every host: the content of a credentials Secret.
func (f *Fleet) PrivateKey() []byte { return f.private }

// Signer is PrivateKey for SSH.
func (f *Fleet) Signer() ssh.Signer { return f.signer }

// Cluster is what the machines join.
func (f *Fleet) Cluster() *kube.Cluster { return f.options.Cluster }

// Close ends every host.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, host := range f.hosts {
		host.Server.Close()
		host.Machine.PowerOff()
	}
}

// Host of that name; nil when there is none.
func (f *Fleet) Host(name string) *Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts[name]
}

// Host is one simulated computer with its sshd.
type Host struct {
	Name    string
	Machine *machine.Machine
	// Server is its sshd, and the network in front of it.
	Server *sshd.Server
	boot   time.Duration
	mu     sync.Mutex
}

// Add makes a host and boots it.
func (f *Fleet) Add(name string) (*Host, error) {
	f.mu.Lock()
	number := len(f.hosts) + 1
	if f.hosts[name] != nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("there is a host %s already", name)
	}
	host := &Host{Name: name, boot: f.options.Boot}
	f.hosts[name] = host
	f.mu.Unlock()

	o := machine.Options{
		Hostname: name, Image: f.image, Owner: host,
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 64 + byte(number>>16), byte(number >> 8), byte(number)}), 10)},
	}
	if f.options.Machine != nil {
		f.options.Machine(&o)
	}
	host.Machine = machine.New(o)
	users := map[string][]ssh.PublicKey{"root": {f.signer.PublicKey()}}
	for _, user := range f.options.Users {
		users[user] = users["root"]
	}
	var err error
	host.Server, err = sshd.New(sshd.Options{
		Address: loopback(number), Users: users,
		Start: func(s sshd.Session) (sshd.Command, error) {
			if f.options.Command != nil {
				f.options.Command(host, s.Command)
			}
			if f.options.Input != nil {
				s.Stdin = io.TeeReader(s.Stdin, inputOf{host, f.options.Input})
			}
			return host.Machine.Start(machine.Session{Command: s.Command, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, User: s.User})
		},
		Dial: func(address string, port int) (net.Conn, error) {
			ip, err := netip.ParseAddr(address)
			if address != "localhost" && (err != nil || !ip.IsLoopback()) {
				return nil, errors.New("a simulated host reaches only itself")
			}
			return host.Machine.Dial(port)
		},
		Files: func(user string) sftp.Handlers { return (&files{host.Machine, user}).handlers() },
	})
	return host, err
}

// inputOf a host is what it was sent.
type inputOf struct {
	host *Host
	see  func(*Host, []byte)
}

// Write implements io.Writer.
func (i inputOf) Write(input []byte) (int, error) {
	i.see(i.host, input)
	return len(input), nil
}

// loopback gives each host an address of its own, so that thousands of them do not share one range of ports.
func loopback(number int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+number>>16, number>>8&0xff, number&0xff)
}

// Address and port of the host's sshd.
func (h *Host) Address() (string, int32) {
	addr := h.Server.Addr()
	return addr.IP.String(), int32(addr.Port) //nolint:gosec // a port
}

// HostKey is the line of a known_hosts file, without the name.
func (h *Host) HostKey() string {
	line := ssh.MarshalAuthorizedKey(h.Server.HostKey())
	return string(line[:len(line)-1])
}

// Reboot is a crash: every connection breaks, every process ends where it is, and the machine comes up again.
func (h *Host) Reboot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Server.Stop()
	h.Machine.PowerOff()
	time.Sleep(h.boot)
	h.Machine.PowerOn()
	_ = h.Server.Start()
}

// PowerOff takes the power: nothing answers any more, not even a refusal.
func (h *Host) PowerOff() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Machine.PowerOff()
	h.Server.Cut()
	h.Server.SetLine(sshd.Line{Hang: true})
}

// PowerOn boots the machine again.
func (h *Host) PowerOn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Machine.PowerOn()
	h.Server.SetLine(sshd.Line{})
}

// Tree is every file of the machine outside of memory, with its mode and content: what a test compares.
func (h *Host) Tree(except ...string) map[string]string {
	skip := append([]string{"/proc", "/sys", "/dev", "/run", "/tmp"}, except...)
	tree := map[string]string{}
	all := h.Machine.FS()
files:
	for _, name := range all.List("/") {
		for _, prefix := range skip {
			if name == prefix || len(name) > len(prefix) && name[:len(prefix)+1] == prefix+"/" {
				continue files
			}
		}
		stat, err := all.Lstat(name)
		if err != nil {
			continue
		}
		content, _ := all.ReadFile(name)
		tree[name] = fmt.Sprintf("%s %d:%d %q", stat.Mode, stat.UID, stat.GID, content)
	}
	return tree
}

// Run runs a command on the machine as its sshd would, without SSH: for a test that looks at what is there.
func (h *Host) Run(ctx context.Context, command string) (int, error) {
	return h.Machine.Run(ctx, machine.Session{Command: command})
}
