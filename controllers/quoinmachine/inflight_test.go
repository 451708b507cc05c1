// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// moved is another management cluster with the objects as a mover copies them: other UIDs, no status, no deletion.
func moved(t *testing.T, source *world) *world {
	machine, quoinMachine, h, c := source.capiMachine("m1"), source.machine("m1"), source.host("h1"), cluster()
	for _, o := range []client.Object{machine, quoinMachine, h} {
		o.SetResourceVersion("")
		o.SetDeletionTimestamp(nil)
		o.SetUID("target-" + o.GetUID())
	}
	machine.Status, quoinMachine.Status, h.Status = clusterv1.MachineStatus{}, infrav1.QuoinMachineStatus{},
		infrav1.QuoinHostStatus{}
	quoinMachine.OwnerReferences[0].UID = machine.UID
	return newWorld(t, c, machine, quoinMachine, h)
}

func TestADeletionUnderWayIsWrittenDownAtFirstSight(t *testing.T) {
	for name, paused := range map[string]bool{"while the Cluster is reconciled": false,
		"while the Cluster is paused": true} {
		t.Run(name, func(t *testing.T) {
			machine, quoinMachine := owned("m1", uid1)
			c := cluster()
			w := newWorld(t, c, machine, quoinMachine, host("h1", ""))
			w.reconcile("m1")
			w.g.Expect(w.capiMachine("m1").Annotations).
				NotTo(Or(HaveKey(infrav1.DeletionAnnotation), HaveKey(clusterv1.DeleteMachineAnnotation)))
			c.Spec.Paused = ptr.To(paused)
			w.g.Expect(w.client.Update(context.Background(), c)).To(Succeed())
			w.g.Expect(w.client.Delete(context.Background(), w.capiMachine("m1"))).To(Succeed())
			w.reconcile("m1")
			w.g.Expect(w.capiMachine("m1").Annotations).
				To(And(HaveKeyWithValue(infrav1.DeletionAnnotation, uid1), HaveKey(clusterv1.DeleteMachineAnnotation)))
		})
	}
}

func TestTheMoversOwnDeletionIsNotWrittenDown(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	m := w.capiMachine("m1")
	m.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
	w.g.Expect(w.client.Update(context.Background(), m)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), m)).To(Succeed())
	w.reconcile("m1")
	w.g.Expect(w.capiMachine("m1").Annotations).NotTo(HaveKey(infrav1.DeletionAnnotation))
}

// movedInDeletion is where a Machine with a host has been moved to while it was being deleted.
func movedInDeletion(t *testing.T) *world {
	machine, quoinMachine := owned("m1", uid1)
	source := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	source.reconcile("m1")
	source.g.Expect(source.client.Delete(context.Background(), source.capiMachine("m1"))).To(Succeed())
	source.reconcile("m1")
	return moved(t, source)
}

func TestADeletionThatAMoveLostIsDoneAgain(t *testing.T) {
	target := movedInDeletion(t)
	c := cluster()
	target.g.Expect(target.client.Get(context.Background(), client.ObjectKeyFromObject(c), c)).To(Succeed())
	c.Spec.Paused = ptr.To(true)
	target.g.Expect(target.client.Update(context.Background(), c)).To(Succeed())
	target.reconcile("m1")
	target.g.Expect(target.capiMachine("m1").DeletionTimestamp.IsZero()).To(BeTrue(), "nothing is begun while paused")

	c.Spec.Paused = nil
	target.g.Expect(target.client.Update(context.Background(), c)).To(Succeed())
	target.reconcile("m1")
	again := target.capiMachine("m1")
	target.g.Expect(again.DeletionTimestamp.IsZero()).To(BeFalse())
	target.g.Expect(again.Annotations).To(HaveKeyWithValue(infrav1.DeletionAnnotation, "target-"+uid1),
		"and again, should it be moved once more")
	target.g.Expect(target.host("h1").Spec.ConsumerRef).NotTo(BeNil(), "the host is released in order")
}

func TestAMachineThatIsNotBeingDeletedIsLeftAlone(t *testing.T) {
	machine, quoinMachine := owned("m1", uid1)
	// Of this very object: somebody wrote it by hand.
	machine.Annotations = map[string]string{infrav1.DeletionAnnotation: uid1}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	w.reconcile("m1")
	w.g.Expect(w.capiMachine("m1").DeletionTimestamp.IsZero()).To(BeTrue())
}

func TestALostDeletionThatIsRefusedIsToldAndTriedAgain(t *testing.T) {
	for refusal, event := range map[string]string{
		"etcd would lose its quorum": "Warning DeletionRefused",
		"its Node is not found yet. Or annotate it with " + infrav1.DeleteUndrainedAnnotation: "Normal DeletionWaits",
	} {
		t.Run(event, func(t *testing.T) { lostDeletionIsRefused(t, refusal, event) })
	}
}

func lostDeletionIsRefused(t *testing.T, refusal, event string) {
	machine, quoinMachine := owned("m1", uid1)
	machine.Annotations = map[string]string{infrav1.DeletionAnnotation: "of-the-source"}
	w := newWorld(t, cluster(), machine, quoinMachine, host("h1", ""))
	recorder := events.NewFakeRecorder(20)
	w.r.Recorder = recorder
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			asked := (&client.DeleteOptions{}).ApplyOptions(options)
			w.g.Expect(*asked.Preconditions.UID).To(BeEquivalentTo(uid1), "exactly the Machine that was seen")
			return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, o.GetName(),
				errors.New(refusal))
		},
	})
	result := w.reconcile("m1")
	w.g.Expect(result.RequeueAfter).To(Equal(redoEvery))
	w.g.Expect(w.machine("m1").Spec.ProviderID).NotTo(BeEmpty(), "it goes on as a Machine that lives")
	w.g.Expect(<-recorder.Events).To(And(HavePrefix(event), ContainSubstring(refusal)))
}
