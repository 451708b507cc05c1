// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// A step that fails again and again is told once.
func TestRetriesAreToldOnce(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	w.edit(func(p *controlplanev1.QuoinControlPlane) {
		p.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v1.3.0"
	})
	recorder := events.NewFakeRecorder(10)
	w.r.Recorder = recorder
	for range 3 {
		_, err := w.r.Reconcile(t.Context(), request())
		g.Expect(err).To(HaveOccurred())
	}
	g.Expect(recorder.Events).To(HaveLen(1))
}
