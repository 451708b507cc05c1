// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Workers leave the last host of a control plane alone, and get it when it is reserved no more.
func TestAReservedHostIsForControlPlanes(t *testing.T) {
	worker, workers := owned("worker", uid1)
	member, members := owned("member", "22222222-aaaa-4bbb-8ccc-222222222222")
	for _, labels := range []*metav1.ObjectMeta{&member.ObjectMeta, &members.ObjectMeta} {
		metav1.SetMetaDataLabel(labels, clusterv1.MachineControlPlaneLabel, "")
	}
	spare := host("h1", "")
	metav1.SetMetaDataLabel(&spare.ObjectMeta, infrav1.ReservedForLabel, infrav1.ReservedForControlPlane)
	w := newWorld(t, cluster(), worker, workers, member, members, spare)
	w.reconcile("worker")
	w.expect("worker", infrav1.MachineReadyCondition, metav1.ConditionFalse, infrav1.MachineNoMatchingHostReason,
		"no free host matches: 1 reserved for control planes")
	w.reconcile("member")
	w.g.Expect(w.machine("member").Status.HostRef.Name).To(Equal("h1"))

	another := host("h2", "")
	metav1.SetMetaDataLabel(&another.ObjectMeta, infrav1.ReservedForLabel, infrav1.ReservedForControlPlane)
	w.g.Expect(w.client.Create(t.Context(), another)).To(Succeed())
	w.reconcile("worker")
	w.g.Expect(w.machine("worker").Status.HostRef).To(BeNil())
	w.updateHost("h2", func(h *infrav1.QuoinHost) { delete(h.Labels, infrav1.ReservedForLabel) })
	w.reconcile("worker")
	w.g.Expect(w.machine("worker").Status.HostRef.Name).To(Equal("h2"))
}
