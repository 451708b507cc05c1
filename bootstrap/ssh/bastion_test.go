// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// behind puts a bastion, whose key is pinned, in front of a target.
func behind(t *testing.T, target ssh.Target, o sshtest.ServerOptions) (*sshtest.Server, ssh.Target) {
	t.Helper()
	o.User = "jump"
	server, bastion := serve(t, o)
	bastion.HostKeys = []xssh.PublicKey{server.HostKey()}
	target.Bastion = &bastion
	return server, target
}

func TestManyHostsShareOneConnectionToTheirBastion(t *testing.T) {
	g := NewWithT(t)
	pool := ssh.NewPool(ssh.PoolOptions{})
	defer pool.Close()
	ctx := context.Background()
	host, target := serve(t, sshtest.ServerOptions{})
	target.HostKeys = []xssh.PublicKey{host.HostKey()}
	bastion, target := behind(t, target, sshtest.ServerOptions{})
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			conn, err := pool.Get(ctx, fmt.Sprint("host ", n), target)
			if err != nil {
				t.Error(err)
				return
			}
			result, err := conn.Run(ctx, ssh.Command{Script: "echo through"})
			if err != nil || result.Stdout != "through\n" {
				t.Error(err, result.Stdout)
			}
		})
	}
	wg.Wait()
	g.Expect(bastion.Accepted()).To(Equal(1))
	g.Expect(host.Accepted()).To(Equal(12))

	// From the host on it goes further: etcd of a host behind a bastion.
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer echo.Close()
	conn, err := pool.Get(ctx, "host 0", target)
	g.Expect(err).NotTo(HaveOccurred())
	tunnel, err := conn.DialContext(ctx, "tcp", echo.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	_ = tunnel.Close()

	// The bastion goes, and comes back.
	bastion.DropConnections()
	g.Eventually(func() error {
		conn, err := pool.Get(ctx, "host 0", target)
		if err == nil {
			_, err = conn.Run(ctx, ssh.Command{Script: "true"})
		}
		return err
	}).Should(Succeed())
	g.Expect(bastion.Accepted()).To(Equal(2))
}

