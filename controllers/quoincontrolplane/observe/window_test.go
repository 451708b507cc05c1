// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// policies is a management cluster that lists RolloutPolicies of namespaces, or nothing.
type policies struct {
	client.Reader

	items []quoinv1.RolloutPolicy
	err   error
}

func (p *policies) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	list, is := into.(*quoinv1.RolloutPolicyList)
	if !is || p.err != nil {
		return p.err
	}
	for _, item := range p.items {
		if item.Namespace == asked.Namespace {
			list.Items = append(list.Items, item)
		}
	}
	return nil
}

// The windows of the Cluster's policy are read live where Machines are, and what is closed says what opens it.
func TestAWindowIsThatOfTheClustersPolicy(t *testing.T) {
	policy := func(name, start string) quoinv1.RolloutPolicy {
		return quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: quoinv1.RolloutPolicySpec{ClusterName: "c", Windows: []quoinv1.RolloutWindow{{Start: start,
				DurationMinutes: ptr.To[int32](60)}}}}
	}
	of := func(items ...quoinv1.RolloutPolicy) *policies { return &policies{items: items} }
	elsewhere, another := policy("p", "22:00"), policy("p", "22:00")
	elsewhere.Namespace, another.Spec.ClusterName = "elsewhere", "d"
	wrong := policy("p", "22:00")
	wrong.Spec.Windows[0].TimeZone = "Nowhere/Land"
	closed := Window{Closed: "no window is open; the next one opens Sat 2026-11-28 22:00 UTC; to begin before, change " +
		"spec.windows of RolloutPolicy p", Opens: time.Date(2026, 11, 28, 22, 0, 0, 0, time.UTC)}
	for name, test := range map[string]struct {
		cached      bool
		cache, live *policies
		want        Window
		err         string
	}{
		"no policy":           {live: of(), cache: of(policy("p", "22:00"))},
		"closed":              {live: of(policy("p", "22:00")), cache: of(), want: closed},
		"closed by the cache": {cached: true, cache: of(policy("p", "22:00")), live: of(), want: closed},
		"open":                {live: of(policy("p", "11:30"))},
		"of another namespace, or another Cluster": {live: of(elsewhere, another)},
		"of a zone that is none": {live: of(wrong),
			want: Window{Closed: `correct spec.windows of RolloutPolicy p: `}},
		"not answered": {live: &policies{err: errors.New("down")}, err: "listing RolloutPolicies: down"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			sources := &Sources{Live: test.live, Cache: test.cache, Clock: clocktesting.NewFakePassiveClock(noon)}
			window, err := sources.window(t.Context(), &Lists{Subject: joined().Subject, Cached: test.cached})
			if test.err != "" {
				g.Expect(err).To(MatchError(test.err))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(window.Opens.Equal(test.want.Opens)).To(BeTrue())
			if test.want.Closed == "" {
				g.Expect(window.Closed).To(BeEmpty())
			}
			g.Expect(window.Closed).To(HavePrefix(test.want.Closed))
		})
	}
}
