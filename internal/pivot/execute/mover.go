// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

const (
	// quietTimeout is how long a paused Cluster may take to become quiet, about as long as clusterctl waits.
	quietTimeout = 6 * time.Minute
	// quietInterval is how often the annotation is looked at meanwhile.
	quietInterval = 500 * time.Millisecond
	// refusals of one object by an API server before the move is given up. clusterctl alone tries each object
	// for minutes, one after the other, with the source paused.
	refusals = 6
)

// mode of a run of clusterctl's mover.
type mode int

const (
	// rehearse writes nothing: what would move is listed, and the target's admission is asked about each object.
	rehearse mode = iota
	// survey is a rehearsal that lists what is there, whatever state it is in.
	survey
	// copying moves, and calls the gate before the first deletion.
	copying
	// removing deletes those objects of the journal on the from side that the to side has.
	removing
)

// run is one run of clusterctl's mover.
type run struct {
	mode      mode
	from, to  *Side
	namespace string
	// again says that a pause was written by an earlier run, so that clusterctl is not to stop at it.
	again bool
	// journal of the pivot; only when copying or removing.
	journal *pivot.Journal
	// spared are not deleted; only when removing.
	spared []pivot.Object
	// arriving is called before an object is made on the target for the first time; only when copying.
	arriving func(context.Context, pivot.Object) error
	// gate is called before the first deletion, with what moves; only when copying.
	gate func(context.Context, []pivot.Object) error
	// alive is called before each write, and while something is waited for. Its error ends the run.
	alive func(context.Context) error
	// waiting is called while something holds the move up.
	waiting func(what string)

	cancel context.CancelCauseFunc
	open   bool
	// seen are the objects that move, in their order; existing are those that the target has already, differing those of
	// them with another content.
	seen, existing, differing []pivot.Object
	refused                   map[pivot.Object]int
	// read are the originals as they were read last, copied as they were when their content went to the target.
	read, copied map[pivot.Object]*unstructured.Unstructured
	tryAdmission bool
}

// do runs it.
func (r *run) do(ctx context.Context) error {
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	// clusterctl asks for minutes more otherwise, for each object.
	defer r.from.patient.whenLost(r.cancel)()
	defer r.to.patient.whenLost(r.cancel)()
	r.refused = map[pivot.Object]int{}
	r.read, r.copied = map[pivot.Object]*unstructured.Unstructured{}, map[pivot.Object]*unstructured.Unstructured{}
	if r.mode == rehearse {
		err := r.to.Client.Get(ctx, client.ObjectKey{Name: r.namespace}, &corev1.Namespace{})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading namespace %s of the %s: %w", r.namespace, r.to.Name, err)
		}
		r.tryAdmission = err == nil
	}
	from := r.from.clusterctl(r.fromClient())
	to := r.to.clusterctl(r.toClient())
	err := from.ObjectMover().Move(ctx, r.namespace, to, false)
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

func (r *run) writes() bool { return r.mode == copying || r.mode == removing }

// give ends the run with the reason: clusterctl tries again what fails, for minutes.
func (r *run) give(err error) error {
	r.cancel(err)
	return err
}

