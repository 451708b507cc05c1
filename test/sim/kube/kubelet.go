// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// put writes a file with its directories.
func put(p *machine.Process, name, content string, mode uint32) error {
	if err := p.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return p.WriteFile(name, []byte(content), os.FileMode(mode))
}

// kubelet is the node agent: it needs what kubeadm wrote, trades the bootstrap token for a certificate, registers its
// Node and keeps it until it is stopped.
func (c *Cluster) kubelet(ctx context.Context, p *machine.Process) int {
	version := versionOf(p)
	flags := map[string]string{}
	for _, arg := range p.Args[1:] {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flags[name] = value
	}
	if _, ok := flags["version"]; ok {
		p.Printf("Kubernetes %s\n", version)
		return 0
	}
	if _, err := p.Stat(flags["config"]); err != nil {
		return p.Fail("\"command failed\" err=\"failed to load kubelet config file, path: %s, error: %v\"", flags["config"], err)
	}
	if plane := c.options.ControlPlane; plane != nil {
		return c.planeKubelet(ctx, p, plane, flags)
	}
	if _, err := p.Stat(flags["kubeconfig"]); err != nil {
		if _, err := p.Stat(flags["bootstrap-kubeconfig"]); err != nil {
			return p.Fail("\"command failed\" err=\"failed to run Kubelet: unable to load bootstrap kubeconfig: %v\"", err)
		}
		if err := tlsBootstrap(p, flags["kubeconfig"]); err != nil {
			return p.Fail("\"command failed\" err=\"failed to run Kubelet: %v\"", err)
		}
	}
	kubeletFiles(p)
	for c.client != nil {
		err := c.register(ctx, c.client, p.Machine, version, flags)
		if err == nil {
			break
		}
		fmt.Fprintf(p.Stderr, "kubelet: \"Unable to register node with API server\" err=%q\n", err)
		p.Sleep(time.Second)
	}
	if err := pod(p); err != nil {
		fmt.Fprintf(p.Stderr, "kubelet: \"Error syncing pod\" err=%q\n", err)
	}
	for {
		if c.options.Heartbeat <= 0 || c.client == nil {
			<-ctx.Done()
			return 0
		}
		p.Sleep(c.options.Heartbeat)
		if err := c.register(ctx, c.client, p.Machine, version, flags); err != nil {
			fmt.Fprintf(p.Stderr, "kubelet: \"Error updating node status\" err=%q\n", err)
		}
	}
}

// planeKubelet is the kubelet of a cluster with a control plane of its own: it runs static pods from the beginning, and
// has its certificate when an API server answers, which on a control-plane machine is that of the machine itself.
func (c *Cluster) planeKubelet(ctx context.Context, p *machine.Process, plane *ControlPlane, flags map[string]string) int {
	version := versionOf(p)
	state := &kubeletState{plane: plane, machine: p.Machine, node: nodeName(p.Machine, flags)}
	state.register = func(ctx context.Context) error {
		client, err := plane.client()
		if err != nil {
			return err
		}
		return c.register(ctx, client, p.Machine, version, flags)
	}
	static := &staticPods{plane: plane, parsed: map[string]*corev1.Pod{}, runs: map[string]*staticRun{}}
	talks := false
	for {
		static.sync(p)
		state.observe(static)
		if !talks {
			var err error
			if talks, err = c.hasCertificate(p, plane, static, flags); err != nil {
				return p.Fail("\"command failed\" err=\"failed to run Kubelet: %v\"", err)
			}
			if talks {
				kubeletFiles(p)
				if err := pod(p); err != nil {
					fmt.Fprintf(p.Stderr, "kubelet: \"Error syncing pod\" err=%q\n", err)
				}
				go state.talk(ctx)
			}
		}
		p.Sleep(50 * time.Millisecond)
	}
}

// hasCertificate gets one for the kubelet, if it has none and the API server answers.
func (c *Cluster) hasCertificate(p *machine.Process, plane *ControlPlane, static *staticPods, flags map[string]string) (bool, error) {
	if _, err := p.Stat(flags["kubeconfig"]); err == nil {
		return true, nil
	}
	if _, err := p.Stat(flags["bootstrap-kubeconfig"]); err != nil {
		return false, fmt.Errorf("unable to load bootstrap kubeconfig: %w", err)
	}
	answers := plane.serving()
	if static.runs[staticPrefix+"kube-apiserver"] != nil {
		answers = plane.serves(p.Machine)
	}
	if !answers {
		return false, nil
	}
	return true, tlsBootstrap(p, flags["kubeconfig"])
}

