// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1alpha1-quoincluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters,versions=v1alpha1,name=default.quoincluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-quoincluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters,versions=v1alpha1,name=validation.quoincluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinclusters,verbs=get;list;watch

// ClusterWebhook defaults and validates QuoinClusters.
type ClusterWebhook struct {
	webhooks.Deletable[*infrav1.QuoinCluster]

	// Client lists the other clusters.
	Client client.Reader
}

var (
	_ admission.Defaulter[*infrav1.QuoinCluster] = &ClusterWebhook{}
	_ admission.Validator[*infrav1.QuoinCluster] = &ClusterWebhook{}
)

func (w *ClusterWebhook) setup(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &infrav1.QuoinCluster{}).WithDefaulter(w).WithValidator(w).Complete()
}

// Default gives an endpoint that names no port the usual one.
func (w *ClusterWebhook) Default(_ context.Context, cluster *infrav1.QuoinCluster) error {
	endpoint := &cluster.Spec.ControlPlaneEndpoint
	if endpoint.Host != "" && endpoint.Port == 0 {
		endpoint.Port = infrav1.DefaultAPIServerPort
	}
	return nil
}

// ValidateCreate refuses an endpoint that cannot work or that another cluster has.
func (w *ClusterWebhook) ValidateCreate(
	ctx context.Context, cluster *infrav1.QuoinCluster,
) (admission.Warnings, error) {
	reasons := validateClusterSpec(field.NewPath("spec"), &cluster.Spec)
	collisions, err := w.validateEndpointIsFree(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var warnings admission.Warnings
	if len(cluster.OwnerReferences) == 0 { // else a move or a restore brings along what was written before
		warnings = warnOfRecord(ctx, "", cluster.Spec.Version)
	}
	return warnings, refuseCluster(cluster, append(reasons, collisions...))
}

// ValidateUpdate refuses what ValidateCreate refuses, and to move the endpoint of a cluster. It warns of a version that
// is not a ClusterUpgrade's.
func (w *ClusterWebhook) ValidateUpdate(
	ctx context.Context, before, after *infrav1.QuoinCluster,
) (admission.Warnings, error) {
	if !after.DeletionTimestamp.IsZero() || webhooks.Unchanged(before.Spec, after.Spec) {
		return nil, nil
	}
	reasons := validateClusterSpec(field.NewPath("spec"), &after.Spec)
	reasons = append(reasons, validateEndpointStays(before.Spec.ControlPlaneEndpoint, after.Spec.ControlPlaneEndpoint)...)
	collisions, err := w.validateEndpointIsFree(ctx, after)
	if err != nil {
		return nil, err
	}
	return warnOfRecord(ctx, before.Spec.Version, after.Spec.Version), refuseCluster(after, append(reasons, collisions...))
}

// warnOfRecord says what the record of a version is worth to whoever writes it, but for a ClusterUpgrade (S0-2). It is
// advice, so the name by which a client goes is trusted.
func warnOfRecord(ctx context.Context, before, after string) admission.Warnings {
	if before == after || fieldManager(ctx) == fieldowner.Upgrades {
		return nil
	}
	text := "spec.version is a record, which a ClusterUpgrade writes, and upgrades nothing: spec.version of the control " +
		"plane decides what runs, in a managed topology spec.topology.version of the Cluster"
	if after != "" {
		text += "; make a ClusterUpgrade to " + after + " instead"
	}
	return admission.Warnings{text}
}

// fieldManager is the name that a request gives its writer; empty without one.
func fieldManager(ctx context.Context) string {
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return ""
	}
	options := metav1.UpdateOptions{} // those of a patch come as these
	if err := json.Unmarshal(request.Options.Raw, &options); err != nil {
		return ""
	}
	return options.FieldManager
}

func refuseCluster(cluster *infrav1.QuoinCluster, reasons field.ErrorList) error {
	return webhooks.Refuse(infrav1.GroupVersion, "QuoinCluster", cluster.Name, reasons)
}

