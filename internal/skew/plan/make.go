// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Request asks for a plan.
type Request struct {
	State  State
	Target string
	// Known are the versions whose artifacts there are. What API servers run counts as known. Empty when nobody knows:
	// then every minor has a version.
	Known []string
	// Listed is where Known stands, for people: "spec.via"; empty when those are versions of artifacts.
	Listed string
	// Policies are those that hold for the Cluster, at least one: what one of them refuses is refused. What a distribution
	// asks of a version and of the pools that run depends on more than the Cluster and is asked elsewhere, by
	// skew.Distributed and skew.LeftBehind; of a pool that a plan raises it is asked by State.Estate. Its tool gives a
	// control plane one version, so with one of them no plan has several hops.
	Policies []skew.Policy
}

// For returns the shortest plan, or a *RefusedError when there is none.
//
// Short means few steps of control plane and workers; add-ons follow each step of the control plane anyway. A pool is
// raised as late as skew allows and as far as the control plane then is. The later, the further it gets by one step,
// and the newer a kubelet, the longer it may stay: so no other order raises any pool less often.
func For(r Request) (Plan, error) {
	d, target, err := begin(r)
	if err != nil {
		return Plan{}, err
	}
	hops, err := r.hops(d.servers(), target)
	if err != nil {
		return Plan{}, err
	}
	d.plan.Hops = hops
	if err := r.oneTool(d.servers()[0], d.plan); err != nil {
		return Plan{}, err
	}
	d.advise(r.Known, target)
	if err := d.addonsFirst(true); err != nil {
		return Plan{}, err
	}
	for _, hop := range hops {
		d.liftTooOld(hop)
		if err := d.raise(hop); err != nil {
			return Plan{}, err
		}
	}
	for i, pool := range d.state.Pools {
		if oldest := parsed(pool.Versions); !pool.Stays && len(oldest) > 0 && skew.Compare(oldest[0], target) < 0 {
			d.lift(i, text(target), "R10", "workers follow the control plane")
		}
	}
	d.warn(target)
	return d.plan, nil
}

// draft is a plan in the making, with the state that its steps lead to.
type draft struct {
	policies, distributions []skew.Policy
	state                   State
	plan                    Plan
}

func undistributed(policies []skew.Policy) []skew.Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Distribution = nil
	}
	return policies
}

func begin(r Request) (*draft, *semver.Version, error) {
	target, err := skew.Parse(r.Target)
	if err != nil {
		return nil, nil, refuse(skew.RuleInvalid, "%s", err)
	}
	_, distributions := skew.Split(r.Policies)
	d := &draft{policies: undistributed(r.Policies), distributions: distributions, state: r.State,
		plan: Plan{Target: text(target), AnyPatch: len(r.Known) == 0}}
	d.state.Pools = slices.Clone(r.State.Pools) // which lift changes
	if len(d.servers()) == 0 {
		return nil, nil, refuse(RuleUnknown,
			"no version of an API server is known for a way to %s to start from: wait for a Node of the control plane", r.Target)
	}
	runs := slices.ContainsFunc(d.servers(), func(v *semver.Version) bool { return skew.Compare(v, target) == 0 })
	if !d.plan.AnyPatch && !runs && best(parsed(r.Known), target, target) == nil {
		return nil, nil, refuse(RuleUnknown, "%s, only %s: add it, or choose one of these", r.lacks(text(target)),
			strings.Join(written(parsed(r.Known)), ", "))
	}
	return d, target, nil
}

// servers are the versions of the API servers, from the oldest.
func (d *draft) servers() []*semver.Version { return parsed(d.state.APIServers) }

// newest API server's version.
func (d *draft) newest() *semver.Version {
	servers := d.servers()
	return servers[len(servers)-1]
}

// hops are the versions that the control plane has to have, one after another. API servers of two minors are brought to
// the newer one before any gets a third.
func (r Request) hops(servers []*semver.Version, target *semver.Version) ([]string, error) {
	oldest, newest, known := servers[0], servers[len(servers)-1], parsed(r.Known)
	if skew.Compare(oldest, target) == 0 && skew.Compare(newest, target) == 0 {
		return nil, nil
	}
	var hops []string
	if oldest.Minor() < newest.Minor() && newest.Minor() < target.Minor() {
		finish := best(known, newest, semver.New(newest.Major(), newest.Minor()+1, 0, "0", ""))
		if finish == nil {
			finish = newest
		}
		hops = append(hops, text(finish))
	}
	for minor := newest.Minor() + 1; newest.Major() == target.Major() && minor < target.Minor(); minor++ {
		first := semver.New(target.Major(), minor, 0, "", "")
		hop := first
		if len(known) > 0 {
			hop = best(known, semver.New(target.Major(), minor, 0, "0", ""), semver.New(target.Major(), minor+1, 0, "0", ""))
		}
		if hop == nil {
			rules := r.stepRules()
			return nil, refuse(rules[0], "%s, and a control plane that runs %s cannot go to %s without it (%s): add one of "+
				"that minor, or choose a version before it", r.lacks(fmt.Sprintf("v%d.%d", target.Major(), minor)),
				text(newest), text(target), skew.Numbers(rules))
		}
		hops = append(hops, text(hop))
	}
	return append(hops, text(target)), nil
}

