// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quoinmachinetemplate tells in the status of QuoinMachineTemplates what a node made from them would have,
// which is what a cluster autoscaler needs to know of a pool that has no node yet.
package quoinmachinetemplate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/predicates"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/paced"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// hostsInterval is how long hosts change before the templates look at them, each at the whole fleet: the inspection of
// thousands of new hosts is as many events.
const hostsInterval = 5 * time.Second

// Reconciler reconciles QuoinMachineTemplates.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// WatchFilterValue is the label value that objects must carry to be reconciled.
	WatchFilterValue string
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates;quoinhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates/status,verbs=get;patch

// SetupWithManager adds the controller to the manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil {
		return errors.New("the reconciler needs a Client")
	}
	log := ctrl.LoggerFrom(ctx).WithValues("controller", "quoinmachinetemplate")
	err := ctrl.NewControllerManagedBy(mgr).
		Named("quoinmachinetemplate").
		For(&infrav1.QuoinMachineTemplate{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(options).
		WithEventFilter(predicates.ResourceHasFilterLabel(mgr.GetScheme(), log, r.WatchFilterValue)).
		Watches(&infrav1.QuoinHost{}, paced.After(hostsInterval, r.templatesOfHost), builder.WithPredicates(sizeMatters())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the QuoinMachineTemplate controller: %w", err)
	}
	return nil
}

// Reconcile brings the status of one QuoinMachineTemplate up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	template := &infrav1.QuoinMachineTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, moving := template.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moving ||
		!template.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	selector := labels.Everything()
	if template.Spec.Template.Spec.HostSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(template.Spec.Template.Spec.HostSelector); err != nil {
			// Admission refuses it, and its Machines say so.
			selector = labels.Nothing()
		}
	}
	before := template.DeepCopy()
	template.Status = statusOf(template, selector, hosts.Items)
	if equality.Semantic.DeepEqual(before.Status, template.Status) {
		return ctrl.Result{}, nil
	}
	if err := r.Client.Status().Patch(ctx, template, client.MergeFrom(before)); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("patching the status of QuoinMachineTemplate %s: %w", req,
			err))
	}
	return ctrl.Result{}, nil
}

// statusOf is what the smallest of the hosts has that Machines of the template may get: a pod that fits there fits
// whichever is claimed. The architecture is told when it is the same everywhere. Without such a host nothing is told,
// and an autoscaler leaves a pool without nodes alone.
func statusOf(
	template *infrav1.QuoinMachineTemplate, selector labels.Selector, hosts []infrav1.QuoinHost,
) infrav1.QuoinMachineTemplateStatus {
	accepted := template.Spec.Template.Spec.HostNamespaces
	var status infrav1.QuoinMachineTemplateStatus
	var architectures []string
	for i := range hosts {
		host := &hosts[i]
		size := sizeOf(host)
		if size == nil || !placement.NamespaceAllowed(placement.HostOf(host), template.Namespace) ||
			!placement.NamespaceAccepted(accepted, template.Namespace, host.Namespace) ||
			!selector.Matches(labels.Set(host.Labels)) {
			continue
		}
		if status.Capacity == nil {
			status.Capacity = size
		}
		for name, quantity := range size {
			if smallest := status.Capacity[name]; quantity.Cmp(smallest) < 0 {
				status.Capacity[name] = quantity
			}
		}
		if !slices.Contains(architectures, host.Status.Facts.Architecture) {
			architectures = append(architectures, host.Status.Facts.Architecture)
		}
	}
	if status.Capacity == nil {
		return status
	}
	status.NodeInfo.OperatingSystem = "linux"
	if len(architectures) == 1 && slices.Contains(knownArchitectures, architectures[0]) {
		status.NodeInfo.Architecture = infrav1.Architecture(architectures[0])
	}
	return status
}

// knownArchitectures are those that the contract knows.
var knownArchitectures = []string{"amd64", "arm64", "s390x", "ppc64le"}

// sizeOf is what a node on the host would have; nil when that is not known, or nobody gets the host as it is.
func sizeOf(host *infrav1.QuoinHost) corev1.ResourceList {
	facts := host.Status.Facts
	if facts == nil || facts.CPUs == 0 || facts.Memory == nil || !host.DeletionTimestamp.IsZero() ||
		host.Status.State == infrav1.HostStateQuarantined {
		return nil
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(facts.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: facts.Memory.DeepCopy(),
	}
}

// sizeMatters lets through what the status of a template follows from.
func sizeMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*infrav1.QuoinHost)
		after, ok2 := e.ObjectNew.(*infrav1.QuoinHost)
		if !ok1 || !ok2 {
			return false
		}
		was, is := sizeOf(before), sizeOf(after)
		return !equality.Semantic.DeepEqual(was, is) || is != nil &&
			before.Status.Facts.Architecture != after.Status.Facts.Architecture ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Spec.ConsumerNamespaces, after.Spec.ConsumerNamespaces)
	}}
}

// templatesOfHost names every template: the host may just have stopped to match some.
func (r *Reconciler) templatesOfHost(ctx context.Context, _ client.Object) []ctrl.Request {
	templates := &infrav1.QuoinMachineTemplateList{}
	if err := r.Client.List(ctx, templates, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinMachineTemplates")
		return nil
	}
	var requests []ctrl.Request
	for i := range templates.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&templates.Items[i])})
	}
	return requests
}
