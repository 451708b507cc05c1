// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// fleet is a model of a Cluster, node by node, and of one ClusterUpgrade of it. Nothing of it is shared with what decides.
type fleet struct {
	upgrade quoinv1.ClusterUpgrade
	now     time.Time

	paused   bool
	cluster  string // gone, deleting or new; empty when it is there
	foreign  bool   // another provider looks after the control plane
	first    string
	policies []skew.Policy
	topology []string // what the ClusterClass lists; nil when the Cluster is none
	record   bool     // the infrastructure is a QuoinCluster

	specVersion, statusVersion, topologyVersion string
	plane                                       pool
	addons                                      string
	// proxy: there is a kube-proxy among the add-ons, and pathSkipped: no check looks at the way of the versions.
	proxy, pathSkipped bool
	pools              []pool
	// others are the versions of kubelets that no pool has.
	others []string
	checks []Check
	// blocks is why checks do not pass; empty when they do.
	blocks string
	// windows are in UTC, and end on the day on which they begin.
	windows []quoinv1.RolloutWindow
	// rollout is what the RolloutPolicy says besides.
	rollout quoinv1.RolloutPolicySpec
	// spare is the host that the next Machine gets.
	spare  string
	frozen bool // no node is replaced

	// passed tells that a preflight passed.
	passed bool
	writes []string
}

// pool of nodes that run some versions and are to run another one.
type pool struct {
	name, spec string
	nodes      []string
	// hosts of the nodes, once one was replaced.
	hosts            []string
	paused, onDelete bool
}

// host of a node.
func (p pool) host(i int) string {
	if p.hosts != nil {
		return p.hosts[i]
	}
	return fmt.Sprintf("metal/%s-%d", p.name[strings.LastIndex(p.name, " ")+1:], i+1)
}

// placed are the nodes with their hosts.
func (p pool) placed() (nodes []Node) {
	for i, version := range p.nodes {
		nodes = append(nodes, Node{Host: p.host(i), Version: version})
	}
	return nodes
}

func newFleet(to string) *fleet {
	f := &fleet{now: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC), record: true}
	f.upgrade.Namespace, f.upgrade.Name = "default", "prod"
	f.upgrade.Spec = quoinv1.ClusterUpgradeSpec{ClusterName: "prod", Version: to, Workers: quoinv1.UpgradeWorkersAll}
	f.policies, _ = skew.Policies("")
	return f
}

func (p pool) unsettled() string {
	for _, node := range p.nodes {
		if node != p.spec {
			return fmt.Sprintf("%s: Nodes of %s are replaced", p.name, node)
		}
	}
	return ""
}

func (f *fleet) world() World {
	w := World{First: f.first, Checks: f.checks, Nodes: map[string][]Node{f.plane.name: f.plane.placed()}}
	if f.rollout.Windows = f.windows; len(f.windows)+len(f.rollout.Groups) > 0 {
		w.Policy = &quoinv1.RolloutPolicy{Spec: f.rollout}
		w.Policy.Name = "prod"
	}
	w.Cluster = &Cluster{Name: "prod", Paused: f.paused, Policies: f.policies}
	if f.topology != nil {
		w.Cluster.Topology = &Topology{Field: Field{Object: "Cluster prod", Value: f.topologyVersion, Owner: "argocd (Apply)"},
			Known: f.topology}
	}
	if f.record {
		w.Infrastructure = &Infrastructure{Field: Field{Object: "QuoinCluster prod", Value: f.specVersion,
			Owner: "kubectl-edit (Update)"}, Reached: f.statusVersion}
	}
	w.Cluster.Deleting, w.Cluster.Initialized = f.cluster == "deleting", f.cluster != "new"
	if f.cluster == "gone" {
		w.Cluster = nil
	}
	w.ControlPlane = ControlPlane{Field: Field{Object: f.plane.name, Value: f.plane.spec, Owner: "argocd (Apply)"},
		Runs: f.plane.nodes, Unsettled: f.plane.unsettled(), Unwatched: f.foreign}
	if f.addons != f.plane.spec {
		w.ControlPlane.Addons, w.ControlPlane.AddonsHeld = "kube-proxy is "+f.addons, f.held()
	}
	w.Others = f.state().Others
	for _, p := range f.pools {
		w.Nodes["MachineDeployment "+p.name] = p.placed()
		w.Pools = append(w.Pools, Pool{Name: p.name, Runs: p.nodes, Unsettled: p.unsettled(), Paused: p.paused,
			OnDelete: p.onDelete, Field: Field{Object: "MachineDeployment " + p.name, Value: p.spec, Owner: "argocd (Apply)"}})
	}
	return w
}

