// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

const clusterDeletionPath = "/validate-deletion-cluster-x-k8s-io-v1beta2-cluster"

// The webhook is called for no other Clusters than those of config/control-plane-quoin/match_conditions.yaml.
//
// +kubebuilder:webhook:verbs=delete,path=/validate-deletion-cluster-x-k8s-io-v1beta2-cluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=clusters,versions=v1beta2,name=deletion.cluster.controlplane.quoin.cluster.x-k8s.io,sideEffects=None,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// ClusterDeletionWebhook refuses to delete a protected Cluster until its name was written down.
//
// It lets the Cluster of a Namespace that is being deleted go. Everything else in the Namespace goes in any case, the
// authority's keys and the Machines included, so a Cluster that stayed would protect nothing and be nothing.
type ClusterDeletionWebhook struct {
	// Reader reads Namespaces as they are: no cache.
	Reader  client.Reader
	decoder admission.Decoder
}

func (w *ClusterDeletionWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	mgr.GetWebhookServer().Register(clusterDeletionPath, &admission.Webhook{Handler: w})
	return nil
}

// Handle answers a DELETE, also as part of a DELETECOLLECTION.
func (w *ClusterDeletionWebhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	cluster := &clusterv1.Cluster{}
	if err := w.decoder.DecodeRaw(request.OldObject, cluster); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Cluster: %w", err))
	}
	if moved(cluster) || !cluster.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	return refuseProtected(ctx, w.Reader, cluster, "delete it with all its Machines")
}

func moved(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}

// refuseProtected answers for a Cluster that would be lost by what somebody wants to do.
func refuseProtected(
	ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster, to string,
) admission.Response {
	_, protected := cluster.Annotations[controlplanev1.ProtectAnnotation]
	confirmed, ok := cluster.Annotations[controlplanev1.ConfirmDeletionAnnotation]
	if !protected || confirmed == cluster.Name {
		return admission.Allowed("")
	}
	namespace := &corev1.Namespace{}
	err := reader.Get(ctx, client.ObjectKey{Name: cluster.Namespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return admission.Allowed("")
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("read Namespace %s of Cluster %s: %w",
			cluster.Namespace, cluster.Name, err))
	case !namespace.DeletionTimestamp.IsZero():
		return admission.Allowed("")
	}
	found := "it has none"
	if ok {
		found = fmt.Sprintf("it says %q", confirmed)
	}
	return admission.Denied(fmt.Sprintf(
		"Cluster %s is protected by annotation %s: to %s, give the Cluster annotation %s: %s (%s), or take the protection "+
			"away",
		cluster.Name, controlplanev1.ProtectAnnotation, to, controlplanev1.ConfirmDeletionAnnotation, cluster.Name, found))
}
