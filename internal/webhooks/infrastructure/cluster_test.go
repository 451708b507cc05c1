// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldowner"
)

type clusterChange func(*infrav1.QuoinCluster)

func cluster(name string, changes ...clusterChange) *infrav1.QuoinCluster {
	c := &infrav1.QuoinCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name}}
	for _, change := range changes {
		change(c)
	}
	return c
}

func endpoint(host string, port int32) clusterChange {
	return func(c *infrav1.QuoinCluster) {
		c.Spec.ControlPlaneEndpoint = infrav1.APIEndpoint{Host: host, Port: port}
	}
}

func keepalived(id int32) clusterChange {
	return func(c *infrav1.QuoinCluster) {
		c.Spec.LoadBalancer = infrav1.LoadBalancer{Type: infrav1.LoadBalancerKeepalived,
			Keepalived: &infrav1.Keepalived{VirtualRouterID: id}}
	}
}

func deletingCluster(c *infrav1.QuoinCluster) {
	now := metav1.Now()
	c.DeletionTimestamp = &now
	c.Finalizers = []string{infrav1.ClusterFinalizer}
}

func TestClusterPortDefault(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint clusterChange
		port     int32
	}{
		"no endpoint":  {endpoint("", 0), 0},
		"no port":      {endpoint("192.0.2.10", 0), 6443},
		"another port": {endpoint("192.0.2.10", 8443), 8443},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			defaulted := cluster("a", c.endpoint)
			g.Expect((&ClusterWebhook{}).Default(t.Context(), defaulted)).To(Succeed())
			g.Expect(defaulted.Spec.ControlPlaneEndpoint.Port).To(Equal(c.port))
		})
	}
}

func TestClusterEndpointForm(t *testing.T) {
	const refused = "spec.controlPlaneEndpoint.host"
	for name, c := range map[string]struct {
		cluster *infrav1.QuoinCluster
		refusal string
	}{
		"none yet":                     {cluster("a"), ""},
		"Keepalived, none yet":         {cluster("a", keepalived(51)), ""},
		"Keepalived, IPv4":             {cluster("a", keepalived(51), endpoint("192.0.2.10", 6443)), ""},
		"Keepalived, IPv6":             {cluster("a", keepalived(51), endpoint("2001:db8::10", 6443)), ""},
		"Keepalived, a name":           {cluster("a", keepalived(51), endpoint("api.example.com", 6443)), refused},
		"Keepalived, multicast":        {cluster("a", keepalived(51), endpoint("224.0.0.18", 6443)), refused},
		"Keepalived, loopback":         {cluster("a", keepalived(51), endpoint("127.0.0.1", 6443)), refused},
		"external, a name":             {cluster("a", endpoint("api.example.com", 6443)), ""},
		"external, IPv4":               {cluster("a", endpoint("192.0.2.10", 6443)), ""},
		"external, a URL":              {cluster("a", endpoint("https://api.example.com", 6443)), refused},
		"external, a name with a port": {cluster("a", endpoint("api.example.com:6443", 6443)), refused},
		"external, IPv4 out of range":  {cluster("a", endpoint("192.0.2.1000", 6443)), refused},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ClusterWebhook{Client: reader(t)}).ValidateCreate(t.Context(), c.cluster)
			expectRefusal(t, err, c.refusal)
			template := &infrav1.QuoinClusterTemplate{}
			template.Spec.Template.Spec = c.cluster.Spec
			_, err = clusterTemplates.ValidateCreate(t.Context(), template)
			if c.refusal != "" {
				c.refusal = "spec.template." + c.refusal
			}
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestClusterEndpointStays(t *testing.T) {
	const host, port = "spec.controlPlaneEndpoint.host", "spec.controlPlaneEndpoint.port"
	for name, c := range map[string]struct {
		before, after clusterChange
		refusal       string
	}{
		"set":                {endpoint("", 0), endpoint("192.0.2.10", 6443), ""},
		"kept":               {endpoint("192.0.2.10", 6443), endpoint("192.0.2.10", 6443), ""},
		"another host":       {endpoint("192.0.2.10", 6443), endpoint("192.0.2.11", 6443), host},
		"no host":            {endpoint("192.0.2.10", 6443), endpoint("", 6443), host},
		"another port":       {endpoint("192.0.2.10", 6443), endpoint("192.0.2.10", 8443), port},
		"a host to the port": {endpoint("", 8443), endpoint("192.0.2.10", 6443), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&ClusterWebhook{Client: reader(t)}).ValidateUpdate(t.Context(), cluster("a", c.before),
				cluster("a", c.after))
			expectRefusal(t, err, c.refusal)
		})
	}
}

