// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"reflect"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Proves: S3-23, S3-24, S3-31, K-2, K-3
//
// The numbers are those of kOps' own tests.
func TestLimitsAreResolvedAsKOpsDoes(t *testing.T) {
	for _, c := range []struct {
		surge, unavailable string
		of                 int
		want               Limits
	}{
		{"", "", 10, Limits{1, 0}},
		{"0", "", 10, Limits{0, 1}},
		{"0%", "", 10, Limits{0, 1}},
		{"1", "", 10, Limits{1, 0}},
		{"", "0", 10, Limits{1, 0}},
		{"0", "0%", 10, Limits{0, 1}},
		{"0", "39%", 10, Limits{0, 3}},
		{"0", "100%", 10, Limits{0, 10}},
		{"0", "5%", 10, Limits{0, 1}},
		{"31%", "", 10, Limits{4, 0}},
		{"31%", "2", 10, Limits{4, 2}},
		{"0", "2", 10, Limits{0, 2}},
		{"1%", "1%", 0, Limits{0, 1}},
	} {
		t.Run(fmt.Sprintf("%s %s of %d", c.surge, c.unavailable, c.of), func(t *testing.T) {
			g := NewWithT(t)
			limits, err := Resolve(strategy(c.surge, c.unavailable), c.of)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(limits).To(Equal(c.want))
		})
	}
	for _, c := range [][2]string{{"-1", ""}, {"", "-1"}, {"-50%", ""}, {"", "-50%"}, {"x", ""}, {"", "x"}, {"", "10"}} {
		_, err := Resolve(strategy(c[0], c[1]), 10)
		NewWithT(t).Expect(err != nil).To(Equal(c[1] != "10"), "%v", c)
	}
}

// As many may be on their way as may be above and missing, and one in any case.
func TestHowManyMayBeOnTheirWay(t *testing.T) {
	for limits, want := range map[Limits]int{{}: 1, {Surge: 1}: 1, {Unavailable: 1}: 1, {1, 1}: 2, {3, 2}: 5} {
		NewWithT(t).Expect(limits.concurrency()).To(Equal(want), "%+v", limits)
	}
}

func strategy(surge, unavailable string) quoinv1.RolloutStrategy {
	of := func(text string) *intstr.IntOrString {
		if text == "" {
			return nil
		}
		return ptr.To(intstr.Parse(text))
	}
	return quoinv1.RolloutStrategy{MaxSurge: of(surge), MaxUnavailable: of(unavailable)}
}

// What a group does not set it inherits, whatever else it sets: for each field every pair of nothing, an empty strategy
// and two values, which are the cases of kOps' own test. Nothing of the policy is changed by that.
//
// Proves: S3-22
func TestAGroupInheritsEachFieldThatItDoesNotSet(t *testing.T) {
	one := quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{MinAvailable: ptr.To(intstr.FromInt32(1)),
		Waves: quoinv1.RolloutWavesFailureDomain}, MaxSurge: ptr.To(intstr.FromInt32(0)),
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), DrainAndTerminate: ptr.To(false)}
	two := quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{MinAvailable: ptr.To(intstr.FromString("50%")),
		Waves: quoinv1.RolloutWavesNone}, MaxSurge: ptr.To(intstr.FromInt32(2)),
		MaxUnavailable: ptr.To(intstr.FromInt32(2)), DrainAndTerminate: ptr.To(true)}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[quoinv1.RolloutStrategy]()) {
		if field.Anonymous {
			continue
		}
		value := func(of quoinv1.RolloutStrategy) reflect.Value { return reflect.ValueOf(of).FieldByIndex(field.Index) }
		only := func(of quoinv1.RolloutStrategy) *quoinv1.RolloutStrategy {
			s := &quoinv1.RolloutStrategy{}
			reflect.ValueOf(s).Elem().FieldByIndex(field.Index).Set(value(of))
			return s
		}
		all := []*quoinv1.RolloutStrategy{nil, {}, only(one), only(two)}
		for i, common := range all {
			for j, own := range all {
				g := NewWithT(t)
				policy := &quoinv1.RolloutPolicySpec{Strategy: common, Groups: []quoinv1.RolloutGroup{{}, {Strategy: own}}}
				before := policy.DeepCopy()
				want := ptr.Deref(common, quoinv1.RolloutStrategy{})
				if own != nil && !value(*own).IsZero() {
					want = *own
				}
				g.Expect(*StrategyOf(policy, 1)).To(Equal(want), "%s: %d of the policy and %d of the group", field.Name, i, j)
				g.Expect(*StrategyOf(policy, 0)).To(Equal(ptr.Deref(common, quoinv1.RolloutStrategy{})))
				g.Expect(policy).To(Equal(before))
			}
		}
		others := one
		reflect.ValueOf(&others).Elem().FieldByIndex(field.Index).Set(value(two))
		NewWithT(t).Expect(*StrategyOf(&quoinv1.RolloutPolicySpec{Strategy: &one,
			Groups: []quoinv1.RolloutGroup{{Strategy: only(two)}}}, 0)).To(Equal(others), "%s alone", field.Name)
	}
	g := NewWithT(t)
	policy := &quoinv1.RolloutPolicySpec{Strategy: &one, Groups: []quoinv1.RolloutGroup{{
		MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}}, Strategy: ptr.To(strategy("3", ""))}}}
	arranged, err := arrange([]Pool{{Name: "blue", Replicas: 8, Stock: Limits{Surge: 4, Unavailable: 2}}}, policy)
	g.Expect(err).NotTo(HaveOccurred())
	of := arranged[0]
	g.Expect(of.limits).To(Equal(Limits{3, 1}))
	g.Expect(of.leaving).To(Equal(leaving{waves: true, least: 1}))
	g.Expect(of.off()).To(BeTrue())
	g.Expect(Guards(policy, "blue", nil)).To(BeTrue())
}

