// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// stopAPIServer asks the host of a Machine to end its API server, once: from then on its time runs.
func (r *Reconciler) stopAPIServer(ctx context.Context, o *observe.Observation, step controlplane.Step) error {
	seen := o.QuoinMachines[step.Machine]
	if seen == nil {
		return fmt.Errorf("the QuoinMachine of Machine %s is gone", step.Machine)
	}
	// As it is now: the cache may not show yet that it was asked for.
	infra := &infrav1.QuoinMachine{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(seen), infra); err != nil {
		return client.IgnoreNotFound(err)
	}
	if _, err := time.Parse(time.RFC3339, infra.Annotations[infrav1.StopAPIServerAnnotation]); err == nil {
		return nil
	}
	original := infra.DeepCopy()
	metav1.SetMetaDataAnnotation(&infra.ObjectMeta, infrav1.StopAPIServerAnnotation, r.Clock.Now().UTC().
		Format(time.RFC3339))
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, infra, client.MergeFrom(original))); err != nil {
		return fmt.Errorf("asking the host of Machine %s to end its API server: %w", step.Machine, err)
	}
	return nil
}

// hostStoppedAPIServer lets through hosts that say what became of their API server.
func hostStoppedAPIServer() predicate.Predicate {
	reported := func(object client.Object) string {
		host, ok := object.(*infrav1.QuoinHost)
		if !ok {
			return ""
		}
		return conditions.GetReason(host, infrav1.HostAPIServerStoppedCondition)
	}
	return predicate.Funcs{
		GenericFunc: func(event.GenericEvent) bool { return false },
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			after := reported(e.ObjectNew)
			return after != "" && after != reported(e.ObjectOld)
		},
	}
}
