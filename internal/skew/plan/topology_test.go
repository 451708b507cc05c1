// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// What is no refusal names no other versions, and is not lost.
func TestAnErrorIsNoRefusal(t *testing.T) {
	failed := errors.New("it failed")
	NewWithT(t).Expect(Request{}.instead(Plan{Hops: []string{"v1.36.3"}}, failed)).To(MatchError(failed))
}

// Pools that stay behind their control plane grow and heal: Cluster API makes no Machine for them before the checks of
// it are skipped that do not know by which kubeadm a host joins.
func TestPoolsOfTheReleasedTemplatesMayStayBehind(t *testing.T) {
	for file, checks := range map[string][]clusterv1.MachineSetPreflightCheck{
		"cluster-template.yaml": {clusterv1.MachineSetPreflightCheckKubeadmVersionSkew},
		"clusterclass-quoin.yaml": {clusterv1.MachineSetPreflightCheckKubeadmVersionSkew,
			clusterv1.MachineSetPreflightCheckControlPlaneVersionSkew},
	} {
		g := NewWithT(t)
		content, err := os.ReadFile("../../../templates/" + file)
		g.Expect(err).NotTo(HaveOccurred())
		found := 0
		for _, document := range bytes.Split(content, []byte("\n---\n")) {
			object := &metav1.PartialObjectMetadata{}
			g.Expect(yaml.Unmarshal(document, object)).To(Succeed(), file)
			if object.Kind != "KubeadmConfigTemplate" {
				continue
			}
			found++
			var skipped []clusterv1.MachineSetPreflightCheck
			for _, check := range strings.Split(object.Annotations[clusterv1.MachineSetSkipPreflightChecksAnnotation], ",") {
				skipped = append(skipped, clusterv1.MachineSetPreflightCheck(check))
			}
			g.Expect(skipped).To(ConsistOf(checks), "%s: %s", file, object.Name)
		}
		g.Expect(found).NotTo(BeZero(), file)
	}
}

// A release must not tell which versions of Kubernetes people have: a list in its ClusterClass would be all that
// Cluster API admits. With one of their own they get over several minors.
func TestTheReleasedClassLeavesVersionsOpen(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../../templates/clusterclass-quoin.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	class := &clusterv1.ClusterClass{}
	first, _, _ := bytes.Cut(content, []byte("\n---\n"))
	g.Expect(yaml.UnmarshalStrict(first, class)).To(Succeed())
	g.Expect(class.Name).To(Equal("quoin"))
	g.Expect(class.Spec.KubernetesVersions).To(BeEmpty())

	policies, err := skew.Policies("")
	g.Expect(err).NotTo(HaveOccurred())
	to := func(target string) error {
		_, err := OfTopology(Request{State: State{APIServers: []string{"v1.34.4"}}, Target: target, Policies: policies,
			Known: class.Spec.KubernetesVersions})
		return err
	}
	g.Expect(to("v1.35.17")).To(Succeed())
	g.Expect(to("v1.36.3")).To(MatchError(ContainSubstring("spec.kubernetesVersions of the ClusterClass")))
	class.Spec.KubernetesVersions = []string{"v1.34.4", "v1.35.4", "v1.36.3"}
	g.Expect(to("v1.36.3")).To(Succeed())
}
