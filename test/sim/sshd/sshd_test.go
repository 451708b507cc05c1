// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sshd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/sshd"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// echo is a command that reads all its input and then says so, as the wrapper of package ssh expects.
type echo struct{ session sshd.Session }

func (e echo) Wait(context.Context) (int, error) {
	fmt.Fprint(e.session.Stderr, "\x01quoin\n")
	n, _ := io.Copy(io.Discard, e.session.Stdin)
	fmt.Fprintf(e.session.Stdout, "read %d bytes", n)
	return 0, nil
}
func (echo) Cut()          {}
func (echo) Signal(string) {}

func serve(t *testing.T) (*sshd.Server, ssh.Target) {
	t.Helper()
	key := sshtest.NewKey()
	server, err := sshd.New(sshd.Options{
		Users: map[string][]gossh.PublicKey{"root": {key.PublicKey()}},
		Start: func(s sshd.Session) (sshd.Command, error) { return echo{s}, nil },
		Dial:  func(_ string, port int) (net.Conn, error) { return net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server, ssh.Target{Address: server.Addr().IP.String(), Port: server.Addr().Port, User: "root",
		Signers: []ssh.Signer{key}, HostKeys: []ssh.PublicKey{server.HostKey()}}
}

func dial(t *testing.T, target ssh.Target) (*ssh.Conn, error) {
	t.Helper()
	conn, err := ssh.Dial(t.Context(), target, ssh.PoolOptions{DialTimeout: 500 * time.Millisecond})
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func TestItIsRealSSH(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t)
	conn, err := dial(t, target)
	g.Expect(err).NotTo(HaveOccurred())
	result, err := conn.Run(t.Context(), ssh.Command{Script: "true", Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(HavePrefix("read 10485"), "the script and then the megabyte")

	far, err := conn.DialContext(t.Context(), "tcp", server.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	greeting := make([]byte, 7)
	_, err = io.ReadFull(far, greeting)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(greeting)).To(Equal("SSH-2.0"))
}

func TestTheLineMisbehaves(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t)
	var unreachable *ssh.UnreachableError
	var interrupted *ssh.InterruptedError

	server.SetLine(sshd.Line{Hang: true})
	_, err := dial(t, target)
	g.Expect(errors.As(err, &unreachable)).To(BeTrue(), "%v", err)

	server.Stop()
	_, err = dial(t, target)
	g.Expect(err).To(MatchError(ContainSubstring("refused")))
	g.Expect(server.Start()).To(Succeed())

	server.SetLine(sshd.Line{DropAfter: 1000, Times: 1})
	_, err = dial(t, target)
	g.Expect(errors.As(err, &unreachable)).To(BeTrue(), "cut in the handshake: %v", err)

	// The dial may have given up before the line cut it; the next line is for the next connection.
	g.Eventually(server.Open, "30s", "1ms").Should(BeZero())
	server.SetLine(sshd.Line{DropAfter: 100_000, Times: 1})
	conn, err := dial(t, target)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = conn.Run(t.Context(), ssh.Command{Script: "true", Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
	g.Expect(errors.As(err, &interrupted)).To(BeTrue(), "cut in the command: %v", err)

	conn, err = dial(t, target)
	g.Expect(err).NotTo(HaveOccurred(), "only one connection was concerned")
	server.SetLine(sshd.Line{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = conn.Run(ctx, ssh.Command{Script: "true"})
	g.Expect(err).To(HaveOccurred())
	server.SetLine(sshd.Line{})
	conn, err = dial(t, target)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = conn.Run(t.Context(), ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred(), "the line behaves again")
}

// The line concerns who may still use it: not a connection that was cut and whose end nobody has seen to yet.
func TestALineIsNotSpentOnAConnectionThatWasCut(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t)
	raw, err := net.Dial("tcp", server.Addr().String())
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = raw.Close() }()
	g.Eventually(server.Open, "10s", "1ms").Should(Equal(1))
	server.Cut()
	server.SetLine(sshd.Line{DropAfter: 1000, Times: 1})
	_, err = dial(t, target)
	var unreachable *ssh.UnreachableError
	g.Expect(errors.As(err, &unreachable)).To(BeTrue(), "%v", err)
}

func TestTheHostKeyChanges(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t)
	server.ChangeHostKey(sshtest.NewKey())
	var changed *ssh.HostKeyChangedError
	_, err := dial(t, target)
	g.Expect(errors.As(err, &changed)).To(BeTrue())
	g.Expect(changed.Got).To(Equal(ssh.Fingerprint(server.HostKey())))
}
