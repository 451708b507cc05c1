// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
)

// options that all commands have.
type options struct {
	workspace  string
	kubeconfig cluster.Kubeconfig
	namespace  string
	out        io.Writer
}

func newRoot(out io.Writer) *cobra.Command {
	o := &options{out: out}
	root := &cobra.Command{
		Use:   "clusterctl-quoin", // as shells complete it
		Short: "Give bare metal clusters a management cluster, move them to another one, and upgrade them",
		Long: "Give bare metal clusters a management cluster, move them to another one, and upgrade them.\n\n" +
			"Exit codes: 0 done, 1 failed, 3 refused (nothing was done), 4 undone (what was begun was taken back).",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "clusterctl quoin"},
		Version:       version.Get().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	flags := root.PersistentFlags()
	flags.StringVar(&o.workspace, "workspace", "quoin-workspace",
		"folder of what is kept: <cluster>/bootstrap.kubeconfig, kubeconfig and pivot.json")
	root.AddCommand(newCreate(o), newBootstrap(o), newImages(o), newPivot(o), newPreflight(o), newStatus(o), newPlan(o),
		newUpgrade(o), newWhy(o))
	return root
}

// addReader adds the flags that name a management cluster which is read.
func (o *options) addReader(command *cobra.Command) {
	o.addSource(command)
	flags := command.Flags()
	flags.Lookup("namespace").Usage = "namespace of the objects; by default that of the context"
	flags.Lookup("kubeconfig").Usage = "management cluster that has the Clusters; by default the one that the last " +
		"pivot left in charge, then the workspace's bootstrap cluster, then the cluster itself, else $KUBECONFIG"
}

// addSource adds the flags that name the management cluster which has the Clusters now.
func (o *options) addSource(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig.Path, "kubeconfig", "",
		"management cluster that has the Clusters; by default the workspace's bootstrap cluster, else $KUBECONFIG")
	flags.StringVar(&o.kubeconfig.Context, "kubeconfig-context", "", "context in that kubeconfig")
	flags.StringVarP(&o.namespace, "namespace", "n", "",
		"namespace that moves, with all its Clusters; by default that of the context")
}
