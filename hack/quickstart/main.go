// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command quickstart shows Quoin's main job on one machine: five hosts become a Kubernetes cluster, and an edit of its
// version replaces the nodes. Where SELF_MANAGED is 1, it then manages itself.
//
//	go run ./hack/quickstart          make it
//	go run ./hack/quickstart clean    remove all of it
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nquickstart: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	l, err := lab.New(lab.Options{Root: ".", Out: os.Stdout})
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "clean":
		return l.Remove(ctx, true)
	case len(args) > 0:
		return fmt.Errorf("unknown argument %q; there is only `clean`", args[0])
	}
	if err := show(ctx, l); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped; `make quickstart` begins anew, `make quickstart-clean` removes what is there (%w)", err)
		}
		l.Diagnose(context.WithoutCancel(ctx), "quickstart")
		return fmt.Errorf("%w\n`make quickstart` begins anew, `make quickstart-clean` removes what is there", err)
	}
	return nil
}

// show is what a user would do, step by step.
func show(ctx context.Context, l *lab.Lab) error {
	if err := l.Up(ctx); err != nil {
		return err
	}
	cluster, err := l.Create(ctx, lab.Demo())
	if err != nil {
		return err
	}
	if err := cluster.AwaitAPI(ctx); err != nil {
		return err
	}
	if err := cluster.ApplyNetwork(ctx); err != nil {
		return err
	}
	if err := cluster.AwaitReady(ctx, 10*time.Minute, lab.OldVersion, lab.OldVersion); err != nil {
		return err
	}
	before, err := cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	printNodes("before the upgrade", before)

	l.Printf(" • Editing the control plane's version: %s -> %s", lab.OldVersion, lab.NewVersion)
	if err := cluster.EditControlPlaneVersion(ctx, lab.NewVersion); err != nil {
		return err
	}
	if err := cluster.AwaitReady(ctx, 10*time.Minute, lab.NewVersion, lab.OldVersion); err != nil {
		return err
	}
	l.Printf(" • Editing the MachineDeployment's version: %s -> %s", lab.OldVersion, lab.NewVersion)
	if err := cluster.EditWorkerVersion(ctx, lab.NewVersion); err != nil {
		return err
	}
	if err := cluster.AwaitReady(ctx, 15*time.Minute, lab.NewVersion, lab.NewVersion); err != nil {
		return err
	}
	after, err := cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("SELF_MANAGED") == "1" {
		if err := makeSelfManaged(ctx, l, cluster); err != nil {
			return err
		}
	}
	hosts, err := l.Describe(ctx, "quoinhosts")
	if err != nil {
		return err
	}
	printNodes("before the upgrade", before)
	printNodes("after the upgrade", after)
	fmt.Printf("\nHosts:\n%s", hosts)
	printCommands(l, cluster)
	return nil
}

// makeSelfManaged moves what manages the cluster into it, and removes the kind cluster.
func makeSelfManaged(ctx context.Context, l *lab.Lab, cluster *lab.Cluster) error {
	for _, step := range []func(context.Context) error{
		l.LoadManagersOnHosts,
		func(ctx context.Context) error { return l.Init(ctx, cluster) },
		func(ctx context.Context) error { return l.Pivot(ctx, cluster) },
		l.RemoveKind,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return cluster.AwaitReady(ctx, 5*time.Minute, lab.NewVersion, lab.NewVersion)
}

func printNodes(title string, nodes []lab.Node) {
	fmt.Printf("\nNodes %s:\n", title)
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tROLE\tREADY\tKUBELET\tPROVIDER ID")
	for _, node := range nodes {
		role := "worker"
		if node.ControlPlane {
			role = "control-plane"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%t\t%s\t%s\n", node.Name, role, node.Ready, node.Kubelet, node.ProviderID)
	}
	_ = table.Flush()
}

func printCommands(l *lab.Lab, cluster *lab.Cluster) {
	kubectl, clusterctl := l.Commands()
	fmt.Printf(`
Done in %[1]s. Look around:

  # what manages it: hosts, machines, control plane
  %[2]s get quoinhosts,machines,quoincontrolplanes
  %[3]s describe cluster %[4]s

  # the cluster itself
  %[5]s get nodes -o wide

  # a host, over SSH
  ssh -i %[6]s -o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no quoin@%[7]s

  # remove all of it
  make quickstart-clean
`, l.Elapsed().Round(time.Second), kubectl, clusterctl, cluster.Name, l.KubectlFor(cluster), l.Path("id_ed25519"), l.Hosts[0].Address)
}
