// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// lookAtControlPlane looks whether the control plane serves, and is in the middle of nothing.
func lookAtControlPlane(_ context.Context, s Subject) (string, []quoinv1.Finding, error) {
	if s.ControlPlane == nil {
		return "looked after by another control-plane provider", nil, nil
	}
	const mend, wait = "mend what the condition names", "wait for its end"
	var findings []quoinv1.Finding
	for _, want := range []struct {
		condition, reason, fix string
		status                 metav1.ConditionStatus
	}{
		{controlplanev1.ControlPlaneAvailableCondition, "NotAvailable", mend, metav1.ConditionTrue},
		{controlplanev1.ControlPlaneComponentsHealthyCondition, "ComponentsUnhealthy", mend, metav1.ConditionTrue},
		{controlplanev1.ControlPlaneRollingOutCondition, "RollingOut", wait, metav1.ConditionFalse},
		{controlplanev1.ControlPlaneRemediatingCondition, "Remediating", wait, metav1.ConditionFalse},
		{controlplanev1.ControlPlaneAddonsUpToDateCondition, "AddonsOutOfDate", mend, metav1.ConditionTrue},
	} {
		found := conditions.Get(s.ControlPlane, want.condition)
		if found != nil && found.Status == want.status {
			continue
		}
		message := want.condition + " is not reported"
		if found != nil {
			message = want.condition + " is " + string(found.Status) + ": " + found.Message
		}
		findings = append(findings, blocks("QuoinControlPlane "+s.ControlPlane.Name, want.reason, message, want.fix))
	}
	return "conditions of QuoinControlPlane " + s.ControlPlane.Name, findings, nil
}