func TestClusterEndpointBelongsToOneCluster(t *testing.T) {
	elsewhere := func(c *infrav1.QuoinCluster) { c.Namespace = "elsewhere" }
	vip, id := endpoint("192.0.2.10", 6443), keepalived(51)
	const taken, routerTaken = "has the endpoint", "has the virtual router id 51"
	for name, c := range map[string]struct {
		there, new *infrav1.QuoinCluster
		refusal    string
	}{
		"another address and id": {cluster("a", vip, id), cluster("b", endpoint("192.0.2.11", 6443),
			keepalived(52)), ""},
		"the same address": {cluster("a", vip, id), cluster("b", vip, keepalived(52)),
			"QuoinCluster prod/a " + taken},
		"the same address elsewhere": {cluster("a", vip, id, elsewhere), cluster("b", vip, keepalived(52)),
			"QuoinCluster elsewhere/a " + taken},
		"the same address, another port": {cluster("a", vip, id), cluster("b", endpoint("192.0.2.10", 8443),
			keepalived(52)), taken},
		"the same IPv6 address": {cluster("a", endpoint("2001:db8::10", 6443), id),
			cluster("b", endpoint("2001:0DB8::0010", 6443), keepalived(52)), taken},
		"the same address, one external": {cluster("a", vip), cluster("b", vip, id), taken},
		"both external":                  {cluster("a", vip), cluster("b", vip), taken},
		"both external, another port":    {cluster("a", vip), cluster("b", endpoint("192.0.2.10", 8443)), ""},
		"both external, default port":    {cluster("a", vip), cluster("b", endpoint("192.0.2.10", 0)), taken},
		"the same id": {cluster("a", vip, id), cluster("b", endpoint("192.0.2.11", 6443), id),
			"QuoinCluster prod/a " + routerTaken},
		"the same id elsewhere": {cluster("a", vip, id, elsewhere), cluster("b", endpoint("192.0.2.11", 6443),
			id), "QuoinCluster elsewhere/a " + routerTaken},
		"the same id, no address yet": {cluster("a", vip, id), cluster("b", id), routerTaken},
		"of a cluster that is being deleted": {cluster("a", vip, id, deletingCluster), cluster("b", vip, keepalived(52)),
			"which is still being deleted"},
		"no address in either": {cluster("a"), cluster("b"), ""},
		"the cluster itself":   {cluster("a", vip, id), cluster("a", vip, id), ""},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &ClusterWebhook{Client: reader(t, c.there)}
			_, err := webhook.ValidateCreate(t.Context(), c.new)
			expectRefusal(t, err, c.refusal)
			_, err = webhook.ValidateUpdate(t.Context(), cluster(c.new.Name), c.new)
			expectRefusal(t, err, c.refusal)

			labeled := c.new.DeepCopy()
			labeled.Labels = map[string]string{"a": "b"}
			_, err = webhook.ValidateUpdate(t.Context(), c.new, labeled)
			expectRefusal(t, err, "")
		})
	}
}

func TestClusterBeingDeletedIsLetThrough(t *testing.T) {
	webhook := &ClusterWebhook{Client: reader(t)}
	before, after := cluster("a", endpoint("192.0.2.10", 6443)), cluster("a", endpoint("192.0.2.11", 6443))
	_, err := webhook.ValidateUpdate(t.Context(), before, after)
	expectRefusal(t, err, "spec.controlPlaneEndpoint.host")
	deletingCluster(after)
	_, err = webhook.ValidateUpdate(t.Context(), before, after)
	expectRefusal(t, err, "")
}

// The record of a version decides nothing, which who writes it by hand learns. A ClusterUpgrade does not warn itself.
//
// Proves: S0-2
func TestTheRecordOfAVersionIsWarnedOf(t *testing.T) {
	record := func(version string) clusterChange { return func(c *infrav1.QuoinCluster) { c.Spec.Version = version } }
	owned := func(c *infrav1.QuoinCluster) {
		c.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "a"}}
	}
	by := func(manager string) context.Context {
		return admission.NewContextWithRequest(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"PatchOptions","fieldManager":"` + manager + `"}`)}}})
	}
	const upgrade = "make a ClusterUpgrade to v1.36.3 instead"
	for name, c := range map[string]struct {
		by            string
		before, after clusterChange
		warning       string
	}{
		"by hand":             {"kubectl-edit", record("v1.35.4"), record("v1.36.3"), upgrade},
		"by nobody named":     {"", record("v1.35.4"), record("v1.36.3"), upgrade},
		"the first one":       {"kubectl-edit", record(""), record("v1.36.3"), upgrade},
		"taken away":          {"kubectl-edit", record("v1.35.4"), record(""), "upgrades nothing"},
		"by a ClusterUpgrade": {fieldowner.Upgrades, record("v1.35.4"), record("v1.36.3"), ""},
		"something else": {"kubectl-edit", record("v1.36.3"), func(c *infrav1.QuoinCluster) {
			record("v1.36.3")(c)
			endpoint("192.0.2.10", 6443)(c)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			webhook := &ClusterWebhook{Client: reader(t)}
			warnings, err := webhook.ValidateUpdate(by(c.by), cluster("a", c.before), cluster("a", c.after))
			g.Expect(err).NotTo(HaveOccurred())
			if c.warning == "" {
				g.Expect(warnings).To(BeEmpty())
				return
			}
			g.Expect(warnings).To(ConsistOf(And(HavePrefix("spec.version "), ContainSubstring(c.warning),
				ContainSubstring("spec.version of the control plane"), ContainSubstring("spec.topology.version"))))
		})
	}
	g, webhook := NewWithT(t), &ClusterWebhook{Client: reader(t)}
	g.Expect(webhook.ValidateCreate(t.Context(), cluster("a", record("v1.36.3")))).
		To(ConsistOf(ContainSubstring("upgrades nothing")))
	g.Expect(webhook.ValidateCreate(t.Context(), cluster("a"))).To(BeEmpty())
	g.Expect(webhook.ValidateCreate(t.Context(), cluster("a", record("v1.36.3"), owned))).
		To(BeEmpty(), "a move and a restore bring it along")
}
