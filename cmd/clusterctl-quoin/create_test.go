// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
)

// memorySite is a machine with kind in memory. It fails, or dies, before or after a stage.
type memorySite struct {
	found creationFound
	// managed says that the bootstrap cluster has the Cluster.
	managed bool
	log     []stage
	fail    func(stage, bool) error
}

func (m *memorySite) next(context.Context) (stage, error) { return m.found.next(), nil }

func (m *memorySite) reach(_ context.Context, next stage) error {
	if err := m.fail(next, false); err != nil {
		return err
	}
	m.log = append(m.log, next)
	p := &m.found
	switch next {
	case makeBootstrap:
		p.Bootstrap, p.Left, p.Lacks, p.LacksHere = true, true, []string{"quoin"}, []string{"quoin"}
	case installThere:
		p.Lacks = nil
	case applyObjects:
		p.Applied, m.managed = true, true
	case awaitInitialized:
		p.Initialized = true
	case applyNetwork:
		p.Network = true
	case awaitSettled:
		p.Settled = true
	case installHere:
		p.LacksHere = nil
	case pivotHere:
		p.Open = true
		if err := m.fail(next, true); err != nil {
			return err
		}
		p.Open, p.Moved, m.managed = false, true, false
	case removeBootstrap:
		if m.managed {
			return errors.New("the only management cluster is deleted")
		}
		p.Bootstrap, p.Left = false, false
	}
	return m.fail(next, true)
}

var allStages = []stage{makeBootstrap, installThere, applyObjects, awaitInitialized, applyNetwork, awaitSettled,
	installHere, pivotHere, removeBootstrap}

// A command that fails before or after any stage keeps the bootstrap cluster, and the next one goes on: no stage but
// the files' is reached a second time.
//
// Proves: S0-69
func TestACreationThatFailsGoesOn(t *testing.T) {
	silent := func(string, ...any) {}
	for _, fatal := range allStages {
		for _, after := range []bool{false, true} {
			t.Run(string(fatal), func(t *testing.T) {
				g, broken := NewWithT(t), errors.New("killed")
				m := &memorySite{fail: func(s stage, done bool) error {
					if s == fatal && done == after {
						return broken
					}
					return nil
				}}
				g.Expect(reachAll(t.Context(), m, silent)).To(MatchError(broken))
				g.Expect(m.found.Bootstrap).To(Equal(m.found.Moved && fatal == removeBootstrap && !after ||
					fatal != removeBootstrap && (fatal != makeBootstrap || after)), "kept after a failure")
				m.fail = func(stage, bool) error { return nil }
				m.found.Applied = false // another run
				g.Expect(reachAll(t.Context(), m, silent)).To(Succeed())
				g.Expect(m.found.Bootstrap).To(BeFalse(), "deleted after success")
				g.Expect(m.found.Moved).To(BeTrue())
				count := map[stage]int{}
				for _, s := range m.log {
					count[s]++
				}
				for _, s := range allStages {
					switch s {
					case applyObjects, pivotHere: // the files may have been edited; a pivot that is open goes on
						g.Expect(count[s]).To(BeElementOf(1, 2), "%s", s)
					default:
						g.Expect(count[s]).To(Equal(1), "%s", s)
					}
				}
			})
		}
	}
}

// A stage that is reached and does not show ends the command, where it would go round for ever.
func TestAStageThatDoesNotShowEndsIt(t *testing.T) {
	g := NewWithT(t)
	m := &memorySite{fail: func(stage, bool) error { return nil }}
	err := reachAll(t.Context(), stuck{m}, func(string, ...any) {})
	g.Expect(err).To(MatchError(ContainSubstring(string(makeBootstrap))))
}

