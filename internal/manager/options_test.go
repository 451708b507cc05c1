// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	var options Options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	options.AddFlags(flags)
	NewWithT(t).Expect(flags.Parse(args)).To(Succeed())
	return &options
}

func TestProviders(t *testing.T) {
	for name, c := range map[string]struct {
		args                         []string
		infrastructure, controlPlane bool
		lease                        string
		refusal                      string
	}{
		"both when nothing is said": {nil, true, true, "quoin-control-plane-infrastructure", ""},
		"one":                       {[]string{"--providers=infrastructure"}, true, false, "quoin-infrastructure", ""},
		"the other":                 {[]string{"--providers=control-plane"}, false, true, "quoin-control-plane", ""},
		"both in any order": {[]string{"--providers=infrastructure,control-plane"}, true, true,
			"quoin-control-plane-infrastructure", ""},
		"none": {[]string{"--providers="}, false, false, "", "names no provider"},
		"a wrong network": {[]string{"--allowed-networks=10.1.2.3/16"}, false, false, "",
			"--allowed-networks: network \"10.1.2.3/16\" has bits set behind its prefix"},
		"no keys of bundles": {[]string{"--bundle-keys=none"}, true, true, "quoin-control-plane-infrastructure", ""},
		"keys of bundles": {[]string{"--bundle-keys=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Uq0tSYnUBGTsKBnBqKMZFGNkpzDnQb/hZ1UHrmzrk operators,ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Uq0tSYnUBGTsKBnBqKMZFGNkpzDnQb/hZ1UHrmzrk"}, true, true,
			"quoin-control-plane-infrastructure", ""},
		"a key that is none": {[]string{"--bundle-keys=/etc/key.pub"}, false, false, "",
			"--bundle-keys: public key 1 cannot be read"},
		"no room for what a host prints": {[]string{"--host-output-mib=7"}, false, false, "",
			"--host-output-mib: 7 is less than 8"},
		"an unknown one": {[]string{"--providers=bootstrap"}, false, false, "", `no provider "bootstrap"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			options := parse(t, c.args...)
			if c.refusal != "" {
				g.Expect(options.Validate()).To(MatchError(ContainSubstring(c.refusal)))
				return
			}
			g.Expect(options.Validate()).To(Succeed())
			g.Expect(options.Serves(Infrastructure)).To(Equal(c.infrastructure))
			g.Expect(options.Serves(ControlPlane)).To(Equal(c.controlPlane))
			g.Expect(options.name()).To(Equal(c.lease))
		})
	}
}

// Who knows Cluster API's managers knows ours.
func TestFlagsAreThoseOfClusterAPI(t *testing.T) {
	g := NewWithT(t)
	var options Options
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	options.AddFlags(flags)
	for _, name := range []string{
		"watch-filter", "namespace", "sync-period", "leader-elect", "leader-elect-lease-duration",
		"leader-elect-renew-deadline",
		"leader-elect-retry-period", "clustercache-concurrency", "clustercache-client-qps", "clustercache-client-burst",
		"kube-api-qps", "kube-api-burst", "webhook-port", "webhook-cert-dir", "webhook-cert-name", "webhook-key-name",
		"health-addr", "profiler-address", "contention-profiling", "diagnostics-address", "insecure-diagnostics",
		"tls-min-version", "tls-cipher-suites", "feature-gates",
	} {
		g.Expect(flags.Lookup(name)).NotTo(BeNil(), name)
	}
}

func TestCachedSecretsHoldNoBootstrapData(t *testing.T) {
	g := NewWithT(t)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"value": []byte("x")}}
	}
	for name, kept := range map[string]bool{"quick-kubeconfig": true, "quick-ca": true, "quick-etcd": true,
		"quick-control-plane-x7k2p": false} {
		transformed, err := keepCertificatesOnly(secret(name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(transformed.(*corev1.Secret).Data) > 0).To(Equal(kept), name)
	}
	g.Expect(ofACluster().String()).To(Equal("cluster.x-k8s.io/cluster-name"))
}

// What hosts print is bounded by the flag, and for each namespace.
func TestConnectionsBoundWhatHostsPrint(t *testing.T) {
	g := NewWithT(t)
	room := parse(t, "--host-output-mib=8").connections(egress.New(nil, nil)).Output
	g.Expect(room).NotTo(BeNil())
	pieces := 0
	for pieces < 1000 && room.Take("tenant") == nil {
		pieces++
	}
	g.Expect(pieces).To(Equal(102), "four fifths of 8 MiB")
	g.Expect(room.Take("other")).To(Succeed())
}

// Without a flag, hosts are connected to where users may have the manager connect, and not on its own node.
func TestConnectionsKeepToTheRules(t *testing.T) {
	g := NewWithT(t)
	control := func(flags ...string) func(string) error {
		o := parse(t, flags...)
		rules, err := o.rules(nil)
		g.Expect(err).NotTo(HaveOccurred())
		connections := o.connections(rules)
		g.Expect(connections.Control).NotTo(BeNil())
		return func(address string) error { return connections.Control(t.Context(), "tcp", address, nil) }
	}
	var refused *egress.RefusedError
	g.Expect(errors.As(control()("127.0.0.1:22"), &refused)).To(BeTrue())
	g.Expect(errors.As(control()("169.254.169.254:80"), &refused)).To(BeTrue())
	g.Expect(control()("192.0.2.1:22")).To(Succeed())
	g.Expect(control("--allowed-networks=127.0.0.0/8")("127.0.0.1:22")).To(Succeed())
	g.Expect(errors.As(control("--allowed-networks=10.0.0.0/8")("192.0.2.1:22"), &refused)).To(BeTrue())
}
