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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// newPlan shows how a Cluster gets to another version.
func newPlan(o *options) *cobra.Command {
	var output string
	var watch bool
	command := &cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show the plan of a Cluster's upgrade, and how far it is",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			reader, namespace, err := o.reader(args[0])
			if err != nil {
				return err
			}
			u, err := upgradeOf(c.Context(), reader, namespace, args[0])
			switch {
			case err != nil:
				return err
			case u == nil:
				return fmt.Errorf("no ClusterUpgrade of namespace %s is about Cluster %s, but for what is being deleted: "+
					"`clusterctl quoin upgrade %[2]s --version ...` makes one", namespace, args[0])
			}
			if err := show(o.out, output, u, planTable(u)); err != nil || !watch {
				return err
			}
			return (&raise{options: o, every: lookEvery}).follow(c.Context(), reader, u)
		},
	}
	o.addReader(command)
	addOutput(command, &output)
	command.Flags().BoolVarP(&watch, "watch", "w", false,
		"say what is done, whenever that changes, until the upgrade has ended")
	command.MarkFlagsMutuallyExclusive("output", "watch")
	return command
}

// reader of the management cluster, with the namespace that is asked about.
func (o *options) reader(name string) (client.Client, string, error) {
	manages, _, err := o.managing(name, false)
	if err != nil {
		return nil, "", err
	}
	return o.readerOf(manages)
}

// managing is the management cluster that is asked, by the flags, or else by the workspace: the one that the last pivot
// left in charge, with the namespace that it moved. At home none is a bootstrap cluster.
func (o *options) managing(name string, home bool) (cluster.Kubeconfig, workspace, error) {
	w, err := o.workspaceOf(name)
	kubeconfig := o.kubeconfig
	if err != nil || kubeconfig.Path != "" {
		return kubeconfig, w, err
	}
	charge, last, err := w.inCharge()
	if err != nil {
		return kubeconfig, w, err
	}
	by := charge.By
	if home {
		by = charge.Home
	}
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return path != "" && err == nil
	}
	switch {
	case exists(by.Path):
		by.Context = cmp.Or(kubeconfig.Context, by.Context)
		kubeconfig, o.namespace = by, cmp.Or(o.namespace, last.Namespace)
	case w.hasBootstrap() && !home:
		kubeconfig.Path = w.bootstrapKubeconfig()
	case exists(w.kubeconfig()):
		kubeconfig.Path = w.kubeconfig()
	}
	return kubeconfig, w, nil
}

// namespaceOf is the namespace that moves, for all stages of a detour: each side's context may have its own.
func (o *options) namespaceOf(w workspace, home cluster.Kubeconfig) (string, error) {
	charge, last, err := w.inCharge()
	switch {
	case err != nil || o.namespace != "":
		return o.namespace, err
	case charge.Open || charge.Bootstrap:
		return last.Namespace, nil
	}
	return cluster.NewProxy(home).CurrentNamespace()
}

// readerOf a management cluster.
func (o *options) readerOf(kubeconfig cluster.Kubeconfig) (_ client.Client, namespace string, err error) {
	proxy, namespace := cluster.NewProxy(kubeconfig), o.namespace
	if namespace == "" {
		if namespace, err = proxy.CurrentNamespace(); err != nil {
			return nil, "", err
		}
	}
	config, err := proxy.GetConfig()
	if err != nil {
		return nil, "", fmt.Errorf("reaching the management cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := addSchemes(scheme); err != nil {
		return nil, "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("reaching the management cluster: %w", err)
	}
	return c, namespace, nil
}

// addSchemes adds what is read.
func addSchemes(to *runtime.Scheme) error {
	return errors.Join(quoinv1.AddToScheme(to), infrav1.AddToScheme(to), clusterv1.AddToScheme(to),
		apiextensionsv1.AddToScheme(to))
}

// upgradeOf is the ClusterUpgrade of a Cluster that is carried out: of those that have not ended the first, as their
// controller has it, without those that are being deleted; or else the one that ended last; nil when there is none.
func upgradeOf(ctx context.Context, c client.Reader, namespace, name string) (*quoinv1.ClusterUpgrade, error) {
	list := &quoinv1.ClusterUpgradeList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing ClusterUpgrades: %w", err)
	}
	var open, ended []*quoinv1.ClusterUpgrade
	for i := range list.Items {
		switch u := &list.Items[i]; {
		case u.Spec.ClusterName != name:
		case upgrade.Completed(u):
			ended = append(ended, u)
		case upgrade.Leaves(u): // also when a finalizer keeps it: its controller does nothing more
		default:
			open = append(open, u)
		}
	}
	switch {
	case len(open) > 0:
		return slices.MinFunc(open, upgrade.Order), nil
	case len(ended) > 0:
		return slices.MaxFunc(ended, func(a, b *quoinv1.ClusterUpgrade) int {
			return cmp.Or(upgrade.CompletedAt(a).Compare(upgrade.CompletedAt(b)), upgrade.Order(a, b))
		}), nil
	}
	return nil, nil
}

// planTable has the steps, and below them what holds them.
func planTable(u *quoinv1.ClusterUpgrade) [][]string {
	rows := [][]string{{"STEP", "OBJECT", "FROM", "TO", "CHANGE", "MACHINES", "ESTIMATE", "STATE"}}
	var holds [][]string
	hold := func(where string, all []quoinv1.UpgradeHold) {
		for _, h := range all {
			holds = append(holds, []string{where, string(h.Type) + ": " + h.Message})
		}
	}
	if u.Status.Plan != nil {
		hold("all steps", u.Status.Plan.Holds)
	}
	for i, step := range u.Status.Steps {
		machines, estimate := "", ""
		if step.Machines != nil {
			machines = fmt.Sprint(ptr.Deref(step.Machines.Count, 0))
		}
		if step.EstimatedSeconds != nil {
			estimate = (time.Duration(*step.EstimatedSeconds) * time.Second).String()
		}
		rows = append(rows, []string{fmt.Sprintf("%d %s", i+1, step.Type), step.Object, strings.Join(step.From, ","),
			step.To, string(step.Change), machines, estimate, string(step.State)})
		where := fmt.Sprintf("step %d", i+1)
		if step.State != quoinv1.UpgradeStepDone {
			hold(where, step.Holds)
		}
		if step.Message != "" && step.State != quoinv1.UpgradeStepDone {
			holds = append(holds, []string{where, step.Message})
		}
	}
	if len(u.Status.Steps) == 0 {
		rows = nil
	} else {
		rows = append(rows, nil)
	}
	rows = append(rows, []string{"UPGRADE", u.Name + " to " + u.Spec.Version})
	if u.Status.Plan != nil {
		rows = append(rows, []string{"PLAN", u.Status.Plan.ID})
	}
	for _, kind := range []string{quoinv1.ClusterUpgradePlannedCondition, quoinv1.ClusterUpgradeApprovedCondition,
		quoinv1.ClusterUpgradeProgressingCondition, quoinv1.ClusterUpgradeCompletedCondition} {
		if c := meta.FindStatusCondition(u.Status.Conditions, kind); c != nil {
			line := string(c.Status) + " " + c.Reason
			if kind != quoinv1.ClusterUpgradePlannedCondition && c.Message != "" {
				line += ": " + strings.ReplaceAll(c.Message, "\n", "; ")
			}
			rows = append(rows, []string{strings.ToUpper(kind), line})
		}
	}
	if len(holds) > 0 {
		rows = append(rows, nil, []string{"HELD", "UNTIL"})
		rows = append(rows, holds...)
	}
	return rows
}