// An API server that breaks a connection off is asked again, for a minute.
func TestTheNextStageIsAskedForAgain(t *testing.T) {
	cut := fmt.Errorf("listing: %w", &net.OpError{Op: "read", Err: syscall.ECONNRESET})
	for name, c := range map[string]struct {
		err  error
		most int
		want OmegaMatcher
	}{
		"answers later":     {cut, 3, Succeed()},
		"never answers":     {cut, 1 << 20, MatchError(cut)},
		"answers otherwise": {errors.New("forbidden"), 1, MatchError("forbidden")},
		"does not trust us": {&net.OpError{Op: "remote error", Err: errors.New("bad certificate")}, 1,
			MatchError(ContainSubstring("bad certificate"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				m := &silentSite{memorySite{fail: func(stage, bool) error { return nil }}, c.err, c.most}
				g.Expect(reachAll(t.Context(), m, func(string, ...any) {})).To(c.want)
			})
		})
	}
}

// What the first look refuses is refused as a whole; what is refused after a stage was reached gets directions.
func TestOnlyTheFirstLookRefusesAsAWhole(t *testing.T) {
	g := NewWithT(t)
	silent := func(string, ...any) {}
	refused := fmt.Errorf("%w: nothing is created anew", execute.ErrRefused)
	directions := func(error) error { return errors.New("the same command goes on") }
	first := &silentSite{memorySite{fail: func(stage, bool) error { return nil }}, refused, 1 << 20}
	g.Expect(exitCode(goThrough(t.Context(), first, silent, directions))).To(Equal(exitRefused))
	g.Expect(first.log).To(BeEmpty())
	later := &memorySite{fail: func(s stage, _ bool) error {
		if s == pivotHere {
			return refused
		}
		return nil
	}}
	err := goThrough(t.Context(), later, silent, directions)
	g.Expect(err).To(MatchError("the same command goes on"))
	g.Expect(exitCode(err)).To(Equal(1))
}

// silentSite is asked in vain so many times.
type silentSite struct {
	memorySite
	err  error
	left int
}

func (d *silentSite) next(ctx context.Context) (stage, error) {
	if d.left--; d.left >= 0 {
		return "", d.err
	}
	return d.memorySite.next(ctx)
}

// stuck forgets what was reached.
type stuck struct{ *memorySite }

func (stuck) next(context.Context) (stage, error) { return creationFound{}.next(), nil }

// A Cluster is available with its first control-plane Machine. It moves when the others are there, and is waited for
// again where one of them is not ready for a while.
func TestOnlyAClusterThatHasAllItsMachinesMoves(t *testing.T) {
	g := NewWithT(t)
	c := &clusterv1.Cluster{}
	set := func(kind string, status metav1.ConditionStatus, message string) {
		conditions.Set(c, metav1.Condition{Type: kind, Status: status, Reason: "R", Message: message})
	}
	g.Expect(uninitialized(c)).To(Equal("ControlPlaneInitialized is not known yet"))
	set(clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue, "")
	g.Expect(uninitialized(c)).To(BeEmpty())
	set(clusterv1.ClusterAvailableCondition, metav1.ConditionTrue, "")
	set(clusterv1.ClusterScalingUpCondition, metav1.ConditionTrue, "from 1 to 3 replicas")
	set(clusterv1.ClusterControlPlaneMachinesReadyCondition, metav1.ConditionFalse, "")
	set(clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionTrue, "")
	g.Expect(unsettled(c)).To(Equal("ScalingUp is True: from 1 to 3 replicas"))
	set(clusterv1.ClusterScalingUpCondition, metav1.ConditionFalse, "")
	g.Expect(unsettled(c)).To(Equal("ControlPlaneMachinesReady is False: R"))
	set(clusterv1.ClusterControlPlaneMachinesReadyCondition, metav1.ConditionTrue, "")
	g.Expect(unsettled(c)).To(BeEmpty())
	set(clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionUnknown, "no word")
	g.Expect(unsettled(c)).To(ContainSubstring("no word"))
	set(clusterv1.ClusterWorkerMachinesReadyCondition, metav1.ConditionTrue, "")
	set(clusterv1.ClusterAvailableCondition, metav1.ConditionFalse, "")
	g.Expect(unsettled(c)).To(HavePrefix("Available is False"))

	m := &memorySite{}
	flapped := false
	m.fail = func(s stage, done bool) error {
		if s == installHere && done && !flapped {
			flapped, m.found.Settled = true, false
		}
		return nil
	}
	g.Expect(reachAll(t.Context(), m, func(string, ...any) {})).To(Succeed())
	g.Expect(flapped).To(BeTrue())
}

