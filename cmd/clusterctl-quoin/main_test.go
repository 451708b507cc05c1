// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	kind "sigs.k8s.io/kind/pkg/cluster"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// TestHelpAndTables draws the help of every command, and the tables, also as scripts read them.
func TestHelpAndTables(t *testing.T) {
	running := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "to-1.36",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "left out, for it is long"}}},
		Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "prod", Version: "v1.36.3"},
		Status: quoinv1.ClusterUpgradeStatus{
			Plan: &quoinv1.UpgradePlan{ID: "5f3a", Holds: []quoinv1.UpgradeHold{{Type: quoinv1.UpgradeHoldApproval,
				Message: "spec.approvedPlan is to be 5f3a"}}},
			Conditions: []metav1.Condition{
				{Type: quoinv1.ClusterUpgradeProgressingCondition, Status: metav1.ConditionFalse,
					Reason: quoinv1.ApprovalRequiredReason, Message: "waits for a person\nwho approves"},
				{Type: quoinv1.ClusterUpgradePlannedCondition, Status: metav1.ConditionTrue, Reason: quoinv1.PlannedReason,
					Message: "left out, for the table says it"}},
			Steps: []quoinv1.UpgradeStep{
				{Type: quoinv1.UpgradeStepPreflight, State: quoinv1.UpgradeStepDone, Message: "left out, for it is done"},
				{Type: quoinv1.UpgradeStepWorkers, Object: "MachineDeployment blue", From: []string{"v1.34.1", "v1.35.4"},
					To: "v1.36.3", Change: quoinv1.UpgradeStepReplace, EstimatedSeconds: ptr.To[int32](690),
					Machines: &quoinv1.UpgradeStepMachines{Count: ptr.To[int32](3)}, State: quoinv1.UpgradeStepPending,
					Holds: []quoinv1.UpgradeHold{{Type: quoinv1.UpgradeHoldWindow, Message: "Saturday 02:00 UTC"}}},
			}}}
	checks := []pivot.Check{
		{Name: "Cluster prod is movable", Result: pivot.Failed,
			Message: "MachinesWithoutNode: Machine prod-3 has no node yet"},
		{Name: "Managers can be rescheduled on the target", Result: pivot.Warning, Message: "1 schedulable nodes"},
	}
	status := execute.Status{Phase: pivot.Releasing, Next: pivot.Step{Action: pivot.Release,
		Message: "goes on releasing"},
		World: pivot.World{Source: pivot.Side{Present: []pivot.Object{{Kind: "QuoinHost", Name: "h"}}, Marked: 1},
			Target: pivot.Side{Clusters: []pivot.Cluster{{Name: "prod", Paused: true}, {Name: "edge"}}}}}
	object := func(kind, name string) pivot.Object { return pivot.Object{Kind: kind, Namespace: "site", Name: name} }
	outlook := execute.Plan{Namespace: "site", Next: pivot.Step{Action: pivot.Begin, Message: "Cluster prod moves"}, Checks: checks[1:],
		Objects: []pivot.Object{{Kind: "ClusterClass", Namespace: "classes", Name: "metal"}, object("Cluster", "prod"),
			object("QuoinHost", "rack-2"), object("QuoinHost", "rack-1"), object("Secret", "ssh"), object("Secret", "prod-ca")},
		PointOfNoReturn: "when all 6 objects are on the target", Undo: "--abort deletes the copies"}
	values := map[string]any{"plan": running, "preflight": checks, "status": status, "pivot --dry-run": outlook}
	tables := map[string][][]string{
		"plan": planTable(running),
		"not planned": planTable(&quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "new"},
			Spec: quoinv1.ClusterUpgradeSpec{Version: "v1.36.3"}}),
		"preflight":       checkTable(checks),
		"status":          statusTable(status),
		"pivot --dry-run": outlookTable(outlook),
		"pivot --abort --dry-run": outlookTable(execute.Plan{Phase: pivot.Releasing, Next: pivot.Step{Action: pivot.Refuse,
			Message: "the point of no return is behind"}}),
	}
	// What is said where a command that has several stages ends early (S0-69).
	kept, gone := workspace{t.TempDir()}, workspace{"nowhere"}
	NewWithT(t).Expect(os.WriteFile(kept.bootstrapKubeconfig(), nil, 0o600)).To(Succeed())
	refused := fmt.Errorf("cannot pivot to the cluster itself: %w: Cluster prod is paused", execute.ErrRefused)
	early := map[string]string{}
	directions := map[string]error{}
	for name, last := range map[string]*record{
		"upgrade --use-bootstrap":                  trip("kind", "self").record(kept, pivot.Done),
		"upgrade --use-bootstrap, going there":     trip("self", "kind").record(kept, pivot.Copying),
		"upgrade --use-bootstrap, there":           trip("self", "kind").record(kept, pivot.Done),
		"upgrade --use-bootstrap, on the way home": back("kind", "self").record(kept, pivot.Releasing),
	} {
		NewWithT(t).Expect((&local{kept, *last}).Save(last.Journal)).To(Succeed())
		directions[name] = (&detour{raise: &raise{wish: quoinv1.ClusterUpgradeSpec{ClusterName: "prod"}},
			workspace: kept}).directions(refused)
	}
	for name, err := range map[string]error{
		"create":                            (&realSite{workspace: kept, namespace: "site", name: "prod"}).directions(refused),
		"create, before there is a cluster": (&realSite{workspace: gone, namespace: "site", name: "prod"}).directions(refused),
	} {
		directions[name] = err
	}
	for name, err := range directions {
		early[name] = fmt.Sprintf("%s\nexit code %d", strings.ReplaceAll(err.Error(), kept.dir, "quoin-workspace/prod"), exitCode(err))
	}
	datadriven.RunTest(t, "testdata/output.txt", func(t *testing.T, d *datadriven.TestData) string {
		var out bytes.Buffer
		switch d.Cmd {
		case "run":
			root := newRoot(&out)
			root.SetArgs(strings.Fields(d.Input))
			if err := root.ExecuteContext(t.Context()); err != nil {
				fmt.Fprintln(&out, "Error:", err)
			}
		case "directions":
			fmt.Fprintln(&out, early[d.Input])
		case "table":
			format := ""
			d.MaybeScanArgs(t, "o", &format)
			if err := show(&out, format, values[d.Input], tables[d.Input]); err != nil {
				fmt.Fprintln(&out, "Error:", err)
			}
		}
		return out.String()
	})
}

