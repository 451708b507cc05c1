// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// certificates makes all that kubeadm makes for a control-plane machine.
func (h *planeHost) certificates() error {
	pki, address := h.cluster.CertificatesDir, h.local.AdvertiseAddress
	domain := h.cluster.Networking.DNSDomain
	serverNames := []string{h.name, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain, h.cluster.serviceAddress(), address}
	if host := h.cluster.endpointHost(); host != "" {
		serverNames = append(serverNames, host)
	}
	serverNames = append(serverNames, h.cluster.APIServer.CertSANs...)
	etcdNames := []string{h.name, "localhost", address, "127.0.0.1", "::1"}
	if h.cluster.Etcd.Local != nil {
		etcdNames = append(etcdNames, h.cluster.Etcd.Local.CertSANs...)
	}
	masters := []string{"kubeadm:cluster-admins"}
	for _, certificate := range []struct {
		file string
		from *authority
		subject
	}{
		{"apiserver", h.ca, subject{name: "kube-apiserver", servers: serverNames}},
		{"apiserver-kubelet-client", h.ca, subject{name: "kube-apiserver-kubelet-client", organization: masters, client: true}},
		{"front-proxy-client", h.frontCA, subject{name: "front-proxy-client", client: true}},
		{"etcd/server", h.etcdCA, subject{name: h.name, servers: etcdNames, client: true}},
		{"etcd/peer", h.etcdCA, subject{name: h.name, servers: etcdNames, client: true}},
		{"etcd/healthcheck-client", h.etcdCA, subject{name: "kube-etcd-healthcheck-client", client: true}},
		{"apiserver-etcd-client", h.etcdCA, subject{name: "kube-apiserver-etcd-client", client: true}},
	} {
		cert, key, err := certificate.from.issue(certificate.subject)
		if err == nil {
			err = put(h.p, pki+"/"+certificate.file+".crt", string(cert), 0o644)
		}
		if err == nil {
			err = put(h.p, pki+"/"+certificate.file+".key", string(key), 0o600)
		}
		if err != nil {
			return err
		}
		h.p.Printf("[certs] Generating %q certificate and key\n", certificate.file)
	}
	return nil
}

// kubeconfigs writes those of the administrator and of the components.
func (h *planeHost) kubeconfigs(super bool) error {
	endpoint := h.server()
	if h.cluster.ControlPlaneEndpoint != "" {
		endpoint = "https://" + h.cluster.ControlPlaneEndpoint
	}
	for _, file := range []struct {
		name, server string
		wanted       bool
		subject
	}{
		{"admin.conf", endpoint, true, subject{name: "kubernetes-admin", organization: []string{"kubeadm:cluster-admins"}}},
		{"super-admin.conf", endpoint, super, subject{name: "kubernetes-super-admin", organization: []string{"system:masters"}}},
		{"controller-manager.conf", h.server(), true, subject{name: "system:kube-controller-manager"}},
		{"scheduler.conf", h.server(), true, subject{name: "system:kube-scheduler"}},
	} {
		if !file.wanted {
			continue
		}
		content, err := h.ca.kubeconfig(file.server, h.cluster.ClusterName, file.subject)
		if err != nil {
			return err
		}
		if err := put(h.p, etcKubernetes+"/"+file.name, string(content), 0o600); err != nil {
			return err
		}
		h.p.Printf("[kubeconfig] Writing %q kubeconfig file\n", file.name)
	}
	return nil
}

