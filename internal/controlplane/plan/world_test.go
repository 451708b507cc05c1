// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// world is a control plane that behaves: what Assess orders happens, and every Machine comes up or goes away when it is
// given time. It checks each order against the promises before it carries it out.
type world struct {
	facts
	clock    int64
	machines int
	members  uint64
	// addons is the version that CoreDNS and kube-proxy have.
	addons string
	// asked and images are the versions of add-on images that each host was told to hold, and holds.
	asked, images map[string]map[string]bool
	// deletedByUser are Machines that left without being asked whether they may.
	deletedByUser map[string]bool
	// wanted is how many voters must be left when one goes that was deleted by us: that cannot be undone when more are
	// wanted later.
	wanted map[string]int
	// free is the number of hosts that nobody has, cleaning of those that are being reset.
	free, cleaning int
	// stays: no host ends its API server.
	stays bool
	// ages: a snapshot of etcd is too old again after each replacement.
	ages bool
	// lost are Machines that never work again. Hosts of unreleased ones are not released once they have left.
	lost, unreleased map[string]bool
	// unread says what keeps etcd from being read; empty when nothing does. missed counts the looks in a row in which a
	// member was not healthy.
	unread string
	missed map[uint64]int
	// minutes that have passed. ill is since when Machines that are Nodes have no healthy voter.
	minutes int
	ill     map[string]time.Time
	// odd says as what a member is read that works.
	odd map[uint64]string
	// nameless are the members of which nobody says whose they are.
	nameless map[uint64]bool
	// drawn counts what was drawn, of all histories.
	drawn map[string]int
}

func (w *world) now() time.Time { return noon.Add(time.Duration(w.minutes) * time.Minute) }

// note counts what was drawn, where somebody counts.
func (w *world) note(draw string) {
	if w.drawn != nil {
		w.drawn[draw]++
	}
}

func newWorld(replicas int, version string) *world {
	const worker = "worker" // it stays at its version
	return &world{
		free: 10,
		facts: facts{controlplane.State{Replicas: replicas, Version: version, StackedEtcd: true, Certificates: true,
			Hosts: []controlplane.Host{{Name: worker, Version: version, Provisioned: true}},
			Etcd:  quorum.Membership{Known: true, Agreed: true}}},
		asked:         map[string]map[string]bool{worker: {}},
		images:        map[string]map[string]bool{worker: {version: true}},
		deletedByUser: map[string]bool{},
		wanted:        map[string]int{},
		lost:          map[string]bool{},
		unreleased:    map[string]bool{},
		missed:        map[uint64]int{},
		ill:           map[string]time.Time{},
		odd:           map[uint64]string{},
		nameless:      map[uint64]bool{},
	}
}

// observe is what the controller sees.
func (w *world) observe() controlplane.State {
	s := w.State
	s.Reachable, s.Remediation.Now = s.Initialized, w.now()
	s.AddonsCurrent = w.addons == w.Version
	s.Machines = append([]controlplane.Machine(nil), w.Machines...)
	for i := range s.Machines {
		s.Machines[i].KubeadmBegan, s.Machines[i].Returns = s.Machines[i].Joining, s.Machines[i].HostClaimed
	}
	s.PreCreated = append([]controlplane.PreCreatedMachine(nil), w.PreCreated...)
	s.Hosts = append([]controlplane.Host(nil), w.Hosts...)
	s.AddonsVersion = w.addons
	s.Spare = controlplane.Spare{Free: w.free, Pending: w.cleaning, Kind: "hosts that role=control-plane selects"}
	for _, machine := range w.Machines {
		if machine.Deleting && !machine.Hooked() && machine.HostClaimed {
			s.Spare.Returning++
		}
	}
	if w.free == 0 {
		s.Spare.Why = fmt.Sprintf("%d in use", w.taken())
	}
	for i := range s.Hosts {
		host := &s.Hosts[i]
		host.Requested, host.RequestedRunning = w.asked[host.Name][w.Version], w.asked[host.Name][w.addons]
		host.Present, host.PresentRunning = w.images[host.Name][w.Version], w.images[host.Name][w.addons]
	}
	s.Etcd.Members = append([]quorum.Member(nil), w.Etcd.Members...)
	for i := range s.Etcd.Members {
		if w.nameless[s.Etcd.Members[i].ID] {
			s.Etcd.Members[i].Machine = ""
		}
	}
	s.Etcd.Agreed = w.hasQuorum()
	return s
}

