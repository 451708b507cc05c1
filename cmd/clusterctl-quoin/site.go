// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// fieldOwner of what the command applies.
const fieldOwner = "clusterctl-quoin"

// providers that both management clusters get, in clusterctl's notation: name[:version].
type providers struct {
	config                            string
	core                              string
	bootstraps, controlPlanes, infras []string
}

func (p *providers) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&p.config, "clusterctl-config", "", "configuration of clusterctl, which says where providers are")
	flags.StringVar(&p.core, "core", "cluster-api", "core provider")
	flags.StringSliceVar(&p.bootstraps, "bootstrap-providers", []string{"kubeadm"}, "bootstrap providers")
	flags.StringSliceVar(&p.controlPlanes, "control-plane", []string{"quoin"}, "control-plane providers")
	flags.StringSliceVar(&p.infras, "infrastructure", []string{"quoin"}, "infrastructure providers")
}

// missing are the wanted providers that there leaves out.
func (p *providers) missing(there []clusterctlv1.Provider) clusterctl.InitOptions {
	lacks := func(kind clusterctlv1.ProviderType, wanted ...string) (missing []string) {
		for _, want := range wanted {
			name, _, _ := strings.Cut(want, ":")
			if !slices.ContainsFunc(there, func(p clusterctlv1.Provider) bool {
				return p.Type == string(kind) && p.ProviderName == name
			}) {
				missing = append(missing, want)
			}
		}
		return missing
	}
	return clusterctl.InitOptions{
		CoreProvider:            strings.Join(lacks(clusterctlv1.CoreProviderType, p.core), ""),
		BootstrapProviders:      lacks(clusterctlv1.BootstrapProviderType, p.bootstraps...),
		ControlPlaneProviders:   lacks(clusterctlv1.ControlPlaneProviderType, p.controlPlanes...),
		InfrastructureProviders: lacks(clusterctlv1.InfrastructureProviderType, p.infras...),
	}
}

// as are the wanted providers in the versions that a management cluster has, where no other version is wanted: clusterctl
// moves no objects to older providers, so what goes somewhere and comes back finds the same ones.
func (p *providers) as(there []clusterctlv1.Provider) *providers {
	in := func(kind clusterctlv1.ProviderType, wanted ...string) (all []string) {
		for _, want := range wanted {
			i := slices.IndexFunc(there, func(p clusterctlv1.Provider) bool {
				return p.Type == string(kind) && p.ProviderName == want && p.Version != ""
			})
			if i >= 0 {
				want += ":" + there[i].Version
			}
			all = append(all, want)
		}
		return all
	}
	return &providers{
		config:        p.config,
		core:          strings.Join(in(clusterctlv1.CoreProviderType, p.core), ""),
		bootstraps:    in(clusterctlv1.BootstrapProviderType, p.bootstraps...),
		controlPlanes: in(clusterctlv1.ControlPlaneProviderType, p.controlPlanes...),
		infras:        in(clusterctlv1.InfrastructureProviderType, p.infras...),
	}
}

// names of the providers that are to be installed.
func names(o clusterctl.InitOptions) []string {
	all := slices.Concat(o.BootstrapProviders, o.ControlPlaneProviders, o.InfrastructureProviders)
	if o.CoreProvider != "" {
		all = append(all, o.CoreProvider)
	}
	return all
}

// lacking are the wanted providers that a management cluster does not have.
func (p *providers) lacking(ctx context.Context, c client.Client) (clusterctl.InitOptions, error) {
	there, err := installed(ctx, c)
	return p.missing(there), err
}

// installed are the providers that a management cluster has.
func installed(ctx context.Context, c client.Client) ([]clusterctlv1.Provider, error) {
	list := &clusterctlv1.ProviderList{}
	if err := c.List(ctx, list); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listing providers: %w", err)
	}
	return list.Items, nil
}

// lacks names them.
func (p *providers) lacks(ctx context.Context, c client.Client) ([]string, error) {
	o, err := p.lacking(ctx, c)
	return names(o), err
}

// install the providers that are missing, and wait until they run.
func (p *providers) install(ctx context.Context, kubeconfig cluster.Kubeconfig) error {
	c, err := cluster.NewProxy(kubeconfig).NewClient(ctx)
	if err != nil {
		return err
	}
	o, err := p.lacking(ctx, c)
	if err != nil {
		return err
	}
	library, err := clusterctl.New(ctx, p.config)
	if err != nil {
		return err
	}
	o.Kubeconfig, o.WaitProviders, o.WaitProviderTimeout = clusterctl.Kubeconfig(kubeconfig), true, 10*time.Minute
	_, err = library.Init(ctx, o)
	return err
}

