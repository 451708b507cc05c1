// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// What is measured of an upgrade is what it does now, and is gone with its end.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	info.Reset()
	stalled.Reset()
	stepSeconds.Reset()
	at := func(step quoinv1.UpgradeStepType) float64 {
		return testutil.ToFloat64(info.WithLabelValues(key.Namespace, key.Name, "c1", "v1.36.3", string(step)))
	}
	late := func() float64 { return testutil.ToFloat64(stalled.WithLabelValues(key.Namespace, key.Name)) }
	w.reconcile()
	w.Expect(at(quoinv1.UpgradeStepPreflight)).To(Equal(1.0))
	w.Expect(testutil.CollectAndCount(info)).To(Equal(1), "one step at a time")
	w.Expect(late()).To(Equal(0.0))
	w.advance()
	w.reconcile()
	w.clock.Step(48 * time.Hour)
	w.reconcile()
	w.Expect(late()).To(Equal(1.0))

	w.run()
	w.expectEnd()
	w.Expect(testutil.CollectAndCount(info)).To(BeZero())
	w.Expect(testutil.CollectAndCount(stalled)).To(BeZero())
	w.Expect(testutil.CollectAndCount(stepSeconds)).NotTo(BeZero())

	// So it is with what is deleted on its way.
	w = newWorld(t)
	w.reconcile()
	w.Expect(testutil.CollectAndCount(info)).To(Equal(1))
	w.Expect(w.client.Delete(t.Context(), w.upgrade())).To(Succeed())
	w.reconcile()
	w.Expect(testutil.CollectAndCount(info)).To(BeZero())
	w.Expect(testutil.CollectAndCount(stalled)).To(BeZero())
}
