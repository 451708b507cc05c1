// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
)

// movers are a Cluster with its control plane, a Machine on host h1, and the free host h2.
func movers() []client.Object {
	cluster, quoinCluster := owned("c1", "10.0.0.100", 51, 0)
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group,
		Kind: "QuoinControlPlane", Name: "cp"}
	conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition,
		Status: metav1.ConditionTrue, Reason: "Initialized"})
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1"}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1", Labels: labels},
		Spec:       clusterv1.MachineSpec{ClusterName: "c1"},
		Status:     clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "h1"}},
	}
	quoinMachine := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "qm1", Labels: labels}}
	used, free := host("team", "h1", "", false), host("team", "h2", "", true)
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	used.UID, free.UID = "u1", "u2"
	return []client.Object{cluster, quoinCluster, machine, quoinMachine, used, free,
		&controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}}
}

// pause does what clusterctl does, or undoes it.
func (w *world) pause(name string, paused bool) {
	w.t.Helper()
	w.change(&clusterv1.Cluster{}, name, func(o client.Object) { o.(*clusterv1.Cluster).Spec.Paused = ptr.To(paused) })
}

func (w *world) change(o client.Object, name string, change func(client.Object)) {
	w.t.Helper()
	w.g.Expect(w.client.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: name}, o)).To(Succeed())
	change(o)
	w.g.Expect(w.client.Update(context.Background(), o)).To(Succeed())
}

// tell sets conditions as another controller does.
func (w *world) tell(o conditions.Setter, name string, kinds ...string) {
	w.t.Helper()
	object := o.(client.Object)
	w.g.Expect(w.client.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: name}, object)).
		To(Succeed())
	for _, kind := range kinds {
		conditions.Set(o, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
	}
	w.g.Expect(w.client.Status().Update(context.Background(), object)).To(Succeed())
}

// everybodySaw the pause, but the hosts.
func (w *world) everybodySaw() {
	w.tell(&infrav1.QuoinMachine{}, "qm1", clusterv1.PausedCondition)
	w.tell(&controlplanev1.QuoinControlPlane{}, "cp", clusterv1.PausedCondition)
}

func (w *world) blocks() bool { return blocksMove(w.get("c1")) }

func (w *world) hold(name string) *infrav1.HostHold {
	w.t.Helper()
	h := &infrav1.QuoinHost{}
	w.g.Expect(w.client.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: name}, h)).To(Succeed())
	return h.Spec.HeldFor
}

func TestBlockMoveComesOffWhenAllIsQuietAndReturns(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue(), "clusterctl waits only for what carried the annotation before the pause")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionTrue, infrav1.ClusterMovableReason,
		"clusterctl move -n team ")

	w.pause("c1", true)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue())
	w.g.Expect(w.hold("h2")).To(Equal(&infrav1.HostHold{Source: "u2", Clusters: []string{"c1"}}))
	w.g.Expect(w.hold("h1")).To(BeNil(), "it is paused with its Cluster")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, infrav1.ClusterNotQuietReason,
		"QuoinMachine qm1", "QuoinControlPlane cp", "QuoinHost h1", `"paused":null`)

	w.everybodySaw()
	w.tell(&infrav1.QuoinHost{}, "h1", clusterv1.PausedCondition)
	w.tell(&infrav1.QuoinHost{}, "h2", infrav1.HostQuietCondition)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue(), "h1 has a plan")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, infrav1.ClusterNotQuietReason, "QuoinHost h1")
	w.tell(&infrav1.QuoinHost{}, "h1", infrav1.HostQuietCondition)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeFalse())
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionTrue, infrav1.ClusterQuietReason)

	w.pause("c1", false)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue())
	w.g.Expect(w.hold("h2")).To(BeNil())
}

// Caches of several kinds show several times. What they agree on is looked up before the objects are let go.
func TestBlockMoveStaysWhenOnlyTheCacheIsQuiet(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	w.pause("c1", true)
	w.reconcile("c1")
	w.everybodySaw()
	w.tell(&infrav1.QuoinHost{}, "h1", clusterv1.PausedCondition, infrav1.HostQuietCondition)
	w.tell(&infrav1.QuoinHost{}, "h2", infrav1.HostQuietCondition)
	w.r.APIReader = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			err := c.List(ctx, list, o...)
			if hosts, ok := list.(*infrav1.QuoinHostList); ok {
				hosts.Items = append(hosts.Items, *host("team", "h3", "", true))
				conditions.Delete(&hosts.Items[0], infrav1.HostQuietCondition)
			}
			return err
		},
	})
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue())
	w.r.APIReader = w.client
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeFalse())
}

