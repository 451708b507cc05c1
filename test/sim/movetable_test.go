// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// TestAMoverThatDiesAnywhere kills clusterctl's mover before each of its writes, and has a person then do what docs/move.md
// says for what is found on both sides. Each time the node ends up in the target, in the next generation, with its host as it was.
func TestAMoverThatDiesAnywhere(t *testing.T) {
	needsTime(t)
	fleet := newFleet(t, kube.Options{}, nil)
	second := secondPlane(t)
	writes := moveKilledBefore(t, newMovable(t, fleet, "mover-none", second), 0).move.Writes()
	table := make([]movedOver, len(writes))
	t.Run("cases", func(t *testing.T) {
		for i, what := range writes {
			t.Run(fmt.Sprintf("%d %s", i+1, what), func(t *testing.T) {
				t.Parallel()
				table[i] = moveKilledBefore(t, newMovable(t, fleet, fmt.Sprintf("mover-%d", i+1), second), i+1)
			})
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "write\tkilled before it\tthen, as docs/move.md says\toutcome")
	for i, line := range table {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", i+1, line.last, strings.Join(line.recovery, ", "), cmp.Or(line.outcome, "FAILED"))
	}
	_ = w.Flush()
	artifact(t, "move-table.txt", text.String())
}

// Proves: S0-65, S0-68
//
// TestAPivotThatDiesAnywhere kills `clusterctl quoin pivot` before each of its writes, whose workspace is lost with it, and
// has the same command go on: the node ends up in the target, in the next generation, with its host as it was. In another
// namespace it is undone: the node stays where it was, or, behind the point of no return, that is refused.
func TestAPivotThatDiesAnywhere(t *testing.T) {
	needsTime(t)
	fleet := newFleet(t, kube.Options{}, nil)
	second := secondPlane(t)
	var writes []string
	pivotKilledBefore(t, newMovable(t, fleet, "pivot-none", second), 0, &writes)
	table, undone := make([]movedOver, len(writes)), make([]movedOver, len(writes))
	t.Run("cases", func(t *testing.T) {
		for i, what := range writes {
			t.Run(fmt.Sprintf("%d %s", i+1, what), func(t *testing.T) {
				t.Parallel()
				table[i] = pivotKilledBefore(t, newMovable(t, fleet, fmt.Sprintf("pivot-%d", i+1), second), i+1, nil)
			})
			t.Run(fmt.Sprintf("%d %s, undone", i+1, what), func(t *testing.T) {
				t.Parallel()
				undone[i] = pivotUndone(t, newMovable(t, fleet, fmt.Sprintf("undone-%d", i+1), second), nth(i+1))
			})
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "write\tkilled before it\toutcome of the same command\tand of --abort")
	for i, line := range table {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", i+1, line.last, cmp.Or(line.outcome, "FAILED"), cmp.Or(undone[i].outcome, "FAILED"))
	}
	_ = w.Flush()
	artifact(t, "pivot-table.txt", text.String())
}

// Proves: S0-68
//
// A pivot that dies when everything is copied is undone while managers run on both sides: those of the source act again, the
// target has nothing, and the same pivot can be made anew.
func TestAPivotIsUndone(t *testing.T) {
	needsTime(t)
	t.Parallel()
	m := newMovable(t, newFleet(t, kube.Options{}, nil), "undone", secondPlane(t))
	line := pivotUndone(t, m, func(what string) bool { return what == "target update ConfigMap quoin-pivot" })
	m.g.Expect(line.outcome).To(Equal("undone; pivoted anew: node kept, generation 2"))
}

// pivotKilledBefore pivots the lab's objects, kills that before the write, and has it go on; 0 kills nobody.
func pivotKilledBefore(t *testing.T, m *movable, number int, writes *[]string) (line movedOver) {
	kills := nth(number)
	err := m.pivot(pivot.Wish{}, func(what string) bool {
		if kills(what) {
			line.last = what
			return false
		}
		if writes != nil {
			*writes = append(*writes, what)
		}
		return true
	})
	if number > 0 {
		m.g.Expect(line.last).NotTo(BeEmpty(), "there are fewer writes")
		m.g.Expect(err).To(HaveOccurred())
		m.outlastRun()
		err = m.pivot(pivot.Wish{}, all)
	}
	m.g.Expect(err).NotTo(HaveOccurred())
	m.settled()
	line.outcome = m.kept()
	return line
}

// pivotUndone pivots the lab's objects, kills that before a write, and has it undone. What is undone is as it was, and can be
// pivoted; what cannot be undone any more is finished.
func pivotUndone(t *testing.T, m *movable, kills func(what string) bool) (line movedOver) {
	m.g.Expect(m.pivot(pivot.Wish{}, func(what string) bool {
		if kills(what) {
			line.last = what
		}
		return line.last == ""
	})).NotTo(Succeed())
	m.g.Expect(line.last).NotTo(BeEmpty(), "there are fewer writes")
	m.outlastRun()
	err := m.pivot(pivot.Wish{Abort: true}, all)
	switch {
	case errors.Is(err, execute.ErrUndone):
		line.outcome = "undone"
		m.stayed()
	case strings.Contains(err.Error(), "no pivot is under way") && m.isOver():
		line.outcome = "over"
	case strings.Contains(err.Error(), "no pivot is under way"):
		line.outcome = "nothing to undo"
		m.stayed()
	default:
		m.g.Expect(err).To(MatchError(ContainSubstring("the point of no return is behind")))
		line.outcome = "refused"
	}
	m.g.Expect(m.pivot(pivot.Wish{}, all)).To(Succeed())
	m.settled()
	line.outcome += "; pivoted anew: " + m.kept()
	return line
}

// isOver reports whether the target has the Cluster to itself: the source alone has not noted yet that the pivot ended.
func (m *movable) isOver() bool {
	m.t.Helper()
	err := m.plane.Client.Get(m.t.Context(), client.ObjectKey{Namespace: m.key.Namespace, Name: "c"}, &clusterv1.Cluster{})
	m.g.Expect(client.IgnoreNotFound(err)).To(Succeed())
	return err != nil
}

// nth is true for that write alone; for none with 0.
func nth(number int) func(string) bool {
	n := 0
	return func(string) bool { n++; return n == number }
}

func all(string) bool { return true }

// stayed asserts that the source has everything and acts, as if no pivot had begun, and that the target has nothing.
func (m *movable) stayed() {
	m.t.Helper()
	cluster := &clusterv1.Cluster{}
	m.g.Expect(m.plane.Client.Get(m.t.Context(), client.ObjectKey{Namespace: m.key.Namespace, Name: "c"}, cluster)).To(Succeed())
	m.g.Expect(ptr.Deref(cluster.Spec.Paused, false)).To(BeFalse())
	m.held(m.plane, m.second)
	m.g.Eventually(func(g Gomega) {
		quoinMachine := &infrav1.QuoinMachine{}
		g.Expect(m.plane.Client.Get(m.t.Context(), client.ObjectKey{Namespace: m.key.Namespace, Name: "m"}, quoinMachine)).To(Succeed())
		g.Expect(conditions.IsFalse(quoinMachine, clusterv1.PausedCondition)).To(BeTrue())
		site := &infrav1.QuoinCluster{}
		g.Expect(m.plane.Client.Get(m.t.Context(), client.ObjectKeyFromObject(cluster), site)).To(Succeed())
		g.Expect(lacksMovable(site)).To(BeEmpty())
	}).WithTimeout(patience).Should(Succeed(), "its manager acts again")
	m.g.Expect(m.treesNow()).To(Equal(m.trees), "no host is changed")
	m.look()
	m.g.Expect(m.generations).To(Equal([]int64{1}))
}

// pivot does what the command does, until it is killed before a write that it is not let through.
func (m *movable) pivot(wish pivot.Wish, lets func(what string) bool) error {
	ctx, kill := context.WithCancel(m.t.Context())
	defer kill()
	before := func(w execute.Write) error {
		m.look()
		if ctx.Err() == nil && !lets(w.String()) {
			kill()
		}
		return ctx.Err() // what is killed says no goodbye
	}
	sides := map[string]*execute.Side{}
	for name, p := range map[string]*plane.Plane{"source": m.plane, "target": m.second} {
		m.g.Expect(p.Inventory(ctx)).To(Succeed())
		kubeconfig := p.Kubeconfig()
		if door := m.doors[name]; door != nil {
			kubeconfig = door.Kubeconfig
		}
		side, err := execute.Connect(ctx, name, cluster.Kubeconfig{Path: kubeconfig}, before)
		m.g.Expect(err).NotTo(HaveOccurred())
		sides[name] = side
	}
	return (&execute.Pivot{Source: sides["source"], Target: sides["target"], Namespace: m.key.Namespace, Local: nowhere{},
		Report: m.t.Logf, Patience: m.waits}).Run(ctx, wish)
}

// outlastRun has the run that was killed have said nothing for long, which is what the next one waits for.
func (m *movable) outlastRun() {
	m.t.Helper()
	for _, p := range []*plane.Plane{m.plane, m.second} {
		journal := &corev1.ConfigMap{}
		err := p.Client.Get(m.t.Context(), client.ObjectKey{Namespace: m.key.Namespace, Name: execute.JournalName}, journal)
		if apierrors.IsNotFound(err) {
			continue
		}
		m.g.Expect(err).NotTo(HaveOccurred())
		for key, text := range journal.Data {
			journal.Data[key] = renewed.ReplaceAllString(text, `"renewed":"2026-01-01T00:00:00Z"`)
		}
		m.g.Expect(p.Client.Update(m.t.Context(), journal)).To(Succeed())
	}
}

var renewed = regexp.MustCompile(`"renewed": ?"[^"]*"`)

// artifact prints a table and keeps it.
func artifact(t *testing.T, name, text string) {
	t.Helper()
	t.Log("\n" + text)
	if err := os.WriteFile(filepath.Join(thePlane.Root(), "_artifacts", name), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// moveKilledBefore moves the lab's objects, kills the mover before that write, and mends it; 0 kills no mover.
func moveKilledBefore(t *testing.T, m *movable, number int) (line movedOver) {
	line.move = m.move(func(n int, what string) error {
		line.last = what
		return killedIf(n == number)
	})
	err := line.move.Run(t.Context())
	if number == 0 {
		m.g.Expect(err).NotTo(HaveOccurred())
	} else {
		m.g.Expect(err).To(MatchError(plane.ErrMoverKilled))
		m.mend(&line)
	}
	m.settled()
	line.outcome = m.kept()
	return line
}

// movedOver is one line of a table.
type movedOver struct {
	move *plane.Move
	// last is the write that the mover was about to make when it ended.
	last     string
	recovery []string
	outcome  string
}

// mend does what docs/move.md says for a move that ended early.
func (m *movable) mend(line *movedOver) {
	m.t.Helper()
	again := func() { m.g.Expect(m.move(nil).Run(m.t.Context())).To(Succeed()) }
	written := func(names ...string) {
		line.recovery = append(line.recovery, names...)
		asWritten(m.t, m.plane, m.second, m.key.Namespace, "c", names...)
	}
	switch found := line.move.Writes(); {
	case len(found) == 0:
		line.recovery = []string{"move"}
		again()
	case !contains(found, "target create"):
		written("resume-source")
		again()
	case !contains(found, "source patch", "patch Cluster c"):
		// Nothing on the source is marked as moved.
		written("pause-children")
		again()
		written("resume-children")
	case strings.HasPrefix(line.last, "source"):
		written("finish-deletion", "resume-target")
	default:
		written("resume-target")
	}
}

// movable is a node and a free host, whose objects clusterctl moves from one plane to another while managers run in both.
type movable struct {
	*lab
	g       *WithT
	second  *plane.Plane
	arrives *plane.Manager
	free    *sim.Host
	watch   *watcher
	trees   []map[string]string
	// doors are the ways of `clusterctl quoin pivot` to the sides; those that have none lead there directly.
	doors map[string]*rig.Door
	// waits is how long that command waits for a side; zero is the usual time.
	waits time.Duration
	// generations that the host of the node was seen to obey, in their order.
	generations []int64
}

func newMovable(t *testing.T, fleet *sim.Fleet, name string, second *plane.Plane) *movable {
	t.Helper()
	m := &movable{lab: newLab(t, fleet, name), g: NewWithT(t), second: second}
	m.watch = watch(m.host)
	m.untilState(infrav1.HostStateAvailable)
	m.addMachine()
	m.g.Expect(m.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), m.describe())
	var err error
	m.free, err = fleet.Add(name + "-free")
	m.g.Expect(err).NotTo(HaveOccurred())
	cluster := &clusterv1.Cluster{}
	m.g.Expect(m.plane.Client.Get(t.Context(), client.ObjectKey{Namespace: name, Name: "c"}, cluster)).To(Succeed())
	m.create(quoinHost(m.free, name), &infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: "c", Labels: map[string]string{clusterv1.ClusterNameLabel: "c"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c", UID: cluster.UID}},
	}})
	m.ready(m.plane)
	m.g.Eventually(func(g Gomega) {
		free, quoinCluster := m.hostIn(m.plane, m.free), &infrav1.QuoinCluster{}
		g.Expect(m.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), quoinCluster)).To(Succeed())
		g.Expect(free.Status.State).To(Equal(infrav1.HostStateAvailable))
		g.Expect(quoinCluster.Annotations).To(HaveKey(clusterctlv1.BlockMoveAnnotation))
		g.Expect(lacksMovable(quoinCluster)).To(BeEmpty())
	}).WithTimeout(patience).Should(Succeed())
	m.arrives, err = second.Run(context.Background(), plane.Options{Namespaces: []string{name}, Haste: hurry, Connections: hasty})
	m.g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = m.arrives.Stop() })
	settled(t, m.host)
	m.trees = m.treesNow()
	return m
}

