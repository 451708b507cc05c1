// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// How long steps took is known of the Cluster's own upgrades, and by their type of those of its namespace. What another
// namespace has, and an upgrade that goes on, says nothing.
func TestWhatStepsTook(t *testing.T) {
	g, began := NewWithT(t), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(namespace, cluster string, completed bool, steps ...quoinv1.UpgradeStep) quoinv1.ClusterUpgrade {
		past := quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "past"}}
		past.Spec.ClusterName, past.Spec.Version, past.Status.Steps = cluster, "v1.36.3", steps
		if completed {
			past.Annotations = map[string]string{
				quoinv1.ClusterUpgradeCompletedAnnotation: "2026-01-01T00:00:00Z past/v1.36.3"}
		}
		return past
	}
	workers := func(hour int, took time.Duration, machines int32) quoinv1.UpgradeStep {
		at := began.Add(time.Duration(hour) * time.Hour)
		return quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, Object: "MachineDeployment blue",
			Machines:  &quoinv1.UpgradeStepMachines{Count: ptr.To(machines)},
			StartTime: metav1.NewTime(at), CompletionTime: metav1.NewTime(at.Add(took))}
	}
	health := quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepHealth, StartTime: metav1.NewTime(began),
		CompletionTime: metav1.NewTime(began.Add(5 * time.Second))}
	// A control plane of unknown size, as a hosted one, says nothing of one with Machines; nor does a clock that was set back.
	plane := func(hour int, took time.Duration, machines *int32) quoinv1.UpgradeStep {
		step := workers(hour, took, 1)
		step.Type, step.Object, step.Machines = quoinv1.UpgradeStepControlPlane, "QuoinControlPlane c2", nil
		if machines != nil {
			step.Machines = &quoinv1.UpgradeStepMachines{Count: machines}
		}
		return step
	}
	asked := of("prod", "c1", false)
	took, perMachine := tookOf([]quoinv1.ClusterUpgrade{
		of("prod", "c1", true, workers(2, 3*time.Minute, 2)),
		of("prod", "c1", true, workers(1, 9*time.Minute, 2)),
		of("prod", "c2", true, workers(3, 8*time.Minute, 4), health),
		of("prod", "c2", true, workers(4, 7*time.Minute, 0)),
		of("prod", "c2", true, plane(1, 9*time.Minute, ptr.To[int32](3))),
		of("prod", "c2", true, plane(2, 4*time.Minute, nil)),
		of("prod", "c1", true, workers(7, -time.Minute, 2)),
		of("prod", "c2", false, workers(5, 6*time.Minute, 1)),
		of("other", "c1", true, workers(6, 5*time.Minute, 1)),
	}, &asked)
	g.Expect(took).To(Equal(map[string]time.Duration{"Workers MachineDeployment blue": 3 * time.Minute}))
	g.Expect(perMachine).To(Equal(map[upgrade.StepKind]time.Duration{
		{Type: quoinv1.UpgradeStepWorkers, Machines: true}:      2 * time.Minute,
		{Type: quoinv1.UpgradeStepHealth}:                       5 * time.Second,
		{Type: quoinv1.UpgradeStepControlPlane, Machines: true}: 3 * time.Minute,
		{Type: quoinv1.UpgradeStepControlPlane}:                 4 * time.Minute}))
}
