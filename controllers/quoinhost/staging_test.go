// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// stagedOf is what the host of these tests is asked for.
func stagedOf(role string) infrav1.StagedArtifacts {
	return infrav1.StagedArtifacts{Namespace: "team", Template: "t1", Version: "v1.36.3", Role: role}
}

// stagingWorld has a free host that an upgrade asks for something.
func stagingWorld(t *testing.T, roles ...string) *world {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil })
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "t1"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "https://bundles.test/{{version}}"}
	template.Spec.Template.Spec.HostNamespaces = []string{"hosts"}
	w.create(template)
	w.untilState(infrav1.HostStateAvailable)
	w.ask(roles...)
	return w
}

func (w *world) ask(roles ...string) {
	w.t.Helper()
	w.update(func(h *infrav1.QuoinHost) {
		h.Spec.Stage = &infrav1.HostStage{RequestedBy: "team/u", Until: metav1.NewTime(w.now.Add(time.Hour))}
		for _, role := range roles {
			h.Spec.Stage.Artifacts = append(h.Spec.Stage.Artifacts, stagedOf(role))
		}
	})
}

// takes has qm1 claim the host, as its controller does.
func (w *world) takes() {
	w.t.Helper()
	w.update(func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
		h.Spec.ClaimGeneration++
		h.Spec.ManagedBy = string(h.UID)
	})
}

func (w *world) isFree() {
	w.t.Helper()
	host := w.host()
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateAvailable))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue), describe(host))
}

func hasStaged(n int) func(*infrav1.QuoinHost) bool {
	return func(h *infrav1.QuoinHost) bool { return len(h.Status.Staged) == n }
}

func TestAFreeHostGetsWhatItIsAskedFor(t *testing.T) {
	w := stagingWorld(t, infrav1.StageRoleControlPlane, infrav1.StageRoleWorker)
	w.until("staging", func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostStagedCondition)
		return c != nil && c.Reason == infrav1.HostStepRunningReason
	})
	w.isFree()
	w.g.Expect(w.room.stage.Role).To(Equal(artifacts.ControlPlane))
	w.g.Expect(w.room.stage.Artifacts.Bundle.Location).To(Equal("https://bundles.test/{{version}}"))
	w.g.Expect(w.room.stage.Artifacts.Version).To(Equal("v1.36.3"))
	w.g.Expect(w.room.stage.Owner.UID).To(BeEmpty(), "nobody has the host")
	w.until("staged", hasStaged(2))
	w.linger(3)
	w.isFree()
	w.g.Expect(condition1(w.host(), infrav1.HostStagedCondition).Status).To(Equal(metav1.ConditionTrue))
	w.g.Expect(w.room.count("stage")).To(Equal(2), "each once")
	w.g.Expect(w.host().Spec.Order).To(BeNil(), "it is no order")
	w.g.Expect(w.room.record).To(BeNil(), "the host still serves nobody")

	// It is asked for something else: the rest is not spoken of.
	w.ask(infrav1.StageRoleWorker)
	w.until("one", hasStaged(1))
	w.takes()
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.host().Status.Staged).To(BeEmpty(), "the installation used it up")
	w.g.Expect(condition1(w.host(), infrav1.HostStagedCondition)).To(BeNil())
	w.g.Expect(w.room.count("stage")).To(Equal(2), "a host in use is asked in vain")
}