func TestExitCodes(t *testing.T) {
	g := NewWithT(t)
	g.Expect(exitCode(fmt.Errorf("%w: it is paused", execute.ErrRefused))).To(Equal(3))
	g.Expect(exitCode(fmt.Errorf("%w: no", execute.ErrUndone))).To(Equal(4))
	g.Expect(exitCode(errors.New("no route"))).To(Equal(1))
}

// fakeKind has clusters by name, with the kubeconfig of each.
type fakeKind struct {
	clusters map[string]string
	created  int
}

func (f *fakeKind) List() (names []string, _ error) {
	for name := range f.clusters {
		names = append(names, name)
	}
	return names, nil
}

func (f *fakeKind) Create(name string, _ ...kind.CreateOption) error {
	f.created++
	f.clusters[name] = "a kubeconfig with its key"
	return nil
}
func (f *fakeKind) KubeConfig(name string, _ bool) (string, error) { return f.clusters[name], nil }
func (f *fakeKind) Delete(name, _ string) error                    { delete(f.clusters, name); return nil }

// The upgrade that is carried out is shown, not one that waits for it, is being deleted, or is over.
func TestThePlanIsOfTheUpgradeThatIsCarriedOut(t *testing.T) {
	g := NewWithT(t)
	const over, begun = quoinv1.ClusterUpgradeCompletedAnnotation, quoinv1.ClusterUpgradeBegunAnnotation
	made := func(name, of string, minute int, annotations ...string) *quoinv1.ClusterUpgrade {
		at := time.Date(2026, 11, 25, 12, minute, 0, 0, time.UTC)
		u := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			CreationTimestamp: metav1.NewTime(at), Annotations: map[string]string{}},
			Spec: quoinv1.ClusterUpgradeSpec{ClusterName: of, Version: "v1.36.3"}}
		for _, annotation := range annotations {
			u.Annotations[annotation] = upgrade.Mark(u, at)
			// A move makes all objects anew, in any order.
			u.CreationTimestamp = metav1.NewTime(at.Add(-2 * time.Duration(minute) * time.Minute))
		}
		return u
	}
	leaving := func(u *quoinv1.ClusterUpgrade) *quoinv1.ClusterUpgrade {
		u.DeletionTimestamp, u.Finalizers = ptr.To(metav1.Now()), []string{"somebody/waits"}
		return u
	}
	c := fake.NewClientBuilder().WithScheme(clienttest.Scheme(quoinv1.AddToScheme)).WithObjects(
		made("a-over", "prod", 1, begun, over), made("b-waits", "prod", 2), made("c-runs", "prod", 3, begun),
		made("d-first", "next", 1), made("e-second", "next", 2),
		made("g-over", "edge", 1, begun, over), made("f-newest", "edge", 2, begun, over),
		leaving(made("h-deleted", "gone", 1, begun)), made("i-next", "gone", 2), leaving(made("j-deleted", "last", 1)),
		leaving(made("k-over", "kept", 1, begun, over))).Build()
	for cluster, want := range map[string]string{"prod": "c-runs", "next": "d-first", "edge": "f-newest", "gone": "i-next",
		"kept": "k-over"} {
		g.Expect(upgradeOf(t.Context(), c, "ns", cluster)).To(HaveField("Name", want))
	}
	g.Expect(upgradeOf(t.Context(), c, "elsewhere", "prod")).To(BeNil())
	g.Expect(upgradeOf(t.Context(), c, "ns", "last")).To(BeNil(), "what is being deleted does nothing more")
}

