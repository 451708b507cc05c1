// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
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
	// Patience is how long a side may take to answer; zero is the usual time.
	Patience time.Duration

	// holder names this run, held is the journal that it wrote last.
	holder string
	held   *pivot.Journal
	// behind write a pivot that has ended where its end is not written down.
	behind []func(context.Context) error
	// now is the clock; nil is that of the machine.
	now func() time.Time
}

// ErrRefused is what a pivot ends with that cannot go on by itself. Nothing was written since it was found.
var ErrRefused = errors.New("refused")

// ErrNotYet is a refusal that may pass by itself: a check of the preflight has failed, or another run is at work.
var ErrNotYet = fmt.Errorf("%w", ErrRefused)

// ErrUndone is what a pivot ends with that was undone, because it could not be finished.
var ErrUndone = errors.New("undone")

// Run does what is left to do, until the target has everything, or the source has it again.
func (p *Pivot) Run(ctx context.Context, wish pivot.Wish) error {
	j, w, err := p.prepare(ctx, wish)
	if err != nil {
		return err
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
		if j, err = p.begin(ctx, wish); err != nil {
			return err
		}
		return p.copyOrUndo(ctx, j)
	case pivot.Copy:
		if j == nil {
			if j, err = p.begin(ctx, pivot.Wish{TakeOver: true}); err != nil {
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

// prepare reads what is there, where a run may go on with it. It writes nothing.
func (p *Pivot) prepare(ctx context.Context, wish pivot.Wish) (*pivot.Journal, pivot.World, error) {
	if p.Source.UID == p.Target.UID {
		return nil, pivot.World{}, fmt.Errorf("%w: source and target are the same management cluster", ErrRefused)
	}
	if why := wish.Unskippable(); why != "" {
		return nil, pivot.World{}, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	host, _ := os.Hostname()
	p.holder = fmt.Sprintf("%s, process %d, %s", host, os.Getpid(), uuid.NewString()[:8])
	for _, side := range []*Side{p.Source, p.Target} {
		side.patient.grant(cmp.Or(p.Patience, patience), func(what string) { p.Report("%s", what) })
	}
	j, w, err := p.found(ctx)
	if err != nil {
		return nil, w, err
	}
	if why := j.HeldFrom(p.holder, p.time()); why != "" {
		return nil, w, fmt.Errorf("%w: %s", ErrNotYet, why)
	}
	return j, w, nil
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

// refusal is for a run that has done nothing yet.
func refusal(err error) error {
	if errors.Is(err, errOvertaken) {
		return fmt.Errorf("%w: %w", ErrNotYet, err)
	}
	return err
}

// begin lists what moves and writes the journal. What is on the target already is taken for a copy when a move that
// died is taken over, and is in the way otherwise.
func (p *Pivot) begin(ctx context.Context, wish pivot.Wish) (*pivot.Journal, error) {
	var r *run
	if wish.TakeOver {
		var err error
		if r, err = p.takenOver(ctx); err != nil {
			return nil, err
		}
	} else {
		// With the namespace there, the target's admission can be asked about everything that comes.
		err := p.Target.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("making namespace %s on the target: %w", p.Namespace, err)
		}
		var facts pivot.Facts
		if facts, r, err = p.facts(ctx); err != nil {
			return nil, err
		}
		switch facts.Reach.Unasked = skipped(wish); {
		case facts.Reach.Unasked != "":
		case pivot.Blocks(pivot.Preflight(facts)):
			facts.Reach.Unasked = "another check has failed"
		default:
			if err := p.ask(ctx, &facts); err != nil {
				return nil, err
			}
		}
		for _, check := range pivot.Preflight(facts) {
			switch check.Result {
			case pivot.Failed:
				err = errors.Join(err, fmt.Errorf("%w: %s: %s", ErrNotYet, check.Name, check.Message))
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

// takenOver is the run that lists what a move that died still has to move.
func (p *Pivot) takenOver(ctx context.Context) (*run, error) {
	r := p.run(rehearse)
	r.again = true
	if err := r.do(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if len(r.differing) > 0 {
		return nil, fmt.Errorf("%w: the target has %s with another content, and nothing is overwritten: see which of the "+
			"two is right, and make them equal or delete one", ErrRefused, r.differing[0])
	}
	return r, nil
}

// Preflight says whether a pivot may begin. It writes nothing, but for the Pod that asks from the target, where that is
// wanted.
func (p *Pivot) Preflight(ctx context.Context, fromTarget bool) ([]pivot.Check, error) {
	facts, _, err := p.facts(ctx)
	if err != nil {
		return nil, err
	}
	facts.Reach.Unasked = unaskedBefore
	if fromTarget {
		if err := p.ask(ctx, &facts); err != nil {
			return nil, err
		}
	}
	return pivot.Preflight(facts), nil
}

// facts are all that a preflight reads, and the run that lists what moves. What the target reaches is asked afterwards.
func (p *Pivot) facts(ctx context.Context) (facts pivot.Facts, r *run, err error) {
	facts.Movable = map[string]*metav1.Condition{}
	clusters, err := p.clusters(ctx, p.Source)
	if err != nil {
		return facts, nil, err
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
			return facts, nil, fmt.Errorf("reading %s %s of the source: %w", ref.Kind, ref.Name, err)
		}
		if condition, err := conditions.UnstructuredGet(site, infrav1.ClusterMovableCondition); err == nil {
			facts.Movable[clusters[i].Name] = condition
		}
	}
	nodes := &corev1.NodeList{}
	if err := p.Target.Client.List(ctx, nodes); err != nil {
		return facts, nil, fmt.Errorf("listing nodes of the target: %w", err)
	}
	facts.Nodes = nodes.Items
	managers := &appsv1.DeploymentList{}
	if err := p.Target.Client.List(ctx, managers, client.HasLabels{clusterv1.ProviderNameLabel}); err != nil {
		return facts, nil, fmt.Errorf("listing managers of the target: %w", err)
	}
	hosts, planes, templates, machines, err := p.moving(ctx)
	if err != nil {
		return facts, nil, err
	}
	facts.Volumes = pivot.Volumes(planes, templates, managers.Items)
	own, services := &corev1.NodeList{}, &corev1.ServiceList{}
	for _, list := range []client.ObjectList{own, services} {
		if err := p.Source.Client.List(ctx, list); err != nil {
			return facts, nil, fmt.Errorf("listing nodes and Services of the source: %w", err)
		}
	}
	facts.Served = pivot.ServedBySource(planes, templates, machines, own.Items, services.Items)
	facts.Reach = pivot.Reach{Ways: pivot.Ways(hosts, planes, templates), Manager: pivot.Asker(managers.Items)}
	r = p.run(rehearse)
	facts.Rehearsal = r.do(ctx)
	facts.Moving, facts.Tried = len(r.seen), r.tryAdmission
	facts.Existing = slices.DeleteFunc(slices.Clone(r.existing), func(o pivot.Object) bool {
		return shareable(o) && !slices.Contains(r.differing, o)
	})
	return facts, r, nil
}

// moving are the objects of ours that say what managers connect to and mount.
func (p *Pivot) moving(ctx context.Context) (
	[]infrav1.QuoinHost, []controlplanev1.QuoinControlPlane, []infrav1.QuoinMachineTemplate, []infrav1.QuoinMachine, error,
) {
	hosts, machines := &infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{}
	planes, templates := &controlplanev1.QuoinControlPlaneList{}, &infrav1.QuoinMachineTemplateList{}
	for kind, typed := range map[schema.GroupVersionKind]client.ObjectList{
		infrav1.GroupVersion.WithKind("QuoinHostList"):                hosts,
		controlplanev1.GroupVersion.WithKind("QuoinControlPlaneList"): planes,
		infrav1.GroupVersion.WithKind("QuoinMachineTemplateList"):     templates,
		infrav1.GroupVersion.WithKind("QuoinMachineList"):             machines,
	} {
		list := &unstructured.UnstructuredList{} // clusterctl's client knows no types of ours
		list.SetGroupVersionKind(kind)
		if err := p.Source.Client.List(ctx, list, client.InNamespace(p.Namespace)); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return nil, nil, nil, nil, fmt.Errorf("listing %s of the source: %w", kind.Kind, err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.UnstructuredContent(), typed); err != nil {
			return nil, nil, nil, nil, fmt.Errorf("decoding %s of the source: %w", kind.Kind, err)
		}
	}
	return hosts.Items, planes.Items, templates.Items, machines.Items, nil
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
	if w.Source, err = p.side(ctx, p.Source, objects); err != nil {
		return w, err
	}
	w.Target, err = p.side(ctx, p.Target, objects)
	return w, err
}

// side is what one has of the objects.
func (p *Pivot) side(ctx context.Context, side *Side, objects []pivot.Object) (found pivot.Side, err error) {
	clusters, err := p.clusters(ctx, side)
	if err != nil {
		return found, err
	}
	for i := range clusters {
		found.Clusters = append(found.Clusters,
			pivot.Cluster{Name: clusters[i].Name, Paused: ptr.Deref(clusters[i].Spec.Paused, false)})
	}
	for _, object := range objects {
		o, err := read(ctx, side, object)
		if err != nil {
			return found, err
		}
		if o == nil {
			continue
		}
		found.Present = append(found.Present, object)
		if _, ok := o.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]; ok {
			found.Marked++
		}
	}
	return found, nil
}
