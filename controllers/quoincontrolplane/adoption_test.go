// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// A Machine is adopted by what the API server has, and only one that the control plane could have made.
func TestAdoptionIsGuarded(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	name := initialized(t, w)
	orphan := func(change func(*clusterv1.Machine)) {
		machine := w.machine(name)
		machine.OwnerReferences = nil
		change(machine)
		g.Expect(w.mgmt.Update(t.Context(), machine)).To(Succeed())
	}
	refused := func(why string) {
		t.Helper()
		_, err := w.r.Reconcile(t.Context(), request())
		g.Expect(err).To(MatchError(ContainSubstring(why)))
		g.Expect(w.machine(name).OwnerReferences).To(BeEmpty())
		g.Expect(w.machines()).To(HaveLen(1))
	}
	orphan(func(machine *clusterv1.Machine) { machine.Spec.Version = "v1.33.0" })
	refused("more than one minor away")
	orphan(func(machine *clusterv1.Machine) {
		machine.Spec.Version, machine.Spec.Bootstrap.ConfigRef.Kind = oldVer, "OtherConfig"
	})
	refused("OtherConfig")
	orphan(func(machine *clusterv1.Machine) { machine.Spec.Bootstrap.ConfigRef.Kind = "KubeadmConfig" })
	live := w.r.APIReader
	w.r.APIReader = interceptor.NewClient(w.mgmt.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			options ...client.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if plane, ok := object.(*controlplanev1.QuoinControlPlane); ok {
				plane.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			return err
		}})
	refused("was deleted just now")
	w.r.APIReader = live
	w.once()
	g.Expect(metav1.IsControlledBy(w.machine(name), w.plane())).To(BeTrue())
}
