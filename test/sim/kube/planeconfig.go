// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// The groups of those who join.
const (
	tokenGroup = "system:bootstrappers:kubeadm:default-node-token"
	nodesGroup = "system:nodes"
)

// uploadConfig writes what later joins and upgrades read, and lets them.
func (h *planeHost) uploadConfig(ctx context.Context, document []byte) error {
	full := map[string]any{}
	if err := yaml.Unmarshal(document, &full); err != nil {
		return err
	}
	full["apiVersion"], full["kind"] = h.cluster.APIVersion, "ClusterConfiguration"
	full["kubernetesVersion"], full["imageRepository"] = h.cluster.KubernetesVersion, h.cluster.ImageRepository
	full["clusterName"], full["certificatesDir"] = h.cluster.ClusterName, h.cluster.CertificatesDir
	content, err := yaml.Marshal(full)
	if err != nil {
		return err
	}
	kubelet := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: /etc/kubernetes/manifests\n"
	h.p.Printf("[upload-config] Storing the configuration used in ConfigMap \"kubeadm-config\" in the \"kube-system\" Namespace\n")
	return h.api(ctx, "error uploading the kubeadm ClusterConfiguration", func(ctx context.Context, client kubernetes.Interface) error {
		for name, data := range map[string]map[string]string{
			"kubeadm-config": {"ClusterConfiguration": string(content)}, "kubelet-config": {"kubelet": kubelet},
		} {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}, Data: data}
			if err := create(ctx, config, client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create); err != nil {
				return err
			}
		}
		// The name of the second Role has been without the version since 1.24.
		for name, config := range map[string]string{"kubeadm:nodes-kubeadm-config": "kubeadm-config", "kubeadm:kubelet-config": "kubelet-config"} {
			if err := allowReading(ctx, client, name, config); err != nil {
				return err
			}
		}
		admins := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:cluster-admins"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "kubeadm:cluster-admins"}}}
		return create(ctx, admins, client.RbacV1().ClusterRoleBindings().Create)
	})
}

// allowReading lets nodes and those who join read a ConfigMap of kube-system.
func allowReading(ctx context.Context, client kubernetes.Interface, name, config string) error {
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{config}, Verbs: []string{"get"}}}}
	if err := create(ctx, role, client.RbacV1().Roles(metav1.NamespaceSystem).Create); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: groups(tokenGroup, nodesGroup)}
	return create(ctx, binding, client.RbacV1().RoleBindings(metav1.NamespaceSystem).Create)
}

func groups(names ...string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, name := range names {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: name})
	}
	return subjects
}

// bootstrapTokens makes the tokens of the configuration, what they may do, and what anybody may read who has one.
func (h *planeHost) bootstrapTokens(ctx context.Context, config *initConfig) error {
	kubeconfig, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config",
		"clusters": []map[string]any{{"name": "", "cluster": map[string]any{"server": "https://" + h.cluster.ControlPlaneEndpoint, "certificate-authority-data": h.ca.pem}}},
	})
	if err != nil {
		return err
	}
	return h.api(ctx, "error creating bootstrap tokens", func(ctx context.Context, client kubernetes.Interface) error {
		for _, token := range config.BootstrapTokens {
			id, secret, _ := strings.Cut(token.Token, ".")
			group := tokenGroup
			if len(token.Groups) > 0 {
				group = strings.Join(token.Groups, ",")
			}
			object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id, Namespace: metav1.NamespaceSystem}, Type: corev1.SecretTypeBootstrapToken,
				StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true", "auth-extra-groups": group}}
			if err := create(ctx, object, client.CoreV1().Secrets(metav1.NamespaceSystem).Create); err != nil {
				return err
			}
		}
		getNodes := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:get-nodes"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}}
		if err := create(ctx, getNodes, client.RbacV1().ClusterRoles().Create); err != nil {
			return err
		}
		for name, role := range map[string]string{"kubeadm:get-nodes": "kubeadm:get-nodes", "kubeadm:kubelet-bootstrap": "system:node-bootstrapper"} {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: groups(tokenGroup)}
			if err := create(ctx, binding, client.RbacV1().ClusterRoleBindings().Create); err != nil {
				return err
			}
		}
		info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: metav1.NamespacePublic}, Data: map[string]string{"kubeconfig": string(kubeconfig)}}
		return create(ctx, info, client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create)
	})
}

