// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	kind "sigs.k8s.io/kind/pkg/cluster"
	kindcmd "sigs.k8s.io/kind/pkg/cmd"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// stage of a cluster that is created. Each is found in what exists, so that the same command goes on from anywhere.
type stage string

// Stages in their order.
const (
	makeBootstrap    stage = "make the bootstrap cluster"
	installThere     stage = "install the providers on the bootstrap cluster"
	applyObjects     stage = "apply the objects"
	awaitInitialized stage = "wait for the first control-plane machine"
	applyNetwork     stage = "apply the network plugin"
	awaitSettled     stage = "wait until the cluster has all its machines"
	installHere      stage = "install the providers on the cluster itself"
	pivotHere        stage = "pivot to the cluster itself"
	removeBootstrap  stage = "delete the bootstrap cluster"
	created          stage = "done"
)

// creationFound is how far the creation of a cluster is, as it is found.
type creationFound struct {
	// Bootstrap says that kind has the bootstrap cluster and the workspace its kubeconfig, Left that one of them does.
	Bootstrap, Left bool
	// Lacks are the providers that the bootstrap cluster does not have, and LacksHere those of the cluster itself.
	Lacks, LacksHere []string
	// Applied says that this run has applied the files: a file that was edited since the last run counts.
	Applied bool
	// Initialized says that the first control-plane Machine is there, Settled that all Machines are.
	Initialized, Settled bool
	// Network says that the network plugin's file is applied, or that there is none.
	Network bool
	// Open says that a pivot is not finished, Moved that the bootstrap cluster is not in charge any more.
	Open, Moved bool
}

// next is what comes next. After the pivot has begun nothing is applied to the bootstrap cluster any more, and only one
// that is done leads to its deletion (S0-69).
func (p creationFound) next() stage {
	switch {
	case p.Open:
		return pivotHere
	case p.Moved && p.Left:
		return removeBootstrap
	case p.Moved:
		return created
	case !p.Bootstrap:
		return makeBootstrap
	case len(p.Lacks) > 0:
		return installThere
	case !p.Applied:
		return applyObjects
	case !p.Initialized:
		return awaitInitialized
	case !p.Network:
		return applyNetwork
	case !p.Settled:
		return awaitSettled
	case len(p.LacksHere) > 0:
		return installHere
	}
	return pivotHere
}

// creation creates a cluster that manages itself.
type creation struct {
	*options
	bootstrap bootstrap
	// Files have the Cluster and all that it needs, hosts and their Secrets too.
	files []string
	// Network is the file of the network plugin.
	network   string
	providers providers
	timeout   time.Duration
	dryRun    bool
	// wish of the pivot.
	wish pivot.Wish
}

// site is where a cluster is created, or upgraded through a bootstrap cluster.
type site interface {
	// next is the stage that comes next by what is found.
	next(context.Context) (stage, error)
	// reach a stage, or fail.
	reach(context.Context, stage) error
}

