// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// everybody sees on a host what programs are started with, what its journals say, and what units print.
type everybody struct {
	mu   sync.Mutex
	seen strings.Builder
}

// Write implements io.Writer.
func (e *everybody) Write(text []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen.Write(text)
}

func (e *everybody) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen.String()
}

// withSecrets are bootstrap data with tokens in files, and for a user; a command prints one, which is for root alone.
func withSecrets(tokens secrettest.Tokens) string {
	for _, field := range []string{"file", "encoded file", "password"} {
		tokens[field] = secrettest.Draw()
	}
	return strings.NewReplacer("write_files:\n", fmt.Sprintf(`users:
- {name: ops, passwd: %s}
write_files:
-   path: /etc/site/account
    permissions: '0600'
    content: %s
-   path: /etc/site/encoded
    encoding: base64
    permissions: '0600'
    content: %s
`, tokens["password"], tokens["file"], base64.StdEncoding.EncodeToString([]byte(tokens["encoded file"]))),
		"echo before kubeadm", "cat /etc/site/account").Replace(worker)
}

// TestALife takes one host through all of it, with nothing in the way, and nothing that is secret comes to light there.
func TestALife(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	seen, tokens := &everybody{}, secrettest.Tokens{}
	l := newLab(t, newFleet(t, kube.Options{}, func(o *sim.Options) {
		o.Command = func(_ *sim.Host, command string) { _, _ = fmt.Fprintln(seen, command) }
		o.Machine = func(m *machine.Options) {
			m.Printed = seen
			m.OnProcess = append(m.OnProcess, func(e machine.Event) { _, _ = fmt.Fprintln(seen, e.Args) })
		}
	}), "life")
	host := l.untilState(infrav1.HostStateAvailable)
	g.Expect(host.Spec.HostKeys).To(Equal([]string{l.host.HostKey()}))
	before := l.host.Tree("/var/lib/quoin", "/var/lib/containerd", "/var/log")

	l.bootstrap = withSecrets(tokens)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	host = l.untilState(infrav1.HostStateProvisioned)
	l.settled()
	node := &corev1.Node{}
	g.Expect(l.plane.Client.Get(t.Context(), client.ObjectKey{Name: "life"}, node)).To(Succeed())
	g.Expect(node.Spec.ProviderID).To(Equal(host.ProviderID()))
	g.Expect(node.Labels).To(HaveKeyWithValue("quoin.test/pool", "sim"))
	g.Expect(node.Status.Conditions).To(HaveLen(4))
	g.Expect(l.host.Machine.FS().Exists("/etc/kubernetes/kubelet.conf")).To(BeTrue())
	g.Expect(l.host.Machine.FS().Exists("/etc/kubernetes/bootstrap-kubelet.conf")).To(BeFalse())

	journals := 0
	for _, path := range l.host.Machine.FS().List("/var/lib/quoin/runs") {
		if name := filepath.Base(path); name == "journal" || name == "result" {
			journals++
			_, _ = fmt.Fprintln(seen, l.host.Machine.FS().Text(path))
		}
	}
	g.Expect(journals).To(BeNumerically(">", 1))
	l.deleteMachine()
	l.untilState(infrav1.HostStateAvailable)
	g.Expect(l.host.Tree("/var/lib/quoin", "/var/lib/containerd", "/var/log")).To(Equal(before), "the host is as it was before")
	g.Expect(l.host.Machine.Unknown()).To(BeEmpty(), "every command of every script is simulated")
	g.Expect(seen.text()).To(And(ContainSubstring("kubeadm join"), ContainSubstring("chpasswd")), "else nobody looked")
	key := strings.Split(strings.TrimSpace(string(l.fleet.PrivateKey())), "\n")
	tokens["ssh"] = strings.Join(key[1:len(key)-1], "\n")
	g.Expect(tokens.Leaks(seen.text())).To(BeEmpty())
}
