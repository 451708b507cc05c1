//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/transcript"
)

// What the faults strike, as processes on the host. They are frozen first, so that a fault lands in the middle of them.
const (
	importing = "^ctr .*images import"
	joining   = "^/usr/bin/kubeadm join"
)

// faults strike a third worker while its host is provisioned. The simulated hosts try every fault at every step;
// these three show that real hosts behave like them.
func faults() {
	var host *lab.Host
	var generation int64
	var callsBefore int
	var recorder *transcript.Recorder

	// After the last of them: what one freezes, the next one thaws.
	AfterAll(func(ctx SpecContext) {
		if host != nil {
			_, _ = the.lab.Console(ctx, host.Container(), reachable+"; pkill -CONT -f '"+importing+"'; pkill -CONT -f '"+joining+"'; true")
		}
	}, NodeTimeout(time.Minute))

	It("goes on when the manager's pod is deleted by force while an image is imported", func(ctx SpecContext) {
		host = spareHost(ctx, "worker")
		// A host that had the version before would import nothing.
		need(the.lab.Console(ctx, host.Container(), "rm -rf /var/lib/quoin/images; ctr -n k8s.io images ls -q | xargs -r ctr -n k8s.io images rm >/dev/null 2>&1; true"))

		recorder = need(transcript.Before(ctx, the.lab.SSH(host)))

		the.demo.Workers++
		must(the.demo.ScaleWorkers(ctx, the.demo.Workers))
		freeze(ctx, host, "", importing)
		must(the.lab.ForceDelete(ctx, repository.InfrastructureLabel))
		By("being followed by the new manager")
		Eventually(func(ctx context.Context) int { return managerSessions(ctx, host) }).WithContext(ctx).
			WithTimeout(2*time.Minute).Should(BeNumerically(">", 0), "SSH sessions on %s", host.Name)
		expectFrozen(ctx, host, importing)
		expectNoStepTwice(ctx, host)
	}, NodeTimeout(8*time.Minute))

	It("goes on when its connections are cut and refused while an image is imported", func(ctx SpecContext) {
		Expect(managerSessions(ctx, host)).To(BeNumerically(">", 0), "the manager is connected: otherwise there is nothing to cut")
		need(the.lab.Console(ctx, host.Container(), unreachable))
		expectHost(ctx, host.Name, infrav1.HostReachableCondition, HavePrefix("Reachable=False Unreachable"))
		expectFrozen(ctx, host, importing)
		need(the.lab.Console(ctx, host.Container(), reachable))
		expectHost(ctx, host.Name, infrav1.HostReachableCondition, HavePrefix("Reachable=True"))
		expectNoStepTwice(ctx, host)
	}, NodeTimeout(6*time.Minute))

	It("does to a worker, and to a released host, what the simulated hosts do", func(ctx SpecContext) {
		need(the.lab.Console(ctx, host.Container(), "pkill -CONT -f '"+importing+"'"))
		must(the.demo.AwaitReady(ctx, 4*time.Minute, lab.OldVersion, lab.OldVersion))
		expectNoStepTwice(ctx, host)
		claim := quoinHost(ctx, host.Name).Spec.ConsumerRef
		Expect(claim).NotTo(BeNil())
		expectRecorded("worker-provision.txt", need(recorder.After(ctx, infrav1.ProvisionOperation(claim.Claim))))

		giveBack(ctx, host)
		expectRecorded("worker-reset.txt", need(recorder.After(ctx, infrav1.ResetOperation(claim.Claim))))
	}, NodeTimeout(10*time.Minute))

	It("replaces the Machine of a host that lost its power while kubeadm joined", func(ctx SpecContext) {
		callsBefore = need(the.lab.KubeadmCalls(ctx, host, "join"))
		generation = quoinHost(ctx, host.Name).Spec.ClaimGeneration
		the.demo.Workers++
		must(the.demo.ScaleWorkers(ctx, the.demo.Workers))
		freeze(ctx, host, "", joining)
		need(the.lab.Console(ctx, host.Container(), "sync"))
		must(the.lab.PowerCycle(ctx, host))

		By("failing the Machine with a way out, and running kubeadm no more")
		expectHost(ctx, host.Name, infrav1.HostProvisionedCondition,
			And(HavePrefix("Provisioned=False "+infrav1.HostBootstrapInterruptedReason), ContainSubstring("delete it")))
		steps := expectNoStepTwice(ctx, host)
		Expect(steps["kubeadm-join"]).To(Equal("start interrupted"))
		Expect(need(the.lab.KubeadmCalls(ctx, host, "join"))-callsBefore).To(Equal(1), "calls of kubeadm join")
		failed := quoinHost(ctx, host.Name).Spec.ConsumerRef
		Expect(failed).NotTo(BeNil())

		By("deleting the Machine, as the message says")
		machine := &clusterv1.Machine{}
		machine.Namespace, machine.Name = failed.Namespace, failed.Machine
		Expect(the.lab.Management.Delete(ctx, machine)).To(Succeed())
		must(the.demo.AwaitReady(ctx, 6*time.Minute, lab.OldVersion, lab.OldVersion))

		By("having reset the host in between, and run each step of the new plan once")
		steps = expectNoStepTwice(ctx, host)
		Expect(steps["kubeadm-join"]).To(Equal("start done"))
		Expect(need(the.lab.KubeadmCalls(ctx, host, "join"))-callsBefore).To(Equal(2), "one join of each Machine")
		after := quoinHost(ctx, host.Name)
		Expect(after.Spec.ConsumerRef).NotTo(BeNil())
		Expect(after.Spec.ConsumerRef.Machine).NotTo(Equal(failed.Machine))
		Expect(after.Spec.ClaimGeneration).To(BeNumerically(">=", generation+2), "each claim raised the generation")

		By("giving the host back")
		giveBack(ctx, host)
	}, NodeTimeout(16*time.Minute))
}

