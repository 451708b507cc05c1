// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// example is an entry of testdata/plans.yaml.
type example struct {
	Name, Policies, To string
	API, Proxy, Known  []string
	Pools              []Pool
	Beside             []skew.Running
	Limit              uint64
	Topology           bool

	Plan, Route, Refused string
	Rule                 skew.Rule
	Hops                 []string
}

func (e example) ask(t *testing.T) (Plan, error) {
	policies, err := skew.Policies(e.Policies)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request := Request{Target: e.To, Known: e.Known, Policies: policies,
		State: State{APIServers: e.API, Pools: e.Pools, KubeProxy: e.Proxy, Others: e.Beside}}
	if e.Topology {
		return OfTopology(request)
	}
	return For(request)
}

// Proves: R10
func TestPlans(t *testing.T) {
	content, err := os.ReadFile("testdata/plans.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var examples []example
	if err := yaml.UnmarshalStrict(content, &examples); err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		t.Run(e.Name, func(t *testing.T) {
			g := NewWithT(t)
			plan, err := e.ask(t)
			if e.Refused == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(plan.String()).To(Equal(e.Plan))
				if e.Route != "" {
					g.Expect(plan.Route()).To(Equal(e.Route))
				}
				return
			}
			var refused *RefusedError
			g.Expect(errors.As(err, &refused)).To(BeTrue(), fmt.Sprint(plan, err))
			g.Expect(refused.Error()).To(Equal(e.Refused))
			g.Expect(refused.Rule).To(Equal(e.Rule))
			g.Expect(refused.Hops).To(Equal(e.Hops))
			g.Expect(plan).To(BeZero())
		})
	}
}

// Proves: C10
func TestStateOfMachines(t *testing.T) {
	g := NewWithT(t)
	machine := func(name, version, deployment string, control bool) clusterv1.Machine {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		m.Spec.Version = version
		if deployment != "" {
			m.Labels[clusterv1.MachineDeploymentNameLabel] = deployment
		}
		if control {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
		}
		return m
	}
	g.Expect(StateOf([]clusterv1.Machine{
		machine("b1", "v1.35.4", "blue", false), machine("b2", "v1.34.1", "blue", false),
		machine("b3", "v1.35.4", "blue", false), machine("alone", "v1.33.2", "", false),
		machine("c1", "v1.36.3", "", true), machine("a1", "v1.36.3", "amber", false),
	})).To(Equal(State{
		APIServers: []string{"v1.36.3"},
		Pools: []Pool{{Object: "MachineDeployment amber", Versions: []string{"v1.36.3"}},
			{Object: "MachineDeployment blue", Versions: []string{"v1.35.4", "v1.34.1"}}},
		Others: []skew.Running{{Component: skew.Kubelet, Version: "v1.33.2", Object: "Machine alone"}},
	}))
}

// What a refusal adds is what comes first, by the plan.
func TestTheWayNamesWhatComesFirst(t *testing.T) {
	g := NewWithT(t)
	policies, err := skew.Policies("")
	g.Expect(err).NotTo(HaveOccurred())
	old := func(names ...string) State {
		state := State{APIServers: []string{"v1.36.3"}}
		for _, name := range names {
			state.Pools = append(state.Pools, Pool{Object: name, Versions: []string{"v1.33.1"}})
		}
		return state
	}
	g.Expect(old("blue").Onward(policies, "v1.37.0")).
		To(Equal("; raise blue to v1.36.3 first, then the control plane to v1.37.0"))
	g.Expect(old("a", "b", "c", "d", "e").Onward(policies, "v1.37.0")).
		To(Equal("; raise a to v1.36.3, b to v1.36.3, c to v1.36.3 and 2 more first, then the control plane to v1.37.0"))
	g.Expect(old("a", "b", "c", "d").Onward(policies, "v1.37.0")).To(ContainSubstring("c to v1.36.3 and 1 more first,"))
	g.Expect(old("a", "b", "c").Onward(policies, "v1.37.0")).To(ContainSubstring("c to v1.36.3 first,"))
	behind := old()
	behind.KubeProxy = []string{"v1.33.1"}
	g.Expect(behind.Onward(policies, "v1.37.0")).
		To(Equal("; raise add-ons to v1.36.3 first, then the control plane to v1.37.0"))
	g.Expect(old().Onward(policies, "v1.37.0")).To(BeEmpty(), "nothing comes first")
	g.Expect(old("blue").Onward(policies, "v1.36.4")).To(BeEmpty(), "nothing has to")
	stays := old()
	stays.Others = []skew.Running{{Component: skew.Kubelet, Version: "v1.33.1", Object: "Machine alone"}}
	g.Expect(stays.Onward(policies, "v1.37.0")).To(BeEmpty(), "no plan raises what is of no pool")
	older, err := skew.Policies("Kubernetes-1.24")
	g.Expect(err).NotTo(HaveOccurred())
	lags := State{APIServers: []string{"v1.35.4"}, Pools: old("blue").Pools}
	_, err = OfTopology(Request{State: lags, Target: "v1.36.3", Policies: older})
	g.Expect(err).To(MatchError(HaveSuffix("; raise blue to v1.35.4 first, then the control plane to v1.36.3")))
	g.Expect(Plan{}.Way()).To(BeEmpty())
}

