// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package paced_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/paced"
)

func TestManyEventsAreFollowedOnceAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer q.ShutDown()
		all := ctrl.Request{NamespacedName: types.NamespacedName{Name: "all"}}
		h := paced.After(5*time.Second, func(context.Context, client.Object) []ctrl.Request { return []ctrl.Request{all} })
		h.Create(t.Context(), event.CreateEvent{Object: &corev1.Node{}}, q)
		for range 9 {
			time.Sleep(500 * time.Millisecond)
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: &corev1.Node{}, ObjectNew: &corev1.Node{}}, q)
			h.Delete(t.Context(), event.DeleteEvent{Object: &corev1.Node{}}, q)
			h.Generic(t.Context(), event.GenericEvent{Object: &corev1.Node{}}, q)
		}
		synctest.Wait()
		g.Expect(q.Len()).To(BeZero(), "4.5 s after the first event")
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(q.Len()).To(Equal(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		g.Expect(q.Len()).To(Equal(1), "and none is left over")
	})
}
