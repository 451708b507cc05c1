// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/needs"
)

// recoveredBy is the claim of a Machine of a control plane in whose annotation record is written.
func recoveredBy(t *testing.T, asked *controlplanev1.EtcdRecovery, record string) *world {
	machine, quoinMachine := owned("m1", uid1)
	machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: controlplanev1.GroupVersion.String(),
		Kind: "QuoinControlPlane", Name: "cp", UID: "cp", Controller: ptr.To(true)}}
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp",
		Annotations: map[string]string{controlplanev1.RecoveryAnnotation: record}}}
	controlPlane.Spec.Recovery = asked
	return newWorld(t, cluster(), machine, quoinMachine, host("h1", ""), controlPlane)
}

// A Machine that was given up without a host would join the survivor when one becomes free, and be given up by a
// cluster that it votes in.
func TestNoMachineClaimsAHostWhileEtcdIsRecovered(t *testing.T) {
	asked := &controlplanev1.EtcdRecovery{ID: "r2", Machine: "m0", GiveUp: []string{"m1"}}
	w := recoveredBy(t, asked, `{"id":"r2","state":"Begun","machine":"m0","giveUp":["m1"]}`)
	w.g.Expect(w.reconcile("m1").RequeueAfter).To(Equal(unseenRecheck))
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason,
		"recovery r2 of etcd is under way", "QuoinControlPlane team/cp")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())

	controlPlane := &controlplanev1.QuoinControlPlane{}
	w.g.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "cp"}, controlPlane)).To(Succeed())
	controlPlane.Annotations[controlplanev1.RecoveryAnnotation] = `{"id":"r2","state":"Complete"}`
	w.g.Expect(w.client.Update(t.Context(), controlPlane)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
}

func TestAMachineClaimsItsHostBesideARecoveryThatIsNone(t *testing.T) {
	asked := &controlplanev1.EtcdRecovery{ID: "r2", Machine: "m0"}
	for why, c := range map[string]struct {
		asked  *controlplanev1.EtcdRecovery
		record string
	}{
		"nobody asks":             {nil, `{"id":"r2","state":"Begun"}`},
		"it has not begun":        {asked, ""},
		"its snapshot is fetched": {asked, `{"id":"r2","state":"Fetching"}`},
		"it is void":              {asked, `{"id":"r2","state":"Void"}`},
		"another one has begun":   {asked, `{"id":"r1","state":"Begun"}`},
	} {
		t.Run(why, func(t *testing.T) {
			w := recoveredBy(t, c.asked, c.record)
			w.reconcile("m1")
			w.g.Expect(w.host("h1").Spec.ConsumerRef).NotTo(BeNil())
		})
	}
}

// The cache may be behind.
func TestARecoveryThatHasJustBegunIsSeenRightBeforeTheClaim(t *testing.T) {
	w := recoveredBy(t, &controlplanev1.EtcdRecovery{ID: "r2", Machine: "m0"}, "")
	live := interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context,
		c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
	) error {
		err := c.Get(ctx, key, object, options...)
		if controlPlane, is := object.(*controlplanev1.QuoinControlPlane); is {
			controlPlane.Annotations = map[string]string{
				controlplanev1.RecoveryAnnotation: `{"id":"r2","state":"Begun","machine":"m0"}`}
		}
		return err
	}})
	w.r.Withholds = needs.Hosts{Reader: live}.Claim
	w.reconcile("m1")
	w.g.Expect(w.host("h1").Spec.ConsumerRef).To(BeNil())
	w.expect("m1", infrav1.MachineHostClaimedCondition, metav1.ConditionFalse, infrav1.MachineWaitingForControlPlaneReason)
}