// giveBack shrinks the workers by the one on a host, and waits until the host is free and clean.
func giveBack(ctx context.Context, host *lab.Host) {
	GinkgoHelper()
	By("scaling the workers down by the Machine that has it [S2-8]")
	the.demo.Workers--
	must(the.demo.MarkForDeletion(ctx, quoinHost(ctx, host.Name).Spec.ConsumerRef.Machine))
	must(the.demo.ScaleWorkers(ctx, the.demo.Workers))
	must(the.demo.AwaitReady(ctx, 4*time.Minute, lab.OldVersion, lab.OldVersion))
	must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable, host))
	expectClean(ctx, host)
}

// expectRecorded holds what a plan did to a real host against what was recorded, which is what simulated hosts are held
// against. Only what kubeadm, the kubelet and systemd leave counts here: the steps of our own plans are the same code in
// both worlds. QUOIN_E2E_RECORD=1 records all of it anew.
func expectRecorded(name string, seen *transcript.Transcript) {
	GinkgoHelper()
	file := filepath.Join("..", "sim", "testdata", name)
	if os.Getenv("QUOIN_E2E_RECORD") != "" {
		text := "# What a real host showed; recorded by: make sim-transcripts\n" + seen.String()
		Expect(os.MkdirAll(filepath.Dir(file), 0o755)).To(Succeed())
		Expect(os.WriteFile(file, []byte(text), 0o644)).To(Succeed())
		return
	}
	text := need(os.ReadFile(file))
	Expect(theirs(seen)).To(Equal(theirs(transcript.Parse(string(text)))), "%s; when that is right, record it anew: make sim-transcripts", name)
}

// theirs are the lines of a transcript that speak of Kubernetes' own files and of units.
func theirs(t *transcript.Transcript) []string {
	var lines []string
	for _, line := range t.Lines {
		if strings.Contains(line, " /etc/kubernetes") || strings.Contains(line, " /var/lib/kubelet") || strings.HasPrefix(line, "unit ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// unreachable cuts what is connected and refuses what comes; reachable takes that back, also twice.
const (
	unreachable = "iptables -I INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset && pkill -KILL -f '^sshd: quoin'"
	reachable   = "while iptables -D INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset 2>/dev/null; do :; done"
)

// freeze stops a process on a host as soon as it is there. What first says runs before, in the same breath.
func freeze(ctx context.Context, host *lab.Host, first, process string) {
	GinkgoHelper()
	_, err := the.lab.Console(ctx, host.Container(), fmt.Sprintf("%sfor i in $(seq 3000); do pkill -STOP -f '%s' && exit 0; sleep 0.05; done; exit 1", first, process))
	Expect(err).NotTo(HaveOccurred(), "no process %q on %s", process, host.Name)
}

// expectFrozen makes sure that the fault before struck in the middle: otherwise it proves nothing.
func expectFrozen(ctx context.Context, host *lab.Host, process string) {
	GinkgoHelper()
	out := need(the.lab.Console(ctx, host.Container(), "for p in $(pgrep -f '"+process+"'); do sed -n 's/^State:[[:space:]]*//p' /proc/$p/status; done"))
	Expect(strings.Fields(out)).To(ContainElement("T"), "process %q on %s still waits to go on", process, host.Name)
}

// managerSessions counts who is logged in over SSH. The suite itself only uses the console meanwhile.
func managerSessions(ctx context.Context, host *lab.Host) int {
	GinkgoHelper()
	out := need(the.lab.Console(ctx, host.Container(), "pgrep -fc '^sshd: quoin@' || true"))
	var n int
	_, err := fmt.Sscan(out, &n)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// expectNoStepTwice reads the journals on a host. It returns the words of each step, and fails when a step was started
// twice: none of these faults is a reason to, for a plan does not hang on whoever started it.
func expectNoStepTwice(ctx context.Context, host *lab.Host) map[string]string {
	GinkgoHelper()
	out := need(the.lab.Console(ctx, host.Container(), "cat /var/lib/quoin/runs/provision-*/journal"))
	steps := map[string]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		Expect(len(fields)).To(BeNumerically(">=", 4), "line %q of the journal", line)
		steps[fields[2]] = strings.TrimSpace(steps[fields[2]] + " " + fields[3])
	}
	Expect(steps).NotTo(BeEmpty())
	unfinished := 0
	for step, words := range steps {
		switch words {
		case "start done":
		case "start", "start interrupted":
			unfinished++
		default:
			Fail(fmt.Sprintf("step %s on %s: %s", step, host.Name, words))
		}
	}
	Expect(unfinished).To(BeNumerically("<=", 1), "unfinished steps on %s: %v", host.Name, steps)
	return steps
}
