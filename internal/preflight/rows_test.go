// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// world is a case of testdata/rows.yaml, which says what the words mean.
type world struct {
	Row, Runs, To string
	Workers       []string
	Together      int32
	Pods          []string
	Budget        *struct{ Allowed, Healthy, Desired, Expected int32 }
	Local         bool
	Webhooks      []struct {
		Name             string
		Groups, Versions []string
		Match            *admissionregistrationv1.MatchPolicyType
		Failure          *admissionregistrationv1.FailurePolicyType
		Mutating         bool
	}
	Host, Prints, Unready, Endpoint string
	Skip                            []string

	Verdict quoinv1.Verdict
	Finds   []string
	Says    string
}

// subject makes what the checks look at.
func (w world) subject(t *testing.T) Subject {
	r := newRack(t)
	r.says[w.Host] = w.Prints + "\n"
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "blue",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}}}
	pool.Spec.Replicas = ptr.To(int32(len(w.Workers) + 1)) //nolint:gosec // a few
	if w.Together > 0 {
		pool.Spec.Rollout.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(w.Together))
	}
	r.management = append(r.management, pool, &clusterctlv1.Provider{Type: "CoreProvider", Version: "v1.14.2",
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "cluster-api"}, ProviderName: "cluster-api"})
	for _, name := range w.Workers {
		r.management, r.workload = append(r.management, machine(name, "v1.35.4", false)), append(r.workload, node(name))
	}
	for _, object := range r.management {
		if m, is := object.(*clusterv1.Machine); is {
			m.Spec.Version = cmp.Or(w.Runs, m.Spec.Version)
		}
	}
	for _, object := range r.workload {
		if n, is := object.(*corev1.Node); is && n.Name != w.Unready {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			r.workload = append(r.workload, lease(n.Name))
		}
	}
	r.workload = append(r.workload, shop(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
			Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: " +
				cmp.Or(w.Endpoint, "10.0.0.100:6443")}},
		endpoints("default", "kubernetes", "IPv4", endpoint("10.0.0.1", "cp-1", true), endpoint("10.0.0.2", "cp-2", true)),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"}},
		endpoints("kube-system", "kube-dns", "IPv4", endpoint("10.1.1.1", "cp-1", true), endpoint("10.1.2.1", "cp-2", true)))
	r.workload = append(append(r.workload, w.application()...), w.hooks()...)
	s := r.subject()
	s.Version = cmp.Or(w.To, s.Version)
	s.Metrics = func(context.Context) ([]byte, error) { return nil, nil }
	s.Kubelet = func(context.Context, string) error { return nil }
	return s
}

// application is what users run.
func (w world) application() []client.Object {
	var objects []client.Object
	for i, on := range w.Pods {
		pod := web(fmt.Sprint("web-", i), on)
		if w.Local {
			claims("data")(pod)
		}
		objects = append(objects, pod)
	}
	if b := w.Budget; b != nil {
		objects = append(objects, budget("web", b.Allowed, b.Healthy, b.Desired, b.Expected))
	}
	if w.Local {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
		volume.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data"}
		volume.Status.Phase = corev1.VolumeBound
		objects = append(objects, volume)
	}
	return objects
}

func (w world) hooks() []client.Object {
	var objects []client.Object
	for _, hook := range w.Webhooks {
		meta := metav1.ObjectMeta{Name: hook.Name}
		rules := []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{APIGroups: hook.Groups,
			APIVersions: hook.Versions, Resources: []string{"deployments"}}}}
		if hook.Mutating {
			objects = append(objects, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta,
				Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: hook.Name + ".quoin.test", MatchPolicy: hook.Match,
					FailurePolicy: hook.Failure, Rules: rules}}})
			continue
		}
		objects = append(objects, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta,
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: hook.Name + ".quoin.test", MatchPolicy: hook.Match,
				FailurePolicy: hook.Failure, Rules: rules}}})
	}
	return objects
}

// All checks look at each world. Each rule lets one pass, and finds something in another.
func TestRows(t *testing.T) {
	content, err := os.ReadFile("testdata/rows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var worlds []world
	if err := yaml.UnmarshalStrict(content, &worlds); err != nil {
		t.Fatal(err)
	}
	passed, found := map[string]bool{}, map[string]bool{}
	for i, w := range worlds {
		t.Run(fmt.Sprintf("%d %s", i, w.Row), func(t *testing.T) {
			g := NewWithT(t)
			var skip []quoinv1.SkippedCheck
			for _, name := range w.Skip {
				skip = append(skip, quoinv1.SkippedCheck{Name: name, Reason: "it is the lab"})
			}
			results := Run(t.Context(), Checks(), w.subject(t), skip, clock.RealClock{})
			var finds []string
			for _, result := range results {
				for _, said := range says(result.Findings) {
					finds = append(finds, result.Name+": "+said)
				}
			}
			g.Expect(finds).To(Equal(w.Finds), "%v", results)
			g.Expect(Verdict(results)).To(Equal(w.Verdict))
			if w.Says != "" {
				g.Expect(Summary(results)).To(Equal(w.Says))
			}
			passed[w.Row] = passed[w.Row] || w.Verdict == quoinv1.VerdictPass
			found[w.Row] = found[w.Row] || w.Verdict != quoinv1.VerdictPass
		})
	}
	for _, w := range worlds {
		NewWithT(t).Expect(passed[w.Row] && found[w.Row]).To(BeTrue(), w.Row)
	}
}
