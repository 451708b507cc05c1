// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/tree"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// subject is an object with its conditions, and what it is made of.
type subject struct {
	kind, name string
	deleting   bool
	conditions []metav1.Condition
	parts      []*subject
}

// Hold is a condition that is not as it should be.
type Hold struct {
	// Object as kind/name.
	Object    string           `json:"object"`
	Condition metav1.Condition `json:"condition"`
}

// newWhy says what an object waits for.
func newWhy(o *options) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "why CLUSTER [KIND/NAME]",
		Short: "Say what a Cluster waits for, or one of its objects",
		Long: `Say what a Cluster waits for, or one of its objects.

Conditions that are not as they should be are shown, of the object and of all that it is made of: control plane, pools,
Machines and their hosts. RolloutPolicies and ClusterUpgrades are shown too, since they may hold any of them.`,
		Example: `  clusterctl quoin why prod
  clusterctl quoin why prod machine/prod-blue-x7k2p
  clusterctl quoin why prod quoinhost/rack-1-07`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			reader, namespace, err := o.reader(args[0])
			if err != nil {
				return err
			}
			whole, rules, err := readSubjects(c.Context(), reader, namespace, args[0])
			if err != nil {
				return err
			}
			asked := whole
			if len(args) == 2 {
				if asked, err = whole.find(args[1]); err != nil {
					return err
				}
			}
			holds := holdsOf(asked, rules)
			return show(o.out, output, holds, holdTable(holds))
		},
	}
	o.addReader(command)
	addOutput(command, &output)
	return command
}

// readSubjects reads a Cluster with all that it is made of, as clusterctl finds it, and its policies and upgrades.
func readSubjects(
	ctx context.Context, c client.Client, namespace, name string,
) (whole *subject, rules []*subject, err error) {
	found, err := tree.Discovery(ctx, c, namespace, name, tree.DiscoverOptions{ShowMachineSets: true, Echo: true})
	if err != nil {
		return nil, nil, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	whole = &subject{}
	if err := whole.read(ctx, c, found, found.GetRoot()); err != nil {
		return nil, nil, err
	}
	in := client.InNamespace(namespace)
	policies, upgrades := &quoinv1.RolloutPolicyList{}, &quoinv1.ClusterUpgradeList{}
	for _, list := range []client.ObjectList{policies, upgrades} {
		if err := c.List(ctx, list, in); err != nil && !meta.IsNoMatchError(err) {
			return nil, nil, fmt.Errorf("listing policies and upgrades: %w", err)
		}
	}
	for i := range policies.Items {
		if p := &policies.Items[i]; p.Spec.ClusterName == name {
			rules = append(rules, &subject{kind: "RolloutPolicy", name: p.Name, conditions: p.Status.Conditions})
		}
	}
	for i := range upgrades.Items {
		if u := &upgrades.Items[i]; u.Spec.ClusterName == name && !upgrade.Ended(u) {
			rules = append(rules, &subject{kind: "ClusterUpgrade", name: u.Name, conditions: u.Status.Conditions})
		}
	}
	return whole, rules, nil
}

// read an object and its parts from what clusterctl found; the host of a QuoinMachine is a part of it.
func (s *subject) read(ctx context.Context, c client.Client, found *tree.ObjectTree, o client.Object) error {
	s.kind, s.name, s.deleting = o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), !o.GetDeletionTimestamp().IsZero()
	if !tree.IsVirtualObject(o) {
		s.conditions = conditionsOf(o)
	}
	parts := found.GetObjectsByParent(o.GetUID())
	slices.SortFunc(parts, func(a, b client.Object) int {
		if byOrder := tree.GetZOrder(b) - tree.GetZOrder(a); byOrder != 0 {
			return byOrder
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	for _, o := range parts {
		part := &subject{}
		if err := part.read(ctx, c, found, o); err != nil {
			return err
		}
		s.parts = append(s.parts, part)
	}
	if s.kind != "QuoinMachine" {
		return nil
	}
	machine, host := &infrav1.QuoinMachine{}, &infrav1.QuoinHost{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), machine); err != nil || machine.Status.HostRef == nil {
		return client.IgnoreNotFound(err)
	}
	ref := machine.Status.HostRef
	if err := c.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, host); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading the host of QuoinMachine %s: %w", s.name, err)
	}
	s.parts = append(s.parts, &subject{kind: "QuoinHost", name: host.Name, conditions: host.Status.Conditions})
	return nil
}

