// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
)

// TestALife takes one host through all of it, with nothing in the way.
func TestALife(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l := newLab(t, newFleet(t, kube.Options{}, nil), "life")
	host := l.untilState(infrav1.HostStateAvailable)
	g.Expect(host.Spec.HostKeys).To(Equal([]string{l.host.HostKey()}))
	before := l.host.Tree("/var/lib/quoin", "/var/lib/containerd", "/var/log")

	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	host = l.untilState(infrav1.HostStateProvisioned)
	node := &corev1.Node{}
	g.Expect(l.plane.Client.Get(t.Context(), client.ObjectKey{Name: "life"}, node)).To(Succeed())
	g.Expect(node.Spec.ProviderID).To(Equal(host.ProviderID()))
	g.Expect(node.Labels).To(HaveKeyWithValue("quoin.test/pool", "sim"))
	g.Expect(node.Status.Conditions).To(HaveLen(4))
	g.Expect(l.host.Machine.FS().Exists("/etc/kubernetes/kubelet.conf")).To(BeTrue())
	g.Expect(l.host.Machine.FS().Exists("/etc/kubernetes/bootstrap-kubelet.conf")).To(BeFalse())

	l.deleteMachine()
	l.untilState(infrav1.HostStateAvailable)
	g.Expect(l.host.Tree("/var/lib/quoin", "/var/lib/containerd", "/var/log")).To(Equal(before), "the host is as it was before")
	g.Expect(l.host.Machine.Unknown()).To(BeEmpty(), "every command of every script is simulated")
}
