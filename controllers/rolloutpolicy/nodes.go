// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/noderefutil"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
)

const (
	// workloadTimeout bounds what one reconcile asks of a workload cluster, and again what it changes there.
	workloadTimeout = 5 * time.Second
	// workloadRetry is when a workload cluster that did not answer is asked again.
	workloadRetry = 15 * time.Second
	// mostMarked Nodes are tainted in one reconcile.
	mostMarked = 20
)

var errNoWorkload = errors.New("no connections to workload clusters are made here")

// taint of Nodes whose Machines are to be replaced: pods go there only where nothing else is free (K-1).
var taint = corev1.Taint{Key: quoinv1.RolloutTaintKey, Effect: corev1.TaintEffectPreferNoSchedule}

// workload clients: one reads Nodes from a cache, the other everything as it is. Nobody is dialed from here.
func (r *Reconciler) workload(ctx context.Context, cluster client.ObjectKey) (cached, live client.Client, err error) {
	if r.ClusterCache == nil {
		return nil, nil, errNoWorkload
	}
	if cached, err = r.ClusterCache.GetClient(ctx, cluster); err == nil {
		live, err = r.ClusterCache.GetUncachedClient(ctx, cluster)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connect to workload cluster %s: %w", cluster, err)
	}
	return cached, live, nil
}

// readNodes reads the Nodes of Machines that leave or will, and the pods of those about which a decision rests on them.
func (r *Reconciler) readNodes(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
) (map[string]rollout.Node, error) {
	if !seen.hooked {
		return nil, nil
	}
	cached, live, err := r.workload(ctx, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	list := &corev1.NodeList{}
	if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Nodes of Cluster %s: %w", cluster.Name, err)
	}
	byName := map[string]*corev1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	nodes := map[string]rollout.Node{}
	for name, machine := range seen.machines {
		if !machine.Status.NodeRef.IsDefined() || !seen.guarded[name] {
			continue
		}
		node, err := nodeOf(ctx, live, machine, byName[machine.Status.NodeRef.Name])
		if err != nil {
			return nil, err
		}
		node.UnreachableSince = steady.Shift(r.Clock, node.UnreachableSince)
		nodes[name] = node
	}
	seen.fill(nodes)
	for _, name := range rollout.NeedsPods(seen.state, &policy.Spec, r.Clock.Now()) {
		node := nodes[name]
		if err := r.pods(ctx, live, cluster, seen.machines[name], &node); err != nil {
			return nodes, err
		}
		nodes[name] = node
	}
	return nodes, nil
}

// nodeOf is what is known of the Node of a Machine. That of a Machine which leaves is known to be gone only where the
// API server itself says so.
func nodeOf(
	ctx context.Context, live client.Reader, machine *clusterv1.Machine, node *corev1.Node,
) (rollout.Node, error) {
	if node == nil && machine.DeletionTimestamp.IsZero() {
		return rollout.Node{}, nil
	}
	if node == nil {
		node = &corev1.Node{}
		switch err := live.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); {
		case apierrors.IsNotFound(err):
			return rollout.Node{Known: true, Gone: true}, nil
		case err != nil:
			return rollout.Node{}, fmt.Errorf("read Node %s: %w", machine.Status.NodeRef.Name, err)
		}
	}
	if another(machine, node) {
		return rollout.Node{Known: true, Gone: true}, nil
	}
	found := rollout.Node{Known: true, Unreachable: noderefutil.IsNodeUnreachable(node),
		Unschedulable: node.Spec.Unschedulable, Marked: slices.ContainsFunc(node.Spec.Taints, ofRollouts)}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && found.Unreachable {
			found.UnreachableSince = condition.LastTransitionTime.Time
		}
	}
	for _, volume := range node.Status.VolumesAttached {
		found.Volumes = append(found.Volumes, string(volume.Name))
	}
	return found, nil
}

// another reports whether the Node has the name of that of the Machine and another host.
func another(machine *clusterv1.Machine, node *corev1.Node) bool {
	return machine.Spec.ProviderID != "" && node.Spec.ProviderID != "" && machine.Spec.ProviderID != node.Spec.ProviderID
}

func ofRollouts(t corev1.Taint) bool { return t.MatchTaint(&taint) }

// drainer reads and evicts as Cluster API does, but that pods of a kubelet that is silent count until they are gone.
// Drain rules are few and read rarely: no cache is kept for them.
func (r *Reconciler) drainer(live client.Client) *drain.Helper {
	return &drain.Helper{Client: readsLive{r.Client, r.APIReader}, RemoteClient: live, GracePeriodSeconds: -1}
}

// readsLive lists from the API server and does everything else as the client does.
type readsLive struct {
	client.Client
	live client.Reader
}

// List implements client.Reader.
func (c readsLive) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.live.List(ctx, list, options...)
}

// remnant is what was seen of pods on the Node of a Machine that Cluster API does not drain any more, and when. A
// process that begins anew knows nothing of it, and counts the delay after the drain from when Cluster API passed on:
// one that is killed over and over must come to an end.
type remnant struct {
	cluster client.ObjectKey
	at      time.Time
	says    string
}

