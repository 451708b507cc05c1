// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
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
