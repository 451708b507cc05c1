// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// The Paused condition says who paused, the Cluster first.
func TestWhatPausesAnUpgrade(t *testing.T) {
	annotated := func(f *fleet) { f.upgrade.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }
	for says, change := range map[string]func(*fleet){
		"":                                   func(*fleet) {},
		"Cluster spec.paused is set to true": func(f *fleet) { f.paused = true; f.upgrade.Spec.Paused = ptr.To(true) },
		"spec.paused is set to true":         func(f *fleet) { f.upgrade.Spec.Paused = ptr.To(true); annotated(f) },
		"ClusterUpgrade has the cluster.x-k8s.io/paused annotation": func(f *fleet) { f.cluster = "gone"; annotated(f) },
	} {
		g, f := NewWithT(t), large(1)
		change(f)
		condition := meta.FindStatusCondition(f.step(false).Status.Conditions, quoinv1.ClusterUpgradePausedCondition)
		g.Expect(condition.Message).To(Equal(says))
		g.Expect(condition.Status == metav1.ConditionTrue).To(Equal(says != ""), says)
	}
}

func TestWhatRanStaysKnownWhenTheClusterIsGone(t *testing.T) {
	g, f := NewWithT(t), large(1)
	before := f.step(false).Status
	f.cluster, f.plane.nodes = "gone", nil
	after := f.step(false).Status
	g.Expect(after.ControlPlaneVersions).To(Equal(counted([]string{"v1.35.4"})))
	g.Expect(after.Versions).To(Equal(before.Versions))
}