// apply makes a change, as an API server would.
func (f *fleet) apply(c Change) {
	f.writes = append(f.writes, strings.TrimSpace(fmt.Sprintf("%s %s%s %s", c.Kind, c.Object, c.Check.Name, c.Version)))
	annotate := func(key string) {
		metav1.SetMetaDataAnnotation(&f.upgrade.ObjectMeta, key, Mark(&f.upgrade, f.now))
	}
	switch c.Kind {
	case Begin:
		annotate(quoinv1.ClusterUpgradeBegunAnnotation)
	case Complete:
		annotate(quoinv1.ClusterUpgradeCompletedAnnotation)
	case MakeCheck:
		f.checks = append(slices.Clone(f.checks), c.Check)
	case DeleteCheck:
		f.checks = slices.DeleteFunc(slices.Clone(f.checks), func(have Check) bool { return have.Name == c.Check.Name })
	case RecordVersion:
		f.statusVersion = c.Version
	case SetVersion:
		*f.field(c.Object) = c.Version
	}
}

func (f *fleet) field(object string) *string {
	switch object {
	case "QuoinCluster prod":
		return &f.specVersion
	case "Cluster prod":
		return &f.topologyVersion
	case f.plane.name:
		return &f.plane.spec
	}
	for i := range f.pools {
		if object == "MachineDeployment "+f.pools[i].name {
			return &f.pools[i].spec
		}
	}
	panic(object)
}

// step has the upgrade decide once, and does as it says. Killed loses the status; what was changed stays.
func (f *fleet) step(killed bool) Decision {
	d := Next(f.world(), &f.upgrade, f.now)
	if d.Change != nil {
		f.apply(*d.Change)
	}
	if !killed {
		f.upgrade.Status = d.Status
	}
	return d
}

// advance has the world go one step further, and reports whether anything moved.
func (f *fleet) advance() bool {
	f.now = f.now.Add(10 * time.Second)
	for i := range f.checks {
		if check := &f.checks[i]; check.Completed.IsZero() {
			why := f.blocks
			if why == "" && !check.Health {
				why = f.noPath()
			}
			check.Completed, check.Summary, check.Blocks = f.now, why, why != ""
			f.passed = f.passed || !check.Health && !check.Blocks
			return true
		}
	}
	if f.chain() || f.roll(&f.plane) {
		return true
	}
	if f.plane.unsettled() == "" && f.addons != f.plane.spec && !f.held() {
		f.addons = f.plane.spec
		return true
	}
	for i := range f.pools {
		if f.admits(f.pools[i].name) && f.roll(&f.pools[i]) {
			return true
		}
	}
	return false
}

// admits reports whether the RolloutPolicy lets a pool be rolled out: of those that it selects none while there is
// something outdated in a group before, but for one that is suspended.
func (f *fleet) admits(name string) bool {
	free := true
	for _, group := range f.rollout.Groups {
		first := group.MachineDeployments.Names[0]
		suspended := ptr.Deref(group.Suspend, false)
		if first == name {
			return free
		}
		free = free && (suspended || !slices.ContainsFunc(f.pools, func(p pool) bool {
			return p.name == first && p.unsettled() != ""
		}))
	}
	return true
}

