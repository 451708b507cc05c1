// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kind "sigs.k8s.io/kind/pkg/cluster"
	kindcmd "sigs.k8s.io/kind/pkg/cmd"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// kindClusters is what is asked of kind.
type kindClusters interface {
	List() ([]string, error)
	Create(name string, options ...kind.CreateOption) error
	KubeConfig(name string, internal bool) (string, error)
	Delete(name, kubeconfig string) error
}

// bootstrap is the kind cluster that a cluster is born in.
type bootstrap struct {
	*options
	kind          kindClusters
	image, config string
	wait          time.Duration
	force         bool
}

func newBootstrap(o *options) *cobra.Command {
	b := &bootstrap{options: o}
	command := &cobra.Command{Use: "bootstrap",
		Short: "Make and delete the kind cluster that a cluster is born in, or pivots to"}
	sub := func(use, short string, run func(context.Context, workspace, string) error) *cobra.Command {
		c := &cobra.Command{Use: use + " CLUSTER", Short: short, Args: cobra.ExactArgs(1)}
		c.RunE = func(c *cobra.Command, args []string) error {
			w, err := o.workspaceOf(args[0])
			if err != nil {
				return err
			}
			b.kind = kind.NewProvider(kind.ProviderWithLogger(kindcmd.NewLogger()))
			return run(c.Context(), w, args[0])
		}
		command.AddCommand(c)
		return c
	}
	create := sub("create", "Make the bootstrap cluster, and write its kubeconfig to the workspace", b.create)
	b.addCreation(create)
	remove := sub("delete", "Delete the bootstrap cluster, when no Cluster and no host is left in it", b.remove)
	remove.Flags().BoolVar(&b.force, "force", false,
		"delete it with what it manages: its clusters stay as they are, and nobody resets their hosts")
	sub("kubeconfig", "Print the path of the bootstrap cluster's kubeconfig", b.kubeconfigPath)
	return command
}

// addCreation adds the flags that say what it is made of.
func (b *bootstrap) addCreation(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&b.image, "image", "", "image of the bootstrap cluster's node; by default the one of kind's release")
	flags.StringVar(&b.config, "config", "", "configuration of kind; by default one node, no registry")
	flags.DurationVar(&b.wait, "wait", 2*time.Minute, "how long to wait until that node is ready")
}

// scratchPrefix is how folders of the workspace begin that are there while kind makes a cluster.
const scratchPrefix = ".kind-"

// kindName is what kind calls it.
func kindName(cluster string) string { return "quoin-" + cluster }

// runs reports whether kind has it.
func (b *bootstrap) runs(name string) (bool, error) {
	existing, err := b.kind.List()
	if err != nil {
		return false, fmt.Errorf("listing kind clusters: %w", err)
	}
	return slices.Contains(existing, kindName(name)), nil
}

func (b *bootstrap) create(_ context.Context, w workspace, name string) error {
	runs, err := b.runs(name)
	if err != nil {
		return err
	}
	interrupted, err := filepath.Glob(filepath.Join(w.dir, scratchPrefix+"*"))
	if err != nil {
		return fmt.Errorf("reading the workspace: %w", err)
	}
	for _, scratch := range interrupted {
		if runs && !w.hasBootstrap() {
			// kind lists it before it is whole, and nobody was handed its kubeconfig.
			fmt.Fprintf(b.out, "bootstrap cluster %s was interrupted while it was made, and is made again\n", kindName(name))
			if err := b.kind.Delete(kindName(name), filepath.Join(scratch, "kubeconfig")); err != nil {
				return fmt.Errorf("deleting what was begun of the bootstrap cluster: %w", err)
			}
			runs = false
		}
		if err := os.RemoveAll(scratch); err != nil {
			return fmt.Errorf("removing what was left of kind: %w", err)
		}
	}
	if !runs {
		if err := os.MkdirAll(w.dir, 0o700); err != nil {
			return fmt.Errorf("making the workspace: %w", err)
		}
		// kind writes a kubeconfig to the path that it is given, and in the user's own file otherwise.
		scratch, err := os.MkdirTemp(w.dir, scratchPrefix)
		if err != nil {
			return fmt.Errorf("making the workspace: %w", err)
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		options := []kind.CreateOption{kind.CreateWithKubeconfigPath(filepath.Join(scratch, "kubeconfig")),
			kind.CreateWithWaitForReady(b.wait), kind.CreateWithDisplayUsage(false), kind.CreateWithDisplaySalutation(false)}
		if b.image != "" {
			options = append(options, kind.CreateWithNodeImage(b.image))
		}
		if b.config != "" {
			options = append(options, kind.CreateWithConfigFile(b.config))
		}
		if err := b.kind.Create(kindName(name), options...); err != nil {
			return fmt.Errorf("making the bootstrap cluster: %w", err)
		}
		if err := os.RemoveAll(scratch); err != nil { // it is whole, before anybody can use it
			return fmt.Errorf("removing what was left of kind: %w", err)
		}
	}
	kubeconfig, err := b.kind.KubeConfig(kindName(name), false)
	if err != nil {
		return fmt.Errorf("kind cluster %s is there, and does not say how it is reached (%w): delete it with "+
			"`clusterctl quoin bootstrap delete %s --force`, and make it again", kindName(name), err, name)
	}
	if err := w.write(w.bootstrapKubeconfig(), []byte(kubeconfig)); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "bootstrap cluster %s: %s\n", kindName(name), w.bootstrapKubeconfig())
	return nil
}

