// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

func freeHost(name, domain, version string) infrav1.QuoinHost {
	h := infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version},
		Spec:       infrav1.QuoinHostSpec{FailureDomain: domain},
		Status:     infrav1.QuoinHostStatus{State: infrav1.HostStateAvailable},
	}
	conditions.Set(&h, metav1.Condition{Type: infrav1.HostReadyCondition, Status: metav1.ConditionTrue,
		Reason: "Available"})
	return h
}

// TestMachinesThatComeTogetherTakeDifferentHosts lets machines choose from one and the same view of the hosts, as they
// do while a cache has not seen the claims before theirs.
func TestMachinesThatComeTogetherTakeDifferentHosts(t *testing.T) {
	g := NewWithT(t)
	var r reservations
	hosts := []infrav1.QuoinHost{freeHost("a1", "a", "1"), freeHost("a2", "a", "1"), freeHost("b1", "b", "1")}
	choose := func(machine string) string {
		picked, _ := r.choose(placement.Request{Namespace: "n"}, hosts, client.ObjectKey{Name: machine}, "workers")
		if picked.Chosen == nil {
			return ""
		}
		return picked.Chosen.Name
	}
	g.Expect(choose("m1")).To(Equal("a1"))
	g.Expect(choose("m2")).To(Equal("b1"), "a host that is being claimed counts for its failure domain")
	g.Expect(choose("m1")).To(Equal("a1"), "its own reservation is no obstacle")
	g.Expect(choose("m3")).To(Equal("a2"))
	picked, others := r.choose(placement.Request{Namespace: "n"}, hosts, client.ObjectKey{Name: "m4"}, "workers")
	g.Expect(picked.Chosen).To(BeNil())
	g.Expect(others).To(BeTrue(), "one of the claims may fail")

	r.release(client.ObjectKey{Namespace: "n", Name: "b1"}, client.ObjectKey{Name: "m1"})
	g.Expect(choose("m4")).To(BeEmpty(), "only who has a reservation gives it up")
	r.release(client.ObjectKey{Namespace: "n", Name: "b1"}, client.ObjectKey{Name: "m2"})
	g.Expect(choose("m4")).To(Equal("b1"))

	hosts[0].ResourceVersion = "2"
	g.Expect(choose("m5")).To(Equal("a1"), "another version tells the truth: the claim of m1 was not made")
}

func TestNothingIsReservedOfHostsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		var r reservations
		for i := range 1000 {
			hosts := []infrav1.QuoinHost{freeHost(fmt.Sprintf("h%d", i), "a", "1")}
			picked, _ := r.choose(placement.Request{Namespace: "n"}, hosts, client.ObjectKey{Name: "m1"}, "workers")
			g.Expect(picked.Chosen).NotTo(BeNil())
			time.Sleep(time.Minute)
		}
		g.Expect(len(r.hosts)).To(BeNumerically("<=", 12))
	})
}
