// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
)

// skewCase is a line of the data files of package skew, which say what the words mean.
type skewCase struct {
	Policy, Policies, Row, Names, Edit, Refuses, Warns string
	From, At, Pool, Tool, MC, Etcd, Scheduler          string
	Waits, Self                                        bool
	API                                                []int
	To                                                 any
	Kubelet, Beside, Installs, Kubeadm, Joins          int
	ControllerManager                                  int `json:"kube-controller-manager"`
	KubeScheduler                                      int `json:"kube-scheduler"`
	KubeProxy                                          int `json:"kube-proxy"`
	LocalKubelets                                      *bool
	UC, Gates                                          []string
}

// editWorld is a Cluster and what runs in it and around it. Equal worlds are made once.
type editWorld struct {
	Policies string
	// From is the version that the control plane is told, Servers are those of its nodes, Workers those of others.
	From             string
	Servers, Workers []string
	// Inside are the tags of images by component.
	Inside        map[string]string
	LocalKubelets *bool
	Tool          string
	Gates         []string
	// Managing is the version of another Cluster that manages all, Self says that this one does.
	Managing string
	Self     bool
	Managed  []string
}

// versionEdit is a new version of the control plane and of the topology, or of a pool's MachineDeployment and MachineSet.
type versionEdit struct {
	editWorld
	name, to string
	pool     bool
	// names are the rules of the refusal, none of what is accepted; says is a part of it. waits says that the next step of
	// the control plane makes it right, warns is a part of a warning.
	names       []string
	says, warns string
	waits       bool
}

func minorOf(minor int) string { return fmt.Sprintf("v1.%d.3", minor) }

// older releases of the distribution are numbered as if no minor had been left out: nothing makes the default policy
// looser, by which there are eleven minors between 1.16 and the 1.28 that followed it.
var renumbered = strings.NewReplacer("1.14.", "1.25.", "1.15.", "1.26.", "1.16.", "1.27.")

func readRenumbered(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "internal", "skew", "testdata", file))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return renumbered.Replace(string(content))
}

// versionEdits are the edits that the data files of package skew are about.
func versionEdits(t *testing.T) []versionEdit {
	t.Helper()
	var edits []versionEdit
	for _, file := range []string{"vectors", "steps", "targets", "distribution"} {
		var cases []skewCase
		NewWithT(t).Expect(yaml.Unmarshal([]byte(readRenumbered(t, file+".yaml")), &cases)).To(Succeed())
		for i, c := range cases {
			if file == "distribution" {
				c.Policies = "Distribution"
			}
			for _, edit := range c.edits() {
				edit.name = fmt.Sprintf("%s %d %s", file, i, c.Row)
				edits = append(edits, edit)
			}
		}
	}
	return edits
}

