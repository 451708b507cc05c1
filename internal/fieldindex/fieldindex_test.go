// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldindex_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/cachetest"
)

func TestHostsAreFoundByTheirFailureDomain(t *testing.T) {
	g := NewWithT(t)
	in := func(namespace, name, domain string) *infrav1.QuoinHost {
		return &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: infrav1.QuoinHostSpec{FailureDomain: domain}}
	}
	c := cachetest.New(t, in("a", "1", "rack"), in("b", "2", "rack"), in("a", "3", "other"), in("a", "4", ""),
		in("b", "5", ""))
	for host, wanted := range map[*infrav1.QuoinHost][]string{
		in("a", "x", "rack"): {"1"}, in("b", "x", "rack"): {"2"}, in("c", "x", "rack"): nil,
		in("a", "x", ""): {"4"}, in("c", "x", ""): nil, in("c", "x", "a"): nil,
	} {
		hosts := &infrav1.QuoinHostList{}
		g.Expect(c.List(t.Context(), hosts, client.UnsafeDisableDeepCopy, fieldindex.HostsOfDomain(host))).To(Succeed())
		var names []string
		for i := range hosts.Items {
			names = append(names, hosts.Items[i].Name)
		}
		g.Expect(names).To(ConsistOf(wanted), "%s %q", host.Namespace, host.Spec.FailureDomain)
	}
}

func TestFreeHostsAreFoundByNamespaceAndLabel(t *testing.T) {
	g := NewWithT(t)
	free := func(name string, labels map[string]string, offered ...string) *infrav1.QuoinHost {
		h := &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name, Labels: labels},
			Spec:       infrav1.QuoinHostSpec{ConsumerNamespaces: offered},
			Status:     infrav1.QuoinHostStatus{State: infrav1.HostStateAvailable},
		}
		conditions.Set(h, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
			Reason: "Available"})
		return h
	}
	used := free("used", nil)
	used.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "hosts", Name: "m"}
	silent := free("silent", nil)
	conditions.Set(silent, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionFalse,
		Reason: "Silent"})
	c := cachetest.New(t, used, silent, free("own", nil), free("worker", map[string]string{"role": "worker", "size": "l"}),
		free("two", nil, "a", "b"), free("all", map[string]string{"role": "worker"}, "a", "*"))
	found := func(namespace string, labels map[string]string) (names []string) {
		hosts := &infrav1.QuoinHostList{}
		g.Expect(c.List(t.Context(), hosts, client.UnsafeDisableDeepCopy, fieldindex.FreeHosts(namespace, labels))).
			To(Succeed())
		for i := range hosts.Items {
			names = append(names, hosts.Items[i].Name)
		}
		return names
	}
	worker := map[string]string{"role": "worker", "zone": "z"}
	g.Expect(found("hosts", nil)).To(ConsistOf("own", "worker"))
	g.Expect(found("hosts", worker)).To(ConsistOf("worker"), "whoever asks looks at the other labels")
	g.Expect(found("a", nil)).To(ConsistOf("two"))
	g.Expect(found("b", nil)).To(ConsistOf("two"))
	g.Expect(found("*", nil)).To(ConsistOf("all"))
	g.Expect(found("*", worker)).To(ConsistOf("all"))
	g.Expect(found("*", map[string]string{"role": "storage"})).To(BeEmpty())
}