func TestBlockMoveStaysOnWhatIsBeingDeleted(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	w.g.Expect(w.client.Delete(context.Background(), w.get("c1"))).To(Succeed())
	w.pause("c1", true)
	w.reconcile("c1")
	w.everybodySaw()
	w.tell(&infrav1.QuoinHost{}, "h1", clusterv1.PausedCondition, infrav1.HostQuietCondition)
	w.tell(&infrav1.QuoinHost{}, "h2", infrav1.HostQuietCondition)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeTrue())
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.Deleting, "Cluster c1 is being deleted")
}

func TestBlockMoveStaysDuringARecovery(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	plane := &controlplanev1.QuoinControlPlane{}
	w.change(plane, "cp", func(client.Object) {
		plane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1", Machine: "m1"}
	})
	w.pause("c1", true)
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.RecoveryInFlight, "recovery r1")
	w.change(plane, "cp", func(client.Object) {
		plane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: `{"id":"r1","state":"Complete"}`}
	})
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, infrav1.ClusterNotQuietReason)
}

func TestBlockMoveStaysWhileASnapshotIsGivenUp(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	plane := &controlplanev1.QuoinControlPlane{}
	w.change(plane, "cp", func(client.Object) { plane.Spec.Backup = &controlplanev1.EtcdBackup{} })
	w.pause("c1", true)
	w.reconcile("c1")
	w.everybodySaw()
	w.tell(&infrav1.QuoinHost{}, "h1", clusterv1.PausedCondition, infrav1.HostQuietCondition)
	w.tell(&infrav1.QuoinHost{}, "h2", infrav1.HostQuietCondition)
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, infrav1.ClusterNotQuietReason,
		"QuoinControlPlane cp", "snapshot")
	w.tell(plane, "cp", controlplanev1.ControlPlaneBackupQuietCondition)
	w.reconcile("c1")
	w.g.Expect(w.blocks()).To(BeFalse())
}

// A claim that wins over the hold is a claim: the host is then paused with its Cluster, or moves with another
// namespace's Machine.
func TestAHostThatIsClaimedMeanwhileIsNotHeld(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	w.pause("c1", true)
	claimed := false
	w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if _, ok := o.(*infrav1.QuoinHost); ok && !claimed {
				claimed = true
				h := &infrav1.QuoinHost{}
				w.change(h, "h2", func(client.Object) {
					h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "other", Name: "qm9", Machine: "m9", Claim: "4567abcd"}
				})
			}
			return c.Patch(ctx, o, patch, options...)
		},
	})
	w.reconcile("c1")
	w.g.Expect(claimed).To(BeTrue())
	w.g.Expect(w.hold("h2")).To(BeNil())
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.ConsumersElsewhere,
		"h2 (of Machine other/m9)")
	w.g.Expect(w.blocks()).To(BeTrue())
}

func TestWhoEndsAHold(t *testing.T) {
	for name, c := range map[string]struct {
		hold   infrav1.HostHold
		left   bool
		others []string
		ends   bool
	}{
		"the source, when its Cluster goes on": {hold: infrav1.HostHold{Source: "u2",
			Clusters: []string{"c1", "c2"}}, ends: true},
		"not when the copy has the host": {hold: infrav1.HostHold{Source: "u2",
			Clusters: []string{"c1"}}, left: true},
		"the target, when the Cluster goes on": {hold: infrav1.HostHold{Source: "elsewhere",
			Clusters: []string{"c1"}}, ends: true},
		"not before all Clusters have arrived": {hold: infrav1.HostHold{Source: "elsewhere",
			Clusters: []string{"c1", "c2"}}},
		"the target, when all Clusters go on": {hold: infrav1.HostHold{Source: "elsewhere",
			Clusters: []string{"c1", "c2"}}, others: []string{"c2"}, ends: true},
		"a person": {hold: infrav1.HostHold{Reason: "the fleet moves"}},
		"nobody, of Clusters that have left and not come back": {hold: infrav1.HostHold{Source: "u2",
			Clusters: []string{"c7"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, movers()...)
			for _, other := range c.others {
				cluster, _ := owned(other, "10.0.0.101", 52, 0)
				w.g.Expect(w.client.Create(context.Background(), cluster)).To(Succeed())
			}
			h := &infrav1.QuoinHost{}
			w.change(h, "h2", func(client.Object) {
				h.Spec.HeldFor = &c.hold
				if c.left {
					h.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
				}
			})
			w.reconcile("c1")
			w.g.Expect(w.hold("h2") == nil).To(Equal(c.ends))
		})
	}
}