// fromClient is that of the side that objects go away from.
func (r *run) fromClient() client.Client {
	return interceptor.NewClient(r.from.Client, interceptor.Funcs{
		Get: r.show,
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if crds, ok := list.(*apiextensionsv1.CustomResourceDefinitionList); ok {
				return r.from.listTypes(ctx, crds, options...)
			}
			return c.List(ctx, list, options...)
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("a move makes nothing on its source")
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			// clusterctl marks what it is about to delete by a JSON patch, and pauses by merge patches.
			marks := p.Type() == types.JSONPatchType
			if proceed, err := r.mayWrite(ctx, o, marks); !proceed {
				return err
			}
			return r.answered(r.from, o, c.Patch(ctx, o, p, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if proceed, err := r.mayWrite(ctx, o, true); !proceed {
				return err
			}
			return r.answered(r.from, o, c.Delete(ctx, o, options...))
		},
	})
}

// mayWrite reports whether a write to the from side is made. It opens the gate before the first deletion.
func (r *run) mayWrite(ctx context.Context, o client.Object, deletes bool) (bool, error) {
	if r.writes() {
		if err := r.alive(ctx); err != nil {
			return false, r.give(err)
		}
	}
	switch r.mode {
	case copying:
		if deletes && !r.open {
			if err := r.gate(ctx, r.seen); err != nil {
				return false, r.give(err)
			}
			r.open = true
		}
		return true, nil
	case removing:
		object := r.object(o)
		return r.journal.Has(object) && !slices.Contains(r.spared, object), nil
	default:
		return false, nil
	}
}

// show answers clusterctl's reads of the from side. What decides whether a move may begin is shown as it was before the
// move began, where an earlier run has paused the Cluster or a copy has no status.
func (r *run) show(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	if err := c.Get(ctx, key, o, options...); err != nil {
		return err
	}
	settled := r.mode == removing || r.mode == survey
	switch o := o.(type) {
	case *unstructured.Unstructured:
		if r.mode == copying {
			r.read[pivot.Of(o)] = o.DeepCopy()
		}
	case *clusterv1.Cluster:
		if settled || r.again {
			o.Spec.Paused = nil
		}
		if settled {
			delete(o.Annotations, clusterv1.PausedAnnotation)
			o.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
			o.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
			conditions.Set(o, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition,
				Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason})
		}
	case *clusterv1.ClusterClass:
		if settled || r.again {
			delete(o.Annotations, clusterv1.PausedAnnotation)
		}
	case *clusterv1.Machine:
		if settled {
			o.Status.NodeRef.Name = "any"
		}
	case *metav1.PartialObjectMetadata:
		if r.mode == copying {
			return r.untilQuiet(ctx, c, key, o)
		}
		delete(o.Annotations, clusterctlv1.BlockMoveAnnotation)
	}
	return nil
}