// renewInstalled renews the providers that clusterctl has installed in a management cluster. Where it has installed none it is not
// asked: it writes the type of its inventory before it looks, also for a plan.
func (p *providers) renewInstalled(ctx context.Context, of cluster.Kubeconfig, plans bool, say func(string, ...any)) error {
	c, err := cluster.NewProxy(of).NewClient(ctx)
	if err != nil {
		return fmt.Errorf("reaching the management cluster: %w", err)
	}
	switch there, err := installed(ctx, c); {
	case err != nil:
		return err
	case len(there) == 0:
		return fmt.Errorf("%w: the management cluster has no providers that clusterctl installed: upgrade them by what did, and then "+
			"the Cluster without --upgrade-providers", execute.ErrRefused)
	}
	library, err := clusterctl.New(ctx, p.config)
	if err != nil {
		return err
	}
	return p.renew(ctx, library, of, plans, say)
}

// renew brings the providers of a management cluster to the newest version of the contract that they have, and waits until
// they run (S0-61, S0-62). Where it only plans, it says which it would bring there.
func (p *providers) renew(
	ctx context.Context, library clusterctl.Client, of cluster.Kubeconfig, plans bool, say func(string, ...any),
) error {
	all, err := library.PlanUpgrade(ctx, clusterctl.PlanUpgradeOptions{Kubeconfig: clusterctl.Kubeconfig(of)})
	if err != nil {
		return fmt.Errorf("looking for newer providers: %w", err)
	}
	i := slices.IndexFunc(all, func(p clusterctl.UpgradePlan) bool { return p.Contract == clusterv1.GroupVersion.Version })
	if i < 0 {
		return fmt.Errorf("clusterctl knows no providers of contract %s for this management cluster: its own version is older",
			clusterv1.GroupVersion.Version)
	}
	newer := false
	for _, item := range all[i].Providers {
		if item.NextVersion != "" {
			newer = true
			say("provider %s: %s -> %s", item.Name, item.Version, item.NextVersion)
		}
	}
	if !newer {
		say("no provider has a newer version")
	}
	if plans || !newer {
		return nil
	}
	err = library.ApplyUpgrade(ctx, clusterctl.ApplyUpgradeOptions{Kubeconfig: clusterctl.Kubeconfig(of),
		Contract: all[i].Contract, WaitProviders: true, WaitProviderTimeout: 10 * time.Minute})
	if err != nil {
		return fmt.Errorf("upgrading the providers: %w", err)
	}
	return nil
}

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
	found, err := s.progress(ctx)
	return found.next(), err
}

// progress is what is found.
func (s *realSite) progress(ctx context.Context) (p progress, err error) {
	last, err := s.workspace.lastPivot()
	if err != nil {
		return p, err
	}
	if last != nil && last.Journal != nil && !last.Back {
		p.Pivot = last.Journal.Phase
	}
	there, err := s.bootstrap.kind.List()
	if err != nil {
		return p, fmt.Errorf("listing kind clusters: %w", err)
	}
	p.Bootstrap = slices.Contains(there, kindName(s.name)) && s.workspace.hasBootstrap()
	p.Applied, p.Network = s.applied, s.network == ""
	if !p.Bootstrap || p.Pivot == pivot.Done {
		return p, nil
	}
	if s.source, err = cluster.NewProxy(s.sourceKubeconfig()).NewClient(ctx); err != nil {
		return p, fmt.Errorf("reaching the bootstrap cluster: %w", err)
	}
	if p.Lacks, err = s.providers.lacks(ctx, s.source); err != nil || len(p.Lacks) > 0 {
		return p, err
	}
	c := &clusterv1.Cluster{}
	err = s.source.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, c)
	if apierrors.IsNotFound(err) {
		return p, nil
	} else if err != nil {
		return p, fmt.Errorf("reading Cluster %s: %w", s.name, err)
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
		err := c.Get(ctx, client.ObjectKeyFromObject(found), found)
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
			last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(fieldOwner))
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
// begun again: the source has everything as before.
func (p *pivotOptions) when(ctx context.Context, name string, timeout time.Duration) error {
	return whenItMay(ctx, 5*time.Second, timeout, p.say, func(ctx context.Context) error { return p.run(ctx, name) })
}

func whenItMay(
	ctx context.Context, every, timeout time.Duration, say func(string, ...any), pivot func(context.Context) error,
) error {
	said := ""
	err := wait.PollUntilContextTimeout(ctx, every, timeout, true, func(ctx context.Context) (bool, error) {
		err := pivot(ctx)
		if !errors.Is(err, execute.ErrRefused) && !errors.Is(err, execute.ErrUndone) {
			return true, err
		}
		if err.Error() != said {
			said = err.Error()
			say("  %s", said)
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("it may not begin after %s: %s", timeout, said)
	}
	return err
}
