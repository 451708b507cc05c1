// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recovery tests the scripts of docs/disaster-recovery.md with real etcd.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// host is a directory with a kubelet that runs etcd by its manifest, as kubeadm writes it.
type host struct {
	t                              *testing.T
	name, root                     string
	clientURL, peerURL, metricsURL string
	mu                             sync.Mutex
	running                        string
	process                        *exec.Cmd
	starts                         []string
	// refused counts the starts that the kubelet or the runtime refused, for what the pod mounts is not there.
	refused int
	// slow has etcd take a minute to end, so that the kubelet kills it before where the pod is given less.
	slow bool
	// alone is a kubelet that has not reached an API server since it started, as after a power cut.
	alone bool
	// orphan is an etcd of which a kubelet that started anew knows nothing; ended closes behind it.
	orphan *exec.Cmd
	ended  chan struct{}
}

// freeAddress is one that stays free while an etcd of the test is restarted there: connections that other tests make get
// their ports from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err == nil {
			NewWithT(t).Expect(listener.Close()).To(Succeed())
			return listener.Addr().String()
		}
	}
	t.Fatal("no port below 32768 is free")
	return ""
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{t: t, name: name, root: t.TempDir(), clientURL: "http://" + freeAddress(t), peerURL: "http://" + freeAddress(t), metricsURL: "http://" + freeAddress(t)}
	NewWithT(t).Expect(os.MkdirAll(filepath.Join(h.root, "etc/kubernetes/manifests"), 0o750)).To(Succeed())
	NewWithT(t).Expect(os.MkdirAll(filepath.Join(h.root, "var/lib/etcd"), 0o700)).To(Succeed())
	NewWithT(t).Expect(os.Mkdir(filepath.Join(h.root, "systemd"), 0o700)).To(Succeed())
	NewWithT(t).Expect(os.WriteFile(filepath.Join(h.root, "systemd/systemctl"), []byte(systemctl), 0o700)).To(Succeed()) //nolint:gosec // a program
	t.Cleanup(h.kill)
	return h
}

// systemctl of a host, beside files that say what its kubelet does: it runs, it shall rest, it rests.
const systemctl = `#!/bin/sh
cd "${0%/*}" || exit 1
wait=1
[ "$1" != --no-block ] || { wait=; shift; }
[ "$2" = kubelet.service ] || exit 1
echo "$1" >>asked
case $1 in
is-active) if [ -e runs ] && [ ! -e rest ]; then echo active; else echo inactive; exit 3; fi ;;
stop) : >rest; while [ "$wait" ] && [ -e runs ] && [ ! -e rests ]; do sleep 0.02; done ;;
start) rm -f rest; while [ "$wait" ] && [ -e rests ]; do sleep 0.02; done ;;
restart) "$0" stop kubelet.service && "$0" start kubelet.service ;;
*) exit 1 ;;
esac
`

// programs is the variable by which a script finds those of the host before this machine's.
func (h *host) programs() string { return "PATH=" + h.path("systemd") + ":" + os.Getenv("PATH") }

func (h *host) manifestPath() string {
	return filepath.Join(h.root, "etc/kubernetes/manifests/etcd.yaml")
}

