// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

func TestANewHostIsRegisteredInspectedAndAvailable(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.reconcile()
	host := w.host()
	w.g.Expect(host.Spec.HostKeys).To(Equal([]string{keyA}), "the key of the first contact is pinned")
	w.g.Expect(host.Finalizers).To(ContainElement(infrav1.HostFinalizer))
	w.g.Expect(host.Status.Facts.Hostname).To(Equal("h1"))
	w.g.Expect(host.Status.Facts.NodeAddresses).To(Equal([]string{"10.0.0.11"}))
	for _, kind := range []string{infrav1.HostReadyCondition, infrav1.HostReachableCondition,
		infrav1.HostKeyVerifiedCondition, infrav1.HostInspectedCondition, infrav1.HostCleanCondition} {
		w.g.Expect(condition1(host, kind).Status).To(Equal(metav1.ConditionTrue), kind)
	}
}

func TestAHostWithAPinnedKeyIsNeverIdentifiedAnew(t *testing.T) {
	host := newHost()
	host.Spec.HostKeys = []string{keyA}
	w := newWorld(t, host)
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("identify")).To(BeZero())
}

func TestAFailedContactIsAConditionThatSaysWhatToDoAndIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err               error
		condition, reason string
		says              []string
	}{
		"missing Secret": {
			&hostaccess.CredentialsError{Secret: "hosts/ssh", Problem: "does not exist", Fix: "create it with: kubectl ..."},
			infrav1.HostReachableCondition, infrav1.HostCredentialsInvalidReason,
			[]string{"hosts/ssh does not exist", "create it"},
		},
		"wrong SSH key": {
			&ssh.AuthError{Endpoint: "192.0.2.11:22", User: "root", Fingerprints: []string{"SHA256:ours"}},
			infrav1.HostReachableCondition, infrav1.HostAuthenticationFailedReason,
			[]string{"refused user \"root\"", "SHA256:ours", "authorized_keys"},
		},
		"no sudo": {
			&ssh.SudoError{Endpoint: "192.0.2.11:22", User: "ops", Detail: "a password is required"},
			infrav1.HostReachableCondition, infrav1.HostAuthenticationFailedReason, []string{"cannot become root", "NOPASSWD"},
		},
		"unreachable": {
			&ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("connection refused")},
			infrav1.HostReachableCondition, infrav1.HostUnreachableReason,
			[]string{"cannot reach 192.0.2.11:22", "check that the host is up"},
		},
		"slow": {
			context.DeadlineExceeded, infrav1.HostReachableCondition, infrav1.HostUnreachableReason,
			[]string{"did not answer in time"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newHost())
			w.room.err = c.err
			found := w.untilReason(c.condition, c.reason)
			for _, text := range c.says {
				w.g.Expect(found.Message).To(ContainSubstring(text))
			}
			ready := condition1(w.host(), infrav1.HostReadyCondition)
			w.g.Expect(ready.Status).To(Equal(metav1.ConditionFalse))
			w.g.Expect(ready.Message).To(HavePrefix(strings.TrimRight(found.Message, ".")), "what kubectl get shows")

			w.room.set(func() { w.room.err = nil })
			w.untilState(infrav1.HostStateAvailable)
			w.g.Expect(w.host().Status.Failures).To(BeNil())
		})
	}
}

func TestAttemptsGrowApartAndThePersonNeedNotWait(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("no route to host")}
	w.until("failed four times", func(h *infrav1.QuoinHost) bool {
		return h.Status.Failures != nil &&
			*h.Status.Failures == 4
	})
	w.g.Expect(w.host().Status.NextAttempt.Sub(w.now)).To(BeNumerically(">", 20*time.Second),
		"the fourth distance is 40 s, and a part of it has passed")
	asked := w.room.count("identify")
	w.reconcile()
	w.g.Expect(w.room.count("identify")).To(Equal(asked), "events do not shorten the distance")

	w.annotate(infrav1.RetryAnnotation, "now")
	w.reconcile()
	w.g.Expect(w.room.count("identify")).To(Equal(asked + 1))
	w.g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.RetryAnnotation))
}

func TestDistanceDoublesUpToABoundWithJitter(t *testing.T) {
	g := NewWithT(t)
	g.Expect(DefaultTimings().distance(1, 0)).To(Equal(5 * time.Second))
	g.Expect(DefaultTimings().distance(4, 0)).To(Equal(40 * time.Second))
	g.Expect(DefaultTimings().distance(7, 0)).To(Equal(5 * time.Minute))
	g.Expect(DefaultTimings().distance(1000, 0)).To(Equal(5 * time.Minute))
	g.Expect(DefaultTimings().distance(1, 0.999)).To(BeNumerically("~", 4*time.Second, 10*time.Millisecond))
}

