// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// roleVariable has this program be a server or a client in a network namespace.
const roleVariable = "QUOIN_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "serve":
		serve(os.Args[1], os.Args[2])
	case "listen":
		listen(os.Args[1])
	default:
		os.Exit(m.Run())
	}
}

// serve sends whoever connects its name ten times a second, as an API server sends changes, with the client's address,
// of which each connection has another one, and a number.
func serve(name, address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			defer conn.Close()
			for n := 0; ; n++ {
				if _, err := fmt.Fprintln(conn, name, conn.RemoteAddr(), n); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
}

// listen prints what it hears, sends nothing, and connects anew as soon as a connection breaks off: so do reflectors of
// client-go, which wait when an attempt fails.
func listen(address string) {
	for {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1}).Dial("tcp", address)
		if err != nil {
			time.Sleep(800 * time.Millisecond)
			continue
		}
		_, _ = io.Copy(os.Stdout, conn)
		conn.Close()
	}
}

// lan is a bridge on which hosts have network namespaces of their own. A client sits on the bridge.
type lan struct {
	t      *testing.T
	prefix string
}

func newLAN(t *testing.T, hosts map[string]string) lan {
	t.Helper()
	if os.Getuid() != 0 || exec.Command("unshare", "--net", "ip", "link", "add", "br0", "type", "bridge").Run() != nil ||
		exec.Command("ss", "--version").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("network namespaces, bridges or ss are missing")
		}
		t.Skip("needs root, ip, ss, and network namespaces with bridges")
	}
	l := lan{t: t, prefix: fmt.Sprintf("quoin-%d-", os.Getpid())}
	t.Cleanup(func() {
		for host := range hosts {
			_ = exec.Command("ip", "netns", "delete", l.prefix+host).Run()
		}
		_ = exec.Command("ip", "netns", "delete", l.prefix+"client").Run()
	})
	l.run(`ip netns add "$P"client; ip -n "$P"client link add br0 type bridge; ip -n "$P"client link set br0 up
ip -n "$P"client address add 10.0.0.1/24 dev br0; ip -n "$P"client address add fd00::1/64 dev br0 nodad`)
	for host, number := range hosts {
		l.run(fmt.Sprintf(`ip netns add "$P"%[1]s
ip -n "$P"client link add %[1]s type veth peer name eth0 netns "$P"%[1]s; ip -n "$P"client link set %[1]s master br0 up
ip -n "$P"%[1]s link set lo up; ip -n "$P"%[1]s link set eth0 up
ip -n "$P"%[1]s address add 10.0.0.%[2]s/24 dev eth0; ip -n "$P"%[1]s address add fd00::%[2]s/64 dev eth0 nodad`, host, number))
	}
	return l
}

func (l lan) run(script string) {
	l.t.Helper()
	cmd := exec.Command("/bin/sh", "-euc", script)
	cmd.Env = append(os.Environ(), "P="+l.prefix)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// start runs this program in a role on a host, and gives what it says last.
func (l lan) start(host, role string, args ...string) (last func() string) {
	l.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.prefix + host, os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	lines := make(chan string, 1)
	lines <- ""
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			<-lines
			lines <- scanner.Text()
		}
	}()
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	return func() string {
		line := <-lines
		lines <- line
		return line
	}
}

// on runs the scripts of a host in its network namespace, with programs of the test before the machine's.
type on struct {
	sshtest.Local
	namespace, etc string
}

func (h *on) Run(ctx context.Context, command ssh.Command) (ssh.Result, error) {
	command.Script = "exec ip netns exec " + h.namespace + " /bin/sh -c " +
		ssh.Quote(strings.ReplaceAll(command.Script, "/etc/keepalived", h.etc))
	return h.Local.Run(ctx, command)
}

// Who only listens at the virtual address sends nothing that its new holder could refuse: client-go asks after 30
// seconds of silence, and until then a kube-proxy sends requests to pods that are gone.
func TestWhoOnlyListensHearsOnWhenTheAddressIsHandedOver(t *testing.T) {
	g := NewWithT(t)
	l := newLAN(t, map[string]string{"old": "11", "new": "12", "other": "13"})
	l.run(`ip -n "$P"old address add 10.0.0.100/32 dev eth0; ip -n "$P"old address add fd00::100/128 dev eth0 nodad`)
	l.start("old", "serve", "old", ":6443")
	l.start("new", "serve", "new", ":6443")
	listeners := map[string]func() string{}
	for _, host := range []string{"client", "new", "other"} {
		for _, address := range []string{"10.0.0.100:6443", "[fd00::100]:6443"} {
			listeners[address+" from "+host] = l.start(host, "listen", address)
		}
	}
	bystander := l.start("client", "listen", "10.0.0.11:6443")
	for name, last := range listeners {
		g.Eventually(last).WithTimeout(10*time.Second).Should(HavePrefix("old "), name)
	}
	g.Eventually(bystander).WithTimeout(10 * time.Second).Should(HavePrefix("old "))

	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, "keepalived.conf"),
		[]byte("# Written by Quoin. Do not edit: cleaning the host removes this file.\n"), 0o600)).To(Succeed())
	// The other host takes the address within half a second, and announces it.
	g.Expect(os.WriteFile(filepath.Join(dir, "systemctl"), []byte(fmt.Sprintf(`#!/bin/sh
set -e
ip address delete 10.0.0.100/32 dev eth0; ip address delete fd00::100/128 dev eth0
sleep 0.4
ip -n %[1]snew address add 10.0.0.100/32 dev eth0; ip -n %[1]snew address add fd00::100/128 dev eth0 nodad
for host in client old other; do ip -n %[1]s$host neighbor flush all; done
`, l.prefix)), 0o755)).To(Succeed())
	host := &on{namespace: l.prefix + "old", etc: dir, Local: sshtest.Local{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}}}
	addresses := []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32"), netip.MustParsePrefix("fd00::100/128")}
	before := bystander()
	held, err := keepalived.HandOver(context.Background(), host, addresses)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(held).To(BeTrue())
	for name, last := range listeners {
		g.Eventually(last).WithTimeout(5*time.Second).Should(HavePrefix("new "), name)
	}
	still, _, _ := strings.Cut(strings.TrimPrefix(before, "old "), " ")
	g.Expect(bystander()).To(And(HavePrefix("old "+still+" "), Not(Equal(before))), "a connection to the host's own address stays")
	g.Expect(filepath.Join(dir, "quoin-leaving")).To(BeAnExistingFile())

	// Should the other one be gone tomorrow, this host takes connections to the address as before.
	g.Eventually(func() (string, error) {
		out, err := exec.Command("ip", "-n", l.prefix+"old", "xfrm", "policy").CombinedOutput()
		return string(out), err
	}).WithTimeout(10 * time.Second).Should(BeEmpty())

	held, err = keepalived.HandOver(context.Background(), host, addresses)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(held).To(BeFalse(), "asked again, it changes nothing")
}
