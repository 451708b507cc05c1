// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
)

const root = "../.."

// The manager runs with the components as they are shipped: CRDs and webhook configurations out of kustomize, on a
// real API server. So this also proves that the API server takes the CRDs with their rules.
func TestManager(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: see hack/bundle/envtest-assets.sh")
	}
	g := NewWithT(t)
	components := append(rendered(t, "infrastructure-quoin"), rendered(t, "control-plane-quoin")...)
	c, config, mgr := start(t, components)
	machines := mgr.GetCache()
	t.Run("keeps what each event says", func(t *testing.T) { keepsEvents(t, c, mgr) })

	t.Run("has what every component of its own needs", func(t *testing.T) {
		g := NewWithT(t)
		for _, object := range components {
			switch object.GroupVersionKind().Group {
			case "cert-manager.io", admissionregistrationv1.GroupName, apiextensionsv1.GroupName:
			default:
				g.Expect(c.Create(t.Context(), object.DeepCopy())).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			}
		}
	})

	g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})).To(Succeed())
	t.Run("admits what the templates make", func(t *testing.T) {
		for _, files := range [][]string{
			{"cluster-template.yaml"},
			{"clusterclass-quoin.yaml", "cluster-template-topology.yaml"},
		} {
			for _, file := range files {
				for _, object := range generated(t, file) {
					NewWithT(t).Expect(c.Create(t.Context(), &object)).To(Succeed(), "%s: %s %s", file, object.GetKind(),
						object.GetName())
				}
			}
		}
	})
	t.Run("defaults", func(t *testing.T) {
		g := NewWithT(t)
		cluster, controlPlane := &infrav1.QuoinCluster{}, &controlplanev1.QuoinControlPlane{}
		cluster.Namespace, cluster.Name = "tenant", "defaulted"
		cluster.Spec.ControlPlaneEndpoint.Host = "192.0.2.99"
		g.Expect(c.Create(t.Context(), cluster)).To(Succeed())
		g.Expect(cluster.Spec.ControlPlaneEndpoint.Port).To(BeEquivalentTo(6443))

		g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "quick-control-plane"}, controlPlane)).
			To(Succeed())
		controlPlane.ObjectMeta = metav1.ObjectMeta{Namespace: "tenant", Name: "defaulted"}
		controlPlane.Spec.Replicas, controlPlane.Spec.Version = nil, "1.36.3"
		g.Expect(c.Create(t.Context(), controlPlane)).To(Succeed())
		g.Expect(controlPlane.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
		g.Expect(controlPlane.Spec.Version).To(Equal("v1.36.3"))
	})
	t.Run("refuses", func(t *testing.T) { refuses(t, c) })
	t.Run("refuses rollouts", func(t *testing.T) { refusesRollouts(t, c) })
	t.Run("refuses validations", func(t *testing.T) { refusesValidations(t, c) })
	t.Run("upgrades", func(t *testing.T) { upgrades(t, config) }) // before a test silences the webhooks
	t.Run("judges edits", func(t *testing.T) { judgesEdits(t, config, machines) })
	t.Run("judges versions", func(t *testing.T) { judgesVersions(t, config) })
	t.Run("looks ahead", func(t *testing.T) { looksAhead(t, c, config) })
	t.Run("judges deletions", func(t *testing.T) { judgesDeletions(t, c, config) })
}

