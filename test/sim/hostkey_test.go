// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// TestAChangedHostKeyStopsWork changes the key of a node's host and then asks for its release: nothing happens there
// until a person accepts the new key, and the condition says which one was expected and which one was seen.
func TestAChangedHostKeyStopsWork(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l := newLab(t, newFleet(t, kube.Options{}, nil), "hostkey")
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	l.untilState(infrav1.HostStateProvisioned)
	before := l.settled()
	old := ssh.Fingerprint(l.host.Server.HostKey())
	l.host.Server.ChangeHostKey(sshtest.NewKey())
	l.host.Server.Cut()
	seen := ssh.Fingerprint(l.host.Server.HostKey())

	released := make(chan error, 1)
	go func() {
		released <- l.plane.DeleteMachine(t.Context(), types.NamespacedName{Namespace: l.key.Namespace, Name: "m"})
	}()
	l.until("refused for its key", func(h *infrav1.QuoinHost) bool {
		return conditions.GetReason(h, infrav1.HostKeyVerifiedCondition) == infrav1.HostKeyChangedReason
	})
	// As many connections as there would be in a release.
	accepted := l.host.Server.Accepted()
	g.Eventually(l.host.Server.Accepted).WithTimeout(patience).Should(BeNumerically(">", accepted+2))
	condition := conditions.Get(l.object(), infrav1.HostReadyCondition)
	g.Expect(condition.Reason).To(Equal(infrav1.HostKeyChangedReason))
	g.Expect(condition.Message).To(And(ContainSubstring(old), ContainSubstring(seen)), "expected and seen")
	g.Expect(differing(before, l.host.Tree())).To(BeEmpty(), "nothing was done to the host")
	g.Expect(released).NotTo(Receive(), "the Machine waits")

	host := l.object()
	patch := client.MergeFrom(host.DeepCopy())
	host.Annotations = map[string]string{infrav1.AcceptHostKeyAnnotation: seen}
	g.Expect(l.plane.Client.Patch(t.Context(), host, patch)).To(Succeed())
	g.Eventually(released).WithTimeout(patience).WithPolling(50*time.Millisecond).Should(Receive(BeNil()), l.describe)
	l.untilState(infrav1.HostStateAvailable)
}
