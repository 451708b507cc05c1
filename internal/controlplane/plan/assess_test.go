// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Proves: C6, C11, C12, S2-7, S2-24, S2-28, S2-30, S2-32, S2-33, S2-34, S1-12, S1-14, S1-26, R6, R8, R21
//
// testdata/scripts/decide.txt asks for single decisions, rollout.txt tells whole rollouts, and strategies.txt draws
// them for each strategy. Run with -rewrite to write down new answers, then read them.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var w *world
		drawn := filepath.Base(path) != "rollout.txt"
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "decide":
				return answer(t, Assess(parse(t, d)).Step) + "\n"
			case "cluster":
				var replicas int
				var version string
				d.ScanArgs(t, "replicas", &replicas)
				d.ScanArgs(t, "version", &version)
				w = newWorld(replicas, version)
				readWorld(t, d, w)
				return settleWorld(t, w, drawn)
			case "edit":
				if d.HasArg("version") {
					var version string
					d.ScanArgs(t, "version", &version)
					w.change(version)
				}
				if d.HasArg("replicas") {
					d.ScanArgs(t, "replicas", &w.Replicas)
				}
				readWorld(t, d, w)
				if d.HasArg("template") {
					w.outdate()
				}
				if d.HasArg("unsettled") {
					return draw(w) + "\n"
				}
				return settleWorld(t, w, drawn)
			case "delete-oldest":
				count := 1
				if d.HasArg("count") {
					d.ScanArgs(t, "count", &count)
				}
				for _, name := range w.names()[:count] {
					w.deleteByUser(name)
				}
				return settleWorld(t, w, drawn)
			case "delete-newest":
				w.deleteByUser(w.names()[len(w.names())-1])
				return settleWorld(t, w, drawn)
			case "mark-newest":
				name := w.names()[len(w.names())-1]
				w.machine(name).Preferred = true
				return name + "\n"
			case "take":
				// Somebody else claims free hosts.
				var count int
				d.ScanArgs(t, "count", &count)
				w.take(count)
				return fmt.Sprintf("free %d\n", w.free)
			case "look":
				// One look, before anything else happens.
				step := Assess(w.observe()).Step
				if err := w.apply(step); err != nil {
					t.Fatalf("broken promise: %v", err)
				}
				return answer(t, step) + "\n"
			case "settle":
				return settleWorld(t, w, drawn)
			case "die-newest":
				w.die(w.names()[len(w.names())-1])
				return settleWorld(t, w, drawn)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// readWorld reads what of the world is not asked for in a spec, and the strategy.
func readWorld(t *testing.T, d *datadriven.TestData, w *world) {
	t.Helper()
	if d.HasArg("hosts") {
		// All of them, those in use included.
		d.ScanArgs(t, "hosts", &w.free)
		w.free -= w.taken()
	}
	if d.HasArg("strategy") {
		var strategy string
		d.ScanArgs(t, "strategy", &strategy)
		w.Strategy = controlplane.Strategy(strategy)
	}
	if d.HasArg("window") {
		d.ScanArgs(t, "window", &w.Window)
		if w.Window = "no window is " + w.Window; w.Window == "no window is over" {
			w.Window = ""
		}
	}
	if d.HasArg("backup") {
		w.Backup, w.ages = controlplane.Backup{Wanted: true, Last: "there is none yet"}, true
	}
}

// settleWorld lets controller and world take turns until nothing happens, and tells it.
func settleWorld(t *testing.T, w *world, drawn bool) string {
	t.Helper()
	var story strings.Builder
	last := ""
	for range 300 {
		step := Assess(w.observe()).Step
		w.InFlight = controlplane.InFlight{Operation: step.Operation, Machine: step.Machine}
		if line := answer(t, step); line != last {
			last = line
			if drawn {
				line = fmt.Sprintf("%-44s %s", draw(w), line)
			}
			fmt.Fprintln(&story, line)
		}
		if err := w.apply(step); err != nil {
			t.Fatalf("%s\nbroken promise: %v", story.String(), err)
		}
		if !step.Waiting() {
			continue
		}
		moved := w.fetch()
		moved = w.backUp() || moved
		moved = w.cleaned() || moved
		for _, name := range w.names() {
			moved = w.advance(name) || moved
		}
		if !moved {
			fmt.Fprintf(&story, "= %s, config %s, add-ons %s\n", census(w), w.ConfigVersion, w.addons)
			return story.String()
		}
	}
	t.Fatalf("%s\nit never ends", story.String())
	return ""
}

