// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// before is the version that rollouts begin with; version is what they come to.
const before = "v1.35.4"

// whole is how long a control plane may take to become what its spec says. One Machine takes seconds on an idle machine, and
// minutes on one that has much else to do.
const whole = 10 * time.Minute

// courtOptions say what a court begins with.
type courtOptions struct {
	name     string
	replicas int32
	// hosts to begin with; as many as replicas and one to spare when 0. They go round the failure domains.
	hosts, domains int
	strategy       controlplanev1.RolloutStrategyType
	admission      bool
	// workers are made by Cluster API's own controllers.
	workers bool
	// pools of a topology that the Cluster is made of, in the order of its list; none without.
	pools []string
	// onPhase is called before each phase of kubeadm on a host.
	onPhase func(host *machine.Machine, verb, phase string)
	// syncs has etcd sync its files, so that disks can be slow.
	syncs bool
	// haste divides the waits of our controllers; hurry when 0.
	haste int
	// plane that the court is in; that of all tests when nil.
	plane *plane.Plane
	// adjust changes what its site is made with.
	adjust func(*plane.SiteOptions)
}

// event is a moment of a rollout at which something can go wrong.
type event struct {
	// manager made a change just now; nil when it is a host that does something.
	manager *plane.Manager
	// where is "management", "workload", "etcd", "step" (a host is about to write a line of a journal) or "command" (one
	// that came over SSH is about to begin).
	where, what string
}

func (e event) String() string { return e.where + " " + e.what }

// court is a Cluster whose control plane is on simulated hosts, and all who look at it.
type court struct {
	t       testing.TB
	options courtOptions
	plane   *plane.Plane
	site    *plane.Site
	cluster *kube.ControlPlane
	fleet   *sim.Fleet
	key     client.ObjectKey
	hosts   []*sim.Host
	// domains are the failure domains of hosts; burnt are those that will never come back.
	domains map[*sim.Host]string
	burnt   map[*sim.Host]bool
	// generation of what the bootstrap data do.
	generation int
	// patience with what is waited for.
	patience time.Duration
	// pause between two looks at it; who measures sets it, looks seldom, and describes nothing meanwhile.
	pause time.Duration
	// hears is told of each event; nobody when nil.
	hears atomic.Pointer[func(event)]
	// records is told of each event before that, and of those that nobody hears.
	records atomic.Pointer[func(event)]
	// joins is told of each phase of a kubeadm join, before it begins; nobody when nil.
	joins atomic.Pointer[func(host *sim.Host, phase string)]
	// What writers have come to; those that write now.
	writers, tried, acked atomic.Int64
}

func (c *court) happens(e event) {
	if record := c.records.Load(); record != nil {
		(*record)(e)
	}
	if hear := c.hears.Load(); hear != nil {
		(*hear)(e)
	}
}

// listen has somebody told of every event, from any goroutine; nobody when nil.
func (c *court) listen(hear func(event)) {
	if hear == nil {
		c.hears.Store(nil)
		return
	}
	c.hears.Store(&hear)
}

// phase of kubeadm that is about to begin.
func (c *court) phase(host *machine.Machine, verb, phase string) {
	if c.options.onPhase != nil {
		c.options.onPhase(host, verb, phase)
	}
	if joins := c.joins.Load(); joins != nil && verb == "join" {
		(*joins)(host.Owner.(*sim.Host), phase)
	}
}

