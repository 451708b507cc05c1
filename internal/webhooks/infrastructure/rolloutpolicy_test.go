// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// rolloutsOf admits policies for Cluster prod: it has a topology of pools b, a and c, in this order.
func rolloutsOf(t *testing.T, concurrency string, objects ...client.Object) *RolloutPolicyWebhook {
	t.Helper()
	scheme := clienttest.Scheme(clusterv1.AddToScheme, quoinv1.AddToScheme)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "prod"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{Kind: "QuoinControlPlane", Name: "prod-cp"}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "class"}, Version: "v1.36.3"}
	if concurrency != "" {
		cluster.Annotations = map[string]string{clusterv1.ClusterTopologyUpgradeConcurrencyAnnotation: concurrency}
	}
	objects = append(objects, cluster)
	for _, name := range []string{"b", "a", "c"} {
		cluster.Spec.Topology.Workers.MachineDeployments = append(cluster.Spec.Topology.Workers.MachineDeployments,
			clusterv1.MachineDeploymentTopology{Class: "worker", Name: name})
		pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "prod-" + name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "prod",
				clusterv1.ClusterTopologyMachineDeploymentNameLabel: name}}}
		pool.Spec.ClusterName = "prod"
		pool.Spec.Template.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			Kind: "QuoinMachineTemplate", APIGroup: infrav1.GroupVersion.Group}
		objects = append(objects, pool)
	}
	return &RolloutPolicyWebhook{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

func rolloutPolicy(name string, groups ...quoinv1.RolloutGroup) *quoinv1.RolloutPolicy {
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name}}
	policy.Spec.ClusterName, policy.Spec.Groups = "prod", groups
	return policy
}

func groupOf(names ...string) quoinv1.RolloutGroup {
	return quoinv1.RolloutGroup{Name: names[0], MachineDeployments: quoinv1.RolloutSelector{Names: names}}
}

func groupBy(key string, operator metav1.LabelSelectorOperator, values ...string) quoinv1.RolloutGroup {
	return quoinv1.RolloutGroup{Name: "by", MachineDeployments: quoinv1.RolloutSelector{Labels: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}}
}

// Each policy of the script is written for Cluster prod, whose control plane is prod-cp. Its topology upgrades 3 at
// once unless the script says, and a pool may be another provider's.
func TestPolicyScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/rolloutpolicies.txt", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		policy := rolloutPolicy("workers")
		if err := yaml.UnmarshalStrict([]byte(d.Input), &policy.Spec); err != nil {
			t.Fatal(err)
		}
		policy.Spec.ClusterName = "prod"
		concurrency := "3"
		d.MaybeScanArgs(t, "concurrency", &concurrency)
		w, foreign := rolloutsOf(t, concurrency), &clusterv1.MachineDeployment{}
		if d.MaybeScanArgs(t, "foreign", &foreign.Name) {
			key := client.ObjectKey{Namespace: "tenant", Name: foreign.Name}
			NewWithT(t).Expect(w.Reader.Get(t.Context(), key, foreign)).To(Succeed())
			foreign.Spec.Template.Spec.InfrastructureRef.Kind = "DockerMachineTemplate"
			NewWithT(t).Expect(w.Reader.(client.Client).Update(t.Context(), foreign)).To(Succeed())
		}
		if _, err := w.ValidateCreate(t.Context(), policy); err != nil {
			return err.Error() + "\n"
		}
		return "admitted\n"
	})
}

