// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// vector is a line of testdata/vectors.yaml.
type vector struct {
	Policy, Row, Names string
	// Says is a part of what a refusal says.
	Says string
	// Waits is of what is too new, for which the API servers may follow. Edit is what tests of whole clusters await.
	Waits bool
	Edit  string
	API   []int
	To    int

	Kubelet           int
	ControllerManager int `json:"kube-controller-manager"`
	Scheduler         int `json:"kube-scheduler"`
	CloudController   int `json:"cloud-controller-manager"`
	Kubectl           int
	KubeProxy         int `json:"kube-proxy"`
	// Beside is the kubelet of the same node, Local the only API server that the component talks to.
	Beside, Local int
	// Kubeadm makes or joins what the following are of.
	Kubeadm, Installs, Cluster int
	// Joins is a kubelet that joins the API servers, with the kubeadm that is chosen for it.
	Joins int
	// Etcd is the version of a member, LocalKubelets the feature gate of kubeadm.
	Etcd          string
	LocalKubelets *bool
	// Runtime and Cgroup are of the kubelet's host.
	Runtime string
	Cgroup  int32
	// Target is what a cluster is to get, whatever it runs.
	Target int
}

// read reads vectors from a file of testdata.
func read(t *testing.T, name string, vectors any) {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, vectors); err != nil {
		t.Fatal(err)
	}
}

// judge asks what the vector is about.
func (v vector) judge(policy Policy) []Violation {
	host := cmp.Or(RuntimeEnded(v.Runtime, of(v.Kubelet)), CgroupEnded(v.Cgroup, of(v.Kubelet)))
	ended := Unmaintained(of(v.Target))
	switch {
	case ended != "":
		return []Violation{{Rule: Rule(v.Row), message: saying("%s: go to a later one", ended)}}
	case host != "":
		return []Violation{{Rule: Rule(v.Row), message: saying("%s: bring another host", host)}}
	case v.Runtime != "" || v.Cgroup != 0:
		return nil
	case v.Etcd != "" || v.LocalKubelets != nil:
		world, tells := v.world(), Kubeadm{Version: of(v.To)}
		world.Components = append(world.Components, Running{Component: Etcd, Version: v.Etcd, Object: "Pod etcd-1"})
		if v.LocalKubelets != nil {
			tells.FeatureGates = map[string]bool{policy.LocalKubelets.Gate: *v.LocalKubelets}
		}
		return tells.Judge([]Policy{policy}, world, Kubeadm{Version: of(v.API[0])})
	case v.To != 0:
		return policy.CheckStep(v.world(), of(v.To))
	case v.Joins != 0:
		servers := v.world().APIServers
		return policy.CheckInstaller(Installer{Object: "Machine w1", Version: JoiningKubeadm(of(v.Joins), servers...),
			Kubelet: of(v.Joins), Cluster: Oldest(servers...)})
	case v.Kubeadm != 0:
		return policy.CheckInstaller(Installer{Object: "Machine w1", Version: of(v.Kubeadm),
			Installs: of(v.Installs), Kubelet: of(v.Beside), Cluster: of(v.Cluster)})
	}
	return policy.Check(v.world())
}

func (v vector) world() World {
	world := World{}
	for _, minor := range v.API {
		world.APIServers = append(world.APIServers, of(minor))
	}
	for component, minor := range map[Component]int{
		Kubelet: v.Kubelet, ControllerManager: v.ControllerManager, Scheduler: v.Scheduler,
		CloudControllerManager: v.CloudController,
		Kubectl:                v.Kubectl, KubeProxy: v.KubeProxy,
	} {
		if minor > 0 {
			world.Components = append(world.Components, Running{Component: component, Version: of(minor), Object: "Node n1",
				APIServer: of(v.Local), Kubelet: of(v.Beside)})
		}
	}
	return world
}

func of(minor int) string {
	if minor == 0 {
		return ""
	}
	return fmt.Sprintf("v1.%d.3", minor)
}