// newCourt makes the hosts and the Cluster, and waits for nothing.
func newCourt(t testing.TB, o courtOptions) *court {
	t.Helper()
	courts <- struct{}{}
	t.Cleanup(func() { <-courts })
	p := cmp.Or(o.plane, needsPlane(t))
	c := &court{t: t, options: o, plane: p, domains: map[*sim.Host]string{}, burnt: map[*sim.Host]bool{}, patience: whole}
	var err error
	if c.cluster, err = kube.NewControlPlane(kube.ControlPlaneOptions{Syncs: o.syncs}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.cluster.Close)
	nodes, err := kube.New(kube.Options{ControlPlane: c.cluster, Versions: []string{before, version}, OnPhase: c.phase})
	if err != nil {
		t.Fatal(err)
	}
	if c.fleet, err = sim.New(sim.Options{Cluster: nodes, Command: func(h *sim.Host, command string) {
		c.happens(event{where: "command", what: h.Name + " " + command})
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.fleet.Close)
	c.site = c.newSite(p)
	c.create(credentials(c.fleet, o.name))
	if o.hosts == 0 {
		o.hosts = int(o.replicas) + 1
	}
	for range o.hosts {
		c.addHost()
	}
	if o.pools != nil {
		c.addTopology()
		return c
	}
	host, port := c.cluster.Endpoint()
	if c.key, err = c.site.AddCluster(t.Context(), plane.ClusterOptions{
		Name: "c", Host: host, Port: port, Replicas: o.replicas, Version: before,
		Care:      controlplanev1.QuoinControlPlaneCare{Rollout: controlplanev1.QuoinControlPlaneRollout{Strategy: o.strategy}},
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// newSite runs a management plane for the court; it is no more than there until the court's objects are.
func (c *court) newSite(p *plane.Plane) *plane.Site {
	c.t.Helper()
	o := plane.SiteOptions{
		Namespace: c.options.name, Haste: cmp.Or(c.options.haste, hurry), Admission: c.options.admission, Workers: c.options.workers,
		Topologies: c.options.pools != nil, Connections: hasty, Retry: time.Second,
		Backups: c.t.TempDir(), Spool: c.t.TempDir(),
		Written: func(m *plane.Manager, w plane.Write) { c.happens(event{m, w.Where, w.What}) },
	}
	if c.options.adjust != nil {
		c.options.adjust(&o)
	}
	site, err := p.NewSite(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := site.Stop(); err != nil {
			c.t.Errorf("stopping the site: %v", err)
		}
	})
	return site
}

func (c *court) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.plane.Client.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// addHost makes one more host and registers it, in the next failure domain.
func (c *court) addHost() *sim.Host {
	c.t.Helper()
	if c.options.domains == 0 {
		return c.addHostTo("")
	}
	return c.addHostTo(fmt.Sprintf("rack-%d", len(c.hosts)%c.options.domains+1))
}

func (c *court) addHostTo(domain string) *sim.Host {
	c.t.Helper()
	number := len(c.hosts)
	host, err := c.fleet.Add(fmt.Sprintf("%s-h%d", c.options.name, number+1))
	if err != nil {
		c.t.Fatal(err)
	}
	object := quoinHost(host, c.options.name)
	object.Spec.FailureDomain, c.domains[host] = domain, domain
	host.Machine.OnJournal(func(_ *machine.Machine, plan, step, word string) {
		c.happens(event{where: "step", what: host.Name + " " + kind(plan) + " " + step + " " + word})
	})
	c.create(object)
	c.hosts = append(c.hosts, host)
	return host
}

// change patches the control plane's spec. While a manager dies or starts its webhook fails, and a person tries again.
func (c *court) change(edit func(*controlplanev1.QuoinControlPlaneSpec)) {
	c.t.Helper()
	object := c.object()
	original := object.DeepCopy()
	edit(&object.Spec)
	err := c.plane.Client.Patch(c.t.Context(), object, client.MergeFrom(original))
	for begin := time.Now(); apierrors.IsInternalError(err) && time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
		err = c.plane.Client.Patch(c.t.Context(), object, client.MergeFrom(original))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *court) object() *controlplanev1.QuoinControlPlane {
	object := &controlplanev1.QuoinControlPlane{}
	if err := c.plane.Client.Get(context.Background(), c.key, object); err != nil {
		c.t.Error(err)
	}
	return object
}

// machines are those of the control plane.
func (c *court) machines() []clusterv1.Machine {
	list := &clusterv1.MachineList{}
	if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name), client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		c.t.Error(err)
	}
	return list.Items
}

// lacks says what the control plane still has to become; nothing when it is what its spec says.
func (c *court) lacks() string {
	object, machines := c.object(), c.machines()
	want := ptr.Deref(object.Spec.Replicas, 1)
	if object.Status.ObservedGeneration != object.Generation {
		return "its spec was not seen yet"
	}
	if len(machines) != int(want) {
		return fmt.Sprintf("it has %d Machines", len(machines))
	}
	for i := range machines {
		machine := &machines[i]
		switch {
		case !machine.DeletionTimestamp.IsZero():
			return machine.Name + " is being deleted"
		case machine.Spec.Version != object.Spec.Version:
			return machine.Name + " has " + machine.Spec.Version
		case !machine.Status.NodeRef.IsDefined():
			return machine.Name + " has no Node"
		}
	}
	for _, count := range []*int32{object.Status.Replicas, object.Status.ReadyReplicas, object.Status.UpToDateReplicas} {
		if ptr.Deref(count, 0) != want {
			return "its status does not count everything"
		}
	}
	for _, condition := range []string{controlplanev1.ControlPlaneAvailableCondition, controlplanev1.ControlPlaneEtcdClusterHealthyCondition} {
		if !conditions.IsTrue(object, condition) {
			return condition + ": " + conditions.GetMessage(object, condition)
		}
	}
	for _, condition := range []string{controlplanev1.ControlPlaneRollingOutCondition, controlplanev1.ControlPlaneScalingUpCondition, controlplanev1.ControlPlaneScalingDownCondition} {
		if conditions.IsTrue(object, condition) {
			return condition + ": " + conditions.GetMessage(object, condition)
		}
	}
	read, err := c.members(c.t.Context())
	if err != nil {
		return err.Error()
	}
	if len(read) != int(want) {
		return fmt.Sprintf("etcd has %d members", len(read))
	}
	for _, member := range read {
		if member.Learner || !member.Running {
			return "etcd member " + member.Name + " does not vote"
		}
	}
	return ""
}

// until waits until nothing is lacking.
func (c *court) until(what string, lacks func() string) {
	c.t.Helper()
	begin := time.Now()
	for {
		lack := lacks()
		if lack == "" {
			c.t.Logf("%s took %s", what, time.Since(begin).Round(100*time.Millisecond))
			return
		}
		if time.Since(begin) > c.patience {
			c.t.Fatalf("%s: %s\n%s", what, lack, c.describe())
		}
		time.Sleep(cmp.Or(c.pause, 250*time.Millisecond))
	}
}

// untilWhole waits until the control plane is what its spec says.
func (c *court) untilWhole(what string) {
	c.t.Helper()
	c.until(what, c.lacks)
}

// outdateOldest makes the oldest Machines outdated by their age, at least so many, and returns those that must go.
func (c *court) outdateOldest(number int) map[types.UID]bool {
	c.t.Helper()
	machines := c.machines()
	if number >= len(machines) {
		return c.outdate()
	}
	slices.SortFunc(machines, func(a, b clusterv1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	// The API server counts seconds.
	after := metav1.NewTime(machines[number-1].CreationTimestamp.Add(time.Second))
	old := map[types.UID]bool{}
	for i := range machines {
		if machines[i].CreationTimestamp.Before(&after) {
			old[machines[i].UID] = true
		}
	}
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Rollout.After = after })
	return old
}

// outdate changes the version, or when it has changed already what the bootstrap data do: either way every Machine must be
// replaced. It returns the Machines that must go.
func (c *court) outdate() map[types.UID]bool {
	c.t.Helper()
	old := map[types.UID]bool{}
	for _, machine := range c.machines() {
		old[machine.UID] = true
	}
	c.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		if spec.Version == before {
			spec.Version = version
			return
		}
		c.generation++
		spec.KubeadmConfigSpec.PreKubeadmCommands = []string{fmt.Sprintf("echo %d", c.generation)}
	})
	return old
}

