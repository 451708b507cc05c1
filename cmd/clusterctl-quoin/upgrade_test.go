// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// upgrades is a management cluster whose controller makes one move before each look.
type upgrades struct {
	client.WithWatch
	// moves of the controller, one before each look; nil makes that look fail.
	moves []func(*quoinv1.ClusterUpgrade)
}

func newUpgrades(t *testing.T, there []client.Object, moves ...func(*quoinv1.ClusterUpgrade)) *upgrades {
	u := &upgrades{moves: moves}
	u.WithWatch = fake.NewClientBuilder().WithScheme(clienttest.Scheme(quoinv1.AddToScheme)).WithObjects(there...).
		WithInterceptorFuncs(interceptor.Funcs{Get: u.look}).Build()
	return u
}

func (f *upgrades) look(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if err := c.Get(ctx, key, o); err != nil || len(f.moves) == 0 {
		return err
	}
	move := f.moves[0]
	f.moves = f.moves[1:]
	if move == nil {
		return errors.New("connection refused")
	}
	move(o.(*quoinv1.ClusterUpgrade))
	return c.Update(ctx, o)
}

// all that are left.
func (f *upgrades) all(g Gomega, t *testing.T) []quoinv1.ClusterUpgrade {
	list := &quoinv1.ClusterUpgradeList{}
	g.Expect(f.List(t.Context(), list)).To(Succeed())
	return list.Items
}

func say(u *quoinv1.ClusterUpgrade, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&u.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
}

func plans(id string) func(*quoinv1.ClusterUpgrade) {
	return func(u *quoinv1.ClusterUpgrade) {
		u.Status.Plan = &quoinv1.UpgradePlan{ID: id}
		say(u, quoinv1.ClusterUpgradeApprovedCondition, metav1.ConditionFalse, quoinv1.ApprovalRequiredReason, "read it")
	}
}

func acts(u *quoinv1.ClusterUpgrade) {
	say(u, quoinv1.ClusterUpgradeProgressingCondition, metav1.ConditionTrue, "ControlPlane", "step 2/3 ControlPlane: prod-2 joins")
	u.Annotations = map[string]string{quoinv1.ClusterUpgradeBegunAnnotation: upgrade.Mark(u, time.Now())}
}

// marks that everything was done, which comes before the status says so.
func marks(u *quoinv1.ClusterUpgrade) {
	u.Annotations[quoinv1.ClusterUpgradeCompletedAnnotation] = upgrade.Mark(u, time.Now())
}

func ends(u *quoinv1.ClusterUpgrade) {
	marks(u)
	say(u, quoinv1.ClusterUpgradeCompletedCondition, metav1.ConditionTrue, quoinv1.CompletedReason, "healthy at v1.36.3")
}

// marksOnly as an upgrade does whose controller is away since.
func marksOnly(u *quoinv1.ClusterUpgrade) {
	u.Annotations[quoinv1.ClusterUpgradeCompletedAnnotation] = upgrade.Mark(u, time.Now().Add(-time.Hour))
}

func cannot(u *quoinv1.ClusterUpgrade) {
	say(u, quoinv1.ClusterUpgradePlannedCondition, metav1.ConditionFalse, quoinv1.HopsUnknownReason, "name a v1.35 in spec.via")
}

func stalls(u *quoinv1.ClusterUpgrade) {
	say(u, quoinv1.ClusterUpgradeStalledCondition, metav1.ConditionTrue, quoinv1.DeadlineExceededReason, "waits for a host")
}

