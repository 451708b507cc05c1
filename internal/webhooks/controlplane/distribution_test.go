// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// raise edits the version of Cluster c1's control plane in the estate, which may have a worker of a version.
func raise(t *testing.T, estate estatetest.Estate, to, worker string, before ...change) (warnings []string, err error) {
	t.Helper()
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme)
	objects := estate.Objects("prod")
	if worker != "" {
		objects = append(objects, estatetest.Machine("prod", "c1", "w1", worker))
	}
	webhook := &ControlPlaneWebhook{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
	ofCluster := func(c *controlplanev1.QuoinControlPlane) {
		c.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
	}
	at := estate.Clusters["c1"]
	if before == nil {
		before = []change{version(at), running(at)}
	}
	return webhook.ValidateUpdate(t.Context(), controlPlane(append(before, ofCluster)...),
		controlPlane(ofCluster, version(to)))
}

// A version is taken back to what runs, and a cluster of which nothing runs yet is given the one that it waits for.
func TestAVersionOfADistributionIsTakenBack(t *testing.T) {
	const tool = "v1.30.100-gke.96"
	_, err := raise(t, estatetest.Estate{Tool: tool, Clusters: clusters{"c1": "v1.30.0"}}, "v1.30.0", "", version(tool),
		running("v1.30.0"))
	expectRefusal(t, err, "")
	for _, mistaken := range []string{"v1.31.0", "v1.28.1"} {
		_, err = raise(t, estatetest.Estate{Tool: tool, Clusters: clusters{"c1": mistaken}}, tool, "", version(mistaken))
		expectRefusal(t, err, "")
	}
}

// The way out of a version that is held must be open while what it is judged by cannot be read.
func TestAVersionIsTakenBackWhateverIsWrongWithCatalogs(t *testing.T) {
	_, err := raise(t, estatetest.Estate{Clusters: clusters{"c1": "v1.30.0"}}, "v1.31.0", "")
	expectRefusal(t, err, "there is none: make ConfigMap prod/quoin-releases")
	_, err = raise(t, estatetest.Estate{Clusters: clusters{"c1": "v1.30.0"}}, "v1.30.0", "", version("v1.31.0"),
		running("v1.30.0"))
	expectRefusal(t, err, "")
	// Of two that run the newer one: API servers of it are there already.
	_, err = raise(t, estatetest.Estate{Tool: "v1.31.0", Clusters: clusters{"c1": "v1.29.4"}}, "v1.30.0", "v1.26.3",
		version("v1.30.100-gke.96"), running("v1.29.4", "v1.30.0"))
	expectRefusal(t, err, "")
}

// An edit that takes the label of its Cluster away is held against that Cluster's policies all the same.
func TestAnEditThatDropsTheLabelIsOneOfItsCluster(t *testing.T) {
	estate := estatetest.Estate{Clusters: clusters{"c1": "v1.30.0"}}
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(estate.Objects("prod")...).Build()
	_, err := (&ControlPlaneWebhook{Reader: reader}).ValidateUpdate(t.Context(), controlPlane(version("v1.30.0"), running("v1.30.0"),
		func(c *controlplanev1.QuoinControlPlane) {
			c.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
		}),
		controlPlane(version("v1.31.0")))
	expectRefusal(t, err, "there is none: make ConfigMap prod/quoin-releases")
}

type clusters = map[string]string

