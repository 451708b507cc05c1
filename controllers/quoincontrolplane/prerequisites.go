// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// ensurePrerequisites makes what Machines need before the first of them: the template's owner, certificates, a
// kubeconfig. It reports whether everything is there; if not, the outcome says what is awaited.
func (r *Reconciler) ensurePrerequisites(ctx context.Context, p *reconciliation) (bool, error) {
	// What fails for one thing does not leave the others undone.
	var failures []error
	if err := r.ownTemplate(ctx, p); err != nil {
		failures = append(failures, err)
	}
	if !ptr.Deref(p.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		p.outcome = waiting(controlplanev1.WaitingForClusterInfrastructureReason, "waiting for the Cluster's infrastructure")
		return false, kerrors.NewAggregate(failures)
	}
	if err := r.ensureCertificates(ctx, p); err != nil {
		p.subject.Certificates = certificateCondition(metav1.ConditionUnknown, clusterv1.InternalErrorReason, err.Error())
		failures = append(failures, err)
	}
	if !p.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		p.outcome = waiting(controlplanev1.WaitingForControlPlaneEndpointReason,
			"waiting for the Cluster's control-plane endpoint")
		return false, kerrors.NewAggregate(failures)
	}
	if err := r.ensureKubeconfig(ctx, p); err != nil {
		failures = append(failures, err)
	}
	return len(failures) == 0, kerrors.NewAggregate(failures)
}

func waiting(reason, message string) controlplane.Outcome {
	return controlplane.Outcome{Step: controlplane.Step{Kind: controlplane.Wait, Reason: reason, Message: message}}
}

// ownTemplate makes the Cluster an owner of the infrastructure machine template, so that clusterctl moves and deletes
// it with the Cluster. A template that does not exist is no error: only new Machines need it.
func (r *Reconciler) ownTemplate(ctx context.Context, p *reconciliation) error {
	ref := p.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, p.controlPlane.Namespace)
	if apierrors.IsNotFound(err) {
		p.subject.TemplateProblem = fmt.Sprintf("%s %s does not exist", ref.Kind, ref.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the machine template: %w", err)
	}
	p.subject.Template = template
	owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind,
		Name: p.cluster.Name, UID: p.cluster.UID}
	if util.HasExactOwnerRef(template.GetOwnerReferences(), owner) {
		return nil
	}
	original := template.DeepCopy()
	template.SetOwnerReferences(util.EnsureOwnerRef(template.GetOwnerReferences(), owner))
	if err := r.Client.Patch(ctx, template, client.MergeFrom(original)); err != nil {
		return fmt.Errorf("making the Cluster an owner of %s %s: %w", ref.Kind, ref.Name, err)
	}
	return nil
}

// ensureCertificates makes the cluster's authorities, once. When a Machine may have used them they are only looked up:
// an authority that was lost cannot be made again, and a new one would cut off every node.
func (r *Reconciler) ensureCertificates(ctx context.Context, p *reconciliation) error {
	certificates := secret.NewCertificatesForInitialControlPlane(
		p.controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.DeepCopy())
	key := util.ObjectKey(p.cluster)
	owner := desired.ControllerRef(p.controlPlane)
	used, err := r.certificatesUsed(ctx, p)
	if err != nil {
		return err
	}
	if used {
		err = certificates.LookupCached(ctx, r.secrets(), r.Client, key)
	} else {
		err = certificates.LookupOrGenerateCached(ctx, r.secrets(), r.Client, key, owner)
	}
	if err != nil {
		return fmt.Errorf("the cluster's certificates: %w", err)
	}
	var missing []string
	for _, certificate := range certificates {
		if certificate.Secret == nil {
			missing = append(missing, secret.Name(p.cluster.Name, certificate.Purpose))
			continue
		}
		if err := r.own(ctx, p.controlPlane, certificate.Secret); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		p.subject.Certificates = certificateCondition(metav1.ConditionFalse, clusterv1.NotAvailableReason,
			fmt.Sprintf("Secrets %s are missing: restore them from a backup, they cannot be made again",
				strings.Join(missing, ", ")))
		return nil
	}
	p.subject.Certificates = certificateCondition(metav1.ConditionTrue, clusterv1.AvailableReason, "")
	return nil
}

// certificatesUsed reports whether a Machine may have the certificates already. Status alone does not show it: it is
// lost when the objects are moved.
func (r *Reconciler) certificatesUsed(ctx context.Context, p *reconciliation) (bool, error) {
	if p.subject.Answered() {
		return true, nil
	}
	var err error
	p.machines, err = r.readMachines(ctx, &p.subject, false)
	return len(p.machines) > 0, err
}

func certificateCondition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: controlplanev1.ControlPlaneCertificatesAvailableCondition,
		Status: status, Reason: reason, Message: message}
}

// own makes the control plane the controller of a Secret of Cluster API. A Secret of another type is the user's.
func (r *Reconciler) own(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, object *corev1.Secret,
) error {
	owner := desired.ControllerRef(controlPlane)
	if object.Type != clusterv1.ClusterSecretType || util.HasExactOwnerRef(object.GetOwnerReferences(), owner) {
		return nil
	}
	original := object.DeepCopy()
	if controller := metav1.GetControllerOf(object); controller != nil {
		object.SetOwnerReferences(util.RemoveOwnerRef(object.GetOwnerReferences(), *controller))
	}
	object.SetOwnerReferences(util.EnsureOwnerRef(object.GetOwnerReferences(), owner))
	if err := r.Client.Patch(ctx, object, client.MergeFrom(original)); err != nil {
		return fmt.Errorf("owning Secret %s: %w", klog.KObj(object), err)
	}
	return nil
}

// ensureKubeconfig makes the kubeconfig Secret, and renews its client certificate when half of its life is over.
func (r *Reconciler) ensureKubeconfig(ctx context.Context, p *reconciliation) error {
	if !isTrue(p.subject.Certificates) {
		return nil
	}
	key := util.ObjectKey(p.cluster)
	algorithm := kubeconfig.KeyEncryptionAlgorithm(desired.KeyAlgorithm(p.controlPlane))
	stored, err := secret.GetFromNamespacedName(ctx, r.secrets(), key, secret.Kubeconfig)
	if apierrors.IsNotFound(err) {
		err = kubeconfig.CreateSecretWithOwner(ctx, r.Client, key, p.cluster.Spec.ControlPlaneEndpoint.String(),
			desired.ControllerRef(p.controlPlane), algorithm)
		if errors.Is(err, kubeconfig.ErrDependentCertificateNotFound) || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("making the kubeconfig Secret: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig Secret: %w", err)
	}
	if err := r.own(ctx, p.controlPlane, stored); err != nil {
		return err
	}
	if !metav1.IsControlledBy(stored, p.controlPlane) {
		return nil
	}
	old, err := kubeconfig.NeedsClientCertRotation(stored, certs.ClientCertificateRenewalDuration)
	if err != nil {
		return fmt.Errorf("the kubeconfig Secret's certificate: %w", err)
	}
	if old {
		ctrl.LoggerFrom(ctx).Info("Renewing the client certificate in the kubeconfig Secret")
		if err := kubeconfig.RegenerateSecret(ctx, r.Client, stored, algorithm); err != nil {
			return fmt.Errorf("renewing the kubeconfig Secret: %w", err)
		}
	}
	return nil
}
