// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// relay stands between us and a host. It carries so many bytes in one direction, and then cuts the connection or falls
// silent.
type relay struct {
	net.Listener
	to string

	mu     sync.Mutex
	budget [2]int64 // to the host, from the host; negative is without end
	silent bool
	count  [2]int64
	open   []net.Conn
}

const (
	toHost = iota
	fromHost
)

func newRelay(t *testing.T, target *ssh.Target) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener, to: target.Endpoint(), budget: [2]int64{-1, -1}}
	target.Port = listener.Addr().(*net.TCPAddr).Port
	t.Cleanup(r.shut)
	go r.accept()
	return r
}

func (r *relay) accept() {
	for {
		near, err := r.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		r.mu.Lock()
		r.open = append(r.open, near, far)
		r.mu.Unlock()
		go r.carry(toHost, far, near)
		go r.carry(fromHost, near, far)
	}
}

func (r *relay) carry(direction int, to, from net.Conn) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		pass, cut := int64(n), false
		if left := r.budget[direction]; left >= 0 && pass >= left {
			pass, cut = left, true
		}
		if r.budget[direction] >= 0 {
			r.budget[direction] -= pass
		}
		r.count[direction] += pass
		silent := r.silent
		r.mu.Unlock()
		if _, writeErr := to.Write(buf[:pass]); writeErr != nil || err != nil {
			return
		}
		if cut && !silent {
			return
		}
	}
}

// set limits one direction, and returns what the connections so far carried in it.
func (r *relay) set(direction int, budget int64, silent bool) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.budget[direction], r.silent = budget, silent
	count := r.count[direction]
	r.count[direction] = 0
	return count
}

func (r *relay) shut() {
	_ = r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.open {
		_ = conn.Close()
	}
}

// whole is a session with everything in it: login, a script with input and output, a tunnel. The script makes the file
// witness.
func whole(ctx context.Context, target ssh.Target, o ssh.PoolOptions, echo, witness string) error {
	conn, err := ssh.Dial(ctx, target, o)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Run(ctx, ssh.Command{Script: "touch " + ssh.Quote(witness) + "; cat; echo done >&2",
		Stdin: io.LimitReader(zeros{}, 500)}); err != nil {
		return scriptError{err}
	}
	tunnel, err := conn.DialContext(ctx, "tcp", echo)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	deadline, _ := ctx.Deadline()
	_ = tunnel.SetDeadline(deadline)
	if _, err := tunnel.Write([]byte("hello")); err != nil {
		return tunnelError{err}
	}
	if _, err := io.ReadFull(tunnel, make([]byte, 5)); err != nil {
		return tunnelError{err}
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// scriptError marks what was said of the script.
type scriptError struct{ error }

func (e scriptError) Unwrap() error { return e.error }

// tunnelError marks what a net.Conn says: its errors are those of every net.Conn.
type tunnelError struct{ error }

func typed(err error) bool {
	var (
		unreachable *ssh.UnreachableError
		interrupted *ssh.InterruptedError
		tunnel      tunnelError
	)
	return errors.As(err, &unreachable) || errors.As(err, &interrupted) || errors.As(err, &tunnel)
}

func echoServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return listener.Addr().String()
}

// quiet waits until no goroutine is left of what was done since it was made.
func quiet(t *testing.T) func() {
	before := runtime.NumGoroutine()
	return func() {
		t.Helper()
		NewWithT(t).Eventually(runtime.NumGoroutine, "1m", "50ms").Should(BeNumerically("<=", before))
	}
}

// Wherever the connection is cut, the caller learns it by an error that says whether the script may have run.
func TestAConnectionThatBreaksAnywhereIsATypedError(t *testing.T) {
	for name, direction := range map[string]int{"on the way to the host": toHost, "on the way back": fromHost} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			echo := echoServer(t)
			server, target := serve(t, sshtest.ServerOptions{Env: []string{"PATH=/usr/bin:/bin"}})
			target.HostKeys = []xssh.PublicKey{server.HostKey()}
			r := newRelay(t, &target)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			g.Expect(whole(ctx, target, ssh.PoolOptions{}, echo, filepath.Join(t.TempDir(), "ran"))).To(Succeed())
			total := r.set(direction, 0, false)
			g.Expect(total).To(BeNumerically(">", 1000))
			settled := quiet(t)
			failures := 0
			folder := t.TempDir()
			var never []string
			for at := int64(0); at < total; at += 31 {
				r.set(direction, at, false)
				witness := filepath.Join(folder, fmt.Sprintf("%06d", at))
				err := whole(ctx, target, ssh.PoolOptions{}, echo, witness)
				var ofScript scriptError
				if errors.As(err, &ofScript) && ssh.NeverRan(err) {
					never = append(never, witness)
				}
				g.Expect(ctx.Err()).NotTo(HaveOccurred(), "hung after byte %d of %d", at, total)
				if err != nil {
					failures++
					g.Expect(typed(err)).To(BeTrue(), "after byte %d of %d: %T %v", at, total, err, err)
				}
			}
			g.Expect(failures).To(BeNumerically(">", int(total/31)*3/4))
			settled()
			g.Expect(filepath.Glob(filepath.Join(folder, "*"))).NotTo(BeEmpty())
			for _, witness := range never {
				g.Expect(witness).NotTo(BeAnExistingFile(), "a script that never ran must not have run")
			}
		})
	}
}

