// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/failuredomains"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// pickFailureDomain is that of the next Machine: the one with fewest up-to-date Machines, then with fewest, among those
// that have a free host. Without one it stays open, and the Machine takes the first host that becomes free: a Machine
// bound to a domain whose hosts are all in use would hold up a surge for ever.
func (r *Reconciler) pickFailureDomain(ctx context.Context, s *scope) (string, error) {
	var candidates []clusterv1.FailureDomain
	free, err := r.freeDomains(ctx, s)
	if err != nil {
		return "", err
	}
	for _, domain := range s.cluster.Status.FailureDomains {
		if ptr.Deref(domain.ControlPlane, false) && free[domain.Name] {
			candidates = append(candidates, domain)
		}
	}
	// Count a Machine where its host is: its spec may leave that open.
	placed, upToDate := collections.New(), collections.New()
	for name, machine := range s.machines {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		counted := machine.DeepCopy()
		if infra := s.infra[name]; infra != nil && infra.Status.FailureDomain != "" {
			counted.Spec.FailureDomain = infra.Status.FailureDomain
		}
		placed.Insert(counted)
		if len(s.outdated[name]) == 0 {
			upToDate.Insert(counted)
		}
	}
	return failuredomains.PickFewest(ctx, candidates, placed, upToDate), nil
}

// freeDomains are the failure domains with a host that the template's machines could claim now.
func (r *Reconciler) freeDomains(ctx context.Context, s *scope) (map[string]bool, error) {
	selector, err := hostSelector(s.template)
	if err != nil {
		return nil, err
	}
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	free := map[string]bool{}
	for i := range hosts.Items {
		host := &hosts.Items[i]
		choice := placement.Select(placement.Request{Namespace: s.plane.Namespace, Selector: selector}, []placement.Host{{
			Namespace: host.Namespace, Name: host.Name, Labels: host.Labels, State: string(host.Status.State),
			Ready:   conditions.IsTrue(host, infrav1.HostReadyCondition),
			InUse:   host.Spec.ConsumerRef != nil,
			Leaving: !host.DeletionTimestamp.IsZero() || annotations.HasPaused(host), FailureDomain: host.Spec.FailureDomain,
			ConsumerNamespaces: host.Spec.ConsumerNamespaces,
		}})
		if choice.Chosen != nil {
			free[host.Spec.FailureDomain] = true
		}
	}
	return free, nil
}

func hostSelector(template *unstructured.Unstructured) (labels.Selector, error) {
	raw, found, err := unstructured.NestedMap(template.Object, "spec", "template", "spec", "hostSelector")
	if err != nil || !found {
		return nil, err
	}
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, selector); err != nil {
		return nil, fmt.Errorf("reading hostSelector of %s %s: %w", template.GetKind(), template.GetName(), err)
	}
	return metav1.LabelSelectorAsSelector(selector)
}
