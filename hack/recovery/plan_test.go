// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup/restore"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// carryOut runs the steps of a plan in this machine's own shell, with the host's directory as its root, until one fails.
func (h *host) carryOut(order recovery.Order) (string, error) {
	for _, step := range recovery.Plan(order).Steps {
		if output, err := h.step(step); err != nil {
			return output, err
		}
	}
	return "", nil
}

// cutOffAnywhere carries out a plan as on a host that is reset again and again: in each step before the first change,
// then before the second of what is left, and at last after all of them.
func (h *host) cutOffAnywhere(t *testing.T, order recovery.Order) {
	t.Helper()
	g := NewWithT(t)
	for _, step := range recovery.Plan(order).Steps {
		for n := 1; ; n++ {
			g.Expect(n).To(BeNumerically("<", 60), "%s never ends", step.Name)
			cut := step
			cut.Script = dies(n) + step.Script
			output, err := h.step(cut)
			if err == nil {
				t.Logf("%s: cut off %d times", step.Name, n-1)
				break
			}
			var exit *exec.ExitError
			g.Expect(errors.As(err, &exit)).To(BeTrue())
			g.Expect(exit.Sys().(syscall.WaitStatus).Signal()).To(Equal(syscall.SIGKILL), "%s, change %d: %s", step.Name, n,
				output)
		}
		output, err := h.step(step)
		g.Expect(err).NotTo(HaveOccurred(), "%s once more: %s", step.Name, output)
	}
}

func (h *host) step(step run.Step) (string, error) {
	script := strings.ReplaceAll(step.Script, "/etc/kubernetes", filepath.Join(h.root, "etc/kubernetes"))
	command := exec.Command("/bin/sh", "-c", run.Prelude+script) //nolint:gosec // the script is the plan's own
	command.Env = append(os.Environ(), "QUOIN_ROOT="+filepath.Join(h.root, "var/lib/quoin"), "QUOIN_RUN_DIR="+h.root, h.programs())
	if output, err := command.CombinedOutput(); err != nil {
		return string(output), fmt.Errorf("step %s: %w", step.Name, err)
	}
	return "", nil
}

// start has the plan of an order started, as the QuoinHost controller does. It stays in a step until there is a file go.
func (h *host) start(t *testing.T, runner run.Runner, order recovery.Order, held string) {
	t.Helper()
	plan := recovery.Plan(order)
	for i := range plan.Steps {
		step := &plan.Steps[i]
		step.Script = h.programs() + "\n" + strings.ReplaceAll(step.Script, "/etc/kubernetes", h.path("/etc/kubernetes"))
		if step.Name == held {
			step.Script = `until [ -e "$QUOIN_ROOT/go" ]; do sleep 0.1; done` + "\n" + step.Script
		}
	}
	NewWithT(t).Expect(runner.Start(t.Context(), &sshtest.Local{}, plan)).To(Succeed())
}

// another is a manifest after the recovery r1: to the kubelet it is another static pod, which has never crashed.
func another(manifest []byte) string {
	return strings.Replace(string(manifest), "  annotations:\n", "  annotations:\n    quoin.cluster.x-k8s.io/recovery: \"recover-r1\"\n", 1)
}

// takeAway moves the manifest of etcd away, upon which the kubelet stops it: at once, for a host that is merely believed
// to be silent is half of a quorum.
func (h *host) takeAway(t *testing.T) {
	t.Helper()
	h.loses(t, syscall.SIGTERM)
}

// loses its etcd by a signal, and the manifest, while the kubelet looks away: one that finds the manifest again before it has missed it
// takes an etcd that has ended for one that runs.
func (h *host) loses(t *testing.T, signal syscall.Signal) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	NewWithT(t).Expect(os.Rename(h.manifestPath(), filepath.Join(h.root, "etcd.yaml"))).To(Succeed())
	h.end(signal)
	h.running = ""
}