// On a terminal what was said last moves below, with the time that it takes; a question stays in its line.
func TestATerminalShowsForHowLong(t *testing.T) {
	g := NewWithT(t)
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	defer func() { g.Expect(person.Close()).To(Succeed()) }()
	number, err := unix.IoctlGetUint32(int(person.Fd()), unix.TIOCGPTN)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)).To(Succeed())
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(terminal.Close()).To(Succeed()) }()
	t.Setenv("TERM", "xterm")

	var seen strings.Builder
	see := func() string {
		part := make([]byte, 4096)
		n, _ := unix.Read(int(person.Fd()), part)
		seen.Write(part[:max(n, 0)])
		return seen.String()
	}
	r := &raise{options: &options{out: progress.New(terminal)}, in: strings.NewReader("")}
	r.say("%s", applyObjects)
	g.Eventually(see).WithTimeout(time.Minute).Should(MatchRegexp(`apply the objects \([1-9]`))
	u := &quoinv1.ClusterUpgrade{Status: quoinv1.ClusterUpgradeStatus{Plan: &quoinv1.UpgradePlan{ID: "5f3a"}}}
	g.Expect(r.confirm(t.Context(), nil, u, bufio.NewScanner(r.in))).NotTo(Succeed())
	g.Eventually(see).WithTimeout(time.Minute).Should(HaveSuffix("Carry out plan 5f3a? [y/N] "))
	g.Consistently(see).WithTimeout(500 * time.Millisecond).Should(HaveSuffix("Carry out plan 5f3a? [y/N] "))
}

// Proves: S0-67
func TestTheBootstrapKubeconfigHasAKnownPlace(t *testing.T) {
	g, dir, out := NewWithT(t), t.TempDir(), &bytes.Buffer{}
	o := &options{workspace: filepath.Join(dir, "quoin-workspace"), out: out}
	fake := &fakeKind{clusters: map[string]string{}}
	b := &bootstrap{options: o, kind: fake}
	w, err := o.workspaceOf("prod")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.kubeconfigPath(t.Context(), w, "prod")).NotTo(Succeed())
	g.Expect(b.create(t.Context(), w, "prod")).To(Succeed())
	path := filepath.Join(dir, "quoin-workspace", "prod", "bootstrap.kubeconfig")
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("a kubeconfig with its key"))
	info, err := os.Stat(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	entries, err := os.ReadDir(w.dir)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(1), "no other file with the key")

	g.Expect(b.create(t.Context(), w, "prod")).To(Succeed(), "again")
	g.Expect(fake.created).To(Equal(1))
	out.Reset()
	g.Expect(b.kubeconfigPath(t.Context(), w, "prod")).To(Succeed())
	g.Expect(out.String()).To(Equal(path + "\n"))

	g.Expect(b.remove(t.Context(), w, "prod")).To(MatchError(execute.ErrRefused), "nobody says what it manages")
	g.Expect(fake.clusters).To(HaveLen(1))
	b.force = true
	g.Expect(b.remove(t.Context(), w, "prod")).To(Succeed())
	g.Expect(fake.clusters).To(BeEmpty())
	g.Expect(path).NotTo(BeAnExistingFile())
}