// manifest is what kubeadm writes, less what does not matter here.
func (h *host) manifest(initial string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: %[1]s
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command:
    - etcd
    - --advertise-client-urls=%[1]s
    - --data-dir=%[2]s
    - --initial-advertise-peer-urls=%[3]s
    - --initial-cluster=%[4]s
    - --listen-client-urls=%[1]s
    - --listen-metrics-urls=%[5]s
    - --listen-peer-urls=%[3]s
    - --name=%[6]s
    image: quoin.test/etcd
    name: etcd
`, h.clientURL, filepath.Join(h.root, "var/lib/etcd"), h.peerURL, initial, h.metricsURL, h.name)
}

// kubelet runs what the manifest says until the test ends.
func (h *host) kubelet(ctx context.Context) {
	runs := h.path("systemd/runs")
	if err := os.WriteFile(runs, nil, 0o600); err != nil {
		h.t.Error(err)
	}
	defer func() { _ = os.Remove(runs) }()
	for ctx.Err() == nil {
		h.sync()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (h *host) sync() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rests() {
		return
	}
	content, _ := os.ReadFile(h.manifestPath())
	if string(content) == h.running || h.alone && h.running != "" {
		return
	}
	if h.orphan != nil && len(content) > 0 {
		select {
		case <-h.ended:
			h.orphan = nil
		case <-time.After(2 * time.Second):
			h.t.Errorf("%s starts etcd beside one that has not ended", h.name)
		}
	}
	h.stop()
	h.running = ""
	if !mountable(content) {
		h.refused++
		return
	}
	h.running = string(content)
	var arguments []string
	for _, line := range strings.Split(h.running, "\n") {
		if argument, ok := strings.CutPrefix(strings.TrimSpace(line), "- --"); ok {
			arguments = append(arguments, "--"+argument)
		}
	}
	if len(arguments) == 0 {
		return
	}
	h.starts = append(h.starts, arguments[0])
	h.process = exec.Command(filepath.Join(image, "etcd"), append(arguments, "--log-level=error", "--unsafe-no-fsync")...) //nolint:gosec // a test's own etcd
	h.process.Stderr = h.t.Output()
	if err := h.process.Start(); err != nil {
		h.t.Errorf("starting etcd on %s: %v", h.name, err)
	}
}

// rests reports whether the kubelet is stopped. One that starts anew knows no pod whose manifest is gone.
func (h *host) rests() bool {
	rests := h.path("systemd/rests")
	if _, err := os.Stat(h.path("systemd/rest")); err != nil {
		_ = os.Remove(rests)
		return false
	}
	if h.process != nil {
		process, ended := h.process, make(chan struct{})
		h.orphan, h.ended, h.process = process, ended, nil
		go func() { defer close(ended); _ = process.Wait() }()
	}
	h.running = ""
	if err := os.WriteFile(rests, nil, 0o600); err != nil {
		h.t.Error(err)
	}
	return true
}

// mountable reports whether the kubelet starts the pod: files of the host that are mounted must exist.
func mountable(manifest []byte) bool {
	pod := &corev1.Pod{}
	if yaml.Unmarshal(manifest, pod) != nil || len(pod.Spec.Containers) == 0 {
		return true
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name || volume.HostPath == nil || *volume.HostPath.Type != corev1.HostPathFile {
				continue
			}
			if stat, err := os.Stat(volume.HostPath.Path); err != nil || !stat.Mode().IsRegular() {
				return false
			}
		}
	}
	return true
}

// stop ends etcd as the kubelet does: it may take its leave, for as long as its pod says.
func (h *host) stop() {
	pod := &corev1.Pod{}
	if h.slow && yaml.Unmarshal([]byte(h.running), pod) == nil && ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30) < 60 {
		h.end(syscall.SIGKILL)
		return
	}
	h.end(syscall.SIGTERM)
}

func (h *host) end(signal syscall.Signal) {
	if h.process != nil && h.process.Process != nil {
		_ = h.process.Process.Signal(signal)
		_ = h.process.Wait()
	}
	h.process = nil
}

func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(syscall.SIGKILL)
	if h.orphan != nil {
		_ = h.orphan.Process.Kill()
		<-h.ended
		h.orphan = nil
	}
}

func (h *host) client(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{h.clientURL}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// three are hosts a, b and c, whose members are one cluster.
func three(t *testing.T) []*host {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(context.Background())
	hosts := []*host{newHost(t, "a"), newHost(t, "b"), newHost(t, "c")}
	var initial []string
	for _, h := range hosts {
		initial = append(initial, h.name+"="+h.peerURL)
		g.Expect(os.MkdirAll(filepath.Join(h.root, "var/lib/quoin"), 0o700)).To(Succeed())
	}
	var kubelets sync.WaitGroup
	t.Cleanup(func() { cancel(); kubelets.Wait() })
	for _, h := range hosts {
		g.Expect(os.WriteFile(h.manifestPath(), []byte(h.manifest(strings.Join(initial, ","))), 0o600)).To(Succeed())
		kubelets.Go(func() { h.kubelet(ctx) })
	}
	return hosts
}

// putter writes a key, and says whether that was acknowledged.
func (h *host) putter(t *testing.T) func(key string) error {
	t.Helper()
	client := h.client(t)
	return func(key string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := client.Put(ctx, key, "acknowledged")
		return err
	}
}

// fill waits for the cluster, and writes key-0 to key-49.
func (h *host) fill(t *testing.T) {
	t.Helper()
	g, put := NewWithT(t), h.putter(t)
	g.Eventually(func() error { return put("first") }, time.Minute, 200*time.Millisecond).Should(Succeed())
	for i := range 50 {
		g.Eventually(func() error { return put(fmt.Sprintf("key-%d", i)) }, time.Minute, 200*time.Millisecond).
			Should(Succeed(), "also when etcd elects anew")
	}
}

// keys that fill wrote, without their values.
func (h *host) keys(t *testing.T) *clientv3.GetResponse {
	t.Helper()
	found, err := h.client(t).Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return found
}

// carriesOn as a cluster of one, with every key that fill wrote.
func (h *host) carriesOn(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	list, err := h.client(t).MemberList(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(list.Members).To(ConsistOf(HaveField("Name", h.name)))
	g.Expect(h.keys(t).Count).To(BeEquivalentTo(50))
}

// powerCut has the kubelet be one that started after the quorum was lost.
func (h *host) powerCut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alone = true
}

// waits until etcd runs, without a quorum.
func (h *host) waits(t *testing.T) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.metricsURL, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}, 3*time.Minute, 100*time.Millisecond).Should(Succeed())
}

// kubeletRuns expects that whatever has it rest wakes it.
func (h *host) kubeletRuns(t *testing.T) {
	t.Helper()
	NewWithT(t).Expect(h.path("systemd/rest")).NotTo(BeAnExistingFile(), "the kubelet stays stopped")
}

// survive runs the script as a person does.
func (h *host) survive(arguments ...string) (string, error) {
	command := exec.Command("./survivor.sh", arguments...)
	command.Env = append(os.Environ(), "ROOT="+h.root, "ETCD_METRICS="+strings.TrimPrefix(h.metricsURL, "http://"), "PATIENCE=120", h.programs())
	output, err := command.CombinedOutput()
	return string(output), err
}

// Two of three hosts are gone for good. The third becomes a cluster of one with everything that it had received, and clients that saw
// more of the others miss nothing afterwards.
func TestSurvivor(t *testing.T) {
	g := NewWithT(t)
	hosts := three(t)
	a := hosts[0]
	a.fill(t)

	output, err := a.survive("a", "--others-are-off")
	g.Expect(err).To(HaveOccurred(), "a quorum lives")
	g.Expect(output).To(ContainSubstring("answers with a quorum"))

	// Asked at an address where nobody answers, it would take the quorum for lost, and copy the data of an etcd that runs.
	elsewhere := &host{root: a.root, metricsURL: "http://" + freeAddress(t)}
	output, err = elsewhere.survive("a", "--others-are-off")
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("ETCD_METRICS="))

	f := follows(t, a, hosts[1])
	silenced(t, hosts)
	a.waits(t)
	for _, wrong := range [][]string{{"b", "--others-are-off"}, {"a"}} {
		_, err = a.survive(wrong...)
		g.Expect(err).To(HaveOccurred(), "%v", wrong)
	}
	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())

	output, err = a.survive("a", "--others-are-off")
	t.Log(output)
	g.Expect(err).NotTo(HaveOccurred())
	after, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(Equal(before), "the flag is gone again")
	g.Expect(a.starts).To(HaveLen(4), "once before")
	g.Expect(a.starts[2]).To(Equal("--force-new-cluster"))
	g.Expect(a.starts[3]).NotTo(Equal("--force-new-cluster"))
	a.carriesOn(t)
	a.kubeletRuns(t)
	f.hears(t, a)
	copies, err := filepath.Glob(filepath.Join(a.root, "var/lib/quoin-recovery.*/data/member"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(copies).To(HaveLen(1))
}

// deaths has the script end before the n-th command that changes something.
func deaths(n int) string {
	return fmt.Sprintf(`set -T
left=%d
trap 'case $BASH_COMMAND in
rm\ * | cp\ * | mv\ * | install\ * | ln\ * | sync\ * | systemctl\ st* | kill\ -TERM* | :\ \>*) left=$((left - 1)); [ $left -gt 0 ] || kill -9 $$ ;;
esac' DEBUG
`, n)
}

// passed counts the marks that the script leaves behind it.
func (h *host) passed() (marks int) {
	for _, mark := range []string{"etcd.yaml", "copied", "forced", "raised"} {
		if _, err := os.Stat(h.path("/var/lib/quoin-recovery/" + mark)); err == nil {
			marks++
		}
	}
	return marks
}

// Wherever the script is cut off, and it is cut off again and again, the next one goes on, and the last one ends with
// all that was acknowledged. From one mark to the next it is cut off before the first change, then before the second.
func TestASurvivorThatIsCutOffGoesOn(t *testing.T) {
	if os.Getenv("QUOIN_SIM_LONG") == "" {
		t.Skip("takes minutes: QUOIN_SIM_LONG=1")
	}
	g := NewWithT(t)
	hosts := three(t)
	a := hosts[0]
	a.fill(t)
	f := follows(t, a, hosts[1])
	silenced(t, hosts)
	a.waits(t)
	a.powerCut()
	before, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	trap, cuts, change := filepath.Join(t.TempDir(), "trap"), 0, 0
	t.Setenv("BASH_ENV", trap)
	for {
		change++
		passed := a.passed()
		g.Expect(os.WriteFile(trap, []byte(deaths(change)), 0o600)).To(Succeed())
		output, err := a.survive("a", "--others-are-off")
		t.Logf("cut off before change %d after mark %d: %s", change, passed, output)
		if err == nil {
			break
		}
		if a.passed() > passed {
			change = 0
		}
		var exit *exec.ExitError
		g.Expect(errors.As(err, &exit)).To(BeTrue())
		g.Expect(exit.Sys().(syscall.WaitStatus).Signal()).To(Equal(syscall.SIGKILL), output)
		cuts++
		g.Expect(cuts).To(BeNumerically("<", 60), "it never ends")
	}
	g.Expect(cuts).To(BeNumerically(">", 10))
	after, err := os.ReadFile(a.manifestPath())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(Equal(before), "the flag is gone again")
	a.carriesOn(t)
	a.kubeletRuns(t)
	f.hears(t, a)
}