// The plans that the QuoinHost controller starts, with real etcd and a real shell: nobody is stopped while a quorum lives; the
// members that are given up never start again; the survivor has every key, a manifest without the flag, and a copy.
func TestThePlansOfARecovery(t *testing.T) {
	g := NewWithT(t)
	hosts := three(t)
	a, b, c := hosts[0], hosts[1], hosts[2]
	put := a.putter(t)
	a.fill(t)
	stop, survive := recovery.Order{ID: "recover-r1", Action: recovery.Stop}, recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}
	for _, refused := range []recovery.Order{stop, survive} {
		output, err := a.carryOut(refused)
		g.Expect(err).To(HaveOccurred())
		g.Expect(output).To(ContainSubstring("answers with a quorum"))
	}

	for _, h := range []*host{c, b, a} {
		h.takeAway(t)
	}
	// Another one comes back, and is alone.
	g.Expect(os.Rename(filepath.Join(b.root, "etcd.yaml"), b.manifestPath())).To(Succeed())
	output, err := b.carryOut(stop)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(b.manifestPath()).NotTo(BeAnExistingFile())
	output, err = b.carryOut(stop)
	g.Expect(err).NotTo(HaveOccurred(), "again: %s", output)
	g.Expect(os.Rename(filepath.Join(a.root, "etcd.yaml"), a.manifestPath())).To(Succeed())

	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	output, err = a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "b"})
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("is a, not b"))
	output, err = a.carryOut(survive)
	g.Expect(err).NotTo(HaveOccurred(), output)
	after, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(BeEquivalentTo(another(before)), "the flag is gone again")
	a.carriesOn(t)
	g.Eventually(func() error { return put("afterwards") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	g.Expect(filepath.Join(a.root, "var/lib/quoin/recovery/data-recover-r1/member")).To(BeADirectory())
	for _, silent := range []*host{b, c} {
		g.Expect(silent.manifestPath()).NotTo(BeAnExistingFile())
	}
}

// A plan that is in a step in which etcd is down would start it again, after another recovery found it stopped and had
// another member survive.
func TestAnotherRecoveryEndsThePlanOfTheFirst(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.kill()
	runner := run.Runner{Root: a.path("/var/lib/quoin"), Starter: sshtest.Setsid{Dir: t.TempDir()}, Alone: true}
	follow := func(id string) func() run.Status {
		return func() run.Status {
			status, err := runner.Poll(t.Context(), &sshtest.Local{}, id)
			g.Expect(err).NotTo(HaveOccurred())
			return status
		}
	}
	first := recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}
	a.start(t, runner, first, "keep-data")
	t.Cleanup(func() { _ = runner.Stop(context.Background(), &sshtest.Local{}, "recover-r1") })
	g.Eventually(follow("recover-r1"), time.Minute).Should(HaveField("Step", "keep-data"))
	a.start(t, runner, first, "keep-data")
	g.Expect(follow("recover-r1")()).To(HaveField("Phase", run.Running), "the next manager goes on with its own plan")

	a.start(t, runner, recovery.Order{ID: "recover-r2", Action: recovery.Stop}, "")
	g.Eventually(follow("recover-r2"), time.Minute).Should(HaveField("Phase", run.Succeeded))
	g.Expect(os.WriteFile(a.path("/var/lib/quoin/go"), nil, 0o600)).To(Succeed())
	g.Expect(follow("recover-r1")()).To(HaveField("Phase", run.Interrupted))
	g.Consistently(a.manifestPath(), 3*time.Second).ShouldNot(BeAnExistingFile())
}