// A pivot whose preflight fails, or that was undone, leaves everything where it was, and is tried until the time is
// over. One that a person has to see to, or that is undone each time, is not: each try pauses the source.
func TestAPivotIsTriedUntilItMay(t *testing.T) {
	g := NewWithT(t)
	var answers []error
	tries := 0
	try := func(timeout time.Duration) error {
		tries = 0
		return whenItMay(t.Context(), time.Millisecond, timeout, func(string, ...any) {}, func(context.Context) error {
			tries++
			if len(answers) > 0 {
				answer := answers[0]
				answers = answers[1:]
				return answer
			}
			return nil
		})
	}
	undone := fmt.Errorf("%w: a Machine is new", execute.ErrUndone)
	answers = []error{fmt.Errorf("%w: it rolls out", execute.ErrNotYet), undone}
	g.Expect(try(time.Minute)).To(Succeed())
	g.Expect(tries).To(Equal(3))
	broken := errors.New("no route")
	answers = []error{broken}
	g.Expect(try(time.Minute)).To(MatchError(broken))
	answers = slices.Repeat([]error{execute.ErrNotYet}, 1000)
	g.Expect(try(20 * time.Millisecond)).To(MatchError(ContainSubstring("it may not begin after 20ms")))
	answers = []error{execute.ErrRefused}
	g.Expect(try(time.Minute)).To(MatchError(execute.ErrRefused))
	g.Expect(tries).To(Equal(1))
	answers = slices.Repeat([]error{undone}, 1000)
	g.Expect(try(time.Minute)).To(And(MatchError(execute.ErrUndone), MatchError(ContainSubstring("undone 3 times"))))
	g.Expect(tries).To(Equal(3))
}

// A pivot that is under way is not cut off when the time is over in which it might begin, and one that is interrupted
// says what it left paused.
func TestAPivotThatIsUnderWayIsNotCutOff(t *testing.T) {
	for name, row := range map[string]struct {
		interrupt bool
		want      OmegaMatcher
	}{
		"the time is over": {false, Succeed()},
		"interrupted":      {true, MatchError(ContainSubstring("Clusters are paused on the source"))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				err := whenItMay(ctx, time.Second, time.Minute, func(string, ...any) {}, func(ctx context.Context) error {
					if row.interrupt {
						stop()
					}
					select {
					case <-ctx.Done():
						return fmt.Errorf("its Clusters are paused on the source: %w", ctx.Err())
					case <-time.After(time.Hour):
						return nil
					}
				})
				NewWithT(t).Expect(err).To(row.want)
			})
		})
	}
}

