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
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// fillAPIServers says in the decision's words how far the API servers of Machines in deletion have left.
func (s *scope) fillAPIServers(now time.Time, patience time.Duration) {
	for i := range s.snapshot.Machines {
		machine := &s.snapshot.Machines[i]
		if infra := s.infra[machine.Name]; machine.Deleting && infra != nil && provisioned(infra) {
			machine.APIServer, machine.APIServerProblem = apiServerOf(s.hosts[machine.Name], infra, now, patience)
		}
	}
}

// apiServerOf reads what the host says, and nothing of a host that serves another claim by now or does not run any
// more.
func apiServerOf(
	host *infrav1.QuoinHost, infra *infrav1.QuoinMachine, now time.Time, patience time.Duration,
) (_ controlplane.APIServer, problem string) {
	if host == nil || host.Spec.ConsumerRef == nil || host.ProviderID() != infra.Spec.ProviderID || host.Fenced() {
		return "", ""
	}
	asked, err := time.Parse(time.RFC3339, infra.Annotations[infrav1.StopAPIServerAnnotation])
	silent, stopped := host.Status.UnreachableSince, conditions.Get(host, infrav1.HostAPIServerStoppedCondition)
	switch {
	case err == nil && conditionTrue(stopped):
		return controlplane.APIServerLeft, ""
	case silent != nil && now.Sub(silent.Time) > patience:
		return controlplane.APIServerStays, fmt.Sprintf("host %s does not answer", host.Name)
	case err != nil:
		return controlplane.APIServerServing, ""
	case stopped != nil && stopped.Reason == infrav1.HostStepFailedReason:
		return controlplane.APIServerStays, stopped.Message
	case now.Sub(asked) > patience:
		problem = fmt.Sprintf("host %s has not ended it within %s", host.Name, patience)
		if stopped != nil && stopped.Message != "" {
			problem += " (" + stopped.Message + ")"
		}
		return controlplane.APIServerStays, problem
	}
	return controlplane.APIServerLeaving, ""
}

// stopAPIServer asks the host of a Machine to end its API server, once: from then on its time runs.
func (r *Reconciler) stopAPIServer(ctx context.Context, s *scope) error {
	seen := s.infra[s.step.Machine]
	if seen == nil {
		return fmt.Errorf("the QuoinMachine of Machine %s is gone", s.step.Machine)
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
	metav1.SetMetaDataAnnotation(&infra.ObjectMeta, infrav1.StopAPIServerAnnotation, s.clock.Now().UTC().
		Format(time.RFC3339))
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, infra, client.MergeFrom(original))); err != nil {
		return fmt.Errorf("asking the host of Machine %s to end its API server: %w", s.step.Machine, err)
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
