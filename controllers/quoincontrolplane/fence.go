// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

const (
	// holdUse is how long after that another change may begin, and changeTimeout how long it may take: both together are
	// well within the host's lease.
	holdUse       = hostaccess.Lease / 3
	changeTimeout = hostaccess.Lease / 3
)

// fence lets changes of a workload cluster through only while one of its control-plane hosts holds its owner record at
// our generation. The host is asked before the first change of a reconcile, and let go at its end.
type fence struct {
	hosts HostDialer
	clock clock.PassiveClock
	inv   *observe.Inventory
	until time.Time
	held  *hostaccess.Held
	// refused is why no host confirmed; none is asked again in the same reconcile.
	refused error
}

func (r *Reconciler) newFence(inventory *observe.Inventory) *fence {
	return &fence{hosts: r.Hosts, clock: r.Clock, inv: inventory}
}

// workloadClient writes to the workload cluster behind the fence, and reads from its API server.
func (r *Reconciler) workloadClient(ctx context.Context, o *observe.Observation, fence *fence) (client.Client, error) {
	workload, err := r.ClusterCache.GetUncachedClient(ctx, client.ObjectKeyFromObject(o.Cluster))
	if err != nil {
		return nil, fmt.Errorf("no connection to the workload cluster: %w", err)
	}
	return fencedClient{workload, fence}, nil
}

// confirm has a host of the control plane confirm our generation, and hold it.
func (f *fence) confirm(ctx context.Context) error {
	if f.clock.Now().Before(f.until) {
		return nil
	}
	if f.refused != nil {
		return f.refused
	}
	var names []string
	for _, machine := range f.inv.Machines.SortedByCreationTimestamp() {
		if machine.Status.NodeRef.IsDefined() {
			names = append(names, machine.Name)
		}
	}
	// A host that leaves may be gone before the change is made.
	slices.SortStableFunc(names, func(a, b string) int { return leaves(f.inv.Machines[a]) - leaves(f.inv.Machines[b]) })
	err := f.hold(ctx, names...)
	if err == nil || hostaccess.ServesAnother(err) {
		return err
	}
	f.refused = fmt.Errorf("no host of the control plane confirms that it serves this management cluster, so nothing in "+
		"the cluster is changed from here: %w", err)
	return f.refused
}

// hold has the host of one of the Machines confirm our generation, and hold it.
func (f *fence) hold(ctx context.Context, machines ...string) error {
	f.end(ctx)
	var hosts []*infrav1.QuoinHost
	var failures []error
	for _, machine := range machines {
		if host := f.inv.OwnHost(machine); host != nil {
			hosts = append(hosts, host)
		} else {
			failures = append(failures, fmt.Errorf("the host of Machine %s is not known, or serves another Machine", machine))
		}
	}
	if len(failures) > 0 && len(hosts) == 0 {
		return errors.Join(failures...)
	}
	held, err := hostaccess.HoldAny(ctx, f.hosts, hosts...)
	switch {
	case hostaccess.ServesAnother(err):
		return err
	case err != nil:
		return errors.Join(append(failures, err)...)
	}
	f.held, f.until = held, held.Since.Add(holdUse)
	return nil
}

// end lets the host go.
func (f *fence) end(ctx context.Context) {
	if f.held == nil {
		return
	}
	f.held.Release(ctx)
	f.held, f.until = nil, time.Time{}
}

func leaves(machine *clusterv1.Machine) int {
	if machine.DeletionTimestamp.IsZero() {
		return 0
	}
	return 1
}

// moveLeader hands etcd's leadership from a Machine's member to another member. Its own host is asked first whether it
// serves us, and the others where that cannot say: its disk may be read-only.
func (r *Reconciler) moveLeader(
	ctx context.Context, o *observe.Observation, fence *fence, step controlplane.Step,
) error {
	leader, ok := o.Etcd.Endpoints[step.Machine]
	if !ok {
		return fmt.Errorf("the host of Machine %s cannot be reached", step.Machine)
	}
	if err := fence.hold(ctx, append([]string{step.Machine}, besides(o, step.Machine)...)...); err != nil {
		return err
	}
	return r.etcd().MoveLeader(ctx, leader, o.Etcd.Credentials, step.To)
}

