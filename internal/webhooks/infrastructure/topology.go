// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// handleTopology judges what Cluster API's own check leaves out: workers that would be too old for the control plane,
// what runs in the cluster as pods, what kubeadm makes of etcd, what a distribution asks of a version, and whether on
// its way there Cluster API would bring together what a policy does not allow. Without that, it would stop in the
// middle.
func (w *VersionWebhook) handleTopology(ctx context.Context, request admission.Request) admission.Response {
	cluster := &clusterv1.Cluster{}
	if err := w.decoder.Decode(request, cluster); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Cluster: %w", err))
	}
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		return admission.Denied(err.Error())
	}
	edit, err := w.observeTopology(ctx, cluster, policies)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	refusal, warnings := edit.judge()
	if refusal != "" {
		return admission.Denied("spec.topology.version: " + refusal)
	}
	return admission.Allowed("").WithWarnings(slices.DeleteFunc(warnings, func(text string) bool { return text == "" })...)
}

// topologyEdit is a new version of a managed topology, and everything that the verdict on it rests on.
type topologyEdit struct {
	target   string
	policies []skew.Policy
	machines []clusterv1.Machine
	// world is what runs by the Machines and the control plane, inside what runs as pods. unread warns that what a control
	// plane without Machines runs is not known, unseen that inside is not.
	world          skew.World
	inside         []skew.Running
	unread, unseen string
	// made says that the cluster runs.
	made bool
	// kubeadm is what it is told now; nil when that is not known.
	kubeadm *skew.Kubeadm
	class   *clusterv1.ClusterClass
}

func (w *VersionWebhook) observeTopology(
	ctx context.Context, cluster *clusterv1.Cluster, policies []skew.Policy,
) (edit topologyEdit, err error) {
	edit = topologyEdit{target: cluster.Spec.Topology.Version, policies: policies,
		made: ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)}
	key := client.ObjectKeyFromObject(cluster)
	if edit.machines, err = observed.Machines(ctx, w.Reader, key); err != nil {
		return edit, err
	}
	if edit.world, err = observed.WorldOf(ctx, w.Reader, cluster, policies, edit.machines); err != nil {
		return edit, err
	}
	if edit.world, edit.unread, err = observed.WithHosted(ctx, w.Reader, cluster, edit.world); err != nil {
		return edit, err
	}
	if edit.unread != "" {
		edit.unread = "the workers are not compared with the new version: " + edit.unread
	}
	if edit.class, err = w.class(ctx, cluster); err != nil {
		return edit, err
	}
	controlPlane, err := controlPlaneOf(ctx, w.Reader, cluster)
	if err != nil {
		return edit, err
	}
	edit.inside, edit.unseen = w.Workload.Inside(ctx, key, edit.world)
	if edit.inside, err = observed.KeepProxyOf(ctx, w.Reader, cluster, controlPlane, edit.inside); err != nil {
		return edit, err
	}
	if controlPlane != nil {
		kubeadm := observed.KubeadmOf(controlPlane.Spec.Version, &controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration)
		edit.kubeadm = &kubeadm
	}
	return edit, nil
}

// judge says why the version is refused, or else what to know of it; some of that may be empty.
func (e topologyEdit) judge() (refusal string, warnings []string) {
	runs := e.world
	if !e.made {
		// What its Machines wait with, because the distribution does not make a cluster of that version, runs nowhere.
		runs.APIServers = nil
	}
	refusal, newest := skew.Distributed(e.policies, runs, e.target)
	if slices.Contains(runs.APIServers, e.target) {
		refusal = "" // the way back to what runs is open, whatever the catalog says, as for a control plane
	}
	behind, warning := skew.LeftBehind(e.policies, e.world, e.target)
	hops := e.onlyHop()
	if e.class.Spec.Upgrade.External.GenerateUpgradePlanExtension == "" { // else its way is not known
		// A plan knows nothing of what a distribution asks of pools.
		_, distributions := skew.Split(e.policies)
		behind, _ = skew.LeftBehind(distributions, e.world, e.target)
		way, stops := e.way()
		hops, behind = way.Hops, cmp.Or(stops, behind)
	}
	if refusal = cmp.Or(refusal, behind); refusal != "" {
		return refusal, nil
	}
	refusal, unknown := e.judgeInside(hops)
	return refusal, []string{cmp.Or(warning, newest), e.unread, e.unseen, unknown}
}

// way of Cluster API to the version, and why it does not get there by legal steps, with the versions by which it does.
// Nothing is said of a cluster of which nothing runs, nor of versions that its ClusterClass does not list.
func (e topologyEdit) way() (way plan.Plan, stops string) {
	state := plan.StateOf(e.machines).WithAddons(e.inside)
	state.APIServers, state.Estate = e.world.APIServers, e.world.Estate
	way, err := plan.OfTopology(plan.Request{State: state, Policies: e.policies, Target: e.target,
		Known: e.class.Spec.KubernetesVersions})
	var refused *plan.RefusedError
	if errors.As(err, &refused) && refused.Rule != plan.RuleUnknown {
		return plan.Plan{}, refused.Error()
	}
	return way, ""
}

// onlyHop is the version where one step leads to it, whoever plans.
func (e topologyEdit) onlyHop() []string {
	oldest := skew.Oldest(e.world.APIServers...)
	if oldest == "" || skew.ControlPlaneStep(oldest, e.target) != nil {
		return nil
	}
	return []string{e.target}
}

// judgeInside judges each hop as an edit of the control plane's own version is judged. What runs as pods follows the
// first of them, and is judged by that one.
func (e topologyEdit) judgeInside(hops []string) (refusal, unknown string) {
	if len(hops) == 0 {
		return "", ""
	}
	inside := e.world
	inside.Components = e.inside
	ordinary, _ := skew.Split(e.policies)
	refusal, _ = skew.LeftBehind(ordinary, inside, hops[0])
	if refusal != "" || e.kubeadm == nil {
		return refusal, ""
	}
	violations, unknown := e.kubeadm.JudgeHops(e.policies, inside, *e.kubeadm, hops)
	return skew.Summary(violations), unknown
}

// class is the Cluster's ClusterClass; an empty one while it is not there, in which Cluster API finds nothing to do.
func (w *VersionWebhook) class(ctx context.Context, cluster *clusterv1.Cluster) (*clusterv1.ClusterClass, error) {
	class := &clusterv1.ClusterClass{}
	key := cluster.GetClassKey()
	if err := w.Reader.Get(ctx, key, class); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ClusterClass %s: %w", key, err)
	}
	return class, nil
}