func TestTheErrorsTellABastionFromItsHost(t *testing.T) {
	host, good := serve(t, sshtest.ServerOptions{})
	good.HostKeys = []xssh.PublicKey{host.HostKey()}
	for name, c := range map[string]struct {
		options   sshtest.ServerOptions
		spoil     func(*ssh.Target)
		bastion   bool
		transient bool
		check     func(*WithT, error)
	}{
		"the bastion is down": {bastion: true, transient: true, spoil: func(t *ssh.Target) { t.Bastion.Port = freePort() }},
		"the bastion has another key": {bastion: true, spoil: func(t *ssh.Target) {
			t.Bastion.HostKeys = []xssh.PublicKey{sshtest.NewKey().PublicKey()}
		}, check: func(g *WithT, err error) {
			var changed *ssh.HostKeyChangedError
			g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
			g.Expect(changed.Bastion).To(BeTrue())
			g.Expect(changed.Key).To(BeNil(), "nobody shall pin it to the host")
			g.Expect(err).To(MatchError(ContainSubstring("bastion.hostKeys")))
		}},
		"nobody pinned the bastion's key": {bastion: true, spoil: func(t *ssh.Target) {
			t.Bastion.HostKeys = nil
		}, check: func(g *WithT, err error) {
			g.Expect(err).To(MatchError(ContainSubstring("no host key is pinned for the bastion")))
		}},
		"the bastion refuses our key": {bastion: true, spoil: func(t *ssh.Target) {
			t.Bastion.Signers = []xssh.Signer{sshtest.NewKey()}
		}, check: func(g *WithT, err error) {
			var auth *ssh.AuthError
			g.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
			g.Expect(auth.Bastion).To(BeTrue())
			g.Expect(err).To(MatchError(ContainSubstring(`refused user "jump"`)))
		}},
		"the bastion forbids forwarding": {bastion: true, options: sshtest.ServerOptions{RefuseForwarding: true},
			check: func(g *WithT, err error) {
				var forwarding *ssh.ForwardingError
				g.Expect(errors.As(err, &forwarding)).To(BeTrue(), "%v", err)
				g.Expect(forwarding.Prohibited).To(BeTrue())
				g.Expect(err).To(MatchError(ContainSubstring("AllowTcpForwarding")))
			}},
		"the host is down": {transient: true, spoil: func(t *ssh.Target) {
			t.Port = freePort()
		}, check: func(g *WithT, err error) {
			var unreachable *ssh.UnreachableError
			g.Expect(errors.As(err, &unreachable)).To(BeTrue(), "%v", err)
			g.Expect(unreachable.Through).NotTo(BeEmpty())
		}},
		"the host has another key": {spoil: func(t *ssh.Target) {
			t.HostKeys = []xssh.PublicKey{sshtest.NewKey().PublicKey()}
		}, check: func(g *WithT, err error) {
			var changed *ssh.HostKeyChangedError
			g.Expect(errors.As(err, &changed)).To(BeTrue(), "%v", err)
			g.Expect(changed.Bastion).To(BeFalse())
			g.Expect(changed.Key).NotTo(BeNil())
		}},
		"the host refuses our key": {spoil: func(t *ssh.Target) {
			t.Signers = []xssh.Signer{sshtest.NewKey()}
		}, check: func(g *WithT, err error) {
			var auth *ssh.AuthError
			g.Expect(errors.As(err, &auth)).To(BeTrue(), "%v", err)
			g.Expect(auth.Bastion).To(BeFalse())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := behind(t, good, c.options)
			if c.spoil != nil {
				c.spoil(&target)
			}
			pool := ssh.NewPool(ssh.PoolOptions{})
			defer pool.Close()
			_, pooled := pool.Get(context.Background(), "k", target)
			_, single := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
			for _, err := range []error{pooled, single} {
				g.Expect(err).To(HaveOccurred())
				var bastion *ssh.BastionError
				g.Expect(errors.As(err, &bastion)).To(Equal(c.bastion), "%v", err)
				if c.bastion {
					var unreachable *ssh.UnreachableError
					g.Expect(errors.As(err, &unreachable)).To(BeFalse(), "a bastion's silence is not its host's")
					g.Expect(err).To(MatchError(ContainSubstring(target.Bastion.Endpoint())))
				}
				g.Expect(ssh.IsTransient(err)).To(Equal(c.transient), "%v", err)
				g.Expect(ssh.NeverRan(err)).To(BeTrue())
				if c.check != nil {
					c.check(g, err)
				}
			}
		})
	}
}

func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// Hosts behind a bastion that hangs fail together, after one attempt, and no other host waits for them.
func TestABastionThatHangsHoldsNobodyElse(t *testing.T) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer silent.Close()
	var attempts atomic.Int32
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			attempts.Add(1)
		}
	}()
	other, otherTarget := serve(t, sshtest.ServerOptions{})
	otherTarget.HostKeys = []xssh.PublicKey{other.HostKey()}
	host, target := serve(t, sshtest.ServerOptions{})
	target.HostKeys = []xssh.PublicKey{host.HostKey()}
	_, target = behind(t, target, sshtest.ServerOptions{})
	target.Bastion.Port = silent.Addr().(*net.TCPAddr).Port

	pool := ssh.NewPool(ssh.PoolOptions{DialTimeout: 2 * time.Second})
	defer pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	failed := make(chan error, 10)
	for n := range 10 {
		go func() { _, err := pool.Get(ctx, fmt.Sprint("host ", n), target); failed <- err }()
	}
	_, err = pool.Get(ctx, "other", otherTarget)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(failed).To(BeEmpty(), "the others still wait")
	for range 10 {
		err := <-failed
		var bastion *ssh.BastionError
		g.Expect(errors.As(err, &bastion)).To(BeTrue(), "%v", err)
	}
	g.Expect(attempts.Load()).To(BeNumerically("<=", 3), "who waited in vain does not try once more")

	// Whoever gives up goes at once.
	gone, giveUp := context.WithCancel(context.Background())
	giveUp()
	_, err = pool.Get(gone, "host 0", target)
	g.Expect(errors.Is(err, context.Canceled)).To(BeTrue(), "%v", err)
}

