// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

// What is said is as long as the API takes, and no shorter.
func TestTextIsAsLongAsTheAPITakes(t *testing.T) {
	g, long := NewWithT(t), strings.Repeat("a", 5000)
	g.Expect(short(long)).To(HaveLen(4096))
	g.Expect(bounded([]string{long})).To(HaveExactElements(HaveLen(1024)))
}

// setForward is what a clock knows that was set forward.
func setForward(at time.Time, by time.Duration) steady.Steps {
	shows := at
	clock := steady.From(func() time.Time { return shows }, func() time.Duration { return 0 })
	shows = at.Add(by)
	return steady.StepsOf(clock)
}

// An upgrade has a day to begin, and a day to end once it has begun. One that is paused before it begins has as long as
// it is paused.
func TestTheDeadlineOfAnUpgrade(t *testing.T) {
	paused := func(of *deliberation) {
		of.set(quoinv1.ClusterUpgradePausedCondition, metav1.ConditionTrue, quoinv1.PausedReason, "")
	}
	marked := func(of *deliberation, annotation string) {
		metav1.SetMetaDataAnnotation(&of.upgrade.ObjectMeta, annotation, Mark(of.upgrade, of.now))
	}
	const begins = "it was to begin within 24h0m0s and goes on as soon as it can"
	const ends = "it was to end within 24h0m0s and goes on as soon as it can"
	for name, c := range map[string]struct {
		change func(*deliberation)
		after  time.Duration
		late   string
		again  time.Duration
	}{
		"its last second": {change: func(*deliberation) {}, after: 86399 * time.Second, again: time.Second},
		"its last second by a clock that was set forward by a day": {change: func(of *deliberation) {
			of.Steps = setForward(of.now, 24*time.Hour)
		}, after: 2*86400*time.Second - time.Second, again: time.Second},
		"a day, and not begun": {change: func(*deliberation) {}, after: 86400 * time.Second, late: begins},
		"what it waits for": {change: func(of *deliberation) { of.progress(metav1.ConditionFalse, "Blocked", "no") },
			after: 86400 * time.Second, late: begins + "; no"},
		"made who knows when": {change: func(of *deliberation) { of.upgrade.CreationTimestamp = metav1.Time{} },
			after: 86400 * time.Second},
		"paused before it begins": {change: paused, after: 86400 * time.Second},
		"its last second, begun": {change: func(of *deliberation) {
			of.upgrade.CreationTimestamp = metav1.NewTime(of.now.Add(-time.Hour))
			marked(of, quoinv1.ClusterUpgradeBegunAnnotation)
		}, after: 86399 * time.Second, again: time.Second},
		"paused, begun": {change: func(of *deliberation) {
			paused(of)
			marked(of, quoinv1.ClusterUpgradeBegunAnnotation)
		}, after: 86400 * time.Second, late: ends},
		"done": {change: func(of *deliberation) {
			marked(of, quoinv1.ClusterUpgradeBegunAnnotation)
			marked(of, quoinv1.ClusterUpgradeCompletedAnnotation)
		}, after: 86400 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g, of := NewWithT(t), about()
			of.upgrade.CreationTimestamp = metav1.NewTime(of.now)
			c.change(of)
			of.now = of.now.Add(c.after)
			of.deadline()
			stalled := meta.FindStatusCondition(of.Status.Conditions, quoinv1.ClusterUpgradeStalledCondition)
			g.Expect(stalled.Message).To(Equal(c.late))
			g.Expect(stalled.Status == metav1.ConditionTrue).To(Equal(c.late != ""))
			g.Expect(of.Again).To(Equal(c.again))
		})
	}
}