// A claim comes at whatever moment: the same calls follow that follow on a host that nobody asked for anything.
func TestAClaimDoesNotWaitForStaging(t *testing.T) {
	usual := map[bool]int{}
	for _, killed := range []bool{false, true} {
		plain := stagingWorld(t)
		plain.takes()
		if killed {
			plain.restart()
		}
		usual[killed] = plain.stepsToProvision()
	}
	for name, until := range map[string]func(*world){
		"before anything": func(*world) {},
		"while the host is asked whether it began": func(w *world) {
			w.until("asked", func(*infrav1.QuoinHost) bool { return w.room.count("follow") > 0 })
		},
		"when the plan is about to start": func(w *world) {
			w.until("named", func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && isStaging(h.Status.Operation.ID)
			})
		},
		"while it runs": func(w *world) {
			w.until("runs", func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && h.Status.Operation.Phase == infrav1.HostOperationRunning
			})
		},
		"after it failed": func(w *world) {
			w.room.script[stagePlan(stagedOf(infrav1.StageRoleWorker))] = []run.Status{{Phase: run.Failed}}
			w.untilReason(infrav1.HostStagedCondition, infrav1.HostStagingFailedReason)
		},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", and the manager dies"}[killed], func(t *testing.T) {
				w := stagingWorld(t, infrav1.StageRoleWorker)
				w.room.set(func() {
					w.room.script[stagePlan(stagedOf(infrav1.StageRoleWorker))] = []run.Status{{Phase: run.Running, Step: "image"}}
				})
				until(w)
				w.takes()
				if killed {
					w.restart()
				}
				w.g.Expect(w.stepsToProvision()).To(BeNumerically("<=", usual[killed]+1))
				w.g.Expect(w.host().Status.NextAttempt).To(BeNil())
				w.untilState(infrav1.HostStateProvisioned)
			})
		}
	}
}

// stepsToProvision counts the reconciles until the installation was handed over.
func (w *world) stepsToProvision() int {
	w.t.Helper()
	for n := range 100 {
		if w.room.count("provision") > 0 {
			return n
		}
		result := w.reconcile()
		w.now = w.now.Add(min(result.RequeueAfter, time.Second))
	}
	w.t.Fatal("never provisioned:", describe(w.host()))
	return 0
}

// The source of a bundle may be silent for as long as it likes.
func TestAClaimEndsTheConversationAboutStaging(t *testing.T) {
	w := stagingWorld(t, infrav1.StageRoleWorker)
	gone := make(chan struct{})
	w.room.set(func() {
		w.room.staging = func(ctx context.Context) error {
			<-ctx.Done()
			close(gone)
			return ctx.Err()
		}
	})
	for range 20 {
		if w.room.count("stage") > 0 {
			break
		}
		_, err := w.r.Reconcile(context.Background(), request(w))
		w.g.Expect(err).NotTo(HaveOccurred())
		time.Sleep(10 * time.Millisecond)
	}
	w.takes()
	_, err := w.r.Reconcile(context.Background(), request(w))
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Eventually(gone, "5s").Should(BeClosed())
	w.untilState(infrav1.HostStateProvisioned)
}

func TestWhatCannotBeStagedIsToldAndLeavesTheHostFree(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		says   string
	}{
		"a bundle that is not there": {func(w *world) {
			w.room.errs["stage"] = &ArtifactsError{Place: "https://bundles.test/v1.36.3", Err: errors.New("not found")}
		}, "not found"},
		"a host that serves somebody else": {func(w *world) {
			w.room.errs["stage"] = &owner.HeldError{Holder: owner.Record{Machine: "other"}}
		}, "other"},
		"a step that fails": {func(w *world) {
			w.room.script[stagePlan(stagedOf(infrav1.StageRoleWorker))] = []run.Status{{Phase: run.Failed, Message: "no room"}}
		}, "no room"},
		"a template that is gone": {func(w *world) {
			w.g.Expect(w.client.DeleteAllOf(context.Background(), &infrav1.QuoinMachineTemplate{})).To(Succeed())
		}, "there is no QuoinMachineTemplate team/t1"},
		"another namespace": {func(w *world) {
			w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"others"} })
		}, "spec.consumerNamespaces does not offer the host to namespace team"},
		"a template that does not accept the host": {func(w *world) {
			template := &infrav1.QuoinMachineTemplate{}
			w.object(template, "t1")
			template.Spec.Template.Spec.HostNamespaces = []string{"team"}
			w.g.Expect(w.client.Update(context.Background(), template)).To(Succeed())
		}, "spec.template.spec.hostNamespaces of QuoinMachineTemplate team/t1 does not name namespace hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			w := stagingWorld(t, infrav1.StageRoleWorker)
			c.change(w)
			said := w.untilReason(infrav1.HostStagedCondition, infrav1.HostStagingFailedReason)
			w.g.Expect(said.Message).To(And(ContainSubstring(c.says), ContainSubstring("only costs time later")))
			w.isFree()
			probes := w.room.count("probe")
			w.linger(4)
			w.g.Expect(w.room.count("probe")).To(BeNumerically(">", probes), "it is looked at as ever")
			w.isFree()
		})
	}
}