func (w *world) hasQuorum() bool {
	voters, healthy := w.voters()
	return healthy >= voters/2+1
}

func (w *world) voters() (voters, healthy int) {
	for _, member := range w.Etcd.Members {
		if !member.Learner {
			voters++
			if member.Healthy {
				healthy++
			}
		}
	}
	return voters, healthy
}

// taken is how many hosts the control plane has; one more is the worker's.
func (w *world) taken() int { return len(w.Hosts) - 1 }

func (w *world) outdated(name string) bool {
	machine := w.machine(name)
	return machine != nil && !machine.UpToDate
}

func (w *world) machine(name string) *controlplane.Machine {
	for i := range w.Machines {
		if w.Machines[i].Name == name {
			return &w.Machines[i]
		}
	}
	return nil
}

func (w *world) member(machine string) *quorum.Member {
	for i := range w.Etcd.Members {
		if w.Etcd.Members[i].Machine == machine {
			return &w.Etcd.Members[i]
		}
	}
	return nil
}

// change is a user's edit of the version: every Machine of another version is outdated.
func (w *world) change(version string) {
	w.Version = version
	for i := range w.Machines {
		w.Machines[i].UpToDate = w.Machines[i].Version == version
	}
	for i := range w.PreCreated {
		w.PreCreated[i].Unfit = "it is outdated"
	}
}

// outdate is a user's edit of anything else that needs new Machines.
func (w *world) outdate() {
	for i := range w.Machines {
		w.Machines[i].UpToDate = false
	}
	for i := range w.PreCreated {
		w.PreCreated[i].Unfit = "it is outdated"
	}
}

// take gives n free hosts to somebody else, or takes them back.
func (w *world) take(n int) { w.free = max(0, w.free-n) }

// die is the end of a Machine's host: its Node is silent and its member too.
func (w *world) die(name string) {
	machine := w.machine(name)
	machine.Healthy, machine.Serving, machine.Problem = false, false, "its kubelet does not report"
	if member := w.member(name); member != nil {
		member.Healthy, member.Leader, member.Problem = false, false, "it does not answer"
	}
	w.elect()
}

// lose is the end of a Machine for good, with its member or without, and a health check says so.
func (w *world) lose(name string, withMember bool) {
	machine := w.machine(name)
	machine.Healthy, machine.Serving, machine.Problem = false, false, "its kube-apiserver pod is not ready"
	w.member(name).Healthy = true
	if withMember {
		w.die(name)
	}
	w.lost[name], machine.Health.Marked = true, machine.Problem
}

// opened are the Machines whose departure was agreed to while their member works.
func (w *world) opened() (names []string) {
	for _, machine := range w.Machines {
		if member := w.member(machine.Name); machine.Deleting && !machine.DrainHook && member != nil && member.Healthy &&
			!member.Learner {
			names = append(names, machine.Name)
		}
	}
	return names
}

// votersWithout counts the healthy voters besides the Machine's.
func (w *world) votersWithout(machine string) int {
	_, healthy := w.voters()
	if member := w.member(machine); member != nil && !member.Learner && member.Healthy {
		healthy--
	}
	return healthy
}

// deleteByUser deletes without asking whether it may, so nothing is promised about what leaves at the same time.
func (w *world) deleteByUser(name string) {
	w.delete(name)
	for _, machine := range w.Machines {
		if machine.Deleting {
			w.deletedByUser[machine.Name] = true
		}
	}
}

func (w *world) delete(name string) {
	w.clock++
	machine := w.machine(name)
	machine.Deleting, machine.DeletedAt = true, w.clock
}

