// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// endpointConfig is where an API server listens.
type endpointConfig struct {
	AdvertiseAddress string `json:"advertiseAddress"`
	BindPort         int    `json:"bindPort"`
}

// component of a control plane.
type component struct {
	ExtraArgs extraArgs `json:"extraArgs"`
	CertSANs  []string  `json:"certSANs"`
}

// image of an add-on.
type addonImage struct {
	ImageRepository string `json:"imageRepository"`
	ImageTag        string `json:"imageTag"`
}

// clusterConfig is what is used of a ClusterConfiguration, v1beta3 or v1beta4.
type clusterConfig struct {
	APIVersion           string `json:"apiVersion"`
	ClusterName          string `json:"clusterName"`
	KubernetesVersion    string `json:"kubernetesVersion"`
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"`
	CertificatesDir      string `json:"certificatesDir"`
	ImageRepository      string `json:"imageRepository"`
	Networking           struct {
		ServiceSubnet string `json:"serviceSubnet"`
		PodSubnet     string `json:"podSubnet"`
		DNSDomain     string `json:"dnsDomain"`
	} `json:"networking"`
	APIServer         component  `json:"apiServer"`
	ControllerManager component  `json:"controllerManager"`
	Scheduler         component  `json:"scheduler"`
	DNS               addonImage `json:"dns"`
	Etcd              struct {
		Local *struct {
			addonImage `json:",inline"`
			DataDir    string    `json:"dataDir"`
			ExtraArgs  extraArgs `json:"extraArgs"`
			CertSANs   []string  `json:"serverCertSANs"`
		} `json:"local"`
		External map[string]any `json:"external"`
	} `json:"etcd"`
}

// initConfig is what is used of an InitConfiguration.
type initConfig struct {
	NodeRegistration nodeRegistration `json:"nodeRegistration"`
	LocalAPIEndpoint endpointConfig   `json:"localAPIEndpoint"`
	BootstrapTokens  []struct {
		Token  string   `json:"token"`
		Groups []string `json:"groups"`
	} `json:"bootstrapTokens"`
	SkipPhases []string      `json:"skipPhases"`
	Patches    patchesConfig `json:"patches"`
}

// nodeRegistration is how a node shall be.
type nodeRegistration struct {
	Name             string          `json:"name"`
	KubeletExtraArgs extraArgs       `json:"kubeletExtraArgs"`
	Taints           *[]corev1.Taint `json:"taints"`
}

// documentOf returns the document of the kind; nil when there is none.
func documentOf(content []byte, kind string) ([]byte, error) {
	for _, document := range bytes.Split(append([]byte("\n"), content...), []byte("\n---")) {
		var meta struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &meta); err != nil {
			return nil, err
		}
		if meta.Kind == kind {
			return document, nil
		}
	}
	return nil, nil
}

// parseInit reads both documents of kubeadm init.
func parseInit(content []byte) (*initConfig, *clusterConfig, error) {
	local, cluster := &initConfig{}, []byte(nil)
	document, err := documentOf(content, "InitConfiguration")
	if err == nil && document != nil {
		err = yaml.Unmarshal(document, local)
	}
	if err == nil {
		cluster, err = documentOf(content, "ClusterConfiguration")
	}
	if err != nil {
		return nil, nil, err
	}
	config, err := parseCluster(cluster)
	return local, config, err
}

// parseCluster reads a ClusterConfiguration and fills in what kubeadm would.
func parseCluster(content []byte) (*clusterConfig, error) {
	c := &clusterConfig{}
	if err := yaml.Unmarshal(content, c); err != nil {
		return nil, err
	}
	if c.Etcd.External != nil {
		return nil, errors.New("simulated: external etcd is not known")
	}
	for _, value := range []struct {
		field    *string
		fallback string
	}{
		{&c.APIVersion, "kubeadm.k8s.io/v1beta4"}, {&c.ClusterName, "kubernetes"}, {&c.CertificatesDir, etcKubernetes + "/pki"},
		{&c.ImageRepository, "quoin.test"}, {&c.Networking.ServiceSubnet, "10.96.0.0/12"}, {&c.Networking.DNSDomain, "cluster.local"},
	} {
		if *value.field == "" {
			*value.field = value.fallback
		}
	}
	return c, nil
}