// Proves: S3-33, C6, K-4
//
// What cannot be kept is refused when it is written, with what to write instead.
func TestRolloutPoliciesThatCannotBeKept(t *testing.T) {
	surge := func(surge, unavailable intstr.IntOrString) *quoinv1.RolloutStrategy {
		return &quoinv1.RolloutStrategy{MaxSurge: &surge, MaxUnavailable: &unavailable}
	}
	window := func(start string, minutes int32, zone string) func(*quoinv1.RolloutPolicySpec) {
		return func(spec *quoinv1.RolloutPolicySpec) {
			spec.Windows = []quoinv1.RolloutWindow{{Start: start, DurationMinutes: &minutes, TimeZone: zone}}
		}
	}
	controlPlane := func(label string) func(*quoinv1.RolloutPolicySpec) {
		return func(spec *quoinv1.RolloutPolicySpec) {
			spec.Groups = []quoinv1.RolloutGroup{groupBy(label, metav1.LabelSelectorOpExists)}
			spec.Groups[0].Strategy = surge(intstr.FromInt32(3), intstr.FromInt32(0))
		}
	}
	for name, c := range map[string]struct {
		policy  func(*quoinv1.RolloutPolicySpec)
		refusal string
	}{
		"nothing special":           {func(*quoinv1.RolloutPolicySpec) {}, ""},
		"a window":                  {window("22:00", 60, "Europe/Vienna"), ""},
		"no such zone":              {window("22:00", 60, "Europe/Wien"), "spec.windows[0]: Invalid value: \"22:00\""},
		"the zone of whatever runs": {window("22:00", 60, "Local"), "give one such as Europe/Vienna"},
		"no time":                   {window("25:00", 60, ""), "no time of day"},
		"never open":                {window("22:00", 0, ""), "never opens"},
		"negative": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = surge(intstr.FromInt32(-1), intstr.FromInt32(1))
		}, "spec.strategy"},
		"no number": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-a")}
			spec.Groups[0].Strategy = surge(intstr.FromString("a few"), intstr.FromInt32(1))
		}, "spec.groups[0].strategy"},
		"neither": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = surge(intstr.FromString("0%"), intstr.FromInt32(0))
		}, "cannot both be 0"},
		"neither, with what a group inherits": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(0))}
			spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-a"), groupOf("prod-b")}
			spec.Groups[1].Strategy = &quoinv1.RolloutStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(0))}
		}, "spec.groups[1].strategy: Invalid value: \"0\": maxSurge and maxUnavailable cannot both be 0"},
		"neither, but for what a group inherits": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = surge(intstr.FromInt32(0), intstr.FromInt32(2))
			spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-a")}
			spec.Groups[0].Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(3))}
		}, ""},
		"all are to stay, with what a group inherits": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = &quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{
				MinAvailable: ptr.To(intstr.FromString("100%"))}}
			spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-a")}
			spec.Groups[0].Strategy = surge(intstr.FromInt32(0), intstr.FromInt32(1))
		}, "spec.groups[0].strategy: Invalid value: \"100%\": minAvailable 100% leaves no Machine to replace"},
		"all are to stay, and one more is made": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Strategy = surge(intstr.FromInt32(1), intstr.FromInt32(0))
			spec.Strategy.MinAvailable = ptr.To(intstr.FromString("100%"))
		}, ""},
		"a selector that is none": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Groups = []quoinv1.RolloutGroup{groupBy("tier", "Near")}
		}, "spec.groups[0].machineDeployments.labels: Invalid value: \"by\": \"Near\" is not a valid label selector"},
		"the control plane by its name": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-a"), groupOf("prod-cp")}
			spec.Groups[1].Strategy = surge(intstr.FromInt32(3), intstr.FromInt32(0))
		}, "spec.groups[1].machineDeployments.names: Forbidden: QuoinControlPlane prod-cp is the control plane"},
		"the control plane by its label": {controlPlane(clusterv1.MachineControlPlaneLabel),
			"surges by one Machine at most, as spec.rollout.strategy of the QuoinControlPlane says"},
		"any other label": {controlPlane("tier"), ""},
		"all but the control plane": {func(spec *quoinv1.RolloutPolicySpec) {
			spec.Groups = []quoinv1.RolloutGroup{groupBy(clusterv1.MachineControlPlaneLabel, metav1.LabelSelectorOpDoesNotExist)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			policy, w := rolloutPolicy("workers"), rolloutsOf(t, "3")
			c.policy(&policy.Spec)
			_, created := w.ValidateCreate(t.Context(), policy)
			_, updated := w.ValidateUpdate(t.Context(), rolloutPolicy("workers", groupOf("other")), policy)
			for _, err := range []error{created, updated} {
				if c.refusal == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(c.refusal)))
				}
			}
			_, err := w.ValidateUpdate(t.Context(), policy, policy.DeepCopy())
			g.Expect(err).NotTo(HaveOccurred(), "what it says already is nobody's to refuse")
			going := policy.DeepCopy()
			going.DeletionTimestamp = ptr.To(metav1.Now())
			_, err = w.ValidateUpdate(t.Context(), rolloutPolicy("workers"), going)
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