// stepRules are the rules by which API servers go one minor at a time; a distribution counts them otherwise.
func (r Request) stepRules() (rules []skew.Rule) {
	ordinary, _ := skew.Split(r.Policies)
	for _, policy := range ordinary {
		rules = append(rules, policy.APIServers.Apart.Step)
	}
	return rules
}

// lacks says that a version or a minor is not among the known ones.
func (r Request) lacks(version string) string {
	if r.Listed != "" {
		return r.Listed + " lists no " + version
	}
	return "there are no artifacts of " + version
}

// oneTool refuses several hops where a distribution's tool gives a control plane its own version alone (S0-16, S0-19).
func (r Request) oneTool(oldest *semver.Version, p Plan) error {
	_, distributions := skew.Split(r.Policies)
	if len(distributions) == 0 || len(p.Hops) < 2 {
		return nil
	}
	rule := distributions[0].APIServers.Apart.Step
	refused := refuse(rule, "policy %s goes one hop at a time, each with the tool of its version, not from %s to %s at "+
		"once (%s): go to %s", distributions[0].Name, text(oldest), p.Target, rule, p.Route())
	refused.Hops = p.Hops
	return refused
}

// best is the newest of the versions from one up to another, both included; nil when there is none.
func best(known []*semver.Version, from, to *semver.Version) *semver.Version {
	for _, version := range slices.Backward(known) {
		if skew.Compare(version, to) <= 0 && skew.Compare(version, from) >= 0 {
			return version
		}
	}
	return nil
}

// take adds a step that is legal all the way, and refuses one that is not.
func (d *draft) take(step Step) error {
	violations := d.state.judge(d.policies, step)
	if step.Raises == ControlPlane {
		violations = append(violations, d.offTheList(step.To)...)
	}
	if len(violations) > 0 {
		return d.refusal(step, violations)
	}
	d.state = d.state.after(step)
	d.plan.Steps = append(d.plan.Steps, step)
	return nil
}

// offTheList lists the pools that this plan raised to what a distribution does not have beside the version (S0-23..30).
// What it has beside pools that nobody raised is asked where the version is (skew.LeftBehind).
func (d *draft) offTheList(to string) []skew.Violation {
	world := skew.World{APIServers: d.state.APIServers, Estate: d.state.Estate}
	for _, pool := range d.state.Pools {
		if slices.ContainsFunc(d.plan.Steps, func(s Step) bool { return s.Raises == Workers && s.Pool == pool.Object }) {
			world.Components = append(world.Components, pool.kubelets()...)
		}
	}
	return skew.TooOld(d.distributions, world, parsed([]string{to})[0])
}

// refusal says why no plan has the step. kube-proxy is told of first where it may not differ from its kubelet: of one
// DaemonSet on nodes of two minors nothing else would help.
func (d *draft) refusal(step Step, violations []skew.Violation) error {
	rule, wayOut := violations[0].Rule, ""
	for _, violation := range violations {
		if violation.Component == skew.KubeProxy && d.bindsProxy(violation.Rule) {
			rule = violation.Rule
			wayOut = fmt.Sprintf("; one DaemonSet has one version while the nodes change theirs one by one, so with %s no "+
				"upgrade over a minor can be: let something else do what kube-proxy does, or choose a policy that lets them differ",
				rule)
		}
	}
	return refuse(rule, "no plan leads to %s: with the %s at %s, %s%s",
		d.plan.Target, step.Raises, step.To, skew.Summary(violations), wayOut)
}

// bindsProxy reports whether by the rule a kube-proxy is of its kubelet's minor (S1-25).
func (d *draft) bindsProxy(rule skew.Rule) bool {
	for _, policy := range d.policies {
		for _, constraint := range policy.Components {
			if constraint.Kubelet != nil && constraint.Kubelet.Rule == rule && constraint.Kubelet.Minors == 0 {
				return true
			}
		}
	}
	return false
}

// raise gives the control plane a version, and its add-ons after it.
func (d *draft) raise(hop string) error {
	servers, apart := d.servers(), d.policies[0].APIServers.Apart
	step := Step{Raises: ControlPlane, From: written(servers), To: hop, Rule: "S0-17", Why: "a patch may skip others"}
	switch {
	case changesMinor(servers, d.newest()):
		step.Rule, step.Why = apart.Rule, "its rollout is finished first"
	case changesMinor(servers, parsed([]string{hop})[0]):
		step.Rule, step.Why = apart.Step, "one minor at a time"
	}
	if err := d.take(step); err != nil {
		return err
	}
	return d.follow(hop)
}