func (c *clusterConfig) etcdArgs() extraArgs {
	if c.Etcd.Local == nil {
		return nil
	}
	return c.Etcd.Local.ExtraArgs
}

func (c *clusterConfig) dataDir() string {
	if c.Etcd.Local == nil || c.Etcd.Local.DataDir == "" {
		return "/var/lib/etcd"
	}
	return c.Etcd.Local.DataDir
}

// serviceAddress is the first address of the services: the API server's own.
func (c *clusterConfig) serviceAddress() string {
	first, _, _ := strings.Cut(c.Networking.ServiceSubnet, ",")
	ip, _, err := net.ParseCIDR(first)
	if err != nil {
		return "10.96.0.1"
	}
	ip[len(ip)-1]++
	return ip.String()
}

func (c *clusterConfig) endpointHost() string {
	host, _, err := net.SplitHostPort(c.ControlPlaneEndpoint)
	if err != nil {
		return c.ControlPlaneEndpoint
	}
	return host
}

// planeHost is a machine on its way into a control plane.
type planeHost struct {
	*Cluster
	plane *ControlPlane
	p     *machine.Process
	verb  string
	// skip are phases that the configuration leaves out.
	skip []string
	// patches of static pods lie in that directory; "" when there are none.
	patches string
	cluster *clusterConfig
	name    string
	local   endpointConfig
	// ca, etcdCA and frontCA sign what is made here.
	ca, etcdCA, frontCA *authority
}

// settle fills in what kubeadm finds out about the machine, and reads the authorities.
func (h *planeHost) settle(registration nodeRegistration, local endpointConfig) error {
	h.name, h.local = registration.Name, local
	if h.name == "" {
		h.name = h.p.Machine.Hostname()
	}
	if h.local.BindPort == 0 {
		h.local.BindPort = apiPort
	}
	if h.local.AdvertiseAddress == "" {
		address, code := h.p.Output("sh", "-c", "ip -o -4 address show scope global | sed -n 's/.*inet \\([0-9.]*\\).*/\\1/p' | head -n 1")
		if h.local.AdvertiseAddress = strings.TrimSpace(address); code != 0 || h.local.AdvertiseAddress == "" {
			return errors.New("unable to select an IP from default routes")
		}
	}
	return nil
}

func (h *planeHost) readAuthorities() error {
	pki := h.cluster.CertificatesDir
	var err error
	if h.ca, err = readAuthority(h.p, pki, "ca"); err != nil {
		return err
	}
	if h.etcdCA, err = readAuthority(h.p, pki+"/etcd", "ca"); err != nil {
		return err
	}
	h.frontCA, err = readAuthority(h.p, pki, "front-proxy-ca")
	return err
}

func (h *planeHost) phase(name string) { h.Cluster.phase(h.p.Machine, h.verb, name) }

func (h *planeHost) peerURL() string { return h.url(etcdPeerPort) }

func (h *planeHost) url(port int) string {
	return "https://" + net.JoinHostPort(h.local.AdvertiseAddress, strconv.Itoa(port))
}

// server is the API server of the machine itself.
func (h *planeHost) server() string { return h.url(h.local.BindPort) }

// preflight is what kubeadm checks on a control-plane machine only.
func (h *planeHost) preflight() error {
	var problems []string
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		file := manifests + "/" + name + ".yaml"
		if _, err := h.p.Stat(file); err == nil {
			problems = append(problems, fmt.Sprintf("[ERROR FileAvailable-%s]: %s already exists", strings.NewReplacer("/", "-").Replace(file), file))
		}
	}
	for _, port := range []int{h.local.BindPort, etcdClientPort, etcdPeerPort} {
		if conn, err := h.p.Machine.Dial(port); err == nil {
			_ = conn.Close()
			problems = append(problems, fmt.Sprintf("[ERROR Port-%d]: Port %[1]d is in use", port))
		}
	}
	dir := h.cluster.dataDir()
	if names, err := h.p.ReadDir(dir); err == nil && len(names) > 0 {
		problems = append(problems, fmt.Sprintf("[ERROR DirAvailable-%s]: %s is not empty", strings.ReplaceAll(dir, "/", "-"), dir))
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("[preflight] Some fatal errors occurred:\n\t%s\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`",
		strings.Join(problems, "\n\t"))
}
