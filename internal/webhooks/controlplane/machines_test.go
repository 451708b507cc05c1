// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
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

func TestMachinesThatCannotBeMade(t *testing.T) {
	const loop = "rollout.before.certificatesExpiryDays: Invalid value: 90: each new Machine would be replaced at once, for " +
		"ever: set it to less than certificateValidityPeriodDays (90)"
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
		"the days, wrong again": {certificates(0, 90, 90), certificates(0, 90, 91), "certificatesExpiryDays"},
		"the days, right now":   {certificates(0, 90, 90), certificates(0, 90, 89), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ControlPlaneWebhook{}).ValidateUpdate(t.Context(), controlPlane(c.before), controlPlane(c.after))
			expectRefusal(t, err, c.refusal)
		})
	}
}
