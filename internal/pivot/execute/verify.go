// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// read an object; nil when it is not there.
func read(ctx context.Context, side *Side, object pivot.Object) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(object.APIVersion)
	o.SetKind(object.Kind)
	err := side.Client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: object.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s of the %s: %w", object, side.Name, err)
	}
	return o, nil
}

// rounds in which the source has to come to rest.
const rounds = 5

// settled verifies what moves, and that the source has nothing beside it and is as it was when that was verified: what
// is made or edited while it is paused would be lost.
func (p *Pivot) settled(ctx context.Context, j *pivot.Journal, r *run, moving []pivot.Object) error {
	var edited []string
	for range rounds {
		versions, err := p.verify(ctx, j, r, moving)
		if err != nil {
			return err
		}
		now := p.run(survey)
		if err := now.do(ctx); err != nil {
			return fmt.Errorf("listing the objects of the source again: %w", err)
		}
		for _, object := range now.seen {
			if !slices.Contains(moving, object) {
				return finding(object.String() + " was made on the source while it was copied")
			}
		}
		if edited, err = p.edited(ctx, versions); err != nil || len(edited) == 0 {
			return err
		}
	}
	return finding(fmt.Sprintf("the source does not come to rest: %s is written while it is paused",
		strings.Join(edited[:min(5, len(edited))], ", ")))
}

// edited are objects of the source with another version than that.
func (p *Pivot) edited(ctx context.Context, versions map[pivot.Object]string) ([]string, error) {
	now, listed := map[pivot.Object]string{}, map[pivot.Object]bool{}
	for object := range versions {
		kind := object
		kind.Name = ""
		if listed[kind] {
			continue
		}
		listed[kind] = true
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(object.APIVersion, object.Kind+"List"))
		if err := p.Source.Client.List(ctx, list, client.InNamespace(object.Namespace)); err != nil {
			return nil, fmt.Errorf("listing %s of the source: %w", object.Kind, err)
		}
		for i := range list.Items {
			kind.Name = list.Items[i].Name
			now[kind] = list.Items[i].ResourceVersion
		}
	}
	var edited []string
	for object, version := range versions {
		if now[object] != version {
			edited = append(edited, object.String())
		}
	}
	slices.Sort(edited)
	return edited, nil
}

// resumedOnSource is what is found of a Cluster that somebody has resumed there.
const resumedOnSource = " is no longer paused on the source"

func pausedBySpec(cluster *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	return paused
}

// lost says what an original had when it was copied, and has no more: its copy has that still, which is no difference.
func lost(copied, original *unstructured.Unstructured) []string {
	if copied == nil {
		return nil
	}
	without := copied.DeepCopy()
	without.SetOwnerReferences(nil)
	without.SetDeletionTimestamp(nil)
	return pivot.Differences(without, original, nil)
}

// verify compares every object on both sides before the first one is deleted. It ends with the versions of the
// originals.
func (p *Pivot) verify(ctx context.Context, j *pivot.Journal, r *run,
	moving []pivot.Object) (map[pivot.Object]string, error) {
	originals, copies := map[pivot.Object]*unstructured.Unstructured{}, map[pivot.Object]*unstructured.Unstructured{}
	uids := map[pivot.Object]types.UID{}
	var found []string
	for _, object := range slices.Concat(moving, j.Objects) {
		if copies[object] != nil {
			continue
		}
		original, err := read(ctx, p.Source, object)
		if err != nil {
			return nil, err
		}
		arrived, err := read(ctx, p.Target, object)
		switch {
		case err != nil:
			return nil, err
		case original == nil && arrived == nil:
		case arrived == nil:
			found = append(found, object.String()+" has not arrived")
		case original == nil:
			found = append(found, object.String()+" is gone from the source, and its copy is on the target")
		default:
			originals[object], copies[object], uids[object] = original, arrived, arrived.GetUID()
		}
	}
	versions := map[pivot.Object]string{}
	for object, original := range originals {
		versions[object] = original.GetResourceVersion()
		if object.Kind == clusterv1.ClusterKind && j.Moves(object.Name) && !pausedBySpec(original) {
			found = append(found, object.String()+resumedOnSource)
			continue
		}
		differences := pivot.Differences(original, copies[object], uids)
		if shareable(object) && slices.Contains(j.Existing, object) {
			differences = pivot.Changed(original, copies[object])
		}
		if len(differences) > 0 {
			found = append(found, fmt.Sprintf("%s differs in %s", object, strings.Join(differences, ", ")))
		} else if lost := lost(r.copied[object], original); len(lost) > 0 {
			found = append(found, fmt.Sprintf("%s lost %s on the source after it was copied", object, strings.Join(lost, ", ")))
		}
	}
	if len(found) == 0 {
		return versions, nil
	}
	slices.Sort(found)
	return nil, finding("not everything has arrived as it was: " + strings.Join(found[:min(5, len(found))], "; "))
}
