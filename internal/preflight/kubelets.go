// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// kubeletTimeout is how long a kubelet may take to say that it is there.
	kubeletTimeout = 5 * time.Second
	// kubeletsAtATime bounds what one API server is asked.
	kubeletsAtATime = 16
	// mostUnreached is after how many that were not reached no more are asked: each costs seconds, and a few tell enough.
	mostUnreached = 5
	// kubeletsTimeout is how long all of them may take: they are half of what bounds the check, and only warn.
	kubeletsTimeout = Timeout / 2
)

// lookAtKubelets has an API server reach each kubelet, on port 10250 as a rule. Those of Nodes that are not ready Nodes
// tells of.
func lookAtKubelets(ctx context.Context, s Subject) ([]quoinv1.Finding, error) {
	nodes := &corev1.NodeList{}
	if err := s.Workload.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list the Nodes: %w", err)
	}
	ask := &kubelets{s: s, names: make(chan string)}
	within, cancel := context.WithTimeout(ctx, kubeletsTimeout)
	defer cancel()
	var group sync.WaitGroup
	for range kubeletsAtATime {
		group.Go(func() { ask.all(within) })
	}
	for i := range nodes.Items {
		if isReady(&nodes.Items[i]) {
			ask.names <- nodes.Items[i].Name
		}
	}
	close(ask.names)
	group.Wait()
	if ask.unasked > 0 {
		ask.findings = append(ask.findings, warns("", "KubeletsNotAsked", fmt.Sprintf(
			"whether the API server that answers reaches %d more kubelets is not known: the others took %s", ask.unasked,
			kubeletsTimeout), "see that API servers reach port 10250 of each Node"))
	}
	return ask.findings, ctx.Err()
}

// kubelets are asked side by side.
type kubelets struct {
	s     Subject
	names chan string

	mu       sync.Mutex
	findings []quoinv1.Finding
	// unasked are how many there was no time for.
	unasked int
}

func (k *kubelets) all(ctx context.Context) {
	for name := range k.names {
		k.mu.Lock()
		enough := len(k.findings) >= mostUnreached
		k.mu.Unlock()
		if enough {
			continue
		}
		err := k.one(ctx, name)
		if ctx.Err() != nil {
			k.mu.Lock()
			k.unasked++
			k.mu.Unlock()
			continue
		}
		if err != nil {
			k.mu.Lock()
			k.findings = append(k.findings, warns("Node "+name, "KubeletNotReached", fmt.Sprintf(
				"the API server that answers does not reach its kubelet, so no logs, no exec and no metrics of it: %v", err),
				"let API servers through to port 10250 of each Node"))
			k.mu.Unlock()
		}
	}
}

// one is why a kubelet is not reached. One that answers that it is ill, or that it is not for us, is.
func (k *kubelets) one(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	err := k.s.Kubelet(ctx, name)
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
