// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"slices"

	"github.com/Masterminds/semver/v3"
)

// EtcdRules bound the steps of etcd, whose members kubeadm makes together with the API servers.
type EtcdRules struct {
	// Installed are the minors that kubeadm brings, in order.
	Installed []EtcdInstalled `json:"installed"`
	// Back is the rule that etcd never goes back to an earlier minor.
	Back  Rule       `json:"back"`
	Steps []EtcdStep `json:"steps"`
}

// EtcdInstalled is what kubeadm brings from a minor of Kubernetes on.
type EtcdInstalled struct {
	Since   uint64 `json:"since"`
	Version string `json:"version"`
}

// EtcdStep is a minor of etcd that may be reached from a version of the minor before, or a later one.
type EtcdStep struct {
	From string `json:"from"`
	To   string `json:"to"`
	Rule Rule   `json:"rule"`
}

// LocalKubelets is a feature gate of kubeadm, which exists from one minor until another.
type LocalKubelets struct {
	Gate  string `json:"gate"`
	Since uint64 `json:"since"`
	Until uint64 `json:"until"`
	Rule  Rule   `json:"rule"`
}

// Kubeadm is what kubeadm is told of a control plane.
type Kubeadm struct {
	Version string
	// EtcdTag is the tag of etcd's image; empty when kubeadm chooses. Nothing is said of etcd where ExternalEtcd is set.
	EtcdTag      string
	ExternalEtcd bool
	FeatureGates map[string]bool
}

// Judge lists what the policies do not allow of the change from what kubeadm was told before, in a world whose
// components hold the members of etcd. What was asked for already is not judged again, but with the next minor.
func (k Kubeadm) Judge(policies []Policy, world World, before Kubeadm) []Violation {
	var violations []Violation
	for _, policy := range policies {
		if policy.Etcd != nil && !k.ExternalEtcd {
			from, to := policy.Etcd.wanted(before), policy.Etcd.wanted(k)
			if to != nil && (from == nil || distance(from, to) > 0 || OtherMinor(before.Version, k.Version)) {
				violations = append(violations, policy.Etcd.judge(world, to, k.EtcdTag == "")...)
			}
		}
		if policy.LocalKubelets != nil {
			violations = append(violations, policy.LocalKubelets.judge(world, k)...)
		}
	}
	return violations
}

// JudgeHops judges versions that a control plane gets one after another, of which the first is the next one in the
// world. What of them only the live gate can judge is unknown, because it depends on what an earlier one brings.
func (k Kubeadm) JudgeHops(
	policies []Policy, world World, before Kubeadm, hops []string,
) (violations []Violation, unknown string) {
	for i, hop := range hops {
		k.Version = hop
		if violations := k.Judge(policies, world, before); len(violations) > 0 {
			return violations, ""
		}
		if i > 0 && unknown == "" {
			unknown = k.unsure(policies, before)
		}
		before, world = k, World{APIServers: []string{hop}}
	}
	return nil, unknown
}

// unsure says which etcd has to come with the version before, of whose patches only kubeadm knows.
func (k Kubeadm) unsure(policies []Policy, before Kubeadm) string {
	for _, policy := range policies {
		if policy.Etcd == nil || k.ExternalEtcd {
			continue
		}
		from, to := policy.Etcd.wanted(before), policy.Etcd.wanted(k)
		if from == nil || to == nil {
			continue
		}
		for _, step := range policy.Etcd.Steps {
			if distance(semver.MustParse(step.To), to) == 0 && from.LessThan(semver.MustParse(step.From)) {
				return saying("with %s etcd becomes v%s, which only v%s and later may: before that, the control plane waits "+
					"if %s brings an earlier one (%s)", k.Version, step.To, step.From, before.Version, step.Rule)("")
			}
		}
	}
	return ""
}

// wanted is the etcd that kubeadm makes new members with; nil when that is not known.
func (e EtcdRules) wanted(k Kubeadm) *semver.Version {
	if tag, err := Parse(k.EtcdTag); err == nil {
		return tag
	}
	version, err := Parse(k.Version)
	if err != nil || k.EtcdTag != "" {
		return nil
	}
	var brought *semver.Version
	for _, installed := range e.Installed {
		if version.Minor() >= installed.Since {
			brought = semver.MustParse(installed.Version)
		}
	}
	return brought
}

// judge says which members may not become the version. A member of its minor that runs beside them mixes already what
// a further one would. Where the version is only guessed, by what kubeadm is known to bring, a member of a later minor
// than all of that says that the guess is wrong, and not that etcd goes back.
func (e EtcdRules) judge(world World, to *semver.Version, guessed bool) []Violation {
	begun := slices.ContainsFunc(world.Components, func(member Running) bool {
		if member.Component != Etcd {
			return false
		}
		own, err := Parse(member.Version)
		return err == nil && distance(own, to) == 0
	})
	known := semver.MustParse(e.Installed[len(e.Installed)-1].Version)
	var violations []Violation
	for _, member := range world.Components {
		if member.Component != Etcd {
			continue
		}
		own, err := Parse(member.Version)
		if err != nil {
			continue
		}
		say := func(rule Rule, format string, args ...any) {
			violations = append(violations, Violation{Rule: rule, Component: Etcd, object: member.Object, message: saying(
				"etcd %s of %s "+format+" (%s)", append(append([]any{text(own), member.Object}, args...), rule)...)})
		}
		if later(own, to) && (!guessed || !later(own, known)) {
			say(e.Back, "is newer than v%d.%d, and its data never go back: set an etcd.local.imageTag of v%d.%d or later",
				to.Major(), to.Minor(), own.Major(), own.Minor())
		}
		for _, step := range e.Steps {
			// The rest of an image's tag counts builds of it, and no versions of etcd.
			released := semver.New(own.Major(), own.Minor(), own.Patch(), "", "")
			if from := semver.MustParse(step.From); !begun && distance(semver.MustParse(step.To), to) == 0 &&
				released.LessThan(from) {
				say(step.Rule, "is to become v%s, which only v%s and later may: bring it there first, by "+
					"etcd.local.imageTag and with the version that the control plane has", step.To, step.From)
			}
		}
	}
	return violations
}

// judge says that a kubelet of the target's minor could reach an API server of an earlier one.
func (l LocalKubelets) judge(world World, k Kubeadm) []Violation {
	local, set := k.FeatureGates[l.Gate]
	target, err := Parse(k.Version)
	servers := parsed(world.APIServers)
	if !set || local || err != nil || target.Minor() < l.Since || target.Minor() >= l.Until {
		return nil
	}
	if len(servers) == 0 || !later(target, last(servers)) {
		return nil // none runs, or one of the minor already
	}
	return []Violation{{Rule: l.Rule, message: saying("feature gate %s is off, with which kubelets %s of the "+
		"control plane would talk to API servers %s as well: set it, or leave it out (%s)", l.Gate, text(target),
		text(last(servers)), l.Rule)}}
}
