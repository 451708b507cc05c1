// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What to do about a condition.
const (
	fixNamed   = "fix what the condition names"
	waitForEnd = "wait for its end"
)

// wanted is a condition's status, without which no upgrade begins.
type wanted struct {
	condition, reason, fix string
	status                 metav1.ConditionStatus
}

// lookAtControlPlane looks whether the control plane serves, and is in the middle of nothing. Of one that another
// provider looks after the Cluster tells.
func lookAtControlPlane(_ context.Context, s Subject) (string, []quoinv1.Finding, error) {
	if s.ControlPlane != nil {
		return judgeControlPlane(s.ControlPlane)
	}
	if key, ours := s.ControlPlaneKey(); ours {
		return "", []quoinv1.Finding{blocks("QuoinControlPlane "+key.Name, "NotFound",
			"is not there, though the Cluster refers to it", "restore it, or correct spec.controlPlaneRef of the Cluster")}, nil
	}
	return "conditions of Cluster " + s.Cluster.Name + ", since another provider looks after its control plane",
		judgeConditions(s.Cluster, "Cluster "+s.Cluster.Name, []wanted{
			{clusterv1.ClusterControlPlaneAvailableCondition, "NotAvailable", fixNamed, metav1.ConditionTrue},
			{clusterv1.ClusterRollingOutCondition, "RollingOut", waitForEnd, metav1.ConditionFalse},
		}), nil
}

func judgeControlPlane(of *controlplanev1.QuoinControlPlane) (string, []quoinv1.Finding, error) {
	object := "QuoinControlPlane " + of.Name
	findings := judgeConditions(of, object, []wanted{
		{controlplanev1.ControlPlaneAvailableCondition, "NotAvailable", fixNamed, metav1.ConditionTrue},
		{controlplanev1.ControlPlaneComponentsHealthyCondition, "ComponentsUnhealthy", fixNamed, metav1.ConditionTrue},
		{controlplanev1.ControlPlaneScalingUpCondition, "ScalingUp", waitForEnd, metav1.ConditionFalse},
		{controlplanev1.ControlPlaneScalingDownCondition, "ScalingDown", waitForEnd, metav1.ConditionFalse},
		{controlplanev1.ControlPlaneRemediatingCondition, "Remediating", waitForEnd, metav1.ConditionFalse},
	})
	findings = append(findings, judgeSkewed(of, object, "RolloutHeld",
		wanted{controlplanev1.ControlPlaneRollingOutCondition, "RollingOut", waitForEnd, metav1.ConditionFalse})...)
	findings = append(findings, judgeSkewed(of, object, "AddonsHeld",
		wanted{controlplanev1.ControlPlaneAddonsUpToDateCondition, "AddonsOutOfDate", fixNamed, metav1.ConditionTrue})...)
	switch {
	case annotations.HasPaused(of):
		findings = append(findings, blocks(object, "Paused", "is paused, so nothing would upgrade it",
			"remove annotation "+clusterv1.PausedAnnotation))
	case of.Status.ObservedGeneration < of.Generation:
		findings = append(findings, blocks(object, "Unobserved", "was edited, and its conditions are those of before",
			"make another PreflightCheck in a minute"))
	}
	return "conditions of " + object, findings, nil
}

// judgeSkewed blocks for a condition as judgeConditions does, but for what waits for the kubelets of workers: that is
// the upgrade's to mend, when it raises these; the path of versions says whether it can.
func judgeSkewed(of *controlplanev1.QuoinControlPlane, object, held string, want wanted) []quoinv1.Finding {
	found := conditions.Get(of, want.condition)
	if found == nil || found.Reason != controlplanev1.VersionSkewReason {
		return judgeConditions(of, object, []wanted{want})
	}
	return []quoinv1.Finding{warns(object, held, want.condition+" is "+string(found.Status)+": "+found.Message, fixNamed)}
}

// judgeConditions finds those that are others than wanted. One that is not reported is not in order.
func judgeConditions(of conditions.Getter, object string, all []wanted) []quoinv1.Finding {
	var findings []quoinv1.Finding
	for _, want := range all {
		found := conditions.Get(of, want.condition)
		if found != nil && found.Status == want.status {
			continue
		}
		message := want.condition + " is not reported"
		if found != nil {
			message = want.condition + " is " + string(found.Status) + ": " + found.Message
		}
		findings = append(findings, blocks(object, want.reason, message, want.fix))
	}
	return findings
}
