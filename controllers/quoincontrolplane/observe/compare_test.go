// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
)

func TestRolloutForAge(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	machine.Status.CertificatesExpiryDate = metav1.NewTime(now.AddDate(0, 0, 20))
	tests := map[string]struct {
		after time.Time
		days  *int32
		want  string
	}{
		"nothing asked":     {},
		"after its making":  {after: now.Add(-time.Minute), want: "spec.rollout.after"},
		"before its making": {after: now.Add(-2 * time.Hour)},
		"in the future":     {after: now.Add(time.Minute)},
		"certificates run out": {days: ptr.To[int32](21),
			want: "Certificates expire at 2026-01-30T00:00:00Z, within 21 days"},
		"certificates long enough": {days: ptr.To[int32](19)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inv := &Inventory{Subject: Subject{ControlPlane: &controlplanev1.QuoinControlPlane{}}}
			if !tt.after.IsZero() {
				inv.ControlPlane.Spec.Rollout.After = metav1.NewTime(tt.after)
			}
			inv.ControlPlane.Spec.Rollout.Before.CertificatesExpiryDays = tt.days
			reason := inv.compareAge(machine, now)
			if tt.want == "" {
				NewWithT(t).Expect(reason).To(BeEmpty())
				return
			}
			NewWithT(t).Expect(reason).To(ContainSubstring(tt.want))
		})
	}
}

// A Machine is replaced for what only a new one can have, and for nothing else that its parts show or do not show.
func TestWhatMakesAMachineOutdated(t *testing.T) {
	const edited, template = "KubeadmConfig is not up-to-date", "QuoinMachine is not up-to-date"
	args := func(value string) []bootstrapv1.Arg { return []bootstrapv1.Arg{{Name: "v", Value: &value}} }
	initArgs := func(value string) func(*Inventory) {
		return func(inv *Inventory) {
			inv.ControlPlane.Spec.KubeadmConfigSpec.InitConfiguration.NodeRegistration.KubeletExtraArgs = args(value)
		}
	}
	joinArgs := func(value string) func(*Inventory) {
		return func(inv *Inventory) {
			inv.ControlPlane.Spec.KubeadmConfigSpec.JoinConfiguration.NodeRegistration.KubeletExtraArgs = args(value)
		}
	}
	version := func(version string) func(*Inventory) {
		return func(inv *Inventory) { inv.Machines["a"].Spec.Version = version }
	}
	clonedFrom := func(annotations map[string]string) func(*Inventory) {
		return func(inv *Inventory) {
			inv.QuoinMachines["a"] = &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		}
	}
	const name, kind = clusterv1.TemplateClonedFromNameAnnotation, clusterv1.TemplateClonedFromGroupKindAnnotation
	const ours = "QuoinMachineTemplate.infrastructure.test"
	anotherName := clonedFrom(map[string]string{name: "before", kind: ours})
	anotherKind := clonedFrom(map[string]string{name: "t", kind: "Other"})
	for row, test := range map[string]struct {
		before func(*Inventory)
		init   bool
		after  []func(*Inventory)
		want   []string
	}{
		"nothing": {},
		"the version alone, whatever defaults come with it": {before: version("v1.35.4"),
			want: []string{"Version v1.35.4, v1.36.3 required"}},
		"its configuration":       {after: []func(*Inventory){joinArgs("1")}, want: []string{edited}},
		"init's is not its own":   {after: []func(*Inventory){initArgs("1")}},
		"it ran init":             {init: true},
		"it ran init differently": {before: initArgs("1"), init: true},
		"it ran init as others join now": {before: initArgs("1"), init: true,
			after: []func(*Inventory){initArgs("2"), joinArgs("1")}},
		"it ran init otherwise than anything now": {before: initArgs("1"), init: true,
			after: []func(*Inventory){initArgs("2"), joinArgs("2")}, want: []string{edited}},
		"nobody knows its configuration": {after: []func(*Inventory){joinArgs("1"),
			func(inv *Inventory) { inv.KubeadmConfigs = nil }}},
		"flags that came by default since": {after: []func(*Inventory){func(inv *Inventory) {
			inv.KubeadmConfigs["a"].Spec.ClusterConfiguration.APIServer.ExtraArgs = nil
		}}},
		"CoreDNS is changed in place": {after: []func(*Inventory){func(inv *Inventory) {
			inv.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v9"
		}}},
		"it is old": {after: []func(*Inventory){func(inv *Inventory) {
			inv.ControlPlane.Spec.Rollout.After = metav1.NewTime(noon.Add(-time.Second))
		}}, want: []string{"Made before 2026-11-28T11:59:59Z (spec.rollout.after)"}},
		"its template":               {after: []func(*Inventory){clonedFrom(map[string]string{name: "t", kind: ours})}},
		"nobody knows its template":  {after: []func(*Inventory){clonedFrom(nil)}},
		"only its template's name":   {after: []func(*Inventory){clonedFrom(map[string]string{name: "before"})}},
		"only its template's kind":   {after: []func(*Inventory){clonedFrom(map[string]string{kind: "Other"})}},
		"another template":           {after: []func(*Inventory){anotherName}, want: []string{template}},
		"a template of another kind": {after: []func(*Inventory){anotherKind}, want: []string{template}},
		"all of it": {before: version("v1.35.4"), after: []func(*Inventory){joinArgs("1"), anotherName},
			want: []string{"Version v1.35.4, v1.36.3 required", template, edited}},
	} {
		t.Run(row, func(t *testing.T) {
			g, inv := NewWithT(t), joined()
			machine := inv.Machines["a"]
			machine.Spec.Version, machine.Spec.InfrastructureRef.Kind = "v1.36.3", "QuoinMachine"
			inv.ControlPlane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.test", Kind: "QuoinMachineTemplate", Name: "t"}
			if test.before != nil {
				test.before(inv)
			}
			made, err := desired.Config(inv.ControlPlane, inv.Cluster.Name, "a", machine.Spec.Version, !test.init)
			g.Expect(err).NotTo(HaveOccurred())
			inv.KubeadmConfigs = map[string]*bootstrapv1.KubeadmConfig{"a": made}
			for _, change := range test.after {
				change(inv)
			}
			g.Expect(inv.compare(noon)).To(Equal(map[string][]string{"a": test.want}))
		})
	}
	inv := joined()
	version("latest")(inv)
	inv.KubeadmConfigs = map[string]*bootstrapv1.KubeadmConfig{"a": {}}
	_, err := inv.compare(noon)
	NewWithT(t).Expect(err).To(MatchError(HavePrefix(`comparing the KubeadmConfig of Machine a: version "latest": `)))
}