// edits of the line; none when it is about something else, and when it changes nothing. What is no version is not
// judged by its skew.
func (c skewCase) edits() []versionEdit {
	e := versionEdit{says: c.Refuses, warns: c.Warns, waits: c.Waits, names: strings.Fields(cmp.Or(c.Edit, c.Names))}
	e.editWorld = editWorld{Policies: cmp.Or(c.Policies, c.Policy), Servers: strings.Fields(cmp.Or(c.At, c.From)),
		Workers: strings.Fields(c.Pool), Inside: map[string]string{}, LocalKubelets: c.LocalKubelets, Gates: c.Gates,
		Managing: c.MC, Self: c.Self, Managed: c.UC}
	for _, minor := range c.API {
		e.Servers = append(e.Servers, minorOf(minor))
	}
	switch to := c.To.(type) {
	case string:
		e.to = to
	case float64:
		e.to = minorOf(int(to))
	}
	for component, minor := range map[string]int{"kube-controller-manager": c.ControllerManager,
		"kube-scheduler": c.KubeScheduler, "kube-proxy": c.KubeProxy} {
		if minor > 0 {
			e.Inside[component] = minorOf(minor)
		}
	}
	if c.Etcd != "" {
		e.Inside["etcd"] = c.Etcd
	}
	if c.Scheduler != "" {
		e.Inside["kube-scheduler"] = c.Scheduler
	}
	for _, minor := range []int{c.Kubelet, c.Beside} {
		if minor > 0 {
			e.Workers = append(e.Workers, minorOf(minor))
		}
	}
	if e.Policies == "Distribution" {
		e.Tool = cmp.Or(c.Tool, e.to, skew.Newest(e.Servers...))
	}
	e.From = cmp.Or(skew.Oldest(e.Servers...), "v1.0.0")
	switch {
	case cmp.Or(c.Edit, c.Names) == "InvalidVersion", c.Kubeadm+c.Joins > 0:
		return nil
	case c.Self && len(e.Servers) == 0: // nothing of it is there to manage by
		return nil
	case e.to != "":
		if skew.Older(e.From, e.to) || skew.Older(e.to, e.From) {
			return []versionEdit{e}
		}
		return nil
	case len(e.Servers) == 0:
		return nil
	case c.KubeProxy > 0:
		return c.proxyEdits(e)
	case len(e.Workers) > 0:
		return []versionEdit{e.ofPool()}
	}
	return nil
}

// ofPool edits a pool in place of its Machines.
func (e versionEdit) ofPool() versionEdit {
	e.to, e.Workers, e.pool = e.Workers[0], nil, true
	e.Managing, e.Managed, e.Self = "", nil, false // pools are judged by their own cluster
	return e
}

// proxyEdits bring about what the line says of a kube-proxy: by the last step of the control plane, and by a pool that
// goes back, which is judged by kube-proxy where a policy binds them closer than API servers do. A pool that is ahead of
// kube-proxy is what that follows.
func (c skewCase) proxyEdits(e versionEdit) []versionEdit {
	plane := e
	plane.From, plane.to = minorOf(c.API[0]-1), minorOf(c.API[0])
	plane.Servers = []string{plane.From}
	edits := []versionEdit{plane}
	if c.KubeProxy >= c.Beside && c.Beside > 0 && c.Policy == of124 {
		edits = append(edits, e.ofPool())
	}
	return edits
}

const of124 = "Kubernetes-1.24"

// of is what the edit of one object is to be answered, where that depends on what it is of.
func (e versionEdit) of(object client.Object) versionEdit {
	if !e.pool && e.Policies == "Distribution" && slices.Contains(e.Servers, e.to) {
		e.names = nil // the way back to what runs is open, whatever the catalog says
	}
	if _, topology := object.(*clusterv1.Cluster); topology {
		finishes := len(e.Servers) > 1 && slices.Contains(e.names, "S1-14")
		switch {
		case finishes: // Cluster API refuses it itself, until the rollout has ended
			e.names = nil
		case e.Policies == of124 && e.Inside["kube-proxy"] != "": // no plan leads over a minor
			e.names, e.waits = []string{"S1-25"}, false
		}
	}
	return e
}

// editsOf makes the worlds of the edits and makes the edits in them.
type editsOf struct {
	c        client.Client
	machines client.Reader
	plane    *controlplanev1.QuoinControlPlane
	workload *httptest.Server
	inside   map[string]map[string]string
}

type warningsKey struct{}

// byContext gives each request's warnings to its own context.
type byContext struct{}

func (byContext) HandleWarningHeaderWithContext(ctx context.Context, code int, agent, text string) {
	if of, asked := ctx.Value(warningsKey{}).(*told); asked {
		of.HandleWarningHeaderWithContext(ctx, code, agent, text)
	}
}

