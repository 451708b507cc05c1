// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jointoken replaces Machines that can never join, because their bootstrap tokens are gone.
package jointoken

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Age is how long a Machine waits before its bootstrap token is looked at. Tokens live for 15 minutes unless the
	// bootstrap provider has another setting.
	Age = 5 * time.Minute
	// prefix begins the name of a bootstrap token's Secret, and the token's ID ends it.
	prefix = "bootstrap-token-" //nolint:gosec // part of a name
	// timeout bounds what is asked of a workload cluster.
	timeout = 5 * time.Second
	kind    = "KubeadmConfig"
)

// Replaceable reports whether the Machine waits for a host and a MachineSet makes another one in its place: at once, or
// when the Machine that it was made for is gone. A token is used once there was a host.
func Replaceable(machine *clusterv1.Machine) bool {
	owner := metav1.GetControllerOf(machine)
	return owner != nil && owner.Kind == "MachineSet" && machine.Spec.ProviderID == "" &&
		!machine.Status.NodeRef.IsDefined() && machine.DeletionTimestamp.IsZero()
}

// Verdict is what is known of the bootstrap token of a Machine that waits. The zero value has nothing against a host.
type Verdict struct {
	// Gone is the Secret of the token, which the Cluster certainly has no more: the Machine can never join.
	Gone string
	// Unknown says why nobody knows whether the Machine could join, and what to do.
	Unknown string
}

// Judge looks for the Secret of the Machine's bootstrap token in the Cluster. Cluster API's kubeadm provider extends
// the token of a Machine that waits as long as it exists (refreshBootstrapTokenIfNeeded in
// kubeadmconfig_controller.go), but makes no other one for it: a pause of the Cluster that outlasts a token leaves a
// Machine without, and no condition says so. The management cluster has no record of when a token was extended last, so
// that without the Cluster's answer nothing is known of one that is older than Age.
func Judge(
	ctx context.Context, management client.Reader, workloads clustercache.ClusterCache, cluster client.ObjectKey,
	machine *clusterv1.Machine, now time.Time,
) (Verdict, error) {
	token, err := tokenOf(ctx, management, machine)
	if err != nil || token == "" || workloads == nil {
		return Verdict{}, err
	}
	id, _, _ := strings.Cut(token, ".")
	name := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: prefix + id}
	secret, err := secretOf(ctx, workloads, cluster, name)
	if apierrors.IsNotFound(err) {
		return Verdict{Gone: name.String()}, nil
	}
	if err == nil {
		// One without an end never ends.
		end, unread := time.Parse(time.RFC3339, string(secret.Data["expiration"]))
		if unread == nil && !now.Before(end) {
			err = fmt.Errorf("it is over since %s, and the kubeadm bootstrap provider may yet extend it",
				end.UTC().Format(time.RFC3339))
		}
	}
	if err != nil {
		return Verdict{Unknown: fmt.Sprintf("whether it could still join by its bootstrap token (Secret %s of the Cluster) "+
			"is not known, so it gets no host yet, and that is asked for again: %v. Mend that, or delete the Machine: its "+
			"MachineSet makes another one, with a token of its own", name, err)}, nil
	}
	return Verdict{}, nil
}

func secretOf(
	ctx context.Context, workloads clustercache.ClusterCache, cluster, name client.ObjectKey,
) (*corev1.Secret, error) {
	workload, err := workloads.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to workload cluster %s: %w", cluster, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	secret := &corev1.Secret{}
	return secret, workload.Get(ctx, name, secret)
}

// Replace deletes a Machine, as it was read, whose token's Secret is gone, and records that about an object.
func Replace(
	ctx context.Context, c client.Writer, recorder events.EventRecorder, about runtime.Object,
	machine *clusterv1.Machine, secret string,
) error {
	err := c.Delete(ctx, machine.DeepCopy(), client.Preconditions{UID: &machine.UID,
		ResourceVersion: &machine.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return nil // it changed, and is decided about again
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("delete Machine %s, whose bootstrap token is gone: %w", client.ObjectKeyFromObject(machine), err)
	case recorder != nil:
		recorder.Eventf(about, machine, corev1.EventTypeNormal, "BootstrapTokenGone", "Delete", "%s: its bootstrap token "+
			"is gone (Secret %s of the Cluster), so it could never join; its MachineSet makes another one", machine.Name, secret)
	}
	return nil
}

// tokenOf is the bootstrap token in the bootstrap data of a Machine; empty when they have none, are not made yet, and
// when a person chose it: a Machine made anew would have the same.
func tokenOf(ctx context.Context, management client.Reader, machine *clusterv1.Machine) (string, error) {
	ref := machine.Spec.Bootstrap.ConfigRef
	if ref.Kind != kind || ref.APIGroup != bootstrapv1.GroupVersion.Group || machine.Spec.Bootstrap.DataSecretName == nil {
		return "", nil
	}
	config, err := read(ctx, management, kind, machine.Namespace, ref.Name)
	if err != nil {
		return "", err
	}
	path := []string{"spec", "joinConfiguration", "discovery", "bootstrapToken", "token"}
	token, _, _ := unstructured.NestedString(config.Object, path...)
	template := config.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation]
	if token == "" || template == "" {
		return "", nil
	}
	of, err := read(ctx, management, kind+clusterv1.TemplateSuffix, machine.Namespace, template)
	if err != nil {
		return "", err
	}
	chosen, _, _ := unstructured.NestedString(of.Object, append([]string{"spec", "template"}, path...)...)
	if chosen != "" {
		return "", nil
	}
	return token, nil
}

// read an object of the kubeadm bootstrap provider, of which none is cached; an empty one when it is gone.
func read(
	ctx context.Context, management client.Reader, kind, namespace, name string,
) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(bootstrapv1.GroupVersion.WithKind(kind))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := management.Get(ctx, key, object)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind, key, err)
	}
	return object, nil
}