// state is what a preflight sees inside the Cluster.
func (f *fleet) state() plan.State {
	state := plan.State{APIServers: f.plane.nodes}
	if f.proxy {
		state.KubeProxy = []string{f.addons}
	}
	for _, p := range f.pools {
		state.Pools = append(state.Pools, plan.Pool{Object: p.name, Versions: p.nodes,
			Stays: f.upgrade.Spec.Workers == quoinv1.UpgradeWorkersAsNeeded})
	}
	for _, version := range f.others {
		state.Others = append(state.Others, skew.Running{Component: skew.Kubelet, Version: version, Object: "Machine lone"})
	}
	return state
}

// held reports whether the control plane keeps kube-proxy from its version.
func (f *fleet) held() bool { return f.state().ProxyRefused(f.policies, f.plane.spec) != "" }

// noPath is what a preflight says of the way to the version; empty when there is one.
func (f *fleet) noPath() string {
	request := plan.Request{State: f.state(), Target: f.upgrade.Spec.Version, Policies: f.policies, Known: f.topology}
	way := plan.For
	if f.topology != nil {
		way = plan.OfTopology
	}
	if _, err := way(request); err != nil && !f.pathSkipped {
		return err.Error()
	}
	return ""
}

// chain is what Cluster API does with a topology: a minor at a time, and the pools at the end.
func (f *fleet) chain() bool {
	ahead := skew.Older(f.topologyVersion, f.plane.spec)
	follow := f.addons != f.plane.spec && !f.held() // nobody waits for them, but they are quick
	if f.topology == nil || ahead || f.plane.unsettled() != "" || follow {
		return false
	}
	if f.plane.spec != f.topologyVersion {
		from, _ := skew.Parse(f.plane.spec)
		for _, version := range f.topology {
			to, _ := skew.Parse(version)
			if to.Minor() == from.Minor()+1 || version == f.topologyVersion && to.Minor() == from.Minor() {
				f.plane.spec = version
				return true
			}
		}
		return false
	}
	moved := false
	for i := range f.pools {
		moved = moved || f.pools[i].spec != f.topologyVersion
		f.pools[i].spec = f.topologyVersion
	}
	return moved
}

// opened reports whether nodes may be replaced.
func (f *fleet) opened() bool {
	for _, window := range f.windows {
		at, _ := time.Parse("15:04", window.Start)
		today := slices.Contains(window.Days, quoinv1.RolloutDay(f.now.Weekday().String())) || len(window.Days) == 0
		since := f.now.Sub(f.now.Truncate(24 * time.Hour).Add(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute))
		if today && since >= 0 && since < time.Duration(*window.DurationMinutes)*time.Minute {
			return true
		}
	}
	return len(f.windows) == 0
}

// roll replaces one node.
func (f *fleet) roll(p *pool) bool {
	if f.frozen || !f.opened() {
		return false
	}
	for i, node := range p.nodes {
		if node != p.spec {
			p.replace(i, &f.spare)
			return true
		}
	}
	return false
}

// replace has a node on the spare host take the place of one, whose host is the spare one then.
func (p *pool) replace(i int, spare *string) {
	hosts := make([]string, len(p.nodes))
	for j := range hosts {
		hosts[j] = p.host(j)
	}
	if *spare == "" {
		*spare = "metal/spare"
	}
	hosts[i], *spare = *spare, hosts[i]
	p.nodes, p.hosts = slices.Clone(p.nodes), hosts
	p.nodes[i] = p.spec
}

// illegal is what the policies do not allow now. kube-proxy is that of the add-ons, everywhere.
func (f *fleet) illegal() string {
	world := skew.World{APIServers: f.plane.nodes}
	for _, p := range f.pools {
		for _, node := range p.nodes {
			world.Components = append(world.Components, skew.Running{Component: skew.Kubelet, Version: node, Object: p.name})
		}
	}
	for _, policy := range f.policies {
		if violations := policy.Check(world); len(violations) > 0 {
			return skew.Summary(violations)
		}
	}
	return ""
}

func (f *fleet) completed() bool {
	return Completed(&f.upgrade)
}
