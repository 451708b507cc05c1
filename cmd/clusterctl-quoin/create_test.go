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
	"net/http"
	"net/http/httptest"
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
		p.Bootstrap, p.Lacks, p.LacksHere = true, []string{"quoin"}, []string{"quoin"}
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
		p.Pivot = pivot.Releasing
		if err := m.fail(next, true); err != nil {
			return err
		}
		p.Pivot, m.managed = pivot.Done, false
	case removeBootstrap:
		if m.managed {
			return errors.New("the only management cluster is deleted")
		}
		p.Bootstrap = false
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
				g.Expect(m.found.Bootstrap).To(Equal(m.found.Pivot == pivot.Done && fatal == removeBootstrap && !after ||
					fatal != removeBootstrap && (fatal != makeBootstrap || after)), "kept after a failure")
				m.fail = func(stage, bool) error { return nil }
				m.found.Applied = false // another run
				g.Expect(reachAll(t.Context(), m, silent)).To(Succeed())
				g.Expect(m.found.Bootstrap).To(BeFalse(), "deleted after success")
				g.Expect(m.found.Pivot).To(Equal(pivot.Done))
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

// A pivot that is refused, or that was undone, leaves everything where it was, and is tried until the time is over.
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
	answers = []error{fmt.Errorf("%w: it is paused", execute.ErrRefused),
		fmt.Errorf("%w: a Machine is new", execute.ErrUndone)}
	g.Expect(try(time.Minute)).To(Succeed())
	g.Expect(tries).To(Equal(3))
	broken := errors.New("no route")
	answers = []error{broken}
	g.Expect(try(time.Minute)).To(MatchError(broken))
	answers = slices.Repeat([]error{execute.ErrRefused}, 1000)
	g.Expect(try(20 * time.Millisecond)).To(MatchError(ContainSubstring("it may not begin after 20ms")))
}

// A dry run says what comes next by what is found, and writes nothing: not to kind, not to a management cluster, and
// not to the workspace.
func TestADryRunOfACreationWritesNothing(t *testing.T) {
	const cluster = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: site}\n"
	for name, row := range map[string]struct {
		bootstrap bool
		pivot     pivot.Phase
		next      stage
	}{
		"nothing is there":         {next: makeBootstrap},
		"no provider is there":     {bootstrap: true, next: installThere},
		"a pivot is not finished":  {bootstrap: true, pivot: pivot.Releasing, next: pivotHere},
		"everything is there":      {bootstrap: true, pivot: pivot.Done, next: removeBootstrap},
		"the cluster runs already": {pivot: pivot.Done, next: created},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir, out := NewWithT(t), t.TempDir(), &bytes.Buffer{}
			there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				serveNothing(w, r)
			}))
			defer there.Close()
			file := filepath.Join(dir, "prod.yaml")
			g.Expect(os.WriteFile(file, []byte(cluster), 0o600)).To(Succeed())
			fake := &fakeKind{clusters: map[string]string{}}
			w := workspace{filepath.Join(dir, "workspace", "prod")}
			if row.bootstrap {
				fake.clusters[kindName("prod")] = "its kubeconfig"
				g.Expect(w.write(w.bootstrapKubeconfig(), kubeconfigOf(g, there))).To(Succeed())
			}
			if row.pivot != "" {
				g.Expect((&local{w, record{}}).Save(&pivot.Journal{ID: "a", Phase: row.pivot})).To(Succeed())
			}
			before := filesOf(g, dir)
			o := &options{workspace: filepath.Dir(w.dir), out: out}
			c := &creation{options: o, bootstrap: bootstrap{options: o, kind: fake}, files: []string{file}, dryRun: true,
				providers: providers{core: "cluster-api", infras: []string{"quoin"}}}
			g.Expect(c.run(t.Context(), "prod")).To(Succeed())
			g.Expect(out.String()).To(Equal("next: " + string(row.next) + "\n"))
			g.Expect(fake.created).To(BeZero())
			g.Expect(fake.clusters).To(HaveLen(map[bool]int{true: 1}[row.bootstrap]))
			g.Expect(filesOf(g, dir)).To(Equal(before))
		})
	}
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
	g := NewWithT(t)
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
	o := &options{workspace: t.TempDir()}
	g.Expect(os.MkdirAll(filepath.Join(o.workspace, "prod"), 0o700)).To(Succeed())
	for _, of := range []struct{ file, at, home string }{
		{"", "", ""}, {"kubeconfig", "kubeconfig", "kubeconfig"},
		{"bootstrap.kubeconfig", "bootstrap.kubeconfig", "kubeconfig"},
	} {
		if of.file != "" {
			g.Expect(os.WriteFile(filepath.Join(o.workspace, "prod", of.file), nil, 0o600)).To(Succeed())
		}
		for home, want := range map[bool]string{false: of.at, true: of.home} {
			found, _, err := o.managing("prod", home)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(filepath.Base(found.Path)).To(Equal(filepath.Base(want)))
		}
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
