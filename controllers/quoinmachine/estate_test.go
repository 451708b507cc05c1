// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// ofDistribution is the Cluster c1, which is about to be made beside others.
func ofDistribution(t *testing.T, version string, estate estatetest.Estate) *world {
	t.Helper()
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = version
	if estate.Clusters["c1"] == "" {
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	}
	delete(estate.Clusters, "c1")
	made := cluster()
	made.Annotations = map[string]string{skew.PolicyAnnotation: "Distribution"}
	return newWorld(t, append(estate.Objects("team"), made, machine, quoinMachine, host("h1", ""))...)
}

// Proves: S0-4, S0-5, S0-6, S0-8, S0-10, S0-11, S0-12, S0-16, S0-21, C1
//
// A cluster that the managing one may not manage is not made: its first Machine claims no host.
func TestAClusterOfADistributionIsMade(t *testing.T) {
	twoBehind := []string{"ManagedClustersTwoMinorsBehind"}
	type clusters = map[string]string
	for name, c := range map[string]struct {
		version  string
		clusters clusters
		managing string
		gates    []string
		tool     string
		refusal  string
	}{
		"of the tool's version":  {version: "v1.30.0"},
		"of another version":     {version: "v1.30.0", tool: "v1.31.0", refusal: "(S0-16)"},
		"in a bootstrap cluster": {version: "v1.31.0", clusters: clusters{"c2": "v1.26.3"}},
		"of the managing one's":  {version: "v1.30.0", clusters: clusters{"mc": "v1.30.0"}, managing: "mc"},
		"newer than the managing one": {version: "v1.31.0", clusters: clusters{"mc": "v1.30.100-gke.96"}, managing: "mc",
			refusal: "(S0-4)"},
		"two behind": {version: "v1.28.6", clusters: clusters{"mc": "v1.30.0", "c2": "v1.29.4"},
			managing: "mc"},
		"three behind": {version: "v1.27.8", clusters: clusters{"mc": "v1.30.0"}, managing: "mc",
			refusal: "(S0-5)"},
		"two behind on the list": {version: "v1.31.0", clusters: clusters{"mc": "v1.35.0"}, managing: "mc"},
		"three behind on the list": {version: "v1.30.0", clusters: clusters{"mc": "v1.35.0"}, managing: "mc",
			refusal: "bring it to v1.31 or later first (S0-5)"},
		"two behind 1.29": {version: "v1.27.8", clusters: clusters{"mc": "v1.29.4"}, managing: "mc",
			refusal: "(S0-8)"},
		"two behind 1.29, with gate": {version: "v1.27.8", clusters: clusters{"mc": "v1.29.4", "c2": "v1.28.6"},
			managing: "mc", gates: twoBehind},
		"unlike others under 1.29": {version: "v1.28.6", clusters: clusters{"mc": "v1.29.4", "c2": "v1.29.0"},
			managing: "mc", refusal: "(S0-8)"},
		"two behind 1.28, gate or not": {version: "v1.26.3", clusters: clusters{"mc": "v1.28.6"}, managing: "mc",
			gates: twoBehind, refusal: "(S0-10)"},
		"one behind 1.28": {version: "v1.27.8", clusters: clusters{"mc": "v1.28.6", "c2": "v1.27.2"},
			managing: "mc"},
		"unlike others under 1.28": {version: "v1.27.8", clusters: clusters{"mc": "v1.28.6", "c2": "v1.28.1"},
			managing: "mc", refusal: "Cluster team/c2 is at v1.28.1 and this one at v1.27.8"},
	} {
		t.Run(name, func(t *testing.T) {
			estate := estatetest.Estate{Tool: c.version, Gates: c.gates, Clusters: c.clusters, Managing: c.managing}
			if c.tool != "" {
				estate.Tool = c.tool
			}
			w := ofDistribution(t, c.version, estate)
			result := w.reconcile("m1")
			if c.refusal == "" {
				w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
				return
			}
			w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
			w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse,
				infrav1.MachineWaitingForControlPlaneReason, c.refusal)
			w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck), "no event tells of other clusters")
		})
	}
}

// A Machine that takes another's place in a cluster that runs is not asked: the tool may have gone on since.
func TestAClusterOfADistributionIsRepaired(t *testing.T) {
	w := ofDistribution(t, "v1.29.4", estatetest.Estate{Tool: "v1.31.0"})
	made := &clusterv1.Cluster{}
	w.g.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c1"}, made)).To(Succeed())
	made.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	w.g.Expect(w.client.Status().Update(t.Context(), made)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

// Proves: S0-13, S0-23, S0-29, S0-30
func TestAWorkerOfADistributionWaits(t *testing.T) {
	for name, c := range map[string]struct{ version, controlPlane, refusal string }{
		"older than its cluster's release":           {"v1.28.1", "v1.29.0", ""},
		"younger than its cluster's release":         {"v1.28.6", "v1.29.0", "(S0-25)"},
		"newer than its cluster":                     {"v1.29.4", "v1.29.0", "(S0-23)"},
		"not one that its cluster's release lists":   {"v1.28.1", "v1.29.4", "(S0-30)"},
		"trimmed from the list, so older than a day": {"v1.28.0", "v1.29.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			version, refusal := c.version, c.refusal
			w := ofDistribution(t, version, estatetest.Estate{Tool: "v1.31.0", Clusters: map[string]string{"c1": "any"}})
			w.g.Expect(w.client.Create(t.Context(), apiServer("cp", c.controlPlane))).To(Succeed())
			result := w.reconcile("m1")
			if refusal == "" {
				w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
				return
			}
			w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse,
				infrav1.MachineWaitingForControlPlaneReason, refusal)
			w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck))
		})
	}
}

// A catalog that is gone takes no Machine from a pool that has the version of its cluster.
func TestAWorkerOfADistributionIsReplacedWithoutACatalog(t *testing.T) {
	for version, claims := range map[string]bool{"v1.29.0": true, "v1.28.1": false} {
		w := ofDistribution(t, version, estatetest.Estate{Clusters: map[string]string{"c1": "any"}})
		w.g.Expect(w.client.Create(t.Context(), apiServer("cp", "v1.29.0"))).To(Succeed())
		w.reconcile("m1")
		w.g.Expect(w.host("h1").Spec.ConsumerRef != nil).To(Equal(claims), version)
	}
}
