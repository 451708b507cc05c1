// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// TestScripts asks what comes next for the worlds of testdata. One line each:
//
//	journal <phase>                        three objects move: Cluster c, Machine m, QuoinHost h; no line, no journal
//	source|target <cluster>[:paused].. has=<objects> marked=<n>
//	wish    abort takeOver
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var j *Journal
			var w World
			var wish Wish
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				switch words[0] {
				case "journal":
					j = &Journal{Phase: Phase(words[1]), Reason: "Machine m differs", Objects: objectsOf("c,m,h")}
				case "source":
					w.Source = sideOf(t, words[1:])
				case "target":
					w.Target = sideOf(t, words[1:])
				case "wish":
					for _, word := range words[1:] {
						wish.Abort = wish.Abort || word == "abort"
						wish.TakeOver = wish.TakeOver || word == "takeOver"
					}
				default:
					t.Fatalf("unknown line %s", line)
				}
			}
			step := Next(j, w, wish)
			return fmt.Sprintf("%s: %s\n", step.Action, step.Message)
		})
	})
}

func objectsOf(names string) []Object {
	kinds := map[string]Object{
		"c": {APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c"},
		"m": {APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine", Name: "m"},
		"h": {APIVersion: "infrastructure.cluster.x-k8s.io/v1alpha1", Kind: "QuoinHost", Name: "h"},
	}
	var objects []Object
	for _, name := range strings.Split(names, ",") {
		objects = append(objects, kinds[name])
	}
	return objects
}

func sideOf(t *testing.T, words []string) (s Side) {
	t.Helper()
	for _, word := range words {
		if names, ok := strings.CutPrefix(word, "has="); ok {
			s.Present = objectsOf(names)
		} else if n, ok := strings.CutPrefix(word, "marked="); ok {
			s.Marked, _ = strconv.Atoi(n)
		} else {
			name, isPaused := strings.CutSuffix(word, ":paused")
			s.Clusters = append(s.Clusters, Cluster{Name: name, Paused: isPaused})
		}
	}
	return s
}

// In no world does the next step let both sides act, undo what a target has that acts, or delete what the target lacks.
func TestNoStepLosesAnything(t *testing.T) {
	g := NewWithT(t)
	sides := []Side{}
	for _, clusters := range [][]Cluster{nil, {{Name: "c"}}, {{Name: "c", Paused: true}}} {
		for _, has := range []string{"", "h", "c,m,h"} {
			for _, marked := range []int{0, 1} {
				s := Side{Clusters: clusters, Marked: marked}
				if has != "" {
					s.Present = objectsOf(has)
				}
				sides = append(sides, s)
			}
		}
	}
	for _, phase := range []Phase{"", Copying, Undoing, Releasing, Undone, Done} {
		j := &Journal{Phase: phase, Objects: objectsOf("c,m,h")}
		if phase == "" {
			j = nil
		}
		for _, source := range sides {
			for _, target := range sides {
				for _, wish := range []Wish{{}, {Abort: true}, {TakeOver: true}, {Abort: true, TakeOver: true}} {
					step := Next(j, World{source, target}, wish)
					state := fmt.Sprintf("%s: %+v %+v %+v -> %+v", phase, source, target, wish, step)
					if len(active(source)) > 0 && len(active(target)) > 0 {
						g.Expect(step.Action).To(Equal(Refuse), state)
					}
					switch step.Action {
					case Undo:
						g.Expect(active(target)).To(BeEmpty(), state)
						g.Expect(phase).To(BeElementOf(Copying, Undoing), state)
					case Release:
						g.Expect(phase == Releasing || wish.TakeOver).To(BeTrue(), state)
						g.Expect(absent(source.Present, target.Present)).To(BeEmpty(), state)
					case Resume:
						g.Expect(source.Present).To(BeEmpty(), state)
					case Copy, Begin:
						g.Expect(phase).NotTo(BeElementOf(Undoing, Releasing), state)
						g.Expect(active(target)).To(BeEmpty(), state)
					}
				}
			}
		}
	}
}

// A target that acted once is neither copied over nor undone, also when it is paused again.
func TestATargetThatActedIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	j := &Journal{Phase: Copying, Objects: objectsOf("c,m,h"), Acted: []string{"c"}}
	w := World{Source: sideOf(t, []string{"c:paused", "has=c,m,h"}), Target: sideOf(t, []string{"c:paused", "has=c"})}
	for _, wish := range []Wish{{}, {Abort: true}, {TakeOver: true}} {
		g.Expect(Next(j, w, wish).Action).To(Equal(Refuse))
	}
}

func TestTheCopiesOfAJournalAreMerged(t *testing.T) {
	g := NewWithT(t)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(id string, minutes int, phase Phase, objects int) *Journal {
		return &Journal{ID: id, Began: began.Add(time.Duration(minutes) * time.Minute), Phase: phase,
			Objects: make([]Object, objects)}
	}
	g.Expect(Merge(nil, nil)).To(BeNil())
	g.Expect(Merge(nil, of("a", 0, Copying, 1), nil).ID).To(Equal("a"))
	g.Expect(Merge(of("a", 0, Copying, 1), of("a", 0, Releasing, 1)).Phase).
		To(Equal(Releasing), "a kill came between two copies")
	g.Expect(Merge(of("a", 0, Releasing, 1), of("a", 0, Copying, 1)).Phase).To(Equal(Releasing))
	g.Expect(Merge(of("a", 0, Copying, 1), of("a", 0, Copying, 2)).Objects).To(HaveLen(2))
	g.Expect(Merge(of("a", 0, Done, 1), of("b", 1, Copying, 1)).ID).To(Equal("b"), "the later pivot")
	g.Expect(Merge(of("b", 1, Copying, 1), of("a", 0, Done, 1)).ID).To(Equal("b"))
	g.Expect(Merge(of("b", 0, Copying, 1), of("a", 1, Done, 1)).ID).
		To(Equal("b"), "a clock that goes ahead hides no open pivot")
	g.Expect(Merge(of("a", 1, Done, 1), of("b", 0, Copying, 1)).ID).To(Equal("b"))
	g.Expect(Merge(of("a", 0, Copying, 1), of("b", 1, Undone, 1), of("a", 0, Done, 1)).ID).To(Equal("b"), "a is closed")
}

func TestWhatHasNotArrivedIsNamed(t *testing.T) {
	owner := Object{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Namespace: "n", Name: "c"}
	uids := map[Object]types.UID{owner: "there"}
	object := func() *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "QuoinHost",
			"spec": map[string]any{"address": "a", "claimGeneration": int64(1), "managedBy": "source",
				"consumerRef": map[string]any{"machine": "m"}},
			"status": map[string]any{"state": "Provisioned"},
		}}
		o.SetNamespace("n")
		o.SetName("h")
		o.SetUID("copy")
		o.SetLabels(map[string]string{"l": "1"})
		o.SetAnnotations(map[string]string{"a": "1", "clusterctl.cluster.x-k8s.io/block-move": ""})
		o.SetFinalizers([]string{"f"})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name,
			UID: "there"}})
		return o
	}
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	}
	for name, row := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   []any
	}{
		"nothing":              {func(*unstructured.Unstructured) {}, nil},
		"status":               {func(o *unstructured.Unstructured) { delete(o.Object, "status") }, nil},
		"a field of admission": {set("x", "spec", "defaulted"), nil},
		"a label":              {func(o *unstructured.Unstructured) { o.SetLabels(nil) }, []any{"metadata.labels[l]"}},
		"an annotation's value": {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "2"}) },
			[]any{"metadata.annotations[a]"}},
		"a finalizer": {func(o *unstructured.Unstructured) { o.SetFinalizers(nil) },
			[]any{"metadata.finalizers[f]"}},
		"an owner": {func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) },
			[]any{"metadata.ownerReferences[Cluster c]"}},
		"an owner of another UID": {func(o *unstructured.Unstructured) {
			r := o.GetOwnerReferences()
			r[0].UID = "here"
			o.SetOwnerReferences(r)
		}, []any{"metadata.ownerReferences[Cluster c]"}},
		"a claim": {set("other", "spec", "consumerRef", "machine"), []any{"spec.consumerRef.machine"}},
		"all claims": {func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec",
				"consumerRef")
		}, []any{"spec.consumerRef.machine"}},
		"a lower generation": {set(int64(0), "spec", "claimGeneration"), []any{"spec.claimGeneration"}},
		"a host that was taken over": {func(o *unstructured.Unstructured) {
			set(int64(2), "spec", "claimGeneration")(o)
			set("copy", "spec", "managedBy")(o)
		}, nil},
		"a host that somebody else took over": {func(o *unstructured.Unstructured) {
			set(int64(2), "spec", "claimGeneration")(o)
			set("third", "spec", "managedBy")(o)
		}, []any{"spec.claimGeneration", "spec.managedBy"}},
	} {
		t.Run(name, func(t *testing.T) {
			arrived := object()
			row.change(arrived)
			NewWithT(t).Expect(Differences(object(), arrived, uids)).To(HaveExactElements(row.want...))
		})
	}
}

