// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterupgrade

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/objectpatch"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// apply makes one change to what was read. It conflicts where that is not what there is any more.
func (r *Reconciler) apply(
	ctx context.Context, of *quoinv1.ClusterUpgrade, seen *observation, change upgrade.Change,
) error {
	switch change.Kind {
	case upgrade.Begin:
		return r.annotate(ctx, of, quoinv1.ClusterUpgradeBegunAnnotation)
	case upgrade.Complete:
		return r.annotate(ctx, of, quoinv1.ClusterUpgradeCompletedAnnotation)
	case upgrade.MakeCheck:
		if err := r.Client.Create(ctx, r.checkOf(of, change.Check)); err != nil {
			return fmt.Errorf("make PreflightCheck %s: %w", change.Check.Name, err)
		}
	case upgrade.DeleteCheck:
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, seen.objects[change.Check.Name])); err != nil {
			return fmt.Errorf("delete PreflightCheck %s: %w", change.Check.Name, err)
		}
	case upgrade.SetVersion:
		return r.setVersion(ctx, seen.objects[change.Object], change)
	case upgrade.RecordVersion:
		if infra, is := seen.objects[change.Object].(*infrav1.QuoinCluster); is {
			before := infra.DeepCopy()
			infra.Status.Version = change.Version
			if err := r.Client.Status().Patch(ctx, infra, objectpatch.OnlyOf(before)); err != nil {
				return fmt.Errorf("record %s in %s: %w", change.Version, change.Object, err)
			}
		}
	}
	return nil
}

func (r *Reconciler) annotate(ctx context.Context, of *quoinv1.ClusterUpgrade, key string) error {
	before := of.DeepCopy()
	metav1.SetMetaDataAnnotation(&of.ObjectMeta, key, upgrade.Mark(of, r.Clock.Now()))
	if err := r.Client.Patch(ctx, of, objectpatch.OnlyOf(before)); err != nil {
		return fmt.Errorf("annotate ClusterUpgrade %s: %w", client.ObjectKeyFromObject(of), err)
	}
	return nil
}

// checkOf belongs to the ClusterUpgrade, and goes with it.
func (r *Reconciler) checkOf(of *quoinv1.ClusterUpgrade, check upgrade.Check) *quoinv1.PreflightCheck {
	labels := map[string]string{clusterv1.ClusterNameLabel: of.Spec.ClusterName}
	if r.WatchFilterValue != "" {
		labels[clusterv1.WatchLabel] = r.WatchFilterValue
	}
	return &quoinv1.PreflightCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: check.Name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: quoinv1.GroupVersion.String(), Kind: "ClusterUpgrade",
				Name: of.Name, UID: of.UID, Controller: ptr.To(true)}}},
		Spec: quoinv1.PreflightCheckSpec{ClusterName: of.Spec.ClusterName, Version: of.Spec.Version, Via: of.Spec.Via,
			Workers: of.Spec.Workers, Skip: check.Skip},
	}
}

// setVersion writes one field of one object.
func (r *Reconciler) setVersion(ctx context.Context, object client.Object, change upgrade.Change) error {
	before, copied := object.DeepCopyObject().(client.Object)
	if !copied {
		return fmt.Errorf("%s is no object", change.Object)
	}
	var options []client.PatchOption
	switch of := object.(type) {
	case *infrav1.QuoinCluster:
		of.Spec.Version = change.Version
		options = append(options, client.FieldOwner(fieldowner.Upgrades)) // of anybody else's write admission warns
	case *clusterv1.Cluster:
		of.Spec.Topology.Version = change.Version
	case *clusterv1.MachineDeployment:
		of.Spec.Template.Spec.Version = change.Version
	case *controlplanev1.QuoinControlPlane:
		of.Spec.Version = change.Version
	case *unstructured.Unstructured:
		if err := unstructured.SetNestedField(of.Object, change.Version, "spec", "version"); err != nil {
			return fmt.Errorf("set the version of %s: %w", change.Object, err)
		}
	}
	if err := r.Client.Patch(ctx, object, objectpatch.OnlyOf(before), options...); err != nil {
		return fmt.Errorf("set %s to %s: %w", change.Object, change.Version, err)
	}
	return nil
}
