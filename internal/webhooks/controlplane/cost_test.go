// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// BenchmarkVersionAdmission is the admission of a control plane's next version beside 5,000 workers and 50 other
// Clusters, from the request to the response, and the decision alone, from the Machines on. What an API server takes to
// answer for single objects is not in it.
func BenchmarkVersionAdmission(b *testing.B) {
	for _, c := range []struct{ policy, name, at, to, kubelet string }{
		{"Kubernetes", "legal", "v1.36.3", "v1.37.0", "v1.36.1"},
		{"Kubernetes", "refused", "v1.36.3", "v1.37.0", "v1.33.1"},
		{"Distribution", "legal", "v1.29.4", "v1.30.0", "v1.28.6"},
		{"Distribution", "refused", "v1.29.4", "v1.30.0", "v1.27.8"},
	} {
		estate := estatetest.Estate{Tool: c.to, Clusters: map[string]string{"c1": c.at}}
		for i := range 50 {
			estate.Clusters[fmt.Sprintf("other-%d", i)] = c.at
		}
		cached := cachetest.New(b, append(estate.Objects("prod"), estatetest.Workers("prod", "c1", c.kubelet, 5000)...)...)
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1",
			Annotations: map[string]string{skew.PolicyAnnotation: c.policy}}}
		cached.Put(cluster)
		b.Run(c.policy+"/"+c.name+"/admission", func(b *testing.B) {
			webhook := admission.WithValidator(cached.Scheme(), &ControlPlaneWebhook{Reader: cached})
			of := func(state ...change) runtime.RawExtension {
				object := controlPlane(append(state, func(o *controlplanev1.QuoinControlPlane) {
					o.Namespace, o.Name, o.Labels = "prod", "cp", map[string]string{clusterv1.ClusterNameLabel: "c1"}
				})...)
				raw, err := json.Marshal(object)
				if err != nil {
					b.Fatal(err)
				}
				return runtime.RawExtension{Raw: raw}
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update,
				OldObject: of(version(c.at), running(c.at)), Object: of(version(c.to))}}
			cachetest.Fastest(b, func() {
				if response := webhook.Handle(b.Context(), request); response.Allowed != (c.name == "legal") {
					b.Fatal(response.Result)
				}
			})
		})
		b.Run(c.policy+"/"+c.name+"/decision", func(b *testing.B) {
			policies, err := skew.PoliciesOf(cluster)
			if err != nil {
				b.Fatal(err)
			}
			machines, err := observed.Machines(b.Context(), cached, client.ObjectKeyFromObject(cluster))
			if err != nil {
				b.Fatal(err)
			}
			read, err := observed.WorldOf(b.Context(), cached, cluster, policies, machines)
			if err != nil {
				b.Fatal(err)
			}
			cachetest.Fastest(b, func() {
				world := skew.WorldOf(machines)
				world.Estate = read.Estate
				state := func() plan.State { return plan.StateOf(machines) }
				if refusal, _ := reach(policies, world, c.to, state); (refusal == "") != (c.name == "legal") {
					b.Fatal(refusal)
				}
			})
		})
	}
}

// BenchmarkMachinesOfAdmission lists 5,000 Machines from the cache, and as they come from an API server, without the
// time in which that makes its answer.
func BenchmarkMachinesOfAdmission(b *testing.B) {
	cached := cachetest.New(b, estatetest.Workers("prod", "c1", "v1.36.3", 5000)...)
	key, all := client.ObjectKey{Namespace: "prod", Name: "c1"}, &clusterv1.MachineList{}
	if err := cached.List(b.Context(), all); err != nil {
		b.Fatal(err)
	}
	all.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
	answer, err := json.Marshal(all)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	b.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(clusterv1.GroupVersion.WithKind("Machine"), meta.RESTScopeNamespace)
	live, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: cached.Scheme(), Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	for name, reader := range map[string]client.Reader{"cached": cached, "live": live} {
		b.Run(name, func(b *testing.B) {
			cachetest.Fastest(b, func() {
				if found, err := observed.Machines(b.Context(), reader, key); err != nil || len(found) != 5000 {
					b.Fatal(len(found), err)
				}
			})
		})
	}
}
