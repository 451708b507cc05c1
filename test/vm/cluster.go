// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// Endpoint is where a machine finds the API server of its cluster.
	Endpoint = "10.0.2.100:6443"
	// Token is that by which it joins.
	Token = "abcdef.0123456789abcdef"
	// podRange and serviceRange are the cluster's networks.
	podRange, serviceRange = "10.244.0.0/16", "10.96.0.0/16"
)

// Cluster is a control plane on the loopback: etcd, an API server, a controller manager and a scheduler, with
// certificates of kubeadm's, as far as kubeadm makes one without a host of its own.
type Cluster struct {
	// Port of loopback at which its API server answers.
	Port int
	// Kubeconfig of an administrator, for processes of this machine.
	Kubeconfig string

	dir, programs, etcd string
	running             []*program
}

// program is a process that ends with the test.
type program struct {
	name  string
	pid   int
	ended chan struct{}
}

// NewCluster starts a control plane in a folder of its own, of programs in two folders: those of Kubernetes, and etcd.
// Close it.
func NewCluster(ctx context.Context, dir, programs, etcd, version string) (*Cluster, error) {
	c := &Cluster{dir: dir, programs: programs, etcd: etcd, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	err := c.begin(ctx, version)
	if err != nil {
		err = errors.Join(err, errors.New(c.logs()))
		c.Close()
	}
	return c, err
}

func (c *Cluster) begin(ctx context.Context, version string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.Port = ports[0]
	config := filepath.Join(c.dir, "init.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s, bindPort: %[2]s}
bootstrapTokens:
- {token: %[3]s, ttl: 24h0m0s, groups: ["system:bootstrappers:kubeadm:default-node-token"], usages: [signing,
	authentication]}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[4]s
controlPlaneEndpoint: %[1]s:%[2]s
certificatesDir: %[5]s/pki
apiServer: {certSANs: [127.0.0.1]}
networking: {podSubnet: %[6]s, serviceSubnet: %[7]s}
`, host(Endpoint), port(Endpoint), Token, version, c.dir, podRange, serviceRange)), 0o600); err != nil {
		return err
	}
	for _, phase := range []string{"certs all", "kubeconfig super-admin --kubeconfig-dir " + c.dir} {
		if err := c.kubeadm(ctx, "init phase "+phase+" --config "+config); err != nil {
			return err
		}
	}
	kubeconfig, err := os.ReadFile(filepath.Join(c.dir, "super-admin.conf"))
	if err != nil {
		return err
	}
	here := bytes.ReplaceAll(kubeconfig, []byte(Endpoint), []byte(net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port))))
	if err := os.WriteFile(c.Kubeconfig, here, 0o600); err != nil {
		return err
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1]), fmt.Sprintf("http://127.0.0.1:%d", ports[2])
	pki := func(name string) string { return filepath.Join(c.dir, "pki", name) }
	if err := c.run(filepath.Join(c.etcd, "etcd"), "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer); err != nil {
		return err
	}
	if err := c.run(filepath.Join(c.programs, "kube-apiserver"), "--etcd-servers="+client, "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(c.Port), "--advertise-address="+host(Endpoint),
		"--service-cluster-ip-range="+serviceRange,
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"),
		"--client-ca-file="+pki("ca.crt"),
		"--service-account-key-file="+pki("sa.pub"), "--service-account-signing-key-file="+pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--authorization-mode=Node,RBAC",
		"--enable-bootstrap-token-auth", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--kubelet-client-certificate="+pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+pki("apiserver-kubelet-client.key"),
	); err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(time.Second) {
		_, err := c.Kubectl(ctx, "", "get", "--raw=/readyz")
		if err == nil {
			break
		}
		if time.Since(begin) > 3*time.Minute {
			return fmt.Errorf("the API server is not ready: %w", err)
		}
	}
	if err := c.run(filepath.Join(c.programs, "kube-controller-manager"), "--kubeconfig="+c.Kubeconfig, "--secure-port=0",
		"--leader-elect=false", "--controllers=*,bootstrapsigner,tokencleaner", "--allocate-node-cidrs",
		"--cluster-cidr="+podRange, "--service-cluster-ip-range="+serviceRange, "--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--service-account-private-key-file="+pki("sa.key")); err != nil {
		return err
	}
	if err := c.run(filepath.Join(c.programs, "kube-scheduler"), "--kubeconfig="+c.Kubeconfig, "--secure-port=0",
		"--leader-elect=false"); err != nil {
		return err
	}
	for _, phase := range []string{"upload-config kubeadm", "bootstrap-token --skip-token-print"} {
		if err := c.kubeadm(ctx, "init phase "+phase+" --config "+config+" --kubeconfig "+c.Kubeconfig); err != nil {
			return err
		}
	}
	if _, err := c.Kubectl(ctx, kubeletConfig, "apply", "-f", "-"); err != nil {
		return err
	}
	// Its signature is made anew as soon as it changes, so no more of it is written than has to.
	info, err := c.Kubectl(ctx, "", "get", "configmap", "cluster-info", "-n", "kube-public", "-o",
		"jsonpath={.data.kubeconfig}")
	if err != nil {
		return err
	}
	there := strings.ReplaceAll(info, net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)), Endpoint)
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"kubeconfig": there}})
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, "", "patch", "configmap", "cluster-info", "-n", "kube-public", "--type", "merge", "-p",
		string(patch))
	return err
}

// kubeletConfig is what kubeadm's phase uploads, which also wants a Node of the control plane.
const kubeletConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kubelet-config, namespace: kube-system}
data:
  kubelet: |
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    authentication: {anonymous: {enabled: false}, webhook: {enabled: true},
      x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
    authorization: {mode: Webhook}
    cgroupDriver: systemd
    clusterDNS: [10.96.0.10]
    clusterDomain: cluster.local
    rotateCertificates: true
    runtimeRequestTimeout: 10m
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "kubeadm:kubelet-config", namespace: kube-system}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [kubelet-config], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "kubeadm:kubelet-config", namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "kubeadm:kubelet-config"}
subjects:
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:nodes"}
- {kind: Group, apiGroup: rbac.authorization.k8s.io, name: "system:bootstrappers:kubeadm:default-node-token"}
`

// CAHash is by which a machine that joins knows the cluster.
func (c *Cluster) CAHash() (string, error) {
	content, err := os.ReadFile(filepath.Join(c.dir, "pki", "ca.crt"))
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return "", errors.New("the authority of the cluster is no PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Kubectl runs kubectl as an administrator, with input.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(c.programs, "kubectl"), append([]string{"--kubeconfig",
		c.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(input)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

func (c *Cluster) kubeadm(ctx context.Context, args string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(c.programs, "kubeadm"), strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubeadm %s: %w: %s", args, err, out)
	}
	return nil
}

// run starts a program on a thread of its own, with whose end the kernel kills it.
func (c *Cluster) run(path string, args ...string) error {
	p := &program{name: filepath.Base(path), ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(p.ended)
		command := exec.Command(path, args...)
		command.Dir = c.dir
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(filepath.Join(c.dir, p.name+".log"))
		if err == nil {
			defer func() { _ = log.Close() }()
			command.Stdout, command.Stderr = log, log
			err = command.Start()
		}
		if err != nil {
			started <- fmt.Errorf("starting %s: %w", p.name, err)
			return
		}
		p.pid = command.Process.Pid
		started <- nil
		_ = command.Wait()
	}()
	if err := <-started; err != nil {
		return err
	}
	c.running = append(c.running, p)
	return nil
}

// logs are the ends of what the programs wrote.
func (c *Cluster) logs() string {
	var text strings.Builder
	for _, p := range c.running {
		content, _ := os.ReadFile(filepath.Join(c.dir, p.name+".log"))
		fmt.Fprintf(&text, "--- %s\n%s\n", p.name, content[max(0, len(content)-2000):])
	}
	return text.String()
}

// Close ends the programs, and waits until they are gone.
func (c *Cluster) Close() {
	for _, p := range c.running {
		select {
		case <-p.ended:
		default:
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
			<-p.ended
		}
	}
}

func freePorts(number int) ([]int, error) {
	var ports []int
	var listeners []net.Listener
	for range number {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("choosing a port: %w", err)
		}
		listeners = append(listeners, listener)
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	var err error
	for _, listener := range listeners {
		err = errors.Join(err, listener.Close())
	}
	return ports, err
}

func host(endpoint string) string { name, _, _ := net.SplitHostPort(endpoint); return name }

func port(endpoint string) string { _, number, _ := net.SplitHostPort(endpoint); return number }