func refuses(t *testing.T, c client.Client) {
	patch := func(object client.Object, name, patch string) error {
		object.SetNamespace("tenant")
		object.SetName(name)
		return c.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	scale := func(replicas string) error {
		object := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant",
			Name: "quick-control-plane"}}
		return c.SubResource("scale").Patch(t.Context(), object, client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"replicas":`+replicas+`}}`)))
	}
	create := func(object client.Object, name string) error {
		object.SetNamespace("tenant")
		object.SetName(name)
		return c.Create(t.Context(), object)
	}
	machine := func(location string, key string) *infrav1.QuoinMachine {
		m := &infrav1.QuoinMachine{}
		m.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: location}
		m.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: "x"}}
		return m
	}
	host := func(address string, nodes ...string) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{}
		h.Spec.Address, h.Spec.CredentialsRef.Name, h.Spec.NodeNetwork.Addresses = address, "key", nodes
		return h
	}
	cluster := func(host string, router int32) *infrav1.QuoinCluster {
		q := &infrav1.QuoinCluster{}
		q.Spec.ControlPlaneEndpoint.Host = host
		q.Spec.LoadBalancer = infrav1.LoadBalancer{Type: infrav1.LoadBalancerKeepalived,
			Keepalived: &infrav1.Keepalived{VirtualRouterID: router}}
		return q
	}
	NewWithT(t).Expect(create(host("192.0.2.7"), "host-1")).To(Succeed())
	// What runs decides which versions may follow.
	NewWithT(t).Expect(c.Status().Patch(t.Context(),
		&controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "quick-control-plane"}},
		client.RawPatch("application/merge-patch+json", []byte(
			`{"status":{"initialization":{"controlPlaneInitialized":true},"versions":[{"version":"v1.35.4","replicas":1}]}}`)))).
		To(Succeed())
	time.Sleep(time.Second) // The webhook reads hosts from a cache.

	for name, c := range map[string]struct {
		do      func() error
		refusal string
	}{
		"an even number of replicas": {func() error {
			return patch(&controlplanev1.QuoinControlPlane{}, "quick-control-plane", `{"spec":{"replicas":2}}`)
		}, "use an odd number"},
		"an even number through scale":        {func() error { return scale("2") }, "use an odd number"},
		"an odd number through scale is fine": {func() error { return scale("3") }, ""},
		"an illegal version": {func() error {
			return patch(&controlplanev1.QuoinControlPlane{}, "quick-control-plane", `{"spec":{"version":"next"}}`)
		}, "such as v1.36.3"},
		"a minor version beyond the one that follows what runs": {func() error {
			return patch(&controlplanev1.QuoinControlPlane{}, "quick-control-plane", `{"spec":{"version":"v1.38.0"}}`)
		}, "v1.36"},
		"the next minor version is fine": {func() error {
			return patch(&controlplanev1.QuoinControlPlane{}, "quick-control-plane", `{"spec":{"version":"v1.36.3"}}`)
		}, ""},
		"a template edited in place": {func() error {
			return patch(&infrav1.QuoinMachineTemplate{}, "quick-md-0",
				`{"spec":{"template":{"spec":{"artifacts":{"bundle":{"location":"/x/{{version}}"}}}}}}`)
		}, "make a new template"},
		"a template edited by the topology's dry run is fine": {func() error {
			template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "quick-md-0"}}
			return c.Patch(t.Context(), template, client.RawPatch("application/merge-patch+json",
				[]byte(
					`{"metadata":{"annotations":{"`+clusterv1.TopologyDryRunAnnotation+`":""}},"spec":{"template":{"spec":{"artifacts":{"bundle":{"location":"/x/{{version}}"}}}}}}`)),
				client.DryRunAll)
		}, ""},
		"a selector that is none": {func() error {
			return create(machine("/x/{{version}}", "not a key"), "m")
		}, "no host could ever match"},
		"a bundle location of one version": {func() error {
			return create(machine("/x", "key"), "m")
		}, "must contain {{version}}"},
		"a bundle location of a shell": {func() error {
			return create(machine("/x/$(id)/{{version}}", "key"), "m")
		}, "neither spaces nor a query"},
		"a relative bundle location": {func() error {
			return create(machine("x/{{version}}", "key"), "m")
		}, "absolute path"},
		"a machine is fine": {func() error { return create(machine("/x/{{version}}", "key"), "m") }, ""},
		"a second object for a host": {func() error {
			return create(host("192.0.2.7"), "host-2")
		}, "QuoinHost tenant/host-1 already describes"},
		"a host with an unusable address": {func() error {
			return create(host("192.0.2.700"), "host-3")
		}, "give an IP address"},
		"a host with a loopback node address": {func() error {
			return create(host("192.0.2.8", "127.0.0.1"), "host-4")
		}, "loopback"},
		"a host with two IPv4 node addresses": {func() error {
			return create(host("192.0.2.8", "192.0.2.8", "192.0.2.9"), "host-5")
		}, "different families"},
		"a virtual address of another cluster": {func() error {
			return create(cluster("192.0.2.10", 61), "c-2")
		}, "QuoinCluster tenant/quick has the endpoint"},
		"a virtual router id of another cluster": {func() error {
			return create(cluster("192.0.2.11", 51), "c-3")
		}, "QuoinCluster tenant/quick has the virtual router id 51"},
		"a name as virtual address": {func() error {
			return create(cluster("api.example.com", 62), "c-4")
		}, "virtual address"},
		"another cluster is fine": {func() error { return create(cluster("192.0.2.12", 63), "c-5") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if err := c.do(); c.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(c.refusal)))
			}
		})
	}
}

// start has a manager run, and returns with it.
func start(t *testing.T, components []unstructured.Unstructured) (client.Client, *rest.Config, ctrl.Manager) {
	t.Helper()
	g := NewWithT(t)
	environment := environmentOf(t, components)
	restConfig, err := environment.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(environment.Stop()).To(Succeed()) })
	mgr := run(t, environment, restConfig, manager.Harness{})
	c, err := client.New(restConfig, client.Options{Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c, restConfig, mgr
}

// environmentOf is an API server with CRDs and webhook configurations, which is yet to be started.
func environmentOf(t *testing.T, components []unstructured.Unstructured) *envtest.Environment {
	t.Helper()
	g := NewWithT(t)
	ctrl.SetLogger(klog.Background())
	environment := &envtest.Environment{
		Scheme:                   manager.Scheme(),
		ControlPlaneStartTimeout: 5 * time.Minute,
		CRDDirectoryPaths: []string{
			filepath.Join(clusterAPI(t), "core", "config", "crd", "bases"),
			filepath.Join(clusterAPI(t), "bootstrap", "kubeadm", "config", "crd", "bases"),
		},
		ErrorIfCRDPathMissing: true,
	}
	for i := range components {
		object := components[i].Object
		switch components[i].GetKind() {
		case "CustomResourceDefinition":
			crd := &apiextensionsv1.CustomResourceDefinition{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, crd)).To(Succeed())
			environment.CRDs = append(environment.CRDs, crd)
		case "MutatingWebhookConfiguration":
			webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, webhooks)).To(Succeed())
			environment.WebhookInstallOptions.MutatingWebhooks = append(environment.WebhookInstallOptions.MutatingWebhooks,
				webhooks)
		case "ValidatingWebhookConfiguration":
			webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object, webhooks)).To(Succeed())
			environment.WebhookInstallOptions.ValidatingWebhooks = append(environment.WebhookInstallOptions.ValidatingWebhooks,
				webhooks)
		}
	}
	return environment
}

// run runs a manager until the test ends, and returns when it serves its webhooks.
func run(
	t *testing.T, environment *envtest.Environment, restConfig *rest.Config, harness manager.Harness,
) ctrl.Manager {
	t.Helper()
	g := NewWithT(t)
	var options manager.Options
	flags := pflag.NewFlagSet("test", pflag.PanicOnError)
	options.AddFlags(flags)
	options.Harness = harness
	options.WebhookPort = environment.WebhookInstallOptions.LocalServingPort
	options.WebhookCertDir = environment.WebhookInstallOptions.LocalServingCertDir
	options.HealthAddress = "0"
	options.Serving.DiagnosticsAddress = "0"
	ctx, stop := context.WithCancel(t.Context())
	mgr, err := manager.New(ctx, restConfig, &options)
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		g.Expect(<-ended).To(Succeed())
	})
	g.Eventually(func() error {
		return mgr.GetWebhookServer().StartedChecker()(&http.Request{})
	}).WithTimeout(20 * time.Second).Should(Succeed())
	g.Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	return mgr
}

// rendered are the objects of an overlay of config/.
func rendered(t *testing.T, overlay string) []unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(root, "config", overlay))
	g.Expect(err).NotTo(HaveOccurred())
	content, err := resources.AsYaml()
	g.Expect(err).NotTo(HaveOccurred())
	return parsed(t, content)
}

// ${NAME} or ${NAME:=default}
var variable = regexp.MustCompile(`\$\{(\w+)(:=([^}]*))?\}`)

// generated are the objects that clusterctl makes of a template.
func generated(t *testing.T, template string) []unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(root, "templates", template))
	g.Expect(err).NotTo(HaveOccurred())
	name := "quick"
	if strings.Contains(template, "topology") {
		name = "classy"
	}
	values := map[string]string{"CLUSTER_NAME": name, "KUBERNETES_VERSION": "v1.35.4",
		"CONTROL_PLANE_ENDPOINT_HOST": "192.0.2.10"}
	content = variable.ReplaceAllFunc(content, func(reference []byte) []byte {
		parts := variable.FindSubmatch(reference)
		if value, ok := values[string(parts[1])]; ok {
			return []byte(value)
		}
		g.Expect(parts[2]).NotTo(BeEmpty(), "%s has no default", parts[1])
		return parts[3]
	})
	objects := parsed(t, content)
	for i := range objects {
		objects[i].SetNamespace("tenant")
	}
	return objects
}

func parsed(t *testing.T, content []byte) []unstructured.Unstructured {
	t.Helper()
	objects, err := utilyaml.ToUnstructured(content)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objects
}

// clusterAPI is the folder of Cluster API's module.
func clusterAPI(t *testing.T) string {
	t.Helper()
	folder, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").
		Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(folder))
}

// Cluster API's core manager does to an object that a Cluster or a Machine refers to what whoever wrote the reference
// may not do: it adopts it, and deletes it with its owner.
func TestClusterAPIIsGivenTheKindsThatItRefersToAndNoOther(t *testing.T) {
	g := NewWithT(t)
	given := map[string][]string{}
	for _, provider := range []string{"infrastructure-quoin", "control-plane-quoin"} {
		for _, object := range rendered(t, provider) {
			if object.GetKind() != "ClusterRole" || object.GetLabels()["cluster.x-k8s.io/aggregate-to-manager"] != "true" {
				continue
			}
			role := &rbacv1.ClusterRole{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)).To(Succeed())
			for _, rule := range role.Rules {
				g.Expect(rule.APIGroups).To(HaveLen(1))
				for _, resource := range rule.Resources {
					kind, _, _ := strings.Cut(resource, "/")
					g.Expect(rule.APIGroups[0]+"/"+kind).To(BeElementOf(
						infrav1.GroupVersion.Group+"/quoinclusters", infrav1.GroupVersion.Group+"/quoinclustertemplates",
						infrav1.GroupVersion.Group+"/quoinmachines", infrav1.GroupVersion.Group+"/quoinmachinetemplates",
						controlplanev1.GroupVersion.Group+"/quoincontrolplanes",
						controlplanev1.GroupVersion.Group+"/quoincontrolplanetemplates"), provider)
					given[kind] = rule.Verbs
				}
			}
		}
	}
	for _, kind := range []string{"quoinclusters", "quoinmachines", "quoinmachinetemplates", "quoincontrolplanes"} {
		g.Expect(given[kind]).To(ContainElements("get", "list", "watch", "create", "patch", "delete"), kind)
	}
}
