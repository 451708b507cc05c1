// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// dataMark names the directory on this machine that holds a member's data. It lies where the data would, so who empties
// that directory has removed the data.
const dataMark = "/member/simulated"

// grace is how long a container has to take its leave.
const grace = 30 * time.Second

// Member is the etcd of one machine: what a test does to it.
type Member struct {
	plane   *ControlPlane
	machine *machine.Machine
	number  int
	ip      string

	mu      sync.Mutex
	process *exec.Cmd
	done    chan struct{}
	// removed: the process ended by itself, in order, as one does that was taken out of the list of members.
	removed bool
	// conns are those that end with the process or the network, with the member at the other end: none at the API
	// server's.
	conns map[net.Conn]*Member
	// parted are the members that it cannot exchange with, nor they with it.
	parted map[*Member]bool
	ready  bool
	// slow is its disk: the API server uses another member while there is one, as those of other machines would.
	slow bool
	// dead is the data directory of a disk that died.
	dead     string
	isolated bool
	log      string
}

// Etcd is the member of a machine; nil when none ever ran there.
func (c *ControlPlane) Etcd(m *machine.Machine) *Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members[m]
}

// memberOf makes the member of a machine that has not had one, and gives it the address.
func (c *ControlPlane) memberOf(m *machine.Machine, ip string) (*Member, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	member := c.members[m]
	if member == nil {
		if len(c.members) == 250 {
			return nil, errors.New("simulated: a control plane has addresses for 250 machines")
		}
		member = &Member{plane: c, machine: m, number: len(c.members) + 1, conns: map[net.Conn]*Member{}, parted: map[*Member]bool{}}
		member.log = c.scratch("etcd-" + strconv.Itoa(member.number) + ".log")
		c.members[m] = member
	}
	delete(c.byIP, member.ip)
	member.ip = ip
	c.byIP[ip] = member
	return member, nil
}

// storeMembers are the members that the API server may use, the best first.
func (c *ControlPlane) storeMembers() []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ready, running []*Member
	for _, member := range c.members {
		switch {
		case member.Ready() && !member.Slow():
			ready = append(ready, member)
		case member.Running():
			running = append(running, member)
		}
	}
	return append(ready, running...)
}

// Kill kills the process as the kernel does when memory is short. The kubelet starts it again.
func (m *Member) Kill() { m.signal(syscall.SIGKILL) }

// Pause stops the process where it is: a member so slow that nobody notices that it lives. Resume lets it go on.
func (m *Member) Pause() { m.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (m *Member) Resume() { m.signal(syscall.SIGCONT) }

// Isolate takes the member's network away from the other members, or gives it back.
func (m *Member) Isolate(isolated bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isolated = isolated
	if isolated {
		m.cut()
	}
}

// Part takes the network between two members away, in both directions, or gives it back. Each of them still reaches all
// others, and both are reached by their clients.
func (m *Member) Part(other *Member, parted bool) {
	for _, pair := range [][2]*Member{{m, other}, {other, m}} {
		near, far := pair[0], pair[1]
		near.mu.Lock()
		near.parted[far] = parted
		for conn, end := range near.conns {
			if parted && end == far {
				_ = conn.Close()
			}
		}
		near.mu.Unlock()
	}
}

// Disk has each write to the member's disk take so long until it is done, whoever leads; only the thread that writes
// waits for it. It needs ControlPlaneOptions.Syncs. What it returns makes the disk quick again.
func (m *Member) Disk(delay time.Duration) (quick func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil || !m.plane.options.Syncs {
		return nil, errors.New("simulated: no etcd that syncs its files runs there")
	}
	command := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-p", strconv.Itoa(m.process.Process.Pid),
		"-e", "trace=fdatasync", "-e", fmt.Sprintf("inject=fdatasync:delay_enter=%d", delay.Microseconds()))
	command.Env = append(os.Environ(), m.plane.reaper.Mark())
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("slowing a disk down: %w", err)
	}
	m.slow = true
	for conn, end := range m.conns {
		if end == nil {
			_ = conn.Close()
		}
	}
	return func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		m.mu.Lock()
		m.slow = false
		m.mu.Unlock()
	}, nil
}

// Running says whether the process exists.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process != nil
}

// Ready says whether the member answers as its readiness probe wants it: it sees a leader and votes.
func (m *Member) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// Slow says whether Disk has slowed the member down.
func (m *Member) Slow() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slow
}

// Log is what etcd has written since the control plane began.
func (m *Member) Log() string {
	content, _ := os.ReadFile(m.log)
	return string(content)
}

func (m *Member) signal(signal syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		_ = m.process.Process.Signal(signal)
	}
}

// stop kills the process and waits for its end.
func (m *Member) stop() {
	m.mu.Lock()
	process, done := m.process, m.done
	m.mu.Unlock()
	if process != nil {
		_ = process.Process.Kill()
		<-done
	}
}

// address of a port of the member's machine, on this machine.
func (m *Member) address(port int) string {
	return net.JoinHostPort(m.plane.prefix+strconv.Itoa(m.number), strconv.Itoa(port))
}

// connect notes a connection with a peer, unless there is nothing to connect with.
func (m *Member) connect(conn net.Conn, with *Member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isolated || m.process == nil || m.parted[with] {
		return false
	}
	m.conns[conn] = with
	return true
}

// serve notes a connection of the API server.
func (m *Member) serve(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return false
	}
	m.conns[conn] = nil
	return true
}

func (m *Member) disconnect(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conns, conn)
}

