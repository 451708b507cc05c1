// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func serve(t *testing.T, o sshtest.ServerOptions) (*sshtest.Server, ssh.Target) {
	t.Helper()
	key := sshtest.NewKey()
	o.Authorized = key.PublicKey()
	server, err := sshtest.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	target := server.Target(key)
	return server, target
}

func dial(t *testing.T, target ssh.Target) *ssh.Conn {
	t.Helper()
	conn, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sudoStub is a sudo that works, or one that wants a password.
func sudoStub(t *testing.T, works bool) []string {
	t.Helper()
	dir := t.TempDir()
	body := "#!/bin/sh\nshift 2\nSUDO_STUB=used exec \"$@\"\n"
	if !works {
		body = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "sudo"), []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

func TestRunKeepsScriptAndInputApart(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	conn := dial(t, target)

	// More than any read-ahead of sh, so that a swallowed input would show.
	input := strings.Repeat("line of input\n", 20000)
	result, err := conn.Run(context.Background(), ssh.Command{Script: "# it's \"quoted\" $HOME\nwc -c\necho oops >&2\n",
		Stdin: strings.NewReader(input)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.TrimSpace(result.Stdout)).To(Equal("280000"))
	g.Expect(result.Stderr).To(Equal("oops\n"))
}

func TestExitCodeIsNotAFailedConnection(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "echo no such thing >&2; exit 42"})
	var exit *ssh.ExitError
	g.Expect(errors.As(err, &exit)).To(BeTrue())
	g.Expect(exit.Code).To(Equal(42))
	g.Expect(exit.Stderr).To(Equal("no such thing\n"))
	g.Expect(ssh.IsTransient(err)).To(BeFalse())
	g.Expect(ssh.NeverRan(err)).To(BeFalse())
}

func TestOutputIsBounded(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	result, err := dial(t, target).Run(context.Background(),
		ssh.Command{Script: "head -c 6000000 /dev/zero; head -c 200000 /dev/zero >&2; echo the end >&2"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(HaveLen(ssh.MaxStdout))
	g.Expect(result.Truncated).To(BeTrue())
	g.Expect(len(result.Stderr)).To(BeNumerically("<=", ssh.MaxStderr))
	g.Expect(result.Stderr).To(HaveSuffix("the end\n"))
}

func TestSudo(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{User: "admin", Env: sudoStub(t, true)})
	conn := dial(t, target)
	result, err := conn.Run(context.Background(), ssh.Command{Script: "echo $SUDO_STUB", Sudo: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(Equal("used\n"))
	result, err = conn.Run(context.Background(), ssh.Command{Script: "echo \"<$SUDO_STUB>\""})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(Equal("<>\n"))

	_, target = serve(t, sshtest.ServerOptions{User: "admin", Env: sudoStub(t, false)})
	_, err = dial(t, target).Run(context.Background(), ssh.Command{Script: "echo", Sudo: true})
	var sudo *ssh.SudoError
	g.Expect(errors.As(err, &sudo)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("a password is required")))
	g.Expect(ssh.NeverRan(err)).To(BeTrue())

	// root needs no sudo at all: a stub that fails is never asked.
	_, target = serve(t, sshtest.ServerOptions{User: "root", Env: sudoStub(t, false)})
	_, err = dial(t, target).Run(context.Background(), ssh.Command{Script: "true", Sudo: true})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestUploadIsAtomicAndExact(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	conn := dial(t, target)
	path := filepath.Join(t.TempDir(), "it's a file")
	content := bytes.Repeat([]byte{0, 1, 2, '\n', 255}, 100000)
	g.Expect(conn.Upload(context.Background(), path, 0o640, content)).To(Succeed())
	got, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(got, content)).To(BeTrue())
	info, _ := os.Stat(path)
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o640)))

	g.Expect(conn.Upload(context.Background(), path, 0o600, []byte("new"))).To(Succeed())
	g.Expect(os.ReadFile(path)).To(BeEquivalentTo("new"))
	entries, _ := os.ReadDir(filepath.Dir(path))
	g.Expect(entries).To(HaveLen(1), "no temporary file is left")
	g.Expect(conn.Upload(context.Background(), "/nowhere/at/all", 0o600, nil)).
		To(MatchError(ContainSubstring("/nowhere/at/all")))
}

func TestCancelEndsTheCall(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	conn := dial(t, target)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := conn.Run(ctx, ssh.Command{Script: "sleep 30"})
	g.Expect(time.Since(begin)).To(BeNumerically("<", 5*time.Second))
	g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue())
	var interrupted *ssh.InterruptedError
	g.Expect(errors.As(err, &interrupted)).To(BeTrue())
	g.Expect(ssh.NeverRan(err)).To(BeFalse())
	_, err = conn.Run(context.Background(), ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred(), "the connection itself goes on")
}

