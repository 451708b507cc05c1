// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
)

var recordFormer = flag.Bool("record-former", false,
	"store test/former/<commit>-stored.yaml with the CRDs of that commit, and write them as they are read back")

// noMoreLegal are objects that a new release would not make any more, by commit, kind and name. They stay, are updated
// and deleted; only a move, which makes them anew, is refused.
var noMoreLegal = map[string]string{
	// The shell on the host took the question mark for a pattern, so that no host could ever be provisioned by it.
	"cd829a9 QuoinMachine query": "neither spaces nor a query", "cd829a9 QuoinMachineTemplate query": "neither spaces nor a query",
	// Only ClusterUpgrades write it, and their versions always had this form.
	"0a75a90 QuoinCluster by-hand": "spec.version",
}

// Proves: S0-14
//
// TestWhatFormerReleasesStored has a later release take over an API server: objects of former commits lie in etcd when
// its CRDs and webhooks come. Whoever makes a field required, or a rule tighter, is refused by one of them here.
func TestWhatFormerReleasesStored(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: see hack/bundle/envtest-assets.sh")
	}
	g := NewWithT(t)
	files, err := filepath.Glob(root + "/test/former/*-stored.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	stored := map[string][]unstructured.Unstructured{}
	for _, file := range files {
		commit, _, _ := strings.Cut(filepath.Base(file), "-")
		if *recordFormer {
			record(t, commit, file)
		}
		content, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		stored[commit] = parsed(t, content)
	}

	environment := environmentOf(t, append(rendered(t, "infrastructure-quoin"), rendered(t, "control-plane-quoin")...))
	today, webhooks := environment.CRDs, environment.WebhookInstallOptions
	environment.CRDs, environment.WebhookInstallOptions = nil, envtest.WebhookInstallOptions{}
	for _, crd := range today {
		environment.CRDs = append(environment.CRDs, takingEverything(crd))
	}
	config, err := environment.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(environment.Stop()).To(Succeed()) })
	c, err := client.New(config, client.Options{Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	for commit, objects := range stored {
		g.Expect(c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "former-" + commit}})).To(Succeed())
		for i := range objects {
			objects[i].SetNamespace("former-" + commit)
			g.Expect(c.Create(t.Context(), objects[i].DeepCopy())).To(Succeed())
		}
	}

	install(t, config, c, today)
	each := func(name string, check func(t *testing.T, former *unstructured.Unstructured)) {
		t.Run(name, func(t *testing.T) {
			for commit, objects := range stored {
				for i := range objects {
					if strings.HasPrefix(objects[i].GetAPIVersion(), "cluster.x-k8s.io/") {
						continue
					}
					t.Run(fmt.Sprintf("%s %s %s", commit, objects[i].GetKind(), objects[i].GetName()), func(t *testing.T) {
						check(t, &objects[i])
					})
				}
			}
		})
	}
	each("nothing is lost", func(t *testing.T, former *unstructured.Unstructured) {
		g := NewWithT(t)
		g.Expect(lost("", former.Object, get(t, c, former).Object)).To(BeEmpty(), "pruned by the CRD")
		typed := typedOf(t, former)
		again, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lost("", former.Object, again)).To(BeEmpty(), "unknown to the Go type")
	})

	g.Expect(webhooks.Install(config)).To(Succeed())
	environment.WebhookInstallOptions = webhooks
	refusals := &refusals{}
	config = rest.CopyConfig(config)
	config.Wrap(refusals.watch)
	before := reconciles(t)
	run(t, environment, config, manager.Harness{Beside: true}) // TestManager has one, too

	each("an update is admitted", func(t *testing.T, former *unstructured.Unstructured) {
		for name, write := range map[string]func(client.Object) error{
			"that changes nothing": func(o client.Object) error { return c.Update(t.Context(), o) },
			"that adds a label": func(o client.Object) error {
				o.SetLabels(map[string]string{"touched": "yes"})
				return c.Update(t.Context(), o)
			},
			"of the status": func(o client.Object) error { return client.IgnoreNotFound(c.Status().Update(t.Context(), o)) },
		} {
			NewWithT(t).Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				object := typedOf(t, former)
				if err := c.Get(t.Context(), client.ObjectKeyFromObject(former), object); err != nil {
					return err
				}
				return write(object)
			})).To(Succeed(), name)
		}
	})
	t.Run("they are reconciled", func(t *testing.T) {
		g := NewWithT(t)
		for _, controller := range []string{"quoincluster", "quoinhost", "quoinmachine", "quoincontrolplane", "rolloutpolicy",
			"clusterupgrade", "preflightcheck"} {
			g.Eventually(func() float64 { return reconciles(t)[controller] - before[controller] }).
				WithTimeout(30*time.Second).Should(BeNumerically(">", 0), controller)
		}
		g.Consistently(refusals.list).WithTimeout(2 * time.Second).Should(BeEmpty())
		g.Expect(reconciles(t)["panics"]).To(Equal(before["panics"]))
	})
	each("their finalizers go, and they can be moved", func(t *testing.T, former *unstructured.Unstructured) {
		g := NewWithT(t)
		g.Expect(c.Delete(t.Context(), get(t, c, former))).To(Succeed())
		g.Eventually(func() error {
			object := typedOf(t, former)
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(former), object); err != nil {
				return err
			}
			object.SetFinalizers(nil)
			return c.Update(t.Context(), object)
		}).WithTimeout(10 * time.Second).Should(Satisfy(apierrors.IsNotFound))
		// A move begins with the Cluster, which is paused until all has arrived.
		clusters := &clusterv1.ClusterList{}
		g.Expect(c.List(t.Context(), clusters, client.InNamespace(former.GetNamespace()))).To(Succeed())
		for i := range clusters.Items {
			g.Expect(c.Patch(t.Context(), &clusters.Items[i], client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"paused":true}}`)))).To(Succeed())
		}
		moved := former.DeepCopy()
		delete(moved.Object, "status")
		commit := strings.TrimPrefix(former.GetNamespace(), "former-")
		refusal := noMoreLegal[fmt.Sprintf("%s %s %s", commit, former.GetKind(), former.GetName())]
		if refusal == "" { // a webhook's cache may show for a while what is gone
			g.Eventually(func() error { return c.Create(t.Context(), moved.DeepCopy(), client.DryRunAll) }).
				WithTimeout(10 * time.Second).Should(Succeed())
			return
		}
		g.Expect(c.Create(t.Context(), moved, client.DryRunAll)).To(MatchError(ContainSubstring(refusal)))
	})
}

// takingEverything is a CRD that stores each field of an object as it is, status included.
func takingEverything(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object",
			XPreserveUnknownFields: ptr.To(true)}
		crd.Spec.Versions[i].Subresources = nil
		crd.Spec.Versions[i].AdditionalPrinterColumns = nil
		crd.Spec.Versions[i].SelectableFields = nil
	}
	return crd
}

// install replaces CRDs, and returns when the API server prunes by them.
func install(t *testing.T, config *rest.Config, c client.Client, crds []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	g := NewWithT(t)
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: crds, Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	for _, crd := range crds {
		g.Eventually(func() bool {
			probe := &unstructured.Unstructured{Object: map[string]any{"noSuchField": true}}
			probe.SetAPIVersion(crd.Spec.Group + "/" + crd.Spec.Versions[0].Name)
			probe.SetKind(crd.Spec.Names.Kind)
			probe.SetName("probe")
			probe.SetNamespace("default")
			err := c.Create(t.Context(), probe, client.DryRunAll)
			_, kept := probe.Object["noSuchField"]
			return apierrors.IsInvalid(err) || err == nil && !kept
		}).WithTimeout(20*time.Second).Should(BeTrue(), crd.Name)
	}
}

func get(t *testing.T, c client.Client, former *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(former.GroupVersionKind())
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(former), object)).To(Succeed())
	return object
}

func typedOf(t *testing.T, former *unstructured.Unstructured) client.Object {
	t.Helper()
	made, err := manager.Scheme().New(former.GroupVersionKind())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(former.DeepCopy().Object, made)).To(Succeed())
	return made.(client.Object)
}

// lost are the paths of what was there before and is not, or is otherwise, after. An object without fields says nothing.
func lost(path string, before, after any) []string {
	var paths []string
	switch before := before.(type) {
	case map[string]any:
		after, _ := after.(map[string]any)
		for name, value := range before {
			paths = append(paths, lost(path+"."+name, value, after[name])...)
		}
	case []any:
		after, _ := after.([]any)
		if len(before) != len(after) {
			return []string{path}
		}
		for i := range before {
			paths = append(paths, lost(fmt.Sprintf("%s[%d]", path, i), before[i], after[i])...)
		}
	default:
		if fmt.Sprint(before) != fmt.Sprint(after) {
			return []string{path}
		}
	}
	slices.Sort(paths)
	return paths
}

// reconciles counts what each controller of this process reconciled, and under "panics" those that panicked.
func reconciles(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	counts := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				switch {
				case label.GetName() != "controller":
				case family.GetName() == "controller_runtime_reconcile_total":
					counts[label.GetValue()] += metric.GetCounter().GetValue()
				case family.GetName() == "controller_runtime_reconcile_panics_total":
					counts["panics"] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

// refusals are what the API server refused a manager: writes that break a rule of a CRD or of a webhook.
type refusals struct {
	sync.Mutex
	said []string
}

func (r *refusals) watch(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && (response.StatusCode == http.StatusUnprocessableEntity || response.StatusCode == http.StatusForbidden) {
			r.Lock()
			defer r.Unlock()
			r.said = append(r.said, fmt.Sprint(request.Method, " ", request.URL.Path, ": ", response.Status))
		}
		return response, err
	})
}

func (r *refusals) list() []string {
	r.Lock()
	defer r.Unlock()
	return slices.Clone(r.said)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// record stores the objects of a file on an API server with the CRDs of their commit, which prunes, defaults and refuses
// as it did then, and writes down what it has.
func record(t *testing.T, commit, file string) {
	t.Helper()
	g := NewWithT(t)
	git := func(arguments ...string) []byte {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, arguments...)...).Output()
		g.Expect(err).NotTo(HaveOccurred())
		return out
	}
	var crds []unstructured.Unstructured
	for path := range strings.Lines(string(git("ls-tree", "-r", "--name-only", commit, "config/crd"))) {
		if path = strings.TrimSpace(path); strings.Contains(path, "/bases/") {
			crds = append(crds, parsed(t, git("show", commit+":"+path))...)
		}
	}
	environment := environmentOf(t, crds)
	config, err := environment.Start()
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(environment.Stop()).To(Succeed()) }()
	c, err := client.New(config, client.Options{Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())

	content, err := os.ReadFile(file)
	g.Expect(err).NotTo(HaveOccurred())
	head, _, _ := strings.Cut(string(content), "apiVersion:")
	out := bytes.NewBufferString(head)
	for i, object := range parsed(t, content) {
		object.SetNamespace("default")
		made := object.DeepCopy()
		g.Expect(c.Create(t.Context(), made)).To(Succeed())
		if status, has := object.Object["status"]; has {
			made.Object["status"] = status
			g.Expect(c.Status().Update(t.Context(), made)).To(Succeed())
		}
		for _, field := range []string{"creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "uid"} {
			unstructured.RemoveNestedField(made.Object, "metadata", field)
		}
		encoded, err := yaml.Marshal(made.Object)
		g.Expect(err).NotTo(HaveOccurred())
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(encoded)
	}
	g.Expect(os.WriteFile(file, out.Bytes(), 0o600)).To(Succeed())
}
