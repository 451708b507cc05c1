// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// fieldOwner of what the command applies.
const fieldOwner = "clusterctl-quoin"

// readObjects reads what files have; the order is theirs.
func readObjects(files []string) (objects []unstructured.Unstructured, err error) {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading objects: %w", err)
		}
		some, err := utilyaml.ToUnstructured(content)
		if err != nil {
			return nil, fmt.Errorf("reading objects of %s: %w", file, err)
		}
		objects = append(objects, some...)
	}
	return objects, nil
}

// oneNamespace is that of the Cluster, which is to be there. A pivot moves one namespace: what lies in another one would stay
// behind, and go with the bootstrap cluster.
func oneNamespace(objects []unstructured.Unstructured, name string) (string, error) {
	namespace := ""
	for _, o := range objects {
		if o.GetKind() == clusterv1.ClusterKind && o.GroupVersionKind().Group == clusterv1.GroupVersion.Group &&
			o.GetName() == name {
			namespace = namespaceOf(o)
		}
	}
	if namespace == "" {
		return "", fmt.Errorf("no file has a Cluster %s", name)
	}
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GetName() == namespace {
			continue
		}
		if namespaceOf(o) != namespace {
			return "", fmt.Errorf("%s %s is in namespace %s, and Cluster %s in %s: only what is in the Cluster's own moves "+
				"with it, the rest would be lost with the bootstrap cluster", o.GetKind(), o.GetName(), namespaceOf(o), name,
				namespace)
		}
	}
	return namespace, nil
}

// namespaceOf is what kubectl would take.
func namespaceOf(o unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return metav1.NamespaceDefault
	}
	return o.GetNamespace()
}

// realSite is one machine with kind, and the hosts.
type realSite struct {
	*creation
	workspace       workspace
	name, namespace string
	objects         []unstructured.Unstructured

	applied bool
	// stale says that what the last pivot moved is gone: the workspace's word of it would outlive this creation.
	stale bool
	// by is the kubeconfig of the management cluster that has the Cluster after the pivot.
	by string
	// source is the bootstrap cluster's client, once it is there.
	source client.Client
}

func (s *realSite) sourceKubeconfig() cluster.Kubeconfig {
	return cluster.Kubeconfig{Path: s.workspace.bootstrapKubeconfig()}
}

func (s *realSite) targetKubeconfig() cluster.Kubeconfig {
	return cluster.Kubeconfig{Path: s.workspace.kubeconfig()}
}

// next implements site.
func (s *realSite) next(ctx context.Context) (stage, error) {
	found, err := s.look(ctx)
	return found.next(), err
}

// look finds how far it is.
func (s *realSite) look(ctx context.Context) (p creationFound, err error) {
	charge, last, err := s.workspace.inCharge()
	if err != nil {
		return p, err
	}
	runs, err := s.bootstrap.runs(s.name)
	if err != nil {
		return p, err
	}
	p.Bootstrap, p.Left = runs && s.workspace.hasBootstrap(), runs || s.workspace.hasBootstrap()
	p.Applied, p.Network = s.applied, s.network == ""
	p.Open, p.Moved = charge.Open, charge.moved()
	switch {
	case p.Moved:
		s.by = charge.By.Path
		return p, s.movedTo(ctx, charge.By)
	case charge.Bootstrap && !p.Open && !runs:
		return p, fmt.Errorf("%w: the bootstrap cluster is gone that manages Cluster %s since the last pivot: where nothing "+
			"of that is left, remove %s", execute.ErrRefused, s.name, s.workspace.recordPath())
	case p.Open || !p.Bootstrap:
		return p, nil
	}
	if s.source, err = cluster.NewProxy(s.sourceKubeconfig()).NewClient(ctx); err != nil {
		return p, fmt.Errorf("reaching the bootstrap cluster: %w", err)
	}
	journal, err := execute.Journal(ctx, s.source, s.namespace)
	if p.Open = journal.Open(); err != nil || p.Open {
		return p, err
	}
	if p.Lacks, err = s.providers.lacks(ctx, s.source); err != nil || len(p.Lacks) > 0 {
		return p, err
	}
	c := &clusterv1.Cluster{}
	err = s.source.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, c)
	switch {
	case apierrors.IsNotFound(err) && journal != nil && last == nil:
		return p, fmt.Errorf("%w: the bootstrap cluster had namespace %s, which a pivot moved (ConfigMap %s there), and the "+
			"workspace does not say where it is: `clusterctl quoin bootstrap delete %s` leaves it there", execute.ErrRefused,
			s.namespace, execute.JournalName, s.name)
	case apierrors.IsNotFound(err):
		s.stale = last != nil
		return p, nil
	case err != nil:
		return p, fmt.Errorf("reading Cluster %s: %w", s.name, err)
	case charge.Returned:
		return p, fmt.Errorf("%w: the last pivot brought Cluster %s to the bootstrap cluster, and nothing is created "+
			"anew: `clusterctl quoin pivot %[2]s --back` takes it back", execute.ErrRefused, s.name)
	}
	p.Initialized, p.Settled = uninitialized(c) == "", unsettled(c) == ""
	if !p.Initialized || !p.Applied {
		return p, nil
	}
	target, err := s.target(ctx)
	if err != nil {
		return p, err
	}
	if s.network != "" {
		if p.Network, err = s.networkThere(ctx, target); err != nil {
			return p, err
		}
	}
	p.LacksHere, err = s.providers.lacks(ctx, target)
	return p, err
}

