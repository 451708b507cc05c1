// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

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

// renewInstalled renews the providers that clusterctl has installed in a management cluster. Where it has installed none
// it is not asked: it writes the type of its inventory before it looks, also for a plan.
func (p *providers) renewInstalled(
	ctx context.Context, of cluster.Kubeconfig, plans bool, say func(string, ...any),
) error {
	c, err := cluster.NewProxy(of).NewClient(ctx)
	if err != nil {
		return fmt.Errorf("reaching the management cluster: %w", err)
	}
	switch there, err := installed(ctx, c); {
	case err != nil:
		return err
	case len(there) == 0:
		return fmt.Errorf("%w: the management cluster has no providers that clusterctl installed: upgrade them by what did, "+
			"and then the Cluster without --upgrade-providers", execute.ErrRefused)
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