// kubeconfigOf a server that plays an API server.
func kubeconfigOf(g *WithT, server *httptest.Server) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c"}, "c"
	content, err := clientcmd.Write(*config)
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

// The bootstrap cluster itself is asked what it manages: the workspace's file may be about another one, which is empty.
func TestTheBootstrapClusterItselfIsAsked(t *testing.T) {
	g := NewWithT(t)
	content := kubeconfigOf(g, newServed(t).Server)

	o := &options{workspace: t.TempDir(), out: &bytes.Buffer{}}
	w, err := o.workspaceOf("prod")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.write(w.bootstrapKubeconfig(), content)).To(Succeed())
	g.Expect(managedBy(t.Context(), content)).To(BeEmpty())
	fake := &fakeKind{clusters: map[string]string{kindName("prod"): "that of another cluster"}}
	b := &bootstrap{options: o, kind: fake}
	g.Expect(b.remove(t.Context(), w, "prod")).To(MatchError(execute.ErrRefused))
	g.Expect(fake.clusters).To(HaveLen(1))

	// A pivot that is not finished needs it, whatever is there yet. When it is empty, what the workspace knows goes with
	// it.
	deletes := func(content string) error {
		trip("self", "kind").save(g, w, pivot.Done)
		fake.clusters[kindName("prod")] = string(kubeconfigOf(g, newServed(t, content).Server))
		return b.remove(t.Context(), w, "prod")
	}
	g.Expect(deletes(journalOf("site", pivot.Copying))).To(And(MatchError(execute.ErrRefused),
		MatchError(ContainSubstring("pivot of namespace site, which is Copying"))))
	g.Expect(deletes("apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: site}\n")).To(
		MatchError(ContainSubstring("manages Cluster site/prod")))
	g.Expect(w.lastPivot()).NotTo(BeNil())
	b.force = true
	g.Expect(deletes(journalOf("site", pivot.Copying))).To(Succeed())
	g.Expect(w.lastPivot()).NotTo(BeNil(), "somebody has to know")
	b.force = false
	g.Expect(deletes(journalOf("site", pivot.Done))).To(Succeed())
	g.Expect(w.lastPivot()).To(BeNil())
	trip("kind", "self").save(g, w, pivot.Done)
	fake.clusters[kindName("prod")] = string(content)
	g.Expect(b.remove(t.Context(), w, "prod")).To(Succeed())
	g.Expect(w.lastPivot()).NotTo(BeNil(), "it went elsewhere")
}

// kind lists a cluster before it is whole. One whose making was killed is made again; one that was handed out is not.
func TestABootstrapClusterThatIsNotWholeIsMadeAgain(t *testing.T) {
	g := NewWithT(t)
	w := workspace{t.TempDir()}
	fake := &fakeKind{clusters: map[string]string{kindName("prod"): "half of it"}}
	b := &bootstrap{options: &options{out: &bytes.Buffer{}}, kind: fake}
	killed := func() { g.Expect(os.MkdirAll(filepath.Join(w.dir, scratchPrefix+"1"), 0o700)).To(Succeed()) }
	killed()
	g.Expect(b.create(t.Context(), w, "prod")).To(Succeed())
	g.Expect(fake.created).To(Equal(1))
	g.Expect(os.ReadFile(w.bootstrapKubeconfig())).To(Equal([]byte("a kubeconfig with its key")))
	killed()
	g.Expect(b.create(t.Context(), w, "prod")).To(Succeed())
	g.Expect(fake.created).To(Equal(1))
	g.Expect(os.ReadDir(w.dir)).To(HaveLen(1), "what kind left is gone")
}

