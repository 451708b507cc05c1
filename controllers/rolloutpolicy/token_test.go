// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// kubeadm is a KubeadmConfig, or a template of one, with a bootstrap token.
func kubeadm(kind, name, token string, path ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind(kind))
	object.SetNamespace(namespace)
	object.SetName(name)
	if kind == configKind {
		object.SetAnnotations(map[string]string{clusterv1.TemplateClonedFromNameAnnotation: "blue"})
	}
	if token != "" {
		path = append(append([]string{"spec"}, path...), "joinConfiguration", "discovery", "bootstrapToken", "token")
		_ = unstructured.SetNestedField(object.Object, token, path...)
	}
	return object
}

// A Machine that was held for longer than its bootstrap token lived is not given a host: it could never join.
func TestAMachineWhoseBootstrapTokenIsGoneIsReplaced(t *testing.T) {
	const token = "abcdef.0123456789abcdef" //nolint:gosec // of no cluster
	for name, c := range map[string]struct {
		age          time.Duration
		config       string
		chosen       string
		there        string
		ends         time.Duration
		unreachable  bool
		unknown      string
		withoutReady bool
		change       func(*clusterv1.Machine)
		provider     string
		replaced     bool
	}{
		"it is gone":               {age: time.Hour, config: token, replaced: true},
		"another one is there":     {age: time.Hour, config: token, there: "bootstrap-token-fedcba", replaced: true},
		"it is there":              {age: time.Hour, config: token, there: "bootstrap-token-abcdef"},
		"the Machine is young":     {age: time.Minute, config: token},
		"it has no token":          {age: time.Hour},
		"a person chose the token": {age: time.Hour, config: token, chosen: token},
		"the Cluster is not connected": {age: time.Hour, config: token, unreachable: true,
			unknown: "connection to the workload cluster is down"},
		"the Cluster is not connected, and the Machine is young": {age: time.Minute, config: token, unreachable: true},
		"the Cluster is not connected, and there is no token":    {age: time.Hour, unreachable: true},
		"it is over, and may be extended": {age: time.Hour, config: token, there: "bootstrap-token-abcdef",
			ends: -time.Second, unknown: "is over since 2026-11-23T07:59:59Z"},
		"it is not over yet":        {age: time.Hour, config: token, there: "bootstrap-token-abcdef", ends: time.Second},
		"its data are not made yet": {age: time.Hour, config: token, withoutReady: true},
		"it has a Node, which used the token": {age: time.Hour, config: token, change: func(m *clusterv1.Machine) {
			m.Status.NodeRef.Name = "new-0"
		}},
		"it has a host": {age: time.Hour, config: token, change: func(m *clusterv1.Machine) {
			m.Spec.ProviderID = "quoin://prod/host-9/new-0"
		}},
		"its QuoinMachine has a host": {age: time.Hour, config: token, provider: "quoin://prod/host-9/new-0"},
		"its KubeadmConfig is not there": {age: time.Hour, config: token, change: func(m *clusterv1.Machine) {
			m.Spec.Bootstrap.ConfigRef.Name = "none"
		}},
		"it was made in place of another": {age: time.Hour, config: token, change: func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{quoinv1.RolloutReplacesAnnotation: "old-0"}
		}, replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			machine := machineOf("new-0", "v2")
			machine.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(-c.age))
			machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: configKind, Name: "new-0"}
			if !c.withoutReady {
				machine.Spec.Bootstrap.DataSecretName = ptr.To("new-0")
			}
			if c.change != nil {
				c.change(machine)
			}
			w.make(machine, hostedBy("new-0", c.provider), kubeadm(configKind, "new-0", c.config),
				kubeadm(configKind+"Template", "blue", c.chosen, "template", "spec"))
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: cmp.Or(c.there, "none")}}
			if c.ends != 0 {
				secret.Data = map[string][]byte{"expiration": []byte(w.clock.Now().Add(c.ends).Format(time.RFC3339))}
			}
			w.workload = fake.NewClientBuilder().WithObjects(secret).Build()
			w.restart()
			if c.unreachable {
				w.r.ClusterCache = clustercache.NewFakeClusterCache(w.workload, client.ObjectKey{Name: "another"})
			}
			if c.replaced {
				// While it is refused its admission its KubeadmConfig may yet get another token.
				blue := w.blue()
				w.adjust(blue, func() { blue.Spec.Paused = ptr.To(true) })
				w.reconcile()
				w.clock.Step(24 * time.Hour)
				w.reconcile()
				g.Expect(w.admitted("new-0")).To(BeFalse())
				w.adjust(blue, func() { blue.Spec.Paused = nil })
				w.recorded()
			}
			result := w.reconcile()
			if c.unknown != "" {
				blue := w.policy().Status.MachineDeployments[0]
				g.Expect(w.admitted("new-0")).To(BeFalse())
				g.Expect(blue.Reason).To(Equal("NodeUnknown"))
				g.Expect(blue.Message).To(And(ContainSubstring(c.unknown), ContainSubstring("Machine new-0"),
					ContainSubstring("or delete the Machine")))
				g.Expect(blue.Held).To(HaveValue(BeEquivalentTo(1)))
				g.Expect(result.RequeueAfter).To(Equal(workloadRetry))
				// Another one, which is young, waits for none that is not admitted.
				g.Expect(w.client.Delete(t.Context(), machine)).To(Succeed())
				younger := machineOf("new-1", "v2")
				younger.CreationTimestamp = metav1.NewTime(w.clock.Now())
				w.make(younger, hostedBy("new-1", ""))
				w.reconcile()
				g.Expect(w.admitted("new-1")).To(BeTrue())
				return
			}
			err := w.client.Get(t.Context(), client.ObjectKeyFromObject(machine), &clusterv1.Machine{})
			if !c.replaced {
				g.Expect(err).NotTo(HaveOccurred())
				if c.provider == "" && c.change == nil {
					g.Expect(w.admitted("new-0")).To(BeTrue())
				}
				return
			}
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
			g.Expect(w.events.Events).To(Receive(And(ContainSubstring("BootstrapTokenGone"),
				ContainSubstring("kube-system/bootstrap-token-abcdef"))))
			// What its MachineSet makes in its place is tried as it would have been.
			w.make(machineOf("new-1", "v2"), hostedBy("new-1", ""))
			w.reconcile()
			g.Expect(w.admitted("new-1")).To(BeTrue())
		})
	}
}