// A member begins with the data of a snapshot that was delivered, wherever that is cut off, and what is not what was
// sent is refused before anything is changed.
func TestThePlanOfARecoveryFromASnapshot(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	hosts := three(t)
	a := hosts[0]
	client, put := a.client(t), a.putter(t)
	a.fill(t)
	stream, err := client.Snapshot(ctx)
	g.Expect(err).NotTo(HaveOccurred())
	content, err := io.ReadAll(stream)
	g.Expect(err).NotTo(HaveOccurred())
	snapshot, made := filepath.Join(t.TempDir(), "snapshot.db"), filepath.Join(t.TempDir(), "data")
	g.Expect(os.WriteFile(snapshot, content, 0o600)).To(Succeed())
	g.Expect(restore.Restore(snapshot, restore.Member{Name: "a", PeerURL: a.peerURL, DataDirectory: made})).To(Succeed())
	g.Eventually(func() error { return put("later") }, time.Minute, 200*time.Millisecond).Should(Succeed())

	// As Deliver leaves it.
	delivered := filepath.Join(a.root, "var/lib/quoin/recovery/snapshot-recover-r1")
	g.Expect(os.MkdirAll(delivered, 0o700)).To(Succeed())
	var list strings.Builder
	var database string
	size := int64(0)
	g.Expect(filepath.WalkDir(made, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		name, err := filepath.Rel(made, path)
		if err != nil {
			return err
		}
		if entry.Name() == "db" {
			database = filepath.Join(delivered, sum)
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, name)
		size += int64(len(content))
		return os.WriteFile(filepath.Join(delivered, sum), content, 0o600)
	})).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(delivered, "sums"), []byte(list.String()), 0o600)).To(Succeed())
	order := recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a",
		Snapshot: &recovery.Snapshot{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(list.String()))), Size: size}}

	output, err := a.carryOut(order)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("answers with a quorum"))
	for _, h := range hosts[1:] {
		h.takeAway(t)
	}
	whole, err := os.ReadFile(database)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(database, whole[1:], 0o600)).To(Succeed())
	output, err = a.carryOut(order)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("are not those that were sent"))
	g.Expect(a.manifestPath()).To(BeAnExistingFile(), "nothing was changed")
	g.Expect(os.WriteFile(database, whole, 0o600)).To(Succeed())

	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	a.cutOffAnywhere(t, order)
	a.kubeletRuns(t)
	g.Expect(os.ReadFile(a.manifestPath())).To(BeEquivalentTo(another(before)))
	a.carriesOn(t)
	later, err := client.Get(ctx, "later", clientv3.WithCountOnly())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(later.Count).To(BeZero(), "it came after the snapshot")
	g.Eventually(func() error { return put("afterwards") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	g.Expect(delivered).NotTo(BeADirectory())
	g.Expect(filepath.Join(a.root, "var/lib/etcd/before-recover-r1/snap/db")).To(BeAnExistingFile())
	g.Expect(filepath.Join(a.root, "var/lib/etcd/restored-recover-r1")).NotTo(BeADirectory())
}

// A kubelet that somebody has stopped stays stopped, and one that a step had rest runs again however the step ends: registering its Node
// anew, which may be younger than the data.
func TestAKubeletRestsOnlyWhileEtcdIsStopped(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.kill()
	stop := recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Stop}).Steps[1]
	asked := func() string {
		content, err := os.ReadFile(a.path("systemd/asked"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Remove(a.path("systemd/asked"))).To(Succeed())
		return string(content)
	}
	output, err := a.step(stop)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(asked()).To(Equal("is-active\nstop\nstart\n"))
	for _, failing := range []string{"quoin_settle() { return 1; }\n", "quoin_settle() { kill -TERM $$; return 1; }\n", "works() { kill -TERM $$; }\n"} {
		output, err = a.step(instead(stop, failing))
		g.Expect(err).To(HaveOccurred(), output)
		a.kubeletRuns(t)
		g.Expect(asked()).To(HaveSuffix("stop\nstart\n"), failing)
	}
	// One that somebody restarts reads the manifest once more before it has gone.
	output, err = a.step(instead(stop, "systemctl() { case $1 in is-active) echo deactivating ;; *) command systemctl \"$@\" ;; esac; }\n"))
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(asked()).To(Equal("stop\nstart\n"))
	for _, killed := range []string{"quoin_settle() { kill -KILL $$; }\n", "systemctl() { command systemctl \"$@\"; [ $1 != stop ] || kill -KILL $$; }\n"} {
		_, err = a.step(instead(stop, killed))
		g.Expect(err).To(HaveOccurred())
		output, err = a.step(stop)
		g.Expect(err).NotTo(HaveOccurred(), output)
		a.kubeletRuns(t)
	}

	g.Expect(os.WriteFile(a.path("systemd/rest"), nil, 0o600)).To(Succeed())
	asked()
	// Cut off before the host was started again, it had the kubelet rest then, and a person has now.
	g.Expect(os.WriteFile(a.path("var/lib/quoin/recovery/kubelet-rests"), []byte("another-boot\n"), 0o600)).To(Succeed())
	output, err = a.step(stop)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(asked()).To(Equal("is-active\n"))
	g.Expect(a.path("systemd/rest")).To(BeAnExistingFile())
}

// A step that is killed when etcd has ended, and the kubelet rests, is done again as any other: etcd starts.
func TestAStepThatStartsEtcdWakesTheKubelet(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.kill()
	order := recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}
	for _, step := range recovery.Plan(order).Steps {
		if step.Name == "force-new-cluster" || step.Name == "start-etcd" {
			_, err := a.step(instead(step, "wake_kubelet() { [ ! -e \"$resting\" ] || kill -KILL $$; }\n"))
			g.Expect(err).To(HaveOccurred(), step.Name)
			g.Expect(a.path("systemd/rest")).To(BeAnExistingFile())
		}
		output, err := a.step(step)
		g.Expect(err).NotTo(HaveOccurred(), output)
		a.kubeletRuns(t)
	}
	g.Expect(a.keys(t).Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
}

// The runtime may start an etcd that a kubelet asked for just before it was stopped.
func TestAnEtcdThatStartsLateIsEndedAsWell(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.kill()
	stop := recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Stop}).Steps[1]
	late := exec.Command("/bin/sh", "-c", "while [ ! -e "+a.path("systemd/rest")+" ]; do sleep 0.05; done; sleep 0.5; exec \"$@\"", "late", filepath.Join(image, "etcd"), //nolint:gosec // a test's own etcd
		"--data-dir="+a.path("var/lib/etcd"), "--name=a", "--log-level=error", "--listen-client-urls="+a.clientURL, "--advertise-client-urls="+a.clientURL,
		"--listen-peer-urls="+a.peerURL, "--listen-metrics-urls="+a.metricsURL)
	g.Expect(late.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- late.Wait() }()
	t.Cleanup(func() { _ = late.Process.Kill() })
	output, err := a.step(stop)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Eventually(ended).WithTimeout(time.Second).Should(Receive(), "etcd works on data that count as stopped")
}

