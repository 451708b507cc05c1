// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// controlPlane is a cluster on simulated hosts whose bootstrap data is written by hand.
type controlPlane struct {
	t            *testing.T
	plane        *kube.ControlPlane
	fleet        *sim.Fleet
	certificates secret.Certificates
	onPhase      func(m *machine.Machine, verb, phase string)
}

// patience of these tests on a busy machine, and how often they look.
const (
	patience = time.Minute
	often    = 200 * time.Millisecond
)

const token = "abcdef.0123456789abcdef"

func newControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	if os.Getenv(rig.AssetsVariable) == "" {
		t.Skipf("%[1]s is not set: run `export %[1]s=$(hack/bundle/envtest-assets.sh)` first", rig.AssetsVariable)
	}
	g := NewWithT(t)
	c := &controlPlane{t: t, certificates: secret.NewCertificatesForInitialControlPlane(nil)}
	g.Expect(c.certificates.Generate()).To(Succeed())
	var err error
	c.plane, err = kube.NewControlPlane(kube.ControlPlaneOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.plane.Close)
	cluster, err := kube.New(kube.Options{ControlPlane: c.plane, Versions: []string{version}, OnPhase: func(m *machine.Machine, verb, phase string) {
		if c.onPhase != nil {
			c.onPhase(m, verb, phase)
		}
	}})
	g.Expect(err).NotTo(HaveOccurred())
	c.fleet, err = sim.New(sim.Options{Cluster: cluster})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(c.fleet.Close)
	return c
}