// removeMember takes a member out, through the hosts of the others: each is asked whether it serves us before etcd
// there is. That may take long, so a member that no Machine runs is looked at once more right before.
func (r *Reconciler) removeMember(
	ctx context.Context, o *observe.Observation, fence *fence, step controlplane.Step,
) error {
	others := besides(o, step.Machine)
	if len(others) == 0 {
		return fmt.Errorf("removing etcd member %x: no other member's host is known", step.Member)
	}
	var failures []error
	for len(others) > 0 {
		err := fence.hold(ctx, others...)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		if err := r.mayStillGo(ctx, o, step.Member); err != nil {
			return err
		}
		through := slices.IndexFunc(others, func(name string) bool { return o.Hosts[name] == fence.held.Host })
		err = r.etcd().RemoveMember(ctx, []etcd.Endpoint{o.Etcd.Endpoints[others[through]]}, o.Etcd.Credentials,
			step.Member)
		if err == nil || errors.Is(err, etcd.ErrLastMember) {
			return err
		}
		failures, others = append(failures, err), slices.Delete(others, through, through+1)
	}
	return errors.Join(failures...)
}

// mayStillGo is an error when a member that no Machine runs, and that nobody asked to be removed, has come to vote
// since the step was decided: a learner was promoted, or a voter is heard again.
func (r *Reconciler) mayStillGo(ctx context.Context, o *observe.Observation, id uint64) error {
	byID := func(member quorum.Member) bool { return member.ID == id }
	at := slices.IndexFunc(o.State.Etcd.Members, byID)
	if at < 0 || o.State.Etcd.Members[at].Machine != "" || slices.Contains(o.State.RemoveMembers, id) {
		return nil
	}
	now, err := r.etcd().Read(ctx, slices.Collect(maps.Values(o.Etcd.Endpoints)), o.Etcd.Credentials)
	if err != nil {
		return fmt.Errorf("looking at etcd member %x before its removal: %w", id, err)
	}
	for _, member := range now.Members {
		heard := member.Answers || member.Connected || member.Unasked
		if member.ID == id && !member.Learner && (o.State.Etcd.Members[at].Learner || heard) {
			return fmt.Errorf("etcd member %x (%s) was to be removed, and votes or may vote by now: it is judged anew", id,
				member.Name)
		}
	}
	return nil
}

// besides are the other Machines whose hosts lead to an etcd member, oldest first.
func besides(o *observe.Observation, except string) (names []string) {
	for _, machine := range o.Machines.SortedByCreationTimestamp() {
		if _, ok := o.Etcd.Endpoints[machine.Name]; ok && machine.Name != except {
			names = append(names, machine.Name)
		}
	}
	return names
}

// fencedClient writes to a workload cluster only behind its fence.
type fencedClient struct {
	client.Client
	fence *fence
}

func (c fencedClient) through(ctx context.Context, change func(context.Context) error) error {
	if err := c.fence.confirm(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return change(ctx)
}

// Apply implements client.Writer.
func (c fencedClient) Apply(
	ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption,
) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.Apply(ctx, object, options...) })
}

// Create implements client.Writer.
func (c fencedClient) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.Create(ctx, object, options...) })
}

// Delete implements client.Writer.
func (c fencedClient) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.Delete(ctx, object, options...) })
}

// Update implements client.Writer.
func (c fencedClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.Update(ctx, object, options...) })
}

// Patch implements client.Writer.
func (c fencedClient) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption,
) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.Patch(ctx, object, patch, options...) })
}

// DeleteAllOf implements client.Writer.
func (c fencedClient) DeleteAllOf(
	ctx context.Context, object client.Object, options ...client.DeleteAllOfOption,
) error {
	return c.through(ctx, func(ctx context.Context) error { return c.Client.DeleteAllOf(ctx, object, options...) })
}

// Status implements client.StatusClient.
func (c fencedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor; evictions are subresources of pods.
func (c fencedClient) SubResource(name string) client.SubResourceClient {
	return fencedSubResource{c.Client.SubResource(name), c}
}

type fencedSubResource struct {
	client.SubResourceClient
	client fencedClient
}

// Create implements client.SubResourceWriter.
func (c fencedSubResource) Create(
	ctx context.Context, object, sub client.Object, options ...client.SubResourceCreateOption,
) error {
	return c.client.through(ctx, func(ctx context.Context) error {
		return c.SubResourceClient.Create(ctx, object, sub, options...)
	})
}

// Update implements client.SubResourceWriter.
func (c fencedSubResource) Update(
	ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption,
) error {
	return c.client.through(ctx, func(ctx context.Context) error {
		return c.SubResourceClient.Update(ctx, object, options...)
	})
}

// Patch implements client.SubResourceWriter.
func (c fencedSubResource) Patch(
	ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	return c.client.through(ctx, func(ctx context.Context) error {
		return c.SubResourceClient.Patch(ctx, object, patch, options...)
	})
}

// Apply implements client.SubResourceWriter.
func (c fencedSubResource) Apply(
	ctx context.Context, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption,
) error {
	return c.client.through(ctx, func(ctx context.Context) error {
		return c.SubResourceClient.Apply(ctx, object, options...)
	})
}