func TestASecretsValueIsNotPrinted(t *testing.T) {
	g := NewWithT(t)
	secret := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": "s"},
			"data":     map[string]any{"key": value}}}
	}
	g.Expect(Differences(secret("one"), secret("two"), nil)).To(Equal([]string{"data.key"}))
	deleted := secret("one")
	now := metav1.Now()
	deleted.SetDeletionTimestamp(&now)
	deleted.SetUID("u")
	g.Expect(Differences(deleted, secret("one"), nil)).
		To(Equal([]string{"metadata.deletionTimestamp"}), "it would come back")
	deleted.SetAnnotations(map[string]string{infrav1.DeletionAnnotation: "u"})
	arrived := secret("one")
	arrived.SetAnnotations(deleted.GetAnnotations())
	g.Expect(Differences(deleted, arrived, nil)).To(BeEmpty(), "it is written down, and done again")
	deleted.SetUID("v")
	g.Expect(Differences(deleted, arrived, nil)).To(Equal([]string{"metadata.deletionTimestamp"}), "of an earlier life")
}

func TestAPreflight(t *testing.T) {
	g := NewWithT(t)
	node := func(name string, change func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		if change != nil {
			change(&n)
		}
		return n
	}
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
	}
	facts := func(change func(*Facts)) Facts {
		f := Facts{Movable: map[string]*metav1.Condition{"c": {Status: metav1.ConditionTrue, Reason: "Movable"}}, Moving: 3,
			Tried: true,
			Nodes: []corev1.Node{node("a", nil), node("b", taint("node-role.kubernetes.io/control-plane",
				corev1.TaintEffectNoSchedule))}}
		change(&f)
		return f
	}
	results := func(f Facts) string {
		var line []string
		for _, check := range Preflight(f) {
			line = append(line, string(check.Result))
		}
		return strings.Join(line, " ")
	}
	says := func(reason string, status metav1.ConditionStatus) func(*Facts) {
		return func(f *Facts) { f.Movable["c"] = &metav1.Condition{Status: status, Reason: reason} }
	}
	for want, changes := range map[string][]func(*Facts){
		"Passed Passed Passed Passed Passed Passed Passed Passed": {func(*Facts) {}, func(f *Facts) { f.Tried = false }},
		"Warning Passed Passed Passed Passed Passed Passed Passed": {says("DeletionInFlight", metav1.ConditionFalse),
			says("HooksInFlight", metav1.ConditionFalse),
			says("SharedClusterClass", metav1.ConditionFalse)},
		"Failed Passed Passed Passed Passed Passed Passed Passed": {says("MachinesWithoutNode", metav1.ConditionFalse),
			says("Movable", metav1.ConditionUnknown),
			func(f *Facts) { f.Movable["c"] = nil }},
		"Passed Failed Passed Passed Passed Passed Passed Passed": {
			func(f *Facts) { f.Rehearsal = fmt.Errorf("provider quoin is older") }},
		"Passed Passed Failed Passed Passed Passed Passed Passed": {func(f *Facts) { f.Existing = objectsOf("h") }},
		"Passed Passed Passed Warning Passed Passed Passed Passed": {
			func(f *Facts) { f.Nodes = f.Nodes[:1] },
			func(f *Facts) { f.Nodes[0].Spec.Unschedulable = true },
			func(f *Facts) { f.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown },
			func(f *Facts) { f.Nodes[0] = node("a", taint("gpu", corev1.TaintEffectNoExecute)) },
		},
		"Passed Passed Passed Passed Warning Passed Passed Passed": {func(f *Facts) { f.Volumes = []string{"snapshots"} }},
		"Passed Passed Passed Passed Passed Warning Passed Passed": {func(f *Facts) { f.Served = []string{"bundles"} }},
	} {
		for i, change := range changes {
			g.Expect(results(facts(change))).To(Equal(want), "%d of %s", i, want)
			g.Expect(Blocks(Preflight(facts(change)))).To(Equal(strings.Contains(want, "Failed")))
		}
	}
	g.Expect(results(facts(func(f *Facts) { f.Nodes[0] = node("a", taint("soft", corev1.TaintEffectPreferNoSchedule)) }))).
		To(HaveSuffix("Passed"))
}