// controlPlaneManifests writes the static pods but etcd's.
func (h *planeHost) controlPlaneManifests() error {
	pki, cluster := h.cluster.CertificatesDir, h.cluster
	version := cluster.KubernetesVersion
	server := []string{"kube-apiserver", "--advertise-address=" + h.local.AdvertiseAddress, "--allow-privileged=true", "--authorization-mode=Node,RBAC",
		"--client-ca-file=" + pki + "/ca.crt", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth=true",
		"--etcd-cafile=" + pki + "/etcd/ca.crt", "--etcd-certfile=" + pki + "/apiserver-etcd-client.crt", "--etcd-keyfile=" + pki + "/apiserver-etcd-client.key",
		"--etcd-servers=https://127.0.0.1:2379",
		"--kubelet-client-certificate=" + pki + "/apiserver-kubelet-client.crt", "--kubelet-client-key=" + pki + "/apiserver-kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--proxy-client-cert-file=" + pki + "/front-proxy-client.crt", "--proxy-client-key-file=" + pki + "/front-proxy-client.key",
		"--requestheader-allowed-names=front-proxy-client", "--requestheader-client-ca-file=" + pki + "/front-proxy-ca.crt",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		fmt.Sprintf("--secure-port=%d", h.local.BindPort), "--service-account-issuer=https://kubernetes.default.svc." + cluster.Networking.DNSDomain,
		"--service-account-key-file=" + pki + "/sa.pub", "--service-account-signing-key-file=" + pki + "/sa.key",
		"--service-cluster-ip-range=" + cluster.Networking.ServiceSubnet, "--tls-cert-file=" + pki + "/apiserver.crt", "--tls-private-key-file=" + pki + "/apiserver.key"}
	manager := []string{"kube-controller-manager", "--authentication-kubeconfig=" + etcKubernetes + "/controller-manager.conf", "--bind-address=127.0.0.1",
		"--cluster-name=" + cluster.ClusterName, "--kubeconfig=" + etcKubernetes + "/controller-manager.conf", "--leader-elect=true"}
	scheduler := []string{"kube-scheduler", "--bind-address=127.0.0.1", "--kubeconfig=" + etcKubernetes + "/scheduler.conf", "--leader-elect=true"}
	for _, pod := range []struct {
		name    string
		command []string
		extra   extraArgs
	}{
		{"kube-apiserver", server, cluster.APIServer.ExtraArgs},
		{"kube-controller-manager", manager, cluster.ControllerManager.ExtraArgs},
		{"kube-scheduler", scheduler, cluster.Scheduler.ExtraArgs},
	} {
		annotations := map[string]string{}
		if pod.name == "kube-apiserver" {
			annotations["kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"] = strings.TrimPrefix(h.server(), "https://")
		}
		if err := h.manifest(pod.name, version, append(pod.command, pod.extra...), annotations); err != nil {
			return err
		}
	}
	return nil
}

// etcdManifest writes the static pod of the member. Without others it is the first one of a cluster.
func (h *planeHost) etcdManifest(cluster []string) error {
	pki := h.cluster.CertificatesDir + "/etcd"
	client := h.url(etcdClientPort)
	command := []string{"etcd", "--advertise-client-urls=" + client, "--cert-file=" + pki + "/server.crt", "--client-cert-auth=true",
		"--data-dir=" + h.cluster.dataDir(), "--feature-gates=InitialCorruptCheck=true", "--initial-advertise-peer-urls=" + h.peerURL()}
	if len(cluster) == 0 {
		command = append(command, "--initial-cluster="+h.name+"="+h.peerURL())
	} else {
		command = append(command, "--initial-cluster="+strings.Join(cluster, ","), "--initial-cluster-state=existing")
	}
	command = append(command, "--key-file="+pki+"/server.key", "--listen-client-urls=https://127.0.0.1:2379,"+client,
		"--listen-metrics-urls=http://127.0.0.1:2381", "--listen-peer-urls="+h.peerURL(), "--name="+h.name,
		"--peer-cert-file="+pki+"/peer.crt", "--peer-client-cert-auth=true", "--peer-key-file="+pki+"/peer.key", "--peer-trusted-ca-file="+pki+"/ca.crt",
		"--snapshot-count=10000", "--trusted-ca-file="+pki+"/ca.crt", "--watch-progress-notify-interval=5s")
	tag := "3.6.8-0"
	if h.cluster.Etcd.Local != nil && h.cluster.Etcd.Local.ImageTag != "" {
		tag = h.cluster.Etcd.Local.ImageTag
	}
	return h.manifest("etcd", tag, append(command, h.cluster.etcdArgs()...), map[string]string{etcdURLAnnotation: client})
}

// etcdURLAnnotation is by which kubeadm finds the members.
const etcdURLAnnotation = "kubeadm.kubernetes.io/etcd.advertise-client-urls"

func (h *planeHost) manifest(name, tag string, command []string, annotations map[string]string) error {
	h.p.Printf("[control-plane] Creating static Pod manifest for %q\n", name)
	priority := "system-node-critical"
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Annotations: annotations,
			Labels: map[string]string{"component": name, "tier": "control-plane"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: priority,
			Containers: []corev1.Container{{
				Name: name, Image: h.cluster.ImageRepository + "/" + name + ":" + tag, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: "/readyz", Port: intstr.FromString("probe-port")}}},
			}},
		},
	}
	pod, err := h.patched(pod)
	if err != nil {
		return fmt.Errorf("failed to patch static Pod manifest file for %q: %w", name, err)
	}
	content, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	return put(h.p, manifests+"/"+name+".yaml", string(content), 0o600)
}

// dataDirIn is where the member of a manifest keeps its data.
func dataDirIn(content []byte) string {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal(content, pod); err != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return flagsOf(pod.Spec.Containers[0].Command)["data-dir"]
}