// Proves: R1, R2, R3, R8, R9, R21, S1-3, S1-4, S1-5, S1-6, S1-14, S1-15, S1-17, C5
//
// Each rule allows something and refuses something, by its own name. Rows of components that nothing reads yet are not
// claimed.
func TestVectors(t *testing.T) {
	var vectors []vector
	read(t, "vectors", &vectors)
	allowed, refused := map[string]bool{}, map[string]bool{}
	for i, v := range vectors {
		t.Run(fmt.Sprintf("%d %s %s", i, v.Policy, v.Row), func(t *testing.T) {
			g := NewWithT(t)
			policy, known := policies[v.Policy]
			g.Expect(known).To(BeTrue())
			violations := v.judge(policy)
			if v.Names == "" {
				g.Expect(violations).To(BeEmpty())
				allowed[v.Row] = true
				return
			}
			g.Expect(rules(violations)).To(Equal(v.Names), Summary(violations))
			g.Expect(Summary(violations)).To(ContainSubstring(v.Says))
			if v.Waits {
				g.Expect(violations).To(HaveEach(HaveField("Ahead", true)))
			}
			for _, violation := range violations {
				g.Expect(violation.Message()).To(And(ContainSubstring(string(violation.Rule)), MatchRegexp("bring|go to|set")))
			}
			refused[v.Row] = true
		})
	}
	g := NewWithT(t)
	for _, v := range vectors {
		g.Expect(allowed).To(HaveKey(v.Row))
		g.Expect(refused).To(HaveKey(v.Row))
	}
}

// A rule that a policy names has a case that is named after it, for reviewers who read no Go.
func TestEveryRuleOfAPolicyHasACase(t *testing.T) {
	g := NewWithT(t)
	read := func(pattern string) (text string) {
		files, err := filepath.Glob(pattern)
		g.Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			text += string(content)
		}
		return text
	}
	rules := regexp.MustCompile(`: (R[0-9]+|S[01]-[0-9]+)\b`).FindAllStringSubmatch(read("policies/*.yaml"), -1)
	g.Expect(len(rules)).To(BeNumerically(">", 60))
	cases := read("testdata/*.yaml")
	for _, rule := range rules {
		g.Expect(cases).To(MatchRegexp("row: %s,", rule[1]))
	}
}

func TestWhatARefusalSays(t *testing.T) {
	g := NewWithT(t)
	policy := policies[DefaultPolicy]
	kubelet := func(version string) World {
		return World{APIServers: []string{"v1.36.3"},
			Components: []Running{{Component: Kubelet, Version: version, Object: "Machine w1"}}}
	}
	g.Expect(Summary(policy.CheckStep(kubelet("v1.33.2"), "v1.37.0"))).To(Equal(
		"kubelet v1.33.2 of Machine w1 is older than API server v1.37.0 by 4 minors, of which at most 3 are " +
			"supported (R9): bring it to v1.34 or later first"))
	g.Expect(Summary(policy.Check(kubelet("v1.37.0")))).To(Equal(
		"kubelet v1.37.0 of Machine w1 is newer than API server v1.36.3 by 1 minor, which is not supported (R2): bring the " +
			"API servers to v1.37 first"))
	g.Expect(Summary(policy.CheckStep(kubelet("v1.36.3"), "v1.38.0"))).To(Equal(
		"version v1.38.0 skips a minor after v1.36.3: a control plane moves one minor at a time; go to v1.37 first (R8)"))
	g.Expect(Summary(policy.CheckStep(kubelet("v1.36.3"), "v1.36.2"))).To(Equal(
		"version v1.36.2 is older than v1.36.3, which already runs: a control plane never goes back; set v1.36.3 or later " +
			"(R21)"))
	g.Expect(Summary(policy.Check(World{APIServers: []string{"v1.36.3", "v1.38.0"}}))).To(Equal(
		"API servers v1.36.3 and v1.38.0 are 2 minors apart, at most 1 is supported (R1): go to v1.37 first"))
	g.Expect(Summary(policy.Check(World{APIServers: []string{"v2.1.0"}, Components: kubelet("v1.36.3").Components}))).To(
		Equal("kubelet v1.36.3 of Machine w1 is older than API server v2.1.0 by a major, of which at most 3 are supported " +
			"(R2): bring it to v2.0 or later first"))
	g.Expect(Summary(policy.CheckStep(kubelet("v1.36.3"), "latest"))).To(ContainSubstring("is not a semantic version"))
	g.Expect(policy.Check(kubelet("latest"))).To(BeEmpty(), "nothing is known")
	g.Expect(Summary(policy.Check(World{APIServers: []string{"latest"}, Components: kubelet("v1.40.0").Components}))).
		To(BeEmpty(), "nothing is known")
	many := kubelet("v1.30.0")
	for i := range 9 {
		many.Components = append(many.Components, Running{Component: Kubelet, Version: "v1.30.0",
			Object: fmt.Sprintf("Machine x%d", i)})
	}
	g.Expect(Summary(policy.Check(many))).To(And(MatchRegexp("of Machine w1 .* of Machine x0 .* of Machine x1 "),
		HaveSuffix("; and 7 more")))
	g.Expect(Summary(policy.Check(many)[:4])).To(HaveSuffix("; and 1 more"))
	g.Expect(Summary(policy.Check(many)[:3])).NotTo(ContainSubstring(" more"))
}