func (m *movable) treesNow() []map[string]string {
	return []map[string]string{m.host.Tree(ownerRecord), m.free.Tree(ownerRecord)}
}

func (m *movable) hostIn(p *plane.Plane, host *sim.Host) *infrav1.QuoinHost {
	object := &infrav1.QuoinHost{}
	if err := p.Client.Get(context.Background(), client.ObjectKey{Namespace: m.key.Namespace, Name: host.Name}, object); err != nil {
		return &infrav1.QuoinHost{}
	}
	return object
}

// move is a run of the mover that tells before each of its writes.
func (m *movable) move(before func(int, string) error) *plane.Move {
	return &plane.Move{From: m.plane, To: m.second, Namespace: m.key.Namespace, Before: func(number int, what string) error {
		m.look()
		if before == nil {
			return nil
		}
		return before(number, what)
	}}
}

// look remembers which generation the host of the node obeys.
func (m *movable) look() {
	record, err := owner.Parse(m.host.Machine.FS().Text(ownerRecord))
	m.g.Expect(err).NotTo(HaveOccurred())
	if n := len(m.generations); n == 0 || m.generations[n-1] != record.Generation {
		m.generations = append(m.generations, record.Generation)
	}
}

// settled waits until the target has everything, and the source nothing.
func (m *movable) settled() {
	m.t.Helper()
	m.ready(m.second)
	m.g.Eventually(func(g Gomega) {
		moved, free := m.hostIn(m.second, m.host), m.hostIn(m.second, m.free)
		g.Expect(moved.Status.State).To(Equal(infrav1.HostStateProvisioned))
		g.Expect(moved.Spec.ManagedBy).To(Equal(string(moved.UID)))
		g.Expect(m.host.Machine.FS().Text(ownerRecord)).To(ContainSubstring(`"generation":2`))
		g.Expect(free.Status.State).To(Equal(infrav1.HostStateAvailable))
		g.Expect(free.Spec.HeldFor).To(BeNil())
	}).WithTimeout(patience).Should(Succeed())
	m.held(m.second, m.plane)
}