// Proves: S0-4, S0-6, S0-7, S0-8, S0-9, S0-10, S0-11, S0-12, S0-16, S0-17, S0-18, S0-20, S0-21, S0-24, S0-25, S0-26
// Proves: S0-27, S0-28, S0-30, S0-31, C1, C4, C5
//
// A control plane of a distribution is raised to what its tool, the clusters around it and its workers allow.
func TestAControlPlaneOfADistributionIsRaised(t *testing.T) {
	twoBehind, poolsTwoBehind := []string{"ManagedClustersTwoMinorsBehind"}, []string{"PoolsTwoMinorsBehind"}
	for name, c := range map[string]struct {
		clusters clusters
		managing string
		gates    []string
		tool, to string
		worker   string
		refusal  string
	}{
		"to the tool's version": {clusters: clusters{"c1": "v1.30.0"}, tool: "1.30.100-gke.96",
			to: "v1.30.100-gke.96"},
		"to another build than the tool's": {clusters: clusters{"c1": "v1.30.0"}, tool: "1.30.100-gke.96",
			to: "v1.30.100-gke.95", refusal: "(S0-16)"},
		"to a minor that is not listed": {clusters: clusters{"c1": "v1.31.0"}, to: "v1.32.0", refusal: "(S0-12)"},
		"with no catalog": {clusters: clusters{"c1": "v1.30.0"}, tool: "-", to: "v1.31.0",
			refusal: "make ConfigMap prod/quoin-releases"},
		"with a catalog that is none": {clusters: clusters{"c1": "v1.30.0"}, tool: "soon", to: "v1.31.0",
			refusal: "is no catalog of releases"},
		"up to the managing cluster": {clusters: clusters{"c1": "v1.29.0", "mc": "v1.30.0"}, managing: "mc",
			to: "v1.30.0"},
		"over the managing cluster": {clusters: clusters{"c1": "v1.30.0", "mc": "v1.30.0"}, managing: "mc",
			to: "v1.30.100-gke.96", refusal: "(S0-4)"},
		"over a bootstrap cluster": {clusters: clusters{"c1": "v1.30.0", "c2": "v1.27.2"}, to: "v1.31.0"},
		"beside others, of another minor": {clusters: clusters{"c1": "v1.29.0", "c2": "v1.28.6", "mc": "v1.30.0"},
			managing: "mc", to: "v1.30.0"},
		"from far behind": {clusters: clusters{"c1": "v1.26.3", "mc": "v1.30.0"}, managing: "mc",
			to: "v1.27.2"},
		"first of all, under 1.28": {clusters: clusters{"c1": "v1.27.2", "c2": "v1.27.2", "mc": "v1.28.6"},
			managing: "mc", to: "v1.28.1"},
		"to 1.30 with one two behind": {clusters: clusters{"c1": "v1.29.0", "c2": "v1.28.6", "c3": "v1.29.0"},
			managing: "c1", to: "v1.30.0"},
		"to 1.30 with one three behind": {clusters: clusters{"c1": "v1.29.0", "c2": "v1.27.2"}, managing: "c1",
			to: "v1.30.0", refusal: "bring it to v1.28 or later first (S0-7)"},
		"to 1.29 with one two behind": {clusters: clusters{"c1": "v1.28.1", "c2": "v1.27.2"}, managing: "c1",
			to: "v1.29.0", refusal: "(S0-9)"},
		"to 1.29 with the gate": {clusters: clusters{"c1": "v1.28.1", "c2": "v1.27.2"}, managing: "c1",
			gates: twoBehind, to: "v1.29.0"},
		"to 1.29 with the gate, of many": {clusters: clusters{"c1": "v1.28.1", "c2": "v1.27.2", "c3": "v1.28.6"},
			managing: "c1", gates: twoBehind, to: "v1.29.0"},
		"to 1.29 without it, of many": {clusters: clusters{"c1": "v1.28.1", "c2": "v1.28.1", "c3": "v1.29.0"},
			managing: "c1", to: "v1.29.0", refusal: "(S0-8)"},
		"to 1.28 with one two behind": {clusters: clusters{"c1": "v1.27.2", "c2": "v1.26.3"}, managing: "c1",
			gates: twoBehind, to: "v1.28.1", refusal: "(S0-10)"},
		"to 1.28 with one behind": {clusters: clusters{"c1": "v1.27.8", "c2": "v1.27.2", "c3": "v1.27.8"},
			managing: "c1", to: "v1.28.1"},
		"to 1.28 with two minors": {clusters: clusters{"c1": "v1.27.8", "c2": "v1.27.2", "c3": "v1.28.1"},
			managing: "c1", to: "v1.28.1", refusal: "(S0-11)"},
		"by a patch, whoever is behind": {clusters: clusters{"c1": "v1.30.0", "c2": "v1.26.3"}, managing: "c1",
			to: "v1.30.100-gke.96"},
		"from its pool, two behind": {clusters: clusters{"c1": "v1.29.4"}, to: "v1.30.0", worker: "v1.28.6"},
		"from its pool, three behind": {clusters: clusters{"c1": "v1.29.4"}, to: "v1.30.0", worker: "v1.27.8",
			refusal: "(S0-24)"},
		"from its pool, three behind, 1.29": {clusters: clusters{"c1": "v1.28.1"}, to: "v1.29.0", worker: "v1.26.3",
			refusal: "(S0-25)"},
		"from its pool, of before": {clusters: clusters{"c1": "v1.28.6"}, to: "v1.29.0", worker: "v1.28.1"},
		"from its pool, of a later day": {clusters: clusters{"c1": "v1.28.6"}, to: "v1.29.0", worker: "v1.28.6",
			refusal: "(S0-25)"},
		"from its pool, not listed": {clusters: clusters{"c1": "v1.28.6"}, to: "v1.29.4", worker: "v1.28.1",
			refusal: "(S0-30)"},
		"from its pool, two behind at 1.28": {clusters: clusters{"c1": "v1.27.8"}, to: "v1.28.1", worker: "v1.26.3",
			refusal: "(S0-26)"},
		"from that with the gate": {clusters: clusters{"c1": "v1.27.8"}, gates: poolsTwoBehind, to: "v1.28.1",
			worker: "v1.26.3"},
		"from its pool, one behind at 1.27": {clusters: clusters{"c1": "v1.26.3"}, to: "v1.27.2", worker: "v1.26.3"},
		"from its pool, two behind at 1.27": {clusters: clusters{"c1": "v1.26.3"}, to: "v1.27.2", worker: "v1.25.9",
			refusal: "(S0-27)"},
		"from its pool, of no known day": {clusters: clusters{"c1": "v1.28.7"}, to: "v1.29.0", worker: "v1.28.7"},
		"to no known day, from its pool": {clusters: clusters{"c1": "v1.28.6"}, to: "v1.29.1", worker: "v1.28.6",
			refusal: "was released on 2024-06-03, after its cluster's v1.29.1, which has no date"},
	} {
		t.Run(name, func(t *testing.T) {
			estate := estatetest.Estate{Tool: c.tool, Gates: c.gates, Clusters: c.clusters, Managing: c.managing}
			switch c.tool {
			case "":
				estate.Tool = c.to
			case "-":
				estate.Tool = ""
			}
			_, err := raise(t, estate, c.to, c.worker)
			expectRefusal(t, err, c.refusal)
		})
	}
	g := NewWithT(t)
	warnings, err := raise(t, estatetest.Estate{Tool: "v1.30.0", Clusters: clusters{"c1": "v1.29.4"}}, "v1.30.0", "")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(ConsistOf(And(ContainSubstring("v1.30.100-gke.96 is a later patch"), ContainSubstring("S0-20"))))
}