// What comes next is found in the workspace, in kind and in both management clusters, wherever the last pivot led. A
// dry run says so, and writes nothing: not to kind, not to a management cluster, and not to the workspace.
func TestADryRunOfACreationWritesNothing(t *testing.T) {
	const cluster = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: site}\n"
	const open, done = pivot.Releasing, pivot.Done
	journal := func(phase pivot.Phase) string { return journalOf("site", phase) }
	birth, wayThere, wayHome := trip("kind", "self"), trip("self", "kind"), back("kind", "self")
	for name, row := range map[string]struct {
		kind, file  bool // that kind has the bootstrap cluster, and the workspace its kubeconfig
		there, self []string
		last        *trips
		phase       pivot.Phase
		next        stage
		refused     string
	}{
		"nothing is there":        {next: makeBootstrap},
		"its kubeconfig is lost":  {kind: true, next: makeBootstrap},
		"no provider is there":    {kind: true, file: true, next: installThere},
		"providers are there":     {kind: true, file: true, there: providersThere, next: applyObjects},
		"a pivot is not finished": {kind: true, file: true, last: birth, phase: open, next: pivotHere},
		"everything is there": {kind: true, file: true, last: birth, phase: done, self: []string{cluster},
			next: removeBootstrap},
		"only its kubeconfig is left": {file: true, last: birth, phase: done, self: []string{cluster},
			next: removeBootstrap},
		"the cluster runs already":     {last: birth, phase: done, self: []string{cluster}, next: created},
		"it was upgraded from outside": {last: wayHome, phase: done, self: []string{cluster}, next: created},
		"the way to there was undone":  {last: wayThere, phase: pivot.Undone, self: []string{cluster}, next: created},
		"the cluster was deleted":      {last: birth, phase: done, refused: "which has none"},
		"its birth was undone": {kind: true, file: true, there: append(providersThere, cluster), last: birth,
			phase: pivot.Undone, next: applyObjects},
		"it is upgraded from there": {kind: true, file: true, there: append(providersThere, cluster), last: wayThere,
			phase: done, refused: "pivot prod --back"},
		"its way home was undone": {kind: true, file: true, there: append(providersThere, cluster), last: wayHome,
			phase: pivot.Undone, refused: "pivot prod --back"},
		"it was deleted there": {kind: true, file: true, there: providersThere, last: wayThere, phase: done,
			next: applyObjects},
		"what manages it is gone": {last: wayThere, phase: done, refused: "the bootstrap cluster is gone"},
		"the workspace is lost in a pivot": {kind: true, file: true, there: append(providersThere, cluster, journal(open)),
			next: pivotHere},
		"the workspace is lost after it": {kind: true, file: true, there: append(providersThere, journal(done)),
			refused: "does not say where it is"},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir, out := NewWithT(t), t.TempDir(), &bytes.Buffer{}
			file := filepath.Join(dir, "prod.yaml")
			g.Expect(os.WriteFile(file, []byte(cluster), 0o600)).To(Succeed())
			fake := &fakeKind{clusters: map[string]string{}}
			w := workspace{filepath.Join(dir, "workspace", "prod")}
			there, self := newServed(t, row.there...), newServed(t, row.self...)
			if row.kind {
				fake.clusters[kindName("prod")] = "its kubeconfig"
			}
			if row.file {
				g.Expect(w.write(w.bootstrapKubeconfig(), kubeconfigOf(g, there.Server))).To(Succeed())
			}
			if row.last != nil {
				g.Expect(w.write(w.kubeconfig(), kubeconfigOf(g, self.Server))).To(Succeed())
				row.last.save(g, w, row.phase)
			}
			before := filesOf(g, dir)
			o := &options{workspace: filepath.Dir(w.dir), out: out}
			c := &creation{options: o, bootstrap: bootstrap{options: o, kind: fake}, files: []string{file}, dryRun: true,
				providers: providers{core: "cluster-api", infras: []string{"quoin"}}}
			err := c.run(t.Context(), "prod")
			if row.refused != "" {
				g.Expect(err).To(And(MatchError(execute.ErrRefused), MatchError(ContainSubstring(row.refused))))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out.String()).To(Equal("next: " + string(row.next) + "\n"))
			}
			g.Expect(fake.created).To(BeZero())
			g.Expect(fake.clusters).To(HaveLen(map[bool]int{true: 1}[row.kind]))
			g.Expect(filesOf(g, dir)).To(Equal(before))
			g.Expect(append(there.writes, self.writes...)).To(BeEmpty())
		})
	}
}