// Proves: R2, R3, R6, R7, R8, R9, R17, R18, R21, S0-4, S0-7, S0-8, S0-9, S0-10, S0-11, S0-12, S0-15, S0-16, S0-19, S0-20
// Proves: S0-23, S0-24, S0-25, S0-26, S0-27, S0-28, S0-30, S0-31, S1-4, S1-5, S1-6, S1-14, S1-16, S1-17, S1-21, S1-25, S1-27
//
// judgesEdits makes every edit of a version that a line of package skew's data files is about, as a dry run of what
// people and GitOps tools send: refused with the number of the rule, accepted with a warning where the next step of the
// control plane makes it right, or accepted. QUOIN_SIM_LONG has all lines made, and not one of each rule and verdict.
func judgesEdits(t *testing.T, config *rest.Config, machines client.Reader) {
	g := NewWithT(t)
	hearing := rest.CopyConfig(config)
	hearing.WarningHandlerWithContext = byContext{}
	c, err := client.New(hearing, client.Options{Scheme: manager.Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	o := &editsOf{c: c, machines: machines, plane: &controlplanev1.QuoinControlPlane{}, inside: map[string]map[string]string{}}
	key := client.ObjectKey{Namespace: "tenant", Name: "quick-control-plane"}
	g.Expect(c.Get(t.Context(), key, o.plane)).To(Succeed())
	o.workload = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.workload.Close)

	all := versionEdits(t)
	g.Expect(len(all)).To(BeNumerically(">", 160))
	of := map[string][]versionEdit{}
	long, seen := os.Getenv("QUOIN_SIM_LONG") != "", map[string]bool{}
	for _, edit := range all {
		_, rule, _ := strings.Cut(edit.name, " ")
		_, rule, _ = strings.Cut(rule, " ")
		alike := fmt.Sprint(rule, edit.Policies, edit.names, edit.waits, edit.pool, edit.warns)
		if seen[alike] && !long {
			continue // one of each rule and verdict
		}
		seen[alike] = true
		world, err := json.Marshal(edit.editWorld)
		g.Expect(err).NotTo(HaveOccurred())
		of[string(world)] = append(of[string(world)], edit)
	}
	var alone, together [][]versionEdit
	for _, edits := range of {
		o.inside[namespaceOf(edits)] = edits[0].Inside
		if edits[0].Self || edits[0].Managing != "" {
			alone = append(alone, edits) // all Clusters are of one estate
		} else {
			together = append(together, edits)
		}
	}
	t.Run("of a Cluster", func(t *testing.T) {
		for _, edits := range together {
			t.Run(edits[0].name, func(t *testing.T) {
				t.Parallel()
				o.judge(t, edits)
			})
		}
	})
	t.Run("of an estate", func(t *testing.T) {
		for _, edits := range alone {
			t.Run(edits[0].name, func(t *testing.T) { o.judge(t, edits) })
		}
	})
}

func namespaceOf(edits []versionEdit) string {
	return "edits-" + strings.ToLower(strings.ReplaceAll(edits[0].name, " ", "-")) + map[bool]string{true: "-pool"}[edits[0].pool]
}

func (o *editsOf) judge(t *testing.T, edits []versionEdit) {
	namespace := namespaceOf(edits)
	o.make(t, namespace, edits[0].editWorld, slices.ContainsFunc(edits, func(e versionEdit) bool { return e.pool }))
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "c"}
	for _, edit := range edits {
		patched := map[string]client.Object{
			`{"spec":{"version":%q}}`:              &controlplanev1.QuoinControlPlane{ObjectMeta: meta},
			`{"spec":{"topology":{"version":%q}}}`: &clusterv1.Cluster{ObjectMeta: meta},
		}
		if edit.pool {
			patched = map[string]client.Object{
				`{"spec":{"template":{"spec":{"version":%q}}}}`:  &clusterv1.MachineDeployment{ObjectMeta: meta},
				`{"spec":{"template":{"spec":{"version":%q}}} }`: &clusterv1.MachineSet{ObjectMeta: meta},
			}
		}
		for patch, object := range patched {
			t.Run(fmt.Sprintf("%s %T to %s", edit.name, object, edit.to), func(t *testing.T) {
				heard := &told{}
				ctx := context.WithValue(t.Context(), warningsKey{}, heard)
				err := o.c.Patch(ctx, object, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, patch, edit.to)),
					client.DryRunAll)
				edit.of(object).expect(t, err, heard.warnings)
			})
		}
	}
}

