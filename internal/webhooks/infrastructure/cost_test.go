// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/estatetest"
)

// ofHosts is a webhook beside that many hosts.
func ofHosts(tb testing.TB, hosts int) (*HostWebhook, *cachetest.Client) {
	tb.Helper()
	c := cachetest.New(tb)
	for i := range hosts {
		c.Put(host(fmt.Sprintf("h%d", i), at(fmt.Sprintf("198.51.%d.%d", i/250, i%250))))
	}
	return &HostWebhook{Client: c}, c
}

func TestAdmissionOfAHostListsNoFleet(t *testing.T) {
	g := NewWithT(t)
	webhook, c := ofHosts(t, 1000)
	_, err := webhook.ValidateCreate(t.Context(), host("new"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Listed).To(BeZero())
	_, err = webhook.ValidateCreate(t.Context(), host("new", at("198.51.1.1")))
	g.Expect(err).To(MatchError(ContainSubstring("hosts/h251 already describes")))
	g.Expect(c.Listed).To(Equal(1))
}

// BenchmarkHostAdmission is the admission of one new host beside 50 and 5,000.
func BenchmarkHostAdmission(b *testing.B) {
	for _, hosts := range []int{50, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			webhook, c := ofHosts(b, hosts)
			added := host("new")
			for b.Loop() {
				if _, err := webhook.ValidateCreate(b.Context(), added); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.Listed)/float64(b.N), "listed/op")
		})
	}
}

// BenchmarkVersionAdmission is the admission of a next version of a pool and of a managed topology of 5,000 workers,
// from the request to the response, and the decision alone. What an API server takes to answer for single objects is
// not in it.
func BenchmarkVersionAdmission(b *testing.B) {
	cached := cachetest.New(b, estatetest.Estate{Clusters: map[string]string{"c1": "v1.35.4"}}.Objects("prod")...)
	for _, worker := range estatetest.Workers("prod", "c1", "v1.35.4", 5000) {
		cached.Put(worker)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "c1"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group,
		Kind: "QuoinControlPlane", Name: "cp"}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quoin"}, Version: "v1.36.3"}
	cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "cp"}}
	controlPlane.Spec.Version = "v1.35.4"
	class := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "quoin"}}
	class.Spec.KubernetesVersions = []string{"v1.35.4", "v1.36.3"}
	for _, object := range []client.Object{cluster, controlPlane, class} {
		cached.Put(object)
	}
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "md-1"}}
	pool.Spec.ClusterName, pool.Spec.Template.Spec.Version = "c1", "v1.36.3"

	webhook := &VersionWebhook{Reader: cached, decoder: admission.NewDecoder(cached.Scheme())}
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		b.Fatal(err)
	}
	for kind, c := range map[string]struct {
		handle admission.HandlerFunc
		object client.Object
	}{"MachineDeployment": {webhook.handleDeployment, pool}, "Cluster": {webhook.handleTopology, cluster}} {
		b.Run(kind+"/admission", func(b *testing.B) {
			raw, err := json.Marshal(c.object)
			if err != nil {
				b.Fatal(err)
			}
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Update,
				Namespace: "prod", Object: runtime.RawExtension{Raw: raw}}}
			cachetest.Fastest(b, func() {
				if response := c.handle(b.Context(), request); !response.Allowed {
					b.Fatal(response.Result)
				}
			})
		})
	}
	b.Run("MachineDeployment/decision", func(b *testing.B) {
		world := skew.World{APIServers: []string{"v1.35.4"}}
		judged := skew.Pool{Object: "MachineDeployment md-1", Version: "v1.36.3", ControlPlane: "v1.35.4"}
		cachetest.Fastest(b, func() {
			if refused, waits := judged.Judge(policies, world); len(refused) > 0 || len(waits) == 0 {
				b.Fatal(refused)
			}
		})
	})
	b.Run("Cluster/decision", func(b *testing.B) {
		edit, err := webhook.observeTopology(b.Context(), cluster, policies)
		if err != nil {
			b.Fatal(err)
		}
		cachetest.Fastest(b, func() {
			edit.world = skew.WorldOf(edit.machines)
			if refusal, _ := edit.judge(); refusal != "" {
				b.Fatal(refusal)
			}
		})
	})
}
