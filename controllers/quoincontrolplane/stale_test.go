// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// One host that says that it serves another management cluster keeps this one from everything, until it says so no
// longer.
func TestOneStaleClaimStopsTheControlPlane(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	w.spareHost()
	generation := func(status metav1.ConditionStatus, reason string) func(*infrav1.QuoinHost) {
		return func(host *infrav1.QuoinHost) {
			conditions.Set(host, metav1.Condition{Type: infrav1.HostAddonImagesCondition, Status: status, Reason: reason,
				Message: "the host knows generation 5 of its claim, ours is 3"})
		}
	}
	w.host(name, generation(metav1.ConditionFalse, infrav1.HostStaleClaimReason))
	w.etcd.join("n-lost", "10.0.0.99", true)
	w.edit(func(plane *controlplanev1.QuoinControlPlane) { plane.Spec.Version = newVer })
	w.reconcile()
	w.fetchImages()
	w.reconcile()
	g.Expect(w.machines()).To(HaveLen(1))
	g.Expect(w.etcd.removed).To(BeEmpty())
	g.Expect(w.configVersion()).To(Equal(oldVer))
	progressing := w.condition(controlplanev1.ControlPlaneProgressingCondition)
	g.Expect(progressing.Reason).To(Equal("StaleClaim"))
	g.Expect(progressing.Message).To(And(ContainSubstring("another management cluster"), ContainSubstring("generation 5"),
		ContainSubstring("ours is 3")))
	g.Expect(w.plane().Status.Operation.WaitingOn).To(ContainSubstring("StaleClaim"))

	w.host(name, generation(metav1.ConditionTrue, "Present"))
	w.reconcile()
	g.Expect(w.etcd.removed).To(HaveLen(1))
}