// A former release took a group's strategy for all of it. What it admitted can be edited, and moved.
func TestAStoredPolicyStaysItsUsers(t *testing.T) {
	g := NewWithT(t)
	stored := rolloutPolicy("workers", groupOf("prod-a"))
	stored.Spec.Strategy = &quoinv1.RolloutStrategy{MaxUnavailable: ptr.To(intstr.FromInt32(0))}
	stored.Spec.Groups[0].Strategy = &quoinv1.RolloutStrategy{MaxSurge: ptr.To(intstr.FromInt32(0))}
	w := rolloutsOf(t, "3")
	_, err := w.ValidateCreate(t.Context(), stored)
	g.Expect(err).To(MatchError(ContainSubstring("maxSurge and maxUnavailable cannot both be 0")))

	suspended := stored.DeepCopy()
	suspended.Spec.Groups[0].Suspend = ptr.To(true)
	_, err = w.ValidateUpdate(t.Context(), stored, suspended)
	g.Expect(err).NotTo(HaveOccurred())
	worse := suspended.DeepCopy()
	worse.Spec.Groups = append(worse.Spec.Groups, groupOf("prod-b"))
	worse.Spec.Groups[1].Strategy = stored.Spec.Groups[0].Strategy
	_, err = w.ValidateUpdate(t.Context(), stored, worse)
	g.Expect(err).To(MatchError(ContainSubstring("spec.groups[1].strategy")))

	cluster := &clusterv1.Cluster{}
	g.Expect(w.Reader.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "prod"}, cluster)).To(Succeed())
	cluster.Spec.Paused = ptr.To(true)
	g.Expect(w.Reader.(client.Client).Update(t.Context(), cluster)).To(Succeed())
	_, err = w.ValidateCreate(t.Context(), stored)
	g.Expect(err).To(HaveOccurred(), "a person makes it")
	stored.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "prod"}}
	_, err = w.ValidateCreate(t.Context(), stored)
	g.Expect(err).NotTo(HaveOccurred(), "it is moved")
}

// A managed topology upgrades one pool at a time in the order of its list, unless all may go at once.
func TestTheOrderIsTheTopologys(t *testing.T) {
	for name, c := range map[string]struct {
		concurrency string
		groups      []quoinv1.RolloutGroup
		refusal     string
	}{
		"its own order": {"", []quoinv1.RolloutGroup{groupOf("prod-b"), groupOf("prod-a"), groupOf("prod-c")}, ""},
		"a part of it":  {"", []quoinv1.RolloutGroup{groupOf("prod-b"), groupOf("prod-c")}, ""},
		"another one": {"", []quoinv1.RolloutGroup{groupOf("prod-c"), groupOf("prod-a")},
			"prod-c comes before prod-a here, and after it in the Cluster's topology, which upgrades 1 at once"},
		"the alphabet":             {"", nil, "prod-a comes before prod-b here"},
		"the alphabet in a group":  {"", []quoinv1.RolloutGroup{groupOf("prod-a", "prod-b")}, `upgrade-concurrency: "3"`},
		"two at once are too few":  {"2", []quoinv1.RolloutGroup{groupOf("prod-c"), groupOf("prod-a")}, "upgrades 2 at once"},
		"all at once":              {"3", []quoinv1.RolloutGroup{groupOf("prod-c"), groupOf("prod-a")}, ""},
		"what is not there is not": {"", []quoinv1.RolloutGroup{groupOf("other"), groupOf("prod-b")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := rolloutsOf(t, c.concurrency).ValidateCreate(t.Context(), rolloutPolicy("workers", c.groups...))
			if c.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(c.refusal)))
		})
	}
}

// A topology that upgrades fewer than all at once counts a pool that is suspended, and others wait for it. They say
// nothing of that themselves, since nothing of theirs is to be replaced before they get the version.
func TestASuspendedGroupThatKeepsItsTopologyIsWarnedOf(t *testing.T) {
	g := NewWithT(t)
	policy := rolloutPolicy("workers", groupOf("prod-b"), groupOf("prod-a", "prod-c"))
	g.Expect(rolloutsOf(t, "3").ValidateCreate(t.Context(), policy)).To(BeEmpty())
	policy.Spec.Groups[0].Suspend = ptr.To(true)
	g.Expect(rolloutsOf(t, "3").ValidateCreate(t.Context(), policy)).To(BeEmpty(), "all go at once")
	g.Expect(rolloutsOf(t, "1").ValidateCreate(t.Context(), policy)).To(ConsistOf(And(
		HavePrefix("MachineDeployment prod-b is suspended, and others go on, but the Cluster's topology upgrades 1 at once"),
		HaveSuffix(`upgrade-concurrency: "3"`))))
	policy.Spec.Groups = nil
	g.Expect(rolloutsOf(t, "3").ValidateCreate(t.Context(), policy)).To(BeEmpty())
}