func TestAChangedHostKeyStopsAllWorkUntilAPersonAcceptsIt(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	keys, err := ssh.ParseHostKeys("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFj2GyTkMBmTYzYVZlS0DHYnF6sd7bM8EJw8nTiz2uxR")
	g.Expect(err).NotTo(HaveOccurred())
	got := ssh.Fingerprint(keys[0])
	w.room.set(func() {
		w.room.err = &ssh.HostKeyChangedError{Endpoint: "192.0.2.11:22", Want: []string{fingerprint(keyA)}, Got: got,
			Key: keys[0]}
	})
	w.now = w.now.Add(time.Hour)
	found := w.untilReason(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason)
	g.Expect(found.Message).To(And(ContainSubstring(got), ContainSubstring(fingerprint(keyA)),
		ContainSubstring("annotate quoinhost h1 "+infrav1.AcceptHostKeyAnnotation+"="+got)))
	g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionFalse),
		"so that nobody claims it")

	w.annotate(infrav1.AcceptHostKeyAnnotation, "SHA256:anotherone")
	w.now = w.now.Add(time.Hour)
	w.linger(4)
	g.Expect(w.host().Spec.HostKeys).To(Equal([]string{keyA}))
	g.Expect(condition1(w.host(), infrav1.HostKeyVerifiedCondition).Message).To(
		ContainSubstring("accepts SHA256:anotherone, which is not the presented key"))

	w.annotate(infrav1.AcceptHostKeyAnnotation, got)
	w.until("pinned", func(h *infrav1.QuoinHost) bool { return h.Spec.HostKeys[0] != keyA })
	g.Expect(w.host().Annotations).NotTo(HaveKey(infrav1.AcceptHostKeyAnnotation))
	w.room.set(func() { w.room.err = nil })
	inspected := w.room.count("inspect")
	w.until("available again", func(h *infrav1.QuoinHost) bool {
		return h.Status.State == infrav1.HostStateAvailable &&
			condition1(h, infrav1.HostReadyCondition).Status == metav1.ConditionTrue
	})
	g.Expect(w.room.count("inspect")).To(Equal(inspected+1), "another key most often means another installation")
}

func TestAKeyThatNobodySawIsNotOfferedForAcceptance(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.room.set(func() {
		w.room.err = &ssh.HostKeyChangedError{Endpoint: "192.0.2.11:22", Want: []string{fingerprint(keyA)},
			Got: "of another type"}
	})
	w.now = w.now.Add(time.Hour)
	found := w.untilReason(infrav1.HostKeyVerifiedCondition, infrav1.HostKeyChangedReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("of another type"), ContainSubstring("spec.hostKeys"),
		Not(ContainSubstring("annotate"))))
}

func TestAnUnsuitableHostSaysWhatItLacksAndIsInspectedAgain(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.facts.Systemd = false
	w.room.facts.ContainerRuntime.SocketOK = false
	w.room.facts.ClockOffset = -time.Minute
	found := w.untilReason(infrav1.HostInspectedCondition, infrav1.HostUnsuitableReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("install an OS with systemd"),
		ContainSubstring("systemctl enable --now containerd"),
		ContainSubstring("1m0s behind the manager's"), ContainSubstring("time server")))
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateInspecting))
	w.room.set(func() {
		w.room.facts.Systemd, w.room.facts.ContainerRuntime.SocketOK, w.room.facts.ClockOffset = true, true, 0
	})
	w.untilState(infrav1.HostStateAvailable)
}

func TestAHostWithoutTheProgramsThatPlansNeedIsUnsuitable(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.facts.CommandsMissing = []string{"iptables", "socat", "systemd-run"}
	found := w.untilReason(infrav1.HostInspectedCondition, infrav1.HostUnsuitableReason)
	w.g.Expect(found.Message).To(Equal("the host lacks iptables, systemd-run; install the packages that hold them"))
	w.room.set(func() {
		w.room.facts.CommandsMissing = []string{"socat"}
		w.room.facts.SwapEnabled, w.room.facts.CgroupVersion = true, 1
	})
	host := w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(condition1(host, infrav1.HostInspectedCondition).Message).To(And(ContainSubstring("lacks socat"),
		ContainSubstring("cgroup v1"),
		ContainSubstring("swap is on")), "whether the kubelet tolerates it, its configuration says, which is not known yet")
}

