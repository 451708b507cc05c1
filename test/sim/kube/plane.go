// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// step of kubeadm, with the name that OnPhase hears and that an error carries.
type step struct {
	name string
	run  func(ctx context.Context) error
}

// run goes through the steps as kubeadm goes through its phases: what fails ends it, and nothing is taken back.
func (h *planeHost) run(ctx context.Context, steps []step) int {
	for _, s := range steps {
		if slices.Contains(h.skip, s.name) {
			continue
		}
		h.phase(s.name)
		// A machine that a hook took down does nothing more.
		_, _ = h.p.Stat("/")
		if err := s.run(ctx); err != nil {
			fmt.Fprintf(h.p.Stderr, "error execution phase %s: %v\n", s.name, err)
			return 1
		}
	}
	h.phase("done")
	return 0
}

// init makes the first machine of a control plane, in the order of a real kubeadm.
func (c *Cluster) init(ctx context.Context, p *machine.Process, path string) int {
	if c.options.ControlPlane == nil {
		c.phase(p.Machine, "init", "preflight")
		if code := preflight(p, true); code != 0 {
			return code
		}
		return p.Fail("simulated: no control plane is attached to this cluster (%s)", path)
	}
	content, err := p.ReadFile(path)
	if err != nil {
		fmt.Fprintf(p.Stderr, "error: unable to read config from %q: %v\n", path, err)
		return 1
	}
	local, cluster, err := parseInit(content)
	h := &planeHost{Cluster: c, plane: c.options.ControlPlane, p: p, verb: "init", cluster: cluster}
	if err == nil {
		if cluster.KubernetesVersion == "" {
			cluster.KubernetesVersion = versionOf(p)
		}
		err = h.settle(local.NodeRegistration, local.LocalAPIEndpoint)
	}
	if err != nil {
		fmt.Fprintf(p.Stderr, "error: %v\n", err)
		return 1
	}
	p.Printf("[init] Using Kubernetes version: %s\n[preflight] Running pre-flight checks\n", cluster.KubernetesVersion)
	document, _ := documentOf(content, "ClusterConfiguration")
	h.skip, h.patches = local.SkipPhases, local.Patches.Directory
	return h.run(ctx, []step{
		{"preflight", func(context.Context) error { return h.checks() }},
		{"certs", func(context.Context) error {
			if err := h.readAuthorities(); err != nil {
				return err
			}
			return h.certificates()
		}},
		{"kubeconfig", func(context.Context) error {
			if err := h.kubeconfigs(true); err != nil {
				return err
			}
			return tlsBootstrap(p, kubeletKubeconf)
		}},
		{"etcd", func(context.Context) error { return h.etcdManifest(nil) }},
		{"control-plane", func(context.Context) error { return h.controlPlaneManifests() }},
		{"kubelet-start", func(context.Context) error {
			return startKubelet(p, h.name, local.NodeRegistration.KubeletExtraArgs)
		}},
		{"wait-control-plane", h.waitForAPIServer},
		{"upload-config", func(ctx context.Context) error { return h.uploadConfig(ctx, document) }},
		{"mark-control-plane", func(ctx context.Context) error { return h.mark(ctx, local.NodeRegistration) }},
		{"bootstrap-token", func(ctx context.Context) error { return h.bootstrapTokens(ctx, local) }},
		{"addon", h.addons},
	})
}

// checks are the preflight of a control-plane machine.
func (h *planeHost) checks() error {
	if code := preflight(h.p, true); code != 0 {
		return errors.New("[preflight] see above")
	}
	return h.preflight()
}

// patient tries until it works, as kubeadm does with every call, or its patience ends.
func (h *planeHost) patient(ctx context.Context, what string, try func(ctx context.Context) error) error {
	deadline := time.Now().Add(h.plane.options.Patience)
	for {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", what, err)
		}
		h.p.Sleep(50 * time.Millisecond)
	}
}

// api calls the API server, with patience.
func (h *planeHost) api(ctx context.Context, what string, try func(ctx context.Context, client kubernetes.Interface) error) error {
	return h.patient(ctx, what, func(ctx context.Context) error {
		client, err := h.plane.client()
		if err != nil {
			return err
		}
		return try(ctx, client)
	})
}

// waitForAPIServer waits for that of the machine itself.
func (h *planeHost) waitForAPIServer(ctx context.Context) error {
	deadline := time.Now().Add(4 * time.Minute)
	for !h.plane.serves(h.p.Machine) {
		if time.Now().After(deadline) {
			return errors.New("failed while waiting for the control plane to start: kube-apiserver check failed at " + h.server() + "/livez")
		}
		h.p.Sleep(20 * time.Millisecond)
	}
	return h.api(ctx, "failed while waiting for the control plane to start", func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/livez").DoRaw(ctx)
		return err
	})
}

// mark gives the Node the labels and taints of a control plane.
func (h *planeHost) mark(ctx context.Context, registration nodeRegistration) error {
	wanted := []corev1.Taint{{Key: controlPlaneLabel, Effect: corev1.TaintEffectNoSchedule}}
	if registration.Taints != nil {
		wanted = *registration.Taints
	}
	h.p.Printf("[mark-control-plane] Marking the node %s as control-plane by adding the labels: [%s]\n", h.name, controlPlaneLabel)
	return h.api(ctx, "error applying control-plane label and taints", func(ctx context.Context, client kubernetes.Interface) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := client.CoreV1().Nodes().Get(ctx, h.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Labels[controlPlaneLabel] = ""
			node.Labels["node.kubernetes.io/exclude-from-external-load-balancers"] = ""
			for _, taint := range wanted {
				if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
					node.Spec.Taints = append(node.Spec.Taints, taint)
				}
			}
			_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		})
	})
}

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// startKubelet writes what the kubelet needs and restarts it.
func startKubelet(p *machine.Process, name string, extra extraArgs) error {
	args := append([]string{"--hostname-override=" + name}, extra...)
	for _, file := range []struct{ path, content string }{
		{kubeletInstance, "apiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix://" + containerdSocket + "\nkind: KubeletConfiguration\n"},
		{kubeletConfig, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n"},
		{kubeletFlags, fmt.Sprintf("KUBELET_KUBEADM_ARGS=%q\n", strings.Join(args, " "))},
	} {
		if err := put(p, file.path, file.content, 0o644); err != nil {
			return err
		}
	}
	p.Printf("[kubelet-start] Writing kubelet configuration to file %q\n[kubelet-start] Writing kubelet environment file with flags to file %q\n[kubelet-start] Starting the kubelet\n", kubeletConfig, kubeletFlags)
	if code := p.Run("systemctl", "daemon-reload"); code != 0 {
		p.Printf("[kubelet-start] WARNING: unable to reload systemd\n")
	}
	if code := p.Run("systemctl", "restart", "kubelet.service"); code != 0 {
		p.Printf("[kubelet-start] WARNING: unable to start the kubelet service: [%d]\n", code)
	}
	return nil
}

// create makes an object that may be there already.
func create[T any](ctx context.Context, object *T, with func(context.Context, *T, metav1.CreateOptions) (*T, error)) error {
	_, err := with(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