// movedTo reads the Cluster where the last pivot left it.
func (s *realSite) movedTo(ctx context.Context, by cluster.Kubeconfig) error {
	c, err := cluster.NewProxy(by).NewClient(ctx)
	if err != nil {
		return fmt.Errorf("reaching the management cluster: %w", err)
	}
	err = c.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, &clusterv1.Cluster{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: the last pivot left Cluster %s to the management cluster of %s, which has none: where it was "+
			"deleted, remove %s", execute.ErrRefused, s.name, by.Path, s.workspace.recordPath())
	} else if err != nil {
		return fmt.Errorf("reading Cluster %s: %w", s.name, err)
	}
	return nil
}

// target is a client of the cluster itself. Its kubeconfig goes to the workspace.
func (s *realSite) target(ctx context.Context) (client.Client, error) {
	kubeconfig, err := cluster.New(s.sourceKubeconfig(), nil).WorkloadCluster().GetKubeconfig(ctx, s.name, s.namespace)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	if err := s.workspace.write(s.workspace.kubeconfig(), []byte(kubeconfig)); err != nil {
		return nil, err
	}
	c, err := cluster.NewProxy(s.targetKubeconfig()).NewClient(ctx)
	if err != nil {
		return nil, fmt.Errorf("reaching the cluster: %w", err)
	}
	return c, nil
}

// networkThere reports whether every object of the network plugin is in the cluster.
func (s *realSite) networkThere(ctx context.Context, c client.Client) (bool, error) {
	objects, err := readObjects([]string{s.network})
	if err != nil {
		return false, err
	}
	for i := range objects {
		found := objects[i].DeepCopy()
		err := locate(c, found)
		if err == nil {
			err = c.Get(ctx, client.ObjectKeyFromObject(found), found)
		}
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("reading %s %s: %w", found.GetKind(), found.GetName(), err)
		}
	}
	return true, nil
}

// reach implements site.
func (s *realSite) reach(ctx context.Context, next stage) error {
	switch next {
	case makeBootstrap:
		return s.bootstrap.create(ctx, s.workspace, s.name)
	case installThere:
		return s.providers.install(ctx, s.sourceKubeconfig())
	case applyObjects:
		if s.stale {
			if err := s.workspace.forget(); err != nil {
				return err
			}
		}
		if err := s.apply(ctx, s.source, s.objects); err != nil {
			return err
		}
		s.applied = true
		return nil
	case awaitInitialized:
		return s.await(ctx, uninitialized)
	case awaitSettled:
		return s.await(ctx, unsettled)
	case applyNetwork:
		target, err := s.target(ctx)
		if err != nil {
			return err
		}
		objects, err := readObjects([]string{s.network})
		if err != nil {
			return err
		}
		return s.apply(ctx, target, objects)
	case installHere:
		return s.providers.install(ctx, s.targetKubeconfig())
	case pivotHere:
		if _, err := os.Stat(s.workspace.kubeconfig()); errors.Is(err, fs.ErrNotExist) {
			if _, err := s.target(ctx); err != nil {
				return err // the workspace was lost
			}
		}
		p := &pivotOptions{options: &options{workspace: s.options.workspace, out: s.out, namespace: s.namespace,
			kubeconfig: s.sourceKubeconfig()}, to: s.targetKubeconfig(), wish: s.wish}
		return p.when(ctx, s.name, s.timeout)
	case removeBootstrap:
		return s.bootstrap.remove(ctx, s.workspace, s.name)
	}
	return fmt.Errorf("no stage %q", next)
}

