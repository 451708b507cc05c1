// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

var errNoRoute = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("no route to host")}

// silentWorld has a node whose host no longer answers, beside one that does and serves the same management cluster.
func silentWorld(t *testing.T, change func(*infrav1.QuoinHost)) *world {
	w := loneWorld(t, change)
	w.addPeer("beside", func(*owner.Record) {})
	return w
}

// addPeer gives the Cluster another node. Its host shows our owner record, changed; it is silent when change is nil.
func (w *world) addPeer(name string, change func(*owner.Record)) *infrav1.QuoinHost {
	w.t.Helper()
	host := newHost()
	host.Name, host.UID = name, types.UID("uid-"+name)
	host.Spec.HostKeys, host.Spec.FailureDomain = []string{keyA}, "rack-b"
	host.Spec.ClaimGeneration, host.Spec.ManagedBy = 1, string(host.UID)
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "q" + name, Machine: "m" + name,
		Claim: "c" + name}
	host.Status.State = infrav1.HostStateProvisioned
	_, _, machine, _, _ := consumer(false)
	machine.Name, machine.UID = "m"+name, types.UID("machine-"+name)
	machine.Spec.ProviderID = host.ProviderID()
	w.create(host, machine)
	if change != nil {
		record := hostaccess.OwnerRecord(host)
		change(&record)
		w.room.set(func() {
			if w.room.neighbors == nil {
				w.room.neighbors = map[string]*owner.Record{}
			}
			w.room.neighbors[name] = &record
		})
	}
	return host
}

// loneWorld has a node whose host no longer answers, and no other of its Cluster.
func loneWorld(t *testing.T, change func(*infrav1.QuoinHost)) *world {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.FailureDomain = "rack-a"; change(h) })
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { w.room.err = errNoRoute })
	w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
	return w
}

func withBMC(h *infrav1.QuoinHost) {
	h.Spec.BMC = &infrav1.BMC{Address: "https://192.0.2.111", CredentialsRef: infrav1.SecretReference{Name: "bmc"}}
}

func nothing(*infrav1.QuoinHost) {}

// neighbor is another host of the domain.
func neighbor(name string, silentSince *metav1.Time) *infrav1.QuoinHost {
	h := newHost()
	h.Name, h.UID, h.Spec.FailureDomain = name, "", "rack-a"
	h.Status.State, h.Status.UnreachableSince = infrav1.HostStateProvisioned, silentSince
	return h
}

func (w *world) never(what string, bad func(*infrav1.QuoinHost) bool, rounds int) {
	w.t.Helper()
	for range rounds {
		w.linger(1)
		if host := w.host(); bad(host) {
			w.t.Fatalf("%s: %s", what, describe(host))
		}
	}
}

// Loss of SSH while the node is wanted is no reason to replace it.
func TestAWantedHostIsNeverGivenUpForItsSilence(t *testing.T) {
	w := silentWorld(t, withBMC)
	w.never("was given up", func(h *infrav1.QuoinHost) bool {
		return h.Status.State != infrav1.HostStateProvisioned || condition1(h, infrav1.HostFencedCondition) != nil ||
			condition1(h, infrav1.HostProvisionedCondition).Status != metav1.ConditionTrue
	}, 50)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
	w.g.Expect(condition1(w.host(), infrav1.HostReachableCondition).Status).To(Equal(metav1.ConditionFalse))
	w.room.set(func() { w.room.err = nil })
	host := w.until("back", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince == nil })
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))
}

func TestADeadHostWithoutABMCWaitsForAPerson(t *testing.T) {
	w := silentWorld(t, nothing)
	deleteMachine(w)
	found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostNotFencedReason)
	w.g.Expect(w.now.Sub(w.host().Status.UnreachableSince.Time)).To(BeNumerically(">=", 10*time.Minute))
	w.g.Expect(found.Message).To(And(ContainSubstring("has not answered since"),
		ContainSubstring(infrav1.AbandonAnnotation)))
	w.never("was let go", (*infrav1.QuoinHost).GivenUp, 20)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(And(ContainSubstring("no BMC can tell"),
		ContainSubstring("unreachable.release: AfterTimeout"), ContainSubstring(infrav1.AbandonAnnotation)))

	w.annotate(infrav1.AbandonAnnotation, w.host().ProviderID())
	w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
}

