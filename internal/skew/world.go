// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/Masterminds/semver/v3"
)

// World is what runs in a cluster, as far as it is known. Versions that are none are left out.
type World struct {
	// APIServers are the versions of all API servers.
	APIServers []string
	Components []Running
	// Estate is what policies of distributions ask; others do not.
	Estate *Estate
}

// Running is one instance of a component.
type Running struct {
	Component Component
	Version   string
	// Object is who runs it, for people: "Node worker-3".
	Object string
	// APIServer is the version of the only API server that it talks to; empty when it may reach any.
	APIServer string
	// Kubelet is the version of the kubelet of its own node; empty when that is not known.
	Kubelet string
	// Kept: nobody here ever gives it another version.
	Kept bool
}

// Violation is a version that a policy does not allow.
type Violation struct {
	Rule Rule
	// Component is whose version it is; empty when the API servers are too far apart.
	Component Component
	// Ahead says that the version is too new: the API servers may follow.
	Ahead bool

	object  string                     // who runs it
	message func(object string) string // of thousands few are read
}

// Message says what is wrong and what would make it right.
func (v Violation) Message() string { return v.message(v.object) }

func saying(format string, args ...any) func(string) string {
	return func(string) string { return fmt.Sprintf(format, args...) }
}

// Check lists what the policy does not allow in the world.
func (p Policy) Check(w World) []Violation {
	servers := parsed(w.APIServers)
	if len(servers) == 0 {
		return nil
	}
	oldest, newest := servers[0], last(servers)
	var violations []Violation
	if apart := p.scale(w).distance(newest, oldest); apart > p.APIServers.Apart.Minors {
		violations = append(violations, Violation{Rule: p.APIServers.Apart.Rule, message: saying(
			"API servers %s and %s are %s apart, at most %d is supported (%s): go to %s first", text(oldest), text(newest),
			minors(apart), p.APIServers.Apart.Minors, p.APIServers.Apart.Rule, p.scale(w).next(oldest))})
	}
	return append(violations, p.bound(w, servers, nil)...)
}

// CheckStep lists what the policy would not allow if API servers of the target version ran beside those that run: what
// has to be changed before the first of them may get it.
func (p Policy) CheckStep(w World, target string) []Violation {
	servers := parsed(w.APIServers)
	wanted, err := Parse(target)
	if err != nil {
		return []Violation{{Rule: RuleInvalid, message: saying("%s", err)}}
	}
	var violations []Violation
	if refused := p.APIServers.step(servers, wanted, p.scale(w)); refused != nil {
		violations = []Violation{{Rule: refused.Rule, message: saying("%s", refused.Numbered())}}
		if Compare(wanted, last(servers)) < 0 {
			return violations
		}
	}
	return append(violations, p.bound(w, servers, wanted)...)
}

// scale is how the policy counts minors.
func (p Policy) scale(w World) scale {
	if p.Distribution == nil || w.Estate == nil {
		return nil
	}
	return w.Estate.Catalog.minors()
}

// bound lists the components that are too far from the API servers, which are sorted, and from the target that is to
// run beside them, if there is one. Those that differ in nothing but who runs them are judged once: of thousands few
// differ in more.
func (p Policy) bound(w World, servers []*semver.Version, target *semver.Version) []Violation {
	if p.Distribution != nil {
		return p.Distribution.judge(w, servers, target)
	}
	if target != nil {
		servers = append(servers, target) // which is no earlier
	}
	oldest, newest := servers[0], last(servers)
	var violations []Violation
	known, judged := reader{}, map[Running][]Violation{}
	for _, running := range w.Components {
		alike := running
		alike.Object = ""
		found, again := judged[alike]
		if !again {
			for _, constraint := range p.Components {
				if constraint.Component == running.Component {
					found = append(found, constraint.check(running, known, oldest, newest, target != nil)...)
				}
			}
			judged[alike] = found
		}
		for _, violation := range found {
			violation.object = running.Object
			violations = append(violations, violation)
		}
	}
	return violations
}

// reader parses each version once: the nodes of a cluster have few.
type reader map[string]*semver.Version

// read returns nil for what is no version.
func (r reader) read(version string) *semver.Version {
	parsed, known := r[version]
	if !known {
		parsed, _ = Parse(version)
		r[version] = parsed
	}
	return parsed
}

