// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

var errNoRoom = errors.New("there is no room")

// rooms have so many pieces for each owner.
type rooms struct {
	pieces int

	mu    sync.Mutex
	taken map[string]int
}

func (r *rooms) Take(owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken[owner] == r.pieces {
		return errNoRoom
	}
	r.taken[owner]++
	return nil
}

func (r *rooms) Give(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[owner]--
}

func (r *rooms) of(owner string) func() int {
	return func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.taken[owner]
	}
}

// dialFor dials a host of an owner whose output is bounded by r.
func (r *rooms) dialFor(t *testing.T, target ssh.Target, owner string) *ssh.Conn {
	t.Helper()
	target.Owner = owner
	conn, err := ssh.Dial(t.Context(), target, ssh.PoolOptions{Output: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// A host that keeps the room of its owner is in nobody's way but of those that belong to the same one and print much.
func TestOutputIsBoundedForAllHostsOfAnOwner(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{})
	room := &rooms{pieces: 20, taken: map[string]int{}}
	tenant, other := room.dialFor(t, target, "tenant"), room.dialFor(t, target, "other")
	const much = "head -c 1048576 /dev/zero"

	hung, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := tenant.Run(hung, ssh.Command{Script: much + "; sleep 60"})
		ended <- err
	}()
	g.Eventually(room.of("tenant"), "1m", "10ms").Should(Equal(15))

	begin := time.Now()
	_, err := tenant.Run(t.Context(), ssh.Command{Script: much + "; sleep 60"})
	g.Expect(time.Since(begin)).To(BeNumerically("<", 20*time.Second), "it is ended at once")
	var full *ssh.OutputError
	g.Expect(errors.As(err, &full)).To(BeTrue(), "%v", err)
	g.Expect(full.Endpoint).To(Equal(target.Endpoint()))
	g.Expect(err).To(MatchError(errNoRoom))
	g.Expect(err).To(MatchError(ContainSubstring("was ended for what it prints: there is no room")))
	g.Expect(ssh.NeverRan(err)).To(BeFalse())
	g.Expect(ssh.IsTransient(err)).To(BeTrue())
	g.Expect(room.of("tenant")()).To(Equal(15), "what it had is given back")

	// One that has ended is not taken for whole.
	_, err = tenant.Run(t.Context(), ssh.Command{Script: much})
	g.Expect(errors.As(err, &full)).To(BeTrue(), "%v", err)
	// What prints little has room of its own.
	result, err := tenant.Run(t.Context(), ssh.Command{Script: "head -c 65536 /dev/zero"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(HaveLen(ssh.OutputPiece))
	// What another owner's hosts print is whole.
	result, err = other.Run(t.Context(), ssh.Command{Script: much})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.Stdout).To(HaveLen(1 << 20))
	g.Expect(result.Truncated).To(BeFalse())
	g.Expect(room.of("other")()).To(BeZero())

	stop()
	var interrupted *ssh.InterruptedError
	g.Expect(errors.As(<-ended, &interrupted)).To(BeTrue())
	g.Expect(room.of("tenant")()).To(BeZero())
	_, err = tenant.Run(t.Context(), ssh.Command{Script: much})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestOutputOverATerminalIsBounded(t *testing.T) {
	m := newMachine(t)
	m.sudo(wantsTTY)
	_, target := serve(t, m.options())
	target.SudoCommand = m.runner
	room := &rooms{pieces: 2, taken: map[string]int{}}
	_, err := room.dialFor(t, target, "tenant").Run(t.Context(), ssh.Command{Script: "head -c 1048576 /dev/zero", Sudo: true})
	var full *ssh.OutputError
	m.Expect(errors.As(err, &full)).To(BeTrue(), "%v", err)
	m.Expect(room.of("tenant")()).To(BeZero())
}