func TestADeadHostIsLetGoAfterTheTimeoutWhenThatIsThePolicy(t *testing.T) {
	w := silentWorld(t, func(h *infrav1.QuoinHost) { h.Spec.Unreachable.Release = infrav1.UnreachableReleaseAfterTimeout })
	deleteMachine(w)
	host := w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.g.Expect(host.Fenced()).To(BeFalse(), "nobody knows")
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostDeadReason))
	w.g.Expect(host.Status.UnreachableSince).NotTo(BeNil())
}

// A pool may know better than its hosts what two nodes of it could damage.
func TestThePolicyOfTheMachineCountsInsteadOfTheHosts(t *testing.T) {
	said := func(policy infrav1.UnreachablePolicy, host func(*infrav1.QuoinHost)) *world {
		w := silentWorld(t, host)
		quoinMachine := &infrav1.QuoinMachine{}
		w.object(quoinMachine, "qm1")
		quoinMachine.Spec.Unreachable = policy
		w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
		deleteMachine(w)
		return w
	}
	w := said(infrav1.UnreachablePolicy{Release: infrav1.UnreachableReleaseAfterTimeout,
		TimeoutSeconds: ptr.To[int32](900)}, nothing)
	host := w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.g.Expect(host.Fenced()).To(BeFalse())
	w.g.Expect(w.now.Sub(host.Status.UnreachableSince.Time)).To(BeNumerically(">=", 15*time.Minute))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(ContainSubstring("limit 15m0s"))

	w = said(infrav1.UnreachablePolicy{Release: infrav1.UnreachableReleaseWhenFenced}, func(h *infrav1.QuoinHost) {
		h.Spec.Unreachable.Release = infrav1.UnreachableReleaseAfterTimeout
	})
	w.never("was let go", (*infrav1.QuoinHost).GivenUp, 30)
}

func TestABootIsTriedBeforeAHostIsPoweredOff(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	host := w.until("cycled", func(h *infrav1.QuoinHost) bool {
		return h.Status.Power != nil &&
			h.Status.Power.CycledAt != nil
	})
	at := host.Status.Power.CycledAt.Time
	// A manager that dies meanwhile neither cycles again nor powers off early.
	w.restart()
	host = w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off"}))
	w.g.Expect(w.now.Sub(at)).To(BeNumerically(">=", bootTime))
	w.g.Expect(host.Fenced()).To(BeTrue())
	w.g.Expect(host.Status.Power.State).To(Equal("Off"))
	w.g.Expect(w.room.count("clean")).To(BeZero())
}

func TestAHostThatABootBringsBackIsResetAsUsual(t *testing.T) {
	w := silentWorld(t, withBMC)
	w.bmc.onCycle = func() { w.room.set(func() { w.room.err = nil }) }
	deleteMachine(w)
	host := w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle"}))
	w.g.Expect(condition1(host, infrav1.HostFencedCondition)).To(BeNil())
	w.g.Expect(host.Status.UnreachableSince).To(BeNil())
}

// toldTo leads to an order for the power of a silent host, and has something happen before the BMC hears it.
func toldTo(t *testing.T, order string, during func(*world, context.Context)) *world {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	before := 0
	if order == "off" {
		w.until("cycled", func(*infrav1.QuoinHost) bool { return len(w.bmc.told()) == 1 })
		before = 1
	}
	happened := false
	w.bmc.during = func(ctx context.Context) {
		if !happened {
			happened = true
			during(w, ctx)
		}
	}
	w.until("about to be told", func(*infrav1.QuoinHost) bool { return happened })
	w.g.Expect(w.bmc.told()).To(HaveLen(before), "an order that was withdrawn")
	return w
}