// A cluster that was deleted from the bootstrap cluster is created anew, and what the workspace knew of the old one
// goes. What is applied there, and the network plugin, has the namespace that kubectl would take.
func TestWhatIsAppliedAnew(t *testing.T) {
	const plugin = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cni}\n---\n" +
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: cni}\n"
	g, dir := NewWithT(t), t.TempDir()
	there, self := newServed(t, providersThere...), newServed(t)
	w := workspace{filepath.Join(dir, "prod")}
	g.Expect(w.write(w.bootstrapKubeconfig(), kubeconfigOf(g, there.Server))).To(Succeed())
	g.Expect(w.write(filepath.Join(w.dir, "cni.yaml"), []byte(plugin))).To(Succeed())
	trip("self", "kind").save(g, w, pivot.Done)
	o := &options{workspace: dir, out: &bytes.Buffer{}}
	s := &realSite{creation: &creation{options: o, network: filepath.Join(w.dir, "cni.yaml"),
		providers: providers{core: "cluster-api", infras: []string{"quoin"}},
		bootstrap: bootstrap{options: o, kind: &fakeKind{clusters: map[string]string{kindName("prod"): ""}}}},
		workspace: w, name: "prod", namespace: "site"}
	g.Expect(s.next(t.Context())).To(Equal(applyObjects))
	g.Expect(s.reach(t.Context(), applyObjects)).To(Succeed())
	g.Expect(w.lastPivot()).To(BeNil())

	g.Expect(w.write(w.kubeconfig(), kubeconfigOf(g, self.Server))).To(Succeed())
	target, err := cluster.NewProxy(s.targetKubeconfig()).NewClient(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.networkThere(t.Context(), target)).To(BeFalse())
	objects, err := readObjects([]string{s.network})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.apply(t.Context(), target, objects)).To(Succeed())
	g.Expect(self.writes).To(Equal([]string{"PATCH /api/v1/namespaces/default/configmaps/cni",
		"PATCH /api/v1/namespaces/cni"}))
	g.Expect(s.networkThere(t.Context(), target)).To(BeTrue())
}

// filesOf a folder, with what is in them.
func filesOf(g *WithT, dir string) map[string]string {
	found := map[string]string{}
	g.Expect(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			found[path] = ""
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	})).To(Succeed())
	return found
}

// library is clusterctl with plans, and what was applied.
type library struct {
	clusterctl.Client
	plans   []clusterctl.UpgradePlan
	applied []clusterctl.ApplyUpgradeOptions
}

func (l *library) PlanUpgrade(context.Context, clusterctl.PlanUpgradeOptions) ([]clusterctl.UpgradePlan, error) {
	return l.plans, nil
}

func (l *library) ApplyUpgrade(_ context.Context, options clusterctl.ApplyUpgradeOptions) error {
	l.applied = append(l.applied, options)
	return nil
}

