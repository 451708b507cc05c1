// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

var patches = []string{"v1.33.4", "v1.34.4", "v1.35.4", "v1.36.3"}

// drawn is a legal Cluster of which a ClusterUpgrade to the last version is wanted.
func drawn(t *rapid.T) *fleet {
	f := newFleet(patches[len(patches)-1])
	f.record = rapid.Bool().Draw(t, "record")
	f.policies, _ = skew.Policies(rapid.SampledFrom([]string{"", "Kubernetes-1.24", "Distribution"}).Draw(t, "policy"))
	at := rapid.IntRange(0, len(patches)-1).Draw(t, "plane")
	version := patches[at]
	f.plane = pool{name: "QuoinControlPlane prod", spec: version,
		nodes: slices.Repeat([]string{version}, rapid.SampledFrom([]int{1, 3}).Draw(t, "replicas"))}
	f.addons, f.proxy = version, rapid.Bool().Draw(t, "kube-proxy")
	f.pathSkipped = rapid.Bool().Draw(t, "the path is skipped")
	if rapid.Bool().Draw(t, "topology") {
		f.topology, f.topologyVersion = patches, version
	} else {
		f.upgrade.Spec.Via = patches[:len(patches)-1]
		f.upgrade.Spec.Workers = rapid.SampledFrom([]quoinv1.UpgradeWorkers{quoinv1.UpgradeWorkersAll,
			quoinv1.UpgradeWorkersAsNeeded}).Draw(t, "workers")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "pools") {
		runs := patches[rapid.IntRange(max(0, at-2), at).Draw(t, "pool")]
		f.pools = append(f.pools, pool{name: fmt.Sprint("pool-", i), spec: runs,
			nodes: slices.Repeat([]string{runs}, rapid.IntRange(0, 2).Draw(t, "nodes"))})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "groups") {
		f.rollout.Groups = append(f.rollout.Groups, group(fmt.Sprint("pool-", rapid.IntRange(0, 2).Draw(t, "group")), i))
	}
	return f
}

// disturb does what may happen at any time, and reports whether the process is killed right after its next write.
func (f *fleet) disturb(t *rapid.T) (killed bool) {
	switch rapid.SampledFrom([]string{"", "", "", "", "kill", "move", "block", "pass", "pause", "resume", "clock"}).
		Draw(t, "happens") {
	case "kill":
		return true
	case "move":
		f.upgrade.Status = quoinv1.ClusterUpgradeStatus{}
	case "block":
		f.blocks = "Nodes: no"
	case "pass":
		f.blocks = ""
	case "pause":
		f.upgrade.Spec.Paused = ptr.To(true)
	case "resume":
		f.upgrade.Spec.Paused = nil
	case "clock":
		f.now = f.now.Add(7 * time.Minute)
	}
	return false
}

// judge holds one decision against the promises.
func (f *fleet) judge(t *rapid.T, before int) {
	if why := f.illegal(); why != "" {
		t.Fatalf("illegal: %s\n%s", why, strings.Join(f.writes, "\n"))
	}
	for _, write := range f.writes[before:] {
		touches := !strings.HasPrefix(write, string(MakeCheck)) && !strings.HasPrefix(write, string(DeleteCheck))
		if touches && !f.passed {
			t.Fatalf("%s before a preflight passed\n%s", write, strings.Join(f.writes, "\n"))
		}
		if ptr.Deref(f.upgrade.Spec.Paused, false) {
			t.Fatalf("%s while paused", write)
		}
	}
	if len(f.writes)-before > 1 {
		t.Fatalf("more than one write: %v", f.writes[before:])
	}
}