// coreDNSTags are those of kubeadm by minor version.
var coreDNSTags = map[uint]string{31: "v1.11.3", 32: "v1.11.3", 33: "v1.12.0", 34: "v1.12.1", 35: "v1.13.1", 36: "v1.14.2"}

const corefile = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

// addons makes the objects of CoreDNS and kube-proxy. No controller makes pods of them.
func (h *planeHost) addons(ctx context.Context) error {
	parsed, err := version.ParseSemantic(h.cluster.KubernetesVersion)
	if err != nil {
		return err
	}
	tag := h.cluster.DNS.ImageTag
	if tag == "" {
		tag = coreDNSTags[parsed.Minor()]
	}
	repository := h.cluster.DNS.ImageRepository
	if repository == "" {
		repository = h.cluster.ImageRepository
	}
	template := func(app, image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"k8s-app": app}},
			Spec: corev1.PodSpec{ServiceAccountName: app, Containers: []corev1.Container{{Name: app, Image: image}},
				Volumes: []corev1.Volume{{Name: "config-volume", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: app}, Items: []corev1.KeyToPath{{Key: "Corefile", Path: "Corefile"}}}}}}}}
	}
	dnsTemplate := template("coredns", fmt.Sprintf("%s/coredns:%s", repository, tag))
	dnsTemplate.Labels["k8s-app"] = "kube-dns"
	proxyTemplate := template("kube-proxy", h.cluster.ImageRepository+"/kube-proxy:"+h.cluster.KubernetesVersion)
	proxyTemplate.Spec.Volumes[0].ConfigMap.Items = nil
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem, Labels: map[string]string{"k8s-app": name}}
	}
	dns := &appsv1.Deployment{ObjectMeta: meta("coredns"), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2),
		Selector: &metav1.LabelSelector{MatchLabels: dnsTemplate.Labels}, Template: dnsTemplate}}
	proxy := &appsv1.DaemonSet{ObjectMeta: meta("kube-proxy"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: proxyTemplate.Labels}, Template: proxyTemplate}}
	proxyConfig := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	return h.api(ctx, "error creating add-ons", func(ctx context.Context, client kubernetes.Interface) error {
		core, apps := client.CoreV1(), client.AppsV1()
		for name, data := range map[string]map[string]string{"coredns": {"Corefile": corefile}, "kube-proxy": {"config.conf": proxyConfig}} {
			if err := create(ctx, &corev1.ConfigMap{ObjectMeta: meta(name), Data: data}, core.ConfigMaps(metav1.NamespaceSystem).Create); err != nil {
				return err
			}
			if err := create(ctx, &corev1.ServiceAccount{ObjectMeta: meta(name)}, core.ServiceAccounts(metav1.NamespaceSystem).Create); err != nil {
				return err
			}
		}
		coreDNSRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:coredns"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: []string{"list", "watch"}}}}
		if err := create(ctx, coreDNSRole, client.RbacV1().ClusterRoles().Create); err != nil {
			return err
		}
		if err := allowReading(ctx, client, "kube-proxy", "kube-proxy"); err != nil {
			return err
		}
		if !slices.Contains(h.skip, "addon/coredns") {
			if err := create(ctx, dns, apps.Deployments(metav1.NamespaceSystem).Create); err != nil {
				return err
			}
		}
		if slices.Contains(h.skip, "addon/kube-proxy") {
			return nil
		}
		return create(ctx, proxy, apps.DaemonSets(metav1.NamespaceSystem).Create)
	})
}