func validateClusterSpec(path *field.Path, spec *infrav1.QuoinClusterSpec) field.ErrorList {
	host := spec.ControlPlaneEndpoint.Host
	if host == "" {
		return nil
	}
	path = path.Child("controlPlaneEndpoint", "host")
	ip, err := netip.ParseAddr(host)
	if spec.LoadBalancer.Type == infrav1.LoadBalancerKeepalived {
		if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
			return field.ErrorList{field.Invalid(path, host,
				"with loadBalancer.type Keepalived this becomes the virtual address: give a free unicast IP address of the "+
					"control-plane hosts' network")}
		}
		return nil
	}
	if err == nil {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 || endsInDigits.MatchString(host) {
		return field.ErrorList{field.Invalid(path, host,
			`give the IP address or DNS name of the load balancer, without scheme, port or brackets ("192.0.2.10", `+
				`"api.example.com")`)}
	}
	return nil
}

// validateEndpointStays refuses another endpoint: it is in the certificates of the API servers and in the kubeconfig
// of every kubelet.
func validateEndpointStays(before, after infrav1.APIEndpoint) field.ErrorList {
	const wayOut = "is in every certificate and kubeconfig of the cluster and cannot be changed: make a new cluster, or " +
		"put the old address in front of the new one"
	path := field.NewPath("spec", "controlPlaneEndpoint")
	var reasons field.ErrorList
	if before.Host != "" && before.Host != after.Host {
		reasons = append(reasons, field.Forbidden(path.Child("host"), fmt.Sprintf("%s %s", before.Host, wayOut)))
	}
	if before.Host != "" && before.Port != 0 && before.Port != after.Port {
		reasons = append(reasons, field.Forbidden(path.Child("port"), fmt.Sprintf("%d %s", before.Port, wayOut)))
	}
	return reasons
}

func (w *ClusterWebhook) validateEndpointIsFree(
	ctx context.Context, cluster *infrav1.QuoinCluster,
) (field.ErrorList, error) {
	if cluster.Spec.ControlPlaneEndpoint.Host == "" && cluster.Spec.LoadBalancer.Keepalived == nil {
		return nil, nil
	}
	var clusters infrav1.QuoinClusterList
	if err := w.Client.List(ctx, &clusters); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("list QuoinClusters to find out whether one has this endpoint: %w",
			err))
	}
	var reasons field.ErrorList
	for i := range clusters.Items {
		other := &clusters.Items[i]
		if other.Namespace != cluster.Namespace || other.Name != cluster.Name {
			reasons = append(reasons, validateNoCollision(cluster, other)...)
		}
	}
	return reasons, nil
}

// validateNoCollision compares two clusters. That two virtual router ids may live on two network segments cannot be
// seen from here, and 255 of them are plenty, so they must differ everywhere.
func validateNoCollision(cluster, other *infrav1.QuoinCluster) field.ErrorList {
	path := field.NewPath("spec")
	name := fmt.Sprintf("QuoinCluster %s/%s", other.Namespace, other.Name)
	if !other.DeletionTimestamp.IsZero() {
		name += ", which is still being deleted,"
	}
	var reasons field.ErrorList
	mine, theirs := cluster.Spec.ControlPlaneEndpoint, other.Spec.ControlPlaneEndpoint
	if mine.Host != "" && fieldindex.NormalAddress(mine.Host) == fieldindex.NormalAddress(theirs.Host) {
		virtual := cluster.Spec.LoadBalancer.Keepalived != nil || other.Spec.LoadBalancer.Keepalived != nil
		// Somebody else's load balancer may serve two clusters at two ports; a virtual address belongs to one.
		if virtual || apiPort(mine) == apiPort(theirs) {
			reasons = append(reasons, field.Forbidden(path.Child("controlPlaneEndpoint", "host"), fmt.Sprintf(
				"%s has the endpoint %s: give this cluster another address", name, theirs.Host)))
		}
	}
	if a, b := cluster.Spec.LoadBalancer.Keepalived, other.Spec.LoadBalancer.Keepalived; a != nil && b != nil &&
		a.VirtualRouterID == b.VirtualRouterID {
		reasons = append(reasons, field.Forbidden(path.Child("loadBalancer", "keepalived", "virtualRouterID"), fmt.Sprintf(
			"%s has the virtual router id %d: give this cluster another one between 1 and 255", name, b.VirtualRouterID)))
	}
	return reasons
}

func apiPort(endpoint infrav1.APIEndpoint) int32 {
	if endpoint.Port == 0 {
		return infrav1.DefaultAPIServerPort
	}
	return endpoint.Port
}