// A state knows of its add-ons what runs as pods, and keeps what another one knows as it is.
func TestAddonsOfAState(t *testing.T) {
	g := NewWithT(t)
	known := append(make([]string, 0, 4), "v1.35.4")
	proxy := func(version string) skew.Running { return skew.Running{Component: skew.KubeProxy, Version: version} }
	kept := proxy("v1.33.1")
	kept.Kept = true
	state := State{KubeProxy: known}.WithAddons([]skew.Running{proxy("v1.35.4"), proxy("v1.36.3"),
		{Component: skew.Kubelet, Version: "v1.34.1"}, proxy("v1.36.3"), kept})
	g.Expect(state.KubeProxy).To(Equal([]string{"v1.35.4", "v1.36.3"}))
	g.Expect(state.Others).To(Equal([]skew.Running{kept}), "no plan changes it, and each minds it")
	g.Expect(known[:2]).To(Equal([]string{"v1.35.4", ""}))
}

// kube-proxy follows a control plane that is there, unless a policy forbids it beside the kubelets.
func TestWhatKubeProxyMayNotHave(t *testing.T) {
	for _, c := range []struct{ policies, proxy, kubelet, to, refused string }{
		{"", "v1.35.4", "v1.35.4", "v1.36.3", ""},
		{"", "v1.35.4", "v1.32.1", "v1.36.3", "(R7)"},
		{"Kubernetes-1.24", "v1.35.4", "v1.35.4", "v1.36.3", "(S1-25)"},
		{"Kubernetes-1.24", "v1.35.4", "v1.34.1", "v1.35.9", ""},
		{"Kubernetes-1.24", "", "v1.35.4", "v1.36.3", ""},
		{"Distribution", "v1.35.4", "v1.35.4", "v1.36.3", ""},
		{"", "v1.35.4", "v1.35.4", "latest", "is not a semantic version"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			g := NewWithT(t)
			policies, err := skew.Policies(c.policies)
			g.Expect(err).NotTo(HaveOccurred())
			state := State{APIServers: []string{"v1.35.4"}, KubeProxy: strings.Fields(c.proxy),
				Pools: []Pool{{Object: "blue", Versions: []string{c.kubelet}}}}
			refused := state.ProxyRefused(policies, c.to)
			g.Expect(refused).To(ContainSubstring(c.refused))
			g.Expect(refused == "").To(Equal(c.refused == ""), refused)
		})
	}
}

// Of thousands of kubelets each version is judged once, by the first that has it.
func TestKubeProxyIsJudgedBesideEachVersionOnce(t *testing.T) {
	g := NewWithT(t)
	policies, err := skew.Policies("Kubernetes-1.24")
	g.Expect(err).NotTo(HaveOccurred())
	state := State{KubeProxy: []string{"v1.35.4"},
		Pools: []Pool{{Object: "blue", Versions: []string{"v1.35.4", "v1.33.1"}},
			{Object: "green", Versions: []string{"v1.35.4"}}},
		Others: []skew.Running{{Component: skew.Kubelet, Version: "v1.33.1", Object: "Machine w1"}}}
	g.Expect(state.ProxyRefused(policies, "v1.36.3")).To(MatchRegexp(
		`^[^;]* beside blue is 3 minors from kubelet v1.33.1 [^;]*; [^;]* beside blue is 1 minor [^;]*$`))
}