func TestAnOrderToABMCIsWithdrawnWhenTheHostAnswers(t *testing.T) {
	for _, order := range []string{"cycle", "off"} {
		t.Run(order, func(t *testing.T) {
			w := toldTo(t, order, func(w *world, ctx context.Context) {
				w.room.set(func() { w.room.err = nil })
				for range 100 {
					res, err := w.r.Reconcile(w.ctx, request(w))
					w.g.Expect(err).NotTo(HaveOccurred())
					w.g.Eventually(func() bool {
						_, _, asked := w.r.Calls.Running(w.key)
						return asked
					}, "1m", "1ms").Should(BeFalse())
					if w.host().Status.UnreachableSince == nil {
						break
					}
					w.now = w.now.Add(min(res.RequeueAfter, 10*time.Second))
				}
				w.g.Expect(ctx.Err()).To(MatchError(context.Canceled), "the order is called back at once")
			})
			host := w.until("clean", (*infrav1.QuoinHost).Released)
			w.g.Expect(host.GivenUp()).To(BeFalse())
		})
	}
}

// A process that does not hear the host itself, as one behind a full queue, looks before it orders.
func TestAnOrderToABMCIsGivenOnlyAsItWasAgreed(t *testing.T) {
	for name, change := range map[string]func(*infrav1.QuoinHost){
		"the host answered": func(h *infrav1.QuoinHost) { h.Status.UnreachableSince = nil },
		"it fell silent again": func(h *infrav1.QuoinHost) {
			h.Status.UnreachableSince.Time = h.Status.UnreachableSince.Add(time.Minute)
		},
		"another claim":              func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Claim = "ffffffff" },
		"no claim":                   func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil },
		"another generation":         func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration++ },
		"another management cluster": func(h *infrav1.QuoinHost) { h.Spec.ManagedBy = "another" },
		"another BMC":                func(h *infrav1.QuoinHost) { h.Spec.BMC.Address = "https://192.0.2.112" },
		"maintenance":                func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "fans"} },
		"paused":                     func(h *infrav1.QuoinHost) { h.Annotations[clusterv1.PausedAnnotation] = "" },
		"detached":                   func(h *infrav1.QuoinHost) { h.Annotations[infrav1.DetachedAnnotation] = "" },
		"held":                       func(h *infrav1.QuoinHost) { h.Spec.HeldFor = &infrav1.HostHold{Reason: "a move"} },
	} {
		t.Run(name, func(t *testing.T) {
			toldTo(t, "off", func(w *world, _ context.Context) {
				// The reconciles that wait for the order write, too.
				w.g.Eventually(func() error {
					host := w.host()
					if host.Annotations == nil {
						host.Annotations = map[string]string{}
					}
					status := host.DeepCopy()
					change(host)
					change(status)
					status.Spec, status.Annotations = host.Spec, host.Annotations
					if err := w.client.Update(context.Background(), host); err != nil {
						return err
					}
					status.ResourceVersion = host.ResourceVersion
					return w.client.Status().Update(context.Background(), status)
				}, "1m", "1ms").Should(Succeed())
			})
		})
	}
}

// That an order was withheld is no failure of the BMC, for which AfterTimeout would let the host go unfenced.
func TestAnOrderThatIsWithheldLetsNobodyGo(t *testing.T) {
	var broken bool
	w := silentWorld(t, func(h *infrav1.QuoinHost) {
		withBMC(h)
		h.Spec.Unreachable.Release = infrav1.UnreachableReleaseAfterTimeout
	})
	w.r.APIReader = interceptor.NewClient(w.watching(), interceptor.Funcs{Get: func(ctx context.Context,
		c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, isHost := object.(*infrav1.QuoinHost); isHost && broken {
			return errors.New("the API server is away")
		}
		return c.Get(ctx, key, object, options...)
	}})
	broken = true
	deleteMachine(w)
	w.until("withheld", func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostFencedCondition)
		return c != nil && strings.Contains(c.Message, "the API server is away")
	})
	w.never("was given up", (*infrav1.QuoinHost).GivenUp, 10)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
	broken = false
	host := w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.g.Expect(host.Fenced()).To(BeTrue())
}

