// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

const testProvider = "infrastructure-quoin"

// twoManagers are a lab whose provider has pods a, which leads, and b, both ready.
func twoManagers(g Gomega) (l *Lab, a, b *corev1.Pod, lease *coordinationv1.Lease) {
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, UID: types.UID(name),
				Labels: map[string]string{providerLabel: testProvider}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{}},
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	a, b = pod("a"), pod("b")
	lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "leader"}}
	l = &Lab{Printer: progress.New(io.Discard),
		Management: fake.NewClientBuilder().WithScheme(scheme).WithObjects(a, b, lease).Build()}
	led(g, l, lease, "a_1")
	return l, a, b, lease
}

// led has somebody take the lease now.
func led(g Gomega, l *Lab, lease *coordinationv1.Lease, holder string) {
	lease.Spec.HolderIdentity, lease.Spec.AcquireTime = ptr.To(holder), ptr.To(metav1.NowMicro())
	g.Expect(l.Management.Update(context.Background(), lease)).To(Succeed())
}

// soon does something while somebody waits.
func soon(t *testing.T, do func()) {
	t.Helper()
	timer := time.AfterFunc(1500*time.Millisecond, do)
	t.Cleanup(func() { timer.Stop() })
}

func TestAManagerIsReplacedWhenAnotherOneLeads(t *testing.T) {
	g := NewWithT(t)
	l, _, b, lease := twoManagers(g)
	old, err := l.leader(t.Context(), testProvider)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(old.Pod.Name).To(Equal("a"))
	took := make(chan struct{})
	soon(t, func() {
		led(g, l, lease, "b_1")
		close(took)
	})

	g.Expect(l.replace(t.Context(), "replacing", testProvider, old)).To(Succeed())

	g.Expect(took).To(BeClosed(), "the other one was ready from the beginning, and led nothing")
	pods, err := l.Pods(t.Context(), testProvider)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods).To(ConsistOf(HaveField("Name", b.Name)), "who led was deleted")
}

func TestAKilledManagerIsBackWhenItsOwnPodWasStartedAgain(t *testing.T) {
	g := NewWithT(t)
	l, a, b, _ := twoManagers(g)
	restarted := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses[0].RestartCount++
		g.Expect(l.Management.Status().Update(context.Background(), pod)).To(Succeed())
	}
	restarted(b) // by a kill before
	killed, err := l.leader(t.Context(), testProvider)
	g.Expect(err).NotTo(HaveOccurred())
	back := make(chan struct{})
	soon(t, func() {
		restarted(a)
		close(back)
	})

	g.Expect(l.AwaitManager(t.Context(), killed)).To(Succeed())

	g.Expect(back).To(BeClosed())
}

func TestALeaderIsAwaitedThatBeganAfterTheKill(t *testing.T) {
	g := NewWithT(t)
	l, a, _, lease := twoManagers(g)
	killed := time.Now()
	soon(t, func() { led(g, l, lease, a.Name+"_2") })

	since, err := l.AwaitLeader(t.Context(), testProvider, killed)

	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(since).To(BeTemporally(">", killed))
}

func TestWhoIsOnItsWayOutDoesNotLead(t *testing.T) {
	g := NewWithT(t)
	l, a, _, _ := twoManagers(g)
	a.Finalizers = []string{"test.example.com/ends"}
	g.Expect(l.Management.Update(t.Context(), a)).To(Succeed())
	g.Expect(l.Management.Delete(t.Context(), a)).To(Succeed())
	g.Expect(l.Management.Get(t.Context(), client.ObjectKeyFromObject(a), a)).To(Succeed())

	g.Expect(l.leader(t.Context(), testProvider)).To(BeNil())
}