// cut breaks the connections; mu is held.
func (m *Member) cut() {
	for conn := range m.conns {
		_ = conn.Close()
	}
}

// setReady notes what the probe says. The API server leaves a member that is not ready: those of the other machines would
// answer in its place.
func (m *Member) setReady(ready bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ready && !ready {
		m.cut()
	}
	m.ready = ready && m.process != nil
}

// etcd is the container of the static pod. It runs the real program with the arguments of the manifest; only where they
// name files and addresses, those of this machine are put in their place.
func (c *ControlPlane) etcd(command []string) machine.Program {
	return func(ctx context.Context, p *machine.Process) int {
		flags := flagsOf(command)
		ip, _, _ := net.SplitHostPort(strings.TrimPrefix(flags["listen-peer-urls"], "https://"))
		member, err := c.memberOf(p.Machine, ip)
		if err != nil {
			return p.Fail("%v", err)
		}
		// A container that was killed may not have ended yet, and holds the data.
		member.stop()
		args, err := member.arguments(p, flags)
		if err != nil {
			return p.Fail("%v", err)
		}
		process, done, err := member.start(args)
		if err != nil {
			return p.Fail("%v", err)
		}
		go func() {
			<-ctx.Done()
			// What a recovery makes of a forced member is only in its database when that ended in order.
			if flags["force-new-cluster"] == "true" && p.Machine.Powered() {
				_ = process.Signal(syscall.SIGTERM)
				select {
				case <-done:
				case <-time.After(grace):
				}
			}
			_ = process.Kill()
		}()
		listeners := map[int]*machine.Listener{}
		for _, port := range []int{etcdClientPort, etcdPeerPort, etcdMetricsPort} {
			if !member.listens(ctx, port, done) {
				break
			}
			if listeners[port], err = p.Listen(port); err != nil {
				break
			}
			go serve(listeners[port], func(conn net.Conn) {
				far, err := net.Dial("tcp", member.address(port))
				if err != nil {
					_ = conn.Close()
					return
				}
				splice(conn, far)
			})
		}
		go member.probe(done)
		<-done
		if ctx.Err() == nil {
			c.memberEnded(p.Machine, member)
		}
		return 1
	}
}

// flagsOf reads --name=value; what stands twice counts last.
func flagsOf(command []string) map[string]string {
	flags := map[string]string{}
	for _, word := range command {
		if name, value, ok := strings.Cut(strings.TrimLeft(word, "-"), "="); ok && strings.HasPrefix(word, "-") {
			flags[name] = value
		} else if strings.HasPrefix(word, "-") {
			flags[name] = "true"
		}
	}
	return flags
}

// arguments are those of the manifest for this machine.
func (m *Member) arguments(p *machine.Process, flags map[string]string) ([]string, error) {
	data, err := m.data(p, flags["data-dir"])
	if err != nil {
		return nil, err
	}
	certs := m.plane.scratch("etcd-certs", strconv.Itoa(m.number))
	if err := os.MkdirAll(certs, 0o700); err != nil {
		return nil, err
	}
	args := []string{"--log-level=warn"}
	if !m.plane.options.Syncs {
		args = append(args, "--unsafe-no-fsync")
	}
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := flags[name]
		switch name {
		case "data-dir":
			value = data
		case "cert-file", "key-file", "trusted-ca-file", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file":
			content, err := p.ReadFile(value)
			if err != nil {
				return nil, err
			}
			value = filepath.Join(certs, path.Base(path.Dir(value))+"-"+path.Base(value))
			if err := os.WriteFile(value, content, 0o600); err != nil {
				return nil, err
			}
		case "listen-client-urls":
			value = "https://" + m.address(etcdClientPort)
		case "listen-peer-urls":
			value = "https://" + m.address(etcdPeerPort)
		case "listen-metrics-urls":
			value = "http://" + m.address(etcdMetricsPort)
		case "log-level", "unsafe-no-fsync":
			continue
		}
		args = append(args, "--"+name+"="+value)
	}
	return args, nil
}

// start runs the real program; the channel is closed when it has ended.
func (m *Member) start(args []string) (*os.Process, <-chan struct{}, error) {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(filepath.Join(m.plane.options.Assets, "etcd"), args...)
	command.Env = []string{m.plane.reaper.Mark(), "HTTPS_PROXY=http://" + m.ip + ":peer@" + m.plane.peers.Addr().String()}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("starting etcd: %w", err)
	}
	done := make(chan struct{})
	m.process, m.done, m.removed = command, done, false
	go func() {
		err := command.Wait()
		m.mu.Lock()
		m.process, m.ready, m.removed = nil, false, err == nil
		m.cut()
		m.mu.Unlock()
		close(done)
	}()
	return command.Process, done, nil
}

// listens waits until the port is open; false when the process ends before.
func (m *Member) listens(ctx context.Context, port int, done <-chan struct{}) bool {
	for {
		conn, err := net.Dial("tcp", m.address(port))
		if err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-done:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// probe asks as the kubelet's readiness probe does: every second, and more often until the first yes. It fails twice
// before it counts.
func (m *Member) probe(done <-chan struct{}) {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	failures := 0
	for {
		pause := time.Second
		if m.asksReady(client) {
			failures = 0
			m.setReady(true)
		} else {
			if failures++; failures > 1 {
				m.setReady(false)
			}
			if failures < 100 {
				pause = 50 * time.Millisecond
			}
		}
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
	}
}

func (m *Member) asksReady(client *http.Client) bool {
	response, err := client.Get("http://" + m.address(etcdMetricsPort) + "/readyz") //nolint:noctx // the client has a timeout
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}
