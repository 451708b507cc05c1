// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// behindIt is what the point of no return means.
const behindIt = "from here on the same command finishes, and nothing undoes"

// everything says when the point of no return is reached.
func everything(objects int) string {
	return fmt.Sprintf("all %d objects are on the target as they were on the source", objects)
}

// copyOrUndo copies, verifies and releases. Where that fails before the point of no return, the source gets everything
// back; a command that is interrupted leaves that to the next one.
func (p *Pivot) copyOrUndo(ctx context.Context, j *pivot.Journal) error {
	p.Report("copying: Clusters of namespace %s are paused on the source meanwhile, and nothing is done to their hosts",
		p.Namespace)
	r := p.run(copying)
	r.again, r.journal = true, j
	r.arriving = func(ctx context.Context, o pivot.Object) error {
		if j.Has(o) {
			return nil
		}
		j.Objects = append(j.Objects, o)
		return p.save(ctx, j)
	}
	r.gate = func(ctx context.Context, moving []pivot.Object) error {
		if err := p.settled(ctx, j, r, moving); err != nil {
			return err
		}
		released := *j
		released.Phase, released.Objects = pivot.Releasing, moving
		if err := p.save(ctx, &released); err != nil {
			return err
		}
		*j = released
		p.Report("%s. This is the point of no return: %s", everything(len(moving)), behindIt)
		return nil
	}
	err := r.do(ctx)
	switch {
	case err == nil:
		return p.finish(ctx, j)
	case errors.Is(err, errOvertaken):
		return err
	case p.held.Open() && p.held.Phase == pivot.Releasing:
		// Also where the source, or the workspace, has not taken what the target has: nothing undoes that any more.
		return fmt.Errorf("the source is not wholly released, and the target still paused: run the same command "+
			"again: %w", err)
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while %s: Clusters of namespace %s are paused on the source; the same command "+
			"finishes, with --abort it undoes: %w", j.Phase, p.Namespace, err)
	}
	p.Report("giving up: %v", err)
	if undoErr := p.undo(ctx, j, reason(err)); !errors.Is(undoErr, ErrUndone) {
		// Something was done: neither refused nor undone.
		return errors.New(err.Error() + "; undoing: " + undoErr.Error())
	}
	return fmt.Errorf("%w: %w", ErrUndone, err)
}

// release deletes on the source what the target has, and lets the target go on.
func (p *Pivot) release(ctx context.Context, j *pivot.Journal) error {
	r := p.run(removing)
	r.journal = j
	if err := r.do(ctx); err != nil {
		return fmt.Errorf("releasing the source: %w; the target is still paused: run the same command again", err)
	}
	return p.finish(ctx, j)
}

// finish lets the target go on, and what stays on the source for others.
func (p *Pivot) finish(ctx context.Context, j *pivot.Journal) error {
	clusters, err := p.clusters(ctx, p.Source)
	if err != nil {
		return err
	}
	for i := range clusters {
		if name := clusters[i].Name; j == nil || j.Moves(name) {
			return fmt.Errorf("the source still has Cluster %s; the target is still paused: run the same command again", name)
		}
	}
	for _, side := range []*Side{p.Source, p.Target} {
		if err := p.resume(ctx, side, j); err != nil {
			return err
		}
	}
	if j.Open() {
		j.Phase = pivot.Done
		if err := p.save(ctx, j); err != nil {
			return err
		}
	}
	p.Report("done: the target manages namespace %s", p.Namespace)
	return nil
}

// undo deletes the copies, and lets the source go on. It ends with ErrUndone, or says how the source is left.
func (p *Pivot) undo(ctx context.Context, j *pivot.Journal, reason string) error {
	err := p.takeBack(ctx, j, reason)
	switch {
	case errors.Is(err, ErrUndone), errors.Is(err, ErrRefused), errors.Is(err, errOvertaken):
		return err
	}
	var alone *aloneError
	if errors.As(err, &alone) {
		return err // somebody else acts on the source, and says what is right
	}
	if j.Phase == pivot.Undone {
		return fmt.Errorf("%w; the source manages namespace %s as before: run the command again with --abort to "+
			"make sure of that", err, p.Namespace)
	}
	next := "it goes on undoing"
	if j.Phase == pivot.Copying {
		next = "it goes on copying, and with --abort it undoes"
	}
	return fmt.Errorf("%w; Clusters of namespace %s are still paused on the source: run the same command again, %s", err,
		p.Namespace, next)
}

