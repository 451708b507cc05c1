// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// reconciliation is one that begins now.
func (w *world) reconciliation() *reconciliation {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.g.Expect(w.mgmt.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "c"}, cluster)).To(Succeed())
	plane := w.plane()
	return &reconciliation{cluster: cluster, controlPlane: plane,
		subject: observe.Subject{Cluster: cluster, ControlPlane: plane.DeepCopy()}}
}

// look is what the controller sees now.
func (w *world) look() *observe.Observation {
	w.t.Helper()
	return w.looks().observation
}

// looks is a reconciliation that has observed.
func (w *world) looks() *reconciliation {
	w.t.Helper()
	p := w.reconciliation()
	lists, err := w.r.list(w.t.Context(), p)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.r.read(w.t.Context(), p, lists)).To(Succeed())
	return p
}

// propagates says how many objects propagate writes.
func (w *world) propagates(o *observe.Observation) int {
	w.t.Helper()
	writes, before := 0, w.r.Client
	w.r.Client = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration,
			options ...client.ApplyOption) error {
			writes++
			return c.Apply(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, object, patch, options...)
		},
	})
	defer func() { w.r.Client = before }()
	w.g.Expect(w.r.propagate(w.t.Context(), &o.Inventory)).To(Succeed())
	return writes
}

// A look at the cache is enough only if nothing is left to propagate, so that must be told as it is.
func TestAllIsPropagatedWhenNothingIsLeftToWrite(t *testing.T) {
	label := func(value string) func(*controlplanev1.QuoinControlPlane) {
		return func(p *controlplanev1.QuoinControlPlane) {
			p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"tier": value}
		}
	}
	w := newWorld(t, 1, label("front"))
	g := w.g
	machine := initialized(t, w)
	g.Expect(w.r.propagated(&w.look().Inventory)).To(BeTrue())
	strip := func(object client.Object) {
		delete(object.GetLabels(), "tier")
		g.Expect(w.mgmt.Update(t.Context(), object)).To(Succeed())
	}
	for _, tc := range []struct {
		what   string
		change func()
		writes int
	}{
		{"nothing", func() {}, 0},
		{"a label of the template", func() { w.edit(label("back")) }, 3},
		{"a label that the template had", func() {
			w.edit(func(p *controlplanev1.QuoinControlPlane) { p.Spec.MachineTemplate.ObjectMeta.Labels = nil })
		}, 3},
		{"a label that it has again", func() { w.edit(label("front")) }, 3},
		{"a label that somebody took off the Machine", func() { strip(w.machine(machine)) }, 1},
		{"a label that somebody took off the QuoinMachine", func() { strip(w.infra(machine)) }, 1},
		{"a label that somebody took off the KubeadmConfig", func() { strip(&w.configs()[0]) }, 1},
		{"a hook that somebody took off", func() {
			stripped := w.machine(machine)
			delete(stripped.Annotations, controlplanev1.PreDrainHookAnnotation)
			g.Expect(w.mgmt.Update(t.Context(), stripped)).To(Succeed())
		}, 1},
		{"the hold on the QuoinMachine", func() {
			infra := w.infra(machine)
			infra.Spec.LifecycleHooks.PreTerminate = nil
			g.Expect(w.mgmt.Update(t.Context(), infra)).To(Succeed())
		}, 1},
		{"minReadySeconds", func() {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.MachineTemplate.Spec.MinReadySeconds = ptr.To[int32](5)
			})
		}, 1},
		{"a manager that remembers nothing", func() { w.r.history.Forget(w.plane().UID) }, 3},
		{"the deletion", func() { g.Expect(w.mgmt.Delete(t.Context(), w.machine(machine))).To(Succeed()) }, 0},
		{"a time-out of what is being deleted", func() {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.MachineTemplate.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](5)
			})
		}, 1},
		{"a taint of what is being deleted", func() {
			w.edit(func(p *controlplanev1.QuoinControlPlane) {
				p.Spec.MachineTemplate.Spec.Taints = []clusterv1.MachineTaint{{Key: "leaving", Effect: corev1.TaintEffectNoSchedule,
					Propagation: clusterv1.MachineTaintPropagationAlways}}
			})
		}, 1},
		{"a label of what is being deleted", func() { w.edit(label("back")) }, 0},
		{"the holds of what is being deleted", func() {
			g.Expect(w.r.release(t.Context(), &w.look().Inventory, w.machine(machine))).To(Succeed())
			g.Expect(w.hasHook(machine)).To(BeFalse())
		}, 0},
	} {
		tc.change()
		s := w.look()
		g.Expect(w.r.propagated(&s.Inventory)).To(Equal(tc.writes == 0), "%s", tc.what)
		g.Expect(w.propagates(s)).To(Equal(tc.writes), "%s", tc.what)
		g.Expect(w.r.propagated(&w.look().Inventory)).To(BeTrue(), "%s was propagated just now", tc.what)
	}
}

// The Machine was let go, and the cache shows it as it was before. What has to be written to it, as it is shown, would
// put its hooks back.
func TestAStaleCachePutsNoHooksBack(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	before := w.machine(name)
	g.Expect(w.mgmt.Delete(t.Context(), w.machine(name))).To(Succeed())
	g.Expect(w.r.release(t.Context(), &w.look().Inventory, w.machine(name))).To(Succeed())
	g.Expect(w.hasDrainHook(name)).To(BeFalse())
	g.Expect(w.hasHook(name)).To(BeFalse())
	g.Expect(w.infra(name).Spec.LifecycleHooks.PreTerminate).To(BeEmpty())
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"tier": "front"}
	})

	// Another manager than the one that let it go: it knows of no write that the cache is behind.
	w.r = &Reconciler{Client: w.mgmt, APIReader: w.mgmt, Hosts: noHosts{}, Etcd: w.etcd, Recorder: w.r.Recorder,
		ClusterCache: w.r.ClusterCache, Timings: w.r.Timings}
	stale := 0
	w.r.Client = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if machines, ok := list.(*clusterv1.MachineList); ok {
				stale++
				machines.Items = []clusterv1.Machine{*before.DeepCopy()}
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	w.once()
	g.Expect(stale).NotTo(BeZero(), "it looked at the cache")
	g.Expect(w.hasDrainHook(name)).To(BeFalse())
	g.Expect(w.hasHook(name)).To(BeFalse())
	g.Expect(w.infra(name).Spec.LifecycleHooks.PreTerminate).To(BeEmpty())
}
