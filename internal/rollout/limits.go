// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Limits are how many Machines a pool may have above its replicas, and how many may be missing from them.
type Limits struct{ Surge, Unavailable int }

// concurrency is how many new Machines may be on their way at once.
func (l Limits) concurrency() int { return max(1, l.Surge+l.Unavailable) }

// Within are the lower limits of both.
func (l Limits) Within(other Limits) Limits {
	return Limits{Surge: min(l.Surge, other.Surge), Unavailable: min(l.Unavailable, other.Unavailable)}
}

// Resolve a strategy for so many Machines as kOps resolves it (S3-23, S3-24, S3-31, K-2, K-3): percentages of the surge
// are rounded up, those of what may be missing are rounded down and at least 1. One more is made by default, and one
// may be missing where none is.
func Resolve(strategy quoinv1.RolloutStrategy, machines int) (Limits, error) {
	l := Limits{Surge: 1}
	var err error
	if strategy.MaxSurge != nil {
		if l.Surge, err = intstr.GetScaledValueFromIntOrPercent(strategy.MaxSurge, machines, true); err != nil {
			return Limits{}, fmt.Errorf("maxSurge: %w", err)
		}
	}
	switch {
	case strategy.MaxUnavailable != nil:
		l.Unavailable, err = intstr.GetScaledValueFromIntOrPercent(strategy.MaxUnavailable, machines, false)
		if err != nil {
			return Limits{}, fmt.Errorf("maxUnavailable: %w", err)
		}
		if strategy.MaxUnavailable.Type == intstr.String && l.Unavailable == 0 {
			l.Unavailable = 1
		}
	case l.Surge == 0:
		l.Unavailable = 1
	}
	if l.Surge < 0 || l.Unavailable < 0 {
		return Limits{}, fmt.Errorf("maxSurge is %d and maxUnavailable %d: give numbers that are not negative", l.Surge,
			l.Unavailable)
	}
	return l, nil
}

// effective limits of a pool. Percentages count from the Machines that there are, deleted ones included (K-5), and from
// none above its replicas: kOps counts once, before it makes any, and here what surges would let more surge. Where none
// is there they count from one, or none could ever be made.
func effective(strategy *quoinv1.RolloutStrategy, pool Pool, machines int) (Limits, error) {
	if pool.OnDelete {
		return onDelete(strategy, machines)
	}
	if strategy == nil || strategy.MaxSurge == nil && strategy.MaxUnavailable == nil {
		return pool.Stock, nil
	}
	asked, err := Resolve(*strategy, machines)
	if err != nil {
		return Limits{}, err
	}
	return asked.Within(pool.Stock), nil
}