func (c Constraint) check(r Running, known reader, oldest, newest *semver.Version, step bool) []Violation {
	own := known.read(r.Version)
	if own == nil {
		return nil
	}
	if only := known.read(r.APIServer); only != nil {
		oldest, newest = only, only
	}
	rule := func(b Bound) Rule {
		switch {
		case step && c.Step != "":
			return c.Step
		case later(newest, oldest):
			return c.Mixed
		}
		return b.Rule
	}
	var violations []Violation
	say := func(rule Rule, ahead bool, format string, args ...any) {
		violations = append(violations, Violation{Rule: rule, Component: r.Component, Ahead: ahead,
			message: func(object string) string {
				return fmt.Sprintf("%s %s of %s ", r.Component, text(own), object) + fmt.Sprintf(format, args...)
			}})
	}
	if ahead := distance(own, oldest); later(own, oldest) && ahead > c.Newer.of(own.Minor()) {
		rule := rule(c.Newer)
		say(rule, true, "is newer than API server %s by %s, %s (%s): bring the API servers to v%d.%d first",
			text(oldest), minors(ahead), supported(c.Newer.of(own.Minor())), rule,
			own.Major(), own.Minor()-min(own.Minor(), c.Newer.of(own.Minor())))
	}
	if behind := distance(newest, own); later(newest, own) && behind > c.Older.of(own.Minor()) {
		rule := rule(c.Older)
		say(rule, false, "is older than API server %s by %s, %s (%s): bring it to v%d.%d or later first",
			text(newest), minors(behind), supported(c.Older.of(own.Minor())), rule,
			newest.Major(), c.earliest(newest.Minor()))
	}
	kubelet := known.read(r.Kubelet)
	if kubelet != nil && c.Kubelet != nil && distance(own, kubelet) > c.Kubelet.of(own.Minor()) {
		say(c.Kubelet.Rule, false, "is %s from kubelet %s of its node, %s (%s): bring both to one minor",
			minors(distance(own, kubelet)), text(kubelet), supported(c.Kubelet.of(own.Minor())), c.Kubelet.Rule)
	}
	return violations
}

// earliest minor that is not too old for an API server of this one.
func (c Constraint) earliest(server uint64) uint64 {
	earliest := server
	for earliest > 0 && server-(earliest-1) <= c.Older.of(earliest-1) {
		earliest--
	}
	return earliest
}

// Compare orders versions by precedence, and those that only differ in their build, which precedence leaves out, by
// that: makers count their builds (v1.36.3+k3s1 before v1.36.3+k3s2).
func Compare(a, b *semver.Version) int {
	return cmp.Or(a.Compare(b), compareBuilds(a.Metadata(), b.Metadata()))
}

// compareBuilds compares runs of digits as numbers, and everything else by its text.
func compareBuilds(a, b string) int {
	for a != "" && b != "" {
		var left, right run
		left, a = nextRun(a)
		right, b = nextRun(b)
		if c := left.compare(right); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// run of characters that are all digits, or none.
type run struct {
	text   string
	number bool
}

func nextRun(s string) (first run, rest string) {
	number := unicode.IsDigit(rune(s[0]))
	rest = strings.TrimLeftFunc(s, func(c rune) bool { return unicode.IsDigit(c) == number })
	return run{s[:len(s)-len(rest)], number}, rest
}

func (r run) compare(other run) int {
	if !r.number || !other.number {
		return cmp.Compare(r.text, other.text)
	}
	left, right := strings.TrimLeft(r.text, "0"), strings.TrimLeft(other.text, "0")
	return cmp.Or(cmp.Compare(len(left), len(right)), cmp.Compare(left, right))
}

// parsed are the versions among the strings, sorted.
func parsed(versions []string) []*semver.Version {
	var all []*semver.Version
	for _, version := range versions {
		if one, err := Parse(version); err == nil {
			all = append(all, one)
		}
	}
	sortVersions(all)
	return all
}

func last(versions []*semver.Version) *semver.Version {
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

// majorsApart is more minors than anything allows.
const majorsApart uint64 = math.MaxUint64

// distance in minors, in either direction; majorsApart between majors.
func distance(a, b *semver.Version) uint64 {
	if a.Major() != b.Major() {
		return majorsApart
	}
	return max(a.Minor(), b.Minor()) - min(a.Minor(), b.Minor())
}

// later reports whether a is of a later minor than b.
func later(a, b *semver.Version) bool {
	return a.Major() > b.Major() || a.Major() == b.Major() && a.Minor() > b.Minor()
}

func text(v *semver.Version) string { return "v" + v.String() }

func minors(n uint64) string {
	switch n {
	case majorsApart:
		return "a major"
	case 1:
		return "1 minor"
	}
	return fmt.Sprintf("%d minors", n)
}

func supported(n uint64) string {
	if n == 0 {
		return "which is not supported"
	}
	return fmt.Sprintf("of which at most %d %s supported", n, map[bool]string{true: "is", false: "are"}[n == 1])
}
