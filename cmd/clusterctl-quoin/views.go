// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// newPreflight says whether a pivot may begin.
func newPreflight(o *options) *cobra.Command {
	p := &pivotOptions{options: o}
	var output string
	var fromTarget bool
	command := &cobra.Command{
		Use:   "preflight CLUSTER --to KUBECONFIG",
		Short: "Say whether a pivot may begin, and write nothing",
		Long: `Say whether a pivot may begin, and write nothing.

With --from-target one thing is written: a Pod beside the target's manager, which asks from there whether hosts, their
BMCs, bundle servers and object stores are reached, as a pivot does before it begins. It logs in nowhere, and is deleted.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			work, _, err := p.connect(c.Context(), args[0])
			if err != nil {
				return err
			}
			work.Report = func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
			checks, err := work.Preflight(c.Context(), fromTarget)
			if err != nil {
				return err
			}
			if err := show(o.out, output, checks, checkTable(checks)); err != nil {
				return err
			}
			if pivot.Blocks(checks) {
				return fmt.Errorf("%w: a check has failed", execute.ErrRefused)
			}
			return nil
		},
	}
	o.addSource(command)
	p.addTarget(command)
	addOutput(command, &output)
	command.Flags().BoolVar(&fromTarget, "from-target", false, "ask from the target what is reached there, by a Pod")
	_ = command.MarkFlagRequired("to")
	return command
}

func checkTable(checks []pivot.Check) [][]string {
	rows := [][]string{{"CHECK", "RESULT", "MESSAGE"}}
	for _, check := range checks {
		rows = append(rows, []string{check.Name, string(check.Result), check.Message})
	}
	return rows
}

// outlookTable is what a pivot would do, with its objects by namespace and kind; of hosts, each is named.
func outlookTable(p execute.Plan) [][]string {
	var rows [][]string
	if len(p.Checks) > 0 {
		rows = append(checkTable(p.Checks), nil)
	}
	names := map[[2]string][]string{}
	for _, o := range p.Objects {
		names[[2]string{o.Namespace, o.Kind}] = append(names[[2]string{o.Namespace, o.Kind}], o.Name)
	}
	if len(names) > 0 {
		rows = append(rows, []string{"NAMESPACE", "KIND", "OBJECTS", "NAMES"})
	}
	byText := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	for _, key := range slices.SortedFunc(maps.Keys(names), byText) {
		all := names[key]
		named := ""
		if key[1] == "Cluster" || key[1] == "QuoinHost" {
			named = strings.Join(slices.Sorted(slices.Values(all)), ", ")
		}
		rows = append(rows, []string{key[0], key[1], fmt.Sprint(len(all)), named})
	}
	if len(names) > 0 {
		rows = append(rows, nil)
	}
	for _, row := range [][]string{{"PHASE", string(p.Phase)}, {"NEXT", string(p.Next.Action) + ": " + p.Next.Message},
		{"POINT OF NO RETURN", p.PointOfNoReturn}, {"UNDO", p.Undo}} {
		if row[1] != "" {
			rows = append(rows, row)
		}
	}
	return rows
}

// newStatus says how far a pivot came.
func newStatus(o *options) *cobra.Command {
	p := &pivotOptions{options: o}
	var output string
	var watch bool
	command := &cobra.Command{
		Use:   "status CLUSTER",
		Short: "Say how far a pivot came, which side acts, and what the same command would do next",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			look := func(ctx context.Context) (execute.Status, [][]string, error) { return p.status(ctx, args[0]) }
			s, rows, err := look(c.Context())
			if err != nil {
				return err
			}
			if err := show(o.out, output, s, rows); err != nil || !watch {
				return err
			}
			return o.watch(c.Context(), lookEvery, look)
		},
	}
	o.addSource(command)
	p.addTarget(command)
	addOutput(command, &output)
	command.Flags().BoolVarP(&watch, "watch", "w", false, "say how far it is, whenever that changes, until no pivot is under way")
	command.MarkFlagsMutuallyExclusive("output", "watch")
	return command
}

// status is read anew, also from where the workspace says that the last pivot was.
func (p pivotOptions) status(ctx context.Context, name string) (s execute.Status, rows [][]string, err error) {
	o := *p.options
	p.options = &o
	w, err := o.workspaceOf(name)
	if err != nil {
		return s, nil, err
	}
	last, err := w.lastPivot()
	if err != nil {
		return s, nil, err
	}
	known := last != nil && last.Journal != nil && p.to.Path == "" && o.kubeconfig.Path == ""
	if last != nil && p.to.Path == "" {
		p.to, o.namespace = last.Target, cmp.Or(o.namespace, last.Namespace)
		switch {
		case o.kubeconfig.Path == "":
			o.kubeconfig = last.Source
		case samePath(o.kubeconfig.Path, p.to.Path):
			p.to = last.Source
		}
	}
	work, _, err := p.connect(ctx, name)
	if err == nil {
		s, err = work.Status(ctx)
	}
	if err != nil && known {
		if s, rows := o.alone(ctx, last, err); rows != nil {
			return s, rows, nil
		}
	}
	if known && s.Phase == "" && !last.Journal.Open() && o.namespace == last.Namespace {
		s.Phase = last.Journal.Phase
	}
	return s, statusTable(s), err
}

// watch a pivot until none is under way. A side that does not answer for a while is asked again.
func (o *options) watch(
	ctx context.Context, every time.Duration, look func(context.Context) (execute.Status, [][]string, error),
) error {
	said, heard := "", time.Now()
	for {
		s, rows, err := look(ctx)
		var line string
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("no longer watched; nothing of the pivot depends on that: %w", ctx.Err())
		case err != nil && time.Since(heard) > silentFor:
			return err
		case err != nil:
			line = "no answer: " + err.Error()
		default:
			heard = time.Now()
			if s.Phase == "" || s.Phase == pivot.Done || s.Phase == pivot.Undone {
				o.say("%s: %s", cmp.Or(string(s.Phase), "no pivot"), s.Next.Message)
				return nil
			}
			source, target := rows[1], rows[2]
			if len(source) == 2 {
				line = fmt.Sprintf("%s: %s", s.Phase, s.Next.Message)
				break
			}
			line = fmt.Sprintf("%s: source %s, %s objects; target %s, %s objects", s.Phase, source[1], source[2], target[1], target[2])
		}
		if line != said {
			said = line
			o.say("%s", line)
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// alone is the status of a pivot of which one side does not answer, as a bootstrap cluster that was deleted: what the
// workspace says, and what the other side has, whose objects nobody counted. It is nothing where both answer, and where
// none does.
func (o *options) alone(ctx context.Context, last *record, problem error) (s execute.Status, rows [][]string) {
	source, sourceErr := o.clusters(ctx, last.Source)
	target, targetErr := o.clusters(ctx, last.Target)
	if (sourceErr == nil) == (targetErr == nil) {
		return s, nil
	}
	s.Phase, s.World.Source.Clusters, s.World.Target.Clusters = last.Journal.Phase, source, target
	silent, row := last.Source, 1
	if targetErr != nil {
		silent, row = last.Target, 2
	}
	why := "does not answer: " + problem.Error()
	_, err := os.Stat(silent.Path)
	gone := errors.Is(err, fs.ErrNotExist)
	if gone {
		why = "is gone"
	}
	s.Next = pivot.Step{Action: pivot.Nothing,
		Message: fmt.Sprintf("the last pivot is %s, and the management cluster of %s %s", s.Phase, silent.Path, why)}
	if last.Journal.Open() {
		s.Next.Action = pivot.Refuse
		s.Next.Message += ". The same command goes on once it answers; where it never will, docs/pivot.md says what is left " +
			"under \"The pivot died\""
	}
	rows = statusTable(s)
	for i := range rows[:3] {
		rows[i] = rows[i][:2]
	}
	if !gone || last.Journal.Open() {
		rows[row][1] = "does not answer"
	}
	return s, rows
}

// clusters of a side, for a person who waits.
func (o *options) clusters(ctx context.Context, side cluster.Kubeconfig) (found []pivot.Cluster, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, namespace, err := o.readerOf(side)
	if err != nil {
		return nil, err
	}
	list := &clusterv1.ClusterList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the Clusters of %s: %w", side.Path, err)
	}
	for i := range list.Items {
		found = append(found, pivot.Cluster{Name: list.Items[i].Name, Paused: ptr.Deref(list.Items[i].Spec.Paused, false)})
	}
	return found, nil
}

func statusTable(s execute.Status) [][]string {
	side := func(name string, side pivot.Side) []string {
		state := "nothing"
		if len(side.Clusters) > 0 {
			var states []string
			for _, c := range side.Clusters {
				word := "acts on"
				if c.Paused {
					word = "has paused"
				}
				states = append(states, word+" "+c.Name)
			}
			state = strings.Join(states, ", ")
		}
		return []string{name, state, fmt.Sprint(len(side.Present)), fmt.Sprint(side.Marked)}
	}
	return [][]string{
		{"SIDE", "CLUSTERS", "OBJECTS", "MARKED"},
		side("source", s.World.Source), side("target", s.World.Target),
		nil,
		{"PHASE", string(s.Phase)},
		{"NEXT", string(s.Next.Action) + ": " + s.Next.Message},
	}
}

func addOutput(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "", "json or yaml instead of a table")
	command.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains([]string{"", "json", "yaml"}, *output) {
			return fmt.Errorf("there is no output %q: json, yaml, or none of them for a table", *output)
		}
		return nil
	}
}

// show a value as it was asked for; an object of an API as it is in a file.
func show(out io.Writer, format string, value any, rows [][]string) error {
	if o, is := value.(client.Object); is {
		if err := identify(o); err != nil {
			return err
		}
	}
	switch format {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		content, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
		_, err = out.Write(content)
		return err
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// identify gives an object its apiVersion and kind, which a typed client drops, and takes away who owns its fields.
func identify(o client.Object) error {
	scheme := runtime.NewScheme()
	if err := addSchemes(scheme); err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	o.SetManagedFields(nil)
	return nil
}
