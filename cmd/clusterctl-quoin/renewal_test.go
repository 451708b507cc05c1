// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// clerk stands before an API server, and writes down what is written there.
type clerk struct {
	mu     sync.Mutex
	writes []string
	// made is called when a ClusterUpgrade was made.
	made func()
}

// serve returns a server that passes everything on.
func (c *clerk) serve(g *WithT, config *rest.Config) *httptest.Server {
	at, err := url.Parse(config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	pass := httputil.NewSingleHostReverseProxy(at)
	pass.Transport, err = rest.TransportFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writes := r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == ""
		what := r.Method + " " + path.Base(r.URL.Path)
		pass.ServeHTTP(w, r)
		if !writes {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes = append(c.writes, what)
		if what == "POST clusterupgrades" {
			c.made()
		}
	}))
}

// A real clusterctl and a real API server: the providers are those of the newer release before there is a ClusterUpgrade, where
// that is asked for. Nothing of theirs is written where it is not, and nothing at all by a dry run, also where clusterctl itself
// has never been.
//
// Proves: S0-61, S0-62
func TestClusterctlRenewsProvidersBeforeAnUpgradeIsMade(t *testing.T) {
	if os.Getenv(rig.AssetsVariable) == "" {
		t.Skipf("%s is not set: `make test-unit` sets it", rig.AssetsVariable)
	}
	log.SetLogger(logr.Discard()) // as main does
	g, ctx := NewWithT(t), t.Context()
	plane, err := rig.StartPlane(ctx, rig.Options{Name: "renewal"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &clerk{}
	server := c.serve(g, plane.Config)
	defer server.Close()
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "clusterctl.yaml")
	g.Expect(os.WriteFile(kubeconfig, kubeconfigOf(g, server), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(config, releases(g, dir), 0o600)).To(Succeed())
	upgrade := func(flags ...string) (string, []string, error) {
		var out bytes.Buffer
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		c.writes, c.made = nil, stop
		root := newRoot(&out)
		root.SetIn(strings.NewReader(""))
		root.SetArgs(append([]string{"upgrade", "prod", "--version", "v1.36.3", "--workspace", dir, "--kubeconfig", kubeconfig,
			"--namespace", "default", "--clusterctl-config", config}, flags...))
		err := root.ExecuteContext(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		return out.String(), c.writes, err
	}
	installed := func() map[string]string {
		list, found := &clusterctlv1.ProviderList{}, map[string]string{}
		inventory, err := cluster.New(cluster.Kubeconfig{Path: plane.Kubeconfig}, nil).Proxy().NewClient(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(inventory.List(ctx, list)).To(Succeed())
		for _, p := range list.Items {
			found[p.Name] = p.Version
		}
		return found
	}

	// Another tool has installed the providers.
	for _, flags := range [][]string{{"--upgrade-providers", "--dry-run"}, {"--upgrade-providers"}} {
		_, writes, err := upgrade(flags...)
		g.Expect(err).To(And(MatchError(execute.ErrRefused), MatchError(ContainSubstring("no providers that clusterctl installed"))))
		g.Expect(writes).To(BeEmpty())
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(client.IgnoreNotFound(plane.Client.Get(ctx, client.ObjectKey{Name: "providers.clusterctl.cluster.x-k8s.io"}, crd))).To(Succeed())
	g.Expect(crd.UID).To(BeEmpty())

	inventory := cluster.New(cluster.Kubeconfig{Path: plane.Kubeconfig}, nil).ProviderInventory()
	g.Expect(inventory.EnsureCustomResourceDefinitions(ctx)).To(Succeed())
	for name, kind := range map[string]clusterctlv1.ProviderType{
		"cluster-api": clusterctlv1.CoreProviderType, "quoin": clusterctlv1.InfrastructureProviderType,
	} {
		g.Expect(inventory.Create(ctx, clusterctlv1.Provider{
			TypeMeta:     metav1.TypeMeta{APIVersion: clusterctlv1.GroupVersion.String(), Kind: "Provider"},
			ObjectMeta:   metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: clusterctlv1.ManifestLabel(name, kind)},
			ProviderName: name, Type: string(kind), Version: "v0.1.0",
		})).To(Succeed())
	}
	older := map[string]string{"cluster-api": "v0.1.0", "infrastructure-quoin": "v0.1.0"}

	out, writes, err := upgrade("--upgrade-providers", "--dry-run")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(And(ContainSubstring("infrastructure-quoin: v0.1.0 -> v0.1.1"), ContainSubstring("would be made")))
	g.Expect(writes).To(BeEmpty())
	g.Expect(installed()).To(Equal(older))

	_, writes, err = upgrade()
	g.Expect(err).To(MatchError(context.Canceled), "nobody carries it out here")
	g.Expect(writes).To(Equal([]string{"POST clusterupgrades"}))
	g.Expect(installed()).To(Equal(older))
	g.Expect(plane.Client.DeleteAllOf(ctx, &quoinv1.ClusterUpgrade{}, client.InNamespace("default"))).To(Succeed())

	if os.Getenv("QUOIN_SIM_LONG") == "" {
		return // clusterctl lists every type there is, which takes it half a minute
	}
	_, writes, err = upgrade("--upgrade-providers")
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(installed()).To(Equal(map[string]string{"cluster-api": "v0.1.0", "infrastructure-quoin": "v0.1.1"}))
	g.Expect(writes).To(ContainElement(HaveSuffix(" infrastructure-quoin")), "its entry in clusterctl's inventory")
	g.Expect(writes[len(writes)-1]).To(Equal("POST clusterupgrades"), "%v", writes)
	g.Expect(writes[:len(writes)-1]).NotTo(ContainElement("POST clusterupgrades"))
}

// releases are one of a core provider and two of ours that have a namespace alone, and a configuration of clusterctl that finds them.
func releases(g *WithT, dir string) []byte {
	config := "CLUSTERCTL_DISABLE_VERSIONCHECK: \"true\"\nproviders:\n"
	for _, p := range []struct {
		label, name, kind, file string
		versions                []string
	}{
		{"cluster-api", "cluster-api", "CoreProvider", "core-components.yaml", []string{"v0.1.0"}},
		{"infrastructure-quoin", "quoin", "InfrastructureProvider", "infrastructure-components.yaml", []string{"v0.1.0", "v0.1.1"}},
	} {
		for _, version := range p.versions {
			folder := filepath.Join(dir, p.label, version)
			g.Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, p.file), fmt.Appendf(nil,
				"apiVersion: v1\nkind: Namespace\nmetadata: {name: %s-system}\n", p.label), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(filepath.Join(folder, "metadata.yaml"), []byte("apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\n"+
				"kind: Metadata\nreleaseSeries: [{major: 0, minor: 1, contract: v1beta2}]\n"), 0o600)).To(Succeed())
		}
		config += fmt.Sprintf("- {name: %s, type: %s, url: %s}\n", p.name, p.kind,
			filepath.Join(dir, p.label, p.versions[0], p.file))
	}
	return []byte(config)
}
