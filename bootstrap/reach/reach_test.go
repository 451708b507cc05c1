// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reach"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// listening are a port of this machine that answers until the test ends, and one that nobody listens on.
func listening(t *testing.T, address string) (open, closed reach.Endpoint) {
	t.Helper()
	for _, at := range []*reach.Endpoint{&open, &closed} {
		listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			t.Skipf("needs %s: %v", address, err)
		}
		*at = reach.Endpoint{Host: address, Port: netip.MustParseAddrPort(listener.Addr().String()).Port()}
		if at == &closed {
			_ = listener.Close()
		} else {
			t.Cleanup(func() { _ = listener.Close() })
		}
	}
	return open, closed
}

func TestThisMachineReachesWhatListens(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		t.Run(loopback, func(t *testing.T) {
			g := NewWithT(t)
			open, closed := listening(t, loopback)
			answer, err := reach.Ask(t.Context(), &sshtest.Local{}, []reach.Endpoint{open, closed})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(answer).To(Equal(&reach.Answer{Refused: []reach.Endpoint{closed}}))
		})
	}
}

func TestThisMachineResolvesNames(t *testing.T) {
	g := NewWithT(t)
	open, closed := listening(t, "127.0.0.1")
	named := func(name string, of reach.Endpoint) reach.Endpoint { return reach.Endpoint{Host: name, Port: of.Port} }
	answer, err := reach.Ask(t.Context(), &sshtest.Local{}, []reach.Endpoint{named("localhost", open),
		named("localhost", closed), named("nobody.invalid", open)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(&reach.Answer{Refused: []reach.Endpoint{named("localhost", closed)},
		Unresolved: []string{"nobody.invalid"}}), "a name that nobody knows has no port to ask")
}

// tools has the script find exactly these programs, as this text in sh; that of this machine where it is empty.
func tools(t *testing.T, programs map[string]string) *sshtest.Local {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		at := filepath.Join(dir, name)
		if text == "" {
			own, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("needs %s", name)
			}
			NewWithT(t).Expect(os.Symlink(own, at)).To(Succeed())
			continue
		}
		NewWithT(t).Expect(os.WriteFile(at, []byte("#!/bin/sh\n"+text), 0o700)).To(Succeed())
	}
	return &sshtest.Local{Env: []string{"PATH=" + dir}}
}

func TestWhatAHostDoesNotReach(t *testing.T) {
	g := NewWithT(t)
	host := tools(t, map[string]string{"bash": "", "getent": "", "timeout": "exit 124",
		"ip": `[ "$1 $2" = "route get" ] && [ "$3" != 192.0.2.7 ]`})
	far, near := reach.Endpoint{Host: "192.0.2.7", Port: 6443}, reach.Endpoint{Host: "127.0.0.1", Port: 2379}
	answer, err := reach.Ask(t.Context(), host, []reach.Endpoint{far, near})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.NoRoute).To(Equal([]string{far.Host}))
	g.Expect(answer.Silent).To(ConsistOf(far, near), "they are given three seconds each")
	g.Expect(answer.Refused).To(BeEmpty())
	g.Expect(answer.Lacks).To(BeEmpty())
}

func TestAHostWithoutTheProgramsSaysSo(t *testing.T) {
	g := NewWithT(t)
	answer, err := reach.Ask(t.Context(), tools(t, nil), []reach.Endpoint{{Host: "192.0.2.7", Port: 6443},
		{Host: "nobody.invalid", Port: 6443}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer).To(Equal(&reach.Answer{Lacks: []string{"bash", "timeout", "ip", "getent"}}))
}

func TestANameIsNoScript(t *testing.T) {
	g := NewWithT(t)
	mark := filepath.Join(t.TempDir(), "mark")
	names := []string{"--version", ""}
	for _, before := range []string{"x;", "$(", "`", "x' ", "-x ", "x\n"} {
		names = append(names, before+"touch "+mark)
	}
	var endpoints []reach.Endpoint
	for _, name := range names {
		endpoints = append(endpoints, reach.Endpoint{Host: name, Port: 6443})
	}
	answer, err := reach.Ask(t.Context(), &sshtest.Local{}, endpoints)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(mark).NotTo(BeAnExistingFile())
	g.Expect(answer.Unresolved).To(Equal(names))
}

// said is a host that says this.
type said struct {
	ssh.Host
	text string
}

func (s said) Run(context.Context, ssh.Command) (ssh.Result, error) {
	return ssh.Result{Stdout: s.text}, nil
}

func TestAnAnswerThatIsNoneIsNotTakenForOne(t *testing.T) {
	for text, want := range map[string]string{"": "cut off", "silent 192.0.2.7 6443\n": "cut off",
		"silent 192.0.2.7 x\nend\n": "cannot be read"} {
		answer, err := reach.Ask(t.Context(), said{text: text}, nil)
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
		NewWithT(t).Expect(answer).To(BeNil())
	}
}
