// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/insider/report"
)

// Duty watches what the lifecycle controllers of a management cluster owe it: a webhook that answers, and a leader of
// each of Quoin's providers.
type Duty struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu sync.Mutex
	// webhook are answers of the infrastructure provider's webhooks, leaders renewals of both providers' leases.
	webhook report.Gaps
	leaders map[string]*report.Gaps
	began   time.Time
	ended   time.Time
}

// Attend begins to watch twice a second; Stop ends it. Each of a lab's hosts is registered there.
func (l *Lab) Attend(ctx context.Context) *Duty {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &Duty{stop: cancel, leaders: map[string]*report.Gaps{}, began: time.Now()}
	every := func(gaps *report.Gaps, attempt func(context.Context) error) {
		d.done.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				limited, end := context.WithTimeout(ctx, 5*time.Second)
				err := attempt(limited)
				end()
				if ctx.Err() == nil {
					d.mu.Lock()
					gaps.Note(began, time.Now(), err)
					d.mu.Unlock()
				}
				select {
				case <-ctx.Done():
				case <-time.After(500*time.Millisecond - min(time.Since(began), 400*time.Millisecond)):
				}
			}
		})
	}
	every(&d.webhook, l.judged)
	for _, provider := range []string{repository.InfrastructureLabel, repository.ControlPlaneLabel} {
		gaps, renewed := &report.Gaps{}, time.Time{}
		d.leaders[provider] = gaps
		every(gaps, func(ctx context.Context) error {
			lease, err := l.lease(ctx, provider)
			if err != nil {
				return err
			}
			if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(renewed) {
				return errors.New("no manager renewed the lease")
			}
			renewed = lease.Spec.RenewTime.Time
			return nil
		})
	}
	return d
}

// judged has a webhook refuse, as a dry run, what only it knows to be wrong: where it does not answer, the API server's
// own words are others.
func (l *Lab) judged(ctx context.Context) error {
	host := &infrav1.QuoinHost{}
	if err := l.Management.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: l.Hosts[0].Name}, host); err != nil {
		return err
	}
	before := client.MergeFrom(host.DeepCopy())
	host.Spec.HostKeys = []string{"no key"}
	err := l.Management.Patch(ctx, host, before, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "hostKeys") {
		return fmt.Errorf("a host with a key that is none is not refused for it: %w", err)
	}
	return nil
}

// lease is that by which a manager of a provider leads.
func (l *Lab) lease(ctx context.Context, provider string) (*coordinationv1.Lease, error) {
	pods, err := l.Pods(ctx, provider)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, errors.New("no pod of " + provider)
	}
	leases := &coordinationv1.LeaseList{}
	if err := l.Management.List(ctx, leases, client.InNamespace(pods[0].Namespace)); err != nil {
		return nil, fmt.Errorf("leases of %s: %w", provider, err)
	}
	if len(leases.Items) != 1 {
		return nil, fmt.Errorf("%s has %d leases instead of one", provider, len(leases.Items))
	}
	return &leases.Items[0], nil
}

// Stop ends the watch, and returns the longest times without an answer of a webhook and without a renewal of a lease.
// Both count to the end: what never came was away all the time.
func (d *Duty) Stop() (webhook, leader time.Duration) {
	d.stop()
	d.done.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.IsZero() {
		d.ended = time.Now()
	}
	away := func(gaps *report.Gaps) time.Duration {
		last := gaps.Last
		if last.IsZero() {
			last = d.began
		}
		return max(gaps.Longest, d.ended.Sub(last))
	}
	for _, gaps := range d.leaders {
		leader = max(leader, away(gaps))
	}
	return away(&d.webhook), leader
}

// String says what was seen.
func (d *Duty) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := []string{"longest gap between answers of a webhook: " + d.webhook.String()}
	for provider, gaps := range d.leaders {
		lines = append(lines, "between renewals of the lease of "+provider+": "+gaps.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n  ")
}