// A bootstrap cluster is deleted when the pivot is done, and its kubeconfig with it.
func TestTheStatusAfterTheBootstrapClusterIsGone(t *testing.T) {
	g := NewWithT(t)
	content := kubeconfigOf(g, newServed(t,
		"apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: prod, namespace: \"n\"}\n").Server)
	dir := t.TempDir()
	w := workspace{filepath.Join(dir, "prod")}
	g.Expect(w.write(w.kubeconfig(), content)).To(Succeed())
	status := func(r record, phase pivot.Phase, more ...string) (string, error) {
		r.Namespace = "n"
		g.Expect((&local{w, r}).Save(&pivot.Journal{ID: "a", Phase: phase, Namespace: "n"})).To(Succeed())
		var out bytes.Buffer
		root := newRoot(&out)
		args := []string{"status", "prod", "--workspace", dir}
		if phase != pivot.Releasing {
			args = append(args, "--watch")
		}
		root.SetArgs(append(args, more...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	gone, here := cluster.Kubeconfig{Path: w.bootstrapKubeconfig()}, cluster.Kubeconfig{Path: w.kubeconfig()}
	out, err := status(record{Source: gone, Target: here}, pivot.Done)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(MatchRegexp(`source +nothing`), MatchRegexp(`target +acts on prod`),
		ContainSubstring("Nothing: the last pivot is Done, and the management cluster of "+gone.Path+" is gone")))
	out, err = status(record{Source: here, Target: gone}, pivot.Undone)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(MatchRegexp(`source +acts on prod`))
	silent := httptest.NewServer(nil)
	silent.Close()
	g.Expect(w.write(filepath.Join(w.dir, "silent"), kubeconfigOf(g, silent))).To(Succeed())
	for _, side := range []cluster.Kubeconfig{gone, {Path: filepath.Join(w.dir, "silent")}} {
		out, err = status(record{Source: side, Target: here}, pivot.Releasing)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(out).To(And(MatchRegexp(`source +does not answer`), MatchRegexp(`target +acts on prod`),
			MatchRegexp(`PHASE +Releasing`), MatchRegexp(`NEXT +Refuse: the last pivot is Releasing, and.*`+side.Path+`.*docs/pivot.md`)))
	}
	_, err = status(record{Source: gone, Target: gone}, pivot.Done)
	g.Expect(err).To(MatchError(ContainSubstring(gone.Path)))
	_, err = status(record{Source: gone, Target: here}, pivot.Done, "--kubeconfig", "named")
	g.Expect(err).To(MatchError(ContainSubstring("/named")), "the command names a side")
}

// A pivot is watched to its end, in a line whenever something changes.
func TestAPivotIsWatched(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	at := func(phase pivot.Phase, source, target int) execute.Status {
		return execute.Status{Phase: phase, Next: pivot.Step{Message: "goes on"}, World: pivot.World{
			Source: pivot.Side{Clusters: []pivot.Cluster{{Name: "prod", Paused: true}}, Present: make([]pivot.Object, source)},
			Target: pivot.Side{Present: make([]pivot.Object, target)}}}
	}
	answers := []any{at(pivot.Copying, 9, 2), at(pivot.Copying, 9, 2), at(pivot.Copying, 9, 4), errors.New("no route"),
		at(pivot.Releasing, 7, 9), at(pivot.Done, 0, 9), at(pivot.Done, 0, 9)}
	look := func(context.Context) (s execute.Status, _ [][]string, err error) {
		switch answer := answers[0].(type) {
		case error:
			err = answer
		case execute.Status:
			s = answer
		}
		answers = answers[1:]
		return s, statusTable(s), err
	}
	o := &options{out: out}
	g.Expect(o.watch(t.Context(), time.Millisecond, look)).To(Succeed())
	g.Expect(answers).To(HaveLen(1), "it ends with the pivot")
	lines := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `).ReplaceAllString(out.String(), "")
	g.Expect(lines).To(Equal(`Copying: source has paused prod, 9 objects; target nothing, 2 objects
Copying: source has paused prod, 9 objects; target nothing, 4 objects
no answer: no route
Releasing: source has paused prod, 7 objects; target nothing, 9 objects
Done: goes on
`))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(o.watch(ctx, time.Hour, func(context.Context) (s execute.Status, _ [][]string, err error) {
		return s, nil, ctx.Err()
	})).To(MatchError(context.Canceled))
}

// A kubeconfig is kept as it is found from any folder, and when another context is made the current one.
func TestAKubeconfigIsResolved(t *testing.T) {
	g := NewWithT(t)
	t.Chdir(t.TempDir())
	config := clientcmdapi.NewConfig()
	config.Contexts["a"], config.CurrentContext = &clientcmdapi.Context{}, "a"
	g.Expect(clientcmd.WriteToFile(*config, "k")).To(Succeed())
	dir, err := os.Getwd()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(resolved(cluster.Kubeconfig{Path: "k"})).
		To(Equal(cluster.Kubeconfig{Path: filepath.Join(dir, "k"), Context: "a"}))
	g.Expect(resolved(cluster.Kubeconfig{Path: "k", Context: "b"})).To(HaveField("Context", "b"))
}

// A way that the workspace remembers is refused where a file of it reaches another management cluster now.
func TestTheWayBackIsTheSame(t *testing.T) {
	g := NewWithT(t)
	last := &record{Journal: &pivot.Journal{Source: "kind", Target: "self"}}
	back := record{Back: true}
	g.Expect(sameWay(last, back, "self", "kind")).To(Succeed())
	g.Expect(sameWay(last, back, "other", "kind")).To(MatchError(execute.ErrRefused))
	g.Expect(sameWay(last, back, "self", "other")).To(MatchError(execute.ErrRefused))
	g.Expect(sameWay(last, record{}, "kind", "self")).To(Succeed(), "--abort of the way there")
	g.Expect(sameWay(last, record{}, "self", "kind")).To(MatchError(execute.ErrRefused))
	last = &record{Back: true, Journal: &pivot.Journal{Source: "self", Target: "kind"}}
	g.Expect(sameWay(last, back, "self", "kind")).To(Succeed(), "again")
	g.Expect(sameWay(last, back, "other", "kind")).To(MatchError(execute.ErrRefused))
	g.Expect(sameWay(last, record{named: true}, "other", "third")).To(Succeed(), "the command names both")
	g.Expect(sameWay(nil, record{}, "a", "b")).To(Succeed())
}

// The workspace remembers both sides, so that the way back needs no name of a file.
func TestThePivotBackNeedsNoHand(t *testing.T) {
	g := NewWithT(t)
	o := &options{workspace: t.TempDir(), namespace: "n"}
	w, err := o.workspaceOf("prod")
	g.Expect(err).NotTo(HaveOccurred())
	kindSide, self := cluster.Kubeconfig{Path: w.bootstrapKubeconfig()}, cluster.Kubeconfig{Path: "self.kubeconfig",
		Context: "admin"}
	between := func(p pivotOptions) (record, error) {
		p.options = o
		return p.between(w)
	}
	ended := func(r record, phase pivot.Phase) {
		l := &local{w, r}
		g.Expect(l.Save(&pivot.Journal{ID: "a", Phase: phase})).To(Succeed())
	}
	_, err = between(pivotOptions{back: true})
	g.Expect(err).To(MatchError(execute.ErrRefused), "back from where?")
	var out bytes.Buffer
	scripted := pivotOptions{options: &options{workspace: o.workspace, namespace: "n", out: &out}, back: true,
		output: "json"}
	g.Expect(scripted.rehearse(t.Context(), "prod", nil)).To(MatchError(execute.ErrRefused))
	g.Expect(out.String()).To(And(HavePrefix("{"), ContainSubstring(`"action": "Refuse"`),
		ContainSubstring("knows of no pivot")))
	g.Expect(w.write(w.bootstrapKubeconfig(), nil)).To(Succeed())

	there, err := between(pivotOptions{to: self})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(there).To(Equal(record{Source: kindSide, Target: self, Namespace: "n", named: true}),
		"from the bootstrap cluster of the workspace")
	ended(there, pivot.Copying)
	_, err = between(pivotOptions{back: true})
	g.Expect(err).To(MatchError(execute.ErrRefused), "the way there is not finished")
	aborted, err := between(pivotOptions{wish: pivot.Wish{Abort: true}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(aborted.Target).To(Equal(self))
	ended(there, pivot.Done)

	back, err := between(pivotOptions{back: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(back).To(Equal(record{Source: self, Target: kindSide, Namespace: "n", Back: true}))
	for _, phase := range []pivot.Phase{pivot.Copying, pivot.Releasing, pivot.Done} {
		ended(back, phase)
		again, err := between(pivotOptions{back: true})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again.Source).To(Equal(self), "the same way while it is %s", phase)
	}
}

// A shell completes the program by its own name.
func TestShellsCompleteTheProgram(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	root := newRoot(out)
	root.SetArgs([]string{"completion", "bash"})
	g.Expect(root.Execute()).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`complete .*-F __start_clusterctl-quoin clusterctl-quoin`))
}
