// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// sharing is a cache that gives away its own Machines to whoever asks for no copy, and counts the copies of others.
type sharing struct {
	client.Reader

	machines []clusterv1.Machine
	copied   int
}

func (s *sharing) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	machines, is := list.(*clusterv1.MachineList)
	if !is {
		return nil
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	for i := range s.machines {
		switch {
		case ptr.Deref(asked.UnsafeDisableDeepCopy, false):
			machines.Items = append(machines.Items, s.machines[i])
		case asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(s.machines[i].Labels)):
			machines.Items = append(machines.Items, *s.machines[i].DeepCopy())
			s.copied++
		}
	}
	return nil
}

// Of thousands of workers a control plane reads what they run, and copies and changes none. What it says of them is the
// same in whatever order the cache has them.
func TestWorkersAreReadWithoutCopies(t *testing.T) {
	g := NewWithT(t)
	shared := &sharing{}
	for i := range 20 {
		machine := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("w%02d", i),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)),
			Labels:            map[string]string{clusterv1.ClusterNameLabel: "c"}, Annotations: map[string]string{"a": "b"}}}
		machine.Spec.ClusterName, machine.Spec.Version = "c", fmt.Sprintf("v1.32.%d", i)
		machine.Status.NodeRef.Name = machine.Name
		if i == 0 {
			machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
			machine.Spec.Version = "v1.35.4"
		}
		shared.machines = append(shared.machines, machine)
	}
	var before []clusterv1.Machine
	for i := range shared.machines {
		before = append(before, *shared.machines[i].DeepCopy())
	}
	subject := Subject{Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}},
		ControlPlane: &controlplanev1.QuoinControlPlane{}}
	subject.ControlPlane.Spec.Version = "v1.36.3"
	sources := &Sources{Cache: shared, Live: shared}
	lists, err := sources.List(t.Context(), subject, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(lists.leftBehind).To(ContainSubstring("Machine w01"), "the oldest is named")
	inv, err := sources.Inventory(t.Context(), lists, lists.Machines.Owned)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(inv.Workers).To(HaveLen(19))
	g.Expect(shared.copied).To(Equal(1), "its own Machine")
	g.Expect(shared.machines).To(Equal(before))

	slices.Reverse(shared.machines)
	again, err := sources.List(t.Context(), subject, true)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(again.leftBehind).To(Equal(lists.leftBehind))
}