// draw shows the Machines with their members: V votes, L learns, - has none; * leads, ! does not work. In < > is a
// Machine that is being deleted but kept, in > > one that leaves, in ( ) one that was made ahead.
func draw(w *world) string {
	parts := make([]string, 0, len(w.Machines))
	for _, name := range w.names() {
		machine, member := w.machine(name), w.member(name)
		mark := "-"
		if member != nil {
			mark = map[bool]string{true: "L", false: "V"}[member.Learner]
			if member.Leader {
				mark += "*"
			}
			if !member.Healthy {
				mark += "!"
			}
		}
		switch {
		case machine.Deleting && machine.DrainHook:
			name = "<" + name + ">"
		case machine.Deleting:
			name = ">" + name + ">"
		}
		parts = append(parts, name+" "+mark)
	}
	for _, preCreated := range w.PreCreated {
		parts = append(parts, "("+preCreated.Name+")")
	}
	hosts := fmt.Sprintf("free %d", w.free)
	if w.cleaning > 0 {
		hosts += fmt.Sprintf(", coming %d", w.cleaning)
	}
	return fmt.Sprintf("%s | %s", strings.Join(parts, "  "), hosts)
}

func census(w *world) string {
	var parts []string
	for _, name := range w.names() {
		parts = append(parts, name+"@"+w.machine(name).Version)
	}
	return strings.Join(parts, " ")
}

func tell(step controlplane.Step) string {
	line := string(step.Kind)
	if step.Machine != "" {
		line += " " + step.Machine
	}
	if step.Member != 0 {
		line += fmt.Sprintf(" member=%d", step.Member)
	}
	if step.To != 0 {
		line += fmt.Sprintf(" to=%d", step.To)
	}
	if step.Reason != "" {
		line += fmt.Sprintf(" (%s: %s)", step.Operation, step.Reason)
	}
	if step.Message != "" {
		line += ": " + step.Message
	}
	return line
}

// parse reads a snapshot. A Machine works and has a healthy voter unless words after its name say otherwise.
func parse(t *testing.T, d *datadriven.TestData) controlplane.State {
	t.Helper()
	s := controlplane.State{Name: "-n metal fleet", Replicas: 3, Version: "v1.36.3", ConfigVersion: "v1.36.3",
		StackedEtcd:  true,
		Certificates: true,
		Initialized:  true, Reachable: true, AddonsCurrent: true, Etcd: quorum.Membership{Known: true, Agreed: true},
		Spare: controlplane.Spare{Free: 1}}
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "replicas":
			s.Replicas, _ = strconv.Atoi(value)
		case "version":
			s.Version = value
		case "config":
			s.ConfigVersion = value
		case "workers":
			s.Workers, _ = strconv.Atoi(value)
		case "deleting":
			s.Deleting = true
		case "cluster-deleting":
			s.ClusterDeleting = true
		case "not-initialized":
			s.Initialized, s.Reachable, s.Etcd = false, false, quorum.Membership{Problem: "no host"}
		case "unreachable":
			s.Reachable = false
		case "unanswered":
			s.Reachable, s.Unanswered = false, true
		case "etcd-unknown":
			s.Etcd = quorum.Membership{Problem: "no member answered"}
		case "no-certificates":
			s.Certificates = false
		case "external-etcd":
			s.StackedEtcd = false
		case "old-addons":
			s.AddonsCurrent = false
		case "addons-unknown":
			s.AddonsCurrent, s.AddonsProblem = false, "kube-proxy could not be read"
		case "addons":
			s.AddonsVersion = value
		case "strategy":
			s.Strategy = controlplane.Strategy(value)
		case "spare":
			s.Spare.Free, _ = strconv.Atoi(value)
		case "coming":
			s.Spare.Pending, _ = strconv.Atoi(value)
		case "backup":
			s.Backup = controlplane.Backup{Wanted: true, Recent: value == "recent", Requested: value == "requested",
				Last: "the last good one is 2h0m0s old"}
		case "left-behind":
			s.LeftBehind = value
		case "awaited":
			s.AwaitedVersion = "version " + value + " has yet to come from the Cluster's topology"
		case "window-closed":
			s.Window = "no window is open"
		case "etcd-behind":
			s.EtcdBehind = value
		case "no-quorum":
			s.Etcd.Agreed = false
		case "alarm":
			s.Etcd.Alarm = "an alarm is raised for a member that is gone, so etcd takes no writes"
		case "electing":
			s.ElectionGrace = time.Minute
		case "patience":
			s.DeadMemberTimeout, _ = time.ParseDuration(value)
		case "patience-without-a-machine":
			s.OrphanedMemberTimeout, _ = time.ParseDuration(value)
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
		}
	}
	for _, line := range strings.Split(d.Input, "\n") {
		if words := strings.Fields(line); len(words) > 1 {
			parseLine(t, d, &s, words)
		}
	}
	return s
}

