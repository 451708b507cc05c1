// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vm is a bare host with a kernel and a plug: one QEMU process, emulated, made of Debian's packages by image.sh.
// Its network is QEMU's own and reaches nothing but the API server of its cluster; a port of loopback leads to its
// sshd.
package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Options of a machine.
type Options struct {
	// Image is the folder that image.sh printed; Dir is the machine's own, for its disks.
	Image, Dir string
	// UUID and Serial are what its firmware says.
	UUID, Serial string
	// AuthorizedKey logs in as root.
	AuthorizedKey []byte
	// APIServer is the port of loopback that Endpoint leads to; none when 0.
	APIServer int
}

// ScratchID is the stable name of the machine's second disk, which is empty at first, and ScratchSize its bytes.
const (
	ScratchID   = "virtio-scratch"
	ScratchSize = 256 << 20
)

// Machine is a computer. It is off at first.
type Machine struct {
	options Options
	// Port of loopback that leads to its sshd.
	Port int

	acting sync.Mutex // one order at a time
	mu     sync.Mutex
	pid    int
	ended  chan struct{} // closed when the process is gone
}

// New makes the disks of a machine. Close it.
func New(o Options) (*Machine, error) {
	m := &Machine{options: o, ended: make(chan struct{})}
	close(m.ended)
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", filepath.Join(o.Image, "root.ext4"),
		m.file("root")).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("making the root disk: %w: %s", err, out)
	}
	// A disk has whole sectors.
	if err := os.WriteFile(m.file("key"), append(o.AuthorizedKey, make([]byte, 1024-len(o.AuthorizedKey)%512)...), 0o600); err != nil {
		return nil, fmt.Errorf("making the disk of the key: %w", err)
	}
	if err := os.WriteFile(m.Scratch(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("making the second disk: %w", err)
	}
	if err := os.Truncate(m.Scratch(), ScratchSize); err != nil {
		return nil, fmt.Errorf("making the second disk: %w", err)
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	m.Port = ports[0]
	// QEMU runs it for each connection of the guest, whose bytes are its input and output.
	forward := fmt.Sprintf("#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/%d || exit\ncat <&3 &\ncat >&3\nkill %%1\n",
		o.APIServer)
	if err := os.WriteFile(m.file("forward"), []byte(forward), 0o700); err != nil { //nolint:gosec // it is run
		return nil, fmt.Errorf("making what forwards to the API server: %w", err)
	}
	return m, nil
}

func (m *Machine) file(name string) string { return filepath.Join(m.options.Dir, name) }

// Scratch is the file of the second disk.
func (m *Machine) Scratch() string { return m.file("scratch") }

// Console is the file of the serial console.
func (m *Machine) Console() string { return m.file("console") }

func (m *Machine) arguments() []string {
	lan := "user,id=lan,restrict=on,hostfwd=tcp:127.0.0.1:" + strconv.Itoa(m.Port) + "-10.0.2.15:22"
	if m.options.APIServer != 0 {
		lan += ",guestfwd=tcp:" + Endpoint + "-cmd:" + m.file("forward")
	}
	arguments := []string{
		"-name", "quoin-vm", "-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max,la57=off", "-smp", "1", "-m", "1536",
		"-uuid", m.options.UUID, "-smbios", "type=1,serial=" + m.options.Serial,
		"-kernel", filepath.Join(m.options.Image, "vmlinuz"), "-initrd", filepath.Join(m.options.Image, "initrd"),
		"-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=0",
		"-chardev", "file,id=console,path=" + m.Console() + ",append=on", "-serial", "chardev:console",
		"-qmp", "unix:" + m.file("qmp") + ",server=on,wait=off",
		"-netdev", lan,
		"-device", "virtio-net-pci,netdev=lan,romfile=", "-device", "virtio-rng-pci",
	}
	for _, disk := range []string{"root", "scratch", "key"} {
		drive := "if=none,format=raw,id=" + disk + ",file=" + m.file(disk)
		if disk == "key" {
			drive += ",readonly=on"
		}
		arguments = append(arguments, "-drive", drive, "-device", "virtio-blk-pci,drive="+disk+",serial="+disk)
	}
	return arguments
}

// Power is On as long as the process lives. It implements redfishtest.Computer.
func (m *Machine) Power() string {
	select {
	case <-m.end():
		return "Off"
	default:
		return "On"
	}
}

func (m *Machine) end() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// Order implements redfishtest.Computer: a reset type is carried out on the process, and what it cannot be is not.
func (m *Machine) Order(resetType string) {
	m.acting.Lock()
	defer m.acting.Unlock()
	var err error
	switch resetType {
	case "On":
		if m.Power() == "Off" {
			err = m.start()
		}
	case "ForceOff":
		m.kill()
	case "GracefulShutdown":
		err = m.tell("system_powerdown", nil)
	case "ForceRestart":
		err = m.tell("system_reset", nil)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s was answered and not carried out: %v\n", resetType, err)
	}
}

// start runs the process on a thread of its own, with whose end the kernel kills it: it outlives no test.
func (m *Machine) start() error {
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		command := exec.Command("qemu-system-x86_64", m.arguments()...)
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		said, err := os.Create(m.file("qemu.log"))
		if err == nil {
			defer func() { _ = said.Close() }()
			command.Stdout, command.Stderr = said, said
			err = command.Start()
		}
		if err != nil {
			started <- fmt.Errorf("starting QEMU (apt-get install qemu-system-x86): %w", err)
			return
		}
		m.mu.Lock()
		m.pid, m.ended = command.Process.Pid, ended
		m.mu.Unlock()
		started <- nil
		_ = command.Wait()
	}()
	return <-started
}

// kill ends the process and waits until it is gone.
func (m *Machine) kill() {
	ended := m.end()
	m.mu.Lock()
	pid := m.pid
	m.mu.Unlock()
	select {
	case <-ended:
	default:
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-ended
	}
}

// Start turns the machine on.
func (m *Machine) Start() error {
	m.acting.Lock()
	defer m.acting.Unlock()
	return m.start()
}

// Close ends the process.
func (m *Machine) Close() {
	m.acting.Lock()
	defer m.acting.Unlock()
	m.kill()
}

// Unplug pulls the network's cable out, and the machine runs on. It is in again when the machine was off.
func (m *Machine) Unplug() error {
	m.acting.Lock()
	defer m.acting.Unlock()
	return m.tell("set_link", map[string]any{"name": "lan", "up": false})
}

// tell gives QEMU a command of its machine protocol.
func (m *Machine) tell(command string, arguments map[string]any) error {
	conn, err := net.DialTimeout("unix", m.file("qmp"), 10*time.Second)
	if err != nil {
		return fmt.Errorf("asking QEMU for %s: %w", command, err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	answers := bufio.NewScanner(conn)
	requests := json.NewEncoder(conn)
	for _, execute := range []map[string]any{{"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}} {
		if arguments == nil {
			delete(execute, "arguments")
		}
		if err := requests.Encode(execute); err != nil {
			return fmt.Errorf("asking QEMU for %s: %w", command, err)
		}
		if err := answered(answers); err != nil {
			return fmt.Errorf("asking QEMU for %s: %w", command, err)
		}
	}
	return nil
}

// answered skips the greeting and events.
func answered(lines *bufio.Scanner) error {
	for lines.Scan() {
		var answer struct {
			Return *json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := json.Unmarshal(lines.Bytes(), &answer); err != nil {
			return fmt.Errorf("reading its answer: %w", err)
		}
		switch {
		case answer.Error != nil:
			return errors.New(answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
	return errors.Join(errors.New("it ended before it answered"), lines.Err())
}
