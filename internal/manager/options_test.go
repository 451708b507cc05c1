// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
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

// clientManager is as much of a manager as making controllers takes.
type clientManager struct {
	ctrl.Manager
	client client.Client
}

func (m clientManager) GetClient() client.Client { return m.client }

func (m clientManager) GetAPIReader() client.Reader { return m.client }

// So are BMCs, servers of bundles, object stores and those that are asked before and in a rollout: whatever of a
// controller may have the rules has them, also what a controller makes itself.
func TestEveryControllerKeepsToTheRules(t *testing.T) {
	g := NewWithT(t)
	o := parse(t)
	rules, err := o.rules(nil)
	g.Expect(err).NotTo(HaveOccurred())
	connector := hostaccess.New(nil, o.connections(rules))
	defer connector.Close()
	mgr := clientManager{client: fake.NewClientBuilder().WithScheme(Scheme()).Build()}
	var with []string
	all := append(infrastructure(mgr, o, connector, rules, nil), controlPlane(mgr, o, connector, rules, nil, nil)...)
	for _, c := range all {
		if hosts, is := c.reconciler.(*quoinhost.Reconciler); is {
			_, err := hosts.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "none"}})
			g.Expect(err).NotTo(HaveOccurred())
		}
		seen := map[any]bool{}
		var visit func(path string, v reflect.Value)
		visit = func(path string, v reflect.Value) {
			switch {
			case v.Type() == reflect.TypeFor[*egress.Rules]():
				g.Expect(v.UnsafePointer()).To(BeEquivalentTo(unsafe.Pointer(rules)), path)
				with = append(with, path)
			case v.Kind() == reflect.Interface && !v.IsNil():
				visit(path, v.Elem())
			case v.Kind() == reflect.Pointer && !v.IsNil() && !seen[v.UnsafePointer()]:
				seen[v.UnsafePointer()] = true
				visit(path, v.Elem())
			case v.Kind() == reflect.Struct && strings.Contains(v.Type().PkgPath(), "cluster-api-provider-quoin/"):
				for i := range v.NumField() {
					visit(path+"."+v.Type().Field(i).Name, v.Field(i))
				}
			}
		}
		visit(reflect.TypeOf(c.reconciler).Elem().String(), reflect.ValueOf(c.reconciler))
	}
	g.Expect(with).To(ContainElements("quoinhost.Reconciler.Provisioner.egress", "quoinhost.Reconciler.Power.Egress",
		"etcdbackup.Reconciler.Egress", "preflightcheck.Reconciler.Egress", "rolloutpolicy.Reconciler.Egress"))
}