// The topology got another order after the policy. Its rollout is continued and suspended all the same.
func TestAPolicyWhoseOrderConflictsIsEdited(t *testing.T) {
	g := NewWithT(t)
	w, stored := rolloutsOf(t, ""), rolloutPolicy("workers")
	_, err := w.ValidateCreate(t.Context(), stored)
	g.Expect(err).To(HaveOccurred(), "its order is not the topology's")
	going := stored.DeepCopy()
	going.Spec.ContinueAfter = "prod-b-1"
	_, err = w.ValidateUpdate(t.Context(), stored, going)
	g.Expect(err).NotTo(HaveOccurred())
	going.Spec.Groups = []quoinv1.RolloutGroup{groupOf("prod-cp")}
	_, err = w.ValidateUpdate(t.Context(), stored, going)
	g.Expect(err).To(MatchError(ContainSubstring("spec.groups[0].machineDeployments.names")), "that is new")
}

func TestASecondRolloutPolicyIsWarnedOf(t *testing.T) {
	g := NewWithT(t)
	first := rolloutPolicy("first")
	first.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	w := rolloutsOf(t, "3", first)
	warnings, err := w.ValidateCreate(t.Context(), rolloutPolicy("second"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(ConsistOf(ContainSubstring("RolloutPolicy first of Cluster prod is older and holds alone")))
	warnings, err = w.ValidateUpdate(t.Context(), first, rolloutPolicy("first", groupOf("prod-a")))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(warnings).To(BeEmpty())
	elsewhere := rolloutPolicy("third")
	elsewhere.Spec.ClusterName = "not-yet-made"
	g.Expect(w.ValidateCreate(t.Context(), elsewhere)).To(BeEmpty())
}

// An autoscaler that does not know of rollouts takes a Machine that is held for one that failed.
func TestAnImpatientAutoscalerIsWarnedOf(t *testing.T) {
	g := NewWithT(t)
	w := rolloutsOf(t, "3")
	pool := &clusterv1.MachineDeployment{}
	g.Expect(w.Reader.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "prod-b"}, pool)).To(Succeed())
	writer := w.Reader.(client.Client)
	annotate := func(key, value string) {
		metav1.SetMetaDataAnnotation(&pool.ObjectMeta, key, value)
		g.Expect(writer.Update(t.Context(), pool)).To(Succeed())
	}
	g.Expect(w.ValidateCreate(t.Context(), rolloutPolicy("workers"))).To(BeEmpty())
	annotate(clusterv1.AutoscalerMaxSizeAnnotation, "5")
	g.Expect(w.ValidateCreate(t.Context(), rolloutPolicy("workers"))).To(ConsistOf(
		HaveSuffix("into annotations of MachineDeployment prod-b")))
	g.Expect(w.ValidateCreate(t.Context(), rolloutPolicy("workers", groupOf("prod-a")))).To(BeEmpty())
	for key, value := range map[string]string{clusterv1.ClusterTopologyOwnedLabel: "", clusterv1.ClusterNameLabel: "prod",
		clusterv1.ClusterTopologyMachineDeploymentNameLabel: "b"} {
		metav1.SetMetaDataLabel(&pool.ObjectMeta, key, value)
	}
	g.Expect(writer.Update(t.Context(), pool)).To(Succeed())
	g.Expect(w.ValidateCreate(t.Context(), rolloutPolicy("workers"))).To(ConsistOf(
		HaveSuffix("into spec.topology.workers.machineDeployments[name=b].metadata.annotations of Cluster prod")))
	annotate(provisionTime, "168h")
	g.Expect(w.ValidateCreate(t.Context(), rolloutPolicy("workers"))).To(BeEmpty())
}
