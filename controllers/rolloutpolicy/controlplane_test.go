// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// A policy for the whole Cluster does not reach the Machines of its control plane, whatever it lets workers do.
func TestTheControlPlaneInheritsNothing(t *testing.T) {
	member := machineOf("member", "v2")
	member.OwnerReferences = []metav1.OwnerReference{{APIVersion: "controlplane.cluster.x-k8s.io/v1alpha1",
		Kind: "QuoinControlPlane", Name: "c1", UID: "cp", Controller: ptr.To(true)}}
	member.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""), member, hostedBy("member", ""))
	policy := w.policy()
	w.adjust(policy, func() {
		policy.Spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(4))}
	})
	before := w.machine("member")
	w.reconcile()
	w.Expect(w.admitted("new-0")).To(BeTrue())
	w.Expect(w.machine("member")).To(Equal(before))
	w.Expect(w.policy().Status.MachineDeployments).To(HaveLen(1))
	w.Expect(rollout.Gated(w.machine("member"))).To(BeFalse())
}

// A topology that is edited later says that it has another order; the rollout goes on.
func TestAnotherOrderOfTheTopologyIsSaid(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	w.reconcile()
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
	amber := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "amber",
		Labels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "a"}}}
	amber.Spec = clusterv1.MachineDeploymentSpec{ClusterName: "c1", Replicas: ptr.To[int32](1), Template: template("v1")}
	w.make(amber)
	blue := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	w.adjust(blue, func() {
		blue.Labels = map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "b"}
	})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() {
		cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: "v1.36.3"}
		cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{Name: "b"}, {Name: "a"}}
	})
	w.reconcile()
	w.Expect(conditions.IsTrue(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
	w.Expect(conditions.GetMessage(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(
		ContainSubstring("amber comes before blue here"))
	w.adjust(cluster, func() {
		cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation: "2"}
	})
	w.reconcile()
	w.Expect(conditions.IsFalse(w.policy(), quoinv1.RolloutPolicyOrderConflictCondition)).To(BeTrue())
}

// Cluster API makes no Machine of another minor version than the control plane's with kubeadm, and of another version
// at all in a managed topology, unless somebody skips that (machineset_preflight.go).
func TestWhichMachineSetsGetNoMachines(t *testing.T) {
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
	for name, c := range map[string]struct {
		runs    []string
		managed bool
		kind    string
		skips   string
		want    string
		// template is what the bootstrap template says to skip.
		template string
	}{
		"the same version":            {[]string{"v1.35.1"}, true, "KubeadmConfigTemplate", "", "", ""},
		"another patch":               {[]string{"v1.35.2"}, false, "KubeadmConfigTemplate", "", "", ""},
		"another patch in a topology": {[]string{"v1.35.2"}, true, "KubeadmConfigTemplate", "", "its topology gives", ""},
		"another minor":               {[]string{"v1.36.1"}, false, "KubeadmConfigTemplate", "", "give it that version", ""},
		"another bootstrap":           {[]string{"v1.36.1"}, false, "RKE2ConfigTemplate", "", "", ""},
		"of a topology":               {[]string{"v1.36.1"}, true, "RKE2ConfigTemplate", "", "its topology gives", ""},
		"in the middle of an upgrade": {[]string{"v1.36.1", "v1.35.1"}, true, "KubeadmConfigTemplate", "", "", ""},
		"nobody knows what runs":      {nil, true, "KubeadmConfigTemplate", "", "", ""},
		"all is skipped":              {[]string{"v1.36.1"}, true, "KubeadmConfigTemplate", "Other, All", "", ""},
		"what forbids it is skipped": {[]string{"v1.36.1"}, true, "KubeadmConfigTemplate",
			"KubeadmVersionSkew,ControlPlaneVersionSkew", "", ""},
		"half of it is skipped": {[]string{"v1.36.1"}, true, "KubeadmConfigTemplate", "ControlPlaneVersionSkew",
			"its topology gives", ""},
		"that of patches is skipped": {[]string{"v1.35.2"}, true, "KubeadmConfigTemplate", "ControlPlaneVersionSkew", "", ""},
		"its templates skip it": {[]string{"v1.36.1"}, true, "KubeadmConfigTemplate", "", "",
			"KubeadmVersionSkew, ControlPlaneVersionSkew"},
		"its own word goes before": {[]string{"v1.36.1"}, true, "KubeadmConfigTemplate", "KubeadmVersionSkew",
			"its topology gives", "All"},
	} {
		cluster, set := &clusterv1.Cluster{}, &clusterv1.MachineSet{}
		pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		if c.managed {
			cluster.Spec.Topology.ClassRef.Name = "class"
			pool.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}
		}
		set.Namespace = "prod"
		set.Annotations = map[string]string{clusterv1.MachineSetSkipPreflightChecksAnnotation: c.skips}
		set.Spec.Template.Spec.Version = "v1.35.1"
		set.Spec.Template.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: c.kind, Name: "blue",
			APIGroup: bootstrapv1.GroupVersion.Group}
		config := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
			Annotations: map[string]string{clusterv1.MachineSetSkipPreflightChecksAnnotation: c.template}}}
		g, reader := NewWithT(t), fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build()
		says, err := skewed(t.Context(), reader, cluster, pool, set, c.runs)
		g.Expect(err).NotTo(HaveOccurred())
		if c.want == "" {
			g.Expect(says).To(BeEmpty(), name)
			continue
		}
		g.Expect(says).To(And(HavePrefix("MachineDeployment blue is of v1.35.1 and the control plane of "+c.runs[0]),
			ContainSubstring(c.want)), name)
	}
}

// A topology upgrades the next pool when the one before is done, and that one is held behind a pool that it has not
// written yet, whose own rollout was begun before: both would wait for ever. It says so, and holds nobody.
func TestAPoolThatItsTopologyHasNotWrittenHoldsNobody(t *testing.T) {
	const older, newer = "v1.35.1", "v1.36.1"
	member := machineOf("member", newer)
	member.OwnerReferences = nil
	member.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1", clusterv1.MachineControlPlaneLabel: ""}
	w := newWorld(t, member, hostedBy("member", ""), machineOf("new-0", "v2"), hostedBy("new-0", "quoin://new-0"))
	w.joins("new-0")
	w.green()
	for name, version := range map[string]string{"green": newer, "blue": older} {
		pool, set := &clusterv1.MachineDeployment{}, &clusterv1.MachineSet{}
		pool.Name, set.Name = name, name+"-v2"
		w.adjust(pool, func() {
			pool.Labels = map[string]string{clusterv1.ClusterTopologyOwnedLabel: ""}
			pool.Spec.Template.Spec.Version = version
		})
		w.adjust(set, func() { set.Spec.Template.Spec.Version = version })
	}
	w.reconcile()
	w.Expect(w.admitted("green-new-0")).To(BeFalse(), "blue was begun, and Cluster API makes more of it")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}
	w.adjust(cluster, func() {
		cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: newer}
	})
	w.reconcile()
	w.Expect(w.admitted("green-new-0")).To(BeTrue())
	w.Expect(w.policy().Status.MachineDeployments[0]).To(And(HaveField("Name", "blue"),
		HaveField("Reason", string(rollout.ControlPlane)),
		HaveField("Message", ContainSubstring("blue is of v1.35.1 and the control plane of v1.36.1"))))
}
