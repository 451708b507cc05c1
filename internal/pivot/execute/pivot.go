// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// Local keeps the journal where the command runs.
type Local interface {
	// Load is nil when nothing is kept.
	Load() (*pivot.Journal, error)
	Save(j *pivot.Journal) error
}

// Pivot of a namespace from one management cluster to another.
type Pivot struct {
	Source, Target *Side
	Namespace      string
	Local          Local
	// Report prints one line of progress.
	Report func(format string, args ...any)

	// holder names this run, held is the journal that it wrote last.
	holder string
	held   *pivot.Journal
	// behind write a pivot that has ended where its end is not written down.
	behind []func(context.Context) error
	// now is the clock; nil is that of the machine.
	now func() time.Time
}

// renewal is how often a run says that it lives.
const renewal = pivot.Lease / 4

// ErrRefused is what a pivot ends with that cannot go on by itself. Nothing was written since it was found.
var ErrRefused = errors.New("refused")

// ErrUndone is what a pivot ends with that was undone, because it could not be finished.
var ErrUndone = errors.New("undone")

// Run does what is left to do, until the target has everything, or the source has it again.
func (p *Pivot) Run(ctx context.Context, wish pivot.Wish) error {
	if p.Source.UID == p.Target.UID {
		return fmt.Errorf("%w: source and target are the same management cluster", ErrRefused)
	}
	host, _ := os.Hostname()
	p.holder = fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), uuid.NewString()[:8])
	j, w, err := p.found(ctx)
	if err != nil {
		return err
	}
	if why := j.HeldFrom(p.holder, p.time()); why != "" {
		return fmt.Errorf("%w: %s", ErrRefused, why)
	}
	for _, write := range p.behind {
		if err := write(ctx); err != nil {
			return refusal(err)
		}
	}
	step, err := p.next(ctx, j, w, wish)
	if err != nil {
		return refusal(err)
	}
	p.Report("%s", step.Message)
	if j != nil && step.Action != pivot.Refuse {
		// From here on no other run can write the journal.
		if err := p.hold(ctx, j); err != nil {
			return refusal(err)
		}
	}
	defer p.leave(ctx)
	switch step.Action {
	case pivot.Refuse:
		return fmt.Errorf("%w: %s", ErrRefused, step.Message)
	case pivot.Begin:
		if j, err = p.begin(ctx, wish.TakeOver); err != nil {
			return err
		}
		return p.copyOrUndo(ctx, j)
	case pivot.Copy:
		if j == nil {
			if j, err = p.begin(ctx, true); err != nil {
				return err
			}
		}
		return p.copyOrUndo(ctx, j)
	case pivot.Release:
		if j == nil {
			j = p.released(w)
			if err := p.save(ctx, j); err != nil {
				return refusal(err)
			}
		}
		return p.release(ctx, j)
	case pivot.Resume:
		return p.finish(ctx, j)
	case pivot.Undo:
		return p.undo(ctx, j, "--abort")
	}
	return nil
}

// next asks what comes next, and writes down first that a Cluster acted on the target before everything was there: it
// is never undone from then on, also when it is paused again.
func (p *Pivot) next(ctx context.Context, j *pivot.Journal, w pivot.World, wish pivot.Wish) (pivot.Step, error) {
	if acting := j.Acting(w); len(acting) > 0 && !slices.Equal(acting, j.Acted) {
		j.Acted = acting
		if err := p.save(ctx, j); err != nil {
			return pivot.Step{}, err
		}
	}
	return pivot.Next(j, w, wish), nil
}

// released is the journal of a move that died while it deleted: what is left on the source, all of which is on the
// target, and the Clusters that it left paused there.
func (p *Pivot) released(w pivot.World) *pivot.Journal {
	j := p.written(pivot.Releasing, slices.Clone(w.Source.Present))
	for _, c := range w.Target.Clusters {
		if c.Paused && !j.Moves(c.Name) {
			j.Objects = append(j.Objects, pivot.Object{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
				Namespace: p.Namespace, Name: c.Name})
		}
	}
	return j
}

// written is a new journal.
func (p *Pivot) written(phase pivot.Phase, moving []pivot.Object) *pivot.Journal {
	return &pivot.Journal{ID: uuid.NewString(), Began: p.time(), Phase: phase, Namespace: p.Namespace,
		Source: p.Source.UID, Target: p.Target.UID, Objects: moving}
}

