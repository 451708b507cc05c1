// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kind "sigs.k8s.io/kind/pkg/cluster"
	kindcmd "sigs.k8s.io/kind/pkg/cmd"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

const (
	// lookEvery is how often an upgrade is looked at.
	lookEvery = 2 * time.Second
	// silentFor is how long a management cluster may not answer. One that upgrades itself does not for some seconds.
	silentFor = 10 * time.Minute
	// settledAfter bounds the wait for the status of an upgrade that is marked as completed.
	settledAfter = time.Minute
)

// raise raises a Cluster to a version, by a ClusterUpgrade.
type raise struct {
	*options
	wish     quoinv1.ClusterUpgradeSpec
	skip     map[string]string
	deadline time.Duration
	yes      bool
	dryRun   bool
	// in is where a person answers; nil where nobody is asked.
	in io.Reader
	// every is how often is looked.
	every time.Duration
}

func newUpgrade(o *options) *cobra.Command {
	r := &raise{options: o, every: lookEvery}
	d := &detour{raise: r, bootstrap: bootstrap{options: o}}
	var workers string
	var through, renews bool
	command := &cobra.Command{
		Use:   "upgrade CLUSTER --version VERSION",
		Short: "Upgrade a Cluster, or follow the upgrade that is under way",
		Long: `Upgrade a Cluster, or follow the upgrade that is under way.

A ClusterUpgrade is made, whose controller plans it and makes the preflight. The plan is shown, and nothing of the
Cluster is touched before it is confirmed. The controller carries it out, also without this command, and also where the
Cluster is the one that it runs in: the same command, run again, follows it.

With --use-bootstrap a bootstrap cluster is made with kind and gets the providers, the namespace pivots there, the
Cluster is upgraded from there as any other, the namespace pivots back, and the bootstrap cluster is deleted. The same
command, run again after it failed or was killed at any point, goes on.`,
		Example: `  clusterctl quoin upgrade prod --version v1.36.3
  clusterctl quoin upgrade prod --version v1.36.3 --via v1.35.4 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if reason, ok := r.skip[pivot.SkipHosts]; ok && through {
				d.pivots.Skip = map[string]string{pivot.SkipHosts: reason}
				delete(r.skip, pivot.SkipHosts)
			}
			if why := d.pivots.Unskippable(); why != "" {
				return fmt.Errorf("%w: %s", execute.ErrRefused, why)
			}
			r.in, r.wish.Workers = c.InOrStdin(), quoinv1.UpgradeWorkers(workers)
			r.complete(args[0])
			manages, w, err := o.managing(args[0], through)
			if err != nil {
				return err
			}
			if through && manages.Path == "" {
				return errors.New("nothing says which management cluster has the Cluster: name its kubeconfig with --kubeconfig")
			}
			if renews {
				if err := d.providers.renewInstalled(c.Context(), manages, r.dryRun, o.say); err != nil {
					return err
				}
			}
			if through {
				d.workspace, d.home = w, manages
				if o.namespace, err = o.namespaceOf(w, manages); err != nil {
					return err
				}
				d.bootstrap.kind = kind.NewProvider(kind.ProviderWithLogger(kindcmd.NewLogger()))
				return d.take(c.Context())
			}
			reader, namespace, err := o.readerOf(manages)
			if err != nil {
				return err
			}
			return r.run(c.Context(), reader, namespace)
		},
	}
	o.addReader(command)
	flags := command.Flags()
	flags.StringVar(&r.wish.Version, "version", "", "version of Kubernetes, with a leading v")
	flags.StringSliceVar(&r.wish.Via, "via", nil, "a version of each minor that lies between")
	flags.StringVar(&workers, "workers", string(quoinv1.UpgradeWorkersAll),
		"All MachineDeployments get the version, or AsNeeded only those whose kubelets would become too old")
	flags.StringToStringVar(&r.skip, "skip", nil, "check that is not made, with why that is right: name=reason. "+
		"With --use-bootstrap "+pivot.SkipHosts+" is that of its pivots")
	flags.DurationVar(&r.deadline, "deadline", 24*time.Hour, "how long it may take to begin, and from then to end")
	flags.BoolVarP(&r.yes, "yes", "y", false, "confirm every plan beforehand")
	flags.BoolVar(&r.dryRun, "dry-run", false, "ask whether the upgrade would be taken, and write nothing")
	flags.BoolVar(&renews, "upgrade-providers", false,
		"bring the providers of the management cluster to their newest versions first, as clusterctl upgrade apply does")
	flags.BoolVar(&through, "use-bootstrap", false, "upgrade it from a bootstrap cluster, which is made and deleted again")
	d.bootstrap.addCreation(command)
	d.providers.add(command)
	_ = command.MarkFlagRequired("version")
	return command
}

// complete makes of the flags what is wanted of a Cluster.
func (r *raise) complete(name string) {
	r.wish.ClusterName, r.wish.Approve = name, quoinv1.UpgradeApprovalManual
	r.wish.DeadlineSeconds = ptr.To(int32(r.deadline / time.Second))
	for _, check := range slices.Sorted(maps.Keys(r.skip)) {
		r.wish.Skip = append(r.wish.Skip, quoinv1.SkippedCheck{Name: check, Reason: r.skip[check]})
	}
}

// run finds the upgrade or makes it, and follows it to its end.
func (r *raise) run(ctx context.Context, c client.Client, namespace string) error {
	u, made, err := r.request(ctx, c, namespace, r.dryRun)
	if err != nil {
		return err
	}
	if r.dryRun {
		word := "would be made"
		if !made {
			word = "is there, and would be followed"
		}
		fmt.Fprintf(r.out, "ClusterUpgrade %s/%s to %s %s\n", namespace, cmp.Or(u.Name, u.GenerateName), u.Spec.Version, word)
		return nil
	}
	fmt.Fprintf(r.out, "ClusterUpgrade %s/%s\n", namespace, u.Name)
	err = r.follow(ctx, c, u)
	if made && errors.Is(err, execute.ErrRefused) && !upgrade.Begun(u) {
		// What nobody wants is not left in the way of another one.
		gone := c.Delete(ctx, u, client.Preconditions{UID: &u.UID, ResourceVersion: &u.ResourceVersion})
		if gone != nil && !apierrors.IsNotFound(gone) {
			return fmt.Errorf("%w; ClusterUpgrade %s stays and touches nothing: %w", err, u.Name, gone)
		}
	}
	return err
}

// request finds the upgrade or makes it; dry, it asks whether it would be taken.
func (r *raise) request(
	ctx context.Context, c client.Client, namespace string, dry bool,
) (_ *quoinv1.ClusterUpgrade, made bool, err error) {
	if u, err := r.find(ctx, c, namespace); err != nil || u != nil {
		return u, false, err
	}
	u := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		GenerateName: r.wish.ClusterName + "-"}, Spec: r.wish}
	var with []client.CreateOption
	if dry {
		with = append(with, client.DryRunAll)
	}
	if err := c.Create(ctx, u, with...); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			err = fmt.Errorf("%w: %w", execute.ErrRefused, err)
		}
		return nil, false, fmt.Errorf("making a ClusterUpgrade: %w", err)
	}
	return u, true, nil
}

// find is the upgrade to go on with; nil when one is to be made. Another one that has not ended is in the way.
func (r *raise) find(ctx context.Context, c client.Reader, namespace string) (*quoinv1.ClusterUpgrade, error) {
	u, err := upgradeOf(ctx, c, namespace, r.wish.ClusterName)
	switch {
	case err != nil || u == nil:
		return nil, err
	case r.wants(u):
		return u, nil
	case upgrade.Completed(u):
		return nil, nil
	}
	return nil, fmt.Errorf("%w: ClusterUpgrade %s to %s (workers: %s) has not ended: follow it with the same flags, or "+
		"delete it", execute.ErrRefused, u.Name, u.Spec.Version, u.Spec.Workers)
}

// wants reports whether an upgrade is the one that is wished.
func (r *raise) wants(u *quoinv1.ClusterUpgrade) bool {
	return u.Spec.Version == r.wish.Version && u.Spec.Workers == r.wish.Workers
}

// phase of an upgrade, as a person who waits for it sees it.
type phase int

const (
	// underway: its controller acts, or waits for something.
	underway phase = iota
	// unconfirmed: the plan waits to be approved.
	unconfirmed
	// impossible: there is no plan, and nothing was touched.
	impossible
	// late: the deadline went by.
	late
	// over: everything is done.
	over
)

// phaseOf says where an upgrade is, and why there.
func phaseOf(u *quoinv1.ClusterUpgrade) (phase, string) {
	find := func(kind string) metav1.Condition {
		if c := meta.FindStatusCondition(u.Status.Conditions, kind); c != nil {
			return *c
		}
		return metav1.Condition{}
	}
	progressing := find(quoinv1.ClusterUpgradeProgressingCondition)
	message := cmp.Or(progressing.Message, progressing.Reason)
	planned, approved := find(quoinv1.ClusterUpgradePlannedCondition), find(quoinv1.ClusterUpgradeApprovedCondition)
	switch {
	case upgrade.Completed(u):
		completed := find(quoinv1.ClusterUpgradeCompletedCondition)
		if completed.Status != metav1.ConditionTrue && time.Since(upgrade.CompletedAt(u)) < settledAfter {
			return underway, message
		}
		return over, completed.Message
	case planned.Status == metav1.ConditionFalse && !upgrade.Begun(u) &&
		(planned.Reason == quoinv1.NoPlanReason || planned.Reason == quoinv1.HopsUnknownReason):
		return impossible, planned.Message
	case u.Status.Plan != nil && u.Status.Plan.ID != u.Spec.ApprovedPlan &&
		approved.Status == metav1.ConditionFalse && approved.Reason == quoinv1.ApprovalRequiredReason:
		return unconfirmed, u.Status.Plan.ID // also when it waited for that until it was late
	case find(quoinv1.ClusterUpgradeStalledCondition).Status == metav1.ConditionTrue:
		return late, find(quoinv1.ClusterUpgradeStalledCondition).Message
	}
	return underway, message
}

// follow an upgrade to its end: each plan is shown and confirmed, and what it does is said whenever that changes.
func (r *raise) follow(ctx context.Context, c client.Client, u *quoinv1.ClusterUpgrade) error {
	said, answers := "", bufio.NewScanner(cmp.Or[io.Reader](r.in, strings.NewReader("")))
	say := func(message string) {
		if message != "" && message != said {
			said = message
			r.say("%s", strings.ReplaceAll(message, "\n", "\n         "))
		}
	}
	heard := time.Now()
	for {
		err := c.Get(ctx, client.ObjectKeyFromObject(u), u)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("no longer followed; the controller goes on with what was confirmed, and the same command "+
				"follows it again: %w", ctx.Err())
		case apierrors.IsNotFound(err) || err == nil && upgrade.Leaves(u) && !upgrade.Completed(u):
			return fmt.Errorf("ClusterUpgrade %s was deleted: the Cluster stays as it is", u.Name)
		case err != nil && time.Since(heard) > silentFor:
			return fmt.Errorf("the management cluster did not answer for %s; the same command follows the upgrade: %w",
				silentFor, err)
		case err != nil:
			say("the management cluster does not answer, which one that upgrades itself does for some seconds: " + err.Error())
		default:
			heard = time.Now()
			switch at, message := phaseOf(u); {
			case at == over:
				say(cmp.Or(message, "done"))
				return show(r.out, "", nil, planTable(u))
			case at == impossible:
				return fmt.Errorf("%w: %s", execute.ErrRefused, message)
			case at == late:
				return fmt.Errorf("it takes longer than its deadline, and goes on as soon as it can: %s", message)
			case at == unconfirmed && r.in == nil:
				say("plan " + message + " waits for somebody who approves it: clusterctl quoin upgrade does")
			case at == unconfirmed:
				if err := r.confirm(ctx, c, u, answers); err != nil {
					return err
				}
			default:
				say(message)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(r.every):
		}
	}
}

// confirm shows the plan, and approves it when a person agrees.
func (r *raise) confirm(ctx context.Context, c client.Client, u *quoinv1.ClusterUpgrade, answers *bufio.Scanner) error {
	id := u.Status.Plan.ID
	r.show("") // the question stays in its line
	if err := show(r.out, "", nil, planTable(u)); err != nil {
		return err
	}
	if !r.yes {
		fmt.Fprintf(r.out, "Carry out plan %s? [y/N] ", id)
		scanned := make(chan bool, 1)
		go func() { scanned <- answers.Scan() }()
		answered := false
		select {
		case answered = <-scanned:
		case <-ctx.Done():
		}
		if !answered {
			return fmt.Errorf("nobody confirmed plan %s of ClusterUpgrade %s, which waits for that and touches nothing: run "+
				"the same command with --yes", id, u.Name)
		}
		if answer := strings.ToLower(strings.TrimSpace(answers.Text())); answer != "y" && answer != "yes" {
			if upgrade.Begun(u) {
				return fmt.Errorf("plan %s was not confirmed, and what was done before stays: the same command asks again", id)
			}
			return fmt.Errorf("%w: plan %s was not confirmed", execute.ErrRefused, id)
		}
	}
	before := u.DeepCopy()
	u.Spec.ApprovedPlan = id
	err := c.Patch(ctx, u, client.MergeFrom(before))
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return fmt.Errorf("approving plan %s of ClusterUpgrade %s: %w", id, u.Name, err)
	}
	return nil // or it is asked again, as soon as somebody answers
}
