// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Component is a part of Kubernetes with a version of its own.
type Component string

// The components that a Policy may bound.
const (
	ControllerManager      Component = "kube-controller-manager"
	Scheduler              Component = "kube-scheduler"
	CloudControllerManager Component = "cloud-controller-manager"
	Kubelet                Component = "kubelet"
	KubeProxy              Component = "kube-proxy"
	Etcd                   Component = "etcd"
	Kubectl                Component = "kubectl"
)

// Policy bounds how far the versions in one cluster may be apart. Policies are the files in the folder policies.
type Policy struct {
	Name       string       `json:"name"`
	APIServers APIServers   `json:"apiServers"`
	Components []Constraint `json:"components,omitempty"`
	Maintained Maintained   `json:"maintained,omitzero"`
	Runtimes   []Runtime    `json:"runtimes,omitempty"`
	Cgroups    []Cgroup     `json:"cgroups,omitempty"`
	Etcd       *EtcdRules   `json:"etcd,omitempty"`
	// LocalKubelets has the kubelets of a control plane talk to the API server of their own node.
	LocalKubelets *LocalKubelets `json:"localKubelets,omitempty"`
	// Kubeadm bounds the kubeadm of a host.
	Kubeadm *KubeadmBounds `json:"kubeadm,omitempty"`
	// Distribution are the rules of a distribution, which take the place of Components.
	Distribution *Distribution `json:"distribution,omitempty"`
}

// Runtime is a series of a container runtime.
type Runtime struct {
	Name  string `json:"name"`
	Major int    `json:"major"`
	// Last is the last minor of the kubelet that supports the series.
	Last uint64 `json:"last"`
	Rule Rule   `json:"rule"`
}

// Cgroup is a version of the kernel's control groups.
type Cgroup struct {
	Version int32 `json:"version"`
	// Last is the last minor of the kubelet that starts on it without being told to.
	Last uint64 `json:"last"`
	Rule Rule   `json:"rule"`
}

// APIServers bounds the API servers among each other.
type APIServers struct {
	Apart Spread `json:"apart"`
	// Back is the rule that they never go back to an earlier version.
	Back Rule `json:"back"`
}

// Spread is how many minors lie between the newest and the oldest.
type Spread struct {
	Minors uint64 `json:"minors"`
	Rule   Rule   `json:"rule"`
	// Step is the rule that is named when an API server is about to get another version.
	Step Rule `json:"step"`
}

// Constraint bounds a component by the API servers that it talks to.
type Constraint struct {
	Component Component `json:"component"`
	// Newer is how far it may be ahead of the oldest of them, Older how far behind the newest.
	Newer Bound `json:"newer"`
	Older Bound `json:"older"`
	// Mixed is the rule that is named while the API servers are of more than one minor.
	Mixed Rule `json:"mixed"`
	// Step is the rule that is named when an API server is about to get another version; empty where that is nobody's
	// business.
	Step Rule `json:"step,omitempty"`
	// Kubelet bounds how far it may be from the kubelet of its own node, in either direction.
	Kubelet *Bound `json:"kubelet,omitempty"`
}

// Bound is a number of minors.
type Bound struct {
	Minors uint64 `json:"minors"`
	Rule   Rule   `json:"rule"`
	// Before is the bound of components of an earlier minor.
	Before *Before `json:"before,omitempty"`
}

// Before is the bound of components before a minor.
type Before struct {
	Minor  uint64 `json:"minor"`
	Minors uint64 `json:"minors"`
}

// of is the bound of a component of this minor.
func (b Bound) of(minor uint64) uint64 {
	if b.Before != nil && minor < b.Before.Minor {
		return b.Before.Minors
	}
	return b.Minors
}

//go:embed policies
var files embed.FS

var policies = load(files)

// load reads the files; one that cannot be read is a defect of the program.
func load(files fs.FS) map[string]Policy {
	all := map[string]Policy{}
	entries, err := fs.ReadDir(files, "policies")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		content, err := fs.ReadFile(files, path.Join("policies", entry.Name()))
		if err != nil {
			panic(err)
		}
		policy := Policy{}
		if err := yaml.UnmarshalStrict(content, &policy); err != nil {
			panic(fmt.Errorf("policy %s: %w", entry.Name(), err))
		}
		all[policy.Name] = policy
	}
	return all
}

// DefaultPolicy is the name of the policy that holds for every Cluster.
const DefaultPolicy = "Kubernetes"

// DefaultPolicies is the policy that holds for every Cluster, alone.
func DefaultPolicies() []Policy { return []Policy{policies[DefaultPolicy]} }

// Policies that hold for a Cluster: the default one and those that names lists, separated by commas. What one of them
// refuses is refused, so the strictest holds.
func Policies(names string) ([]Policy, error) {
	chosen := DefaultPolicies()
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		policy, known := policies[name]
		switch {
		case name == "" || name == DefaultPolicy:
		case !known:
			return nil, fmt.Errorf("there is no version-skew policy %q; known are %s", name, strings.Join(Names(), ", "))
		default:
			chosen = append(chosen, policy)
		}
	}
	return chosen, nil
}

// Names of all policies, sorted.
func Names() []string {
	var names []string
	for name := range policies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