// What was made in the place of a Machine that a person deleted, and was held for longer than its token lived, is
// replaced like any other one, and holds up nobody: the Machine that it was made for is drained, and its MachineSet
// makes another one when that is gone.
func TestAReplacementWhoseBootstrapTokenIsGoneIsReplaced(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("the Machine that it was made for is there: ", first), func(t *testing.T) {
			w := newReplacing(t, 1, 0)
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
			pause := func(paused bool) { w.adjust(cluster, func() { cluster.Spec.Paused = ptr.To(paused) }) }
			w.deletes("old-0")
			var made *clusterv1.Machine
			for made == nil {
				_, err := w.r.Reconcile(t.Context(), requestOfCluster)
				w.Expect(err).NotTo(HaveOccurred())
				for name, machine := range w.all() {
					if !strings.HasPrefix(name, "old-") {
						made = machine
					}
				}
			}
			w.Expect(w.admitted(made.Name)).To(BeFalse())
			pause(true)
			w.adjust(made, func() {
				made.CreationTimestamp = metav1.NewTime(w.clock.Now())
				made.Spec.Bootstrap.DataSecretName = ptr.To(made.Name)
			})
			config := &bootstrapv1.KubeadmConfig{ObjectMeta: metav1.ObjectMeta{Name: made.Spec.Bootstrap.ConfigRef.Name}}
			w.adjust(config, func() {
				config.Spec.JoinConfiguration.Discovery.BootstrapToken.Token = "abcdef.0123456789abcdef"
			})
			w.clock.Step(20 * time.Minute)
			w.reconcile()
			w.Expect(w.all()).To(HaveLen(3))
			w.Expect(w.admitted(made.Name)).To(BeFalse())
			if !first {
				w.release("old-0")
			}
			w.recorded()
			pause(false)
			w.reconcile()
			w.Expect(w.machine(made.Name).DeletionTimestamp.IsZero()).To(BeFalse())
			w.Expect(w.recorded()).To(ContainElement(ContainSubstring("BootstrapTokenGone")))
			w.release(made.Name)
			w.reconcile()
			if first {
				w.Expect(w.machine("old-0").Annotations).NotTo(HaveKey(quoinv1.RolloutPreDrainHookAnnotation))
				w.release("old-0")
				w.reconcile()
			}
			w.Expect(w.all()).To(HaveLen(1), "its MachineSet makes the next one")
			w.make(machineOf("next", "v1"), hostedBy("next", ""))
			w.reconcile()
			w.Expect(w.admitted("next")).To(BeTrue())
		})
	}
}

// release has Cluster API let go of a Machine in deletion.
func (w *world) release(name string) {
	w.t.Helper()
	machine := w.machine(name)
	w.adjust(machine, func() { machine.Finalizers = nil })
}
