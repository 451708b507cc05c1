// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"
	"sync"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/validation"
)

const (
	// mostLooks are made at a time: each lists a Cluster's pods.
	mostLooks = 8
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// looker makes looks beside the workers, one for each Cluster at a time. The zero value is ready for use.
type looker struct {
	once  sync.Once
	calls *async.Calls
}

func (l *looker) begun() *async.Calls {
	l.once.Do(func() { l.calls = async.New(async.Options{MaxConcurrent: mostLooks}) })
	return l.calls
}

// endWith has looks end with the manager.
func (l *looker) endWith(mgr ctrl.Manager) error {
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		l.begun().Close()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("register the end of looks: %w", err)
	}
	return nil
}

// looked is a look that was made.
type looked struct {
	look    *rollout.Look
	results []quoinv1.RolloutCheckResult
}

// looks is the plan by what looks found. It has one begun that is due, and keeps what one found that ended. That is
// written before anything is decided by it: a process that dies invents no success, and a cache that is behind finds
// its record refused.
func (r *Reconciler) looks(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
) (rollout.Result, error) {
	key := client.ObjectKeyFromObject(cluster)
	plan := rollout.Plan(seen.state, &policy.Spec, r.Clock.Now())
	look := plan.Look
	if look == nil || look.Due.After(r.Clock.Now()) {
		r.looker.begun().Cancel(key) // nobody needs what runs
		return plan, nil
	}
	made, done, err := async.Do(r.looker.begun(), key, look.Pool+" "+look.Digest,
		async.ConnectTimeout+validation.Timeout+10*time.Second, func(ctx context.Context) (looked, error) {
			return looked{look: look, results: r.look(ctx, key, look)}, nil
		})
	switch {
	case err != nil:
		return plan, fmt.Errorf("look at Cluster %s: %w", key, err)
	case !done:
		return plan, nil
	}
	status := *policy.Status.DeepCopy()
	status.Validation = rollout.Looked(plan.Validation, made.look, made.results, r.Clock.Now())
	if _, err := r.report(ctx, policy, status); err != nil {
		return plan, err
	}
	seen.state.Validation = policy.Status.Validation
	return rollout.Plan(seen.state, &policy.Spec, r.Clock.Now()), nil
}

// look at a Cluster once.
func (r *Reconciler) look(ctx context.Context, key client.ObjectKey, of *rollout.Look) []quoinv1.RolloutCheckResult {
	fails := func(name, doing string, err error) []quoinv1.RolloutCheckResult {
		return []quoinv1.RolloutCheckResult{{Name: name, Status: quoinv1.RolloutCheckFailed,
			Message: text.Shorten(fmt.Sprintf("%s: %v", doing, err), mostResult)}}
	}
	workload, err := async.Connected(ctx, r.ClusterCache, key)
	if err != nil {
		return fails("Cluster", "its API server cannot be reached", err)
	}
	machines := &clusterv1.MachineList{}
	if err := r.APIReader.List(ctx, machines, client.InNamespace(key.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: key.Name}); err != nil {
		return fails("Machines", "list the Machines", err)
	}
	subject := &validation.Subject{Pool: of.Pool, Machines: machines.Items, Checks: of.Validation.Checks,
		Namespace: key.Namespace, Management: r.APIReader, Workload: workload, Egress: r.Egress.WithServices()}
	for _, m := range of.Machines {
		subject.Subjects = append(subject.Subjects, m.Name)
	}
	return validation.Look(ctx, subject)
}

// again is when a plan is to be made anew. The end of a look that runs says so itself.
func (r *Reconciler) again(cluster *clusterv1.Cluster, plan rollout.Result) time.Duration {
	if plan.Look == nil || plan.Look.Due.After(r.Clock.Now()) {
		return plan.Again
	}
	if _, _, running := r.looker.begun().Running(client.ObjectKeyFromObject(cluster)); running {
		return plan.Again
	}
	return cacheLag // it became due just now
}
