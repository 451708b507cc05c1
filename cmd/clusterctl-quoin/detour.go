// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// Stages of an upgrade through a bootstrap cluster, between those that it shares with a creation (S0-64 to S0-69).
const (
	pivotThere   stage = "pivot to the bootstrap cluster"
	upgradeThere stage = "upgrade the cluster from there"
	pivotHome    stage = "pivot back"
)

// detour upgrades a cluster while a bootstrap cluster manages it, and brings everything back.
type detour struct {
	*raise
	bootstrap bootstrap
	providers providers
	workspace workspace
	// home manages the cluster before and afterwards.
	home cluster.Kubeconfig
	// pivots is what is wished of both.
	pivots pivot.Wish
}

// detourFound is how far a detour is, as it is found.
type detourFound struct {
	// Bootstrap says that kind has the bootstrap cluster and the workspace its kubeconfig, Left that one of them does.
	Bootstrap, Left bool
	// Lacks are the providers that the bootstrap cluster does not have.
	Lacks []string
	// Open is the stage whose pivot is not finished; There says that the last one led to the bootstrap cluster.
	Open  stage
	There bool
	// Upgraded says that the upgrade is completed.
	Upgraded bool
}

// next is what comes next. A pivot that is open is finished first, and the bootstrap cluster is deleted only when what
// it managed is home and has the version.
func (f detourFound) next() stage {
	switch {
	case f.Open != "":
		return f.Open
	case f.There && f.Upgraded:
		return pivotHome
	case f.There:
		return upgradeThere
	case f.Upgraded && f.Left:
		return removeBootstrap
	case f.Upgraded:
		return created
	case !f.Bootstrap:
		return makeBootstrap
	case len(f.Lacks) > 0:
		return installThere
	}
	return pivotThere
}

// pivots says where the last pivot led, or leads.
func (f *detourFound) pivots(c charge) {
	f.There = c.Bootstrap && !c.Open
	switch {
	case c.Open && c.Bootstrap:
		f.Open = pivotThere
	case c.Open:
		f.Open = pivotHome
	}
}

// next implements site.
func (d *detour) next(ctx context.Context) (stage, error) {
	f, err := d.look(ctx)
	return f.next(), err
}

// look finds how far it is. While nothing has moved, the management cluster at home is asked whether it would take the
// upgrade: what is not wanted, or is in the way, moves nothing.
func (d *detour) look(ctx context.Context) (f detourFound, err error) {
	charge, _, err := d.workspace.inCharge()
	if err != nil {
		return f, err
	}
	f.pivots(charge)
	runs, err := d.bootstrap.runs(d.wish.ClusterName)
	if err != nil {
		return f, err
	}
	f.Bootstrap, f.Left = runs && d.workspace.hasBootstrap(), runs || d.workspace.hasBootstrap()
	if f.Open != "" {
		return f, nil
	}
	manages, there := d.home, d.there()
	if f.There {
		manages = there
	}
	c, namespace, err := d.readerOf(manages)
	if err != nil {
		return f, err
	}
	u, err := upgradeOf(ctx, c, namespace, d.wish.ClusterName)
	if err != nil {
		return f, err
	}
	f.Upgraded = u != nil && upgrade.Completed(u) && d.wants(u)
	if f.There || f.Upgraded {
		return f, nil
	}
	if _, _, err := d.request(ctx, c, namespace, true); err != nil || !f.Bootstrap {
		return f, err
	}
	bootstrap, err := cluster.NewProxy(there).NewClient(ctx)
	if err != nil {
		return f, fmt.Errorf("reaching the bootstrap cluster: %w", err)
	}
	f.Lacks, err = d.providers.lacks(ctx, bootstrap)
	return f, err
}

// there reaches the bootstrap cluster.
func (d *detour) there() cluster.Kubeconfig {
	path := d.workspace.bootstrapKubeconfig()
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return cluster.Kubeconfig{Path: path}
}

// reach implements site.
func (d *detour) reach(ctx context.Context, next stage) error {
	switch next {
	case makeBootstrap:
		return d.bootstrap.create(ctx, d.workspace, d.wish.ClusterName)
	case installThere:
		c, err := cluster.NewProxy(d.home).NewClient(ctx)
		if err != nil {
			return fmt.Errorf("reaching the cluster: %w", err)
		}
		home, err := installed(ctx, c)
		if err != nil {
			return err
		}
		return d.providers.as(home).install(ctx, d.there())
	case pivotThere:
		return d.pivot(ctx, &pivotOptions{to: d.there()}, d.home)
	case upgradeThere:
		c, namespace, err := d.readerOf(d.there())
		if err != nil {
			return err
		}
		return d.run(ctx, c, namespace)
	case pivotHome:
		charge, last, err := d.workspace.inCharge()
		if err != nil {
			return err
		}
		if !charge.Open && !charge.Returned || charge.Open && !last.Back {
			// A way home that was not one back: a birth that was undone, or is not finished.
			return d.pivot(ctx, &pivotOptions{to: charge.Home}, d.there())
		}
		return d.pivot(ctx, &pivotOptions{back: true}, cluster.Kubeconfig{})
	case removeBootstrap:
		return d.bootstrap.remove(ctx, d.workspace, d.wish.ClusterName)
	}
	return fmt.Errorf("no stage %q", next)
}

func (d *detour) pivot(ctx context.Context, p *pivotOptions, from cluster.Kubeconfig) error {
	p.wish = d.pivots
	p.options = &options{workspace: d.options.workspace, out: d.out, namespace: d.namespace, kubeconfig: from}
	return p.when(ctx, d.wish.ClusterName, d.deadline)
}

// take goes through a bootstrap cluster, or says where that is.
func (d *detour) take(ctx context.Context) error {
	if d.dryRun {
		next, err := d.next(ctx)
		if err == nil {
			fmt.Fprintf(d.out, "next: %s\n", next)
		}
		return err
	}
	if err := goThrough(ctx, d, d.say, d.directions); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "cluster %s has %s, and is managed as before: %s\n", d.wish.ClusterName, d.wish.Version,
		d.home.Path)
	return nil
}

// directions says how a detour that ended early goes on, or back. A stage that is refused, or that was undone, is one
// of several: its exit code would say that nothing was done.
func (d *detour) directions(err error) error {
	back := ""
	switch charge, last, failure := d.workspace.inCharge(); {
	case failure != nil || last == nil:
	case charge.Open && charge.Bootstrap:
		back = ", and\n`clusterctl quoin pivot %[2]s --abort` gives up the pivot to the bootstrap cluster, until nothing undoes " +
			"it"
	case charge.Returned || charge.Open && last.Back:
		back = ", and\n`clusterctl quoin pivot %[2]s --back` takes it back from the bootstrap cluster without an upgrade"
	}
	return fmt.Errorf("%s\nThe same command goes on from where it is. `clusterctl quoin status %[2]s` says which side "+
		"manages the cluster"+back, err.Error(), d.wish.ClusterName)
}