// lacksReplacements says how many of the old Machines are still there.
func (c *court) lacksReplacements(old map[types.UID]bool) string {
	left := 0
	for _, machine := range c.machines() {
		if old[machine.UID] {
			left++
		}
	}
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%d old Machines are still there", left)
}

// roll makes every Machine outdated, and waits until all are replaced.
func (c *court) roll(what string) {
	c.t.Helper()
	old := c.outdate()
	c.untilWhole(what)
	for _, machine := range c.machines() {
		if old[machine.UID] {
			c.t.Errorf("%s: Machine %s was not replaced", what, machine.Name)
		}
	}
}

// workload is an administrator's client of the workload cluster.
func (c *court) workload(timeout time.Duration) (kubernetes.Interface, error) {
	config, err := c.cluster.Config()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Timeout, config.QPS = timeout, -1
	return kubernetes.NewForConfig(config)
}

// describe is all there is to know when a test fails.
func (c *court) describe() string {
	var text strings.Builder
	object := c.object()
	fmt.Fprintf(&text, "control plane %s, operation %+v", object.Spec.Version, object.Status.Operation)
	for _, condition := range object.Status.Conditions {
		fmt.Fprintf(&text, "\n  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, machine := range c.machines() {
		fmt.Fprintf(&text, "\nMachine %s %s deleting=%v node=%s annotations=%v", machine.Name, machine.Spec.Version, machine.DeletionTimestamp, machine.Status.NodeRef.Name, machine.Annotations)
		for _, condition := range machine.Status.Conditions {
			if condition.Status != metav1.ConditionTrue && !slices.Contains([]string{"Paused", "Updating", "Deleting", "Remediating"}, condition.Type) || condition.Type == "Deleting" && condition.Status == metav1.ConditionTrue {
				fmt.Fprintf(&text, "\n  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	list := &infrav1.QuoinHostList{}
	_ = c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name))
	for i := range list.Items {
		host := &list.Items[i]
		fmt.Fprintf(&text, "\nHost %s %s consumer=%v: %s", host.Name, host.Status.State, host.Spec.ConsumerRef, conditions.GetMessage(host, infrav1.HostReadyCondition))
		if simulated := c.fleet.Host(host.Name); simulated != nil {
			if unknown := simulated.Machine.Unknown(); len(unknown) > 0 {
				fmt.Fprintf(&text, " unknown to the machine: %q", unknown)
			}
		}
	}
	members, err := c.members(context.Background())
	fmt.Fprintf(&text, "\netcd: %+v %v", members, err)
	return text.String()
}
