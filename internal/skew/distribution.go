// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Distribution holds the rules of a distribution's releases, and of the clusters that one of its clusters manages.
type Distribution struct {
	// Tool is the rule that a control plane is given the tool's version, Newest the one that recommends the newest patch,
	// List the one that minors are counted along the list of releases.
	Tool    Rule     `json:"tool"`
	Newest  Rule     `json:"newest"`
	List    Rule     `json:"list"`
	Managed Governed `json:"managed"`
	Pools   Governed `json:"pools"`
}

// Governed are the rules of what follows the version of a cluster.
type Governed struct {
	// Newer is the rule that it is never newer.
	Newer Rule `json:"newer"`
	// Listed is the rule that a release may list the versions.
	Listed Rule `json:"listed,omitempty"`
	// Sets of rules, of which the first holds that is not for a later minor.
	Sets []Set `json:"sets"`
}

// Set of rules that holds from a minor of the governing cluster on.
type Set struct {
	From uint64 `json:"from"`
	// Minors is how far the governed may be behind.
	Minors uint64 `json:"minors"`
	Rule   Rule   `json:"rule"`
	// Step is the rule that is named when the governing cluster is about to be raised.
	Step Rule `json:"step,omitempty"`
	// Alike is the rule that all governed are of one minor.
	Alike Rule `json:"alike,omitempty"`
	// Released is the rule that the governed was not released after the governing.
	Released Rule `json:"released,omitempty"`
	// Gate is the preview with which Gated holds in place of Minors, and Alike does not.
	Gate  string `json:"gate,omitempty"`
	Gated uint64 `json:"gated,omitempty"`
}

// of is the set for a governing cluster of this version, with what the open gates make of it.
func (g Governed) of(version *semver.Version, gates []string) Set {
	for _, set := range g.Sets {
		if version.Major() > 1 || version.Minor() >= set.From {
			if set.Gate != "" && slices.Contains(gates, set.Gate) {
				set.Minors, set.Alike = set.Gated, ""
			}
			return set
		}
	}
	return Set{}
}

// Estate is what a distribution's rules ask beside what runs in the cluster itself.
type Estate struct {
	// Problem says why the catalog is not known, and the way out; empty when it is.
	Problem string
	Catalog Catalog
	// Managing is the version of the managing cluster: of the oldest of its API servers. It is empty when none of the
	// clusters is the one in which their objects live, which is so of a bootstrap cluster. That binds nobody.
	Managing string
	// Self says that the cluster that is judged is the managing one.
	Self bool
	// Managed are the other clusters of the distribution, without the managing one.
	Managed []Managed
}

// tool is the version of the tool, if it is known.
func (e *Estate) tool() string {
	if e == nil {
		return ""
	}
	return e.Catalog.Tool
}

// Managed is a cluster that another one manages.
type Managed struct {
	// Object is the cluster, for people: "Cluster blue/prod".
	Object, Version string
}

// RuleCatalog means: the policy has nothing to judge by.
const RuleCatalog Rule = "ReleaseCatalog"

// judge lists what the distribution does not allow of API servers, which are sorted and may be none yet, of the target
// that they are to have, if there is one, and of their kubelets.
func (d *Distribution) judge(w World, servers []*semver.Version, target *semver.Version) []Violation {
	j := judgement{Distribution: d, estate: w.Estate, servers: servers, target: target, cluster: target}
	if target == nil {
		j.cluster = last(servers)
	}
	if j.estate == nil {
		j.estate = &Estate{Problem: "no catalog of releases is known: set one"}
	}
	if j.estate.Problem != "" {
		return []Violation{{Rule: RuleCatalog, message: saying("%s", j.estate.Problem)}}
	}
	j.minors = j.estate.Catalog.minors()
	if target != nil && !j.estate.Catalog.isTool(text(target)) && !runsAlready(servers, target) {
		j.say(d.Tool, "version %s is not the tool's: set v%s, or install the tool of that version first", text(target),
			strings.TrimPrefix(j.estate.Catalog.Tool, "v"))
	}
	if j.minors.at(j.cluster) < 0 {
		j.say(d.List, "no release of the minor of %s is listed: set a version that the catalog of releases lists",
			text(j.cluster))
	}
	switch managing, err := Parse(j.estate.Managing); {
	case j.estate.Self:
		j.manages()
	case err == nil:
		j.isManaged(managing)
	}
	j.pools(w.Components)
	return j.violations
}

// runsAlready reports whether nothing else than the target runs: what is set back to it asks for nothing new.
func runsAlready(servers []*semver.Version, target *semver.Version) bool {
	return len(servers) > 0 && Compare(servers[0], target) == 0 && Compare(last(servers), target) == 0
}

// RunsOnly reports whether all API servers are of the version: what asks for it asks for nothing new.
func (w World) RunsOnly(version string) bool {
	asked, err := Parse(version)
	return err == nil && runsAlready(parsed(w.APIServers), asked)
}

// judgement of one cluster.
type judgement struct {
	*Distribution
	estate  *Estate
	minors  scale
	servers []*semver.Version
	// target is nil when what runs is judged; cluster is the version that rules on pools are chosen by.
	target, cluster *semver.Version
	violations      []Violation
}