// conditionsOf an object of any kind; none where they cannot be read.
func conditionsOf(o client.Object) (conditions []metav1.Condition) {
	if getter, is := o.(interface{ GetConditions() []metav1.Condition }); is {
		return getter.GetConditions()
	}
	content, is := o.(*unstructured.Unstructured)
	if !is {
		return nil
	}
	all, _, _ := unstructured.NestedSlice(content.Object, "status", "conditions")
	for _, one := range all {
		var condition metav1.Condition
		fields, _ := one.(map[string]any)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &condition) == nil {
			conditions = append(conditions, condition)
		}
	}
	return conditions
}

// find a part by its kind, in any case, and its name.
func (s *subject) find(of string) (*subject, error) {
	kind, name, split := strings.Cut(of, "/")
	if !split {
		return nil, fmt.Errorf("%q names no object: give it as kind/name, such as machine/prod-blue-x7k2p", of)
	}
	var search func(*subject) *subject
	search = func(s *subject) *subject {
		if strings.EqualFold(s.kind, kind) && s.name == name {
			return s
		}
		for _, part := range s.parts {
			if found := search(part); found != nil {
				return found
			}
		}
		return nil
	}
	if found := search(s); found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("%s is no part of Cluster %s, nor a host that one of its Machines has", of, s.name)
}

// negative are conditions that should not be True.
var negative = []string{clusterv1.PausedCondition, clusterv1.DeletingCondition, clusterv1.ClusterRemediatingCondition,
	clusterv1.ClusterRollingOutCondition, clusterv1.ClusterScalingUpCondition, clusterv1.ClusterScalingDownCondition,
	clusterv1.MachineUpdatingCondition, quoinv1.ClusterUpgradeStalledCondition,
	quoinv1.RolloutPolicyOrderConflictCondition}

// either are conditions that say something whether they are True or False.
var either = []string{quoinv1.RolloutPolicyRolledBackCondition, controlplanev1.ControlPlaneRecoveringCondition}

// atRest are reasons of conditions that hold nothing: there is nothing to do, or it is done.
var atRest = []string{infrav1.HostInUseReason, quoinv1.UpToDateReason, quoinv1.NothingRolledBackReason,
	controlplane.ReasonRecovered, controlplane.ReasonRecoveryVoid}

// leaving are conditions of QuoinMachines that say something while they are deleted.
var leaving = []string{infrav1.MachineDrainableCondition, infrav1.MachineDrainedCondition,
	infrav1.MachineTerminableCondition}

// summaries say what other conditions of the object say.
var summaries = []string{clusterv1.ReadyCondition, clusterv1.AvailableCondition}

// holdsOf are the conditions that are not as they should be, of an object, its parts, and what may hold them. Where an
// object has others, those that sum them up are left out.
func holdsOf(s *subject, rules []*subject) (holds []Hold) {
	var own []Hold
	for _, c := range s.conditions {
		wanted := metav1.ConditionTrue
		if slices.Contains(negative, c.Type) {
			wanted = metav1.ConditionFalse
		}
		idle := !s.deleting && slices.Contains(leaving, c.Type) || slices.Contains(atRest, c.Reason)
		if (c.Status != wanted || slices.Contains(either, c.Type)) && !idle {
			own = append(own, Hold{Object: s.kind + "/" + s.name, Condition: c})
		}
	}
	sums := func(h Hold) bool { return slices.Contains(summaries, h.Condition.Type) }
	if slices.ContainsFunc(own, func(h Hold) bool { return !sums(h) }) {
		own = slices.DeleteFunc(own, sums)
	}
	holds = append([]Hold{}, own...) // no null for scripts
	for _, part := range slices.Concat(s.parts, rules) {
		holds = append(holds, holdsOf(part, nil)...)
	}
	return holds
}

func holdTable(holds []Hold) [][]string {
	if len(holds) == 0 {
		return [][]string{{"nothing is waited for"}}
	}
	rows := [][]string{{"OBJECT", "CONDITION", "SINCE", "REASON", "MESSAGE"}}
	last := ""
	for _, h := range holds {
		object := h.Object
		if object == last {
			object = ""
		}
		last = h.Object
		c := h.Condition
		lines := strings.Split(strings.TrimSpace(c.Message), "\n")
		rows = append(rows, []string{object, c.Type + "=" + string(c.Status),
			c.LastTransitionTime.UTC().Format("2006-01-02 15:04:05Z"), c.Reason, lines[0]})
		for _, line := range lines[1:] {
			rows = append(rows, []string{"", "", "", "", line})
		}
	}
	return rows
}
