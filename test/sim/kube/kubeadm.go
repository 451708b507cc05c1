// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// The files of a node, where kubeadm and the kubelet of every supported version keep them.
const (
	etcKubernetes    = "/etc/kubernetes"
	bootstrapConfig  = etcKubernetes + "/bootstrap-kubelet.conf"
	kubeletKubeconf  = etcKubernetes + "/kubelet.conf"
	clusterCA        = etcKubernetes + "/pki/ca.crt"
	kubeletDir       = "/var/lib/kubelet"
	kubeletConfig    = kubeletDir + "/config.yaml"
	kubeletInstance  = kubeletDir + "/instance-config.yaml"
	kubeletFlags     = kubeletDir + "/kubeadm-flags.env"
	containerdSocket = "/run/containerd/containerd.sock"
)

func (c *Cluster) kubeadm(ctx context.Context, p *machine.Process) int {
	verb, flags := "", map[string]string{}
	for i := 1; i < len(p.Args); i++ {
		name, value, glued := strings.Cut(p.Args[i], "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			verb = strings.TrimSpace(verb + " " + name)
		case glued:
			flags[strings.TrimLeft(name, "-")] = value
		case i+1 < len(p.Args) && !strings.HasPrefix(p.Args[i+1], "-") && name != "--force" && name != "-f":
			i++
			flags[strings.TrimLeft(name, "-")] = p.Args[i]
		default:
			flags[strings.TrimLeft(name, "-")] = "true"
		}
	}
	switch verb {
	case "version":
		if flags["o"] == "short" || flags["output"] == "short" {
			p.Printf("%s\n", versionOf(p))
			return 0
		}
		p.Printf("kubeadm version: &version.Info{GitVersion:%q}\n", versionOf(p))
		return 0
	case "join":
		return c.join(ctx, p, flags["config"])
	case "init":
		return c.init(ctx, p, flags["config"])
	case "reset":
		return c.reset(ctx, p, strings.Split(flags["skip-phases"], ","))
	}
	return p.Fail("simulated: %q is not known", verb)
}