func TestOnlyPowerThatWasReadBackFences(t *testing.T) {
	for name, c := range map[string]func(*fakeBMC){
		"a BMC that lies":    func(b *fakeBMC) { b.lies = true },
		"a BMC that is down": func(b *fakeBMC) { b.err = errors.New("the BMC at https://192.0.2.111 does not answer") },
	} {
		t.Run(name, func(t *testing.T) {
			w := silentWorld(t, withBMC)
			c(w.bmc)
			deleteMachine(w)
			found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostBMCFailedReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("BMC"), ContainSubstring("tried again at"),
				ContainSubstring(infrav1.AbandonAnnotation)))
			w.never("was let go", (*infrav1.QuoinHost).GivenUp, 30)

			w.bmc.mu.Lock()
			w.bmc.lies, w.bmc.err = false, nil
			w.bmc.mu.Unlock()
			w.until("given up", func(h *infrav1.QuoinHost) bool { return h.GivenUp() && h.Fenced() })
		})
	}
}

func TestALostFailureDomainHoldsEveryReplacementThere(t *testing.T) {
	w := silentWorld(t, withBMC)
	since := w.host().Status.UnreachableSince.Add(4 * time.Minute)
	w.create(neighbor("h2", &metav1.Time{Time: since}), neighbor("h3", nil))
	deleteMachine(w)
	found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostDomainLostReason)
	w.g.Expect(found.Message).To(And(ContainSubstring(`"rack-a"`), ContainSubstring("2 of 3")))
	w.never("was touched", func(h *infrav1.QuoinHost) bool { return h.GivenUp() || h.Fenced() }, 30)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostDomainLostReason))

	other := neighbor("h2", nil)
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "hosts", Name: "h2"}, other)).To(Succeed())
	other.Status.UnreachableSince = nil
	w.g.Expect(w.client.Status().Update(context.Background(), other)).To(Succeed())
	w.until("given up", (*infrav1.QuoinHost).GivenUp)
}

// Whoever registers hosts in another namespace names any rack, and any number of them falls silent at will.
func TestSilentHostsOfAnotherNamespaceHoldNoFencingUp(t *testing.T) {
	w := silentWorld(t, withBMC)
	since := w.host().Status.UnreachableSince.Add(4 * time.Minute)
	for _, name := range []string{"h2", "h3", "h4"} {
		stranger := neighbor(name, &metav1.Time{Time: since})
		stranger.Namespace = "strangers"
		w.create(stranger)
	}
	deleteMachine(w)
	w.until("given up", (*infrav1.QuoinHost).GivenUp)
}

// Nor does any number of them that answers make a lost rack look well.
func TestHostsOfAnotherNamespaceThatAnswerFenceNobody(t *testing.T) {
	w := silentWorld(t, withBMC)
	since := w.host().Status.UnreachableSince.Add(4 * time.Minute)
	w.create(neighbor("h2", &metav1.Time{Time: since}), neighbor("h3", nil))
	for number := range 10 {
		stranger := neighbor(fmt.Sprintf("h%d", number), nil)
		stranger.Namespace = "strangers"
		w.create(stranger)
	}
	deleteMachine(w)
	found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostDomainLostReason)
	w.g.Expect(found.Message).To(And(ContainSubstring(`"rack-a"`), ContainSubstring("2 of 3")))
	w.never("was touched", func(h *infrav1.QuoinHost) bool { return h.GivenUp() || h.Fenced() }, 30)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
}