// Proves: S3-22, K-5
func TestTheLowerLimitCounts(t *testing.T) {
	g := NewWithT(t)
	pool := Pool{Name: "blue", Replicas: 8, Stock: Limits{Surge: 4, Unavailable: 1}}
	for i := range 10 {
		pool.Machines = append(pool.Machines, Machine{Name: fmt.Sprint(i), Hosted: true, Deleting: i < 2})
	}
	policy := &quoinv1.RolloutPolicySpec{}
	limits := func() Limits {
		arranged, err := arrange([]Pool{pool}, policy)
		g.Expect(err).NotTo(HaveOccurred())
		return arranged[0].limits
	}
	g.Expect(limits()).To(Equal(pool.Stock), "a policy that says nothing leaves the MachineDeployment's")
	policy.Strategy = ptr.To(strategy("2", ""))
	g.Expect(limits()).To(Equal(Limits{2, 0}), "nothing is missing where something is made beforehand")
	policy.Strategy = ptr.To(strategy("", "1"))
	g.Expect(limits()).To(Equal(Limits{1, 1}), "one is made beforehand by default")
	policy.Strategy = ptr.To(strategy("31%", "50%"))
	g.Expect(limits()).To(Equal(Limits{3, 1}), "31% of the 8 replicas, and not of what surges beside them")
	pool.Replicas = 12
	g.Expect(limits()).To(Equal(Limits{4, 1}), "31% of the 10 that there are")
	all := pool.Machines
	pool.Machines = nil
	g.Expect(limits()).To(Equal(Limits{1, 1}), "where none is there one can be made")
	policy.Strategy = ptr.To(strategy("100%", "0"))
	g.Expect(limits()).To(Equal(Limits{1, 0}), "and no more than one")
	pool.Machines = all
	policy.Strategy = ptr.To(strategy("1", "0"))
	g.Expect(limits()).To(Equal(Limits{1, 0}))
	policy.Groups = []quoinv1.RolloutGroup{{Name: "g", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"blue"}},
		Strategy: ptr.To(strategy("3", ""))}}
	g.Expect(limits()).To(Equal(Limits{3, 0}), "a group's own")
	policy.Groups[0].Strategy = ptr.To(strategy("x", ""))
	_, err := arrange([]Pool{pool}, policy)
	g.Expect(err).To(MatchError(HavePrefix("MachineDeployment blue: maxSurge: ")))
	policy.Groups[0].Strategy = &quoinv1.RolloutStrategy{}
	policy.Groups[0].Strategy.MinAvailable = ptr.To(intstr.FromString("x"))
	_, err = arrange([]Pool{pool}, policy)
	g.Expect(err).To(MatchError(HavePrefix("MachineDeployment blue: minAvailable: ")))
}