// join does what a real one does to the host, in its order, so that one that is cut leaves the same half behind.
func (c *Cluster) join(ctx context.Context, p *machine.Process, path string) int {
	content, err := p.ReadFile(path)
	if err != nil {
		fmt.Fprintf(p.Stderr, "error: unable to read config from %q: %v\n", path, err)
		return 1
	}
	config, err := parseConfig(content, "JoinConfiguration")
	if err == nil {
		err = config.validate()
	}
	if err != nil {
		fmt.Fprintf(p.Stderr, "error: %v\n", err)
		return 1
	}
	if config.ControlPlane != nil {
		return c.joinControlPlane(ctx, p, config)
	}
	c.phase(p.Machine, "join", "preflight")
	p.Printf("[preflight] Running pre-flight checks\n")
	if code := preflight(p, false); code != 0 {
		return code
	}
	c.joined(p.Machine)
	c.phase(p.Machine, "join", "kubelet-start")
	token := ""
	if t := config.Discovery.BootstrapToken; t != nil {
		token = t.Token
	}
	name := config.NodeRegistration.Name
	if name == "" {
		name = p.Machine.Hostname()
	}
	args := append([]string{"--hostname-override=" + name}, config.NodeRegistration.KubeletExtraArgs...)
	for _, file := range []struct {
		path, content string
		mode          uint32
	}{
		{bootstrapConfig, kubeconfig("tls-bootstrap-token-user", "token: "+token), 0o600},
		{clusterCA, "-----BEGIN CERTIFICATE-----\nsimulated\n-----END CERTIFICATE-----\n", 0o644},
		{kubeletInstance, "apiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix://" + containerdSocket + "\nkind: KubeletConfiguration\n", 0o644},
		{kubeletConfig, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n", 0o644},
		{kubeletFlags, fmt.Sprintf("KUBELET_KUBEADM_ARGS=%q\n", strings.Join(args, " ")), 0o644},
	} {
		if err := put(p, file.path, file.content, file.mode); err != nil {
			return c.failed(p, "kubelet-start", err)
		}
	}
	p.Printf("[kubelet-start] Writing kubelet configuration to file %q\n[kubelet-start] Writing kubelet environment file with flags to file %q\n[kubelet-start] Starting the kubelet\n", kubeletConfig, kubeletFlags)
	if code := p.Run("systemctl", "daemon-reload"); code != 0 {
		p.Printf("[kubelet-start] WARNING: unable to reload systemd\n")
	}
	if code := p.Run("systemctl", "restart", "kubelet.service"); code != 0 {
		p.Printf("[kubelet-start] WARNING: unable to start the kubelet service: [%d]\n", code)
	}
	c.phase(p.Machine, "join", "tls-bootstrap")
	for wait := 0; ; wait++ {
		if _, err := p.Stat(kubeletKubeconf); err == nil {
			break
		}
		if wait == 300 {
			fmt.Fprintf(p.Stderr, "error execution phase kubelet-wait-bootstrap: error while waiting for the kubelet to perform the TLS bootstrap: timed out\n")
			return 1
		}
		p.Sleep(100 * time.Millisecond)
	}
	if err := p.Remove(bootstrapConfig); err != nil {
		return c.failed(p, "kubelet-wait-bootstrap", err)
	}
	c.phase(p.Machine, "join", "done")
	p.Printf("\nThis node has joined the cluster:\n* Certificate signing request was sent to apiserver and a response was received.\n* The Kubelet was informed of the new secure connection details.\n\nRun 'kubectl get nodes' on the control-plane to see this node join the cluster.\n\n")
	return 0
}

func (c *Cluster) failed(p *machine.Process, phase string, err error) int {
	fmt.Fprintf(p.Stderr, "error execution phase %s: %v\n", phase, err)
	return 1
}

// preflight refuses what half a node looks like, in kubeadm's words. Who joins a control plane, or makes one, has brought
// the authority.
func preflight(p *machine.Process, controlPlane bool) int {
	var problems []string
	if p.UID() != 0 {
		problems = append(problems, "[ERROR IsPrivilegedUser]: user is not running as root")
	}
	if forward, _ := p.ReadFile("/proc/sys/net/ipv4/ip_forward"); strings.TrimSpace(string(forward)) != "1" {
		problems = append(problems, "[ERROR FileContent--proc-sys-net-ipv4-ip_forward]: /proc/sys/net/ipv4/ip_forward contents are not set to 1")
	}
	if names, err := p.ReadDir(etcKubernetes + "/manifests"); err == nil && len(names) > 0 {
		problems = append(problems, "[ERROR DirAvailable--etc-kubernetes-manifests]: /etc/kubernetes/manifests is not empty")
	}
	for _, path := range []string{kubeletKubeconf, bootstrapConfig, clusterCA} {
		if _, err := p.Stat(path); err == nil && (!controlPlane || path != clusterCA) {
			problems = append(problems, fmt.Sprintf("[ERROR FileAvailable-%s]: %s already exists", strings.NewReplacer("/", "-", "_", "-").Replace(path), path))
		}
	}
	if _, err := p.Stat(containerdSocket); err != nil {
		problems = append(problems, "[ERROR CRI]: could not connect to the container runtime: failed to create new CRI runtime service: validate service connection: rpc error: code = Unavailable")
	}
	if len(problems) == 0 {
		return 0
	}
	fmt.Fprintf(p.Stderr, "error execution phase preflight: [preflight] Some fatal errors occurred:\n\t%s\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`\nTo see the stack trace of this error execute with --v=5 or higher\n",
		strings.Join(problems, "\n\t"))
	return 1
}

// reset is kubeadm's best effort: it takes the files of the node, not the links, rules and pod networks that others made.
func (c *Cluster) reset(ctx context.Context, p *machine.Process, skip []string) int {
	c.phase(p.Machine, "reset", "preflight")
	p.Printf("[preflight] Running pre-flight checks\n")
	dataDir := ""
	if content, err := p.ReadFile(manifests + "/etcd.yaml"); err == nil && c.options.ControlPlane != nil {
		dataDir = dataDirIn(content)
		if !slices.Contains(skip, "remove-etcd-member") {
			c.removeMember(ctx, p)
		}
	}
	p.Printf("[reset] Stopping the kubelet service\n")
	p.Run("systemctl", "stop", "kubelet.service")
	p.Printf("[reset] Unmounting mounted directories in %q\n", kubeletDir)
	mounts, _ := p.ReadFile("/proc/self/mounts")
	for _, line := range strings.Split(string(mounts), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], kubeletDir+"/") {
			p.Run("umount", fields[1])
		}
	}
	c.removeContainers(p)
	if dataDir != "" && !slices.Contains(skip, "remove-etcd-member") {
		empty(p, dataDir)
	}
	for _, dir := range []string{kubeletDir, etcKubernetes + "/manifests", etcKubernetes + "/tmp", etcKubernetes + "/pki"} {
		empty(p, dir)
	}
	for _, file := range []string{"admin.conf", "super-admin.conf", "kubelet.conf", "bootstrap-kubelet.conf", "controller-manager.conf", "scheduler.conf"} {
		_ = p.Remove(etcKubernetes + "/" + file)
	}
	c.phase(p.Machine, "reset", "done")
	p.Printf("The reset process does not perform cleanup of CNI plugin configuration,\nnetwork filtering rules and kubeconfig files.\n")
	return 0
}

func empty(p *machine.Process, dir string) {
	names, err := p.ReadDir(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		_ = p.Remove(dir + "/" + name)
	}
}

func kubeconfig(user, credential string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nusers:\n- name: %s\n  user:\n    %s\n", user, credential)
}
