// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// keepsEvents records the events of a rollout of thirty Machines within a moment: each is named, in that order. A message
// that is too long is shortened.
func keepsEvents(t *testing.T, c client.Client, mgr ctrl.Manager) {
	g := NewWithT(t)
	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "events"}})).To(Succeed())
	of := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "events", Name: "of"}}
	g.Expect(c.Create(t.Context(), of)).To(Succeed())
	recorder := mgr.GetEventRecorder("test")
	recorder.Eventf(of, nil, corev1.EventTypeWarning, "QuorumLossAllowed", "Delete", "%s", strings.Repeat("fire ", 1000))
	long := "QuorumLossAllowed: " + text.Shorten(strings.Repeat("fire ", 1000), 1024)
	g.Expect(len(long)).To(BeNumerically(">", 900))
	want := []string{long}
	for i := range 30 {
		machine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "events", Name: fmt.Sprintf("machine-%d", i)}}
		recorder.Eventf(of, machine, corev1.EventTypeNormal, "MachineMade", "Make", "%s was made", machine.Name)
		recorder.Eventf(of, nil, corev1.EventTypeWarning, "StepDone", "Step", "step %d took %s", i, time.Second)
		want = append(want, "MachineMade: "+machine.Name+" was made", fmt.Sprintf("StepDone: step %d took 1s", i))
	}
	g.Eventually(func(g Gomega) {
		list := &eventsv1.EventList{}
		g.Expect(c.List(t.Context(), list, client.InNamespace("events"))).To(Succeed())
		var said []string
		for _, event := range list.Items { // by name, which ends with the time
			g.Expect(len(event.Note)).To(BeNumerically("<=", 1024))
			g.Expect(event.Regarding.UID).To(Equal(of.UID))
			g.Expect(event.ReportingController).To(Equal("test"))
			said = append(said, event.Reason+": "+event.Note)
		}
		g.Expect(said).To(Equal(want))
	}).WithTimeout(20 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
}
