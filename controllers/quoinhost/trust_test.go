// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

func TestAStrictHostWithoutAKeyIsNotConnectedTo(t *testing.T) {
	host := newHost()
	host.Spec.HostKeyPolicy = infrav1.HostKeyPolicyStrict
	w := newWorld(t, host)
	found := w.untilReason(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyMissingReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("hosts/h1"), ContainSubstring("write it to spec.hostKeys")))
	w.linger(10)
	w.g.Expect(w.room.count("identify") + w.room.count("probe")).To(BeZero())
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostKeyMissingReason))

	w.update(func(h *infrav1.QuoinHost) { h.Spec.HostKeys = []string{keyA} })
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("identify")).To(BeZero())
}

func TestAHostThatAnAuthorityVouchesForRecordsNoKey(t *testing.T) {
	for _, policy := range []infrav1.HostKeyPolicy{"", infrav1.HostKeyPolicyTrustOnFirstUse, infrav1.HostKeyPolicyStrict} {
		host := newHost()
		host.Spec.HostKeyPolicy, host.Spec.HostCertificateAuthorities = policy, []string{keyA}
		w := newWorld(t, host)
		found := w.untilState(infrav1.HostStateAvailable)
		w.g.Expect(found.Spec.HostKeys).To(BeEmpty())
		w.g.Expect(w.room.count("identify")).To(BeZero())
		w.g.Expect(condition1(found, infrav1.HostKeyVerifiedCondition).Status).To(Equal(metav1.ConditionTrue))
	}
}

func TestARotationOfCredentialsCanBeFollowed(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.used = [2]string{"SHA256:old", "41"}
	w.untilState(infrav1.HostStateAvailable)
	first := *w.host().Status.Credentials
	w.g.Expect(first.Fingerprint).To(Equal("SHA256:old"))
	w.g.Expect(first.SecretVersion).To(Equal("41"))

	w.room.set(func() { w.room.used = [2]string{"SHA256:new", "42"} })
	w.now = w.now.Add(time.Hour)
	host := w.until("rotated", func(h *infrav1.QuoinHost) bool { return h.Status.Credentials.Fingerprint == "SHA256:new" })
	w.g.Expect(host.Status.Credentials.SecretVersion).To(Equal("42"))
	w.g.Expect(host.Status.Credentials.Since.Time).To(BeTemporally(">", first.Since.Time))
}

func TestAnAddressThatIsRefusedSaysNothingAboutTheHost(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	refused := &egress.RefusedError{Address: netip.MustParseAddr("192.0.2.11"), Why: "it is link-local"}
	for _, err := range []error{
		&ssh.RefusedError{Endpoint: "192.0.2.11:22", Err: refused},
		&ssh.BastionError{Bastion: "192.0.2.1:22", Err: &ssh.RefusedError{Endpoint: "192.0.2.1:22", Bastion: true,
			Err: refused}},
	} {
		w.room.set(func() { w.room.err = err })
		found := w.untilReason(infrav1.HostReachableCondition, infrav1.HostAddressRefusedReason)
		w.g.Expect(found.Message).To(ContainSubstring("it is link-local"))
		w.g.Expect(w.host().Status.UnreachableSince).To(BeNil())
	}
}

func TestABastionThatFailsSaysNothingAboutTheHost(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.err = &ssh.BastionError{Bastion: "192.0.2.1:22", Err: &ssh.UnreachableError{Endpoint: "192.0.2.1:22",
			Err: errors.New("no route to host")}}
	})
	found := w.untilReason(infrav1.HostReachableCondition, infrav1.HostUnreachableReason)
	w.g.Expect(found.Message).To(ContainSubstring("bastion 192.0.2.1:22"))
	w.g.Expect(w.host().Status.UnreachableSince).To(BeNil())

	w.room.set(func() {
		w.room.err = &ssh.BastionError{Bastion: "192.0.2.1:22", Err: &ssh.HostKeyChangedError{Endpoint: "192.0.2.1:22",
			Bastion: true, Want: []string{"SHA256:a"}, Got: "SHA256:b"}}
	})
	found = w.untilReason(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("SHA256:a"), ContainSubstring("SHA256:b"),
		ContainSubstring("bastion.hostKeys")))
	w.g.Expect(found.Message).NotTo(ContainSubstring(infrav1.AcceptHostKeyAnnotation),
		"that annotation is about the host's own key")
}