func (b *bootstrap) remove(ctx context.Context, w workspace, name string) error {
	runs, err := b.runs(name)
	if err != nil {
		return err
	}
	if runs && !b.force {
		// The workspace's file may be about another cluster.
		kubeconfig, err := b.kind.KubeConfig(kindName(name), false)
		managed := ""
		if err == nil {
			managed, err = managedBy(ctx, []byte(kubeconfig))
		}
		if err != nil {
			return fmt.Errorf("%w: the bootstrap cluster does not say what it manages: %w; --force deletes it regardless",
				execute.ErrRefused, err)
		}
		if managed != "" {
			return fmt.Errorf("%w: the bootstrap cluster %s first, or use --force", execute.ErrRefused, managed)
		}
		charge, _, err := w.inCharge()
		if err == nil && charge.Bootstrap && !charge.Open {
			err = w.forget() // nothing is left of what the last pivot brought there
		}
		if err != nil {
			return err
		}
	}
	if err := b.kind.Delete(kindName(name), w.bootstrapKubeconfig()); err != nil {
		return fmt.Errorf("deleting the bootstrap cluster: %w", err)
	}
	if err := os.Remove(w.bootstrapKubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing its kubeconfig: %w", err)
	}
	fmt.Fprintf(b.out, "bootstrap cluster %s is deleted\n", kindName(name))
	return nil
}

func (b *bootstrap) kubeconfigPath(_ context.Context, w workspace, name string) error {
	if !w.hasBootstrap() {
		return fmt.Errorf("there is no %s: `clusterctl quoin bootstrap create %s` makes the cluster",
			w.bootstrapKubeconfig(), name)
	}
	fmt.Fprintln(b.out, w.bootstrapKubeconfig())
	return nil
}

// managedBy says what keeps a management cluster from being deleted: the first Cluster or host that it has, or a pivot
// that is not finished. It is empty when there is none.
func managedBy(ctx context.Context, kubeconfig []byte) (string, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return "", errors.New("its kubeconfig cannot be read")
	}
	config.Timeout = 20 * time.Second
	scheme := runtime.NewScheme()
	err = errors.Join(corev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme), infrav1.AddToScheme(scheme))
	if err != nil {
		return "", err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return "", err
	}
	for kind, list := range map[string]client.ObjectList{
		"Cluster": &clusterv1.ClusterList{}, "QuoinHost": &infrav1.QuoinHostList{},
	} {
		if err := c.List(ctx, list, client.Limit(1)); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return "", fmt.Errorf("listing: %w", err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return "", err
		}
		if len(items) > 0 {
			return fmt.Sprintf("manages %s %s: pivot them away or delete them", kind,
				client.ObjectKeyFromObject(items[0].(client.Object))), nil
		}
	}
	journals := &corev1.ConfigMapList{}
	err = c.List(ctx, journals, client.MatchingFields{"metadata.name": execute.JournalName})
	if err != nil && !meta.IsNoMatchError(err) {
		return "", fmt.Errorf("listing journals: %w", err)
	}
	for i := range journals.Items {
		namespace := journals.Items[i].Namespace
		if j, err := execute.Journal(ctx, c, namespace); err != nil {
			return "", err
		} else if j.Open() {
			return fmt.Sprintf("is a side of the pivot of namespace %s, which is %s: finish that or undo it with --abort",
				namespace, j.Phase), nil
		}
	}
	return "", nil
}