func TestForwardingThatIsNotAllowedIsAHintOnly(t *testing.T) {
	w := newWorld(t, newHost())
	no := false
	w.room.facts.TCPForwardingAllowed = &no
	host := w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(condition1(host, infrav1.HostInspectedCondition).Message).To(ContainSubstring("AllowTcpForwarding"))
}

func TestAHostWithAnEarlierKubernetesIsQuarantinedAndScrubbedAtAPersonsWord(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.facts.KubernetesPresent = []string{"process kubelet runs"}
	host := w.untilState(infrav1.HostStateQuarantined)
	clean := condition1(host, infrav1.HostCleanCondition)
	w.g.Expect(clean.Reason).To(Equal(infrav1.HostNotCleanReason))
	w.g.Expect(clean.Message).To(And(ContainSubstring("process kubelet runs"), ContainSubstring(infrav1.RetryAnnotation)))
	w.linger(5)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(w.room.count("clean")).To(BeZero(), "nobody asked for it")

	w.annotate(infrav1.RetryAnnotation, "")
	w.room.set(func() { w.room.facts.KubernetesPresent = nil })
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
	w.g.Expect(w.room.clean.Owner.UID).To(BeEmpty(), "nobody's claim ends here")
}

func TestAHostThatServesAnotherOwnerIsLeftAlone(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.facts.OwnerRecord = `{"namespace":"elsewhere","host":"x","machine":"m9","uid":"99999999","generation":1}`
	host := w.untilState(infrav1.HostStateQuarantined)
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Reason).To(Equal(infrav1.HostOwnedByOtherReason))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(
		ContainSubstring("QuoinMachine m9 as QuoinHost elsewhere/x"))
}

func TestAFreeHostIsProbedNowAtAPersonsWord(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	probes := w.room.count("probe")
	w.annotate(infrav1.RetryAnnotation, "")
	w.until("probed", func(*infrav1.QuoinHost) bool { return w.room.count("probe") == probes+1 })
}

func TestAFreeHostIsProbedRarelyAndInspectedAgainAfterAReboot(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.reconcile()
	probes := w.room.count("probe")
	for range 5 {
		w.reconcile()
	}
	w.g.Expect(w.room.count("probe")).To(Equal(probes), "events do not make probes")
	inspections := w.room.count("inspect")
	w.room.set(func() { w.room.facts.BootID = "boot-2" })
	w.now = w.now.Add(DefaultTimings().Probe)
	w.until("inspected again", func(h *infrav1.QuoinHost) bool {
		return h.Status.State == infrav1.HostStateAvailable && h.Status.Facts.BootID == "boot-2"
	})
	w.g.Expect(w.room.count("inspect")).To(Equal(inspections + 1))
}

func TestAWorkerNeverWaitsForAHost(t *testing.T) {
	w := newWorld(t, newHost())
	block := make(chan struct{})
	w.room.block = block
	begun := time.Now()
	for range 20 {
		_, err := w.r.Reconcile(context.Background(), request(w))
		w.g.Expect(err).NotTo(HaveOccurred())
	}
	w.g.Expect(time.Since(begun)).To(BeNumerically("<", 5*time.Second))
	op, _, running := w.r.Calls.Running(w.key)
	w.g.Expect(running).To(BeTrue())
	w.g.Expect(op).To(Equal("identify"))
	w.room.set(func() { w.room.block = nil })
	close(block)
	w.untilState(infrav1.HostStateAvailable)
}

func TestAPausedHostIsLeftAlone(t *testing.T) {
	host := newHost()
	host.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
	w := newWorld(t, host)
	w.linger(5)
	w.g.Expect(w.room.asked).To(BeEmpty())
	w.g.Expect(condition1(w.host(), "Paused").Status).To(Equal(metav1.ConditionTrue))
}

func TestAFreeHostGoesAtOnceWhenDeleted(t *testing.T) {
	w := newWorld(t, newHost())
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.client.Delete(context.Background(), w.host())).To(Succeed())
	w.reconcile()
	w.g.Expect(w.client.Get(context.Background(), w.key,
		&infrav1.QuoinHost{})).To(MatchError(ContainSubstring("not found")))
}

func TestAHostThatIsBeingMovedAwayIsHandsOff(t *testing.T) {
	host := newHost()
	host.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
	w := newWorld(t, host)
	w.linger(3)
	w.g.Expect(w.room.asked).To(BeEmpty())
	w.g.Expect(w.host().Finalizers).To(BeEmpty())
}
