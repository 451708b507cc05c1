// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// confirming are hosts that confirm our generation, unless err says why not.
type confirming struct {
	noHosts
	err        error
	held, free int
}

func (c *confirming) HoldHost(context.Context, *infrav1.QuoinHost) (func(context.Context) error, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.held++
	return func(context.Context) error { c.free++; return nil }, nil
}

// Neither etcd nor anything in the cluster is changed while no host of the control plane confirms our generation.
func TestNothingIsChangedThatNoHostConfirms(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	hosts := &confirming{err: &owner.StaleError{Ours: owner.Record{Generation: 3}, Holder: owner.Record{Generation: 4}}}
	w.r.Hosts = hosts
	w.etcd.join("n-lost", "10.0.0.99", true)
	fails := func() error {
		_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		return err
	}
	g.Eventually(fails).Should(MatchError(ContainSubstring("another management plane took over")))
	g.Expect(w.etcd.removed).To(BeEmpty())

	hosts.err = nil
	w.reconcile()
	g.Expect(w.etcd.removed).To(HaveLen(1))

	hosts.err = errors.New("connection refused")
	w.edit(func(plane *controlplanev1.QuoinControlPlane) { plane.Spec.Version = newVer })
	for range 6 {
		_ = fails()
		w.fetchImages()
	}
	g.Expect(fails()).To(MatchError(ContainSubstring("no host of the control plane confirms that it serves this " +
		"management cluster")))
	g.Expect(w.configVersion()).To(Equal(oldVer))
	hosts.err = nil
	w.reconcile()
	g.Expect(w.configVersion()).To(Equal(newVer))
	g.Expect(hosts.held).To(BeNumerically(">", 1))
	g.Expect(hosts.free).To(Equal(hosts.held), "each is let go")
}

// silentHosts take a connection, and say nothing.
type silentHosts struct{ noHosts }

func (silentHosts) HoldHost(ctx context.Context, _ *infrav1.QuoinHost) (func(context.Context) error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// observed are Machines with hosts and etcd members of their own.
func observed(names ...string) *observe.Observation {
	o := &observe.Observation{Inventory: observe.Inventory{Machines: collections.New(),
		Hosts: map[string]*infrav1.QuoinHost{}}}
	o.Etcd.Endpoints = map[string]etcd.Endpoint{}
	for _, name := range names {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: "h-" + name}}
		host.Spec.ConsumerRef = &infrav1.ConsumerReference{Machine: name, Claim: name}
		machine.Status.NodeRef.Name, machine.Spec.ProviderID = name, host.ProviderID()
		o.Machines.Insert(machine)
		o.Hosts[name], o.Etcd.Endpoints[name] = host, etcd.Endpoint{Name: name}
	}
	return o
}

// readOnly are hosts of which one refuses, and says why.
type readOnly struct {
	noHosts
	host string
	why  error
}

func (r readOnly) HoldHost(_ context.Context, host *infrav1.QuoinHost) (func(context.Context) error, error) {
	if host.Name == r.host {
		return nil, r.why
	}
	return func(context.Context) error { return nil }, nil
}

// Leadership moves on the word of another host where the leader's own cannot write its record any more, and not where
// that says whom else it serves.
func TestALeaderWhoseHostWritesNoRecordIsRelieved(t *testing.T) {
	step := controlplane.Step{Kind: controlplane.MoveLeader, Machine: "m1", To: 3}
	moved := func(why error) ([]uint64, error) {
		members := &fakeEtcd{members: []etcd.Member{{ID: 1, Name: "m0"}, {ID: 2, Name: "m1", Leader: true}, {ID: 3, Name: "m2"}}}
		r := &Reconciler{Hosts: readOnly{host: "h-m1", why: why}, Clock: clock.RealClock{}, Etcd: members}
		o := observed("m0", "m1", "m2")
		err := r.moveLeader(t.Context(), o, r.newFence(&o.Inventory), step)
		return members.moved, err
	}
	g := NewWithT(t)
	to, err := moved(errors.New("Read-only file system"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(to).To(HaveExactElements(uint64(3)))
	to, err = moved(&owner.StaleError{Ours: owner.Record{Generation: 3}, Holder: owner.Record{Generation: 4}})
	g.Expect(err).To(MatchError(ContainSubstring("another management plane took over")))
	g.Expect(to).To(BeEmpty())
}

func TestSilentHostsHoldUpAWorkerOnceAndNotOneAfterTheOther(t *testing.T) {
	changes := map[string]func(context.Context, *Reconciler, *observe.Observation) error{
		"of the cluster": func(ctx context.Context, r *Reconciler, o *observe.Observation) error {
			fence := r.newFence(&o.Inventory)
			_ = fence.confirm(ctx)
			return fence.confirm(ctx) // the next change of the same reconcile
		},
		"of etcd": func(ctx context.Context, r *Reconciler, o *observe.Observation) error {
			return r.removeMember(ctx, o, r.newFence(&o.Inventory), controlplane.Step{})
		},
		"of etcd's leader": func(ctx context.Context, r *Reconciler, o *observe.Observation) error {
			return r.moveLeader(ctx, o, r.newFence(&o.Inventory), controlplane.Step{Machine: "m0"})
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := observed("m0", "m1", "m2")
				begin := time.Now()
				err := change(t.Context(), &Reconciler{Hosts: silentHosts{}, Clock: clock.RealClock{}}, o)
				g := NewWithT(t)
				g.Expect(err).To(MatchError(And(ContainSubstring("h-m0"), ContainSubstring("h-m1"), ContainSubstring("h-m2"))))
				g.Expect(time.Since(begin)).To(Equal(hostaccess.HoldTimeout))
			})
		})
	}
}
