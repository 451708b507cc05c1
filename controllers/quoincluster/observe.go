// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/outage"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// observation is what the status of a QuoinCluster follows from.
type observation struct {
	cluster *clusterv1.Cluster
	// hosts that may be claimed from the cluster's namespace, and those that its Machines have; the cache's own, not to be
	// changed.
	hosts []infrav1.QuoinHost
	// unaccepted counts the hosts that are offered to the namespace, while no machine template there accepts them.
	unaccepted int
	// fleet is every host of this management cluster; the cache's own, not to be changed.
	fleet []infrav1.QuoinHost
	// controlPlane reports whether the host may carry the control plane.
	controlPlane func(*infrav1.QuoinHost) bool
	// machines of the cluster.
	machines []infrav1.QuoinMachine
	// moves is what a move of the cluster meets; nil when there is no Cluster.
	moves *survey
	// others are all other QuoinClusters of this management cluster.
	others []infrav1.QuoinCluster
}

func (r *Reconciler) observe(
	ctx context.Context, quoinCluster *infrav1.QuoinCluster, cluster *clusterv1.Cluster,
) (*observation, error) {
	v := &observation{cluster: cluster}
	if cluster != nil {
		moves, err := r.survey(ctx, r.Client, quoinCluster, cluster)
		if err != nil {
			return nil, err
		}
		v.moves = moves
	}
	hosts := &infrav1.QuoinHostList{}
	if err := r.Client.List(ctx, hosts, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing QuoinHosts: %w", err)
	}
	v.fleet = hosts.Items
	clusters := &infrav1.QuoinClusterList{}
	if err := r.Client.List(ctx, clusters); err != nil {
		return nil, fmt.Errorf("listing QuoinClusters: %w", err)
	}
	for i := range clusters.Items {
		if client.ObjectKeyFromObject(&clusters.Items[i]) != client.ObjectKeyFromObject(quoinCluster) {
			v.others = append(v.others, clusters.Items[i])
		}
	}
	name := quoinCluster.Labels[clusterv1.ClusterNameLabel]
	if cluster != nil {
		name = cluster.Name
	}
	if name != "" {
		machines := &infrav1.QuoinMachineList{}
		if err := r.Client.List(ctx, machines, client.InNamespace(quoinCluster.Namespace),
			client.MatchingLabels{clusterv1.ClusterNameLabel: name}); err != nil {
			return nil, fmt.Errorf("listing the QuoinMachines of Cluster %s: %w", name, err)
		}
		v.machines = machines.Items
	}
	var err error
	if v.controlPlane, err = r.controlPlaneHosts(ctx, cluster, v.machines); err != nil {
		return nil, err
	}
	return v, r.chooseHosts(ctx, quoinCluster.Namespace, v)
}

// chooseHosts finds the hosts of the fleet that the cluster counts: those that are offered to its namespace and that a
// machine template there accepts, so that nobody adds failure domains of his own to it. A host that was claimed before
// it had to be accepted stays.
func (r *Reconciler) chooseHosts(ctx context.Context, namespace string, v *observation) error {
	templates := &infrav1.QuoinMachineTemplateList{}
	if err := r.Client.List(ctx, templates, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the QuoinMachineTemplates of namespace %s: %w", namespace, err)
	}
	had := map[string]bool{}
	for i := range v.machines {
		had[v.machines[i].Spec.ProviderID] = true
	}
	accepted := map[string]bool{}
	for i := range v.fleet {
		host := &v.fleet[i]
		if !placement.NamespaceAllowed(placement.HostOf(host), namespace) {
			continue
		}
		of := host.Namespace
		if _, known := accepted[of]; !known {
			accepted[of] = placement.AcceptedByAny(templates.Items, namespace, of)
		}
		if accepted[of] || host.Spec.ConsumerRef != nil && had[host.ProviderID()] {
			v.hosts = append(v.hosts, *host)
		} else {
			v.unaccepted++
		}
	}
	return nil
}

// available says that the host can be claimed now.
func available(host *infrav1.QuoinHost) bool { return placement.Free(placement.HostOf(host)) }

// outageHostOf is the host as an outage is judged by. Hosts that nobody tries to reach, because they are not
// registered, in quarantine or detached, do not count.
func outageHostOf(host *infrav1.QuoinHost) (_ outage.Host, counts bool) {
	asked := true
	switch host.Status.State {
	case "", infrav1.HostStateRegistering, infrav1.HostStateQuarantined:
		asked = false
	}
	h := outage.Host{Domain: host.Spec.FailureDomain}
	if host.Status.UnreachableSince != nil {
		h.SilentSince = host.Status.UnreachableSince.Time
	}
	return h, asked && !placement.HostOf(host).Detached
}