// apply carries a step out, and returns the promise that it broke, if any.
func (w *world) apply(step controlplane.Step) error {
	switch step.Kind {
	case controlplane.CreateFirstMachine, controlplane.CreateMachine:
		return w.create(step)
	case controlplane.PreCreateMachine:
		return w.preCreate(step)
	case controlplane.AllowHostClaim:
		return w.allowHostClaim(step)
	case controlplane.PrepullAddons:
		for _, name := range step.Hosts {
			w.asked[name][step.Version] = true
		}
	case controlplane.UpdateKubeadmConfig:
		w.ConfigVersion = w.Version
	case controlplane.MoveLeader:
		for i := range w.Etcd.Members {
			member := &w.Etcd.Members[i]
			if member.ID == step.To && (member.Learner || !member.Healthy) {
				return fmt.Errorf("leadership went to member %d, which cannot lead", step.To)
			}
			member.Leader = member.ID == step.To
		}
	case controlplane.DeleteMachine:
		if preCreated := w.withoutPreCreated(step.Machine); preCreated != nil {
			if preCreated.Unfit == "" && len(w.active()) < w.Replicas {
				return fmt.Errorf("%s was made ahead, is wanted and is deleted", step.Machine)
			}
			w.discard(preCreated.Name)
			return nil
		}
		member := w.member(step.Machine)
		// One that is slow, and to be replaced, may be needed by nobody and keep somebody for ever.
		votes := member != nil && !member.Learner && member.Healthy && w.odd[member.ID] != drawSlow
		remedy := step.Remediates != ""
		// What holds nothing is missed by nobody. One that joins may hold something soon.
		goes := w.machine(step.Machine)
		holds := member != nil || goes.Node != "" || goes.Joining
		for _, machine := range w.Machines {
			if holds && machine.Deleting && (machine.HostClaimed || machine.Hooked()) && (!remedy || votes || !machine.DrainHook &&
				!machine.AtTermination) {
				return fmt.Errorf("%s deleted while %s is being deleted", step.Machine, machine.Name)
			}
		}
		if step.Attempt != nil {
			w.Remediation.Pending = step.Attempt
		}
		switch voters, _ := w.voters(); {
		case member != nil && member.Leader && w.odd[member.ID] == "":
			return fmt.Errorf("%s is deleted while it leads etcd", step.Machine)
		case remedy:
			if left := w.votersWithout(step.Machine); member != nil && !member.Learner && left < (voters-1)/2+1 {
				return fmt.Errorf("%s is replaced while only %d of %d other voters are healthy", step.Machine, left, voters-1)
			}
			w.delete(step.Machine)
			w.deletedByUser[step.Machine] = true
			return nil
		case member != nil && !member.Learner:
			healthy, needed := w.votersWithout(step.Machine), w.Replicas
			if step.Reason == controlplane.ReasonRemoveFirst {
				needed--
			}
			if healthy < needed {
				return fmt.Errorf("%s is deleted while only %d other members are healthy voters, and %d are needed", step.Machine,
					healthy, needed)
			}
		}
		if step.Reason == controlplane.ReasonRemoveFirst {
			switch member := w.member(step.Machine); {
			case w.Replicas < 3:
				return fmt.Errorf("%s is removed first of %d", step.Machine, w.Replicas)
			case w.Strategy == controlplane.Surge && member.Healthy:
				return fmt.Errorf("%s is removed first although the strategy is Surge", step.Machine)
			case w.Strategy != controlplane.RemoveFirst && w.free+w.cleaning > 0 && member.Healthy:
				return fmt.Errorf("%s is removed first although %d hosts are free and %d will be", step.Machine, w.free, w.cleaning)
			}
		}
		for _, machine := range w.Machines {
			if machine.Name != step.Machine && !w.images[machine.Name][w.addons] &&
				(step.Reason == controlplane.ReasonReplaced ||
					step.Reason == controlplane.ReasonRemoveFirst) && machine.Node != "" && w.machine(step.Machine).Node != "" {
				return fmt.Errorf("%s is deleted while the host of %s lacks the images of %s that run", step.Machine, machine.Name,
					w.addons)
			}
		}
		w.delete(step.Machine)
		w.wanted[step.Machine] = w.Replicas
		if step.Reason == controlplane.ReasonRemoveFirst {
			w.wanted[step.Machine]--
		}
	case controlplane.ReleaseDrainHook:
		return w.open(step)
	case controlplane.StopAPIServer:
		return w.stopAPIServer(step)
	case controlplane.RequestBackup:
		w.Backup.Requested = true
	case controlplane.RemoveEtcdMember:
		return w.removeMember(step)
	case controlplane.ReleaseTerminateHook:
		if member := w.member(step.Machine); member != nil {
			return fmt.Errorf("the host of %s is released while its etcd member exists", step.Machine)
		}
		if machine := w.machine(step.Machine); machine.Joining && w.Initialized {
			return fmt.Errorf("the host of %s is released while its join runs", step.Machine)
		}
		w.machine(step.Machine).Hook, w.machine(step.Machine).DrainHook = false, false
	case controlplane.UpdateAddons:
		for _, machine := range w.Machines {
			if machine.Kubelet == "" || skew.Older(machine.Kubelet, w.Version) {
				return fmt.Errorf("add-ons go to %s while %s runs %q", w.Version, machine.Name, machine.Kubelet)
			}
		}
		for _, host := range w.Hosts {
			if host.Provisioned && !w.images[host.Name][w.Version] {
				return fmt.Errorf("add-ons go to %s while the host of %s lacks the images", w.Version, host.Name)
			}
		}
		w.addons = w.Version
	case controlplane.Done, controlplane.Wait, controlplane.Refuse, controlplane.EvictPods, controlplane.DeleteNode, controlplane.DeleteAll,
		controlplane.FetchSnapshot, controlplane.BeginRecovery, controlplane.OrderRecovery,
		controlplane.MarkForRemediation, controlplane.EndRecovery, controlplane.VoidRecovery:
		// They change nothing that these histories look at.
	default:
		return fmt.Errorf("nobody here carries out %s", step.Kind)
	}
	return nil
}

