// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

const (
	deploymentVersionPath = "/validate-version-cluster-x-k8s-io-v1beta2-machinedeployment"
	setVersionPath        = "/validate-version-cluster-x-k8s-io-v1beta2-machineset"
	topologyVersionPath   = "/validate-version-cluster-x-k8s-io-v1beta2-cluster"
)

// The webhooks are called for nothing but changes of a version of what is Quoin's, which
// config/infrastructure-quoin/match_conditions.yaml says. So nothing of others, no scaling and no finalizer waits for a
// manager that does not answer.
//
// +kubebuilder:webhook:verbs=create;update,path=/validate-version-cluster-x-k8s-io-v1beta2-machinedeployment,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machinedeployments,versions=v1beta2,name=version.machinedeployment.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-version-cluster-x-k8s-io-v1beta2-machineset,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machinesets,versions=v1beta2,name=version.machineset.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=update,path=/validate-version-cluster-x-k8s-io-v1beta2-cluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=clusters,versions=v1beta2,name=version.cluster.infrastructure.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusterclasses,verbs=get
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=quoin-releases,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list

// VersionWebhook judges versions of pools of workers, and of managed topologies, before anything is made of them. It
// refuses what no next step makes legal, and warns of what waits for its control plane: whoever applies both in one
// commit asks about each of them first.
type VersionWebhook struct {
	// Reader reads Clusters and control planes as they are, of every namespace. Machines may be seconds old: gates ask
	// again.
	Reader client.Reader
	// Workload reads the cluster itself, of a pool only where a policy asks for kube-proxy; nothing in it is read when it
	// is nil.
	Workload webhooks.Workload
	decoder  admission.Decoder
}

func (w *VersionWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	for path, handle := range map[string]admission.HandlerFunc{
		deploymentVersionPath: w.handleDeployment, setVersionPath: w.handleSet, topologyVersionPath: w.handleTopology,
	} {
		mgr.GetWebhookServer().Register(path, &admission.Webhook{Handler: handle})
	}
	return nil
}

func (w *VersionWebhook) handleDeployment(ctx context.Context, request admission.Request) admission.Response {
	deployment := &clusterv1.MachineDeployment{}
	if err := w.decoder.Decode(request, deployment); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the MachineDeployment: %w", err))
	}
	return w.judge(ctx, request, deployment.Spec.ClusterName, unavailableMeanwhile(deployment),
		skew.Pool{Object: "MachineDeployment " + deployment.Name, Version: deployment.Spec.Template.Spec.Version})
}

// unavailableMeanwhile says how many Machines of the pool may be missing while its new ones wait, and how to keep them;
// empty when none may. Cluster API deletes as many Machines as may be unavailable before any new one serves, however
// many more it makes.
func unavailableMeanwhile(deployment *clusterv1.MachineDeployment) string {
	deployment.Spec.Replicas = ptr.To(ptr.Deref(deployment.Spec.Replicas, 1))
	lost := mdutil.MaxUnavailable(*deployment)
	if lost == 0 || ptr.Deref(deployment.Spec.Paused, false) {
		return ""
	}
	return fmt.Sprintf("until then %d of %d Machines of MachineDeployment %s may be missing: Cluster API deletes as many "+
		"first, and only a RolloutPolicy with drain holds them. Set maxSurge: 1 and maxUnavailable: 0, or raise it after "+
		"the control plane", lost, *deployment.Spec.Replicas, deployment.Name)
}

func (w *VersionWebhook) handleSet(ctx context.Context, request admission.Request) admission.Response {
	set := &clusterv1.MachineSet{}
	if err := w.decoder.Decode(request, set); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the MachineSet: %w", err))
	}
	return w.judge(ctx, request, set.Spec.ClusterName, "",
		skew.Pool{Object: "MachineSet " + set.Name, Version: set.Spec.Template.Spec.Version})
}

// judge the version of a pool. Unavailable is warned of at an edit: a new pool has no Machines yet.
func (w *VersionWebhook) judge(
	ctx context.Context, request admission.Request, name, unavailable string, pool skew.Pool,
) admission.Response {
	cluster, key := &clusterv1.Cluster{}, client.ObjectKey{Namespace: request.Namespace, Name: name}
	switch err := w.Reader.Get(ctx, key, cluster); {
	case apierrors.IsNotFound(err):
		return admission.Allowed("its Cluster is not there yet")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read Cluster %s: %w", key, err))
	case request.Operation == admissionv1.Create && ptr.Deref(cluster.Spec.Paused, false):
		return admission.Allowed("it is moved or restored with its Cluster")
	}
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		return admission.Denied(err.Error())
	}
	if pool.ControlPlane, err = w.wanted(ctx, cluster); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	world, err := observed.APIServers(ctx, w.Reader, cluster, policies)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	world, unread, err := observed.WithHosted(ctx, w.Reader, cluster, world)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	unseen := ""
	if skew.AskForProxy(policies) {
		world.Components, unseen = w.Workload.Inside(ctx, key, world)
		world.Components, err = observed.KeepProxyOf(ctx, w.Reader, cluster, nil, world.Components)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	refused, waits := pool.Judge(policies, world)
	if len(refused) > 0 {
		return admission.Denied(skew.Summary(refused))
	}
	response := admission.Allowed("")
	if unread != "" {
		response = response.WithWarnings("the version of " + pool.Object + " is not judged by its API servers: " + unread)
	}
	if unseen != "" {
		response = response.WithWarnings(unseen)
	}
	if len(waits) > 0 {
		response = response.WithWarnings("no host is claimed for new Machines of " + pool.Object + " yet: " +
			skew.Summary(waits))
		if unavailable != "" && request.Operation == admissionv1.Update {
			response = response.WithWarnings(unavailable)
		}
	}
	return response
}

// wanted is the version that the Cluster's control plane is to have next; empty when that is not known. That of a
// topology may be many steps away.
func (w *VersionWebhook) wanted(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	controlPlane, err := controlPlaneOf(ctx, w.Reader, cluster)
	if err != nil || controlPlane == nil {
		return "", err
	}
	return controlPlane.Spec.Version, nil
}

// controlPlaneOf reads the Cluster's control plane; nil when it is another provider's, and while it is not there.
func controlPlaneOf(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster,
) (*controlplanev1.QuoinControlPlane, error) {
	ref := cluster.Spec.ControlPlaneRef
	if ref.Kind != "QuoinControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil, nil
	}
	controlPlane := &controlplanev1.QuoinControlPlane{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}
	switch err := reader.Get(ctx, key, controlPlane); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read QuoinControlPlane %s: %w", key, err)
	}
	return controlPlane, nil
}
