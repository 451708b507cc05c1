// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

type change func(*controlplanev1.QuoinControlPlane)

func controlPlane(changes ...change) *controlplanev1.QuoinControlPlane {
	c := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp"}}
	c.Spec.Replicas = ptr.To[int32](1)
	c.Spec.Version = "v1.35.4"
	c.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinMachineTemplate", Name: "cp",
	}
	for _, apply := range changes {
		apply(c)
	}
	return c
}

func replicas(n int32) change {
	return func(c *controlplanev1.QuoinControlPlane) { c.Spec.Replicas = &n }
}

func version(v string) change {
	return func(c *controlplanev1.QuoinControlPlane) { c.Spec.Version = v }
}

func kubeadm(apply func(*bootstrapv1.KubeadmConfigSpec)) change {
	return func(c *controlplanev1.QuoinControlPlane) { apply(&c.Spec.KubeadmConfigSpec) }
}

func configuration(apply func(*bootstrapv1.ClusterConfiguration)) change {
	return kubeadm(func(s *bootstrapv1.KubeadmConfigSpec) { apply(&s.ClusterConfiguration) })
}

var externalEtcd = configuration(func(c *bootstrapv1.ClusterConfiguration) {
	c.Etcd.External.Endpoints = []string{"https://192.0.2.20:2379"}
})

func unchanged(*controlplanev1.QuoinControlPlane) {}

func deleting(c *controlplanev1.QuoinControlPlane) {
	now := metav1.Now()
	c.DeletionTimestamp = &now
	c.Finalizers = []string{controlplanev1.ControlPlaneFinalizer}
}

func expectRefusal(t *testing.T, err error, refusal string) {
	t.Helper()
	g := NewWithT(t)
	if refusal == "" {
		g.Expect(err).NotTo(HaveOccurred())
	} else {
		g.Expect(err).To(MatchError(ContainSubstring(refusal)))
	}
}