// open agrees to a departure. From here on the member counts for nothing.
func (w *world) open(step controlplane.Step) error {
	machine, member := w.machine(step.Machine), w.member(step.Machine)
	machine.DrainHook = false
	if member == nil || member.Learner {
		return nil
	}
	if member.Leader && w.odd[member.ID] == "" {
		return fmt.Errorf("%s is drained while it leads etcd", step.Machine)
	}
	// One that looked dead when it was let go may have come back since; the next dead one still leaves no gap. Nor does a
	// slow one beside one that keeps its host because of it.
	if opened := w.opened(); member.Healthy && w.odd[member.ID] != drawSlow && len(opened) > 1 {
		return fmt.Errorf("%s leave at the same time", strings.Join(opened, " and "))
	}
	voters, _ := w.voters()
	left := w.votersWithout(step.Machine)
	if left < (voters-1)/2+1 {
		return fmt.Errorf("%s is drained although only %d of %d other voters are healthy", step.Machine, left, voters-1)
	}
	// Another may have fallen ill since it was deleted; a quorum of those that are well is enough then.
	if wanted, ours := w.wanted[step.Machine]; ours && !w.deletedByUser[step.Machine] && member.Healthy &&
		voters-1 < wanted {
		return fmt.Errorf("%s is drained while only %d other members vote, and %d are needed", step.Machine, voters-1, wanted)
	}
	// Beside one that is slow none can join, so nothing comes first.
	lowered := w.Strategy == controlplane.RemoveFirst && !machine.UpToDate || w.free+w.cleaning == 0 ||
		w.odd[member.ID] == drawSlow
	if !lowered && member.Healthy && left < w.Replicas {
		return fmt.Errorf("%s is drained while only %d other members are healthy voters, %d hosts are free and %d will be",
			step.Machine, left, w.free, w.cleaning)
	}
	return nil
}

// stopAPIServer asks the host of a Machine to end its API server.
func (w *world) stopAPIServer(step controlplane.Step) error {
	machine, member := w.machine(step.Machine), w.member(step.Machine)
	switch {
	case !machine.AtTermination:
		return fmt.Errorf("the API server of %s is ended before the drain, which the kubelet needs it for", step.Machine)
	case machine.APIServer != controlplane.APIServerServing:
		return fmt.Errorf("the API server of %s is ended twice", step.Machine)
	case member == nil || !w.hasQuorum():
		return fmt.Errorf("the API server of %s is ended without an etcd in which it could say so", step.Machine)
	}
	machine.APIServer = controlplane.APIServerLeaving
	return nil
}

// released counts the Machines that have left and wait for the release of their hosts.
func (w *world) released() (released int) {
	for _, machine := range w.Machines {
		if machine.Deleting && !machine.Hooked() && !machine.Joining && w.member(machine.Name) == nil {
			released++
		}
	}
	return released
}

