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

func (c *controlPlane) read(hosts ...*sim.Host) etcd.Cluster {
	c.t.Helper()
	var endpoints []etcd.Endpoint
	for _, host := range hosts {
		endpoints = append(endpoints, c.endpoint(host))
	}
	cluster, err := etcd.Client{}.Read(c.t.Context(), endpoints, c.credentials())
	if err != nil {
		c.t.Error(err)
	}
	return cluster
}

func TestAControlPlaneComesUp(t *testing.T) {
	g := NewWithT(t)
	c := newControlPlane(t)
	one := c.host("one")
	c.must(one, initPlane)
	node, err := c.client().CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(node.Labels).To(HaveKey("node-role.kubernetes.io/control-plane"))
	members := c.read(one)
	g.Expect(members.Agreed).To(BeTrue())
	g.Expect(members.Members).To(HaveLen(1))
	g.Expect(members.Members[0].Answers).To(BeTrue())
	g.Expect(one.Machine.Unknown()).To(BeEmpty())

	two, three := c.host("two"), c.host("three")
	c.must(two, joinPlane)
	c.must(three, joinPlane)
	members = c.read(one, two, three)
	g.Expect(members.Members).To(HaveLen(3))
	for _, member := range members.Members {
		g.Expect(member.Learner).To(BeFalse())
		g.Expect(member.Answers).To(BeTrue(), member.Problem)
	}
	g.Eventually(func(g Gomega) {
		for _, name := range []string{"one", "two", "three"} {
			for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
				pod, err := c.client().CoreV1().Pods("kube-system").Get(t.Context(), component+"-"+name, metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))), pod.Name)
			}
		}
	}, "10s").Should(Succeed())
}