// follow raises the add-ons, unless they are there.
func (d *draft) follow(hop string) error {
	from := written(parsed(d.state.KubeProxy))
	if len(from) == 1 && from[0] == hop {
		return nil
	}
	return d.take(Step{Raises: Addons, From: from, To: hop, Rule: "R10", Why: "they follow the control plane"})
}

// addonsFirst brings add-ons that were left behind to the control plane that runs: by a minor, or for good. With lifts
// the pools that kube-proxy waits for come before it: it would wait for good where they came after, and the control
// plane's next minor with it. The old kube-proxy runs beside the control plane's kubelets of that version already, so
// those that are raised to it are nothing worse. Kubelets that no pool has it waits for all the same.
func (d *draft) addonsFirst(lifts bool) error {
	behind, newest := parsed(d.state.KubeProxy), d.newest()
	waits := d.state.ProxyWaits || changesMinor(behind, newest)
	switch {
	case changesMinor(d.servers(), newest):
		return nil
	case waits && lifts:
		d.liftForProxy(newest)
	case !waits && (len(behind) == 0 || len(d.plan.Hops) > 0):
		return nil
	}
	return d.follow(text(newest))
}

// liftForProxy raises the pools beside whose kubelets kube-proxy may not be of the version.
func (d *draft) liftForProxy(to *semver.Version) {
	for i, pool := range d.state.Pools {
		beside := proxies([]string{text(to)}, pool.kubelets())
		for _, policy := range d.policies {
			found := policy.Check(skew.World{APIServers: d.state.APIServers, Components: beside})
			if len(found) > 0 {
				d.lift(i, text(to), found[0].Rule, "kube-proxy waits for its kubelets")
				break
			}
		}
	}
}

// liftTooOld raises the pools that the hop would leave behind, to what the control plane runs.
func (d *draft) liftTooOld(hop string) {
	for i, pool := range d.state.Pools {
		if rule := d.tooOld(pool, hop); rule != "" {
			d.lift(i, text(d.newest()), rule, "its kubelets would be too old for "+hop)
		}
	}
}

// tooOld is the rule by which kubelets of the pool are too old for API servers of the version; empty when they are not.
func (d *draft) tooOld(pool Pool, hop string) skew.Rule {
	to, err := skew.Parse(hop)
	if err != nil || to.Minor() <= d.newest().Minor() {
		return ""
	}
	for _, policy := range d.policies {
		world := skew.World{APIServers: d.state.APIServers, Components: pool.kubelets()}
		for _, violation := range policy.CheckStep(world, hop) {
			if !violation.Ahead {
				return violation.Rule
			}
		}
	}
	return ""
}

// lift raises a pool to what the control plane and its add-ons run: a kubelet of that version is never too old nor too
// new, and the old ones are as they were.
func (d *draft) lift(at int, to string, rule skew.Rule, why string) {
	pool := &d.state.Pools[at]
	d.plan.Steps = append(d.plan.Steps, Step{Raises: Workers, Pool: pool.Object, From: written(parsed(pool.Versions)),
		To: to, Rule: rule, Why: why})
	pool.Versions = []string{to}
}

// advise names newer patches of what runs and of the target (S1-13, S0-20).
func (d *draft) advise(known []string, target *semver.Version) {
	newest := d.newest()
	say := func(format string, of *semver.Version) {
		later := best(parsed(known), of, semver.New(of.Major(), of.Minor()+1, 0, "0", ""))
		if later != nil && skew.Compare(later, of) > 0 && !slices.Contains(d.plan.Hops, text(later)) {
			d.plan.Advice = append(d.plan.Advice, fmt.Sprintf(format, text(later), text(of)))
		}
	}
	if newest.Minor() != target.Minor() {
		say("go to %s, the newest known patch of what runs, before you leave %s behind (S1-13)", newest)
	}
	say("%s is the newest known patch of its minor, not %s (S0-20)", target)
}

// warn names the pools that have to be raised before the minor after the target (R12, S1-24).
func (d *draft) warn(target *semver.Version) {
	next := text(semver.New(target.Major(), target.Minor()+1, 0, "", ""))
	for _, pool := range d.state.Pools {
		if rule := d.tooOld(pool, next); rule != "" {
			d.plan.Advice = append(d.plan.Advice, fmt.Sprintf("raise %s too: v%d.%d cannot follow before that (%s, R12)",
				pool.Object, target.Major(), target.Minor()+1, rule))
		}
	}
}
