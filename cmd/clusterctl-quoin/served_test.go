// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// served plays an API server that has these objects.
type served struct {
	*httptest.Server
	objects map[string]map[string]any
	// writes that it was asked for, but for those that are dry.
	writes []string
	// refuses says why it takes nothing that is created.
	refuses string
}

// kindsServed are those of each version, and whether they have a namespace.
var kindsServed = map[schema.GroupVersion]map[string]bool{
	{Version: "v1"}: {"ConfigMap": true, "Secret": true, "Namespace": false},
	{Group: "cluster.x-k8s.io", Version: "v1beta2"}:             {"Cluster": true},
	{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3"}: {"Provider": true},
	{Group: "quoin.cluster.x-k8s.io", Version: "v1alpha1"}:      {"ClusterUpgrade": true},
}

// providersThere are what `clusterctl init` leaves.
var providersThere = []string{
	"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Provider\nmetadata: {name: cluster-api, namespace: capi-system}\n" +
		"type: CoreProvider\nproviderName: cluster-api\nversion: v1.14.2\n",
	"apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Provider\nmetadata: {name: quoin, namespace: quoin-system}\n" +
		"type: InfrastructureProvider\nproviderName: quoin\nversion: v0.1.0\n",
}

// journalOf a namespace, as a management cluster keeps it.
func journalOf(namespace string, phase pivot.Phase) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: quoin-pivot, namespace: %s}\n"+
		"data: {journal.json: '{\"id\":\"a\",\"phase\":\"%s\",\"namespace\":\"%[1]s\"}'}\n", namespace, phase)
}

func newServed(t *testing.T, objects ...string) *served {
	g, s := NewWithT(t), &served{objects: map[string]map[string]any{}}
	for _, o := range objects {
		all, err := utilyaml.ToUnstructured([]byte(o))
		g.Expect(err).NotTo(HaveOccurred())
		for i := range all {
			s.objects[pathOfObject(all[i])] = all[i].Object
		}
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

func plural(kind string) string { return strings.ToLower(kind) + "s" }

func pathOfObject(o unstructured.Unstructured) string {
	path := root(o.GroupVersionKind().GroupVersion())
	if o.GetNamespace() != "" {
		path += "/namespaces/" + o.GetNamespace()
	}
	return path + "/" + plural(o.GetKind()) + "/" + o.GetName()
}

// ServeHTTP implements http.Handler.
func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(value any) { _ = json.NewEncoder(w).Encode(value) }
	path := strings.TrimSuffix(r.URL.Path, "/")
	if r.Method != http.MethodGet {
		if s.refuses != "" {
			w.WriteHeader(http.StatusForbidden)
			answer(failure(metav1.StatusReasonForbidden, http.StatusForbidden, s.refuses))
			return
		}
		body := map[string]any{}
		content, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(content, &body)
		if r.URL.Query().Get("dryRun") == "" {
			s.writes = append(s.writes, r.Method+" "+path)
			s.objects[path] = body
		}
		answer(body)
		return
	}
	if o, there := s.objects[path]; there {
		answer(o)
		return
	}
	if value := s.discovered(path); value != nil {
		answer(value)
		return
	}
	for gv, kinds := range kindsServed {
		for kind := range kinds {
			at, under := "/"+plural(kind), strings.HasPrefix(path, root(gv))
			if list := []any{}; under && strings.HasSuffix(path, at) {
				for name, o := range s.objects {
					if strings.HasPrefix(name, strings.TrimSuffix(path, at)) && strings.Contains(name, at+"/") {
						list = append(list, o)
					}
				}
				answer(map[string]any{"apiVersion": gv.String(), "kind": kind + "List", "metadata": map[string]any{},
					"items": list})
				return
			}
		}
	}
	w.WriteHeader(http.StatusNotFound)
	answer(failure(metav1.StatusReasonNotFound, http.StatusNotFound, ""))
}

func failure(reason metav1.StatusReason, code int32, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: reason, Code: code, Message: message}
}