// The providers are brought to the newest versions of their contract, and run, before a Cluster is upgraded by them.
//
// Proves: S0-61, S0-62
func TestProvidersAreRenewedFirst(t *testing.T) {
	item := func(name, next string) cluster.UpgradeItem {
		return cluster.UpgradeItem{NextVersion: next,
			Provider: clusterctlv1.Provider{ObjectMeta: metav1.ObjectMeta{Name: name}, Version: "v0.1.0"}}
	}
	plan := func(contract string, items ...cluster.UpgradeItem) clusterctl.UpgradePlan {
		return clusterctl.UpgradePlan{Contract: contract, Providers: items}
	}
	home := cluster.Kubeconfig{Path: "home"}
	for name, tc := range map[string]struct {
		plans   []clusterctl.UpgradePlan
		dry     bool
		applies bool
		says    string
		problem string
	}{
		"newer": {plans: []clusterctl.UpgradePlan{plan("v1beta1", item("infrastructure-quoin", "v0.0.9")),
			plan("v1beta2", item("cluster-api", ""), item("infrastructure-quoin", "v0.1.1"))}, applies: true,
			says: "provider infrastructure-quoin: v0.1.0 -> v0.1.1\n"},
		"newer, and only planned": {plans: []clusterctl.UpgradePlan{plan("v1beta2", item("control-plane-quoin", "v0.1.1"))},
			dry: true, says: "provider control-plane-quoin: v0.1.0 -> v0.1.1\n"},
		"none newer": {plans: []clusterctl.UpgradePlan{plan("v1beta2", item("cluster-api", ""))},
			says: "no provider has a newer version\n"},
		"no contract": {plans: []clusterctl.UpgradePlan{plan("v1beta1", item("cluster-api", ""))},
			problem: "contract v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			g, l, said := NewWithT(t), &library{plans: tc.plans}, ""
			err := (&providers{}).renew(t.Context(), l, home, tc.dry, func(format string, args ...any) {
				said += fmt.Sprintf(format+"\n", args...)
			})
			g.Expect(said).To(Equal(tc.says))
			if tc.problem != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.problem)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if !tc.applies {
				g.Expect(l.applied).To(BeEmpty())
				return
			}
			g.Expect(l.applied).To(ConsistOf(And(HaveField("Contract", "v1beta2"), HaveField("WaitProviders", true),
				HaveField("Kubeconfig.Path", "home"))))
		})
	}
}

// Who is asked is the management cluster that the last pivot left in charge, in the namespace that it moved.
func TestWhoIsAsked(t *testing.T) {
	for name, row := range map[string]struct {
		files     []string
		last      *trips
		phase     pivot.Phase
		at, home  string
		namespace string
	}{
		"nothing is known":   {},
		"the cluster itself": {files: []string{"self"}, at: "self", home: "self"},
		"no pivot was":       {files: []string{"self", "kind"}, at: "kind", home: "self"},
		"born": {files: []string{"self", "kind"}, last: trip("kind", "self"), phase: pivot.Done,
			at: "self", home: "self", namespace: "site"},
		"its birth was undone": {files: []string{"self", "kind"}, last: trip("kind", "self"), phase: pivot.Undone,
			at: "kind", home: "self", namespace: "site"},
		"there": {files: []string{"other", "kind"}, last: trip("other", "kind"), phase: pivot.Done,
			at: "kind", home: "other", namespace: "site"},
		"back": {files: []string{"other", "kind"}, last: back("kind", "other"), phase: pivot.Done,
			at: "other", home: "other", namespace: "site"},
		"under way": {files: []string{"self", "kind"}, last: trip("kind", "self"), phase: pivot.Copying,
			at: "kind", home: "self"},
		"who was in charge is gone": {files: []string{"self"}, last: trip("self", "kind"), phase: pivot.Done, at: "self",
			home: "self"},
		"the bootstrap cluster went": {files: []string{"self"}, last: trip("kind", "self"), phase: pivot.Done, at: "self",
			home: "self", namespace: "site"},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir := NewWithT(t), t.TempDir()
			w := workspace{filepath.Join(dir, "prod")}
			for _, file := range row.files {
				g.Expect(w.write(pathOf(w, file), nil)).To(Succeed())
			}
			if row.last != nil {
				row.last.save(g, w, row.phase)
			}
			for home, want := range map[bool]string{false: row.at, true: row.home} {
				o := &options{workspace: dir}
				found, _, err := o.managing("prod", home)
				g.Expect(err).NotTo(HaveOccurred())
				if want != "" {
					want = pathOf(w, want)
				}
				g.Expect(found.Path).To(Equal(want), "home: %t", home)
				if !home {
					g.Expect(o.namespace).To(Equal(row.namespace))
				}
			}
			named := &options{workspace: dir, kubeconfig: cluster.Kubeconfig{Path: "named"}}
			found, _, err := named.managing("prod", false)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(Equal(named.kubeconfig))
		})
	}
}