func TestAMachineWithoutANodeIsInTheWayOfAMove(t *testing.T) {
	w := newWorld(t, movers()...)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m2",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}},
		Spec: clusterv1.MachineSpec{ClusterName: "c1"}}
	w.g.Expect(w.client.Create(context.Background(), machine)).To(Succeed())
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.MachinesWithoutNode,
		"Machine m2 has no node yet")
	w.g.Expect(w.r.clusterThatCountsMachine(context.Background(), machine)).To(HaveLen(1))
	w.g.Expect(w.r.clusterPausedOfMachine(context.Background(), machine)).To(BeEmpty())
	w.tell(&infrav1.QuoinCluster{}, "c1", clusterv1.PausedCondition)
	w.g.Expect(w.r.clusterThatCountsMachine(context.Background(), machine)).To(BeEmpty())
	w.g.Expect(w.r.clusterPausedOfMachine(context.Background(), machine)).To(HaveLen(1), "a move waits for it")
}

func TestASecretThatStaysBehindIsInTheWayOfAMove(t *testing.T) {
	w := newWorld(t, movers()...)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ssh",
		Labels:          map[string]string{clusterctlv1.ClusterctlMoveLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "vault", UID: "u"}}}}
	w.g.Expect(w.client.Create(context.Background(), secret)).To(Succeed())
	h := &infrav1.QuoinHost{}
	w.change(h, "h2", func(client.Object) { h.Spec.CredentialsRef.Name = "ssh" })
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.SecretsStay,
		"Secret team/ssh belongs to ConfigMap vault")

	w.change(secret, "ssh", func(client.Object) { secret.OwnerReferences = nil })
	w.pause("c1", true)
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, infrav1.ClusterNotQuietReason,
		"QuoinMachine qm1")
}

func TestASecretOfBackupsThatStaysBehindIsInTheWayOfAMove(t *testing.T) {
	w := newWorld(t, movers()...)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "recipients",
		Labels:          map[string]string{clusterctlv1.ClusterctlMoveLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "vault", UID: "u"}}}}
	w.g.Expect(w.client.Create(context.Background(), secret)).To(Succeed())
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionTrue, infrav1.ClusterMovableReason)

	plane := &controlplanev1.QuoinControlPlane{}
	w.change(plane, "cp", func(client.Object) {
		plane.Spec.Backup = &controlplanev1.EtcdBackup{EncryptionKeyRef: controlplanev1.SecretReference{Name: "recipients"}}
	})
	w.reconcile("c1")
	w.expect("c1", infrav1.ClusterMovableCondition, metav1.ConditionFalse, moving.SecretsStay,
		"Secret team/recipients belongs to ConfigMap vault")
}

func TestAClusterThatAnotherSystemTookOverIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, movers()...)
	w.reconcile("c1")
	w.g.Expect(w.get("c1").Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
	c := &infrav1.QuoinCluster{}
	w.change(c, "c1", func(client.Object) { c.Annotations[clusterv1.ManagedByAnnotation] = "site-tool" })
	w.reconcile("c1")
	w.g.Expect(w.get("c1").Annotations).NotTo(HaveKey(clusterctlv1.BlockMoveAnnotation))

	w.change(c, "c1", func(client.Object) {
		c.Annotations[clusterctlv1.BlockMoveAnnotation], c.Finalizers = "", nil
	})
	w.reconcile("c1")
	w.g.Expect(w.get("c1").Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation), "the other system's own")
}
