// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// filling is a cache of which only that is known whether it has read everything.
type filling struct {
	cache.Cache
	cache.Informer
	of     client.Reader
	absent error
	synced bool
}

func (f *filling) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return f, f.absent
}

func (f *filling) HasSynced() bool { return f.synced }

func (f *filling) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return f.of.List(ctx, list, options...)
}

// Admission is served before the caches are filled, and a single object must be as it is.
func TestAdmissionListsFromTheCacheOnceThatIsFilled(t *testing.T) {
	g := NewWithT(t)
	of := func(name string) client.Client {
		meta := metav1.ObjectMeta{Namespace: "prod", Name: name}
		return fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(&clusterv1.Machine{ObjectMeta: meta},
			&clusterv1.Cluster{ObjectMeta: meta}, &clusterv1.MachineSet{ObjectMeta: meta}).Build()
	}
	cached := &filling{of: of("cached")}
	reader := cachedMachines{of("live"), cached}
	expect := func(of, others string) {
		t.Helper()
		machines, clusters, sets := &clusterv1.MachineList{}, &clusterv1.ClusterList{}, &clusterv1.MachineSetList{}
		for _, list := range []client.ObjectList{machines, clusters, sets} {
			g.Expect(reader.List(t.Context(), list, client.InNamespace("prod"))).To(Succeed())
		}
		g.Expect(machines.Items).To(ConsistOf(HaveField("Name", of)))
		g.Expect(clusters.Items).To(ConsistOf(HaveField("Name", others)))
		g.Expect(sets.Items).To(ConsistOf(HaveField("Name", others)))
		g.Expect(reader.List(t.Context(), machines)).To(Succeed())
		g.Expect(machines.Items).To(ConsistOf(HaveField("Name", others)), "what other Clusters are held against")
		live := client.ObjectKey{Namespace: "prod", Name: "live"}
		g.Expect(reader.Get(t.Context(), live, &clusterv1.Machine{})).To(Succeed())
	}
	expect("live", "live")
	cached.synced = true
	expect("cached", "live")
	cached.absent = errors.New("no such kind")
	expect("live", "live")
}
