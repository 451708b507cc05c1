// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"errors"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
)

func member(name string, controlPlane bool) *clusterv1.Machine {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name),
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	if controlPlane {
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	machine.Spec.ClusterName, machine.Spec.ProviderID = "c1", "quoin://"+name
	machine.Status.NodeRef.Name = "node-" + name
	return machine
}

func nodeOf(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

// A Cluster that its own managers run in shows their version, and no other does.
func TestAClusterThatManagesItselfShowsItsManagersVersion(t *testing.T) {
	content, err := os.ReadFile("testdata/managers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Row, Name       string
		Worker, Joining bool
		Node            string
		ProviderID      string
		Shown           bool
	}
	if err := yaml.UnmarshalStrict(content, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Row+" "+c.Name, func(t *testing.T) {
			cluster, quoinCluster := owned("c1", "192.0.2.10", 1, 0)
			machine, want := member("m1", !c.Worker), ""
			if c.Joining {
				machine.Status.NodeRef.Name = ""
			}
			if c.Shown {
				want = version.Get().Version
			}
			w := newWorld(t, machine, nodeOf(c.Node, c.ProviderID), cluster, quoinCluster)
			w.reconcile("c1")
			w.g.Expect(w.get("c1").Status.ManagersVersion).To(Equal(want))
		})
	}
}

// The managing cluster's API server is asked once for a Machine, and what is not known meanwhile stays as it was.
func TestWhetherAClusterManagesItselfIsAskedOnce(t *testing.T) {
	cluster, quoinCluster := owned("c1", "192.0.2.10", 1, 0)
	w := newWorld(t, cluster, quoinCluster, member("m1", true), nodeOf("node-m1", "quoin://m1"))
	asked, fails := 0, error(nil)
	w.r.APIReader = interceptor.NewClient(w.client.(client.WithWatch), //nolint:forcetypeassert // the fake is one
		interceptor.Funcs{Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			if _, is := object.(*corev1.Node); is {
				asked++
				if fails != nil {
					return fails
				}
			}
			return under.Get(ctx, key, object, options...)
		}})
	w.reconcile("c1")
	w.reconcile("c1")
	w.g.Expect(asked).To(Equal(1))
	w.g.Expect(w.get("c1").Status.ManagersVersion).To(Equal(version.Get().Version))

	fails = errors.New("forbidden")
	w.g.Expect(w.client.Create(t.Context(), member("m0", true))).To(Succeed())
	_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "c1"}})
	w.g.Expect(err).To(MatchError(ContainSubstring("forbidden")))
	w.g.Expect(w.get("c1").Status.ManagersVersion).To(Equal(version.Get().Version))
}