// prepare makes a Machine ahead, which nobody minds until it is admitted.
func (w *world) preCreate(step controlplane.Step) error {
	switch machine := w.machine(step.Machine); {
	case machine.Deleting && machine.DrainHook:
		return fmt.Errorf("a Machine is made ahead although nobody agreed to the departure of %s", step.Machine)
	case !machine.Deleting && (!machine.Joining || !machine.UpToDate):
		return fmt.Errorf("a Machine is made ahead although %s does not join, or is no replacement", step.Machine)
	case len(w.PreCreated) > 0:
		return fmt.Errorf("a second Machine is made ahead")
	}
	w.clock++
	w.machines++
	w.PreCreated = append(w.PreCreated, controlplane.PreCreatedMachine{Name: fmt.Sprintf("m%d", w.machines)})
	return nil
}

// admit makes a part of the control plane of a Machine that was made ahead.
func (w *world) allowHostClaim(step controlplane.Step) error {
	preCreated := w.withoutPreCreated(step.Machine)
	switch {
	case preCreated == nil:
		return fmt.Errorf("%s is admitted, which was not made ahead", step.Machine)
	case preCreated.Unfit != "":
		return fmt.Errorf("%s is admitted although %s", step.Machine, preCreated.Unfit)
	}
	return w.join(step, preCreated.Name)
}

// withoutPreCreated takes out a Machine that was made ahead; nil when there is none of the name.
func (w *world) withoutPreCreated(name string) *controlplane.PreCreatedMachine {
	for i, preCreated := range w.PreCreated {
		if preCreated.Name == name {
			w.PreCreated = append(w.PreCreated[:i:i], w.PreCreated[i+1:]...)
			return &preCreated
		}
	}
	return nil
}

// discard deletes a Machine that was made ahead. It goes like any other, with its holds, and has no host.
func (w *world) discard(name string) {
	w.clock++
	w.Machines = append(w.Machines, controlplane.Machine{Name: name, Version: w.Version, Created: w.clock, Hook: true,
		DrainHook: true,
		Deleting:  true, DeletedAt: w.clock})
	w.asked[name], w.images[name] = map[string]bool{}, map[string]bool{}
}

func (w *world) create(step controlplane.Step) error {
	w.machines++
	return w.join(step, fmt.Sprintf("m%d", w.machines))
}

func (w *world) join(step controlplane.Step, name string) error {
	// One that is out of etcd, and whose host is being released, is a part of the control plane no longer.
	if parts := len(w.Machines) - w.released(); parts > w.Replicas {
		return fmt.Errorf("%d Machines exist and %d are wanted, but another is made", parts, w.Replicas)
	}
	for _, machine := range w.Machines {
		if machine.Node == "" && !machine.Deleting && machine.Name != step.Remediates {
			return fmt.Errorf("a Machine is made while %s has not joined", machine.Name)
		}
		if machine.Kubelet == "" {
			continue
		}
		if err := skew.ControlPlaneStep(machine.Kubelet, w.Version); err != nil {
			return err
		}
	}
	runs := func(machine controlplane.Machine) bool { return machine.Kubelet == w.Version }
	if w.LeftBehind != "" && !slices.ContainsFunc(w.Machines, runs) {
		return fmt.Errorf("the first Machine of %s is made while %s", w.Version, w.LeftBehind)
	}
	if step.Joins() {
		if w.ConfigVersion != w.Version {
			return fmt.Errorf("a Machine of %s joins while kubeadm-config holds %s", w.Version, w.ConfigVersion)
		}
		for _, host := range w.Hosts {
			if host.Provisioned && !w.images[host.Name][w.Version] && !w.outdated(host.Machine) {
				return fmt.Errorf("a Machine of %s joins while the host of %s lacks its add-on images", w.Version, host.Name)
			}
		}
	}
	w.clock++
	if w.ages {
		w.Backup.Recent = false
	}
	// The host of a new Machine is told at once to hold the images of what runs.
	w.asked[name], w.images[name] = map[string]bool{w.addons: true}, map[string]bool{}
	made := controlplane.Machine{Name: name, Version: w.Version, UpToDate: true, Created: w.clock, Hook: true,
		DrainHook: true, FailureDomain: cmp.Or(step.FailureDomain, fmt.Sprintf("r%d", w.machines%3))}
	made.Health.Born, made.Health.Replaces = w.now(), cmp.Or(step.Attempt, w.Remediation.Pending)
	if made.Health.Replaces == w.Remediation.Pending {
		w.Remediation.Pending = nil
	}
	w.Machines = append(w.Machines, made)
	return nil
}

