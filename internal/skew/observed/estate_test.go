// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

func estate(
	t *testing.T, change func(cluster *clusterv1.Cluster, machine *clusterv1.Machine), more ...client.Object,
) client.WithWatch {
	t.Helper()
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme)
	objects := estatetest.Estate{Tool: "v1.30.0", Clusters: map[string]string{"c1": "v1.29.0", "c2": "v1.28.6",
		"mc": "v1.30.0"}, Managing: "mc"}.Objects("prod")
	for _, object := range objects {
		switch object := object.(type) {
		case *clusterv1.Machine:
			change(&clusterv1.Cluster{}, object)
		case *clusterv1.Cluster:
			change(object, &clusterv1.Machine{})
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, more...)...).Build()
}

func read(t *testing.T, reader client.Reader, name string) (skew.World, error) {
	t.Helper()
	cluster := &clusterv1.Cluster{}
	NewWithT(t).Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: name}, cluster)).To(Succeed())
	policies, err := skew.PoliciesOf(cluster)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return observed.World(t.Context(), reader, cluster, policies)
}

func TestTheManagingClusterIsKnownByItsMachines(t *testing.T) {
	g := NewWithT(t)
	older := estatetest.Machine("prod", "mc", "mc-older", "v1.29.4")
	older.Labels[clusterv1.MachineControlPlaneLabel], older.Status.NodeRef.Name = "", "n2"
	reader := estate(t, func(_ *clusterv1.Cluster, machine *clusterv1.Machine) {
		if machine.Name == "c2-cp" {
			machine.Status.NodeInfo = &corev1.NodeSystemInfo{} // no more than the Node that tells no ids
		}
	}, older)
	for name, want := range map[string]skew.Estate{
		"c1": {Managing: "v1.29.4", Managed: []skew.Managed{{Object: "Cluster prod/c2", Version: "v1.28.6"}}},
		"mc": {Managing: "v1.29.4", Self: true, Managed: []skew.Managed{
			{Object: "Cluster prod/c1", Version: "v1.29.0"}, {Object: "Cluster prod/c2", Version: "v1.28.6"}}},
	} {
		world, err := read(t, reader, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(world.Estate.Catalog.Tool).To(Equal("v1.30.0"))
		world.Estate.Catalog = skew.Catalog{}
		g.Expect(*world.Estate).To(Equal(want), name)
	}
}

// A managing cluster of thousands of Nodes is known by few of them.
func TestOfTheManagingClusterTheControlPlaneIsRead(t *testing.T) {
	g := NewWithT(t)
	worker, nodes := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}, 0
	_, err := read(t, interceptor.NewClient(estate(t, func(*clusterv1.Cluster, *clusterv1.Machine) {}, worker),
		interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			if of, is := list.(*corev1.NodeList); is {
				nodes += len(of.Items)
			}
			return err
		}}), "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(nodes).To(Equal(1))
}

// Clusters with other policies are of no distribution, and are not compared with those that are.
func TestOnlyClustersOfTheDistributionAreManaged(t *testing.T) {
	g := NewWithT(t)
	reader := estate(t, func(cluster *clusterv1.Cluster, _ *clusterv1.Machine) {
		if cluster.Name != "c1" {
			cluster.Annotations = nil
		}
	})
	world, err := read(t, reader, "c1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(world.Estate.Managed).To(BeEmpty())
	g.Expect(world.Estate.Managing).To(Equal("v1.30.0"), "whatever its own policies are")
	world, err = read(t, reader, "c2")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(world.Estate).To(BeNil(), "nobody asks")
}

func TestAnEstateThatCannotBeReadIsNoEstate(t *testing.T) {
	for _, kind := range []client.ObjectList{&corev1.NodeList{}, &clusterv1.ClusterList{}} {
		reader := interceptor.NewClient(estate(t, func(*clusterv1.Cluster, *clusterv1.Machine) {}), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if reflect.TypeOf(list) == reflect.TypeOf(kind) {
					return errors.New("no route")
				}
				return c.List(ctx, list, options...)
			},
		})
		_, err := read(t, reader, "c1")
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("no route")))
	}
}