// found is the journal of the pivot that is under way, nil when none is, and what both sides have.
func (p *Pivot) found(ctx context.Context) (*pivot.Journal, pivot.World, error) {
	j, err := p.journal(ctx)
	if err != nil {
		return nil, pivot.World{}, err
	}
	if !j.Open() {
		j = nil
	} else if why := j.Between(p.Namespace, p.Source.UID, p.Target.UID); why != "" {
		return nil, pivot.World{}, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	w, err := p.world(ctx, j)
	return j, w, err
}

// Status of a pivot.
type Status struct {
	// Phase is empty when no pivot is under way.
	Phase pivot.Phase `json:"phase,omitempty"`
	World pivot.World `json:"world"`
	// Next is what the same command would do.
	Next pivot.Step `json:"next"`
}

// Status reads how far the pivot came. It writes nothing.
func (p *Pivot) Status(ctx context.Context) (Status, error) {
	j, w, err := p.found(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{World: w, Next: pivot.Next(j, w, pivot.Wish{})}
	if j != nil {
		s.Phase = j.Phase
	}
	return s, nil
}

// journal is the merged one; nil when there is none.
func (p *Pivot) journal(ctx context.Context) (*pivot.Journal, error) {
	local, err := p.Local.Load()
	if err != nil {
		return nil, err
	}
	source, err := p.Source.journal(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	target, err := p.Target.journal(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	j := pivot.Merge(source, target)
	// The workspace may be about another pivot, or older than what both sides have.
	if local != nil && local.Between(p.Namespace, p.Source.UID, p.Target.UID) == "" && (j == nil || j.ID == local.ID) {
		j = pivot.Merge(local, source, target)
	}
	if j == nil {
		return nil, nil
	}
	merged := *j
	merged.Holder, merged.Renewed = "", time.Time{}
	if target != nil && target.ID == j.ID {
		merged.Holder, merged.Renewed = target.Holder, target.Renewed
	}
	p.behind = nil
	late := func(kept *pivot.Journal) bool {
		return !merged.Open() && kept != nil && kept.ID == merged.ID && kept.Phase != merged.Phase
	}
	for _, side := range []*Side{p.Target, p.Source} {
		if kept := map[*Side]*pivot.Journal{p.Target: target, p.Source: source}[side]; late(kept) {
			p.behind = append(p.behind, func(ctx context.Context) error { return side.keep(ctx, &merged) })
		}
	}
	if late(local) {
		p.behind = append(p.behind, func(context.Context) error { return p.Local.Save(&merged) })
	}
	return &merged, nil
}

func (p *Pivot) time() time.Time {
	if p.now != nil {
		return p.now()
	}
	return time.Now().UTC()
}

// save writes the journal at all three places. The target is first, and decides which of two runs goes on; the others
// are copies, in case that the target is lost.
func (p *Pivot) save(ctx context.Context, j *pivot.Journal) error {
	if err := p.hold(ctx, j); err != nil {
		return err
	}
	if err := p.Source.keep(ctx, j); err != nil {
		return err
	}
	return p.Local.Save(j)
}

// hold writes the journal on the target, with this run as the one that works on it.
func (p *Pivot) hold(ctx context.Context, j *pivot.Journal) error {
	j.Holder, j.Renewed = p.holder, p.time()
	if !j.Open() {
		j.Holder, j.Renewed = "", time.Time{}
	}
	if err := p.Target.keep(ctx, j); err != nil {
		return err
	}
	held := *j
	p.held = &held
	return nil
}

// alive says now and then that this run lives, and ends it when another one has gone on. A target that does not answer
// is no reason to end.
func (p *Pivot) alive(ctx context.Context) error {
	if !p.held.Open() || p.time().Sub(p.held.Renewed) < renewal {
		return nil
	}
	held := *p.held
	if err := p.hold(ctx, &held); errors.Is(err, errOvertaken) {
		return err
	}
	return nil
}

// leave lets the next run go on at once.
func (p *Pivot) leave(ctx context.Context) {
	if !p.held.Open() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	left := *p.held
	left.Holder, left.Renewed = "", time.Time{}
	_ = p.Target.keep(ctx, &left) // It is free after a while otherwise.
}

// refusal is for a run that has done nothing yet.
func refusal(err error) error {
	if errors.Is(err, errOvertaken) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// begin lists what moves and writes the journal. What is on the target already is taken for a copy when a move that
// died is taken over, and is in the way otherwise.
func (p *Pivot) begin(ctx context.Context, takeOver bool) (*pivot.Journal, error) {
	var r *run
	if takeOver {
		r = p.run(rehearse)
		r.again = true
		if err := r.do(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if len(r.differing) > 0 {
			return nil, fmt.Errorf("%w: the target has %s with another content, and nothing is overwritten: see which of the "+
				"two is right, and make them equal or delete one", ErrRefused, r.differing[0])
		}
	} else {
		// With the namespace there, the target's admission can be asked about everything that comes.
		err := p.Target.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("making namespace %s on the target: %w", p.Namespace, err)
		}
		var checks []pivot.Check
		if checks, r, err = p.preflight(ctx); err != nil {
			return nil, err
		}
		for _, check := range checks {
			switch check.Result {
			case pivot.Failed:
				err = errors.Join(err, fmt.Errorf("%w: %s: %s", ErrRefused, check.Name, check.Message))
			case pivot.Warning:
				p.Report("warning: %s: %s", check.Name, check.Message)
			case pivot.Passed:
			}
		}
		if err != nil {
			return nil, err
		}
	}
	j := p.written(pivot.Copying, r.seen)
	j.Existing = r.existing
	p.Report("%d objects move; --abort undoes the pivot until all of them are on the target", len(j.Objects))
	return j, refusal(p.save(ctx, j))
}

// Preflight says whether a pivot may begin, and which objects it would move. It writes nothing.
func (p *Pivot) Preflight(ctx context.Context) ([]pivot.Check, []pivot.Object, error) {
	checks, r, err := p.preflight(ctx)
	if err != nil {
		return nil, nil, err
	}
	return checks, r.seen, nil
}

func (p *Pivot) preflight(ctx context.Context) ([]pivot.Check, *run, error) {
	facts := pivot.Facts{Movable: map[string]*metav1.Condition{}}
	clusters, err := p.clusters(ctx, p.Source)
	if err != nil {
		return nil, nil, err
	}
	for i := range clusters {
		facts.Movable[clusters[i].Name] = nil
		ref := clusters[i].Spec.InfrastructureRef
		site := &unstructured.Unstructured{}
		site.SetGroupVersionKind(infrav1.GroupVersion.WithKind(ref.Kind))
		err := p.Source.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: ref.Name}, site)
		if apierrors.IsNotFound(err) || ref.APIGroup != infrav1.GroupVersion.Group {
			continue
		} else if err != nil {
			return nil, nil, fmt.Errorf("reading %s %s of the source: %w", ref.Kind, ref.Name, err)
		}
		if condition, err := conditions.UnstructuredGet(site, infrav1.ClusterMovableCondition); err == nil {
			facts.Movable[clusters[i].Name] = condition
		}
	}
	nodes := &corev1.NodeList{}
	if err := p.Target.Client.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes of the target: %w", err)
	}
	facts.Nodes = nodes.Items
	r := p.run(rehearse)
	facts.Rehearsal = r.do(ctx)
	facts.Moving, facts.Tried = len(r.seen), r.tryAdmission
	facts.Existing = slices.DeleteFunc(slices.Clone(r.existing), func(o pivot.Object) bool {
		return shareable(o) && !slices.Contains(r.differing, o)
	})
	return pivot.Preflight(facts), r, nil
}

// shareable reports whether several Clusters may use the object: a ClusterClass stays behind with its templates where
// others use it.
func shareable(o pivot.Object) bool {
	return strings.HasSuffix(o.Kind, "Class") || strings.HasSuffix(o.Kind, "Template")
}

func (p *Pivot) run(m mode) *run {
	return &run{mode: m, from: p.Source, to: p.Target, namespace: p.Namespace, alive: p.alive,
		waiting: func(what string) { p.Report("%s", what) }}
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
		if err := p.settled(ctx, j, moving); err != nil {
			return err
		}
		released := *j
		released.Phase, released.Objects = pivot.Releasing, moving
		if err := p.save(ctx, &released); err != nil {
			return err
		}
		*j = released
		p.Report("all %d objects are on the target as they were on the source. This is the point of no return: "+
			"from here on the same command finishes, and nothing undoes", len(moving))
		return nil
	}
	err := r.do(ctx)
	switch {
	case err == nil:
		return p.finish(ctx, j)
	case errors.Is(err, errOvertaken):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while %s: Clusters of namespace %s are paused on the source; the same command "+
			"finishes, with --abort it undoes: %w", j.Phase, p.Namespace, err)
	case r.open:
		return fmt.Errorf("the source is half released, and the target still paused: run the same command again: %w", err)
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
	return fmt.Errorf("%w; Clusters of namespace %s are still paused on the source: run the same command again, it goes "+
		"on undoing", err, p.Namespace)
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
	p.Report("undone: the source manages namespace %s as before, and no copy is on the target", p.Namespace)
	return ErrUndone
}

// resume takes the pause off the Clusters and ClusterClasses of a side that move, or off all where nothing says which
// do. The mover did so, unless it was killed.
func (p *Pivot) resume(ctx context.Context, side *Side, j *pivot.Journal) error {
	moves := func(kind, name string) bool {
		return j == nil || j.Has(pivot.Object{APIVersion: clusterv1.GroupVersion.String(), Kind: kind,
			Namespace: p.Namespace, Name: name})
	}
	classes := &clusterv1.ClusterClassList{}
	if err := side.Client.List(ctx, classes, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("listing ClusterClasses of the %s: %w", side.Name, err)
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		if _, ok := class.Annotations[clusterv1.PausedAnnotation]; !ok || !moves("ClusterClass", class.Name) {
			continue
		}
		before := class.DeepCopy()
		delete(class.Annotations, clusterv1.PausedAnnotation)
		if err := side.Client.Patch(ctx, class, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("resuming ClusterClass %s of the %s: %w", class.Name, side.Name, err)
		}
	}
	clusters, err := p.clusters(ctx, side)
	if err != nil {
		return err
	}
	for i := range clusters {
		if !ptr.Deref(clusters[i].Spec.Paused, false) || !moves("Cluster", clusters[i].Name) {
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

// world reads both sides.
func (p *Pivot) world(ctx context.Context, j *pivot.Journal) (w pivot.World, err error) {
	var objects []pivot.Object
	if j.Open() {
		objects = j.Objects
	} else {
		r := p.run(survey)
		if err := r.do(ctx); err != nil {
			return w, fmt.Errorf("listing the objects of the source: %w", err)
		}
		objects = r.seen
	}
	for _, side := range []*Side{p.Source, p.Target} {
		found := pivot.Side{}
		clusters, err := p.clusters(ctx, side)
		if err != nil {
			return w, err
		}
		for i := range clusters {
			found.Clusters = append(found.Clusters,
				pivot.Cluster{Name: clusters[i].Name, Paused: ptr.Deref(clusters[i].Spec.Paused, false)})
		}
		for _, object := range objects {
			o, err := read(ctx, side, object)
			if err != nil {
				return w, err
			}
			if o == nil {
				continue
			}
			found.Present = append(found.Present, object)
			if _, ok := o.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]; ok {
				found.Marked++
			}
		}
		if side == p.Source {
			w.Source = found
		} else {
			w.Target = found
		}
	}
	return w, nil
}

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
func (p *Pivot) settled(ctx context.Context, j *pivot.Journal, moving []pivot.Object) error {
	var edited []string
	for range rounds {
		versions, err := p.verify(ctx, j, moving)
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

// verify compares every object on both sides before the first one is deleted. It ends with the versions of the
// originals.
func (p *Pivot) verify(ctx context.Context, j *pivot.Journal, moving []pivot.Object) (map[pivot.Object]string, error) {
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
		differences := pivot.Differences(original, copies[object], uids)
		if shareable(object) && slices.Contains(j.Existing, object) {
			differences = pivot.Changed(original, copies[object])
		}
		if len(differences) > 0 {
			found = append(found, fmt.Sprintf("%s differs in %s", object, strings.Join(differences, ", ")))
		}
	}
	if len(found) == 0 {
		return versions, nil
	}
	slices.Sort(found)
	return nil, finding("not everything has arrived as it was: " + strings.Join(found[:min(5, len(found))], "; "))
}
