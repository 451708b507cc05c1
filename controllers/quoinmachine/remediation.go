// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// patientFailures is how often in a row an exchange with a host may fail before that is no waiting any more: the
	// pauses in between add up to more than a quarter of an hour.
	patientFailures = 10
	// defaultUnreachableTimeout is how long a host is silent before it counts as dead, when its policy does not say.
	defaultUnreachableTimeout = 10 * time.Minute
)

// waits reports whether the Machine has no node yet for a reason that another Machine would meet as well, or that
// passes: it is held, no host is free, a bundle comes slowly. A health check counts the time since the Machine was
// made, and would make such a Machine anew for ever. What a new Machine mends, a host that failed or fell silent, is no
// waiting.
func waits(m *infrav1.QuoinMachine, v *observation) bool {
	switch {
	case v.machine == nil || !v.machine.DeletionTimestamp.IsZero() || !m.DeletionTimestamp.IsZero() ||
		annotations.HasRemediateMachine(v.machine):
		return false
	case conditions.IsTrue(v.machine, clusterv1.MachineInfrastructureReadyCondition) ||
		v.machine.Status.NodeRef.IsDefined():
		// From now on the health check counts from here.
		return false
	case v.machine.Spec.ProviderID != "" && !lifecycle.Spared(v.machine):
		// It was a node before a move dropped its status.
		return false
	case v.host == nil:
		return v.obstacle == nil || v.obstacle.reason != infrav1.MachineHostLostReason
	case ptr.Deref(m.Status.Initialization.Provisioned, false):
		// Core has yet to see it.
		return true
	}
	host := v.host
	if since := host.Status.UnreachableSince; since != nil {
		timeout := defaultUnreachableTimeout
		if seconds := host.Spec.Unreachable.OverriddenBy(m.Spec.Unreachable).TimeoutSeconds; seconds != nil {
			timeout = time.Duration(*seconds) * time.Second
		}
		return v.now.Before(v.steps.Shift(since.Time).Add(timeout))
	}
	provisioned := conditions.Get(host, infrav1.HostProvisionedCondition)
	if provisioned == nil {
		return true
	}
	switch provisioned.Reason {
	case infrav1.HostOperationFailedReason:
		return ptr.Deref(host.Status.Failures, 0) < patientFailures
	case infrav1.HostOwnedByOtherReason, infrav1.HostStaleClaimReason:
		return true // a person says whose it is
	case infrav1.HostBootstrapDataInvalidReason:
		return false
	}
	return !placement.HostFails(provisioned.Reason)
}

// spare keeps health checks from a Machine that waits, and lets them have it again.
func (r *Reconciler) spare(ctx context.Context, m *infrav1.QuoinMachine, v *observation) error {
	if v.machine == nil || !v.machine.DeletionTimestamp.IsZero() {
		return nil
	}
	after := lifecycle.Sparing(v.machine, waits(m, v))
	if maps.Equal(after, v.machine.Annotations) {
		return nil
	}
	machine := v.machine.DeepCopy()
	machine.Annotations = after
	// Exactly as it was read: a user may be setting the same annotation.
	err := r.Client.Patch(ctx, machine, client.MergeFromWithOptions(v.machine, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("telling health checks whether Machine %s/%s waits: %w", machine.Namespace, machine.Name, err)
	}
	// A conflict is an event, which brings the Machine here again.
	return nil
}
