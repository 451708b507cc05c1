// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// certificates last so many days, those of the CA and of Machines, which are replaced so many days before their end.
func certificates(authority, valid, before int32) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		c.Spec.KubeadmConfigSpec.ClusterConfiguration.CACertificateValidityPeriodDays = authority
		c.Spec.KubeadmConfigSpec.ClusterConfiguration.CertificateValidityPeriodDays = valid
		if before > 0 {
			c.Spec.Rollout.Before.CertificatesExpiryDays = ptr.To(before)
		}
	}
}

// tainted Machines keep these taints on their Nodes.
func tainted(keys ...string) change {
	return func(c *controlplanev1.QuoinControlPlane) {
		for _, key := range keys {
			c.Spec.MachineTemplate.Spec.Taints = append(c.Spec.MachineTemplate.Spec.Taints, clusterv1.MachineTaint{Key: key,
				Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways})
		}
	}
}

// named gives etcd's members names of their own, which an earlier release admitted, and images whose tag is none.
var named = configuration(func(c *bootstrapv1.ClusterConfiguration) {
	c.Etcd.Local.ImageTag = "3.6.8 "
	c.Etcd.Local.ExtraArgs = []bootstrapv1.Arg{{Name: "name", Value: ptr.To("one")}}
})

// propagateTaints for the length of a test.
func propagateTaints(t *testing.T, enabled bool) {
	t.Helper()
	was := feature.Gates.Enabled(feature.MachineTaintPropagation)
	set := func(to bool) {
		if err := feature.MutableGates.SetFromMap(map[string]bool{string(feature.MachineTaintPropagation): to}); err != nil {
			t.Error(err)
		}
	}
	set(enabled)
	t.Cleanup(func() { set(was) })
}

func TestMachinesWithTaints(t *testing.T) {
	const path = "machineTemplate.spec.taints"
	for name, c := range map[string]struct {
		enabled bool
		change  change
		refusal string
	}{
		"a taint":                       {true, tainted("example.com/gpu"), ""},
		"a taint, not to be propagated": {false, tainted("example.com/gpu"), "MachineTaintPropagation is disabled"},
		"none, not to be propagated":    {false, unchanged, ""},
		"out of service":                {true, tainted("node.kubernetes.io/out-of-service"), ""},
		"the kubelet's":                 {true, tainted("a", "node.kubernetes.io/not-ready"), path + "[1].key"},
		"a cloud's":                     {true, tainted("node.cloudprovider.kubernetes.io/x"), path + "[0].key"},
		"Cluster API's first":           {true, tainted("node.cluster.x-k8s.io/uninitialized"), "is not allowed"},
		"Cluster API's second":          {true, tainted("node.cluster.x-k8s.io/outdated-revision"), "is not allowed"},
		"a role of earlier years":       {true, tainted("node-role.kubernetes.io/master"), "deprecated"},
		"what is no key":                {true, tainted("not a key!"), path + "[0].key"},
	} {
		t.Run(name, func(t *testing.T) {
			propagateTaints(t, c.enabled)
			refused := controlPlane(c.change)
			_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(), refused)
			expectRefusal(t, err, c.refusal)
			of := template()
			of.Spec.Template.Spec.MachineTemplate.Spec = refused.Spec.MachineTemplate.Spec.MachinePropagatedSpec
			_, err = controlPlaneTemplates.ValidateCreate(t.Context(), of)
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestMachinesThatCannotBeMade(t *testing.T) {
	const loop = "rollout.before.certificatesExpiryDays: Invalid value: 90: each new Machine would be replaced at once, " +
		"for ever: set it to less than certificateValidityPeriodDays (90)"
	for name, c := range map[string]struct {
		change  change
		refusal string
	}{
		"certificates that are replaced in time": {certificates(0, 91, 90), ""},
		"certificates that are always replaced":  {certificates(0, 90, 90), loop},
		"certificates of kubeadm's usual year":   {certificates(0, 0, 360), ""},
		"certificates as old as the CA":          {certificates(90, 90, 7), ""},
		"certificates that outlive the CA": {certificates(90, 91, 7),
			"set it to caCertificateValidityPeriodDays (90) or less"},
		"certificates as old as the usual CA": {certificates(0, 3650, 7), ""},
		"certificates that outlive the usual CA": {certificates(0, 3651, 7),
			"set it to caCertificateValidityPeriodDays (3650) or less"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := controlPlane(c.change)
			_, err := (&ControlPlaneWebhook{}).ValidateCreate(t.Context(), refused)
			expectRefusal(t, err, c.refusal)
			of := template()
			of.Spec.Template.Spec.QuoinControlPlaneCare = refused.Spec.QuoinControlPlaneCare
			of.Spec.Template.Spec.KubeadmConfigSpec = refused.Spec.KubeadmConfigSpec
			_, err = controlPlaneTemplates.ValidateCreate(t.Context(), of)
			expectRefusal(t, err, c.refusal)
		})
	}
}

// What an earlier release admitted is edited elsewhere, and mended.
func TestMachinesThatWereAdmitted(t *testing.T) {
	for name, c := range map[string]struct {
		before, after change
		refusal       string
	}{
		"something else": {certificates(0, 90, 90), func(c *controlplanev1.QuoinControlPlane) {
			certificates(0, 90, 90)(c)
			replicas(3)(c)
		}, ""},
		"something else beside taints": {tainted("a"), func(c *controlplanev1.QuoinControlPlane) {
			tainted("a")(c)
			replicas(3)(c)
		}, ""},
		"something else beside names of members": {named, func(c *controlplanev1.QuoinControlPlane) {
			named(c)
			local := &c.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.Local
			local.ExtraArgs = append([]bootstrapv1.Arg{{Name: "quota", Value: ptr.To("1")}}, local.ExtraArgs...)
		}, ""},
		"names of members, right now": {named, unchanged, ""},
		"names of members":            {unchanged, named, "etcd.local.extraArgs[name]"},
		"a first taint":               {unchanged, tainted("a"), "MachineTaintPropagation"},
		"the days, wrong again":       {certificates(0, 90, 90), certificates(0, 90, 91), "certificatesExpiryDays"},
		"the days, right now":         {certificates(0, 90, 90), certificates(0, 90, 89), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(c.before), controlPlane(c.after))
			expectRefusal(t, err, c.refusal)
		})
	}
}

