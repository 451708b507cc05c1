// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// TestAQuarantineOutlivesTheObject has a dirty host in quarantine, cleans what was to be seen of it, and makes its object anew
// as a move does, and then as a backup from before the quarantine does.
func TestAQuarantineOutlivesTheObject(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l := newLab(t, newFleet(t, kube.Options{}, nil), "quarantine")
	l.untilState(infrav1.HostStateAvailable)
	const left, record = "/etc/kubernetes/admin.conf", "/var/lib/quoin/owner.json"
	g.Expect(l.host.Machine.FS().WriteFile(left, machine.File{Mode: 0o600, Content: []byte("of an earlier cluster")})).To(Succeed())

	again := func(change func(*infrav1.QuoinHostSpec)) {
		old := l.object()
		g.Expect(l.plane.Client.Delete(t.Context(), old)).To(Succeed())
		g.Eventually(func() bool {
			return apierrors.IsNotFound(l.plane.Client.Get(t.Context(), l.key, &infrav1.QuoinHost{}))
		}).WithTimeout(patience).Should(BeTrue())
		made := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}, Spec: old.Spec}
		change(&made.Spec)
		l.create(made)
	}
	again(func(*infrav1.QuoinHostSpec) {})
	host := l.until("quarantined for good", func(h *infrav1.QuoinHost) bool {
		return h.Status.State == infrav1.HostStateQuarantined && h.Spec.Quarantine != nil
	})
	g.Expect(host.Spec.Quarantine.Reason).To(Equal(infrav1.HostNotCleanReason))
	g.Eventually(func() string { return l.host.Machine.FS().Text(record) }).WithTimeout(patience).Should(ContainSubstring(`"quarantine":{"reason":"NotClean"`))
	g.Expect(l.host.Machine.FS().Remove(left)).To(Succeed())

	again(func(*infrav1.QuoinHostSpec) {})
	moved := l.untilState(infrav1.HostStateQuarantined, infrav1.HostStateAvailable)
	g.Expect(moved.Status.State).To(Equal(infrav1.HostStateQuarantined), l.describe())
	g.Expect(conditions.GetMessage(moved, infrav1.HostCleanCondition)).To(Equal(host.Spec.Quarantine.Message))
	g.Expect(moved.Spec.Quarantine.Since).To(Equal(host.Spec.Quarantine.Since))

	again(func(spec *infrav1.QuoinHostSpec) { spec.Quarantine = nil })
	restored := l.untilState(infrav1.HostStateQuarantined, infrav1.HostStateAvailable)
	g.Expect(restored.Status.State).To(Equal(infrav1.HostStateQuarantined), l.describe())
	g.Expect(conditions.GetMessage(restored, infrav1.HostCleanCondition)).To(ContainSubstring("These objects are older than that"))

	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+infrav1.RetryAnnotation+`":""}}}`))
	g.Expect(l.plane.Client.Patch(t.Context(), restored, patch)).To(Succeed())
	l.until("free", func(h *infrav1.QuoinHost) bool {
		return h.Status.State == infrav1.HostStateAvailable && h.Spec.Quarantine == nil
	})
	g.Expect(l.host.Machine.FS().Text(record)).NotTo(ContainSubstring(`"quarantine":{`))
	g.Expect(l.host.Machine.Unknown()).To(BeEmpty(), "every command of every script is simulated")
}