// discovered is what clients ask for before all else.
func (s *served) discovered(path string) any {
	groups := metav1.APIGroupList{}
	for gv, kinds := range kindsServed {
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		group := metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version},
			PreferredVersion: version}
		if gv.Group != "" {
			groups.Groups = append(groups.Groups, group)
		}
		switch path {
		case "/apis/" + gv.Group:
			return group
		case root(gv):
			list := metav1.APIResourceList{GroupVersion: gv.String()}
			for kind, namespaced := range kinds {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural(kind), Namespaced: namespaced,
					Kind:  kind,
					Verbs: []string{"get", "list"}})
			}
			return list
		}
	}
	switch path {
	case "/api":
		return metav1.APIVersions{Versions: []string{"v1"}}
	case "/apis":
		return groups
	}
	return nil
}

// trips is a pivot from one kubeconfig to another, which pathOf names.
type trips struct {
	from, to string
	back     bool
}

func trip(from, to string) *trips { return &trips{from: from, to: to} }
func back(from, to string) *trips { return &trips{from, to, true} }

// pathOf a kubeconfig: kind is that of the bootstrap cluster, self that of the cluster itself.
func pathOf(w workspace, name string) string {
	names := map[string]string{"kind": w.bootstrapKubeconfig(), "self": w.kubeconfig()}
	if path, known := names[name]; known {
		return path
	}
	return filepath.Join(w.dir, name)
}

func (p *trips) record(w workspace, phase pivot.Phase) *record {
	return &record{Source: cluster.Kubeconfig{Path: pathOf(w, p.from)}, Target: cluster.Kubeconfig{Path: pathOf(w, p.to)},
		Namespace: "site", Back: p.back, Journal: &pivot.Journal{ID: "a", Phase: phase, Namespace: "site"}}
}

// save it as the last one.
func (p *trips) save(g *WithT, w workspace, phase pivot.Phase) {
	r := p.record(w, phase)
	g.Expect((&local{w, *r}).Save(r.Journal)).To(Succeed())
}

// The last pivot says which management cluster is in charge, also where it was undone or made by hand.
func TestWhoIsInCharge(t *testing.T) {
	w := workspace{"quoin-workspace/prod"}
	phases := []pivot.Phase{pivot.Copying, pivot.Undoing, pivot.Releasing, pivot.Undone, pivot.Done}
	for name, row := range map[string]struct {
		last *trips
		// want is what each phase says: open to kind or from it; else who is in charge, and (r) what came back to kind.
		want string
	}{
		"birth":             {trip("kind", "self"), "open, open, open, kind, self"},
		"there":             {trip("self", "kind"), "open to kind, open to kind, open to kind, self, kind (r)"},
		"back":              {back("kind", "self"), "open, open, open, kind (r), self"},
		"back to the birth": {back("self", "kind"), "open to kind, open to kind, open to kind, self, kind (r)"},
		"elsewhere":         {trip("self", "other"), "open, open, open, self, other"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var said []string
			for _, phase := range phases {
				absolute, err := filepath.Abs(w.bootstrapKubeconfig())
				g.Expect(err).NotTo(HaveOccurred())
				c, word := chargeOf(row.last.record(w, phase), absolute), "open"
				switch {
				case c.Open && c.Bootstrap:
					word = "open to kind"
				case !c.Open:
					for _, side := range []string{"kind", "self", "other"} {
						if c.By.Path == pathOf(w, side) {
							word = side
						}
					}
					g.Expect(c.Bootstrap).To(Equal(word == "kind"))
					g.Expect(c.moved()).To(Equal(word != "kind"))
				}
				if c.Returned {
					word += " (r)"
				}
				g.Expect(c.Home.Path).NotTo(Equal(pathOf(w, "kind")))
				said = append(said, word)
			}
			g.Expect(strings.Join(said, ", ")).To(Equal(row.want))
		})
	}
	g := NewWithT(t)
	g.Expect(chargeOf(nil, "kind")).To(Equal(charge{}))
	g.Expect(chargeOf(&record{}, "kind")).To(Equal(charge{}))
}