// aloneError says that a copy would be deleted whose original is gone: nobody but a person knows which of both is
// meant.
type aloneError struct {
	object   pivot.Object
	on, from string
}

func (e *aloneError) Error() string {
	return fmt.Sprintf("%[1]s is on the %[2]s alone, and is not deleted there. If it was deleted on the %[3]s on "+
		"purpose, take its finalizers off and delete it on the %[2]s; else make it again on the %[3]s. Then run the "+
		"same command again", e.object, e.on, e.from)
}

func (p *Pivot) takeBack(ctx context.Context, j *pivot.Journal, reason string) error {
	w, err := p.world(ctx, j)
	if err != nil {
		return err
	}
	step, err := p.next(ctx, j, w, pivot.Wish{Abort: true})
	if err != nil {
		return err
	}
	if step.Action != pivot.Undo {
		return fmt.Errorf("%w: %s", ErrRefused, step.Message)
	}
	if j.Phase != pivot.Undoing {
		j.Phase, j.Reason = pivot.Undoing, reason
		if err := p.save(ctx, j); err != nil {
			return err
		}
	}
	r := p.run(removing)
	r.from, r.to, r.journal, r.spared = p.Target, p.Source, j, j.Existing
	if err := r.do(ctx); err != nil {
		return fmt.Errorf("removing the copies from the target: %w", err)
	}
	if err := p.resume(ctx, p.Source, j); err != nil {
		return err
	}
	j.Phase = pivot.Undone
	if err := p.save(ctx, j); err != nil {
		return err
	}
	stays := ", and no copy is on the target"
	left, err := p.side(ctx, p.Target, j.Objects)
	if err != nil {
		stays = fmt.Sprintf(". What the target keeps is not known: %v", err)
	}
	if len(left.Present) > 0 {
		slices.SortFunc(left.Present, func(a, b pivot.Object) int { return strings.Compare(a.String(), b.String()) })
		stays = fmt.Sprintf(". The target keeps %s, which it had before or which are of another namespace; Clusters and "+
			"ClusterClasses that it got from a move stay paused there", pivot.Listed(left.Present))
	}
	p.Report("undone: the source manages namespace %s as before%s", p.Namespace, stays)
	return ErrUndone
}

// resume takes the pause off the Clusters and ClusterClasses of a side that move, or off all of the namespace where
// nothing says which do. The mover did so, unless it was killed; never on the source, where a ClusterClass stays that
// others use, or that is of another namespace.
func (p *Pivot) resume(ctx context.Context, side *Side, j *pivot.Journal) error {
	moves := func(kind string, o client.Object) bool {
		return j == nil && o.GetNamespace() == p.Namespace || j.Has(pivot.Object{
			APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	clusters, err := p.clusters(ctx, side)
	if err != nil {
		return err
	}
	classes := &clusterv1.ClusterClassList{}
	if err := side.Client.List(ctx, classes); err != nil {
		return fmt.Errorf("listing ClusterClasses of the %s: %w", side.Name, err)
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		if _, ok := class.Annotations[clusterv1.PausedAnnotation]; !ok || !moves(clusterv1.ClusterClassKind, class) {
			continue
		}
		before := class.DeepCopy()
		delete(class.Annotations, clusterv1.PausedAnnotation)
		if err := side.Client.Patch(ctx, class, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("resuming ClusterClass %s of the %s: %w", class.Name, side.Name, err)
		}
	}
	for i := range clusters {
		if !ptr.Deref(clusters[i].Spec.Paused, false) || !moves(clusterv1.ClusterKind, &clusters[i]) {
			continue
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))
		if err := side.Client.Patch(ctx, &clusters[i], patch); err != nil {
			return fmt.Errorf("resuming Cluster %s of the %s: %w", clusters[i].Name, side.Name, err)
		}
	}
	return nil
}

func (p *Pivot) clusters(ctx context.Context, side *Side) ([]clusterv1.Cluster, error) {
	list := &clusterv1.ClusterList{}
	if err := side.Client.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("listing Clusters of the %s: %w", side.Name, err)
	}
	return list.Items, nil
}
