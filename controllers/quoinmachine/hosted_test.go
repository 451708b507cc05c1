// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Proves: S0-23, S1-21, R2
//
// A control plane without Machines tells by itself what it runs, which nobody watches: the Machine looks again. One that
// nobody let us read keeps no Machine from its host.
func TestAWorkerWaitsForAHostedControlPlane(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Spec.Version = "v1.36.3"
	below := cluster()
	below.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.example.com",
		Kind: "Other", Name: "c1"}
	w := newWorld(t, below, machine, quoinMachine, host("h1", ""))
	version, fails := "v1.35.4", error(nil)
	w.r.APIReader = interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
		under client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		switch of := object.(type) {
		case *metav1.PartialObjectMetadata: // the kind's definition
			of.Labels = map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}
			return nil
		case *unstructured.Unstructured:
			of.Object = map[string]any{"status": map[string]any{"version": version}}
			return fails
		}
		return under.Get(ctx, key, object, options...)
	}})
	result := w.reconcile("m1")
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"no host is claimed", "newer than API server v1.35.4", "R2")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.g.Expect(result.RequeueAfter).To(Equal(unseenRecheck))
	fails = apierrors.NewForbidden(schema.GroupResource{Resource: "others"}, "c1", nil)
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}
