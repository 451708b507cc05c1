// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// pivotOptions say where a pivot goes.
type pivotOptions struct {
	*options
	to      cluster.Kubeconfig
	back    bool
	wish    pivot.Wish
	verbose bool
	dryRun  bool
	output  string
}

func newPivot(o *options) *cobra.Command {
	p := &pivotOptions{options: o}
	command := &cobra.Command{
		Use:   "pivot CLUSTER",
		Short: "Move a namespace with its Clusters to another management cluster, or go on with that",
		Long: `Move a namespace with its Clusters to another management cluster, or go on with that.

Everything is copied to the target by clusterctl's own mover, compared there, and only then deleted on the source. A
journal says how far it came: the same command, run again after it was killed at any point, finishes. Until all objects
are on the target, --abort gives everything back to the source; a failure before that point does so by itself.

With --dry-run it makes the preflight and says what would move, when nothing undoes it any more, and what an undoing
would do, and ends with 3 where it would be refused. It writes nothing on either side.`,
		Example: `  clusterctl quoin pivot prod --to prod.kubeconfig -n prod --dry-run
  clusterctl quoin pivot prod --to prod.kubeconfig -n prod
  clusterctl quoin pivot prod --back`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case p.dryRun:
				return p.rehearse(c.Context(), args[0], c.ErrOrStderr())
			case p.output != "":
				return errors.New("--output is what --dry-run prints")
			}
			return p.run(c.Context(), args[0])
		},
	}
	p.addSource(command)
	p.addTarget(command)
	flags := command.Flags()
	flags.BoolVar(&p.back, "back", false, "move back to where the last pivot came from")
	flags.BoolVar(&p.wish.Abort, "abort", false, "undo a pivot that is under way")
	flags.BoolVar(&p.wish.TakeOver, "take-over", false,
		"what is paused was left so by a clusterctl move that died: go on with that")
	addSkip(flags, &p.wish)
	flags.BoolVarP(&p.verbose, "verbose", "v", false, "print each write before it is made")
	flags.BoolVar(&p.dryRun, "dry-run", false, "say what the command would do, and write nothing")
	addOutput(command, &p.output)
	command.MarkFlagsMutuallyExclusive("dry-run", "verbose")
	command.MarkFlagsMutuallyExclusive("to", "back")
	command.MarkFlagsMutuallyExclusive("abort", "take-over")
	command.MarkFlagsOneRequired("to", "back", "abort")
	return command
}

func addSkip(flags *pflag.FlagSet, wish *pivot.Wish) {
	flags.StringToStringVar(&wish.Skip, "skip", nil,
		"check of the pivot that is not made, with why that is right: name=reason. "+pivot.SkipHosts+
			" is whether the target reaches hosts and what else managers connect to")
}

func (p *pivotOptions) addTarget(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&p.to.Path, "to", "", "kubeconfig of the management cluster to move to")
	flags.StringVar(&p.to.Context, "to-context", "", "context in that kubeconfig")
}

// between completes what the flags say by what the workspace remembers.
func (p *pivotOptions) between(w workspace) (record, error) {
	last, err := w.lastPivot()
	if err != nil {
		return record{}, err
	}
	r := record{Source: p.kubeconfig, Target: p.to, Namespace: p.namespace, Back: p.back, named: p.to.Path != ""}
	if r.Target.Path == "" { // --back, or --abort alone
		switch {
		case last == nil:
			return record{}, fmt.Errorf("%w: %s knows of no pivot: name the target with --to", execute.ErrRefused,
				w.recordPath())
		case last.Journal.Open() || p.wish.Abort:
			if last.Back != p.back && !p.wish.Abort {
				return record{}, fmt.Errorf("%w: the pivot of namespace %s to %s is %s: finish that first", execute.ErrRefused,
					last.Namespace, last.Target.Path, last.Journal.Phase)
			}
			r.Source, r.Target, r.Back = last.Source, last.Target, last.Back
		case last.Back:
			// It is back already: the same command says so.
			r.Source, r.Target = last.Source, last.Target
		default:
			r.Source, r.Target = last.Target, last.Source
		}
		if r.Namespace == "" {
			r.Namespace = last.Namespace
		}
	}
	if r.Source.Path == "" && w.hasBootstrap() {
		r.Source.Path = w.bootstrapKubeconfig()
	}
	if r.Namespace == "" {
		if r.Namespace, err = cluster.NewProxy(r.Source).CurrentNamespace(); err != nil {
			return record{}, err
		}
	}
	if r.Source.Path == "" {
		// The file of the environment, so that --back finds it from anywhere.
		r.Source.Path = clientcmd.NewDefaultClientConfigLoadingRules().GetDefaultFilename()
	}
	return r, nil
}

