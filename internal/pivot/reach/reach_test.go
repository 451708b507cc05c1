// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/reach"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

var loopback = []string{"127.0.0.0/8"}

// listener is a port of this machine.
func listener(t *testing.T) (net.Listener, pivot.Look) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = l.Close() })
	return l, pivot.Look{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
}

// server is an sshd at which nobody may log in, and a look for it with its key.
func server(t *testing.T, o sshtest.ServerOptions) (*sshtest.Server, pivot.Look) {
	t.Helper()
	o.Authorize = func(string, ssh.PublicKey) bool { t.Error("somebody logs in"); return false }
	s, err := sshtest.NewServer(o)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(s.Close)
	at := s.Target(nil)
	return s, pivot.Look{Address: at.Address, Port: at.Port, SSH: true, HostKeys: []string{ssh.FormatHostKey(s.HostKey())}}
}

func TestWhatIsReachedAndWhatIsNot(t *testing.T) {
	g := NewWithT(t)
	open, opened := listener(t)
	defer func() { _ = open.Close() }()
	closing, closed := listener(t)
	g.Expect(closing.Close()).To(Succeed())
	_, tarpit := listener(t) // it takes connections, and says nothing
	tarpit.SSH = true
	_, right := server(t, sshtest.ServerOptions{})
	fresh := right
	fresh.HostKeys = nil
	_, wrong := server(t, sshtest.ServerOptions{})
	wrong.HostKeys = right.HostKeys
	closedHost := closed
	closedHost.SSH = true
	nobody := pivot.Look{Address: "nobody.invalid", Port: 443}
	looks := []pivot.Look{opened, closed, tarpit, right, fresh, wrong, closedHost, nobody}

	answer, err := reach.Ask(t.Context(), pivot.Question{Looks: looks}, loopback,
		reach.Bounds{Each: 2 * time.Second, All: time.Minute})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Looks).To(Equal(len(looks)))
	g.Expect(answer.Faults).To(ConsistOf(
		pivot.Fault{Why: "connection refused", Looks: []int{1, 6}},
		pivot.Fault{Why: "no answer within 2s", Looks: []int{2}},
		And(HaveField("Looks", []int{5}), HaveField("Why", HavePrefix("it presents another host key: SHA256:"))),
		And(HaveField("Looks", []int{7}), HaveField("Why", "its name is not resolved")),
	))
}

// A certificate does in the place of a pinned key, for the host's own name.
func TestACertifiedHostIsRecognized(t *testing.T) {
	g := NewWithT(t)
	authority, key := sshtest.NewKey(), sshtest.NewKey()
	_, look := server(t, sshtest.ServerOptions{HostKey: key,
		HostCertificate: sshtest.HostCertificate(authority, key,
			func(c *gossh.Certificate) { c.ValidPrincipals = []string{"h1"} })})
	look.HostKeys, look.Authorities, look.Name = nil, []string{ssh.FormatHostKey(authority.PublicKey())}, "h1"
	other := look
	other.Name = "h2"
	answer, err := reach.Ask(t.Context(), pivot.Question{Looks: []pivot.Look{look, other}}, loopback, reach.Usual)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Faults).To(ConsistOf(And(HaveField("Looks", []int{1}), HaveField("Why",
		ContainSubstring("made out to")))))
}

// What the manager would not connect to is not reached, whoever answers there.
func TestAddressesAreJudgedAsTheManagerDoes(t *testing.T) {
	g := NewWithT(t)
	_, open := listener(t)
	service := open
	service.Service = true
	s, host := server(t, sshtest.ServerOptions{})
	q := pivot.Question{Looks: []pivot.Look{open, service, host}}
	answer, err := reach.Ask(t.Context(), q, nil, reach.Usual)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Faults).To(ConsistOf(pivot.Fault{Looks: []int{0, 1, 2},
		Why: "the manager's --allowed-networks refuse the address: it is the manager's own"}))
	g.Expect(s.Accepted()).To(BeZero())

	q.Services = []string{"127.0.0.0/16"}
	answer, err = reach.Ask(t.Context(), q, loopback, reach.Usual)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Faults).To(ConsistOf(pivot.Fault{Looks: []int{0, 2},
		Why: "the manager's --allowed-networks refuse the address: it is that of a Service of the management cluster"}))

	_, err = reach.Ask(t.Context(), q, []string{"everything"}, reach.Usual)
	g.Expect(err).To(MatchError(ContainSubstring("--allowed-networks")))
}

// All of them together have a bound, too.
func TestThereIsAnAnswerWhenTimeIsOver(t *testing.T) {
	g := NewWithT(t)
	_, tarpit := listener(t)
	tarpit.SSH = true
	var q pivot.Question
	for range 700 {
		q.Looks = append(q.Looks, tarpit)
	}
	answer, err := reach.Ask(t.Context(), q, loopback, reach.Bounds{Each: time.Hour, All: time.Second})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Failed).To(Equal(700))
	g.Expect(answer.Faults).To(ContainElement(HaveField("Why", ContainSubstring("were over before it was asked"))))
}

func TestTheAnswerIsLeftInAFile(t *testing.T) {
	g := NewWithT(t)
	into := filepath.Join(t.TempDir(), "termination-log")
	g.Expect(os.WriteFile(into, nil, 0o600)).To(Succeed())
	var q pivot.Question
	for range 200 {
		_, host := server(t, sshtest.ServerOptions{})
		host.HostKeys = []string{ssh.FormatHostKey(sshtest.NewKey().PublicKey())}
		q.Looks = append(q.Looks, host)
	}
	arguments, err := q.Arguments()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(reach.Run(t.Context(), arguments, loopback, into)).To(Succeed())
	message, err := os.ReadFile(into)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(message)).To(BeNumerically("<=", 4096))
	answer, err := pivot.ParseAnswer(string(message), len(q.Looks))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Failed).To(Equal(200), fmt.Sprint(answer))
	g.Expect(len(answer.Faults)).To(And(BeNumerically(">", 20), BeNumerically("<", 200)))
	g.Expect(reach.Run(t.Context(), []string{"?"}, loopback, into)).NotTo(Succeed())
}