func TestVolumesThatTheTargetsManagersLackAreNamed(t *testing.T) {
	g := NewWithT(t)
	planes := make([]controlplanev1.QuoinControlPlane, 3)
	planes[0].Name, planes[1].Name, planes[2].Name = "volume", "bucket", "none"
	planes[0].Spec.Backup = &controlplanev1.EtcdBackup{
		Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "a"}}}
	planes[1].Spec.Backup = &controlplanev1.EtcdBackup{
		Store: controlplanev1.BackupStore{S3: &controlplanev1.BackupBucket{}}}
	templates := make([]infrav1.QuoinMachineTemplate, 4)
	for i, bundle := range []*infrav1.Bundle{nil, {Location: "/on/the/host/{{version}}"},
		{Location: "https://bundles.example.test/{{version}}", Delivery: infrav1.BundleDeliveryPush},
		{Location: "/bundles/{{version}}", Delivery: infrav1.BundleDeliveryPush}} {
		templates[i].Name, templates[i].Spec.Template.Spec.Artifacts.Bundle = fmt.Sprint("t", i), bundle
	}
	manager := func(path string, args ...string) []appsv1.Deployment {
		d := appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: args,
			VolumeMounts: []corev1.VolumeMount{{MountPath: path}}}}
		return []appsv1.Deployment{{}, d}
	}
	const snapshots = "its managers have no volume for snapshots of QuoinControlPlane volume (--backup-directory)"
	const left = "snapshots of QuoinControlPlane volume until now stay in the source's volume: unless both sides have one, " +
		"copy them, or make one on the target before the source goes"
	const bundles = "its managers have no volume for bundles of QuoinMachineTemplate t3 (/bundles/{{version}})"
	for _, row := range []struct {
		managers []appsv1.Deployment
		missing  []string
	}{
		{nil, []string{snapshots, bundles}},
		{manager("/bundles"), []string{snapshots}},
		{manager("/bund"), []string{snapshots, bundles}},
		{manager("/var/lib/quoin", "--backup-directory=/var/lib/quoin/backup"), []string{left, bundles}},
		{manager("/var/lib/other", "--backup-directory=/var/lib/quoin/backup"), []string{snapshots, bundles}},
		{append(manager("/bundles"), manager("/b/", "--backup-directory=/b")...), []string{left}},
	} {
		g.Expect(Volumes(planes, templates, row.managers)).To(Equal(row.missing))
	}
	g.Expect(Volumes(planes[1:], templates[:3], nil)).To(BeEmpty())
}