// From any legal Cluster an upgrade ends, or says why there is no plan; it passes through no illegal skew, touches
// nothing before a preflight passed, writes nothing while paused, and goes on after a kill at any write as if nothing had
// been.
//
// Proves: S0-2, S0-3, S0-50
func TestUpgradesEndWhateverHappens(t *testing.T) {
	ended, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawn(t)
		if f.illegal() != "" {
			t.Skip("the Cluster is illegal from the beginning")
		}
		for range rapid.IntRange(0, 60).Draw(t, "disturbances") {
			before := len(f.writes)
			f.step(f.disturb(t))
			f.judge(t, before)
			if rapid.Bool().Draw(t, "moves") {
				f.advance()
				f.judge(t, len(f.writes))
			}
		}
		f.blocks, f.upgrade.Spec.Paused = "", nil
		for range 500 {
			before := len(f.writes)
			d := f.step(false)
			f.judge(t, before)
			if f.completed() {
				break
			}
			if c := meta.FindStatusCondition(d.Status.Conditions, quoinv1.ClusterUpgradePlannedCondition); c != nil &&
				c.Status == "False" {
				if len(f.writes) > 0 && f.specVersion != "" {
					t.Fatalf("stopped in the middle: %s\n%s", c.Message, strings.Join(f.writes, "\n"))
				}
				refused++
				return
			}
			if !f.advance() {
				f.now = f.now.Add(d.Again)
			}
		}
		if f.noPath() != "" && !f.passed {
			refused++ // a preflight says why, and nothing was touched
			return
		}
		f.ended(t)
		ended++
	})
	if ended <= refused {
		t.Fatalf("%d ended and %d were refused: too few were tried to their end", ended, refused)
	}
}

// group of a RolloutPolicy that selects one pool.
func group(pool string, place int) quoinv1.RolloutGroup {
	return quoinv1.RolloutGroup{Name: fmt.Sprint("group-", place),
		MachineDeployments: quoinv1.RolloutSelector{Names: []string{pool}}}
}

// through carries an upgrade out as far as it gets by itself, and returns why it stays there.
func (f *fleet) through() metav1.Condition {
	var last metav1.Condition
	for range 200 {
		d := f.step(false)
		last = *meta.FindStatusCondition(d.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition)
		f.advance()
	}
	return last
}

// A kube-proxy that waits for kubelets is never waited for before these are raised, however the plan began: who has the
// way of the versions checked learns that no policy allows it, unless only pools are left, and who skips that gets to
// the end.
func TestAKubeProxyThatWaitsForWorkersComesAfterThem(t *testing.T) {
	for name, begins := range map[string]func(*fleet){
		"the control plane is there": func(f *fleet) {
			f.plane.spec, f.plane.nodes = "v1.36.3", []string{"v1.36.3"}
		},
		"one hop":               func(*fleet) {},
		"pools stay":            func(f *fleet) { f.upgrade.Spec.Workers = quoinv1.UpgradeWorkersAsNeeded },
		"two hops":              twoHops,
		"two hops, pools stay":  func(f *fleet) { twoHops(f); f.upgrade.Spec.Workers = quoinv1.UpgradeWorkersAsNeeded },
		"a topology":            func(f *fleet) { f.topology, f.topologyVersion = patches, "v1.35.4" },
		"a topology, two hops":  func(f *fleet) { f.topology, f.topologyVersion = patches, "v1.34.4"; twoHops(f) },
		"the policy comes late": func(f *fleet) { f.policies, _ = skew.Policies("") },
	} {
		for _, skipped := range []bool{false, true} {
			f := newFleet("v1.36.3")
			f.policies, _ = skew.Policies("Kubernetes-1.24")
			f.plane = pool{name: "QuoinControlPlane prod", spec: "v1.35.4", nodes: []string{"v1.35.4"}}
			f.pools = []pool{{name: "blue", spec: "v1.35.4", nodes: []string{"v1.35.4", "v1.35.4"}}}
			f.addons, f.proxy, f.pathSkipped = "v1.35.4", true, skipped
			begins(f)
			late := name == "the policy comes late"
			for late && f.plane.spec != "v1.36.3" {
				f.step(false)
				f.advance()
			}
			f.policies, _ = skew.Policies("Kubernetes-1.24")
			last := f.through()
			ends := skipped || late || name == "the control plane is there"
			if f.completed() != ends || f.passed != ends || ends && f.addons != "v1.36.3" {
				t.Errorf("%s, skipped %v: completed %v, kube-proxy %s: %s: %s", name, skipped, f.completed(), f.addons,
					last.Message, strings.Join(f.writes, "\n"))
			}
		}
	}
}