func (e versionEdit) expect(t *testing.T, err error, warnings []string) {
	t.Helper()
	g := NewWithT(t)
	switch {
	case e.waits || len(e.names) == 0 && e.says == "":
		g.Expect(err).NotTo(HaveOccurred())
	default:
		g.Expect(err).To(MatchError(ContainSubstring(e.says)))
		for _, rule := range e.names {
			g.Expect(err).To(MatchError(MatchRegexp(`[( ]` + rule + `[,)]`)))
		}
		return
	}
	switch {
	case e.waits && e.pool:
		g.Expect(warnings).To(ContainElement(ContainSubstring("(" + e.names[0] + ")")))
	case e.warns != "" && !slices.Contains(e.Servers, e.to):
		// The version is written with a leading v, whoever gave it without.
		g.Expect(strings.ReplaceAll(fmt.Sprint(warnings), "v", "")).To(ContainSubstring(strings.ReplaceAll(e.warns, "v", "")))
	case e.pool:
		g.Expect(warnings).To(BeEmpty())
	}
}

// make makes the objects of the world, and waits until the manager sees its Machines.
func (o *editsOf) make(t *testing.T, namespace string, w editWorld, pools bool) {
	t.Helper()
	g := NewWithT(t)
	create := func(object client.Object) { g.Expect(o.c.Create(t.Context(), object)).To(Succeed()) }
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "c"}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if w.Tool != "" {
		_, releases, _ := strings.Cut(readRenumbered(t, "catalog.yaml"), "\nreleases:")
		create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: observed.CatalogName},
			Data: map[string]string{observed.CatalogKey: fmt.Sprintf("tool: %s\ngates: [%s]\nreleases:%s", w.Tool,
				strings.Join(w.Gates, ", "), releases)}})
	}
	f := o.cluster(t, namespace, "c", w.Policies, w.From)
	if len(w.Servers) > 0 {
		f.cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		g.Expect(o.c.Status().Update(t.Context(), f.cluster)).To(Succeed())
	}
	plane := o.plane.DeepCopy()
	plane.ObjectMeta = meta
	plane.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	plane.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	plane.Spec.Version = w.From
	if w.LocalKubelets != nil {
		plane.Spec.KubeadmConfigSpec.ClusterConfiguration.FeatureGates = map[string]bool{
			"ControlPlaneKubeletLocalMode": *w.LocalKubelets}
	}
	create(plane)
	f.plane = plane
	before := plane.DeepCopy()
	for _, version := range slices.Compact(slices.Clone(w.Servers)) {
		plane.Status.Versions = append(plane.Status.Versions, clusterv1.StatusVersion{
			Version: "v" + strings.TrimPrefix(version, "v"), Replicas: 1})
	}
	g.Expect(o.c.Status().Patch(t.Context(), plane, client.MergeFrom(before))).To(Succeed())
	if len(w.Inside) > 0 {
		create(kubeconfigOf(t, f.cluster, &rest.Config{Host: o.workload.URL + "/" + namespace}))
	}
	if pools {
		create(f.pool("c", ""))
		create(&clusterv1.MachineSet{ObjectMeta: meta, Spec: clusterv1.MachineSetSpec{ClusterName: "c",
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "c"}},
			Template: f.template("", "QuoinMachineTemplate")}})
	}
	managing := ""
	if w.Self {
		managing = namespace
		o.node(t, namespace)
	}
	for i, version := range w.Servers {
		f.runs(t, fmt.Sprintf("cp-%d", i), version, managing, true)
	}
	for i, version := range w.Workers {
		f.runs(t, fmt.Sprintf("w%d", i+1), version, "", false)
	}
	for i, version := range w.Managed {
		o.cluster(t, namespace, fmt.Sprintf("uc-%d", i), w.Policies, version).runs(t, fmt.Sprintf("uc-%d", i), version, "", true)
	}
	if w.Managing != "" {
		o.node(t, namespace)
		o.cluster(t, namespace, "mc", w.Policies, w.Managing).runs(t, "mc", w.Managing, namespace, true)
	}
	// The last of them, in the order of their writes.
	written := &clusterv1.MachineList{}
	g.Expect(o.c.List(t.Context(), written, client.InNamespace(namespace))).To(Succeed())
	g.Eventually(func() []string {
		seen := &clusterv1.MachineList{}
		g.Expect(o.machines.List(t.Context(), seen, client.InNamespace(namespace))).To(Succeed())
		return revisions(seen)
	}, "30s").Should(ConsistOf(revisions(written)))
}