func TestHandshakeThatHangsIsBoundByTheContext(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	addr := listener.Addr().(*net.TCPAddr)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = ssh.Dial(ctx, ssh.Target{Address: "127.0.0.1", Port: addr.Port, User: "root",
		Signers: []xssh.Signer{sshtest.NewKey()}}, ssh.PoolOptions{})
	g.Expect(time.Since(begin)).To(BeNumerically("<", 5*time.Second))
	var unreachable *ssh.UnreachableError
	g.Expect(errors.As(err, &unreachable)).To(BeTrue())
	g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue())
	g.Expect(ssh.IsTransient(err)).To(BeTrue())
}

func TestFirstContactReturnsTheKeyAndPinningRefusesAnother(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t, sshtest.ServerOptions{})
	conn := dial(t, target)
	g.Expect(conn.HostKey().Marshal()).To(Equal(server.HostKey().Marshal()))

	pinned, err := ssh.ParseHostKeys("# note\n\n" + ssh.FormatHostKey(conn.HostKey()) + "\n")
	g.Expect(err).NotTo(HaveOccurred())
	target.HostKeys = pinned
	dial(t, target)

	target.HostKeys = []xssh.PublicKey{sshtest.NewKey().PublicKey()}
	_, err = ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue())
	g.Expect(changed.Got).To(Equal(ssh.Fingerprint(server.HostKey())))
	g.Expect(changed.Want).To(Equal([]string{ssh.Fingerprint(target.HostKeys[0])}))
	g.Expect(ssh.IsTransient(err)).To(BeFalse())
	g.Expect(ssh.NeverRan(err)).To(BeTrue())
}

func TestWrongUserKeyIsNamedByFingerprintOnly(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	wrong := sshtest.NewKey()
	target.Signers = []xssh.Signer{wrong}
	_, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
	var auth *ssh.AuthError
	g.Expect(errors.As(err, &auth)).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring(ssh.Fingerprint(wrong.PublicKey()))))
	g.Expect(ssh.IsTransient(err)).To(BeFalse())

	_, err = ssh.ParseSigner([]byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n"))
	g.Expect(err).To(HaveOccurred())
	g.Expect(err.Error()).NotTo(ContainSubstring("c2VjcmV0"))
}

