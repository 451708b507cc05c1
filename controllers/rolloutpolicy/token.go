// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// tokenAge is how old a Machine is whose bootstrap token is looked at. Tokens live for 15 minutes unless the bootstrap
	// provider is told otherwise.
	tokenAge = 5 * time.Minute
	// tokenPrefix begins the name of a bootstrap token's Secret, and the token's ID ends it.
	tokenPrefix = "bootstrap-token-" //nolint:gosec // part of a name
)

// replaceDead deletes a Machine that is to be admitted and can never join, and reports whether it did. Its MachineSet
// makes another one, with a token of its own. Cluster API's kubeadm provider refreshes the token of a Machine that
// waits as long as it exists, but makes no other one for it: a pause of the Cluster that outlasts a token leaves one
// without, and no condition says so. What is not known deletes nothing: the join says what is wrong.
func (r *Reconciler) replaceDead(
	ctx context.Context, policy *quoinv1.RolloutPolicy, cluster *clusterv1.Cluster, seen *observation,
	machine *clusterv1.Machine,
) (bool, error) {
	// One that was made in place of another is nobody's to make anew.
	if r.Clock.Since(machine.CreationTimestamp.Time) < tokenAge || joins(machine) ||
		machine.Annotations[quoinv1.RolloutReplacesAnnotation] != "" {
		return false, nil
	}
	gone, err := r.tokenGone(ctx, cluster, machine)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Whether the bootstrap token of a Machine is there is not known", "machine", machine.Name,
			"reason", err.Error())
	}
	if gone == "" {
		return false, nil
	}
	live := &infrav1.QuoinMachine{}
	of := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := r.APIReader.Get(ctx, of, live); err != nil || live.Spec.ProviderID != "" {
		// It is not here, as after a restore, or has a host: its Node may run.
		return false, client.IgnoreNotFound(err)
	}
	if is, err := r.current(ctx, seen, policy, cluster); err != nil || !is {
		return true, err
	}
	err = r.Client.Delete(ctx, machine.DeepCopy(), client.Preconditions{UID: &machine.UID,
		ResourceVersion: &machine.ResourceVersion})
	if apierrors.IsConflict(err) {
		// It changed, and is decided about again.
		return true, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete Machine %s, whose bootstrap token is gone: %w", client.ObjectKeyFromObject(machine),
			err)
	}
	r.Recorder.Eventf(policy, machine, corev1.EventTypeNormal, "BootstrapTokenGone", "Delete", "%s: its bootstrap token "+
		"is gone (Secret %s of the Cluster), so it could never join; its MachineSet makes another one", machine.Name, gone)
	return true, nil
}

// joins reports whether the Machine has or had a Node or a host, whose token is gone because it was used.
func joins(machine *clusterv1.Machine) bool {
	return machine.Spec.ProviderID != "" || machine.Status.NodeRef.IsDefined() || !machine.DeletionTimestamp.IsZero()
}

// tokenGone names the Secret of the Machine's bootstrap token, if the Cluster certainly has it no more.
func (r *Reconciler) tokenGone(
	ctx context.Context, cluster *clusterv1.Cluster, machine *clusterv1.Machine,
) (string, error) {
	token, err := r.tokenOf(ctx, machine)
	if err != nil || token == "" {
		return "", err
	}
	_, live, err := r.workload(ctx, cluster)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, workloadTimeout)
	defer cancel()
	id, _, _ := strings.Cut(token, ".")
	name := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: tokenPrefix + id}
	if err := live.Get(ctx, name, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		return "", err
	}
	return name.String(), nil
}

// tokenOf is the bootstrap token in the bootstrap data of a Machine; empty when they have none, are not made yet, and
// when a person chose it: a Machine made anew would have the same.
func (r *Reconciler) tokenOf(ctx context.Context, machine *clusterv1.Machine) (string, error) {
	ref := machine.Spec.Bootstrap.ConfigRef
	if ref.Kind != configKind || ref.APIGroup != bootstrapv1.GroupVersion.Group ||
		machine.Spec.Bootstrap.DataSecretName == nil {
		return "", nil
	}
	config, err := r.readKubeadm(ctx, configKind, machine.Namespace, ref.Name)
	if err != nil {
		return "", err
	}
	path := []string{"spec", "joinConfiguration", "discovery", "bootstrapToken", "token"}
	token, _, _ := unstructured.NestedString(config.Object, path...)
	template := config.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	if token == "" || template == "" {
		return "", nil
	}
	of, err := r.readKubeadm(ctx, configKind+clusterv1.TemplateSuffix, machine.Namespace, template)
	if err != nil {
		return "", err
	}
	chosen, _, _ := unstructured.NestedString(of.Object, append([]string{"spec", "template"}, path...)...)
	if chosen != "" {
		return "", nil
	}
	return token, nil
}

// readKubeadm reads an object of the kubeadm bootstrap provider, of which none is cached; an empty one when it is gone.
func (r *Reconciler) readKubeadm(
	ctx context.Context, kind, namespace, name string,
) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind(kind))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := r.APIReader.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	return object, nil
}
