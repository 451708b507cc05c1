// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

func versionWebhook(t *testing.T, objects []client.Object) *VersionWebhook {
	t.Helper()
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme,
		apiextensionsv1.AddToScheme)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &VersionWebhook{Reader: reader, decoder: admission.NewDecoder(scheme)}
}

func update(t *testing.T, object client.Object) admission.Request {
	t.Helper()
	raw, err := json.Marshal(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Namespace: "prod", Object: runtime.RawExtension{Raw: raw}}}
}

// Proves: S0-13, S0-23, S0-24, S0-25, S0-26, S0-27, S0-29, S0-30, S0-31, C4
func TestAPoolOfADistribution(t *testing.T) {
	for name, c := range map[string]struct {
		at, pool, tool, refusal, warning string
		gates                            []string
	}{
		"of its cluster's version":        {at: "v1.29.0", pool: "v1.29.0"},
		"ahead, before the tool":          {at: "v1.29.0", pool: "v1.29.4", refusal: "(S0-23)"},
		"ahead, on the way to the tool's": {at: "v1.29.0", pool: "v1.29.4", tool: "v1.29.4", warning: "(S0-23)"},
		"behind":                          {at: "v1.30.0", pool: "v1.29.4"},
		"two behind, of any day":          {at: "v1.30.0", pool: "v1.28.6"},
		"three behind":                    {at: "v1.30.0", pool: "v1.27.8", refusal: "(S0-24)"},
		"two behind 1.29, of before":      {at: "v1.29.0", pool: "v1.27.8"},
		"behind 1.29, of a later day":     {at: "v1.29.0", pool: "v1.28.6", refusal: "(S0-25)"},
		"of no listed version":            {at: "v1.29.4", pool: "v1.28.1", refusal: "(S0-30)"},
		"of a listed version":             {at: "v1.29.4", pool: "v1.28.6"},
		"two behind 1.28":                 {at: "v1.28.1", pool: "v1.26.3", refusal: "(S0-26)"},
		"two behind 1.28, with the gate":  {at: "v1.28.1", pool: "v1.26.3", gates: []string{"PoolsTwoMinorsBehind"}},
		"one behind 1.28, of before":      {at: "v1.28.1", pool: "v1.27.2"},
		"one behind 1.28, of a later day": {at: "v1.28.1", pool: "v1.27.8", gates: []string{"PoolsTwoMinorsBehind"},
			refusal: "(S0-26)"},
		"one behind 1.27":                   {at: "v1.27.2", pool: "v1.26.3"},
		"two behind 1.27":                   {at: "v1.27.2", pool: "v1.25.4", refusal: "(S0-27)"},
		"counted along the list":            {at: "v1.33.0", pool: "v1.30.0"},
		"counted along the list, too far":   {at: "v1.33.0", pool: "v1.29.0", refusal: "(S0-24)"},
		"of a minor that was left out":      {at: "v1.33.0", pool: "v1.32.4"},
		"too far for Kubernetes, on a list": {at: "v1.35.0", pool: "v1.31.0", refusal: "(R2)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			estate := estatetest.Estate{Tool: c.at, Gates: c.gates, Clusters: map[string]string{"c1": c.at}}
			if c.tool != "" {
				estate.Tool = c.tool
			}
			deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue"}}
			deployment.Spec.ClusterName, deployment.Spec.Template.Spec.Version = "c1", c.pool
			response := versionWebhook(t, estate.Objects("prod")).handleDeployment(t.Context(), update(t, deployment))
			g.Expect(response.Allowed).To(Equal(c.refusal == ""))
			g.Expect(response.Result.Message).To(ContainSubstring(c.refusal))
			if c.warning == "" {
				g.Expect(response.Warnings).To(BeEmpty())
			} else {
				g.Expect(response.Warnings).To(ConsistOf(ContainSubstring(c.warning)))
			}
		})
	}
}