func TestStagingThatFailedIsTriedAgainLater(t *testing.T) {
	w := stagingWorld(t, infrav1.StageRoleWorker)
	w.room.set(func() { w.room.errs["stage"] = errors.New("no such bundle") })
	w.untilReason(infrav1.HostStagedCondition, infrav1.HostStagingFailedReason)
	w.room.set(func() { delete(w.room.errs, "stage") })
	begin := w.now
	w.until("staged", hasStaged(1))
	w.g.Expect(w.now.Sub(begin)).To(BeNumerically(">=", DefaultTimings().Stage))
}

func TestARequestThatIsOverIsNotCarriedOut(t *testing.T) {
	w := stagingWorld(t, infrav1.StageRoleWorker)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Stage.Until = metav1.NewTime(w.now) })
	w.linger(5)
	w.g.Expect(w.room.count("stage")).To(BeZero())
	w.g.Expect(condition1(w.host(), infrav1.HostStagedCondition)).To(BeNil())
}

// What runs is seen to its end also when nobody asks for it any more: a pause waits for what the status says runs.
func TestAPlanIsFollowedWhenItsRequestIsWithdrawn(t *testing.T) {
	w := stagingWorld(t, infrav1.StageRoleWorker)
	w.until("runs", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.Phase == infrav1.HostOperationRunning
	})
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Stage = nil })
	w.until("ended", func(h *infrav1.QuoinHost) bool { return h.Status.Operation.Succeeded() })
	w.isFree()
}

// Managers die after two, three or four steps, each with what it knew; the host gets each version once.
func TestStagingSurvivesTheManager(t *testing.T) {
	for lives := 2; lives <= 4; lives++ {
		w := stagingWorld(t, infrav1.StageRoleControlPlane, infrav1.StageRoleWorker)
		for n := 0; len(w.host().Status.Staged) < 2 && n < 200; n++ {
			result := w.reconcile()
			w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
			if n%lives == lives-1 {
				w.restart()
			}
		}
		w.isFree()
		w.g.Expect(w.host().Status.Staged).To(HaveLen(2))
		started := slices.DeleteFunc(w.changes(), func(change string) bool { return !strings.HasPrefix(change, "stage ") })
		w.g.Expect(started).To(HaveLen(2))
	}
}

// Whatever runs on a host that is claimed makes room for what its Machine needs, in the exchange that starts that.
func TestAnInstallationEndsWhatIsBeingStaged(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{answers: map[string]string{"manifest.json": manifestText,
		"/proc/uptime": fmt.Sprintf("clock %d.0 100 boot-1\n", time.Now().Unix())}}
	p := &sshProvisioner{connector: host}
	free, order := newHost(), provisionOrderOf(t, "/opt/bundles/{{version}}")
	order.VirtualAddress, order.Role = nil, artifacts.Worker
	g.Expect(p.Stage(t.Context(), free, StageOrder{ID: "stage-1", Role: order.Role, Artifacts: order.Artifacts,
		Owner: owner.Record{Namespace: "hosts", Host: "h1", Generation: 1}})).To(Succeed())
	start := host.scripts[len(host.scripts)-1]
	g.Expect(start).To(And(ContainSubstring("IOSchedulingClass=idle"), ContainSubstring("quoin-run-stage-1"),
		Not(ContainSubstring("stop_plan"))))
	g.Expect(strings.Join(host.scripts, "\n")).NotTo(ContainSubstring("owner.json.part"), "the host is not taken")

	g.Expect(p.Provision(t.Context(), free, order)).To(Succeed())
	start = host.scripts[len(host.scripts)-1]
	g.Expect(start).To(And(ContainSubstring(`stop_plan "$id"`), Not(ContainSubstring("IOSchedulingClass"))))
}