func twoHops(f *fleet) {
	f.upgrade.Spec.Via = nil
	if f.plane.spec, f.plane.nodes, f.addons = "v1.34.4", []string{"v1.34.4"}, "v1.34.4"; f.topology == nil {
		f.upgrade.Spec.Via = []string{"v1.35.4"}
	}
	f.pools = []pool{{name: "blue", spec: "v1.34.4", nodes: []string{"v1.34.4", "v1.34.4"}}}
}

// A kubelet of no pool is nobody's here: add-ons that wait for it wait for a person, who is asked, also when the status
// was lost. It goes on as soon as that is done.
func TestAddonsThatWaitForAKubeletOfNoPoolArePeoples(t *testing.T) {
	f := newFleet("v1.36.3")
	f.policies, _ = skew.Policies("Kubernetes-1.24")
	f.plane = pool{name: "QuoinControlPlane prod", spec: "v1.35.4", nodes: []string{"v1.35.4"}}
	f.addons, f.proxy, f.pathSkipped, f.others = "v1.35.4", true, true, []string{"v1.35.4"}
	for range 2 {
		if held := f.through(); held.Status != "False" || held.Reason != quoinv1.AddonsHeldReason ||
			!strings.Contains(held.Message, "kube-proxy is v1.35.4") || f.completed() {
			t.Fatalf("held is %+v: %s", held, strings.Join(f.writes, "\n"))
		}
		if step := f.upgrade.Status.Step; !strings.HasSuffix(step, string(quoinv1.UpgradeStepAddons)) {
			t.Fatalf("it waits at step %s", step)
		}
		f.upgrade.Status = quoinv1.ClusterUpgradeStatus{}
	}
	f.others = nil
	if f.through(); !f.completed() || f.addons != "v1.36.3" {
		t.Fatalf("kube-proxy is %s: %s", f.addons, strings.Join(f.writes, "\n"))
	}
}

// A RolloutPolicy that changes meanwhile has no pool raised beside one that has begun, but for one that it suspends.
func TestAPoolThatHasBegunIsFinishedFirst(t *testing.T) {
	for _, suspends := range []bool{false, true} {
		f := newFleet("v1.36.3")
		f.plane = pool{name: "QuoinControlPlane prod", spec: "v1.35.4", nodes: []string{"v1.35.4"}}
		f.addons = "v1.35.4"
		for _, pool := range []string{"a", "b", "c"} {
			f.pool(pool + ":v1.35.4")
		}
		f.rollout.Groups = []quoinv1.RolloutGroup{group("c", 0), group("b", 1)}
		for range 200 {
			if f.step(false); f.pools[2].spec == "v1.36.3" {
				break
			}
			f.advance()
		}
		f.frozen = true
		f.rollout.Groups = []quoinv1.RolloutGroup{group("b", 0), group("c", 1)}
		f.rollout.Groups[1].Suspend = ptr.To(suspends)
		f.through()
		if raised := f.pools[1].spec == "v1.36.3"; raised != suspends || f.pools[2].spec != "v1.36.3" {
			t.Errorf("suspended %v: b has %s, c has %s", suspends, f.pools[1].spec, f.pools[2].spec)
		}
		f.frozen = false
		if f.through(); !f.completed() {
			t.Errorf("suspended %v: it does not end: %s", suspends, strings.Join(f.writes, "\n"))
		}
	}
}