func TestAHostAtWhichSomebodyWorksIsNotPowered(t *testing.T) {
	w := silentWorld(t, withBMC)
	w.update(modes["in maintenance"])
	deleteMachine(w)
	found := w.untilReason(infrav1.HostFencedCondition, infrav1.HostMaintenanceReason)
	w.g.Expect(found.Message).To(ContainSubstring("new fans"))
	w.linger(20)
	w.g.Expect(w.bmc.told()).To(BeEmpty())
}

// The deletion of a Machine waits for its volumes, which only a fenced node sets free: that is before its QuoinMachine
// goes.
func TestTheHostOfADeletedMachineIsFencedBeforeItsQuoinMachineGoes(t *testing.T) {
	for _, c := range []struct {
		node         metav1.ConditionStatus
		kept, fenced bool
	}{{metav1.ConditionUnknown, false, true}, {metav1.ConditionTrue, false, false}, {metav1.ConditionUnknown, true, false}} {
		t.Run(fmt.Sprintf("node ready %s, kept by its control plane %t", c.node, c.kept), func(t *testing.T) {
			w := silentWorld(t, withBMC)
			machine := &clusterv1.Machine{}
			w.object(machine, "m1")
			if c.kept {
				metav1.SetMetaDataAnnotation(&machine.ObjectMeta, controlplanev1.PreDrainHookAnnotation, "")
				w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
			}
			w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
			w.object(machine, "m1")
			machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineNodeReadyCondition, Status: c.node,
				Reason: "Seen", LastTransitionTime: metav1.Time{Time: w.now}}}
			w.g.Expect(w.client.Status().Update(context.Background(), machine)).To(Succeed())
			if !c.fenced {
				w.linger(30)
				w.g.Expect(w.bmc.told()).To(BeEmpty(), "the node is well and being drained, or not to be drained")
				return
			}
			host := w.until("fenced", (*infrav1.QuoinHost).Fenced)
			w.g.Expect(host.GivenUp()).To(BeFalse())
			w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))

			quoinMachine := &infrav1.QuoinMachine{}
			w.object(quoinMachine, "qm1")
			w.g.Expect(w.client.Delete(context.Background(), quoinMachine)).To(Succeed())
			w.until("given up", (*infrav1.QuoinHost).GivenUp)
			w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off"}))
		})
	}
}

// A Machine whose drain was let go still has its vote, and another member may die before that is out of the list.
func TestAHostWhoseVoteEtcdNeedsKeepsItsPower(t *testing.T) {
	all := [3]bool{true, true, true}
	for why, c := range map[string]struct {
		// healthy are the members of m1 and two others.
		healthy [3]bool
		fenced  bool
	}{
		"the others are a quorum": {all, true},
		"another one died":        {[3]bool{true, true, false}, false},
	} {
		t.Run(why, func(t *testing.T) {
			w := silentWorld(t, withBMC)
			controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
			w.create(controlPlane)
			w.deletesVoter()
			read := func(healthy [3]bool) {
				w.object(controlPlane, "cp")
				controlPlane.Status.Etcd = membership(true, w.now, healthy)
				w.g.Expect(w.client.Update(context.Background(), controlPlane)).To(Succeed())
			}
			if c.fenced {
				w.until("fenced", func(h *infrav1.QuoinHost) bool { read(c.healthy); return h.Fenced() })
				return
			}
			for range 100 {
				read(c.healthy)
				w.linger(1)
			}
			w.g.Expect(w.bmc.told()).To(BeEmpty())
			found := condition1(w.host(), infrav1.HostFencedCondition)
			w.g.Expect(found.Reason).To(Equal(infrav1.HostPowerNeededReason))
			w.g.Expect(found.Message).To(And(ContainSubstring("QuoinControlPlane team/cp"),
				ContainSubstring(infrav1.AbandonAnnotation)))
			w.until("fenced once the others are a quorum", func(h *infrav1.QuoinHost) bool { read(all); return h.Fenced() })
		})
	}
}