func parseLine(t *testing.T, d *datadriven.TestData, s *controlplane.State, words []string) {
	t.Helper()
	name := words[1]
	switch words[0] {
	case "machine":
		m := controlplane.Machine{Name: name, Version: s.Version, Node: name, HostClaimed: true, Bootstrapped: true,
			UpToDate: true,
			Healthy:  true, Serving: true, Hook: true, DrainHook: true, Returns: true, Created: int64(len(s.Machines) + 1)}
		member := &quorum.Member{ID: uint64(len(s.Etcd.Members) + 1), Name: name, Machine: name, Healthy: true}
		for _, word := range words[2:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "version":
				m.Version, m.UpToDate = value, value == s.Version
			case "domain":
				m.FailureDomain = value
			case "outdated":
				m.UpToDate = false
			case "no-host":
				m.HostClaimed, m.Bootstrapped, m.Node, m.Healthy, m.Serving, member = false, false, "", false, false, nil
			case "no-node":
				m.Bootstrapped, m.Node, m.Healthy, m.Serving, member = false, "", false, false, nil
			case "unregistered":
				m.Bootstrapped, m.Node, m.Healthy, m.Serving = false, "", false, false
			case "placeless":
				// The free hosts are of other failure domains.
				m.NoHost = true
			case "expiring":
				m.CertificatesExpire = true
			case "ended":
				m.CertificatesExpire, m.CertificatesEnded = true, value
			case "joining":
				m.Joining = true
			case "none-ahead":
				m.PreCreationBackoff = true
			case "unlike":
				// Its host is not of those that the next Machine may have.
				m.Returns, m.NoReturn = false, value
			case "kubeadm-began":
				m.Joining, m.KubeadmBegan = true, true
			case "joined":
				m.Joined = true
			case "no-member":
				member = nil
			case "learner":
				member.Learner = true
			case "leader":
				member.Leader = true
			case "pods-down":
				m.Healthy, m.Serving, m.Problem = false, false, "its kube-apiserver pod is not ready"
			case "node-not-ready":
				m.Healthy, m.Problem = false, "its Node is not Ready"
			case "member-down":
				member.Healthy, member.Problem = false, "it does not answer"
			case "member-slow":
				member.Healthy, member.Problem, member.Progress = false, "it completes no read through the quorum", 7
			case "silent":
				member.Silent, _ = time.ParseDuration(value)
			case "lagging":
				member.Lag = quorum.DefaultMaxLag + 1
			case "full":
				member.Healthy, member.Full, member.Problem = false, true, "alarm NOSPACE, its database is full: "+quorum.MakeRoom
			case "marked":
				m.Preferred = true
			case "by-hand":
				m.Health.ByHand = true
			case "deleting":
				m.Deleting, m.DrainHook, m.DeletedAt = true, false, int64(len(s.Machines)+1)
			case "deleted":
				m.Deleting, m.DeletedAt = true, int64(len(s.Machines)+1)
			case "drained":
				m.Deleting, m.DrainHook, m.AtTermination, m.DeletedAt = true, false, true, int64(len(s.Machines)+1)
			case "skipped":
				// Cluster API did not wait for the pre-drain hook.
				m.Deleting, m.AtTermination, m.DeletedAt = true, true, int64(len(s.Machines)+1)
			case "api":
				if m.APIServer = controlplane.APIServer(value); m.APIServer == controlplane.APIServerStays {
					m.APIServerProblem = "host h1 has not ended it within 2m0s"
				}
			case "no-hook":
				m.Hook = false
			case "other-hook":
				m.OtherHooks = []string{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup"}
			case "kubelet":
				m.Kubelet = value
			default:
				t.Fatalf("%s: unknown word %s", d.Pos, word)
			}
		}
		if m.Kubelet == "" && m.Node != "" {
			m.Kubelet = m.Version
		}
		s.Machines = append(s.Machines, m)
		if member != nil && s.Etcd.Known {
			s.Etcd.Members = append(s.Etcd.Members, *member)
		}
	case "pre-created":
		preCreated := controlplane.PreCreatedMachine{Name: name}
		for _, word := range words[2:] {
			switch word {
			case "outdated":
				preCreated.Unfit = "it is outdated"
			case "given-up":
				preCreated.Unfit = "its health check gave it up"
			default:
				t.Fatalf("%s: unknown word %s", d.Pos, word)
			}
		}
		s.PreCreated = append(s.PreCreated, preCreated)
	case "stray":
		s.Etcd.Members = append(s.Etcd.Members, stray(t, d, 100+uint64(len(s.Etcd.Members)), strings.Trim(name, "-"),
			words[2:]))
	case "stale-host":
		s.StaleHosts = append(s.StaleHosts, controlplane.StaleHost{Name: name,
			Message: "the host knows generation 5 of its claim, ours is 3"})
	case "domain":
		domain := controlplane.FailureDomain{Name: name}
		for _, word := range words[2:] {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "free":
				domain.Free, _ = strconv.Atoi(value)
			case "pending":
				domain.Pending, _ = strconv.Atoi(value)
			default:
				t.Fatalf("%s: unknown word %s", d.Pos, word)
			}
		}
		s.Domains = append(s.Domains, domain)
	case "remove-member":
		id, err := strconv.ParseUint(name, 16, 64)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		s.RemoveMembers = append(s.RemoveMembers, id)
	case "host":
		host := controlplane.Host{Name: name, Version: words[2], Provisioned: true}
		for _, word := range words[3:] {
			host.Requested = host.Requested || word == "requested"
			host.Present = host.Present || word == "present"
			host.Provisioned = host.Provisioned && word != "unprovisioned"
			if reason, ok := strings.CutPrefix(word, "unfit="); ok {
				host.Unfit = strings.ReplaceAll(reason, "-", " ")
			}
			host.RequestedRunning = host.RequestedRunning || word == "requested-running"
			host.PresentRunning = host.PresentRunning || word == "present-running"
		}
		for _, machine := range s.Machines {
			if machine.Name == name {
				host.Machine = name
			}
		}
		s.Hosts = append(s.Hosts, host)
	default:
		t.Fatalf("%s: unknown line %q", d.Pos, strings.Join(words, " "))
	}
}

// stray reads a member that no Machine runs. Nothing is heard of it unless words say otherwise.
func stray(t *testing.T, d *datadriven.TestData, id uint64, name string, words []string) quorum.Member {
	t.Helper()
	member := quorum.Member{ID: id, Name: name, Problem: "no other member is connected with it"}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "learner":
			member.Learner = true
		case "healthy":
			member.Healthy, member.Problem = true, ""
		case "leader":
			member.Leader = true
		case "unasked":
			member.Unasked = true
		case "full":
			member.Full = true
		case "silent":
			member.Silent, _ = time.ParseDuration(value)
		default:
			t.Fatalf("%s: unknown word %s", d.Pos, word)
		}
	}
	return member
}
