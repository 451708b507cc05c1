// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// The members of a control plane follow its version, or the tag of etcd's image.
func TestEtcdFollowsItsControlPlane(t *testing.T) {
	for name, c := range map[string]struct {
		member        string
		before, after Kubeadm
		refused       string
		// beside is another member.
		beside string
	}{
		"3.5.26 to 3.6": {member: "3.5.26-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.34.1"}},
		"3.5.21 to 3.6": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.34.1"}, refused: "R18"},
		"3.4 to 3.6": {member: "3.4.30-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.34.1"}, refused: "R18"},
		"3.5.21 stays at its minor": {member: "3.5.21-0", before: Kubeadm{Version: "v1.32.4"},
			after: Kubeadm{Version: "v1.33.1"}},
		"3.5.9 comes to its minor": {member: "3.5.9-0", before: Kubeadm{Version: "v1.30.4"},
			after: Kubeadm{Version: "v1.31.1"}},
		"3.6 stays at its minor": {member: "3.6.5-0", before: Kubeadm{Version: "v1.34.4"},
			after: Kubeadm{Version: "v1.35.1"}},
		"3.5.21 is held by its tag": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4", EtcdTag: "3.5.21-0"},
			after: Kubeadm{Version: "v1.34.1", EtcdTag: "3.5.21-0"}},
		"3.5.21 to 3.6 by a tag": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.33.4", EtcdTag: "3.6.5-0"}, refused: "R18"},
		"3.5.21 to 3.5.26 by a tag": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.33.4", EtcdTag: "3.5.26-0"}},
		"3.5.21 without its tag": {member: "3.5.21-0", before: Kubeadm{Version: "v1.34.1", EtcdTag: "3.5.21-0"},
			after: Kubeadm{Version: "v1.34.1"}, refused: "R18"},
		"3.6 goes back by a tag": {member: "3.6.5-0", before: Kubeadm{Version: "v1.34.1"},
			after: Kubeadm{Version: "v1.34.1", EtcdTag: "3.5.26-0"}, refused: "R21"},
		"3.6 goes back without its tag": {member: "3.6.5-0", before: Kubeadm{Version: "v1.33.4", EtcdTag: "3.6.5-0"},
			after: Kubeadm{Version: "v1.33.4"}, refused: "R21"},
		"3.5.21 beside one that is 3.6": {member: "3.5.21-0", beside: "3.6.5-0", before: Kubeadm{},
			after: Kubeadm{Version: "v1.34.1"}},
		"3.6 beside one that is to come back": {member: "3.6.5-0", beside: "3.5.26-0", before: Kubeadm{},
			after: Kubeadm{Version: "v1.33.4", EtcdTag: "3.5.26-0"}, refused: "R21"},
		"what a later kubeadm brings": {member: "3.7.1-0", before: Kubeadm{}, after: Kubeadm{Version: "v1.38.1"}},
		"what it brings, back by a tag": {member: "3.7.1-0", before: Kubeadm{},
			after: Kubeadm{Version: "v1.38.1", EtcdTag: "3.6.5-0"}, refused: "R21"},
		"a patch in an illegal step": {member: "3.5.21-0", before: Kubeadm{Version: "v1.34.1"},
			after: Kubeadm{Version: "v1.34.2"}},
		"etcd of others": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.34.1", ExternalEtcd: true}},
		"a tag of somebody's own": {member: "3.5.21-0", before: Kubeadm{Version: "v1.33.4"},
			after: Kubeadm{Version: "v1.34.1", EtcdTag: "ours"}},
		"a member nobody knows": {member: "", before: Kubeadm{Version: "v1.33.4"}, after: Kubeadm{Version: "v1.34.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			world := World{Components: []Running{{Component: Etcd, Version: c.member, Object: "Pod etcd-1"},
				{Component: Etcd, Version: c.beside, Object: "Pod etcd-2"}, {Component: Kubelet, Version: "v3.6.1"}}}
			NewWithT(t).Expect(rules(c.after.Judge([]Policy{policies[DefaultPolicy]}, world, c.before))).To(Equal(c.refused))
		})
	}
	g := NewWithT(t)
	world := World{Components: []Running{{Component: Etcd, Version: "3.5.21-0", Object: "Pod etcd-1"}}}
	g.Expect(Summary(Kubeadm{Version: "v1.34.1"}.Judge([]Policy{policies[DefaultPolicy]}, world,
		Kubeadm{Version: "v1.33.1"}))).To(Equal(
		"etcd v3.5.21-0 of Pod etcd-1 is to become v3.6, which only v3.5.26 and later may: bring it there first, by " +
			"etcd.local.imageTag " +
			"and with the version that the control plane has (R18)"))
}