// apply the objects, and their namespace. Webhooks that were installed a moment ago may not answer yet.
func (s *realSite) apply(ctx context.Context, c client.Client, objects []unstructured.Unstructured) error {
	if c == s.source {
		err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making namespace %s: %w", s.namespace, err)
		}
	}
	for i := range objects {
		o := &objects[i]
		if c == s.source && o.GetKind() != "Namespace" {
			o.SetNamespace(s.namespace)
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, 2*time.Second, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
			if last = locate(c, o); last == nil {
				last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldOwner))
			}
			if apierrors.IsInternalError(last) || apierrors.IsServiceUnavailable(last) || apierrors.IsTooManyRequests(last) ||
				meta.IsNoMatchError(last) {
				return false, nil
			}
			return true, nil
		})
		if last != nil {
			err = last
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// locate gives an object the namespace that kubectl would take, where its kind has one.
func locate(c client.Client, o *unstructured.Unstructured) error {
	namespaced, err := c.IsObjectNamespaced(o)
	if err == nil && namespaced {
		o.SetNamespace(namespaceOf(*o))
	}
	return err
}

// uninitialized says what the Cluster lacks before it has a first control-plane Machine; empty when it has one.
func uninitialized(c *clusterv1.Cluster) string {
	return lacks(c, clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue)
}

// unsettled says what the Cluster lacks before it may move; empty when it lacks nothing. It is available as soon as a first
// control-plane Machine is, while others are made, and clusterctl moves no Machine that has no node.
func unsettled(c *clusterv1.Cluster) string {
	return cmp.Or(lacks(c, clusterv1.ClusterAvailableCondition, metav1.ConditionTrue),
		lacks(c, clusterv1.ClusterScalingUpCondition, metav1.ConditionFalse),
		lacks(c, clusterv1.ClusterControlPlaneMachinesReadyCondition, metav1.ConditionTrue),
		lacks(c, clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionTrue))
}

// lacks says that a condition has not the wanted status, and why; empty when it has.
func lacks(c *clusterv1.Cluster, condition string, wanted metav1.ConditionStatus) string {
	switch found := conditions.Get(c, condition); {
	case found == nil:
		return condition + " is not known yet"
	case found.Status != wanted:
		return fmt.Sprintf("%s is %s: %s", condition, found.Status, cmp.Or(found.Message, found.Reason))
	}
	return ""
}

// await a Cluster that lacks nothing, and say what it lacks whenever that changes.
func (s *realSite) await(ctx context.Context, lacks func(*clusterv1.Cluster) string) error {
	said := ""
	err := wait.PollUntilContextTimeout(ctx, 3*time.Second, s.timeout, true, func(ctx context.Context) (bool, error) {
		c := &clusterv1.Cluster{}
		if err := s.source.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, c); err != nil {
			// The bootstrap cluster may be busy; the time-out is the bound.
			said = err.Error()
			return false, nil //nolint:nilerr // it is said when the time is over
		}
		message := lacks(c)
		if message != said && message != "" {
			said = message
			s.say("  %s", strings.ReplaceAll(message, "\n", "\n           "))
		}
		return message == "", nil
	})
	if err != nil {
		return fmt.Errorf("cluster %s after %s: %s", s.name, s.timeout, said)
	}
	return nil
}

// when runs a pivot as soon as that may begin, and says what it waits for whenever that changes. One that was undone is
// begun again a few times: the source has everything as before.
func (p *pivotOptions) when(ctx context.Context, name string, timeout time.Duration) error {
	return whenItMay(ctx, 5*time.Second, timeout, p.say, func(ctx context.Context) error { return p.run(ctx, name) })
}

func whenItMay(
	ctx context.Context, every, timeout time.Duration, say func(string, ...any), pivot func(context.Context) error,
) error {
	said, undone := "", 0
	for until := time.Now().Add(timeout); ; {
		err := pivot(ctx) // which has its own end: one that is under way is not cut off when the time is over
		switch {
		case errors.Is(err, execute.ErrUndone):
			// The source was paused meanwhile.
			if undone++; undone == mostUndone {
				return fmt.Errorf("it was undone %d times, and is not begun again: %w", undone, err)
			}
		case !errors.Is(err, execute.ErrNotYet):
			return err
		}
		if err.Error() != said {
			said = err.Error()
			say("  %s", said)
		}
		if time.Now().Add(every).After(until) {
			return fmt.Errorf("it may not begin after %s: %s", timeout, said)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing is under way, for it may not begin yet: %s: %w", said, ctx.Err())
		case <-time.After(every):
		}
	}
}

// mostUndone is how often a pivot is begun that is undone each time.
const mostUndone = 3
