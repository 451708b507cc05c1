// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"net/netip"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// serviceRangesKept is how long what was read is believed. Ranges are added once in a cluster's life, if ever.
	serviceRangesKept = 5 * time.Minute
	// serviceRangesRetry is how long it is believed once more when the API server does not answer.
	serviceRangesRetry = 30 * time.Second
)

// services knows the ranges of the management cluster's Services, by its ServiceCIDRs.
type services struct {
	reader client.Reader
	now    func() time.Time

	mu    sync.Mutex
	until time.Time
	known []netip.Prefix
}

// ranges returns those that were read last. API servers before Kubernetes 1.33 do not tell theirs, and have none here.
func (s *services) ranges(ctx context.Context) ([]netip.Prefix, error) {
	if s.reader == nil {
		return s.known, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.until) {
		return s.known, nil
	}
	list := &networkingv1.ServiceCIDRList{}
	err := s.reader.List(ctx, list)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
	case err != nil && s.until.IsZero():
		return nil, err
	case err != nil:
		s.until = s.now().Add(serviceRangesRetry)
		return s.known, nil
	}
	var known []netip.Prefix
	for _, item := range list.Items {
		for _, network := range item.Spec.CIDRs {
			if prefix, err := netip.ParsePrefix(network); err == nil {
				known = append(known, prefix)
			}
		}
	}
	s.until, s.known = s.now().Add(serviceRangesKept), known
	return known, nil
}