// Pools are raised as the RolloutPolicy has them: by its groups, then those that it does not select, and last those of
// a group that is suspended, which others would else wait for though the policy has them wait for nobody.
func TestPoolsAreRaisedInTheOrderOfTheRolloutPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		policy func(*quoinv1.RolloutPolicySpec)
		want   []string
	}{
		"no policy": {policy: func(*quoinv1.RolloutPolicySpec) {}, want: []string{"a", "b", "c", "d"}},
		"groups": {want: []string{"d", "b", "a", "c"}, policy: func(s *quoinv1.RolloutPolicySpec) {
			s.Groups = []quoinv1.RolloutGroup{group("d", 0), group("b", 1)}
		}},
		"one is suspended": {want: []string{"b", "a", "c", "d"}, policy: func(s *quoinv1.RolloutPolicySpec) {
			s.Groups = []quoinv1.RolloutGroup{group("d", 0), group("b", 1)}
			s.Groups[0].Suspend = ptr.To(true)
		}},
	} {
		f := newFleet("v1.36.3")
		f.plane = pool{name: "QuoinControlPlane prod", spec: "v1.35.4", nodes: []string{"v1.35.4"}}
		f.addons = "v1.35.4"
		for _, pool := range []string{"a", "b", "c", "d"} {
			f.pool(pool + ":v1.35.4")
		}
		c.policy(&f.rollout)
		f.through()
		var raised []string
		for _, write := range f.writes {
			if rest, of := strings.CutPrefix(write, "SetVersion MachineDeployment "); of {
				raised = append(raised, strings.Fields(rest)[0])
			}
		}
		if !slices.Equal(raised, c.want) || !f.completed() {
			t.Errorf("%s: raised are %v, not %v, and completed is %v", name, raised, c.want, f.completed())
		}
	}
}

// What was done for one upgrade was not done for what its copied manifest becomes.
func TestACopiedManifestHasNothingBehindIt(t *testing.T) {
	of := &quoinv1.ClusterUpgrade{}
	of.Name, of.Spec.Version = "prod", "v1.36.3"
	of.Annotations = map[string]string{quoinv1.ClusterUpgradeBegunAnnotation: Mark(of, time.Now()),
		quoinv1.ClusterUpgradeCompletedAnnotation: Mark(of, time.Now())}
	for name, copied := range map[string]struct {
		change func(*quoinv1.ClusterUpgrade)
		want   bool
	}{
		"moved":           {change: func(*quoinv1.ClusterUpgrade) {}, want: true},
		"another name":    {change: func(u *quoinv1.ClusterUpgrade) { u.Name = "prod-2" }},
		"another version": {change: func(u *quoinv1.ClusterUpgrade) { u.Spec.Version = "v1.37.0" }},
	} {
		to := of.DeepCopy()
		copied.change(to)
		if Begun(to) != copied.want || Completed(to) != copied.want {
			t.Errorf("%s: begun is %v, completed %v", name, Begun(to), Completed(to))
		}
	}
}

// ended looks at the end of an upgrade.
func (f *fleet) ended(t *rapid.T) {
	to := f.upgrade.Spec.Version
	f.step(false)
	switch {
	case !f.completed() || f.upgrade.Status.Version != to:
		t.Fatalf("it did not end: %+v\n%s", f.upgrade.Status.Conditions, strings.Join(f.writes, "\n"))
	case f.record && (f.specVersion != to || f.statusVersion != to):
		t.Fatalf("recorded are %q and %q", f.specVersion, f.statusVersion)
	case f.plane.spec != to || f.plane.unsettled() != "":
		t.Fatalf("the control plane ended at %v", f.plane)
	}
	for _, p := range f.pools {
		if p.unsettled() != "" || p.spec != to && f.upgrade.Spec.Workers == quoinv1.UpgradeWorkersAll {
			t.Fatalf("a pool ended at %v", p)
		}
	}
	sets := map[string]int{}
	for _, write := range f.writes {
		if sets[write]++; sets[write] > 1 && strings.HasPrefix(write, string(SetVersion)) {
			t.Fatalf("%s twice, though nobody set it back\n%s", write, strings.Join(f.writes, "\n"))
		}
	}
	if next := Next(f.world(), &f.upgrade, f.now); next.Change != nil {
		t.Fatalf("%v after the end", next.Change)
	}
}