// A boot may bring a quorum back that is lost, and takes none away; while etcd elects a leader it could.
func TestAHostIsBootedOnceTheQuorumIsLost(t *testing.T) {
	for reason, told := range map[string][]string{controlplanev1.QuorumLostReason: {"cycle"}, "Electing": {}} {
		w := silentWorld(t, withBMC)
		w.create(&controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}})
		w.deletesVoter()
		for range 100 {
			controlPlane := &controlplanev1.QuoinControlPlane{}
			w.object(controlPlane, "cp")
			controlPlane.Status.Etcd = membership(false, w.now, [3]bool{false, true, false})
			controlPlane.Status.Conditions = []metav1.Condition{{Reason: reason, Status: metav1.ConditionFalse,
				Type: controlplanev1.ControlPlaneEtcdClusterHealthyCondition}}
			w.g.Expect(w.client.Update(context.Background(), controlPlane)).To(Succeed())
			w.linger(1)
		}
		w.g.Expect(w.bmc.told()).To(Equal(told))
		w.g.Expect(condition1(w.host(), infrav1.HostFencedCondition).Reason).To(Equal(infrav1.HostPowerNeededReason))
	}
}

// Between the decision and the order another host is asked for its word, and another member may die.
func TestThePowerOfAHostStaysWhenItsVoteIsNeededMeanwhile(t *testing.T) {
	w := silentWorld(t, withBMC)
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "cp"}}
	w.create(controlPlane)
	w.deletesVoter()
	read := func(at time.Time, healthy [3]bool) {
		controlPlane := &controlplanev1.QuoinControlPlane{}
		w.object(controlPlane, "cp")
		controlPlane.Status.Etcd = membership(true, at, healthy)
		w.g.Expect(w.client.Update(context.Background(), controlPlane)).To(Succeed())
	}
	at := w.now
	asked := 0
	w.bmc.during = func(context.Context) {
		asked++
		read(at, [3]bool{true, true, false})
	}
	for range 100 {
		at = w.now
		read(at, [3]bool{true, true, true})
		w.linger(1)
	}
	w.g.Expect(asked).To(BeNumerically(">", 0))
	w.g.Expect(w.bmc.told()).To(BeEmpty())
}

// membership is etcd with the members of m1 and two others.
func membership(agreed bool, at time.Time, healthy [3]bool) *controlplanev1.EtcdStatus {
	status := &controlplanev1.EtcdStatus{Agreed: &agreed, ObservedTime: metav1.NewTime(at)}
	for i := range healthy {
		status.Members = append(status.Members, controlplanev1.EtcdMember{Name: fmt.Sprintf("n%d", i+1),
			ID: fmt.Sprint(i + 1), Machine: fmt.Sprintf("m%d", i+1), Role: "Voter", Healthy: &healthy[i]})
	}
	return status
}

// deletesVoter deletes the Machine as one of three of QuoinControlPlane cp, whose drain was let go, and whose node is
// silent.
func (w *world) deletesVoter() {
	w.t.Helper()
	for _, name := range []string{"m2", "m3"} {
		_, _, other, _, _ := consumer(true)
		other.Name, other.UID = name, types.UID(name)
		w.create(other)
	}
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	metav1.SetMetaDataLabel(&machine.ObjectMeta, clusterv1.MachineControlPlaneLabel, "")
	machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: controlplanev1.GroupVersion.String(),
		Kind: "QuoinControlPlane", Name: "cp", UID: "cp", Controller: ptr.To(true)}}
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, controlplanev1.PreTerminateHookAnnotation, "")
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
	w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
	w.object(machine, "m1")
	machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineNodeReadyCondition,
		Status: metav1.ConditionUnknown, Reason: "Seen", LastTransitionTime: metav1.Time{Time: w.now}}}
	w.g.Expect(w.client.Status().Update(context.Background(), machine)).To(Succeed())
}