// resolved is a kubeconfig as it is found from anywhere, and when its current context is another one.
func resolved(k cluster.Kubeconfig) (cluster.Kubeconfig, error) {
	path, err := filepath.Abs(k.Path)
	if err != nil {
		return k, fmt.Errorf("resolving %s: %w", k.Path, err)
	}
	k.Path = path
	if k.Context == "" {
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			return k, fmt.Errorf("reading %s: %w", path, err)
		}
		k.Context = config.CurrentContext
	}
	return k, nil
}

// sameWay refuses the way of the last pivot, or its way back, where a kubeconfig reaches another management cluster
// than it did then. Source and target are the UIDs of those that were reached.
func sameWay(last *record, r record, source, target string) error {
	if last == nil || last.Journal == nil || r.named {
		return nil
	}
	was := [2]string{last.Journal.Source, last.Journal.Target}
	if r.Back != last.Back {
		was[0], was[1] = was[1], was[0]
	}
	for i, reached := range []struct{ name, uid, path string }{
		{"source", source, r.Source.Path}, {"target", target, r.Target.Path},
	} {
		if reached.uid != was[i] {
			return fmt.Errorf("%w: %s reaches another management cluster than the %s of the last pivot implies: name both "+
				"with --kubeconfig and --to", execute.ErrRefused, reached.path, reached.name)
		}
	}
	return nil
}

// connect reaches both sides.
func (p *pivotOptions) connect(ctx context.Context, name string) (*execute.Pivot, *local, error) {
	w, err := p.workspaceOf(name)
	if err != nil {
		return nil, nil, err
	}
	r, err := p.between(w)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range []*cluster.Kubeconfig{&r.Source, &r.Target} {
		if *k, err = resolved(*k); err != nil {
			return nil, nil, err
		}
	}
	observe := func(write execute.Write) error {
		if p.verbose {
			fmt.Fprintln(p.out, "  ", write)
		}
		return nil
	}
	source, err := execute.Connect(ctx, "source", r.Source, observe)
	if err != nil {
		return nil, nil, err
	}
	target, err := execute.Connect(ctx, "target", r.Target, observe)
	if err != nil {
		return nil, nil, err
	}
	last, err := w.lastPivot()
	if err != nil {
		return nil, nil, err
	}
	if err := sameWay(last, r, source.UID, target.UID); err != nil {
		return nil, nil, err
	}
	kept := &local{w, r}
	report := func(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }
	return &execute.Pivot{Source: source, Target: target, Namespace: r.Namespace, Local: kept, Report: report}, kept, nil
}

// rehearse says what the command would do. Progress goes elsewhere, so that scripts read the rest.
func (p *pivotOptions) rehearse(ctx context.Context, name string, progress io.Writer) error {
	work, kept, err := p.connect(ctx, name)
	var plan execute.Plan
	if err == nil {
		work.Report = func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
		plan, err = work.Plan(ctx, p.wish)
	}
	switch {
	case errors.Is(err, execute.ErrRefused) && p.output != "":
		refused := execute.Plan{Namespace: p.namespace, Next: pivot.Step{Action: pivot.Refuse, Message: err.Error()}}
		return errors.Join(show(p.out, p.output, refused, nil), err)
	case err != nil:
		return err
	case p.output == "":
		p.heading(work, kept)
	}
	if err := show(p.out, p.output, plan, outlookTable(plan)); err != nil {
		return err
	}
	if plan.Refused() {
		return fmt.Errorf("%w: the pivot would do nothing", execute.ErrRefused)
	}
	return nil
}

func (p *pivotOptions) heading(work *execute.Pivot, kept *local) {
	fmt.Fprintf(p.out, "namespace %s: %s -> %s\n", work.Namespace, kept.record.Source.Path, kept.record.Target.Path)
}

func (p *pivotOptions) run(ctx context.Context, name string) error {
	work, kept, err := p.connect(ctx, name)
	if err != nil {
		return err
	}
	p.heading(work, kept)
	return work.Run(ctx, p.wish)
}
