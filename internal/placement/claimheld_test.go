// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestAMachineIsHeldUntilItHasAHost(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{}
	g.Expect(ClaimHeld(machine)).To(BeFalse())
	machine.Annotations = map[string]string{infrav1.HoldClaimAnnotation: ""}
	g.Expect(ClaimHeld(machine)).To(BeTrue())
	placed, joined := machine.DeepCopy(), machine.DeepCopy()
	placed.Spec.ProviderID = "quoin://team/h1/1"
	joined.Status.NodeRef.Name = "h1"
	g.Expect(ClaimHeld(placed)).To(BeFalse())
	g.Expect(ClaimHeld(joined)).To(BeFalse())
}
