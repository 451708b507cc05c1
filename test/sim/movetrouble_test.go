// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// unpause has the Cluster of one side go on, as a person does.
func (m *movable) unpause(p *plane.Plane) {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: "c"}}
	if err := p.Client.Patch(m.t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))); err != nil {
		m.t.Error(err)
	}
}

// late is how much later each object arrives than the one before: a minute, for controllers that are in no hurry.
const late = time.Minute / hurry

// silence is how long an API server does not answer.
const silence = 8 * time.Second

// deeds are what happens while the mover is at work.
var deeds = []struct {
	name string
	// first and last moment at which it is possible.
	first, last int
	do          func(m *movable, move *plane.Move)
}{
	{"the source is silent", 0, 4, func(m *movable, move *plane.Move) { silent(move, "source", m.manager) }},
	{"the target is silent", 0, 5, func(m *movable, move *plane.Move) { silent(move, "target", m.arrives) }},
	{"the source is unpaused by hand", 1, 4, func(m *movable, _ *plane.Move) { m.unpause(m.plane) }},
	{"the target is unpaused by hand", 2, 5, func(m *movable, _ *plane.Move) { m.unpause(m.second) }},
}

func silent(move *plane.Move, side string, managers *plane.Manager) {
	move.Silence(side, true)
	managers.Silence(true)
	time.AfterFunc(silence, func() {
		managers.Silence(false)
		move.Silence(side, false)
	})
}

// moments are writes of the mover, in their order. made are those before.
var moments = []struct {
	name string
	is   func(made []string, what string) bool
}{
	{"at the pause", func(_ []string, what string) bool { return what == "source patch Cluster c" }},
	{"when the first object arrives", func(_ []string, what string) bool { return strings.HasPrefix(what, "target create") }},
	{"when the last object arrives", func(_ []string, what string) bool { return what == "target create QuoinMachine m" }},
	{"when the first object goes", func(_ []string, what string) bool {
		return strings.HasPrefix(what, "source") && what != "source patch Cluster c"
	}},
	{"when the Machine goes", func(_ []string, what string) bool { return what == "source delete Machine m" }},
	// Its first patch comes with its creation.
	{"at the end", func(made []string, what string) bool {
		return what == "target patch Cluster c" && contains(made, "source delete")
	}},
}

