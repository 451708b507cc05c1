//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// What the faults strike, as processes on the host. They are frozen first, so that a fault lands in the middle of them.
const (
	importing = "^ctr .*images import"
	joining   = "^/usr/bin/kubeadm join"
)

// faults strike one provisioning of a third worker, one after the other. The simulated hosts try every fault at every step;
// these three show that real hosts behave like them.
func faults() {
	var host *lab.Host
	var generation int64
	var callsBefore int

	// After the last of them: what one freezes, the next one thaws.
	AfterAll(func(ctx SpecContext) {
		if host != nil {
			_, _ = the.lab.Console(ctx, host.Container(), reachable+"; pkill -CONT -f '"+importing+"'; pkill -CONT -f '"+joining+"'; true")
		}
	}, NodeTimeout(time.Minute))

	It("goes on when the manager's pod is deleted by force while an image is imported", func(ctx SpecContext) {
		host = spareHost(ctx, "worker")
		generation = quoinHost(ctx, host.Name).Spec.ClaimGeneration
		callsBefore = need(the.lab.KubeadmCalls(ctx, host, "join"))
		// A host that had the version before would import nothing.
		need(the.lab.Console(ctx, host.Container(), "rm -rf /var/lib/quoin/images; ctr -n k8s.io images ls -q | xargs -r ctr -n k8s.io images rm >/dev/null 2>&1; true"))

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

	It("replaces the Machine of a host that lost its power while kubeadm joined", func(ctx SpecContext) {
		freeze(ctx, host, "pkill -CONT -f '"+importing+"'; ", joining)
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
		the.demo.Workers--
		must(the.demo.MarkForDeletion(ctx, after.Spec.ConsumerRef.Machine))
		must(the.demo.ScaleWorkers(ctx, the.demo.Workers))
		must(the.demo.AwaitReady(ctx, 4*time.Minute, lab.OldVersion, lab.OldVersion))
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable, host))
		expectClean(ctx, host)
	}, NodeTimeout(16*time.Minute))
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
