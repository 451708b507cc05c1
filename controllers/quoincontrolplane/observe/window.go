// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// Window is what the RolloutPolicy of the Cluster says of the time.
type Window struct {
	// Closed says why no replacement may be begun now; empty when one may.
	Closed string
	// Opens is when that may be otherwise; zero when it is not known, or nothing is closed.
	Opens time.Time
}

// window reads the policy that holds for the Cluster, live where Machines are: a policy is often applied together with
// the edit that it is for. Windows that cannot be read are a person's to correct.
func (s *Sources) window(ctx context.Context, l *Lists) (Window, error) {
	reader, policies := s.Live, &quoinv1.RolloutPolicyList{}
	if l.Cached {
		reader = s.Cache
	}
	if err := reader.List(ctx, policies, client.InNamespace(l.Cluster.Namespace)); err != nil {
		return Window{}, fmt.Errorf("listing RolloutPolicies: %w", err)
	}
	policy := rollout.Of(policies.Items, l.Cluster.Name)
	if policy == nil {
		return Window{}, nil
	}
	closed, opens, err := rollout.ClosedUntil(policy.Spec.Windows, s.Clock.Now())
	switch {
	case err != nil:
		return Window{Closed: fmt.Sprintf("correct spec.windows of RolloutPolicy %s: %s", policy.Name, err)}, nil
	case closed != "":
		closed += fmt.Sprintf("; to begin before, change spec.windows of RolloutPolicy %s", policy.Name)
	}
	return Window{Closed: closed, Opens: opens}, nil
}