// TestAMoveMeetsTrouble has every deed done at every moment of a move, objects arrive late in every order, work start at the
// pause, and the pause be lost. Each time the node ends up in the target, in the next generation, with its host as it was, and
// never do two planes have the host at once.
func TestAMoveMeetsTrouble(t *testing.T) {
	needsTime(t)
	fleet, second := newFleet(t, kube.Options{Versions: []string{version, before}}, nil), secondPlane(t)
	type row struct {
		point string
		run   func(*movable) movedOver
	}
	var rows []row
	for _, deed := range deeds {
		for _, moment := range moments[deed.first : deed.last+1] {
			rows = append(rows, row{deed.name + " " + moment.name, func(m *movable) movedOver { return m.meets(moment.is, deed.do) }})
		}
	}
	for order := range 6 {
		rows = append(rows, row{fmt.Sprintf("every object arrives late, order %d", order+1), func(m *movable) movedOver { return m.arrivesLate(order) }})
	}
	rows = append(rows,
		row{"an image is fetched from the pause on", (*movable).worksFromThePause},
		row{"a Machine is deleted at the pause", (*movable).deletesAtThePause},
		row{"the pause is lost", (*movable).losesThePause})
	table := make([]movedOver, len(rows))
	t.Run("cases", func(t *testing.T) {
		for i, row := range rows {
			t.Run(row.point, func(t *testing.T) {
				t.Parallel()
				table[i] = row.run(newMovable(t, fleet, fmt.Sprintf("move-trouble-%d", i+1), second))
			})
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what happens\tthen, as docs/move.md says\toutcome")
	for i, line := range table {
		fmt.Fprintf(w, "%s\t%s\t%s\n", rows[i].point, strings.Join(line.recovery, ", "), cmp.Or(line.outcome, "FAILED"))
	}
	_ = w.Flush()
	artifact(t, "move-trouble.txt", text.String())
}

// meets has one deed done at one moment.
func (m *movable) meets(moment func([]string, string) bool, do func(*movable, *plane.Move)) (line movedOver) {
	once := sync.Once{}
	line.move = m.move(func(_ int, what string) error {
		line.last = what
		if moment(line.move.Writes(), what) {
			once.Do(func() { do(m, line.move) })
		}
		return nil
	})
	err := line.move.Run(m.t.Context())
	once.Do(func() { m.t.Error("the moment never came, and this proves nothing") })
	if err != nil {
		m.t.Log(err)
		m.mend(&line)
	}
	m.settled()
	line.outcome = m.kept()
	return line
}

// arrivesLate has each object arrive a minute after the one before, in one of the six orders in which those without owners can
// be taken, and at the same time those that the Cluster owns. The target's managers run all the while, and nothing comes of it
// before the end.
func (m *movable) arrivesLate(order int) (line movedOver) {
	of := func(kind, name string) client.Object {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
		switch kind {
		case "Secret":
			o.APIVersion = "v1"
		case "Cluster", "Machine":
			o.APIVersion = clusterv1.GroupVersion.String()
		default:
			o.APIVersion = infrav1.GroupVersion.String()
		}
		o.Kind = kind
		return o
	}
	permuted := func(kinds [3][]client.Object) (all []client.Object) {
		for _, i := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}[order] {
			all = append(all, kinds[i]...)
		}
		return all
	}
	line.move = m.move(func(_ int, what string) error {
		line.last = what
		if strings.HasPrefix(what, "target create") {
			time.Sleep(late)
			m.g.Expect(m.hostIn(m.plane, m.free).Spec.HeldFor).To(HaveField("Clusters", []string{"c"}), "nobody may claim the free host meanwhile")
		}
		return nil
	})
	line.move.Order = append(
		permuted([3][]client.Object{{of("Cluster", "c")}, {of("QuoinHost", m.host.Name), of("QuoinHost", m.free.Name)}, {of("Secret", "ssh")}}),
		permuted([3][]client.Object{{of("QuoinCluster", "c")}, {of("Machine", "m")}, {of("Secret", "m")}})...)
	m.g.Expect(line.move.Run(m.t.Context())).To(Succeed())
	m.g.Expect(m.generations).To(Equal([]int64{1}), "the target has nothing to say before the end")
	var arrived, wanted []string
	for _, write := range line.move.Writes() {
		if what, ok := strings.CutPrefix(write, "target create "); ok && !strings.HasPrefix(what, "Namespace") && what != "QuoinMachine m" {
			arrived = append(arrived, what)
		}
	}
	for _, o := range line.move.Order {
		wanted = append(wanted, o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName())
	}
	m.g.Expect(arrived).To(Equal(wanted))
	m.settled()
	line.outcome = m.kept()
	return line
}

// worksFromThePause has somebody ask for images on the host of the node, which are on their way when the pause is written. The
// mover is kept until they are there.
func (m *movable) worksFromThePause() (line movedOver) {
	began, ended := make(chan struct{}), make(chan struct{})
	begins, ends := sync.OnceFunc(func() { close(began) }), sync.OnceFunc(func() { close(ended) })
	m.host.Machine.OnJournal(func(_ *machine.Machine, plan, _, word string) {
		if kind(plan) == "addons" && word == "start" {
			begins()
			time.Sleep(silence)
		} else if kind(plan) == "addons" {
			ends()
		}
	})
	line.move = m.move(func(number int, what string) error {
		line.last = what
		if number == 1 {
			object := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.key.Namespace, Name: "m"}}
			patch := fmt.Sprintf(`{"spec":{"addonVersions":[%q]}}`, before)
			m.g.Expect(m.plane.Client.Patch(m.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			m.g.Eventually(began).WithTimeout(patience).Should(BeClosed())
		}
		if strings.HasPrefix(what, "target create") {
			m.g.Expect(ended).To(BeClosed(), "the images are still being fetched")
		}
		return nil
	})
	m.g.Expect(line.move.Run(m.t.Context())).To(Succeed())
	m.settled()
	m.g.Eventually(func() []string { return m.hostIn(m.second, m.host).Status.AddonVersions }).WithTimeout(patience).Should(ContainElement(before))
	line.outcome = m.obeyed() + ", images there"
	return line
}

// deletesAtThePause has somebody delete the Machine right before the pause is written. Its copy is no longer being deleted, and
// is deleted again once its Node is known; the host is released clean.
func (m *movable) deletesAtThePause() (line movedOver) {
	key := client.ObjectKey{Namespace: m.key.Namespace, Name: "m"}
	line.move = m.move(func(number int, what string) error {
		line.last = what
		if number == 1 {
			of := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
			for _, object := range []client.Object{&clusterv1.Machine{ObjectMeta: of}, &infrav1.QuoinMachine{ObjectMeta: of}} {
				m.g.Expect(m.plane.Client.Delete(m.t.Context(), object)).To(Succeed())
			}
		}
		return nil
	})
	m.g.Expect(line.move.Run(m.t.Context())).To(Succeed())
	found := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	m.g.Expect(m.second.Client.Status().Patch(m.t.Context(), found, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"nodeRef":{"name":"m"}}}`)))).To(Succeed(), "as Cluster API does")
	m.g.Eventually(func() bool {
		machine := &clusterv1.Machine{}
		err := m.second.Client.Get(m.t.Context(), key, machine)
		return apierrors.IsNotFound(err) || err == nil && !machine.DeletionTimestamp.IsZero()
	}).WithTimeout(patience).Should(BeTrue(), "the deletion goes on")
	m.g.Expect(m.second.DeleteMachine(m.t.Context(), key)).To(Succeed())
	m.g.Eventually(func() infrav1.HostState { return m.hostIn(m.second, m.host).Status.State }).WithTimeout(patience).Should(Equal(infrav1.HostStateAvailable))
	m.g.Expect(clean(m.host)).To(BeEmpty())
	m.look()
	m.obeyed()
	line.outcome = "deleted in the target, host clean"
	return line
}

// losesThePause has the mover believe that it paused the Cluster. It is held up, and nothing arrives; it is then run again.
func (m *movable) losesThePause() (line movedOver) {
	line.move = m.move(func(number int, what string) error {
		line.last = what
		if number == 1 {
			return plane.ErrLost
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*silence)
	defer cancel()
	m.g.Expect(line.move.Run(ctx)).NotTo(Succeed())
	m.g.Expect(line.move.Writes()).To(BeEmpty())
	m.kept()
	m.mend(&line)
	m.settled()
	line.outcome = "held up, then " + m.kept()
	return line
}
