// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// pivotMoments are writes of `clusterctl quoin pivot`, in their order. made are those before.
var pivotMoments = []struct {
	name string
	is   func(made []string, what string) bool
}{
	{"at the journal", func(_ []string, what string) bool { return what == "target create ConfigMap quoin-pivot" }},
	{"at the pause", func(_ []string, what string) bool { return what == "source patch Cluster c" }},
	{"at the first copy", func(_ []string, what string) bool { return what == "target create Cluster c" }},
	{"at the last copy", func(_ []string, what string) bool { return what == "target create QuoinMachine m" }},
	{"at the point of no return", func(made []string, what string) bool {
		return what == "target update ConfigMap quoin-pivot" && slices.Contains(made, "target create QuoinMachine m")
	}},
	{"at the first deletion", func(_ []string, what string) bool {
		return strings.HasPrefix(what, "source patch") && what != "source patch Cluster c"
	}},
	{"at the Machine's deletion", func(_ []string, what string) bool { return what == "source delete Machine m" }},
	{"at the last deletion", func(_ []string, what string) bool { return what == "source delete Cluster c" }},
	{"at the resumption", func(made []string, what string) bool {
		return what == "target patch Cluster c" && contains(made, "source delete")
	}},
}

// Places in pivotMoments.
const (
	atFirstCopy, atLastCopy, atPoint, atMachine, atLastDeletion, atResumption = 2, 3, 4, 6, 7, 8
)

// pivotDeeds are what happens while the command is at work.
var pivotDeeds = []struct {
	name string
	// first and last moment at which it is possible, and those of them that make test has time for.
	first, last int
	always      []int
	// waits is how long the command waits for a side meanwhile; zero is the usual time.
	waits time.Duration
	// wants is how the command ends where that is before the point of no return, and from there on; any way when empty.
	wants [2]string
	// do it, and return what puts an end to it when the command has ended; nil where it ends by itself. Nil kills the
	// command.
	do func(m *movable) (end func())
}{
	{name: "the command is killed", last: atResumption, wants: both("failed")},
	{name: "the source is silent", last: atResumption, wants: both("done"),
		do: func(m *movable) func() { return m.away("source", silence) }},
	{name: "the target is silent", last: atResumption, wants: both("done"),
		do: func(m *movable) func() { return m.away("target", silence) }},
	{name: "the source is away for long", last: atResumption, waits: time.Second, wants: both("failed"),
		do: func(m *movable) func() { return m.away("source", 0) }},
	{name: "the target is away for long", last: atResumption, always: []int{atMachine}, waits: time.Second, wants: both("failed"),
		do: func(m *movable) func() { return m.away("target", 0) }},
	{name: "the source is unpaused by hand", first: atFirstCopy, last: atLastDeletion, always: []int{atLastCopy},
		wants: [2]string{"undone", "done"}, do: func(m *movable) func() { m.unpause(m.plane); return nil }},
	{name: "the target is unpaused by hand", first: atLastCopy, last: atResumption,
		wants: [2]string{"failed", "done"}, do: func(m *movable) func() { m.unpause(m.second); return nil }},
	{name: "the source lacks a webhook", last: atResumption, do: func(m *movable) func() { return m.withoutWebhook(m.plane) }},
	{name: "the target lacks a webhook", last: atResumption, always: []int{atResumption},
		do: func(m *movable) func() { return m.withoutWebhook(m.second) }},
}

func both(end string) [2]string { return [2]string{end, end} }

// away has no API server of a side answer the command and the managers for a while, which the command outlasts; or,
// with zero, until it has given up, which it then does soon.
func (m *movable) away(side string, within time.Duration) (end func()) {
	managers := map[string]*plane.Manager{"source": m.manager, "target": m.arrives}[side]
	managers.Silence(true)
	m.doors[side].Close()
	back := func() {
		m.doors[side].Open()
		managers.Silence(false)
	}
	if within > 0 {
		time.AfterFunc(within, back)
		return nil
	}
	return back
}

// withoutWebhook has an API server ask a webhook that is not there about all that moves.
func (m *movable) withoutWebhook(p *plane.Plane) (end func()) {
	missing := rig.MissingWebhook(m.key.Namespace)
	tried := func() error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: m.key.Namespace}}
		if err := p.Client.Create(m.t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		host := quoinHost(m.free, m.key.Namespace)
		host.Name = "tried"
		return p.Client.Create(m.t.Context(), host, client.DryRunAll)
	}
	m.g.Expect(p.Client.Create(m.t.Context(), missing.DeepCopy())).To(Succeed())
	m.g.Eventually(tried).WithTimeout(patience).
		Should(MatchError(ContainSubstring("no-such-webhook")), "it is heeded after a moment")
	return func() {
		m.g.Expect(p.Client.Delete(m.t.Context(), missing.DeepCopy())).To(Succeed())
		m.g.Eventually(tried).WithTimeout(patience).Should(Succeed())
	}
}