func (w *world) removeMember(step controlplane.Step) error {
	before, _ := w.voters()
	var kept []quorum.Member
	for _, member := range w.Etcd.Members {
		if member.ID != step.Member {
			kept = append(kept, member)
			continue
		}
		unknown := member.Machine == "" || w.nameless[member.ID]
		if unknown && member.Healthy && !member.Learner && !slices.Contains(w.RemoveMembers, member.ID) {
			return fmt.Errorf("member %d works, and is removed because its Machine is not known", step.Member)
		}
		if silent := time.Duration(w.missed[member.ID]) * time.Minute; unknown && !member.Learner &&
			silent < w.OrphanedMemberTimeout && !slices.Contains(w.RemoveMembers, member.ID) {
			return fmt.Errorf("member %d was silent for %s, and is removed because its Machine is not known", step.Member, silent)
		}
		if machine := w.machine(member.Machine); machine != nil && !machine.AtTermination {
			return fmt.Errorf("the member of %s is removed before the drain", machine.Name)
		}
		if machine := w.machine(member.Machine); machine != nil && member.Healthy &&
			(machine.APIServer == controlplane.APIServerServing ||
				machine.APIServer == controlplane.APIServerLeaving) {
			return fmt.Errorf("the member of %s is removed before its API server has left", machine.Name)
		}
	}
	if !w.hasQuorum() {
		return fmt.Errorf("member %d is removed without a quorum", step.Member)
	}
	w.Etcd.Members = kept
	if slices.Contains(w.RemoveMembers, step.Member) {
		// A person takes it from those that were to be left when a Machine was deleted.
		for name := range w.wanted {
			w.wanted[name]--
		}
	}
	if !w.hasQuorum() {
		return fmt.Errorf("etcd has no quorum after member %d was removed", step.Member)
	}
	after, _ := w.voters()
	if wanted := w.wanted[step.Machine]; !w.deletedByUser[step.Machine] && after < before && after < wanted {
		return fmt.Errorf("only %d of %d members vote after that of %s was removed", after, wanted, step.Machine)
	}
	w.elect()
	return nil
}

// elect gives a leaderless cluster a leader.
func (w *world) elect() {
	for _, member := range w.Etcd.Members {
		if member.Leader {
			return
		}
	}
	for i := range w.Etcd.Members {
		if !w.Etcd.Members[i].Learner && w.Etcd.Members[i].Healthy {
			w.Etcd.Members[i].Leader = true
			return
		}
	}
}

// advance gives one Machine time. It tells whether anything happened.
func (w *world) advance(name string) bool {
	machine := w.machine(name)
	member := w.member(name)
	switch {
	case w.lost[name] && !machine.Deleting:
		return false
	case machine.Deleting && machine.DrainHook && !machine.AtTermination && machine.Node != "" && len(w.active()) > 0:
		// Cluster API waits for pre-drain hooks, but not without a Node, and not when no Machine is left that stays.
		return false
	case machine.Deleting && !machine.Hook && w.unreleased[name] && machine.HostClaimed:
		w.note(drawUnreleased)
		return false
	case machine.Deleting && !machine.Hook:
		w.vanish(name)
	case machine.Deleting && !machine.AtTermination:
		machine.AtTermination = true
	case machine.Deleting && machine.Joining && member == nil && w.hasQuorum() && w.machines%2 == 0:
		// The join goes on whatever happens to the Machine.
		w.addMember(name, true)
		machine.Joining = false
	case machine.Deleting && machine.Joining:
		machine.Joining = false
	case machine.Deleting && machine.APIServer == controlplane.APIServerLeaving:
		machine.APIServer = controlplane.APIServerLeft
		if w.stays {
			machine.APIServer, machine.APIServerProblem = controlplane.APIServerStays, "its host does not answer"
		}
	case machine.Deleting:
		return false
	case !machine.HostClaimed && w.free == 0:
		return false
	case !machine.HostClaimed:
		machine.HostClaimed, machine.Joining = true, true
		w.free--
		w.Hosts = append(w.Hosts, controlplane.Host{Name: name, Version: machine.Version, Machine: name})
	case member == nil && !w.Initialized:
		w.addMember(name, false)
		w.Initialized, w.ConfigVersion, w.addons = true, machine.Version, machine.Version
	case machine.Node == "":
		// The kubelet registers before etcd joins (kubeadm's phases kubelet-start and control-plane-join).
		machine.Node, machine.Kubelet = name, machine.Version
	case member == nil:
		if !w.hasQuorum() {
			return false
		}
		w.addMember(name, true)
	case !machine.Serving:
		machine.Serving = true
	case !machine.Healthy:
		machine.Healthy = true
	case member.Learner:
		member.Learner = false
	case !machine.Bootstrapped:
		machine.Bootstrapped, machine.Joining, machine.Joined, machine.APIServer = true, false, true,
			controlplane.APIServerServing
		w.host(name).Provisioned, w.images[name][machine.Version] = true, true
	default:
		return false
	}
	return true
}