// hostMatters passes the changes that a cluster's status shows; a host's steps change its status every few seconds.
func hostMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*infrav1.QuoinHost)
		now, ok2 := e.ObjectNew.(*infrav1.QuoinHost)
		if !ok1 || !ok2 {
			return true
		}
		silent1, tells1 := outageHostOf(before)
		silent2, tells2 := outageHostOf(now)
		return available(before) != available(now) || silent1 != silent2 || tells1 != tells2 ||
			moveMatters(before) != moveMatters(now) ||
			!equality.Semantic.DeepEqual(before.Labels, now.Labels) ||
			!equality.Semantic.DeepEqual(before.Spec.ConsumerNamespaces, now.Spec.ConsumerNamespaces)
	}}
}

// moveMatters is what a move asks of a host and any reconcile may change.
func moveMatters(h *infrav1.QuoinHost) [6]bool {
	_, left := h.Annotations[clusterctlv1.DeleteForMoveAnnotation]
	return [6]bool{
		h.Spec.HeldFor != nil, h.Spec.ConsumerRef != nil, !h.DeletionTimestamp.IsZero(), left,
		conditions.IsTrue(h, clusterv1.PausedCondition), conditions.IsTrue(h, infrav1.HostQuietCondition),
	}
}

// clusterMatters passes the changes of Clusters that a move of their namespace asks for, and the pause among them.
func clusterMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*clusterv1.Cluster)
		now, ok2 := e.ObjectNew.(*clusterv1.Cluster)
		return !ok1 || !ok2 || clusterFacts(before) != clusterFacts(now) ||
			before.Spec.ControlPlaneEndpoint != now.Spec.ControlPlaneEndpoint ||
			before.Spec.ControlPlaneRef != now.Spec.ControlPlaneRef
	}}
}

// machineMatters passes the changes of Machines that a move of their Cluster asks for.
func machineMatters() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*clusterv1.Machine)
		now, ok2 := e.ObjectNew.(*clusterv1.Machine)
		return !ok1 || !ok2 || machineFacts(before) != machineFacts(now)
	}}
}

// clustersBeside maps a Cluster or a machine template to the QuoinClusters of its namespace.
func (r *Reconciler) clustersBeside(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool { return c.Namespace == o.GetNamespace() })
}

// clusterThatCountsMachine is the one of the Machine, unless that is paused.
func (r *Reconciler) clusterThatCountsMachine(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clusterOfMachine(ctx, o, false)
}

// clusterPausedOfMachine is the one of the Machine, if that is paused.
func (r *Reconciler) clusterPausedOfMachine(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clusterOfMachine(ctx, o, true)
}

func (r *Reconciler) clusterOfMachine(ctx context.Context, o client.Object, paused bool) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool {
		return c.Namespace == o.GetNamespace() &&
			c.Labels[clusterv1.ClusterNameLabel] == o.GetLabels()[clusterv1.ClusterNameLabel] &&
			conditions.IsTrue(c, clusterv1.PausedCondition) == paused
	})
}

// Every QuoinCluster looks at the whole fleet and at all of its Machines, so changes of them are looked at together:
// when a rack of hundreds falls silent, when all hosts of a namespace see its pause, or while Machines come and go.
const (
	hostsInterval = 5 * time.Second
	// heldInterval is for those that a move waits for.
	heldInterval = time.Second
)

// clustersThatCount are all that are not paused: the host may just have stopped being offered to a namespace.
func (r *Reconciler) clustersThatCount(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool {
		return !conditions.IsTrue(c, clusterv1.PausedCondition)
	})
}

func (r *Reconciler) clustersPaused(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool {
		return conditions.IsTrue(c, clusterv1.PausedCondition)
	})
}

// waitingClusterOf maps a QuoinMachine to the QuoinClusters that wait for its end, or for its pause.
func (r *Reconciler) waitingClusterOf(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool {
		return c.Namespace == o.GetNamespace() &&
			(!c.DeletionTimestamp.IsZero() || conditions.IsTrue(c, clusterv1.PausedCondition))
	})
}

func (r *Reconciler) rivalsOf(ctx context.Context, o client.Object) []ctrl.Request {
	return r.clustersWhere(ctx, func(c *infrav1.QuoinCluster) bool {
		return client.ObjectKeyFromObject(c) != client.ObjectKeyFromObject(o) &&
			conditions.GetReason(c, infrav1.ClusterEndpointReadyCondition) == infrav1.ClusterEndpointConflictReason
	})
}

func (r *Reconciler) clustersWhere(ctx context.Context, match func(*infrav1.QuoinCluster) bool) []ctrl.Request {
	clusters := &infrav1.QuoinClusterList{}
	if err := r.Client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing QuoinClusters")
		return nil
	}
	var requests []ctrl.Request
	for i := range clusters.Items {
		if match(&clusters.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
		}
	}
	return requests
}