// Proves: S0-65, S0-68
//
// Every deed is done at every moment of `clusterctl quoin pivot`, and the same command run again where it has ended
// early. It finishes, or undoes and can be run anew; where somebody has resumed the target too early, a person does
// what docs/pivot.md says. Each time the node ends up in the target, in the next generation, with its host as it was;
// never are there two sides that act, and never is an object on neither of them.
func TestAPivotMeetsTrouble(t *testing.T) {
	t.Parallel()
	fleet, second := newFleet(t, kube.Options{}, nil), secondPlane(t)
	long := os.Getenv("QUOIN_SIM_LONG") != ""
	type row struct {
		deed, moment int
		movedOver
	}
	var rows []*row
	for i, deed := range pivotDeeds {
		for at := deed.first; at <= deed.last; at++ {
			if long || slices.Contains(deed.always, at) {
				rows = append(rows, &row{deed: i, moment: at})
			}
		}
	}
	t.Run("cases", func(t *testing.T) {
		for i, row := range rows {
			t.Run(pivotDeeds[row.deed].name+" "+pivotMoments[row.moment].name, func(t *testing.T) {
				t.Parallel()
				m := newMovable(t, fleet, fmt.Sprintf("pivot-trouble-%d", i+1), second)
				m.waits = pivotDeeds[row.deed].waits
				row.movedOver = m.pivotMeets(pivotMoments[row.moment].is, pivotDeeds[row.deed].do)
				wants := pivotDeeds[row.deed].wants[0]
				if row.moment >= atPoint {
					wants = pivotDeeds[row.deed].wants[1]
				}
				m.g.Expect(row.last).To(HavePrefix(wants))
			})
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what happens\twhen\tthe command\tthen\toutcome")
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", pivotDeeds[row.deed].name, pivotMoments[row.moment].name, row.last,
			strings.Join(row.recovery, ", "), cmp.Or(row.outcome, "FAILED"))
	}
	_ = w.Flush()
	if long {
		artifact(t, "pivot-trouble.txt", text.String())
	} else {
		t.Log("\n" + text.String())
	}
}

// pivotMeets has one deed done at one moment of a pivot, and runs the same command until everything is on the target.
func (m *movable) pivotMeets(is func([]string, string) bool, do func(*movable) func()) (line movedOver) {
	m.doors = map[string]*rig.Door{}
	for name, p := range map[string]*plane.Plane{"source": m.plane, "target": m.second} {
		door, err := rig.NewDoor(p.Kubeconfig(), m.t.TempDir(), func(err error) { m.t.Error(err) })
		m.g.Expect(err).NotTo(HaveOccurred())
		m.t.Cleanup(door.Close)
		m.doors[name] = door
	}
	var made []string
	var end func()
	came := false
	err := m.pivot(pivot.Wish{}, func(what string) bool {
		if !came && is(made, what) {
			came = true
			if do == nil {
				return false
			}
			end = do(m)
		}
		made = append(made, what)
		return true
	})
	m.g.Expect(came).To(BeTrue(), "the moment never came, and this proves nothing")
	m.sound()
	if end != nil {
		end()
	}
	m.waits, line.last = 0, m.ended(err)
	for err != nil {
		m.t.Log(err)
		m.g.Expect(len(line.recovery)).To(BeNumerically("<", 3), "it neither finishes nor undoes")
		m.outlastRun()
		if errors.Is(err, execute.ErrUndone) {
			m.stayed()
		}
		if errors.Is(err, execute.ErrRefused) {
			m.g.Expect(err).To(MatchError(ContainSubstring("acted on the target before everything was there")))
			m.forwardByHand()
			line.recovery = append(line.recovery, "by hand")
			break
		}
		err = m.pivot(pivot.Wish{}, all)
		m.sound()
		line.recovery = append(line.recovery, m.ended(err))
	}
	m.settled()
	line.outcome = m.kept()
	return line
}

// ended says how a run of the command did.
func (m *movable) ended(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, execute.ErrUndone):
		return "undone"
	case errors.Is(err, execute.ErrRefused):
		return "refused"
	}
	return "failed"
}

// sound asserts that no two sides act, and that what moves is on one of them at least.
func (m *movable) sound() {
	m.t.Helper()
	acts, found := 0, map[string]bool{}
	for _, p := range []*plane.Plane{m.plane, m.second} {
		for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &infrav1.QuoinClusterList{}, &clusterv1.MachineList{},
			&infrav1.QuoinMachineList{}, &infrav1.QuoinHostList{}, &corev1.SecretList{}} {
			m.g.Expect(p.Client.List(m.t.Context(), list, client.InNamespace(m.key.Namespace))).To(Succeed())
			for _, name := range itemsOf(m.g, list) {
				found[fmt.Sprintf("%T %s", list, name)] = true
			}
			if clusters, is := list.(*clusterv1.ClusterList); is && len(active(clusters)) > 0 {
				acts++
			}
		}
	}
	m.g.Expect(acts).To(BeNumerically("<", 2), "both sides act")
	m.g.Expect(found).To(HaveLen(8), "an object is lost")
}

// active are the Clusters that are not paused.
func active(clusters *clusterv1.ClusterList) []clusterv1.Cluster {
	return slices.DeleteFunc(clusters.Items, func(c clusterv1.Cluster) bool { return ptr.Deref(c.Spec.Paused, false) })
}

// forwardByHand does what docs/pivot.md says for a target that somebody has resumed before everything was there.
func (m *movable) forwardByHand() {
	m.t.Helper()
	paused := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: "c"}}
	m.g.Expect(m.second.Client.Patch(m.t.Context(), paused, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"paused":true}}`)))).To(Succeed())
	asWritten(m.t, m.plane, m.second, m.key.Namespace, "c", "pause-children")
	m.g.Expect(m.move(nil).Run(m.t.Context())).To(Succeed())
	asWritten(m.t, m.plane, m.second, m.key.Namespace, "c", "resume-children")
	for _, p := range []*plane.Plane{m.plane, m.second} {
		journal := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: execute.JournalName}}
		m.g.Expect(client.IgnoreNotFound(p.Client.Delete(m.t.Context(), journal))).To(Succeed())
	}
}