func nodeName(m *machine.Machine, flags map[string]string) string {
	if name := flags["hostname-override"]; name != "" {
		return name
	}
	return m.Hostname()
}

// kubeletFiles are what a kubelet that runs keeps.
func kubeletFiles(p *machine.Process) {
	for _, dir := range []string{"pods", "plugins", "plugins_registry", "pod-resources", "device-plugins", "checkpoints", "image_manager/pulled", "image_manager/pulling"} {
		_ = p.MkdirAll(kubeletDir+"/"+dir, 0o700)
	}
	_ = put(p, kubeletDir+"/cpu_manager_state", `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`, 0o600)
	_ = put(p, kubeletDir+"/dra_manager_state", `{"version":"v1","entries":[],"checksum":0}`, 0o600)
	_ = put(p, kubeletDir+"/memory_manager_state", `{"policyName":"None","machineState":{},"checksum":0}`, 0o600)
}

// podDir is that of the one pod that every node has, as its DaemonSet brings it.
const podDir = kubeletDir + "/pods/6b7f0f3e-5f4f-4a38-9d0b-2f1f5a2f7c11"

// pod leaves on the host what a pod does: a container with its task, and a mount that outlives the kubelet.
func pod(p *machine.Process) error {
	volume := podDir + "/volumes/kubernetes.io~projected/kube-api-access"
	if err := p.MkdirAll(volume, 0o750); err != nil {
		return err
	}
	mounts, err := p.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	if !strings.Contains(string(mounts), " "+volume+" ") {
		if code := p.Run("mount", "-t", "tmpfs", "tmpfs", volume); code != 0 {
			return fmt.Errorf("mounting %s ended with code %d", volume, code)
		}
	}
	return addPod(p, "kube-proxy")
}

// tlsBootstrap leaves the files of a kubelet whose certificate was signed.
func tlsBootstrap(p *machine.Process, kubeconf string) error {
	pem := kubeletDir + "/pki/kubelet-client-" + p.Machine.Now().UTC().Format("2006-01-02-15-04-05") + ".pem"
	for _, file := range []struct {
		name, content string
		mode          uint32
	}{
		{pem, "simulated certificate and key\n", 0o600},
		{kubeletDir + "/pki/kubelet.crt", "simulated certificate\n", 0o644},
		{kubeletDir + "/pki/kubelet.key", "simulated key\n", 0o600},
	} {
		if err := put(p, file.name, file.content, file.mode); err != nil {
			return err
		}
	}
	if code := p.Run("ln", "-sf", pem, kubeletDir+"/pki/kubelet-client-current.pem"); code != 0 {
		return fmt.Errorf("linking the current certificate ended with code %d", code)
	}
	return put(p, kubeconf, kubeconfig("default-auth", "client-certificate: "+kubeletDir+"/pki/kubelet-client-current.pem"), 0o600)
}

// register creates the Node or renews its status. A Node that is there keeps its provider ID, as with a real kubelet.
func (c *Cluster) register(ctx context.Context, client kubernetes.Interface, m *machine.Machine, version string, flags map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	name := nodeName(m, flags)
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(name, flags["node-labels"])},
			Spec:       corev1.NodeSpec{ProviderID: flags["provider-id"], Taints: taints(flags["register-with-taints"])},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: version, ContainerRuntimeVersion: "containerd://" + c.options.Runtime, BootID: m.BootID(),
		OperatingSystem: "linux", Architecture: "amd64",
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
	for _, address := range strings.Split(flags["node-ip"], ",") {
		if address != "" {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = conditions(metav1.Now())
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// conditions of a healthy node: the pressures count as well for who waits for "all conditions".
func conditions(now metav1.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

func labels(name, extra string) map[string]string {
	all := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	for _, pair := range strings.Split(extra, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			all[key] = value
		}
	}
	return all
}

// taints reads key=value:effect, divided by commas.
func taints(text string) []corev1.Taint {
	var all []corev1.Taint
	for _, one := range strings.Split(text, ",") {
		pair, effect, ok := strings.Cut(one, ":")
		if !ok {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		all = append(all, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return all
}