// What an earlier release admitted is moved with its Cluster, which is paused meanwhile.
func TestMachinesThatAreMoved(t *testing.T) {
	for _, paused := range []bool{true, false} {
		for name, fault := range map[string]change{"certificates": certificates(0, 90, 90), "taints": tainted("a"),
			"names of members": named} {
			t.Run(fmt.Sprintf("%s, paused %t", name, paused), func(t *testing.T) {
				g := NewWithT(t)
				moved := controlPlane(fault)
				moved.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
				moved.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1"}}
				cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: moved.Namespace, Name: "c1"},
					Spec: clusterv1.ClusterSpec{Paused: &paused}}
				scheme := clienttest.Scheme(clusterv1.AddToScheme)
				reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()
				_, err := (&ControlPlaneWebhook{Reader: reader}).ValidateCreate(t.Context(), moved)
				g.Expect(err == nil).To(Equal(paused), "%v", err)

				template := &controlplanev1.QuoinControlPlaneTemplate{}
				template.Spec.Template.Spec.Rollout = moved.Spec.Rollout
				template.Spec.Template.Spec.KubeadmConfigSpec = moved.Spec.KubeadmConfigSpec
				template.Spec.Template.Spec.MachineTemplate.Spec.Taints = moved.Spec.MachineTemplate.Spec.Taints
				_, reasons := validateControlPlaneTemplate(template)
				g.Expect(reasons).NotTo(BeEmpty())
				template.OwnerReferences = moved.OwnerReferences
				_, reasons = validateControlPlaneTemplate(template)
				g.Expect(reasons).To(BeEmpty())
			})
		}
	}
}

func TestCoreDNSThatCannotFollow(t *testing.T) {
	dns := func(tag string) change {
		return configuration(func(c *bootstrapv1.ClusterConfiguration) { c.DNS.ImageTag = tag })
	}
	skipped := func(c *controlplanev1.QuoinControlPlane) {
		c.Annotations = map[string]string{kcpv1.SkipCoreDNSAnnotation: ""}
	}
	const refusal = "dns.imageTag: Forbidden: cannot migrate CoreDNS up to '1.8.0' from '1.12.0'"
	for name, c := range map[string]struct {
		from, to string
		change   change
		refusal  string
	}{
		"forward":                            {"v1.8.0", "v1.12.0", unchanged, ""},
		"back":                               {"v1.12.0", "v1.8.0", unchanged, refusal},
		"back, and left alone":               {"v1.12.0", "v1.8.0", skipped, ""},
		"to what is not known":               {"v1.12.0", "v1.999.0", unchanged, "cannot migrate CoreDNS"},
		"a rebuild of a version not known":   {"v1.999.0", "v1.999.0_site.1", unchanged, ""},
		"no tag before":                      {"", "v1.8.0", unchanged, ""},
		"back to the version's own":          {"v1.12.0", "", unchanged, ""},
		"something else, at an unknown one":  {"v1.999.0", "v1.999.0", replicas(3), ""},
		"away from what an older one stored": {"latest", "v1.12.0", unchanged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(dns(c.from)),
				controlPlane(dns(c.to), c.change))
			expectRefusal(t, err, c.refusal)
		})
	}
}