// Wherever the host falls silent, the caller's time is what ends the call, and keep-alive is what ends the connection.
func TestAHostThatFallsSilentAnywhereHoldsNobodyLonger(t *testing.T) {
	for name, direction := range map[string]int{"on the way to the host": toHost, "on the way back": fromHost} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			echo := echoServer(t)
			server, target := serve(t, sshtest.ServerOptions{Env: []string{"PATH=/usr/bin:/bin"}})
			target.HostKeys = []xssh.PublicKey{server.HostKey()}
			r := newRelay(t, &target)
			far, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			g.Expect(whole(far, target, ssh.PoolOptions{}, echo, filepath.Join(t.TempDir(), "ran"))).To(Succeed())
			total := r.set(direction, 0, true)
			folder := t.TempDir()
			settled := quiet(t)
			var wg sync.WaitGroup
			for part := range int64(16) {
				// Each at its own relay, all at once: most of them only wait.
				target := target
				target.Port = server.Target(nil).Port
				r := newRelay(t, &target)
				r.set(direction, total*part/16, true)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(far, 700*time.Millisecond)
					defer cancel()
					err := whole(ctx, target, ssh.PoolOptions{KeepAlive: 200 * time.Millisecond}, echo,
						filepath.Join(folder, fmt.Sprint(part)))
					if !typed(err) {
						t.Errorf("silent after byte %d of %d: %T %v", total*part/16, total, err, err)
					}
					r.shut()
				})
			}
			wg.Wait()
			g.Expect(far.Err()).NotTo(HaveOccurred())
			settled()
		})
	}
}

// The phases by name: what the host still does before it falls silent.
func TestAHostMayHangInEachPhase(t *testing.T) {
	for name, phase := range map[string]struct {
		answer  func(net.Conn)
		connect bool
	}{
		"after TCP accept": {answer: func(net.Conn) {}},
		"after the versions": {answer: func(conn net.Conn) {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
		}},
		"with an endless banner":   {answer: func(conn net.Conn) { endless(conn, "not the version yet\r\n") }},
		"in the login":             {answer: login(func() { select {} }, nil)},
		"when a channel is opened": {connect: true, answer: login(nil, func(<-chan xssh.NewChannel) { select {} })},
		"when a command is asked for": {connect: true,
			answer: login(nil, channels(func(xssh.Channel, <-chan *xssh.Request) { select {} }))},
		"when a command was begun": {connect: true, answer: login(nil, channels(begun(nil)))},
		"with output that has no end": {connect: true, answer: login(nil, channels(begun(func(c xssh.Channel) {
			endless(c, "more and more\n")
		})))},
		"with errors that have no end": {connect: true, answer: login(nil, channels(begun(func(c xssh.Channel) {
			endless(c.Stderr(), "more and more\n")
		})))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			g.Expect(err).NotTo(HaveOccurred())
			defer listener.Close()
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go phase.answer(conn)
				}
			}()
			const hangs = 500 * time.Millisecond
			dialing := hangs
			if phase.connect {
				dialing = time.Minute
			}
			ctx, cancel := context.WithTimeout(context.Background(), dialing)
			defer cancel()
			target := ssh.Target{Address: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, User: "root",
				Signers: []xssh.Signer{sshtest.NewKey()}}
			conn, err := ssh.Dial(ctx, target, ssh.PoolOptions{})
			g.Expect(err == nil).To(Equal(phase.connect), "%v", err)
			if err == nil {
				defer conn.Close()
				running, stop := context.WithTimeout(ctx, hangs)
				defer stop()
				_, err = conn.Run(running, ssh.Command{Script: "true"})
			}
			g.Expect(typed(err)).To(BeTrue(), "%T %v", err, err)
			g.Expect(ssh.IsTransient(err)).To(BeTrue())
			g.Expect(errors.Is(err, context.DeadlineExceeded) || !phase.connect).To(BeTrue(), "%v", err)
		})
	}
}

func endless(to io.Writer, text string) {
	for {
		if _, err := to.Write([]byte(text)); err != nil {
			return
		}
	}
}

func login(inAuth func(), after func(<-chan xssh.NewChannel)) func(net.Conn) {
	return func(raw net.Conn) {
		config := &xssh.ServerConfig{PublicKeyCallback: func(xssh.ConnMetadata, xssh.PublicKey) (*xssh.Permissions, error) {
			if inAuth != nil {
				inAuth()
			}
			return &xssh.Permissions{}, nil
		}}
		config.AddHostKey(sshtest.NewKey())
		_, opened, requests, err := xssh.NewServerConn(raw, config)
		if err != nil {
			return
		}
		go xssh.DiscardRequests(requests)
		after(opened)
	}
}

func channels(each func(xssh.Channel, <-chan *xssh.Request)) func(<-chan xssh.NewChannel) {
	return func(opened <-chan xssh.NewChannel) {
		for incoming := range opened {
			if channel, requests, err := incoming.Accept(); err == nil {
				go each(channel, requests)
			}
		}
	}
}

func begun(then func(xssh.Channel)) func(xssh.Channel, <-chan *xssh.Request) {
	return func(channel xssh.Channel, requests <-chan *xssh.Request) {
		for request := range requests {
			_ = request.Reply(true, nil)
			if then != nil {
				go then(channel)
			}
		}
	}
}