// A kubelet that has not reached an API server since it started stops no static pod, and starts no other of its name. After a power cut
// of all hosts that is every one.
func TestARecoveryAfterAPowerCut(t *testing.T) {
	for name, carryOut := range map[string]func(*host) (string, error){
		"by a plan": func(h *host) (string, error) {
			return h.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
		},
		"by the script": func(h *host) (string, error) { return h.survive("a", "--others-are-off") },
	} {
		for state, run := range map[string]bool{"etcd runs": true, "etcd crashed": false} {
			t.Run(name+", "+state, func(t *testing.T) {
				g := NewWithT(t)
				hosts := three(t)
				a, b := hosts[0], hosts[1]
				a.fill(t)
				silence := follows(t, a, b)
				silenced(t, hosts)
				a.waits(t)
				for _, h := range []*host{a, b} {
					h.powerCut()
				}
				if !run {
					a.kill()
				}
				output, err := carryOut(a)
				g.Expect(err).NotTo(HaveOccurred(), output)
				a.carriesOn(t)
				a.kubeletRuns(t)
				silence.hears(t, a)
			})
		}
	}

	t.Run("and who is given up", func(t *testing.T) {
		g := NewWithT(t)
		hosts := three(t)
		a := hosts[0]
		a.fill(t)
		for _, h := range hosts[1:] {
			h.takeAway(t)
		}
		a.powerCut()
		output, err := a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Stop})
		g.Expect(err).NotTo(HaveOccurred(), output)
		a.kubeletRuns(t)
		g.Expect(a.putter(t)("afterwards")).NotTo(Succeed())
	})
}

// follower is a client that has seen the others' revisions, as a kubelet has: it goes on from the last one that it saw.
type follower struct{ seen int64 }

// follows writes through b while a, which is to survive, does not run, until a client has seen all of that.
func follows(t *testing.T, a, b *host) follower {
	t.Helper()
	g := NewWithT(t)
	client, put := b.client(t), b.putter(t)
	// What is written next has a member write down that what came before is agreed on.
	for range 3 {
		g.Expect(a.putter(t)("last")).To(Succeed())
	}
	events := client.Watch(t.Context(), "", clientv3.WithPrefix())
	a.loses(t, syscall.SIGKILL)
	g.Eventually(func() error { return put("later-0") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	for i := range 100 {
		g.Eventually(func() error { return put(fmt.Sprintf("later-%d", i)) }, time.Minute, 200*time.Millisecond).
			Should(Succeed(), "also when etcd elects anew")
	}
	f := follower{}
	for seen := ""; seen != "later-99"; {
		response := <-events
		g.Expect(response.Err()).NotTo(HaveOccurred())
		f.seen = response.Header.Revision
		for _, event := range response.Events {
			seen = string(event.Kv.Key)
		}
	}
	return f
}

// hears expects that the client, which goes on where it was, hears of what is written now, or that it has to list anew.
func (f follower) hears(t *testing.T, a *host) {
	t.Helper()
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	events := a.client(t).Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(f.seen+1))
	g.Eventually(func() error { return a.putter(t)("afterwards") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	response, heard := <-events
	g.Expect(heard).To(BeTrue(), "silence: what is written gets revisions that the client believes to have seen")
	g.Expect(response.CompactRevision != 0 || len(response.Events) > 0).To(BeTrue(), "%v", response)
}

// silenced stops the others for good, and only then lets the survivor run, without a quorum.
func silenced(t *testing.T, hosts []*host) {
	t.Helper()
	g := NewWithT(t)
	for _, h := range hosts[1:] {
		g.Expect(os.Remove(h.manifestPath())).To(Succeed())
		h.kill()
	}
	a := hosts[0]
	g.Expect(os.Rename(filepath.Join(a.root, "etcd.yaml"), a.manifestPath())).To(Succeed())
}

// Clients that saw what only the others had received miss nothing that is written after the recovery, wherever that is
// cut off.
func TestASurvivorHasClientsListAgainThatSawMore(t *testing.T) {
	g := NewWithT(t)
	hosts := three(t)
	a := hosts[0]
	a.fill(t)
	f := follows(t, a, hosts[1])
	silenced(t, hosts)
	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	a.cutOffAnywhere(t, recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
	f.hears(t, a)
	g.Expect(a.keys(t).Count).To(BeEquivalentTo(50))
	g.Expect(os.ReadFile(a.manifestPath())).To(BeEquivalentTo(another(before)))
}