// What is not in the Cluster's own namespace would go with the bootstrap cluster.
func TestFilesHaveOneNamespace(t *testing.T) {
	const prod = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: site}\n"
	for name, c := range map[string]struct{ content, namespace, problem string }{
		"one":           {prod + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: ssh, namespace: site}\n", "site", ""},
		"its Namespace": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: site}\n---\n" + prod, "site", ""},
		"another": {prod + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: ssh, namespace: other}\n",
			"", "other"},
		"none is default": {prod + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: ssh}\n", "", "default"},
		"no Cluster":      {"apiVersion: v1\nkind: Secret\nmetadata: {name: ssh}\n", "", "no file has a Cluster prod"},
		"another API's Cluster": {"apiVersion: example.com/v1\nkind: Cluster\nmetadata: {name: prod}\n", "",
			"no file has a Cluster prod"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "objects.yaml")
			g.Expect(os.WriteFile(file, []byte(c.content), 0o600)).To(Succeed())
			objects, err := readObjects([]string{file})
			g.Expect(err).NotTo(HaveOccurred())
			namespace, err := oneNamespace(objects, "prod")
			g.Expect(namespace).To(Equal(c.namespace))
			if c.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.problem)))
			}
		})
	}
}

// What was installed before a kill is not asked for again, whichever version it has: clusterctl would refuse.
func TestOnlyMissingProvidersAreInstalled(t *testing.T) {
	g := NewWithT(t)
	p := &providers{core: "cluster-api:v1.14.2", bootstraps: []string{"kubeadm"}, controlPlanes: []string{"quoin"},
		infras: []string{"quoin:v0.1.0", "docker"}}
	g.Expect(names(p.missing(nil))).To(ConsistOf("cluster-api:v1.14.2", "kubeadm", "quoin", "quoin:v0.1.0", "docker"))
	there := []clusterctlv1.Provider{
		{Type: string(clusterctlv1.CoreProviderType), ProviderName: "cluster-api", Version: "v1.14.1"},
		{Type: string(clusterctlv1.InfrastructureProviderType), ProviderName: "quoin", Version: "v0.1.0"},
	}
	missing := p.missing(there)
	g.Expect(missing.CoreProvider).To(BeEmpty())
	g.Expect(missing.BootstrapProviders).To(Equal([]string{"kubeadm"}))
	g.Expect(missing.ControlPlaneProviders).To(Equal([]string{"quoin"}), "one of the same name serves another purpose")
	g.Expect(missing.InfrastructureProviders).To(Equal([]string{"docker"}))
}

// What goes through a bootstrap cluster finds the providers there that it has at home, whatever is newest: clusterctl
// moves nothing to older ones, and it could not come back.
func TestABootstrapClusterGetsTheProvidersOfHome(t *testing.T) {
	g := NewWithT(t)
	p := &providers{config: "c", core: "cluster-api", bootstraps: []string{"kubeadm"},
		controlPlanes: []string{"quoin:v0.3.0"}, infras: []string{"quoin", "docker"}}
	as := p.as([]clusterctlv1.Provider{
		{Type: string(clusterctlv1.CoreProviderType), ProviderName: "cluster-api", Version: "v1.14.1"},
		{Type: string(clusterctlv1.BootstrapProviderType), ProviderName: "kubeadm", Version: "v1.14.0"},
		{Type: string(clusterctlv1.ControlPlaneProviderType), ProviderName: "quoin", Version: "v0.1.0"},
		{Type: string(clusterctlv1.InfrastructureProviderType), ProviderName: "quoin", Version: "v0.2.0"},
	})
	g.Expect(*as).To(Equal(providers{config: "c", core: "cluster-api:v1.14.1", bootstraps: []string{"kubeadm:v1.14.0"},
		controlPlanes: []string{"quoin:v0.3.0"}, infras: []string{"quoin:v0.2.0", "docker"}}), "docker is not at home")
}
