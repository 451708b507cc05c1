// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostpower"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// alike lists the other hosts that have an identity of this one and could be in the same Cluster, in the order of their
// names.
func (r *Reconciler) alike(ctx context.Context, host *infrav1.QuoinHost) ([]infrav1.QuoinHost, error) {
	var found []infrav1.QuoinHost
	seen := map[client.ObjectKey]bool{client.ObjectKeyFromObject(host): true}
	for _, identity := range placement.IdentitiesOf(host) {
		hosts := &infrav1.QuoinHostList{}
		with := fieldindex.HostsWithIdentity(identity)
		if err := r.Client.List(ctx, hosts, with, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the QuoinHosts with %s: %w", identity, err)
		}
		for i := range hosts.Items {
			other := &hosts.Items[i]
			key := client.ObjectKeyFromObject(other)
			if !seen[key] && placement.Meet(placement.HostOf(host), placement.HostOf(other)) {
				seen[key] = true
				found = append(found, *other)
			}
		}
	}
	slices.SortFunc(found, func(a, b infrav1.QuoinHost) int { return strings.Compare(nameOf(&a), nameOf(&b)) })
	return found, nil
}

func nameOf(host *infrav1.QuoinHost) string { return host.Namespace + "/" + host.Name }

// compareIdentity notes which hosts are like this one, and which its BMC may be meant for. Free hosts of that kind may
// serve different Clusters.
func (r *reconciliation) compareIdentity(ctx context.Context) error {
	var err error
	if r.alike, err = r.controller.alike(ctx, r.host); err != nil {
		return err
	}
	if r.sharesIdentity, err = hostpower.SharesIdentity(ctx, r.controller.Client, r.host); err != nil {
		return err
	}
	if len(r.alike) == 0 {
		conditions.Delete(r.host, infrav1.HostUniqueCondition)
		return nil
	}
	other := &r.alike[0]
	common := placement.Common(placement.IdentitiesOf(r.host), placement.IdentitiesOf(other))
	message := fmt.Sprintf("%s is also that of QuoinHost %s, so no Cluster gets both; %s. If they are one machine, "+
		"delete one of the two. To have it read again without a reboot: %s",
		common, nameOf(other), common.Remedy(), annotate(r.host, infrav1.RetryAnnotation, ""))
	if more := len(r.alike) - 1; more > 0 {
		message += fmt.Sprintf(". Alike are %d more", more)
	}
	r.warn(infrav1.HostUniqueCondition, infrav1.HostDuplicateReason, message)
	return nil
}

// outranked says why kubeadm must not run here: another host of the same Cluster is like this one, and comes first.
// Empty when none does. Whom the claim of the other one names is no more than the word of who wrote that host, perhaps
// another tenant: the Machine has to have it.
func (r *reconciliation) outranked(ctx context.Context) (string, error) {
	for i := range r.alike {
		other := &r.alike[i]
		ref := other.Spec.ConsumerRef
		if ref == nil || ref.Namespace != r.claim.machine.Namespace {
			continue
		}
		machine := &clusterv1.Machine{}
		found, err := r.controller.find(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Machine}, machine)
		comes := found && machine.Spec.ClusterName == r.claim.machine.Spec.ClusterName &&
			(joinedOrJoins(other, machine) || nameOf(other) < nameOf(r.host))
		if comes {
			comes, err = r.controller.hadBy(ctx, other, machine)
		}
		if err != nil {
			return "", fmt.Errorf("finding out whether QuoinHost %s, which is like this one, is in the same Cluster: %w",
				nameOf(other), err)
		}
		if !comes {
			continue
		}
		common := placement.Common(placement.IdentitiesOf(r.host), placement.IdentitiesOf(other))
		return fmt.Sprintf("%s is also that of QuoinHost %s, which Machine %s of the same Cluster has, so kubeadm is not "+
			"run here; %s. Or delete Machine %s, and its replacement takes another host", common, nameOf(other), machine.Name,
			common.Remedy(), r.claim.machine.Name), nil
	}
	return "", nil
}

// joinedOrJoins reports whether bootstrap data ran or runs on the host for the Machine. The provider ID says so after a
// move, too, which drops every status.
func joinedOrJoins(host *infrav1.QuoinHost, machine *clusterv1.Machine) bool {
	if machine.Status.NodeRef.IsDefined() || machine.Spec.ProviderID != "" {
		return true
	}
	operation := ptr.Deref(host.Status.Operation, infrav1.HostOperation{})
	return operation.ID == infrav1.ProvisionOperation(host.Spec.ConsumerRef.Claim) && operation.Began()
}

// hostsAlike maps a host to those that have an identity of it, which say so in their own conditions, and to those of
// its namespace whose BMC its product UUID may mean.
func (r *Reconciler) hostsAlike(ctx context.Context, o client.Object) []ctrl.Request {
	host, ok := o.(*infrav1.QuoinHost)
	if !ok {
		return nil
	}
	hosts, err := r.alike(ctx, host)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinHosts that are alike")
		return nil
	}
	meant, err := hostpower.WithUUIDOf(ctx, r.Client, host)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinHosts with the same product UUID")
	}
	var requests []ctrl.Request
	for _, other := range slices.Concat(hosts, meant) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&other)}
		if !slices.Contains(requests, request) {
			requests = append(requests, request)
		}
	}
	return requests
}

// identityChanged lets through hosts that may have become like others, or no longer be.
func identityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*infrav1.QuoinHost)
		after, ok2 := e.ObjectNew.(*infrav1.QuoinHost)
		same := func() bool {
			return slices.Equal(placement.IdentitiesOf(before), placement.IdentitiesOf(after))
		}
		return ok1 && ok2 && (!same() ||
			!equality.Semantic.DeepEqual(before.Spec.ConsumerNamespaces, after.Spec.ConsumerNamespaces) ||
			(before.Spec.ConsumerRef == nil) != (after.Spec.ConsumerRef == nil))
	}}
}