// Proves: S1-11, C5
//
// Every policy that is chosen holds, so the strictest does; none makes another looser.
func TestTheStrictestPolicyHolds(t *testing.T) {
	g := NewWithT(t)
	refused := func(names string, kubelet int) (refused bool) {
		chosen, err := Policies(names)
		g.Expect(err).NotTo(HaveOccurred())
		for _, policy := range chosen {
			refused = refused || len(policy.Check(vector{API: []int{37}, Kubelet: kubelet}.world())) > 0
		}
		return refused
	}
	g.Expect(refused("", 34)).To(BeFalse())
	g.Expect(refused("Kubernetes-1.24", 34)).To(BeTrue())
	g.Expect(refused("Kubernetes-1.24, Kubernetes", 35)).To(BeFalse())
	g.Expect(refused("Kubernetes-1.24", 33)).To(BeTrue())
	_, err := Policies("Kubernetes-1.2")
	g.Expect(err).
		To(
			MatchError(`there is no version-skew policy "Kubernetes-1.2"; known are Distribution, Kubernetes, Kubernetes-1.24`))
}

// Proves: S0-22, S1-1
func TestVendorsCountTheirBuilds(t *testing.T) {
	ordered := []string{
		"v1.9.0", "v1.30.20-gke.300", "v1.30.100-gke.96", "1.30.100-gke.162", "v1.30.100", "v1.36.3", "v1.36.3+10",
		"v1.36.3+alpha1", "v1.36.3+k3s1", "v1.36.3+k3s2", "v1.36.3+k3s9", "v1.36.3+k3s10", "v1.36.3+k3s010x",
		"v1.36.3+rke2r1", "v1.36.4-rc.1", "v1.36.4",
	}
	for i, earlier := range ordered {
		for j, later := range ordered {
			t.Run(earlier+" and "+later, func(t *testing.T) {
				NewWithT(t).Expect(Older(earlier, later)).To(Equal(i < j))
			})
		}
	}
}

// Proves: C14
//
// The document of 1.24 prints a kubectl of 1.29 beside API servers of 1.24, and no version of a kubelet at all where it
// says which may stay behind. Its rules count minors, and so does the policy, whatever the minor.
func TestFormulasStandWhereTheTextHasGaps(t *testing.T) {
	g := NewWithT(t)
	for server := 20; server < 40; server++ {
		var kubectl, stays []int
		for minor := server - 6; minor <= server+6; minor++ {
			if len(policies["Kubernetes-1.24"].Check(vector{API: []int{server}, Kubectl: minor}.world())) == 0 {
				kubectl = append(kubectl, minor-server)
			}
			chosen, err := Policies("Kubernetes-1.24")
			g.Expect(err).NotTo(HaveOccurred())
			refused, waits := Pool{Version: of(minor)}.Judge(chosen, vector{API: []int{server}}.world())
			if len(refused)+len(waits) == 0 {
				stays = append(stays, minor-server)
			}
		}
		g.Expect(kubectl).To(Equal([]int{-1, 0, 1}), "API servers of minor %d", server)
		g.Expect(stays).To(Equal([]int{-2, -1, 0}), "API servers of minor %d", server)
	}
}

// A file that cannot be read, or has a word that nobody knows, ends the program before it judges.
func TestAPolicyThatCannotBeRead(t *testing.T) {
	for says, files := range map[string]fstest.MapFS{
		"open policies":              {},
		"read policies.a.yaml":       {"policies/a.yaml/b": {}},
		"policy a.yaml: .*\"skews\"": {"policies/a.yaml": {Data: []byte("skews: 1")}},
	} {
		NewWithT(t).Expect(func() { load(files) }).To(PanicWith(MatchError(MatchRegexp(says))))
	}
}
