// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestManagement(t *testing.T) {
	is := func(name, providerID string, status corev1.ConditionStatus, cordoned bool) client.Object {
		of := node(name, corev1.NodeCondition{Type: corev1.NodeReady, Status: status})
		of.Spec.ProviderID, of.Spec.Unschedulable = providerID, cordoned
		return of
	}
	const ready, away = corev1.ConditionTrue, corev1.ConditionUnknown
	const one, none = "Warn Cluster c1 OneNode", "Block  NoNode"
	for name, c := range map[string]struct {
		nodes []client.Object
		want  []string
	}{
		"one Node of others":            {nodes: []client.Object{is("kind", "kind://a", ready, false)}},
		"one Node without a provider":   {nodes: []client.Object{is("kind", "", ready, false)}},
		"one Node of its own":           {nodes: []client.Object{is("cp", "quoin://prod/a/1", ready, false)}, want: []string{one}},
		"two Nodes of its own":          {nodes: []client.Object{is("cp", "quoin://prod/a/1", ready, false), is("w", "quoin://prod/b/1", ready, false)}},
		"two Nodes, of which one waits": {nodes: []client.Object{is("cp", "quoin://prod/a/1", ready, false), is("w", "quoin://prod/b/1", ready, true)}, want: []string{one}},
		"two Nodes, of which one is away": {nodes: []client.Object{is("cp", "quoin://prod/a/1", ready, false),
			is("w", "quoin://prod/b/1", away, false)}, want: []string{one}},
		"a Node of others is away": {nodes: []client.Object{is("a", "kind://a", ready, false), is("b", "kind://b", away, false)},
			want: []string{"Warn Node b of the managing cluster NotReady"}},
		"no Node takes pods":            {nodes: []client.Object{is("a", "kind://a", ready, true)}, want: []string{none}},
		"a control plane without Nodes": {},
	} {
		t.Run(name, func(t *testing.T) {
			control, worker := machine("cp", "v1.35.4", true), machine("w", "v1.35.4", false)
			control.Spec.ProviderID, worker.Spec.ProviderID = "quoin://prod/a/1", "quoin://prod/b/1"
			core := &clusterctlv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "capi-system", Name: "cluster-api"},
				ProviderName: "cluster-api", Type: "CoreProvider", Version: "v1.14.2"}
			expect(t, lookAtManagement, subject(t, append(c.nodes, control, worker, machine("new", "v1.35.4", false), core), nil),
				c.want...)
		})
	}
}