func newCreate(o *options) *cobra.Command {
	c := &creation{options: o, bootstrap: bootstrap{options: o}}
	create := &cobra.Command{Use: "create", Short: "Create a cluster that manages itself"}
	command := &cobra.Command{
		Use:   "cluster CLUSTER -f FILE",
		Short: "Create a cluster on bare hosts, and have it manage itself",
		Long: `Create a cluster on bare hosts, and have it manage itself.

A bootstrap cluster is made with kind and gets the providers and the objects of the files: the Cluster, its templates,
the hosts and their Secrets, all of one namespace. When the cluster is available it gets the providers too, everything
pivots to it, and the bootstrap cluster is deleted. It is kept when something fails. The same command, run again after
it failed or was killed at any point, goes on.`,
		Example: `  clusterctl quoin create cluster prod -f hosts.yaml -f prod.yaml --network cni.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			c.bootstrap.kind = kind.NewProvider(kind.ProviderWithLogger(kindcmd.NewLogger()))
			return c.run(command.Context(), args[0])
		},
	}
	flags := command.Flags()
	flags.StringArrayVarP(&c.files, "filename", "f", nil, "file with objects; may be given several times")
	flags.StringVar(&c.network, "network", "",
		"file of the network plugin, which is applied to the cluster; none where its Machines bring one")
	c.bootstrap.addCreation(command)
	c.providers.add(command)
	addSkip(flags, &c.wish)
	flags.DurationVar(&c.timeout, "timeout", time.Hour, "how long each wait for the cluster may take")
	flags.BoolVar(&c.dryRun, "dry-run", false, "say what comes next, and write nothing")
	_ = command.MarkFlagRequired("filename")
	create.AddCommand(command)
	return create
}

func (c *creation) run(ctx context.Context, name string) error {
	if why := c.wish.Unskippable(); why != "" {
		return fmt.Errorf("%w: %s", execute.ErrRefused, why)
	}
	w, err := c.workspaceOf(name)
	if err != nil {
		return err
	}
	objects, err := readObjects(c.files)
	if err != nil {
		return err
	}
	namespace, err := oneNamespace(objects, name)
	if err != nil {
		return fmt.Errorf("%w: %w", execute.ErrRefused, err)
	}
	if c.network != "" {
		if _, err := os.Stat(c.network); err != nil {
			return fmt.Errorf("%w: the network plugin: %w", execute.ErrRefused, err)
		}
	}
	s := &realSite{creation: c, workspace: w, name: name, namespace: namespace, objects: objects}
	if c.dryRun {
		next, err := s.next(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "next: %s\n", next)
		return nil
	}
	if err := goThrough(ctx, s, c.say, s.directions); err != nil {
		return err
	}
	if !samePath(s.by, w.kubeconfig()) {
		fmt.Fprintf(c.out, "cluster %s is there, and %s reaches what manages it\n", name, s.by)
		return nil
	}
	fmt.Fprintf(c.out, "cluster %s manages itself: %s\n", name, w.kubeconfig())
	return nil
}

// directions says where the bootstrap cluster is that a creation which ended early leaves, and what to do. A refusal of
// one of several stages is none of the command: its exit code would say that nothing was done.
func (s *realSite) directions(err error) error {
	if !s.workspace.hasBootstrap() {
		return err
	}
	return fmt.Errorf("%s\nThe bootstrap cluster is kept. Look into it:\n"+
		"  kubectl --kubeconfig %s -n %s get clusters,machines,quoinhosts\n"+
		"The same command goes on. To give up, delete Cluster %s there, which resets the hosts, and then:\n"+
		"  clusterctl quoin bootstrap delete %[4]s", err.Error(), s.workspace.bootstrapKubeconfig(), s.namespace, s.name)
}

// say prints a line with the time, and shows on a terminal for how long that has been so.
func (o *options) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(o.out, time.Now().Format(time.TimeOnly)+" "+text)
	o.show(text)
}

// show what is under way, on a terminal; nothing when it is empty.
func (o *options) show(title string) {
	if printer, ok := o.out.(*progress.Printer); ok {
		printer.Show(title)
	}
}

// goThrough reaches all stages, or ends with directions. What the first look refuses is refused as a whole: nothing was
// done before.
func goThrough(ctx context.Context, s site, say func(string, ...any), directions func(error) error) error {
	_, err := retryNext(ctx, s, say)
	if errors.Is(err, execute.ErrRefused) {
		return err
	}
	if err == nil {
		err = reachAll(ctx, s, say)
	}
	if err != nil {
		return directions(err)
	}
	return nil
}

// reachAll reaches one stage after the other. A stage that was reached and is still the next one ends it: nothing
// would. But a Machine that was ready may not be for a while.
func reachAll(ctx context.Context, s site, say func(string, ...any)) error {
	var reached []stage
	for {
		next, err := retryNext(ctx, s, say)
		if err != nil {
			return err
		}
		if next == created {
			return nil
		}
		if slices.Contains(reached, next) && next != awaitSettled {
			return fmt.Errorf("%q is done, and does not show: look at what undoes it", next)
		}
		say("%s", next)
		if err := s.reach(ctx, next); err != nil {
			return fmt.Errorf("cannot %s: %w", next, err)
		}
		reached = append(reached, next)
	}
}

// retryNext asks for the next stage until the API servers answer that it is read from. That of a cluster which was
// changed just now may break connections off once more.
func retryNext(ctx context.Context, s site, say func(string, ...any)) (stage, error) {
	var said string
	for began := time.Now(); ; {
		next, err := s.next(ctx)
		if !execute.Unanswered(err) || ctx.Err() != nil || time.Since(began) > nextTimeout {
			return next, err
		}
		if err.Error() != said {
			said = err.Error()
			say("no answer, and asked again for %s: %s", nextTimeout, said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(nextTimeout / 20):
		}
	}
}

// nextTimeout is how long API servers may not answer who asks for the next stage.
const nextTimeout = time.Minute