func revisions(machines *clusterv1.MachineList) []string {
	all := []string{}
	for i := range machines.Items {
		all = append(all, machines.Items[i].ResourceVersion)
	}
	return all
}

// cluster makes a Cluster that is gone when the test ends: others are of one estate with it.
func (o *editsOf) cluster(t *testing.T, namespace, name, policies, version string) *fleet {
	t.Helper()
	g := NewWithT(t)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{skew.PolicyAnnotation: policies}}}
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "QuoinCluster", Name: name}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: name}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "none"}, Version: version}
	g.Expect(o.c.Create(t.Context(), cluster)).To(Succeed())
	t.Cleanup(func() { g.Expect(o.c.Delete(context.Background(), cluster)).To(Succeed()) })
	return &fleet{estate: &estate{c: o.c, namespace: namespace, cluster: cluster,
		plane: &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "none"}}}}
}

// runs adds a Machine whose Node reports a version. The one that it was made with says something else.
func (f *fleet) runs(t *testing.T, name, version, machineID string, server bool) {
	t.Helper()
	g := NewWithT(t)
	machine := f.machine(name)
	machine.Spec.Version = "v1.0.0"
	if !server {
		machine.Labels = map[string]string{clusterv1.ClusterNameLabel: f.cluster.Name}
		machine.OwnerReferences = nil
	}
	g.Expect(f.c.Create(t.Context(), machine)).To(Succeed())
	machine.Status.NodeRef.Name = name
	machine.Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: version, MachineID: machineID}
	g.Expect(f.c.Status().Update(t.Context(), machine)).To(Succeed())
}

// node is one of the cluster in which all objects live.
func (o *editsOf) node(t *testing.T, machineID string) {
	t.Helper()
	g := NewWithT(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machineID,
		Labels: map[string]string{observed.ControlPlaneNodeLabel: ""}}}
	g.Expect(o.c.Create(t.Context(), node)).To(Succeed())
	t.Cleanup(func() { g.Expect(o.c.Delete(context.Background(), node)).To(Succeed()) })
	node.Status.NodeInfo.MachineID = machineID
	g.Expect(o.c.Status().Update(t.Context(), node)).To(Succeed())
}

// serve answers for the API servers of all worlds, each under its namespace.
func (o *editsOf) serve(w http.ResponseWriter, r *http.Request) {
	namespace, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var answer any
	of := func(component, tag string) corev1.PodSpec {
		return corev1.PodSpec{NodeName: "n1",
			Containers: []corev1.Container{{Name: component, Image: "quoin.test/" + component + ":" + tag}}}
	}
	switch path {
	case "api/v1/namespaces/kube-system/pods":
		pods := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for component, tag := range o.inside[namespace] {
			pods.Items = append(pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component,
				Labels: map[string]string{"component": component}}, Spec: of(component, tag)})
		}
		answer = pods
	case "apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy":
		daemonSet := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
		if tag := o.inside[namespace]["kube-proxy"]; tag != "" {
			daemonSet.Spec.Template.Spec = of("kube-proxy", tag)
		}
		answer = daemonSet
	}
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
