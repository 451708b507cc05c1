// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestKubeletsThatAnAPIServerReaches(t *testing.T) {
	const warns = "Warn Node n KubeletNotReached"
	for name, c := range map[string]struct {
		says error
		want []string
	}{
		"one that is well":                  {},
		"one behind a firewall":             {says: apierrors.NewServiceUnavailable("dial tcp 192.0.2.1:10250: i/o timeout"), want: []string{warns}},
		"one that is ill":                   {says: apierrors.NewInternalError(errors.New("healthz check failed"))},
		"one that knows us not":             {says: apierrors.NewUnauthorized("")},
		"an API server that waits too long": {says: apierrors.NewTimeoutError("", 1), want: []string{warns}},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(t, nil, []client.Object{node("n", ready), node("away")})
			s.Kubelet = func(_ context.Context, node string) error {
				if node != "n" {
					t.Errorf("Node %s was asked", node)
				}
				return c.says
			}
			findings, err := lookAtKubelets(t.Context(), s)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(says(findings)).To(Equal(c.want))
		})
	}
}

// Thousands of Nodes behind a firewall that drops what is sent cost two waits, and no more.
func TestKubeletsThatNeverAnswer(t *testing.T) {
	var workload []client.Object
	for i := range 1000 {
		workload = append(workload, node(fmt.Sprint("n", i), ready))
	}
	s := subject(t, nil, workload)
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s.Kubelet = func(ctx context.Context, _ string) error {
			asked.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		findings, err := lookAtKubelets(t.Context(), s)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(findings)).To(BeNumerically(">=", mostUnreached))
		g.Expect(asked.Load()).To(BeNumerically("<=", 2*kubeletsAtATime))
		g.Expect(time.Since(began)).To(BeNumerically("<=", 2*kubeletTimeout))
	})
}

// A fleet whose kubelets answer slowly is looked at in part: the rest of the check goes on, and nothing blocks.
func TestKubeletsThatAnswerSlowly(t *testing.T) {
	var workload []client.Object
	for i := range 1000 {
		workload = append(workload, node(fmt.Sprint("n", i), ready))
	}
	s := subject(t, nil, workload)
	synctest.Test(t, func(t *testing.T) {
		s.Kubelet = func(ctx context.Context, _ string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(kubeletTimeout - time.Second):
				return nil
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), Timeout)
		defer cancel()
		findings, err := lookAtKubelets(ctx, s)
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(says(findings)).To(Equal([]string{"Warn  KubeletsNotAsked"}))
		g.Expect(ctx.Err()).NotTo(HaveOccurred())
	})
}