// host is one on which the version is installed, with the authorities of the cluster.
func (c *controlPlane) host(name string) *sim.Host {
	c.t.Helper()
	host, err := c.fleet.Add(name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.prepare(host)
	return host
}

// prepare does what comes before kubeadm.
func (c *controlPlane) prepare(host *sim.Host) {
	c.t.Helper()
	endpoint, port := c.plane.Endpoint()
	for _, file := range c.certificates.AsFiles() {
		c.write(host, file.Path, file.Content)
	}
	c.write(host, "/run/kubeadm/kubeadm.yaml", fmt.Sprintf(`---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: c
controlPlaneEndpoint: %s:%d
kubernetesVersion: %s
networking:
  serviceSubnet: 10.96.0.0/16
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  name: %s
bootstrapTokens:
- token: %s
`, endpoint, port, version, host.Name, token))
	hashes, err := c.certificates.GetByPurpose(secret.ClusterCA).Hashes()
	if err != nil {
		c.t.Fatal(err)
	}
	c.write(host, "/run/kubeadm/kubeadm-join-config.yaml", fmt.Sprintf(`---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
controlPlane: {}
discovery:
  bootstrapToken:
    apiServerEndpoint: %s:%d
    token: %s
    caCertHashes: [%q]
nodeRegistration:
  name: %s
`, endpoint, port, token, hashes[0], host.Name))
	dir := "/opt/quoin/bundles/" + version
	c.must(host, strings.Join([]string{
		"until ctr version >/dev/null 2>&1; do sleep 0.1; done",
		"for name in kubeadm kubelet; do cp " + dir + "/bin/$name /usr/bin/$name && chmod 0755 /usr/bin/$name || exit 1; done",
		"mkdir -p /etc/systemd/system/kubelet.service.d && cp " + dir + "/units/kubelet.service /etc/systemd/system/ && cp " + dir + "/units/10-kubeadm.conf /etc/systemd/system/kubelet.service.d/",
		"systemctl daemon-reload && systemctl enable kubelet.service && echo 1 >/proc/sys/net/ipv4/ip_forward",
	}, "\n"))
}

func (c *controlPlane) write(host *sim.Host, path, content string) {
	c.t.Helper()
	if err := host.Machine.FS().WriteFile(path, machine.File{Mode: 0o600, Content: []byte(content)}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *controlPlane) run(host *sim.Host, command string) (string, int) {
	var out bytes.Buffer
	code, err := host.Machine.Run(c.t.Context(), machine.Session{Command: command, Stdout: &out, Stderr: &out})
	if err != nil {
		return err.Error(), -1
	}
	return out.String(), code
}

func (c *controlPlane) must(host *sim.Host, command string) {
	c.t.Helper()
	began := time.Now()
	out, code := c.run(host, command)
	if code != 0 {
		c.t.Fatalf("%s: %s ended with code %d:\n%s\n%s\n%s", host.Name, command, code, out, c.log(host), c.plane.ServerLog())
	}
	c.t.Logf("%s: %.40q took %s", host.Name, command, time.Since(began).Round(time.Millisecond))
}

func (c *controlPlane) log(host *sim.Host) string {
	if member := c.plane.Etcd(host.Machine); member != nil {
		return member.Log()
	}
	return ""
}

const (
	initPlane = "kubeadm init --config /run/kubeadm/kubeadm.yaml"
	joinPlane = "kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml"
)

func (c *controlPlane) client() kubernetes.Interface {
	c.t.Helper()
	config, err := c.plane.Config()
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// endpoint of the member as the controllers reach it: over SSH.
func (c *controlPlane) endpoint(host *sim.Host) etcd.Endpoint {
	c.t.Helper()
	address, port := host.Address()
	return etcd.Endpoint{Name: host.Name, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := ssh.Dial(ctx, ssh.Target{Address: address, Port: int(port), User: "root", Signers: []ssh.Signer{c.fleet.Signer()}}, ssh.PoolOptions{})
		if err != nil {
			return nil, err
		}
		c.t.Cleanup(func() { _ = conn.Close() })
		return conn.DialContext(ctx, network, addr)
	}}
}

func (c *controlPlane) credentials() etcd.Credentials {
	c.t.Helper()
	pair := c.certificates.GetByPurpose(secret.EtcdCA).KeyPair
	credentials, err := etcd.Mint(pair.Cert, pair.Key, time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	return credentials
}

// read is what the controllers read; empty when nobody answers.
func (c *controlPlane) read(hosts ...*sim.Host) etcd.Cluster {
	c.t.Helper()
	var endpoints []etcd.Endpoint
	for _, host := range hosts {
		endpoints = append(endpoints, c.endpoint(host))
	}
	cluster, err := etcd.Client{}.Read(c.t.Context(), endpoints, c.credentials())
	if err != nil {
		c.t.Logf("reading etcd: %v", err)
	}
	return cluster
}

// voters expects that many members that answer, all of them voters, in a list that a quorum confirms.
func (c *controlPlane) voters(g Gomega, number int, hosts ...*sim.Host) {
	members := c.read(hosts...)
	g.Expect(members.Agreed).To(BeTrue())
	g.Expect(members.Members).To(HaveLen(number))
	for _, member := range members.Members {
		g.Expect(member.Learner).To(BeFalse())
		g.Expect(member.Answers).To(BeTrue(), member.Problem)
	}
}

// podsReady expects that the static pods of the hosts are ready in the API server.
func (c *controlPlane) podsReady(g Gomega, hosts ...*sim.Host) {
	for _, host := range hosts {
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
			g.Expect(c.ready(component+"-"+host.Name)).To(Equal(corev1.ConditionTrue), component+" on "+host.Name)
		}
	}
}

func (c *controlPlane) ready(pod string) corev1.ConditionStatus {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	got, err := c.client().CoreV1().Pods("kube-system").Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return corev1.ConditionStatus(err.Error())
	}
	for _, condition := range got.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status
		}
	}
	return ""
}