func TestADeadHostThatReturnsIsNotTrustedUntilItWasReset(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("given up", (*infrav1.QuoinHost).GivenUp)
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	finish(w, &clusterv1.Machine{}, "m1")
	w.until("let go", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	w.never("was forgotten", func(h *infrav1.QuoinHost) bool { return !h.GivenUp() }, 5)

	w.until("looked for", func(h *infrav1.QuoinHost) bool { return h.Status.NextAttempt != nil })
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).NotTo(ContainSubstring("to try now"),
		"the same word resets it")
	w.room.set(func() { w.room.err = nil })
	w.now = w.now.Add(time.Hour)
	found := w.untilReason(infrav1.HostCleanCondition, infrav1.HostReturnedReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("still serves QuoinMachine qm1 (claim 0123abcd"),
		ContainSubstring(infrav1.RetryAnnotation)))
	w.g.Expect(w.host().Fenced()).To(BeFalse(), "it runs")
	w.never("was trusted", func(h *infrav1.QuoinHost) bool { return h.Status.State != infrav1.HostStateQuarantined }, 20)

	w.annotate(infrav1.RetryAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
}

func TestAHostThatWasPoweredOffIsTurnedOnToBeReset(t *testing.T) {
	w := silentWorld(t, withBMC)
	deleteMachine(w)
	w.until("given up", (*infrav1.QuoinHost).GivenUp)
	w.annotate(infrav1.RetryAnnotation, "")
	w.until("on", func(h *infrav1.QuoinHost) bool { return h.Status.Power.State == "On" })
	w.g.Expect(w.bmc.told()).To(Equal([]string{"cycle", "off", "on"}))
	w.room.set(func() { w.room.err = nil })
	w.until("clean", (*infrav1.QuoinHost).Released)
}

func TestTheVerdictOnASilentHost(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	after := infrav1.UnreachablePolicy{Release: infrav1.UnreachableReleaseAfterTimeout}
	since := now.Add(-time.Hour)
	for _, c := range []struct {
		why  string
		s    unreachability
		want death
	}{
		{"the time is not over", unreachability{since: now.Add(-9 * time.Minute), leaving: true}, notYet},
		{"fenced, and the claim ends", unreachability{since: since, leaving: true, fenced: true}, giveUp},
		{"fenced is enough even where the domain is lost",
			unreachability{since: since, leaving: true, fenced: true, lost: true},
			giveUp},
		{"fenced, and the node is still drained", unreachability{since: since, fenced: true}, fenced},
		{"the domain is lost, whatever the policy", unreachability{since: since, leaving: true, lost: true, policy: after,
			bmc: true}, domainLost},
		{"nothing can tell", unreachability{since: since, leaving: true}, unfenced},
		{"nobody asks", unreachability{since: since, leaving: true, policy: after}, giveUp},
		{"nobody asks, but the node is still drained", unreachability{since: since, policy: after}, unfenced},
		{"a boot first", unreachability{since: since, leaving: true, bmc: true}, cycle},
		{"a boot first, whatever the policy", unreachability{since: since, leaving: true, bmc: true, policy: after}, cycle},
		{"a boot in an earlier silence does not count",
			unreachability{since: since, bmc: true, cycledAt: since.Add(-time.Hour)},
			cycle},
		{"it has its time to boot", unreachability{since: since, bmc: true, cycledAt: now.Add(-time.Minute)}, booting},
		{"the boot did not help", unreachability{since: since, bmc: true, cycledAt: now.Add(-6 * time.Minute)}, fence},
		{"the BMC fails: tried again", unreachability{since: since, leaving: true, bmc: true, bmcFailed: true,
			cycledAt: now.Add(-6 * time.Minute)}, fence},
		{"the BMC fails, and nobody asks",
			unreachability{since: since, leaving: true, bmc: true, bmcFailed: true, policy: after},
			giveUp},
	} {
		t.Run(c.why, func(t *testing.T) { NewWithT(t).Expect(c.s.judge(now)).To(Equal(c.want)) })
	}
}