// say adds what is wrong with the version of the control plane.
func (j *judgement) say(rule Rule, format string, args ...any) {
	j.violations = append(j.violations, Violation{Rule: rule, message: saying(format+" (%s)", append(args, rule)...)})
}

// isManaged judges a cluster by the one that manages it. One that is raised comes nearer to it, and is only kept from
// overtaking it: else what is too old already could never be repaired.
func (j *judgement) isManaged(managing *semver.Version) {
	if Compare(j.cluster, managing) > 0 {
		j.say(j.Managed.Newer, "version %s is newer than managing cluster %s: bring that to it first", text(j.cluster),
			text(managing))
	}
	if j.target == nil || len(j.servers) == 0 {
		own := append(slices.Clone(j.servers), j.cluster)[0]
		j.tooOld(managing, own, "")
		j.apart(managing, append(slices.Clone(j.estate.Managed), Managed{Object: "this one", Version: text(own)}))
	}
}

// manages judges the managing cluster by those that it manages. A patch brings none of them further behind.
func (j *judgement) manages() {
	if newest := last(j.servers); j.target != nil && newest != nil && distance(newest, j.target) == 0 {
		return
	}
	for _, managed := range j.estate.Managed {
		if own, err := Parse(managed.Version); err == nil {
			j.tooOld(j.cluster, own, " of "+managed.Object)
		}
	}
	j.apart(j.cluster, j.estate.Managed)
}

// tooOld says that a managed cluster is further behind than the managing cluster's version supports.
func (j *judgement) tooOld(managing, own *semver.Version, of string) {
	set := j.Managed.of(managing, j.estate.Catalog.Gates)
	behind := j.minors.distance(managing, own)
	if !later(managing, own) || behind <= set.Minors {
		return
	}
	rule := set.Rule
	if j.estate.Self && j.target != nil {
		rule = set.Step
	}
	j.say(rule, "version %s%s is %s behind managing cluster %s on the list of releases, %s: bring it to %s or later first",
		text(own), of, minors(behind), text(managing), supported(set.Minors), j.minors.back(managing, set.Minors))
}

// apart says that clusters that have to be of one minor are not.
func (j *judgement) apart(managing *semver.Version, all []Managed) {
	set := j.Managed.of(managing, j.estate.Catalog.Gates)
	var first Managed
	for _, managed := range all {
		own, err := Parse(managed.Version)
		if err != nil || set.Alike == "" {
			continue
		}
		if before, err := Parse(first.Version); err == nil && distance(before, own) > 0 {
			j.say(set.Alike, "%s is at %s and %s at %s, while managing cluster %s supports one minor for all that it manages: "+
				"bring them to one", first.Object, first.Version, managed.Object, managed.Version, text(managing))
			return
		}
		first = managed
	}
}

// pools judges the kubelets, each version once: of thousands few differ.
func (j *judgement) pools(components []Running) {
	known := map[string]*Violation{}
	for _, running := range components {
		if running.Component != Kubelet {
			continue
		}
		found, judged := known[running.Version]
		if !judged {
			if own, err := Parse(running.Version); err == nil {
				found = j.pool(own)
			}
			known[running.Version] = found
		}
		if found != nil {
			violation := *found
			violation.object = running.Object
			j.violations = append(j.violations, violation)
		}
	}
}

// pool says what is wrong with a kubelet of this version, whoever runs it; nil when nothing is.
func (j *judgement) pool(own *semver.Version) *Violation {
	no := func(rule Rule, format string, args ...any) *Violation {
		why := saying(format+" (%s)", append(args, rule)...)
		return &Violation{Rule: rule, Component: Kubelet, Ahead: rule == j.Pools.Newer,
			message: func(object string) string {
				return fmt.Sprintf("kubelet %s of %s %s", text(own), object, why(object))
			}}
	}
	cluster := text(j.cluster)
	if oldest := append(slices.Clone(j.servers), j.cluster)[0]; Compare(own, oldest) > 0 {
		return no(j.Pools.Newer, "is newer than its cluster at %s: bring the control plane to it first", text(oldest))
	}
	set, behind := j.Pools.of(j.cluster, j.estate.Catalog.Gates), j.minors.distance(j.cluster, own)
	switch ours, its := j.estate.Catalog.release(j.cluster), j.estate.Catalog.release(own); {
	case behind > set.Minors:
		return no(set.Rule, "is %s behind its cluster at %s on the list of releases, %s: bring it to %s or later first",
			minors(behind), cluster, supported(set.Minors), j.minors.back(j.cluster, set.Minors))
	case ours != nil && !ours.lists(own):
		return no(j.Pools.Listed, "is none of the versions that release %s lists for pools: bring it to one of %s first",
			cluster, strings.Join(ours.Pools, ", "))
	case set.Released != "" && its.released() > ours.released():
		return no(set.Released, "was released on %s, after its cluster's %s%s: "+
			"bring the cluster to a release of that day or later first", its.Released, cluster, ours.day())
	}
	return nil
}