// TestALifeOfAControlPlane makes three members, loses each kind of thing, and replaces a member.
func TestALifeOfAControlPlane(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	one := c.host("one")
	c.must(one, initPlane)
	node, err := c.client().CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/control-plane"))
	g.Expect(node.Spec.Taints).To(ContainElement(HaveField("Key", "node-role.kubernetes.io/control-plane")))
	g.Eventually(func(g Gomega) { c.voters(g, 1, one) }, patience, often).Should(Succeed())
	g.Expect(one.Machine.Unknown()).To(BeEmpty())

	two, three := c.host("two"), c.host("three")
	c.must(two, joinPlane)
	c.must(three, joinPlane)
	g.Eventually(func(g Gomega) { c.voters(g, 3, one, two, three) }, patience, often).Should(Succeed())
	all := []*sim.Host{one, two, three}
	view, err := c.plane.Membership(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(view).To(HaveLen(3))
	g.Expect(view).To(HaveEach(And(HaveField("Learner", false), HaveField("Running", true))))
	g.Eventually(func(g Gomega) { c.podsReady(g, all...) }, patience, often).Should(Succeed())
	key := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "default"}}
	_, err = c.client().CoreV1().ConfigMaps("default").Create(t.Context(), key, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())

	t.Log("a host loses power: the others go on, and it comes back by itself")
	one.PowerOff()
	g.Eventually(c.plane.Etcd(one.Machine).Running, patience).Should(BeFalse())
	g.Eventually(func() corev1.ConditionStatus { return c.ready("etcd-one") }, patience, often).Should(Equal(corev1.ConditionFalse))
	node, err = c.client().CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionUnknown))))
	one.PowerOn()
	g.Eventually(func(g Gomega) {
		c.voters(g, 3, all...)
		c.podsReady(g, all...)
		node, err := c.client().CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		g.Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", corev1.TaintNodeUnreachable)))
	}, patience, often).Should(Succeed())

	t.Log("a member is killed: the kubelet starts it again")
	c.plane.Etcd(two.Machine).Kill()
	g.Eventually(func(g Gomega) { c.voters(g, 3, all...) }, patience, often).Should(Succeed())

	t.Log("a disk dies: the member does not come back, and is replaced")
	c.plane.Etcd(three.Machine).LoseData()
	g.Eventually(func() corev1.ConditionStatus { return c.ready("etcd-three") }, patience, often).Should(Equal(corev1.ConditionFalse))
	g.Eventually(func(g Gomega) {
		for _, member := range c.read(one, two).Members {
			if member.Name == "three" {
				g.Expect(etcd.Client{}.RemoveMember(t.Context(), []etcd.Endpoint{c.endpoint(one)}, c.credentials(), member.ID)).To(Succeed())
			}
		}
		g.Expect(c.read(one, two).Members).To(HaveLen(2))
	}, patience, often).Should(Succeed())
	c.must(three, "systemctl disable --now kubelet.service; kubeadm reset --force --skip-phases=remove-etcd-member && rm -rf /etc/kubernetes /var/lib/etcd")
	g.Expect(c.client().CoreV1().Nodes().Delete(t.Context(), "three", metav1.DeleteOptions{})).To(Succeed())
	c.prepare(three)
	c.must(three, joinPlane)
	g.Eventually(func(g Gomega) { c.voters(g, 3, all...) }, patience, often).Should(Succeed())

	t.Log("every host loses power at once: the same cluster comes back")
	for _, host := range all {
		host.PowerOff()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.client().CoreV1().ConfigMaps("default").Get(ctx, "key", metav1.GetOptions{})
	g.Expect(err).To(HaveOccurred(), "nothing answers at the endpoint")
	for _, host := range all {
		host.PowerOn()
	}
	g.Eventually(func(g Gomega) {
		c.voters(g, 3, all...)
		_, err := c.client().CoreV1().ConfigMaps("default").Get(t.Context(), "key", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}, patience, often).Should(Succeed())

	t.Log("kubeadm reset takes its member out")
	c.must(one, "kubeadm reset --force")
	g.Eventually(func(g Gomega) { c.voters(g, 2, two, three) }, patience, often).Should(Succeed())
	g.Eventually(c.plane.Etcd(one.Machine).Running, patience).Should(BeFalse())
}

// TestAJoinThatIsCutLeavesHalfAMember kills the host in each phase of a join.
func TestAJoinThatIsCutLeavesHalfAMember(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	one := c.host("one")
	c.must(one, initPlane)
	cut := ""
	c.onPhase = func(m *machine.Machine, verb, phase string) {
		if verb == "join" && phase == cut {
			cut = ""
			m.PowerOff()
		}
	}
	for _, test := range []struct {
		phase                  string
		members                int
		learner, started, runs bool
	}{
		{phase: "etcd-join", members: 1},
		{phase: "etcd-added", members: 2, learner: true},
		{phase: "etcd-promoted", members: 2, started: true, runs: true},
	} {
		t.Log(test.phase)
		two := c.host("two-" + test.phase)
		cut = test.phase
		_, code := c.run(two, joinPlane)
		g.Expect(code).To(Equal(-1))
		if test.runs {
			// Two voters, one of them dead: nothing is agreed until it is back.
			two.Machine.PowerOn()
		}
		var left *etcd.Member
		g.Eventually(func(g Gomega) {
			members := c.read(one)
			g.Expect(members.Agreed).To(BeTrue())
			g.Expect(members.Members).To(HaveLen(test.members))
			for _, member := range members.Members {
				if member.Name != "one" {
					left = &member
					g.Expect(member.Learner).To(Equal(test.learner))
					g.Expect(member.Name != "").To(Equal(test.started))
				}
			}
		}, patience, often).Should(Succeed())
		if left != nil {
			g.Eventually(func() error {
				return etcd.Client{}.RemoveMember(t.Context(), []etcd.Endpoint{c.endpoint(one)}, c.credentials(), left.ID)
			}, patience, often).Should(Succeed())
		}
		two.PowerOff()
	}
}

// TestPodsCanBeEvicted: what a drain does works as with real kubelets.
func TestPodsCanBeEvicted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	one := c.host("one")
	c.must(one, initPlane)
	pods := c.client().CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "one", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func(g Gomega) {
		pod, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
	}, patience, often).Should(Succeed())
	g.Expect(pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}})).To(Succeed())
	g.Eventually(func() bool {
		_, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, often).Should(BeTrue())

	t.Log("a deleted mirror pod comes back")
	g.Eventually(func(g Gomega) { c.podsReady(g, one) }, patience, often).Should(Succeed())
	g.Expect(c.client().CoreV1().Pods("kube-system").Delete(t.Context(), "etcd-one", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func(g Gomega) { c.podsReady(g, one) }, patience, often).Should(Succeed())
}

// TestAMemberThatIsSlowOrAlone: the others elect another leader, and the API server goes on with them.
func TestAMemberThatIsSlowOrAlone(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	one, two, three := c.host("one"), c.host("two"), c.host("three")
	c.must(one, initPlane)
	c.must(two, joinPlane)
	c.must(three, joinPlane)
	first := c.plane.Etcd(one.Machine)
	for what, fault := range map[string][2]func(){
		"slow":  {first.Pause, first.Resume},
		"alone": {func() { first.Isolate(true) }, func() { first.Isolate(false) }},
	} {
		t.Log(what)
		fault[0]()
		g.Eventually(func(g Gomega) {
			leader := ""
			for _, member := range c.read(two, three).Members {
				if member.Leader {
					leader = member.Name
				}
			}
			g.Expect(leader).To(BeElementOf("two", "three"))
			g.Expect(first.Ready()).To(BeFalse())
			g.Expect(c.ready("etcd-one")).To(Equal(corev1.ConditionFalse))
			key := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: what + "-", Namespace: "default"}}
			_, err := c.client().CoreV1().ConfigMaps("default").Create(t.Context(), key, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		}, patience, often).Should(Succeed())
		fault[1]()
		g.Eventually(func(g Gomega) { c.voters(g, 3, one, two, three) }, patience, often).Should(Succeed())
	}
}

// TestAWorkerJoinsAControlPlane: nodes of every kind are in the same API server.
func TestAWorkerJoinsAControlPlane(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	c.must(c.host("one"), initPlane)
	worker, err := c.fleet.Add("worker")
	g.Expect(err).NotTo(HaveOccurred())
	c.prepare(worker)
	c.must(worker, "rm -rf /etc/kubernetes && sed -i '/^controlPlane/d' /run/kubeadm/kubeadm-join-config.yaml && "+joinPlane)
	g.Eventually(func(g Gomega) {
		node, err := c.client().CoreV1().Nodes().Get(t.Context(), "worker", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node.Labels).NotTo(HaveKey("node-role.kubernetes.io/control-plane"))
	}, patience, often).Should(Succeed())
	g.Expect(c.plane.Etcd(worker.Machine)).To(BeNil())
}