// Proves: S1-21
//
// Cluster API deletes first where Machines may be unavailable, and the new ones wait for the control plane: who raises
// both in one commit hears of it before.
func TestAPoolThatLosesMachinesWhileItWaits(t *testing.T) {
	of := func(text string) *intstr.IntOrString { return ptr.To(intstr.Parse(text)) }
	rolling, onDelete := clusterv1.RollingUpdateMachineDeploymentStrategyType, clusterv1.OnDeleteMachineDeploymentStrategyType
	for name, c := range map[string]struct {
		surge, unavailable *intstr.IntOrString
		strategy           clusterv1.MachineDeploymentRolloutStrategyType
		pool               string
		replicas           int32
		paused, made       bool
		lost               string
	}{
		"removes first":                    {surge: of("0"), unavailable: of("1"), lost: "1 of 4"},
		"removes a part first":             {surge: of("0%"), unavailable: of("50%"), lost: "2 of 4"},
		"removes a part that is none":      {surge: of("0%"), unavailable: of("10%"), lost: "1 of 4"},
		"removes while it makes":           {surge: of("1"), unavailable: of("1"), lost: "1 of 4"},
		"makes first":                      {surge: of("1"), unavailable: of("0")},
		"makes a part first":               {surge: of("10%"), unavailable: of("10%")},
		"says nothing":                     {},
		"leaves it to people":              {surge: of("0"), unavailable: of("1"), strategy: onDelete},
		"has no Machines":                  {surge: of("0"), unavailable: of("1"), replicas: -1},
		"is paused":                        {surge: of("0"), unavailable: of("1"), paused: true},
		"is new":                           {surge: of("0"), unavailable: of("1"), made: true},
		"removes first, and does not wait": {surge: of("0"), unavailable: of("1"), pool: "v1.29.0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			estate := estatetest.Estate{Tool: "v1.29.4", Clusters: map[string]string{"c1": "v1.29.0"}}
			deployment := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue"}}
			deployment.Spec.ClusterName, deployment.Spec.Template.Spec.Version = "c1", cmp.Or(c.pool, "v1.29.4")
			deployment.Spec.Replicas, deployment.Spec.Paused = ptr.To(max(cmp.Or(c.replicas, 4), 0)), &c.paused
			deployment.Spec.Rollout.Strategy.Type = cmp.Or(c.strategy, rolling)
			deployment.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = c.surge
			deployment.Spec.Rollout.Strategy.RollingUpdate.MaxUnavailable = c.unavailable
			request := update(t, deployment)
			if c.made {
				request.Operation = admissionv1.Create
			}
			response := versionWebhook(t, estate.Objects("prod")).handleDeployment(t.Context(), request)
			g.Expect(response.Allowed).To(BeTrue())
			var warnings []any
			if c.pool == "" {
				warnings = append(warnings, ContainSubstring("no host is claimed for new Machines"))
			}
			if c.lost != "" {
				warnings = append(warnings, And(ContainSubstring(c.lost+" Machines of MachineDeployment blue may be missing"),
					ContainSubstring("Set maxSurge: 1 and maxUnavailable: 0, or raise it after the control plane")))
			}
			g.Expect(response.Warnings).To(ConsistOf(warnings...))
		})
	}
}

// Proves: S0-4, S0-16, S0-19
//
// A topology may be many steps away, of which a distribution has one.
func TestATopologyOfADistribution(t *testing.T) {
	for to, refusal := range map[string]string{"v1.30.0": "", "v1.31.0": "(S0-19)", "v1.30.100-gke.96": "(S0-16)",
		"v1.28.6": "(S0-15)"} {
		t.Run(to, func(t *testing.T) {
			g := NewWithT(t)
			estate := estatetest.Estate{Tool: "v1.30.0", Clusters: map[string]string{"c1": "v1.29.4", "mc": "v1.30.0"},
				Managing: "mc"}
			if to == "v1.31.0" {
				estate.Tool = to
			}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1",
				Annotations: map[string]string{skew.PolicyAnnotation: "Distribution"}}}
			cluster.Spec.Topology.Version = to
			cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			response := versionWebhook(t, estate.Objects("prod")).handleTopology(t.Context(), update(t, cluster))
			g.Expect(response.Allowed).To(Equal(refusal == ""), response.Result.Message)
			g.Expect(response.Result.Message).To(ContainSubstring(refusal))
			if to == "v1.31.0" {
				g.Expect(response.Result.Message).To(And(ContainSubstring("(S0-4)"), ContainSubstring("go to v1.30 first")))
			}
		})
	}
}