func TestForwarding(t *testing.T) {
	g := NewWithT(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	_, target := serve(t, sshtest.ServerOptions{})
	conn := dial(t, target)
	tunnel, err := conn.DialContext(context.Background(), "tcp", echo.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	_, err = tunnel.Write([]byte("hello"))
	g.Expect(err).NotTo(HaveOccurred())
	buf := make([]byte, 5)
	_, err = io.ReadFull(tunnel, buf)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(buf)).To(Equal("hello"))
	g.Expect(tunnel.SetReadDeadline(time.Now().Add(50 * time.Millisecond))).To(Succeed())
	_, err = tunnel.Read(buf)
	g.Expect(errors.Is(err, os.ErrDeadlineExceeded)).To(BeTrue())
	g.Expect(tunnel.Close()).To(Succeed())

	free, _ := net.Listen("tcp", "127.0.0.1:0")
	addr := free.Addr().String()
	_ = free.Close()
	_, err = conn.DialContext(context.Background(), "tcp", addr)
	g.Expect(ssh.IsTransient(err)).To(BeTrue(), "nothing listens there yet")

	_, target = serve(t, sshtest.ServerOptions{RefuseForwarding: true})
	_, err = dial(t, target).DialContext(context.Background(), "tcp", "127.0.0.1:2379")
	var refused *ssh.ForwardingError
	g.Expect(errors.As(err, &refused)).To(BeTrue())
	g.Expect(refused.Prohibited).To(BeTrue())
	g.Expect(err).To(MatchError(ContainSubstring("AllowTcpForwarding")))
	g.Expect(ssh.IsTransient(err)).To(BeFalse())
}

func TestPoolKeepsOneConnectionAndReplacesBrokenOnes(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t, sshtest.ServerOptions{})
	pool := ssh.NewPool(ssh.PoolOptions{})
	defer pool.Close()
	ctx := context.Background()

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			conn, err := pool.Get(ctx, "host-uid", target)
			if err == nil {
				_, err = conn.Run(ctx, ssh.Command{Script: "true"})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	g.Expect(server.Accepted()).To(Equal(1))

	// Pinning what was seen at first contact keeps the connection.
	first, err := pool.Get(ctx, "host-uid", target)
	g.Expect(err).NotTo(HaveOccurred())
	target.HostKeys = []xssh.PublicKey{first.HostKey()}
	second, err := pool.Get(ctx, "host-uid", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(BeIdenticalTo(first))

	// A running command learns that its connection went, and the next Get dials again.
	go func() {
		time.Sleep(200 * time.Millisecond)
		server.DropConnections()
	}()
	_, err = second.Run(ctx, ssh.Command{Script: "sleep 30"})
	var interrupted *ssh.InterruptedError
	g.Expect(errors.As(err, &interrupted)).To(BeTrue(), "%v", err)
	g.Expect(ssh.IsTransient(err)).To(BeTrue())
	third, err := pool.Get(ctx, "host-uid", target)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = third.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.Accepted()).To(Equal(2))

	// Other pins on a pooled connection are checked too.
	target.HostKeys = []xssh.PublicKey{sshtest.NewKey().PublicKey()}
	_, err = pool.Get(ctx, "host-uid", target)
	var changed *ssh.HostKeyChangedError
	g.Expect(errors.As(err, &changed)).To(BeTrue())

	// The target moved to another machine.
	other, otherTarget := serve(t, sshtest.ServerOptions{})
	_, err = pool.Get(ctx, "host-uid", otherTarget)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(other.Accepted()).To(Equal(1))

	pool.Close()
	_, err = pool.Get(ctx, "host-uid", otherTarget)
	g.Expect(err).To(HaveOccurred())
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t, sshtest.ServerOptions{})
	now := clocktesting.NewFakeClock(time.Now())
	pool := ssh.NewPool(ssh.PoolOptions{Clock: now})
	defer pool.Close()
	conn, err := pool.Get(t.Context(), "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	runs := func(script string) func() error {
		return func() error {
			_, err := conn.Run(t.Context(), ssh.Command{Script: script})
			return err
		}
	}
	g.Eventually(now.HasWaiters).Should(BeTrue())
	long := make(chan error, 1)
	go func() { long <- runs("sleep 1")() }()
	// Hours pass meanwhile.
	g.Consistently(func() error { now.Step(time.Hour); return runs("true")() }, "500ms", "100ms").
		Should(Succeed(), "a busy connection is not idle")
	g.Expect(<-long).To(Succeed())
	for range 10 {
		now.Step(50 * time.Second)
		g.Consistently(runs("true"), "30ms").Should(Succeed(), "used again before a minute was over")
	}
	now.Step(50 * time.Second)
	again, err := pool.Get(t.Context(), "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again).To(BeIdenticalTo(conn), "handing it out is a use")
	now.Step(80 * time.Second)
	g.Eventually(server.Open, "1m").Should(BeZero(), "nobody used it for more than a minute")
	g.Expect(runs("true")()).NotTo(Succeed())
	_, err = pool.Get(t.Context(), "k", target)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.Accepted()).To(Equal(2))
}

// Hosts come and go, and a manager that only dials through them hears of none that goes.
func TestAPoolKeepsNothingOfHostsThatNobodyConnectsTo(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	now := clocktesting.NewFakeClock(time.Now())
	pool := ssh.NewPool(ssh.PoolOptions{Clock: now})
	defer pool.Close()
	const hosts = 20
	for i := range hosts {
		_, err := pool.Get(t.Context(), fmt.Sprint("host-", i), target)
		g.Expect(err).NotTo(HaveOccurred())
	}
	_, err := pool.Get(t.Context(), "silent", ssh.Target{Address: "127.0.0.1", Port: 1})
	g.Expect(err).To(HaveOccurred())
	g.Expect(memorytest.Entries(pool)).To(Equal(map[string]int{".hosts": hosts + 1}))
	g.Eventually(func() map[string]int {
		now.Step(time.Minute)
		return memorytest.Entries(pool)
	}, "1m", "50ms").Should(BeEmpty())
	_, err = pool.Get(t.Context(), "host-0", target)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestKeepAliveNoticesASilentHost(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	endpoint := target.Endpoint()
	// A relay that stops carrying bytes is what a host looks like after its power went.
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer relay.Close()
	var mu sync.Mutex
	frozen := false
	pump := func(to, from net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			stop := frozen
			mu.Unlock()
			if !stop {
				_, _ = to.Write(buf[:n])
			}
		}
	}
	go func() {
		near, err := relay.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", endpoint)
		if err != nil {
			return
		}
		go pump(near, far)
		go pump(far, near)
	}()
	target.Port = relay.Addr().(*net.TCPAddr).Port
	conn, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{KeepAlive: 100 * time.Millisecond})
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	mu.Lock()
	frozen = true
	mu.Unlock()
	begin := time.Now()
	_, err = conn.Run(context.Background(), ssh.Command{Script: "true"})
	g.Expect(err).To(HaveOccurred())
	g.Expect(ssh.IsTransient(err)).To(BeTrue())
	g.Expect(time.Since(begin)).To(BeNumerically("<", 5*time.Second))
}
