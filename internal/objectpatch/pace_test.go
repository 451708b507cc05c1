// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectpatch

import (
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

func TestWordsAreWrittenOnceInASecond(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	pace := &Pace{Now: func() time.Time { return now }, Counts: []string{"provisioned"}}
	cluster := w.read()
	cluster.UID, cluster.Status.Initialization.Provisioned = "uid", ptr.To(false)
	// tell changes the Ready condition as somebody else has read it, and asks whether that is early.
	tell := func(reason, message string) time.Duration {
		helper := w.helper(cluster)
		conditions.Set(cluster, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason,
			Message: message})
		return helper.Early(pace, cluster)
	}
	w.Expect(tell("Working", "step 1")).To(BeZero(), "the first words")
	now = now.Add(400 * time.Millisecond)
	w.Expect(tell("Working", "step 2")).To(Equal(600*time.Millisecond), "nothing but words, too early")
	w.Expect(tell("Broken", "step 2")).To(BeZero(), "more than words")
	now = now.Add(999 * time.Millisecond)
	w.Expect(tell("Broken", "step 3")).To(Equal(time.Millisecond), "what was more than words counts too")
	now = now.Add(time.Millisecond)
	w.Expect(tell("Broken", "step 4")).To(BeZero())

	helper := w.helper(cluster)
	cluster.Status.Initialization.Provisioned = ptr.To(true)
	w.Expect(helper.Early(pace, cluster)).To(Equal(time.Second), "a count is no more than words")
	helper = w.helper(cluster)
	cluster.Labels = map[string]string{"a": "b"}
	w.Expect(helper.Early(pace, cluster)).To(BeZero(), "a label is no word")
	helper = w.helper(cluster)
	w.Expect(helper.Early(pace, cluster)).To(BeZero(), "nothing changed, so nothing waits")
	var nobody *Pace
	w.Expect(helper.Early(nobody, cluster)).To(BeZero())
}

// Of 1,000 objects, each of which says something and goes, nothing is remembered but the last.
func TestNothingIsRememberedOfObjectsThatAreGone(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	pace := &Pace{Now: func() time.Time { return now }}
	for i := range memorytest.Lives {
		cluster := w.read()
		cluster.UID = types.UID(strconv.Itoa(i))
		helper := w.helper(cluster)
		conditions.Set(cluster, metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Working"})
		w.Expect(helper.Early(pace, cluster)).To(BeZero())
		now = now.Add(wordsInterval)
	}
	w.Expect(memorytest.Text(memorytest.Entries(pace))).To(Equal("written: 1"))
}