// An upgrade by command shows every plan, touches nothing before a person agrees, says what changes, and ends with what
// became of it.
//
// Proves: S0-60
func TestAnUpgradeIsConfirmedAndFollowed(t *testing.T) {
	type moves = []func(*quoinv1.ClusterUpgrade)
	for name, tc := range map[string]struct {
		answers  string
		yes      bool
		moves    moves
		problem  string
		refused  bool
		approved string
		left     int
		says     []string
	}{
		"agreed": {answers: "y\n", moves: moves{plans("a"), acts, acts, nil, ends}, approved: "a", left: 1,
			says: []string{"Carry out plan a?", "step 2/3 ControlPlane: prod-2 joins", "does not answer", "UPGRADE"}},
		"done, and said later": {yes: true, moves: moves{plans("a"), acts, marks, marks, ends}, approved: "a", left: 1,
			says: []string{"healthy at v1.36.3\n", "COMPLETED    True Completed: healthy at v1.36.3"}},
		"done, and never said": {yes: true, moves: moves{plans("a"), acts, marksOnly}, approved: "a", left: 1,
			says: []string{" done\n"}},
		"agreed beforehand": {yes: true, moves: moves{plans("a"), acts, ends}, approved: "a", left: 1},
		"the world changed": {answers: "y\ny\n", moves: moves{plans("a"), acts, plans("b"), acts, ends}, approved: "b", left: 1,
			says: []string{"plan a?", "plan b?"}},
		"late, and never asked": {answers: "y\n", moves: moves{func(u *quoinv1.ClusterUpgrade) { plans("a")(u); stalls(u) }}, problem: "waits for a host",
			approved: "a", left: 1, says: []string{"Carry out plan a?"}},
		"declined": {answers: "n\n", moves: moves{plans("a")}, problem: "plan a was not confirmed", refused: true},
		"declined what replaces": {answers: "y\nn\n", moves: moves{plans("a"), acts, plans("b")}, problem: "plan b",
			approved: "a", left: 1},
		"nobody there": {moves: moves{plans("a")}, problem: "--yes", left: 1},
		"no way":       {yes: true, moves: moves{cannot}, problem: "spec.via", refused: true},
		"late":         {yes: true, moves: moves{plans("a"), acts, stalls}, problem: "waits for a host", approved: "a", left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, out := NewWithT(t), &bytes.Buffer{}
			c := newUpgrades(t, nil, tc.moves...)
			r := &raise{options: &options{out: out}, yes: tc.yes, in: strings.NewReader(tc.answers), every: time.Millisecond}
			r.wish.Version, r.wish.Workers = "v1.36.3", quoinv1.UpgradeWorkersAll
			r.complete("prod")
			err := r.run(t.Context(), c, "ns")
			if tc.problem == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.problem)))
			}
			g.Expect(errors.Is(err, execute.ErrRefused)).To(Equal(tc.refused))
			left := c.all(g, t)
			g.Expect(left).To(HaveLen(tc.left))
			for _, u := range left {
				g.Expect(u.Spec.ApprovedPlan).To(Equal(tc.approved))
				g.Expect(u.Spec.Approve).To(Equal(quoinv1.UpgradeApprovalManual))
			}
			for _, text := range tc.says {
				g.Expect(out.String()).To(ContainSubstring(text))
			}
			said := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d step 2/3`).FindAllString(out.String(), -1)
			g.Expect(len(said)).To(BeNumerically("<=", 1), "said when it changes")
		})
	}
}

// The same command goes on with what is under way, and is refused where another upgrade is.
func TestAnUpgradeThatIsThereIsFollowed(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	there := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nightly"},
		Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "prod", Version: "v1.36.3", Workers: quoinv1.UpgradeWorkersAll}}
	c := newUpgrades(t, []client.Object{there}, acts)
	run := func(version string, dry bool) error {
		r := &raise{options: &options{out: out}, in: strings.NewReader(""), every: time.Millisecond, dryRun: dry}
		r.wish.Version, r.wish.Workers = version, quoinv1.UpgradeWorkersAll
		r.complete("prod")
		return r.run(t.Context(), c, "ns")
	}
	g.Expect(run("v1.36.3", true)).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("nightly to v1.36.3 is there"))
	g.Expect(run("v1.37.0", false)).To(And(MatchError(execute.ErrRefused), MatchError(ContainSubstring("nightly"))))
	c.moves = []func(*quoinv1.ClusterUpgrade){acts, ends}
	g.Expect(run("v1.36.3", false)).To(Succeed())
	g.Expect(run("v1.36.3", false)).To(Succeed(), "again")
	g.Expect(c.all(g, t)).To(HaveLen(1))
	g.Expect(run("v1.37.0", true)).To(Succeed(), "nothing is in the way any more")
	g.Expect(out.String()).To(ContainSubstring("prod- to v1.37.0 would be made"))
	g.Expect(c.all(g, t)).To(HaveLen(1))
}

// Who only watches confirms nothing.
func TestAnUpgradeIsWatched(t *testing.T) {
	g, out := NewWithT(t), &bytes.Buffer{}
	there := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nightly"},
		Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "prod", Version: "v1.36.3"}}
	c := newUpgrades(t, []client.Object{there}, plans("a"), func(*quoinv1.ClusterUpgrade) {}, acts, ends)
	r := &raise{options: &options{out: out}, every: time.Millisecond}
	g.Expect(r.follow(t.Context(), c, there.DeepCopy())).To(Succeed())
	g.Expect(strings.Count(out.String(), "plan a waits for somebody")).To(Equal(1))
	g.Expect(c.all(g, t)[0].Spec.ApprovedPlan).To(BeEmpty())
	leaves := there.DeepCopy()
	leaves.Name, leaves.ResourceVersion, leaves.Finalizers = "leaves", "", []string{"somebody/waits"}
	g.Expect(c.Create(t.Context(), leaves)).To(Succeed())
	g.Expect(c.Delete(t.Context(), leaves)).To(Succeed())
	g.Expect(r.follow(t.Context(), c, leaves)).To(MatchError(ContainSubstring("was deleted")))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(r.follow(ctx, c, there.DeepCopy())).To(MatchError(context.Canceled))
}

// A person who goes away instead of an answer ends the command, and confirms nothing.
func TestAQuestionIsInterrupted(t *testing.T) {
	g := NewWithT(t)
	c := newUpgrades(t, nil, plans("a"))
	silent, person := io.Pipe()
	defer func() { _ = person.Close() }()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	r := &raise{options: &options{out: &bytes.Buffer{}}, in: silent, every: time.Millisecond}
	r.complete("prod")
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, c, "ns") }()
	g.Eventually(ended).WithTimeout(10 * time.Second).Should(Receive(MatchError(ContainSubstring("nobody confirmed plan a"))))
	g.Expect(c.all(g, t)[0].Spec.ApprovedPlan).To(BeEmpty())
}

// What admission refuses is refused, and what cannot be asked is not.
func TestAnUpgradeThatIsNotTaken(t *testing.T) {
	g := NewWithT(t)
	c := newUpgrades(t, nil)
	answer := error(apierrors.NewForbidden(quoinv1.GroupVersion.WithResource("clusterupgrades").GroupResource(), "", errors.New("R4")))
	failing := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return answer }})
	r := &raise{options: &options{out: &bytes.Buffer{}}}
	g.Expect(r.run(t.Context(), failing, "ns")).To(And(MatchError(execute.ErrRefused), MatchError(ContainSubstring("R4"))))
	answer = errors.New("no route to host")
	g.Expect(r.run(t.Context(), failing, "ns")).To(And(MatchError(answer), Not(MatchError(execute.ErrRefused))))
}