func TestControlPlaneDefaults(t *testing.T) {
	g := NewWithT(t)
	for typed, want := range map[string]string{
		"v1.36.3": "v1.36.3", "1.36.3": "v1.36.3", "1.36.0-rc.1": "v1.36.0-rc.1",
		// What is no version is shown as it was typed.
		"latest": "latest", "1.36": "1.36",
	} {
		c := controlPlane(version(typed))
		c.Spec.Replicas = nil
		g.Expect((&ControlPlaneWebhook{}).Default(t.Context(), c)).To(Succeed())
		g.Expect(c.Spec.Version).To(Equal(want))
		g.Expect(c.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
	}
	c := controlPlane(replicas(3))
	g.Expect((&ControlPlaneWebhook{}).Default(t.Context(), c)).To(Succeed())
	g.Expect(c.Spec.Replicas).To(HaveValue(BeEquivalentTo(3)))
}

func removeFirst(c *controlplanev1.QuoinControlPlane) {
	c.Spec.Rollout.Strategy = controlplanev1.RolloutStrategyRemoveFirst
}

func TestControlPlaneSpec(t *testing.T) {
	ref := func(group, kind, name string) change {
		return func(c *controlplanev1.QuoinControlPlane) {
			c.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: group,
				Kind: kind, Name: name}
		}
	}
	annotated := func(annotation string) change {
		return func(c *controlplanev1.QuoinControlPlane) {
			c.Spec.MachineTemplate.ObjectMeta.Annotations = map[string]string{annotation: ""}
		}
	}
	labeled := func(value string) change {
		return func(c *controlplanev1.QuoinControlPlane) {
			c.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": value}
		}
	}
	gates := func(n int) change {
		return func(c *controlplanev1.QuoinControlPlane) {
			for i := range n {
				c.Spec.MachineTemplate.Spec.ReadinessGates = append(c.Spec.MachineTemplate.Spec.ReadinessGates,
					clusterv1.MachineReadinessGate{ConditionType: fmt.Sprintf("Gate%d", i)})
			}
		}
	}
	for name, c := range map[string]struct {
		change  change
		refusal string
	}{
		"27 readiness gates": {gates(27), ""},
		"28 readiness gates": {gates(28), "must have at most 27 items"},
		"1 replica":          {replicas(1), ""},
		"3 replicas":         {replicas(3), ""},
		"5 replicas":         {replicas(5), ""},
		"0 replicas":         {replicas(0), "at least one replica"},
		"2 replicas": {replicas(2),
			"spec.replicas: Forbidden: 2 replicas with stacked etcd survive no more failures than 1 do: use an odd number, 1 " +
				"or 3"},
		"4 replicas": {replicas(4), "use an odd number, 3 or 5"},
		"1 replica, remove first": {func(c *controlplanev1.QuoinControlPlane) { replicas(1)(c); removeFirst(c) },
			"set spec.rollout.strategy to Surge or Auto"},
		"3 replicas, remove first": {func(c *controlplanev1.QuoinControlPlane) { replicas(3)(c); removeFirst(c) }, ""},
		"2 replicas, external etcd, remove first": {func(c *controlplanev1.QuoinControlPlane) {
			replicas(2)(c)
			externalEtcd(c)
			removeFirst(c)
		}, "2 replicas leave nothing to rely on"},
		"2 replicas, external etcd": {func(c *controlplanev1.QuoinControlPlane) { replicas(2)(c); externalEtcd(c) }, ""},
		"0 replicas, external etcd": {func(c *controlplanev1.QuoinControlPlane) { replicas(0)(c); externalEtcd(c) },
			"at least one replica"},
		"a version":                {version("v1.36.3"), ""},
		"a pre-release":            {version("v1.37.0-rc.1"), ""},
		"a version of two numbers": {version("v1.36"), "such as v1.36.3"},
		"a version without v":      {version("1.36.3"), "such as v1.36.3"},
		"no version at all":        {version("latest"), "such as v1.36.3"},
		"a version with a tail":    {version("v1.36.3.1"), "such as v1.36.3"},
		"a template of another kind": {ref("infrastructure.cluster.x-k8s.io", "DockerMachineTemplate", "cp"),
			"infrastructureRef.kind"},
		"of another group": {ref("quoin.test", "QuoinMachineTemplate", "cp"), "infrastructureRef.apiGroup"},
		"without a name": {ref("infrastructure.cluster.x-k8s.io", "QuoinMachineTemplate", ""),
			"infrastructureRef.name"},
		"an annotation": {annotated("example.com/note"), ""},
		"a pre-drain hook": {annotated("pre-drain.delete.hook.machine.cluster.x-k8s.io/mine"),
			"comes back each time"},
		"a pre-terminate hook": {annotated(controlplanev1.PreTerminateHookAnnotation), "comes back each time"},
		"a label":              {labeled("b"), ""},
		"no label":             {labeled("not a label!"), "spec.machineTemplate.metadata.labels"},
		"an image tag": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.DNS.ImageTag = "v1.14.2"
		}), ""},
		"no image tag": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.DNS.ImageTag = "v1:2"
		}), "dns.imageTag"},
		"an image tag with a tail": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.DNS.ImageTag = "v1.14.2_site.1"
		}), ""},
		"a tag that is no version": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.DNS.ImageTag = "latest"
		}), "give a version of CoreDNS"},
		"no image tag of etcd": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.Etcd.Local.ImageTag = "v1+2"
		}), "etcd.local.imageTag"},
		"a name of etcd's members": {configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.Etcd.Local.ExtraArgs = []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("1")},
				{Name: "name", Value: ptr.To("one")}}
		}), "etcd.local.extraArgs[name]"},
		"both kinds of etcd": {func(c *controlplanev1.QuoinControlPlane) {
			externalEtcd(c)
			c.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.Local.ImageTag = "3.6.8-0"
		}, "either local or external"},
		"cloud-config": {kubeadm(func(s *bootstrapv1.KubeadmConfigSpec) { s.Format = bootstrapv1.CloudConfig }), ""},
		"ignition": {kubeadm(func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Format = bootstrapv1.Ignition
		}), "spec.kubeadmConfigSpec.format: Unsupported value"},
		"a file given twice": {kubeadm(func(s *bootstrapv1.KubeadmConfigSpec) {
			s.Files = []bootstrapv1.File{{Path: "/a", Content: "x"}, {Path: "/a", Content: "y"}}
		}), "spec.kubeadmConfigSpec.files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(), controlPlane(c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}

// Proves: S0-15, S0-19
func TestControlPlaneVersionFollows(t *testing.T) {
	for name, c := range map[string]struct{ from, to, refusal string }{
		"the same":          {"v1.35.4", "v1.35.4", ""},
		"a later patch":     {"v1.35.0", "v1.35.4", ""},
		"the next minor":    {"v1.35.4", "v1.36.3", ""},
		"a skipped minor":   {"v1.34.4", "v1.36.3", "go to v1.35 first (R8), then v1.36.3"},
		"an earlier minor":  {"v1.36.3", "v1.35.4", "set v1.36.3 or later (R21)"},
		"an earlier patch":  {"v1.36.3", "v1.36.1", "spec.version: Forbidden"},
		"no version at all": {"v1.36.3", "next", "such as v1.36.3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(version(c.from), running()),
				controlPlane(version(c.to)))
			expectRefusal(t, err, c.refusal)
			_, err = (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(version(c.from), running()),
				controlPlane(version(c.to), deleting))
			expectRefusal(t, err, "")
		})
	}
}

// running is a control plane after kubeadm init, with kubelets of these versions.
func running(versions ...string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		for _, v := range versions {
			c.Status.Versions = append(c.Status.Versions, clusterv1.StatusVersion{Version: v, Replicas: 1})
		}
	}
}