// forgetRemnants of Machines of the Cluster that are none of these.
func (r *Reconciler) forgetRemnants(cluster client.ObjectKey, machines map[string]*clusterv1.Machine) {
	there := map[any]bool{}
	for _, machine := range machines {
		there[machine.UID] = true
	}
	r.remnants.Range(func(uid, last any) bool {
		if was, _ := last.(remnant); was.cluster == cluster && !there[uid] {
			r.remnants.Delete(uid)
		}
		return true
	})
}

// pods reads what a drain of the Node still has to end.
func (r *Reconciler) pods(
	ctx context.Context, live client.Client, cluster *clusterv1.Cluster, machine *clusterv1.Machine, node *rollout.Node,
) error {
	found, err := r.drainer(live).GetPodsForEviction(ctx, cluster, machine, machine.Status.NodeRef.Name)
	if err != nil {
		return fmt.Errorf("list the pods of Node %s: %w", machine.Status.NodeRef.Name, err)
	}
	node.Listed, node.Pods = true, nil
	for _, pod := range found.Pods() {
		is := podOf(pod)
		is.Ends = steady.Shift(r.Clock, is.Ends)
		node.Pods = append(node.Pods, is)
	}
	slices.SortFunc(node.Pods, func(a, b rollout.Pod) int { return cmp.Compare(a.Name, b.Name) })
	if rollout.LeaveOf(machine).Passed.IsZero() {
		return nil
	}
	was, _ := r.remnants.Load(machine.UID)
	last, _ := was.(remnant)
	if len(node.Pods) > 0 {
		last.cluster, last.at = client.ObjectKeyFromObject(cluster), r.Clock.Now()
		r.remnants.Store(machine.UID, last)
		node.Says = last.says
	}
	node.Emptied = last.at
	if len(node.Pods) == 0 && !last.at.IsZero() {
		node.Volumes, err = volumes(ctx, live, machine.Status.NodeRef.Name, node.Volumes, found.SkippedPods())
	}
	return err
}

// volumes that are to be detached from a Node, besides those that its status reports: the attach-detach controller
// takes a volume off the status before it detaches it, and its VolumeAttachment away after that. Like Cluster API's
// Machine controller (shouldWaitForNodeVolumes) it leaves out the claims of pods that a drain skips.
func volumes(
	ctx context.Context, live client.Reader, node string, reported []string, skipped []*corev1.Pod,
) ([]string, error) {
	attached, found, claims, skips := sets.New(reported...), sets.Set[string]{}, sets.Set[string]{}, sets.Set[string]{}
	attachments := &storagev1.VolumeAttachmentList{}
	if err := live.List(ctx, attachments); err != nil {
		return nil, fmt.Errorf("list the VolumeAttachments of Node %s: %w", node, err)
	}
	for _, a := range attachments.Items {
		if a.Spec.NodeName == node && a.Status.Attached {
			attached.Insert(ptr.Deref(a.Spec.Source.PersistentVolumeName, a.Name))
		}
	}
	if attached.Len() == 0 {
		return nil, nil
	}
	for _, pod := range skipped {
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				skips.Insert(pod.Namespace + "/" + volume.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	list := &corev1.PersistentVolumeList{}
	if err := live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the PersistentVolumes of Node %s: %w", node, err)
	}
	for _, pv := range list.Items {
		handle := pv.Name
		if csi := pv.Spec.CSI; csi != nil {
			handle = "kubernetes.io/csi/" + csi.Driver + "^" + csi.VolumeHandle
		}
		if claim := pv.Spec.ClaimRef; claim != nil && attached.HasAny(pv.Name, handle) {
			found.Insert(pv.Name, handle) // which another PersistentVolume may have as well
			claims.Insert(claim.Namespace + "/" + claim.Name)
		}
	}
	return sets.List(claims.Difference(skips).Union(attached.Difference(found))), nil
}

func podOf(pod *corev1.Pod) rollout.Pod {
	is := rollout.Pod{Name: pod.Namespace + "/" + pod.Name}
	for _, owner := range pod.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			is.Owner = owner.Kind + " " + owner.Name
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
			is.Volumes++
		}
	}
	if pod.DeletionTimestamp != nil {
		is.Ends = pod.DeletionTimestamp.Time
	}
	return is
}

// setTaint on the Node of a Machine, or take it off again. A Node that is not there has none.
func setTaint(ctx context.Context, workload client.Client, machine *clusterv1.Machine, on bool) error {
	node := &corev1.Node{}
	name := machine.Status.NodeRef.Name
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if slices.ContainsFunc(node.Spec.Taints, ofRollouts) == on || another(machine, node) {
		return nil
	}
	before := node.DeepCopy()
	if on {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	} else {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ofRollouts)
	}
	// The list is replaced as a whole: nobody else may have changed it meanwhile.
	if err := workload.Patch(ctx, node, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("taint Node %s: %w", name, err)
	}
	return nil
}

// cordon the Node of a Machine and take it out of load balancers, before its pods are asked to end (S3-14, S3-15).
func cordon(ctx context.Context, workload client.Client, machine *clusterv1.Machine) error {
	node := &corev1.Node{}
	name := machine.Status.NodeRef.Name
	if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
	if node.Spec.Unschedulable && excluded || another(machine, node) {
		return nil
	}
	before := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[corev1.LabelNodeExcludeBalancers] = ""
	if err := workload.Patch(ctx, node, before); err != nil {
		return fmt.Errorf("cordon Node %s: %w", name, err)
	}
	return nil
}
