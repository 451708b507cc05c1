// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Namespace makes a namespace with a Cluster named "c" whose infrastructure is ready.
func (p *Plane) Namespace(ctx context.Context, name string) error {
	if err := p.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("making namespace %s: %w", name, err)
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "c"},
		Spec: clusterv1.ClusterSpec{
			InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinCluster", Name: "c"},
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.100", Port: 6443},
		},
	}
	if err := p.Client.Create(ctx, cluster); err != nil {
		return fmt.Errorf("making Cluster %s/c: %w", name, err)
	}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	if err := p.Client.Status().Update(ctx, cluster); err != nil {
		return fmt.Errorf("making Cluster %s/c ready: %w", name, err)
	}
	return nil
}

// MachineOptions of AddMachine.
type MachineOptions struct {
	Namespace, Name, Version string
	// Bootstrap is the cloud-config.
	Bootstrap []byte
	Artifacts infrav1.Artifacts
	Labels    map[string]string
	// Template that the QuoinMachine is made of, in place of Artifacts.
	Template string
}

// AddMachine makes a Machine, its QuoinMachine and its bootstrap data, as a MachineSet and the bootstrap provider do.
func (p *Plane) AddMachine(ctx context.Context, o MachineOptions) error {
	cluster := &clusterv1.Cluster{}
	if err := p.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: "c"}, cluster); err != nil {
		return fmt.Errorf("making Machine %s/%s: %w", o.Namespace, o.Name, err)
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: "c"}
	for k, v := range o.Labels {
		labels[k] = v
	}
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: labels}
	owned := *meta.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}}
	secret := &corev1.Secret{
		ObjectMeta: *owned.DeepCopy(), Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": o.Bootstrap, "format": []byte("cloud-config")},
	}
	machine := &clusterv1.Machine{
		ObjectMeta: owned,
		Spec: clusterv1.MachineSpec{
			ClusterName: "c", Version: o.Version,
			Bootstrap:         clusterv1.Bootstrap{DataSecretName: ptr.To(o.Name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachine", Name: o.Name},
		},
	}
	machine.Finalizers = []string{clusterv1.MachineFinalizer}
	for _, object := range []client.Object{secret, machine} {
		if err := p.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("making Machine %s/%s: %w", o.Namespace, o.Name, err)
		}
	}
	quoinMachine := &infrav1.QuoinMachine{ObjectMeta: *meta.DeepCopy(), Spec: infrav1.QuoinMachineSpec{Artifacts: o.Artifacts}}
	if o.Template != "" {
		template := &infrav1.QuoinMachineTemplate{}
		if err := p.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Template}, template); err != nil {
			return fmt.Errorf("making QuoinMachine %s/%s: %w", o.Namespace, o.Name, err)
		}
		template.Spec.Template.Spec.DeepCopyInto(&quoinMachine.Spec)
	}
	if err := controllerutil.SetControllerReference(machine, quoinMachine, p.Scheme()); err != nil {
		return err
	}
	if err := p.Client.Create(ctx, quoinMachine); err != nil {
		return fmt.Errorf("making QuoinMachine %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}

// DeleteMachine deletes a Machine as core does: its infrastructure first, then its Node, then itself. It waits for
// nothing but the QuoinMachine to be gone.
func (p *Plane) DeleteMachine(ctx context.Context, key types.NamespacedName) error {
	machine := &clusterv1.Machine{}
	if err := p.Client.Get(ctx, key, machine); err != nil {
		return fmt.Errorf("deleting Machine %s: %w", key, err)
	}
	if err := p.Client.Delete(ctx, machine); err != nil {
		return fmt.Errorf("deleting Machine %s: %w", key, err)
	}
	quoinMachine := &infrav1.QuoinMachine{}
	err := p.Client.Get(ctx, key, quoinMachine)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting QuoinMachine %s: %w", key, err)
	}
	err = p.Client.Delete(ctx, quoinMachine)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting QuoinMachine %s: %w", key, err)
	}
	node := ""
	for {
		err := p.Client.Get(ctx, key, quoinMachine)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("waiting for the end of QuoinMachine %s: %w", key, err)
		}
		if err != nil {
			break
		}
		for _, address := range quoinMachine.Status.Addresses {
			if address.Type == clusterv1.MachineHostName {
				node = address.Address
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("QuoinMachine %s does not go: %w", key, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	if node != "" {
		err := p.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Node %s: %w", node, err)
		}
	}
	before := machine.DeepCopy()
	machine.Finalizers = nil
	return client.IgnoreNotFound(p.Client.Patch(ctx, machine, client.MergeFrom(before)))
}
