// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectpatch writes down what a reconcile came to in as few requests as that takes: one for the status,
// conditions included, and one for the rest when it changed. Cluster API's own helper sends the conditions by
// themselves, because others may write some of them; that way is taken here only when somebody has indeed written in
// between.
package objectpatch

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Helper remembers an object as it was.
type Helper struct {
	client client.Client
	before client.Object
	merge  *patch.Helper
}

// New remembers the object as it is now, which must be as it was read. Its changes are written with c.
func New(object client.Object, c client.Client) (*Helper, error) {
	merge, err := patch.NewHelper(object, c)
	if err != nil {
		return nil, fmt.Errorf("remembering an object as it was: %w", err)
	}
	return &Helper{client: c, before: copyOf(object), merge: merge}, nil
}

// Patch writes what changed in the object since New. Conditions of the types in owned become what the object has,
// whoever else wrote them; those of other types are merged. The status of an object that goes with this, because its
// last finalizer is taken off, is not written: nobody would read it.
func (h *Helper) Patch(ctx context.Context, object client.Object, owned ...string) error {
	before, err := contentOf(h.before)
	if err != nil {
		return err
	}
	after, err := contentOf(object)
	if err != nil {
		return err
	}
	goes := !object.GetDeletionTimestamp().IsZero() && len(object.GetFinalizers()) == 0
	var refused error
	if !goes && !equality.Semantic.DeepEqual(before["status"], after["status"]) {
		refused = h.patchStatus(ctx, object, before, with(before, after["status"]))
		if apierrors.IsConflict(refused) {
			return h.merge.Patch(ctx, object, patch.WithOwnedConditions{Conditions: owned})
		}
	}
	// Also when the status was refused: a finalizer must not stay because of that.
	if rest := with(after, before["status"]); !equality.Semantic.DeepEqual(before, rest) {
		return kerrors.NewAggregate([]error{refused, h.patchRest(ctx, object, before, rest)})
	}
	return refused
}

// Early tells how long what changed in the object can wait, because by the pace it is too early for it; zero when it is
// to be patched now.
func (h *Helper) Early(pace *Pace, object client.Object) time.Duration {
	return pace.Early(h.before, object)
}

// patchStatus carries the version that the status was derived from: conditions are a list, which a patch replaces
// whole.
func (h *Helper) patchStatus(ctx context.Context, object client.Object, before, after map[string]any) error {
	from := client.MergeFromWithOptions(&unstructured.Unstructured{Object: before}, client.MergeFromWithOptimisticLock{})
	data, err := from.Data(&unstructured.Unstructured{Object: after})
	if err != nil {
		return fmt.Errorf("comparing the status with what it was: %w", err)
	}
	return h.client.Status().Patch(ctx, copyOf(object), client.RawPatch(from.Type(), data))
}

func (h *Helper) patchRest(ctx context.Context, object client.Object, before, after map[string]any) error {
	from := client.MergeFrom(&unstructured.Unstructured{Object: before})
	data, err := from.Data(&unstructured.Unstructured{Object: after})
	if err != nil {
		return fmt.Errorf("comparing metadata and spec with what they were: %w", err)
	}
	return h.client.Patch(ctx, copyOf(object), client.RawPatch(from.Type(), data))
}

// copyOf is what the answer to a request is read into.
func copyOf(object client.Object) client.Object {
	return object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has its type
}

func contentOf(object client.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("comparing with what was: %w", err)
	}
	return content, nil
}

// with is an object with another status, or with none.
func with(object map[string]any, status any) map[string]any {
	other := maps.Clone(object)
	delete(other, "status")
	if status != nil {
		other["status"] = status
	}
	return other
}