func TestKubeletsOfAControlPlaneStayLocal(t *testing.T) {
	off := map[string]bool{"ControlPlaneKubeletLocalMode": false}
	for name, c := range map[string]struct {
		from, to string
		gates    map[string]bool
		refused  string
	}{
		"by default":              {"v1.34.1", "v1.35.1", nil, ""},
		"with the gate":           {"v1.34.1", "v1.35.1", map[string]bool{"ControlPlaneKubeletLocalMode": true}, ""},
		"without it":              {"v1.34.1", "v1.35.1", off, "R17"},
		"without it, for a patch": {"v1.35.1", "v1.35.2", off, ""},
		"before there was one":    {"v1.29.1", "v1.30.1", off, ""},
		"from the first":          {"v1.30.1", "v1.31.1", off, "R17"},
		"when it is gone":         {"v1.35.1", "v1.36.1", off, ""},
		"before anything runs":    {"", "v1.35.1", off, ""},
		"another patch, later on": {"v1.34.1 v1.35.1", "v1.35.2", off, ""},
	} {
		t.Run(name, func(t *testing.T) {
			world := World{APIServers: strings.Fields(c.from)}
			after := Kubeadm{Version: c.to, FeatureGates: c.gates}
			NewWithT(t).Expect(rules(after.Judge([]Policy{policies[DefaultPolicy]}, world, Kubeadm{Version: c.from}))).
				To(Equal(c.refused))
		})
	}
}

// Of several versions each is judged, and what only kubeadm knows is said.
func TestEtcdFollowsItsControlPlaneOverSeveralMinors(t *testing.T) {
	for name, c := range map[string]struct {
		member, tag      string
		hops             []string
		refused, unknown string
		external         bool
		gates            map[string]bool
	}{
		"one":        {member: "3.5.26-0", hops: []string{"v1.34.1"}},
		"one of two": {member: "3.5.21-0", hops: []string{"v1.34.1", "v1.35.1"}, refused: "R18"},
		"both":       {member: "3.5.26-0", hops: []string{"v1.34.1", "v1.35.1"}},
		"by what comes": {member: "3.5.16-0", hops: []string{"v1.33.4", "v1.34.1"},
			unknown: "if v1.33.4 brings an earlier one"},
		"whatever comes": {member: "3.5.21-0", tag: "3.5.21-0", hops: []string{"v1.33.4", "v1.34.1"}},
		"the later one": {member: "3.5.26-0", hops: []string{"v1.34.1", "v1.35.1"}, refused: "R17",
			gates: map[string]bool{"ControlPlaneKubeletLocalMode": false}},
		"etcd of others":           {member: "3.5.16-0", external: true, hops: []string{"v1.33.4", "v1.34.1"}},
		"stays at its minor":       {member: "3.5.16-0", hops: []string{"v1.32.4", "v1.33.1"}},
		"when it becomes known":    {member: "3.5.16-0", hops: []string{"v1.30.4", "v1.31.1"}},
		"when it is known no more": {member: "3.5.16-0", hops: []string{"v1.31.4", "v1.30.1"}},
		"none":                     {member: "3.5.26-0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			world := World{APIServers: []string{"v1.33.1"},
				Components: []Running{{Component: Etcd, Version: c.member, Object: "Pod etcd-1"}}}
			told := Kubeadm{Version: "v1.33.1", EtcdTag: c.tag, ExternalEtcd: c.external, FeatureGates: c.gates}
			chosen := []Policy{policies["Kubernetes-1.24"], policies[DefaultPolicy]} // the first says nothing of etcd
			violations, unknown := told.JudgeHops(chosen, world, told, c.hops)
			g.Expect(rules(violations)).To(Equal(c.refused))
			if c.unknown == "" {
				g.Expect(unknown).To(BeEmpty())
			}
			g.Expect(unknown).To(ContainSubstring(c.unknown))
		})
	}
}