// held asserts that the one side has everything, and the other one nothing.
func (m *movable) held(one, other *plane.Plane) {
	m.t.Helper()
	for list, count := range map[client.ObjectList]int{
		&clusterv1.ClusterList{}: 1, &infrav1.QuoinClusterList{}: 1, &clusterv1.MachineList{}: 1,
		&infrav1.QuoinMachineList{}: 1, &infrav1.QuoinHostList{}: 2, &corev1.SecretList{}: 2,
	} {
		m.g.Expect(other.Client.List(m.t.Context(), list, client.InNamespace(m.key.Namespace))).To(Succeed())
		m.g.Expect(itemsOf(m.g, list)).To(BeEmpty(), "%T of the other side", list)
		m.g.Expect(one.Client.List(m.t.Context(), list, client.InNamespace(m.key.Namespace))).To(Succeed())
		m.g.Expect(itemsOf(m.g, list)).To(HaveLen(count), "%T", list)
	}
}

// kept asserts from outside that the node is the one that it was, and says so.
func (m *movable) kept() string {
	m.t.Helper()
	m.look()
	m.g.Expect(m.treesNow()).To(Equal(m.trees), "no host is changed")
	return m.obeyed()
}

// obeyed asserts from outside that kubeadm ran once, no step twice, and that the host obeyed one plane after the other.
func (m *movable) obeyed() string {
	m.t.Helper()
	m.g.Expect(m.joins()).To(Equal(1))
	m.g.Expect(m.watch.ranTwice()).To(BeEmpty())
	m.g.Expect(slices.IsSorted(m.generations)).To(BeTrue(), "generations %v", m.generations)
	return "node kept, generation 2"
}

// contains reports whether a write begins so, other than those that end as excepted.
func contains(writes []string, prefix string, except ...string) bool {
	for _, write := range writes {
		excepted := false
		for _, end := range except {
			excepted = excepted || strings.HasSuffix(write, end)
		}
		if strings.HasPrefix(write, prefix) && !excepted {
			return true
		}
	}
	return false
}