// What hosts fetch from a kind cluster is gone with it, whoever reaches it today.
func TestWhatTheSourceServesIsNamed(t *testing.T) {
	g := NewWithT(t)
	planes := make([]controlplanev1.QuoinControlPlane, 1)
	planes[0].Name = "cp"
	planes[0].Spec.Backup = &controlplanev1.EtcdBackup{Store: controlplanev1.BackupStore{
		S3: &controlplanev1.BackupBucket{Endpoint: "https://minio.store.svc:9000"}}}
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "kind-control-plane"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "kind-control-plane"}, {Type: corev1.NodeInternalIP, Address: "172.18.0.2"},
		{Type: corev1.NodeInternalIP, Address: "fd00::2"}}}}}
	balancer := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "lb", Name: "front"}}
	balancer.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}, {Hostname: "lb.example.test"}}
	store := corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7"}, ExternalIPs: []string{"192.0.2.81"}}}
	store.Namespace, store.Name = "store", "minio"
	const (
		push     = infrav1.BundleDeliveryPush
		node     = "an address of node kind-control-plane"
		front    = "an address of Service lb/front"
		minio    = "an address of Service store/minio"
		service  = "a Service's name, which each cluster answers by itself"
		loopback = "a loopback address, where only the source's own manager finds it"
	)
	for _, row := range []struct {
		bundle infrav1.Bundle
		reason string
	}{
		{infrav1.Bundle{Location: "http://172.18.0.2:30080/{{version}}"}, node},
		{infrav1.Bundle{Location: "http://[fd00:0::2]/{{version}}", Delivery: push}, node},
		{infrav1.Bundle{Location: "http://Kind-control-plane/{{version}}"}, node},
		{infrav1.Bundle{Location: "http://192.0.2.80/{{version}}"}, front},
		{infrav1.Bundle{Location: "http://192.0.2.81/{{version}}"}, minio},
		{infrav1.Bundle{Location: "http://10.96.0.7/{{version}}"}, minio},
		{infrav1.Bundle{Location: "https://lb.example.test/{{version}}"}, front},
		{infrav1.Bundle{Location: "https://bundles.example.test/{{version}}", Proxy: "http://172.18.0.2:3128"}, node},
		{infrav1.Bundle{Location: "http://minio.store:9000/{{version}}"}, minio},
		{infrav1.Bundle{Location: "http://minio.store.svc.cluster.local./{{version}}", Delivery: push}, minio},
		{infrav1.Bundle{Location: "http://gone.store.svc/{{version}}", Delivery: push}, service},
		{infrav1.Bundle{Location: "http://gone.store.svc.cluster.local/{{version}}"}, service},
		{infrav1.Bundle{Location: "http://127.0.0.1:8080/{{version}}", Delivery: push}, loopback},
		{infrav1.Bundle{Location: "http://127.9.0.1/{{version}}", Delivery: push}, loopback},
		{infrav1.Bundle{Location: "http://[::1]/{{version}}", Delivery: push}, loopback},
		{infrav1.Bundle{Location: "http://LOCALHOST/{{version}}", Delivery: push}, loopback},
		{infrav1.Bundle{Location: "http://bundles.localhost/{{version}}", Delivery: push}, loopback},
		{infrav1.Bundle{Location: "https://b.test/{{version}}", Delivery: push, Proxy: "http://127.0.0.1:1"}, loopback},
		// A server on each host itself stays where it is.
		{infrav1.Bundle{Location: "http://127.0.0.1:8080/{{version}}"}, ""},
		{infrav1.Bundle{Location: "http://localhost/{{version}}", Delivery: infrav1.BundleDeliveryFetch}, ""},
		{infrav1.Bundle{Location: "http://svc/{{version}}"}, ""},
		{infrav1.Bundle{Location: "http://128.0.0.1/{{version}}", Delivery: push}, ""},
		{infrav1.Bundle{Location: "https://bundles.example.test/{{version}}"}, ""},
		{infrav1.Bundle{Location: "http://172.18.0.20/{{version}}"}, ""},
		{infrav1.Bundle{Location: "/on/the/host/172.18.0.2/{{version}}"}, ""},
		{infrav1.Bundle{Location: "http://172.18.0.2/{{version}}", Proxy: "http://proxy.example.test:3128"}, ""},
	} {
		templates, machines := make([]infrav1.QuoinMachineTemplate, 2), make([]infrav1.QuoinMachine, 2)
		templates[0].Name, templates[0].Spec.Template.Spec.Artifacts.Bundle = "t", &row.bundle
		machines[1].Name, machines[1].Spec.Artifacts.Bundle = "m", &row.bundle
		services := []corev1.Service{balancer, store}
		for object, named := range map[string][]string{
			"QuoinMachineTemplate t": ServedBySource(nil, templates, nil, nodes, services),
			"QuoinMachine m":         ServedBySource(nil, nil, machines, nodes, services),
		} {
			g.Expect(named).To(HaveLen(map[bool]int{true: 1}[row.reason != ""]), row.bundle.Location)
			if row.reason != "" {
				g.Expect(named[0]).To(And(HavePrefix("bundles of "+object+" ("), HaveSuffix("): "+row.reason)))
			}
		}
	}
	g.Expect(ServedBySource(planes, nil, nil, nodes, []corev1.Service{balancer, store})).To(
		ConsistOf("object store of QuoinControlPlane cp (minio.store.svc port 9000): " + minio))
	for endpoint, reason := range map[string]string{"https://10.96.0.7:9000": minio, "http://127.0.0.1:9000": loopback} {
		planes[0].Spec.Backup.Store.S3.Endpoint = endpoint
		g.Expect(ServedBySource(planes, nil, nil, nil, []corev1.Service{store})).To(ConsistOf(HaveSuffix(reason)))
	}
	planes[0].Spec.Backup.Store.S3.Endpoint = "https://10.96.0.7:9000"
	g.Expect(ServedBySource(planes, nil, nil, nodes, nil)).To(BeEmpty())
}