// A bastion that answers, but whose attempt to reach the host hangs, is not to blame.
func TestAHostThatHangsBehindItsBastionIsUnreachable(t *testing.T) {
	g := NewWithT(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer silent.Close()
	_, target := serve(t, sshtest.ServerOptions{})
	target.Port = silent.Addr().(*net.TCPAddr).Port
	_, target = behind(t, target, sshtest.ServerOptions{})
	for name, hang := range map[string]bool{"in its handshake": false, "before it accepts": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			target := target
			if hang {
				_, target = behind(t, target, sshtest.ServerOptions{HangForwarding: true})
			}
			_, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{DialTimeout: time.Second})
			var unreachable *ssh.UnreachableError
			g.Expect(errors.As(err, &unreachable)).To(BeTrue(), "%v", err)
			g.Expect(unreachable.Through).To(Equal(target.Bastion.Endpoint()))
			g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue())
		})
	}
}

// Two owners of hosts, one bastion: each logs in there with keys of his own.
func TestABastionsConnectionIsNotSharedBetweenKeys(t *testing.T) {
	g := NewWithT(t)
	host, target := serve(t, sshtest.ServerOptions{})
	target.HostKeys = []xssh.PublicKey{host.HostKey()}
	one, two := sshtest.NewKey(), sshtest.NewKey()
	bastion, mine := behind(t, target, sshtest.ServerOptions{Authorize: func(string, xssh.PublicKey) bool { return true }})
	mine.Bastion.Signers = []xssh.Signer{one}
	yours := mine
	theirs := *mine.Bastion
	theirs.Signers = []xssh.Signer{two}
	yours.Bastion = &theirs
	pool := ssh.NewPool(ssh.PoolOptions{})
	defer pool.Close()
	first, err := pool.Get(context.Background(), "mine", mine)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = pool.Get(context.Background(), "yours", yours)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bastion.Accepted()).To(Equal(2))
	_, err = first.Run(context.Background(), ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred())

	// The key for the bastion is taken away: the connection to the host goes with it.
	yours.Bastion.Signers = []xssh.Signer{sshtest.NewKey()}
	mine.Bastion = yours.Bastion
	second, err := pool.Get(context.Background(), "mine", mine)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).NotTo(BeIdenticalTo(first))
	_, err = first.Run(context.Background(), ssh.Command{Script: "true"})
	g.Expect(err).To(HaveOccurred())
}

// Control judges what this process connects to itself: a host without a bastion, or the bastion.
func TestAnAddressThatIsRefusedIsNeverDialed(t *testing.T) {
	host, target := serve(t, sshtest.ServerOptions{})
	target.HostKeys = []xssh.PublicKey{host.HostKey()}
	_, through := behind(t, target, sshtest.ServerOptions{})
	var judged []string
	options := ssh.PoolOptions{Control: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		judged = append(judged, address)
		return errors.New("it is in none of the allowed networks")
	}}
	for name, target := range map[string]ssh.Target{"a host": target, "a bastion": through} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			judged = nil
			_, err := ssh.Dial(context.Background(), target, options)
			var refused *ssh.RefusedError
			var unreachable *ssh.UnreachableError
			g.Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			g.Expect(refused.Bastion).To(Equal(target.Bastion != nil))
			g.Expect(errors.As(err, &unreachable)).To(BeFalse(), "whoever waits for silence must not hear any")
			g.Expect(ssh.NeverRan(err)).To(BeTrue())
			g.Expect(ssh.IsTransient(err)).To(BeFalse())
			g.Expect(err).To(MatchError(ContainSubstring("it is in none of the allowed networks")))
			g.Expect(judged).To(HaveLen(1))
		})
	}
}