// Proves: S0-15, S0-19
func TestControlPlaneVersionFollowsWhatRuns(t *testing.T) {
	for name, c := range map[string]struct {
		status            change
		from, to, refusal string
	}{
		"nothing runs yet":               {unchanged, "v1.36.3", "v1.34.1", ""},
		"a mistake taken back":           {running("v1.35.4"), "v1.36.3", "v1.35.4", ""},
		"a mistake corrected":            {running("v1.35.4"), "v1.36.3", "v1.36.2", ""},
		"a rollout under way taken back": {running("v1.35.4", "v1.36.3"), "v1.36.3", "v1.35.4", "older than v1.36.3"},
		"a second edit skips a minor":    {running("v1.35.4"), "v1.36.3", "v1.37.0", "skips a minor after v1.35.4"},
		"several minors": {running("v1.33.4"), "v1.33.4", "v1.36.3",
			"go to v1.34 first (R8), then v1.35, then v1.36.3"},
		"the oldest is one minor behind": {running("v1.35.4", "v1.36.3"), "v1.36.3", "v1.37.0",
			"go to v1.36 first (R8), then v1.37.0"},
		"an edit of something else":       {running("v1.37.0"), "v1.36.3", "v1.36.3", ""},
		"what runs has no proper version": {running("odd"), "v1.36.3", "v1.35.4", "older than v1.36.3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(version(c.from), c.status),
				controlPlane(version(c.to), replicas(3)))
			expectRefusal(t, err, c.refusal)
		})
	}
}

// What a newer release would not admit is labeled, paused and moved all the same.
func TestAnEditThatLeavesTheSpecIsNotRefused(t *testing.T) {
	labeled := func(c *controlplanev1.QuoinControlPlane) { c.Labels = map[string]string{"a": "b"} }
	_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(version("latest")),
		controlPlane(version("latest"), labeled))
	expectRefusal(t, err, "")
	_, err = (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(version("latest")),
		controlPlane(version("latest"), labeled, replicas(3)))
	expectRefusal(t, err, "such as v1.36.3")
}

func TestControlPlaneScaleByEdit(t *testing.T) {
	for name, c := range map[string]struct {
		to      int32
		refusal string
	}{
		"to 3": {3, ""},
		"to 2": {2, "use an odd number"},
		"to 0": {0, "at least one replica"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(), controlPlane(replicas(c.to)))
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestClusterConfigurationThatCannotFollow(t *testing.T) {
	const path = "spec.kubeadmConfigSpec.clusterConfiguration."
	for name, c := range map[string]struct {
		before, after change
		refusal       string
	}{
		"image repository": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.ImageRepository = "quoin.test/mirror"
		}), ""},
		"API server arguments": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.APIServer.ExtraArgs = []bootstrapv1.Arg{{Name: "profiling", Value: ptr.To("false")}}
		}), ""},
		"controller manager": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.ControllerManager.ExtraArgs = []bootstrapv1.Arg{{Name: "profiling", Value: ptr.To("false")}}
		}), ""},
		"scheduler": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.Scheduler.ExtraArgs = []bootstrapv1.Arg{{Name: "profiling", Value: ptr.To("false")}}
		}), ""},
		"CoreDNS": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.DNS.ImageTag = "v1.14.2"
		}), ""},
		"local etcd": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.Etcd.Local.ImageTag = "3.6.8-0"
		}), ""},
		"feature gates": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.FeatureGates = map[string]bool{"A": true}
		}), ""},
		"certificates": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.CertificateValidityPeriodDays = 90
		}), ""},
		"key algorithm": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.EncryptionAlgorithm = bootstrapv1.EncryptionAlgorithmRSA4096
		}), ""},
		"a join command": {unchanged, kubeadm(func(s *bootstrapv1.KubeadmConfigSpec) {
			s.PreKubeadmCommands = []string{"true"}
		}), ""},

		"certificates folder": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.CertificatesDir = "/etc/pki"
		}), path + "certificatesDir"},
		"CA validity": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.CACertificateValidityPeriodDays = 90
		}), path + "caCertificateValidityPeriodDays"},
		"endpoint": {unchanged, configuration(func(c *bootstrapv1.ClusterConfiguration) {
			c.ControlPlaneEndpoint = "192.0.2.10:6443"
		}), path + "controlPlaneEndpoint"},
		"to external etcd": {unchanged, externalEtcd, path + "etcd.external"},
		"to stacked etcd":  {externalEtcd, unchanged, path + "etcd.external"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(c.before), controlPlane(c.after))
			expectRefusal(t, err, c.refusal)
			_, err = (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(c.before),
				controlPlane(c.after, deleting))
			expectRefusal(t, err, "")
			_, err = (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(c.after), controlPlane(c.after))
			expectRefusal(t, err, "")
		})
	}
}