// untilQuiet waits until the object lets the move go on.
func (r *run) untilQuiet(ctx context.Context, c client.Client, key client.ObjectKey,
	o *metav1.PartialObjectMetadata) error {
	blocked := func() bool { _, ok := o.Annotations[clusterctlv1.BlockMoveAnnotation]; return ok }
	if !blocked() {
		return nil
	}
	r.waiting(fmt.Sprintf("%s %s: waiting until it is quiet (its condition Movable says for what)", o.Kind, o.Name))
	err := wait.PollUntilContextTimeout(ctx, quietInterval, quietTimeout, false, func(ctx context.Context) (bool, error) {
		if err := r.alive(ctx); err != nil {
			return false, r.give(err)
		}
		if err := c.Get(ctx, key, o); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		return !blocked(), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return r.give(finding(fmt.Sprintf("%s %s is not quiet after %s: its condition Movable says what is waited for",
			o.Kind, o.Name, quietTimeout)))
	}
	return err
}

// toClient is that of the side that objects go to.
func (r *run) toClient() client.Client {
	return interceptor.NewClient(r.to.Client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, isNamespace := o.(*corev1.Namespace); !r.writes() && !isNamespace {
				return nil // what was only rehearsed is not there
			}
			err := c.Get(ctx, key, o, options...)
			if r.mode == removing && apierrors.IsNotFound(err) && !r.journal.Has(r.object(o)) {
				return nil // a Cluster that does not move, and is not resumed either
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			// Providers matter to objects that are to be reconciled there, not to those that go.
			if _, ok := list.(*clusterctlv1.ProviderList); ok && (r.mode == removing || r.mode == survey) {
				return r.from.Client.List(ctx, list, options...)
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, isNamespace := o.(*corev1.Namespace); isNamespace {
				if !r.writes() {
					return nil
				}
				return c.Create(ctx, o, options...)
			}
			return r.create(ctx, c, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if r.mode != copying {
				return nil
			}
			if err := r.pausedThere(ctx, c, o); err != nil {
				return r.give(err)
			}
			if slices.Contains(r.journal.Existing, r.object(o)) {
				return nil // It has the same content, and stays what it was for others.
			}
			r.copied[r.object(o)] = r.read[r.object(o)]
			return r.answered(r.to, o, c.Update(ctx, o, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if !r.writes() {
				return nil
			}
			if r.mode == removing {
				data, err := p.Data(o)
				// Who owns fields is copied with an object. What remains is to resume.
				if err != nil || bytes.Contains(data, []byte("managedFields")) || bytes.Equal(data, []byte("{}")) ||
					!r.journal.Has(r.object(o)) {
					return err
				}
			}
			if err := r.alive(ctx); err != nil {
				return r.give(err)
			}
			return r.answered(r.to, o, c.Patch(ctx, o, p, options...))
		},
	})
}

// create answers clusterctl's wish to make an object.
func (r *run) create(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
	object := r.object(o)
	if !slices.Contains(r.seen, object) {
		r.seen = append(r.seen, object)
	}
	there := &unstructured.Unstructured{}
	there.SetAPIVersion(object.APIVersion)
	there.SetKind(object.Kind)
	switch r.mode {
	case survey:
		o.SetUID("surveyed")
		return nil
	case rehearse:
		err := c.Get(ctx, client.ObjectKeyFromObject(o), there)
		switch {
		case err == nil:
			r.existing = append(r.existing, object)
			if original, ok := o.(*unstructured.Unstructured); !ok || len(pivot.Changed(original, there)) > 0 {
				r.differing = append(r.differing, object)
			}
		case !apierrors.IsNotFound(err):
			return r.give(fmt.Errorf("reading %s on the %s: %w", object, r.to.Name, err))
		case r.tryAdmission:
			tried := o.DeepCopyObject().(client.Object)
			tried.SetUID("")
			if err := r.to.Client.Create(ctx, tried, client.DryRunAll); err != nil {
				return r.give(&rejection{r.to.Name, object, err})
			}
		}
		o.SetUID("rehearsed")
		return nil
	case removing:
		err := c.Get(ctx, client.ObjectKeyFromObject(o), there)
		switch {
		case err == nil:
			o.SetUID(there.GetUID())
			return nil
		case apierrors.IsNotFound(err) && !r.journal.Has(object):
			o.SetUID("not-ours") // and is not deleted either
			return nil
		case apierrors.IsNotFound(err):
			return r.give(&aloneError{object, r.from.Name, r.to.Name})
		}
		return err
	default:
		// It is the original as it was read just now, also where clusterctl goes on to update a copy with it.
		original, ok := o.(*unstructured.Unstructured)
		if ok && object.Kind == clusterv1.ClusterKind && !pausedBySpec(original) {
			return r.give(finding(object.String() + resumedOnSource))
		}
		if err := errors.Join(r.alive(ctx), r.arriving(ctx, object)); err != nil {
			return r.give(err)
		}
		r.copied[object] = r.read[object]
		return r.answered(r.to, o, c.Create(ctx, o, options...))
	}
}

// pausedThere keeps a Cluster that somebody has resumed on the target from being overwritten. The update fails when it
// is resumed after that, because it names the version that was read before.
func (r *run) pausedThere(ctx context.Context, c client.Client, o client.Object) error {
	if r.object(o).Kind != "Cluster" {
		return nil
	}
	there := &clusterv1.Cluster{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), there); err != nil {
		return err
	}
	if !ptr.Deref(there.Spec.Paused, false) {
		return finding(fmt.Sprintf("Cluster %s acts on the target", there.Name))
	}
	return nil
}

// answered gives the move up where a side will not take a write; an API server that does not answer is asked again.
func (r *run) answered(side *Side, o client.Object, err error) error {
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.IsNotFound(err) && side == r.from ||
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return err
	}
	object := r.object(o)
	r.refused[object]++
	final := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if final || r.refused[object] >= refusals {
		return r.give(&rejection{side.Name, object, err})
	}
	return err
}

// rejection of an object by a side.
type rejection struct {
	side   string
	object pivot.Object
	err    error
}

// Error implements error. What is said about a Secret may quote it.
func (r *rejection) Error() string {
	if r.object.Kind == "Secret" {
		return r.String()
	}
	return fmt.Sprintf("the %s refuses %s: %v", r.side, r.object, r.err)
}

// String is what may be written down: an answer of admission may quote anything.
func (r *rejection) String() string {
	return fmt.Sprintf("the %s refuses %s (%s)", r.side, r.object, apierrors.ReasonForError(r.err))
}

// Unwrap implements errors.Unwrap.
func (r *rejection) Unwrap() error { return r.err }

// finding is an error that names objects and fields alone, and may be written down.
type finding string

// Error implements error.
func (f finding) Error() string { return string(f) }

// reason of an error that may be written down.
func reason(err error) string {
	var f finding
	var r *rejection
	switch {
	case errors.As(err, &f):
		return f.Error()
	case errors.As(err, &r):
		return r.String()
	}
	if answer := apierrors.ReasonForError(err); answer != metav1.StatusReasonUnknown {
		return fmt.Sprintf("an API server answered %s", answer)
	}
	return "copying failed"
}

func (r *run) object(o client.Object) pivot.Object {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return pivot.Of(u)
	}
	gvk, err := r.from.Client.GroupVersionKindFor(o)
	if err != nil {
		return pivot.Object{}
	}
	return pivot.Object{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(),
		Name: o.GetName()}
}