func (w *world) addMember(machine string, learner bool) {
	w.members++
	w.Etcd.Members = append(w.Etcd.Members, quorum.Member{ID: w.members, Name: machine, Machine: machine, Learner: learner,
		Healthy: true})
	w.elect()
}

func (w *world) host(name string) *controlplane.Host {
	for i := range w.Hosts {
		if w.Hosts[i].Name == name {
			return &w.Hosts[i]
		}
	}
	return nil
}

// forget loses the objects of a Machine whose member works: it goes on without them. Not of the last one that stays,
// because nobody could tell then what the cluster is.
func (w *world) forget(name string) {
	stays := slices.ContainsFunc(w.Machines, func(machine controlplane.Machine) bool {
		member := w.member(machine.Name)
		return machine.Name != name && (!machine.Deleting || machine.DrainHook) && member != nil && !member.Learner &&
			member.Healthy
	})
	if member := w.member(name); !stays || member == nil || member.Learner || !member.Healthy {
		return
	}
	w.Machines = slices.DeleteFunc(w.Machines, func(machine controlplane.Machine) bool { return machine.Name == name })
	w.Hosts = slices.DeleteFunc(w.Hosts, func(host controlplane.Host) bool { return host.Name == name })
	w.member(name).Machine = ""
	w.note(drawStray)
}

// unname has nobody say any more, or again, whose a voter is that works, as it does as long as that is not known.
func (w *world) unname(name string) {
	if member := w.member(name); member != nil && !member.Learner && member.Healthy && w.machine(name).Joined {
		w.nameless[member.ID] = !w.nameless[member.ID]
		w.note(drawNameless)
	}
}

// vanish takes a Machine away with its host. A member that it leaves behind is dead.
func (w *world) vanish(name string) {
	for i := range w.Machines {
		if w.Machines[i].Name == name {
			if w.Machines[i].HostClaimed {
				w.cleaning++
			}
			w.Machines = append(w.Machines[:i], w.Machines[i+1:]...)
			break
		}
	}
	for i := range w.Hosts {
		if w.Hosts[i].Name == name {
			w.Hosts = append(w.Hosts[:i], w.Hosts[i+1:]...)
			break
		}
	}
	if member := w.member(name); member != nil {
		member.Machine, member.Healthy, member.Leader = "", false, false
		w.elect()
	}
}

// cleaned frees the hosts that were being reset.
func (w *world) cleaned() bool {
	cleaned := w.cleaning > 0
	w.free, w.cleaning = w.free+w.cleaning, 0
	return cleaned
}

// backUp takes the snapshot that was asked for.
func (w *world) backUp() bool {
	if !w.Backup.Requested {
		return false
	}
	w.Backup.Requested, w.Backup.Recent = false, true
	return true
}

// fetch gives every host that was asked the images it was asked for.
func (w *world) fetch() bool {
	changed := false
	for _, host := range w.Hosts {
		for version := range w.asked[host.Name] {
			if host.Provisioned && !w.images[host.Name][version] {
				w.images[host.Name][version], changed = true, true
			}
		}
	}
	return changed
}

// names of the Machines, oldest first.
func (w *world) names() []string {
	sorted := append([]controlplane.Machine(nil), w.Machines...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Created < sorted[j].Created })
	names := make([]string, 0, len(sorted))
	for _, machine := range sorted {
		names = append(names, machine.Name)
	}
	return names
}
