// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package before

import (
	"fmt"
	"sort"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// settle waits until every Machine works, except one that is about to leave anyway.
func settle(s Snapshot) *Step {
	active := s.active()
	for _, machine := range active {
		if !machine.UpToDate && len(active) > 1 && s.neverJoined(machine) {
			return &Step{Kind: DeleteMachine, Machine: machine.Name, Reason: ReasonReplaced,
				Message: fmt.Sprintf("Machine %s is outdated and never joined", machine.Name)}
		}
	}
	// For a join it is enough that the others serve; one that takes the place of another must be able to run pods too.
	leaving, required := "", s.outage
	placed := s.placed()
	switch {
	case len(placed) > s.Replicas:
		leaving, required = s.pick().Name, s.shortcoming
	case len(placed) == s.Replicas && s.outdated() > 0:
		leaving = s.mendedByReplacement()
	}
	for _, machine := range placed {
		problem := required(machine)
		if problem == "" || machine.Name == leaving {
			continue
		}
		return wait(ReasonMachineNotReady, "waiting for Machine %s: %s", machine.Name, s.explained(machine, problem)).about(machine)
	}
	return nil
}

// mendedByReplacement names the Machine that a rollout replaces next, if what is wrong with it needs no waiting for: its
// etcd member works, or a user marked it to go. A member that is silent for a while comes back sooner than a new one joins.
func (s Snapshot) mendedByReplacement() string {
	leaver := s.pick()
	if leaver.Node == "" || s.memberShortcoming(leaver) != "" && (!leaver.Preferred || !s.castsNoVote(leaver)) {
		return ""
	}
	return leaver.Name
}

// castsNoVote tells that the Machine's member is a voter that is dead.
func (s Snapshot) castsNoVote(machine Machine) bool {
	member := s.memberOf(machine)
	return s.StackedEtcd && s.dead(member)
}

func (s Snapshot) outdated() int {
	outdated := 0
	for _, machine := range s.active() {
		if !machine.UpToDate {
			outdated++
		}
	}
	return outdated
}

// holdAddons sees to it that the Machines that stay can run what runs on the leaver: CoreDNS and kube-proxy keep their
// old images until every API server is new, and a host of the new version does not bring those along.
func holdAddons(s Snapshot, leaver Machine) *Step {
	if s.AddonsVersion == "" {
		return nil
	}
	var unasked, lacking []string
	for _, host := range s.Hosts {
		switch {
		case host.Machine == "" || host.Machine == leaver.Name || host.PresentRunning || s.unplaced(host.Machine):
		case !host.RequestedRunning && host.Version != s.AddonsVersion:
			unasked = append(unasked, host.Name)
		default:
			lacking = append(lacking, host.Name)
		}
	}
	sort.Strings(unasked)
	sort.Strings(lacking)
	if len(unasked) > 0 {
		return &Step{Kind: PrepullAddons, Hosts: unasked, Version: s.AddonsVersion, Reason: ReasonAddonImages,
			Message: fmt.Sprintf("asking the hosts of %s for the add-on images of %s, which run until the add-ons follow", list(unasked), s.AddonsVersion)}
	}
	if len(lacking) > 0 {
		return wait(ReasonAddonImages, "Machine %s stays until the hosts of %s hold the add-on images of %s, which run now",
			leaver.Name, list(lacking), s.AddonsVersion)
	}
	return nil
}

// scale makes or deletes one Machine.
func scale(s Snapshot) *Step {
	active := s.active()
	switch {
	case len(active) < s.Replicas:
		return join(s, ReasonScaleUp, fmt.Sprintf("%d of %d Machines exist: making one more", len(active), s.Replicas))
	case len(active) > s.Replicas:
		leaver := s.pick()
		for _, machine := range active {
			if s.unplaced(machine.Name) {
				leaver = machine
			}
		}
		return remove(s, leaver, ReasonScaleDown, s.placeTaken(leaver))
	}
	return nil
}

// join makes a further Machine, or admits the one that was made ahead, and before that what its join needs.
func join(s Snapshot, reason, message string) *Step {
	if step := readyJoin(s); step != nil {
		return step
	}
	if s.StackedEtcd {
		verdict := quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.AddLearner}, quorum.Terms{Desired: s.Replicas, All: true})
		if !verdict.Allowed {
			return wait(ReasonQuorum, "%s, but none can join now: %s. %s", message, verdict.Message, verdict.WayOut)
		}
	}
	if step := s.admit(reason, message); step != nil {
		return step
	}
	return &Step{Kind: CreateJoin, Reason: reason, Message: message}
}

// readyJoin makes what a join needs; nil when it is all there. The images of the version's add-ons go first, while nothing
// has changed yet: from the first new API server on, every day that they are missing somewhere is a risk.
func readyJoin(s Snapshot) *Step {
	if !s.Certificates {
		return wait(ReasonCertificates, "the cluster's certificates are missing, so no Machine can join")
	}
	if step := fetchAddons(s); step != nil {
		return step
	}
	if s.ConfigVersion != s.Version {
		return configure(s)
	}
	return nil
}

func configure(s Snapshot) *Step {
	return &Step{Kind: UpdateKubeadmConfig, Reason: ReasonNewVersion,
		Message: fmt.Sprintf("writing version %s to the kubeadm-config ConfigMap, which holds %s", s.Version, s.ConfigVersion)}
}

// fetchAddons sees to it that every host holds the images that CoreDNS and kube-proxy will have.
func fetchAddons(s Snapshot) *Step {
	var unasked, lacking []string
	for _, host := range s.Hosts {
		// What a host of this version needs comes with its provisioning.
		if host.Present || host.Version == s.Version {
			continue
		}
		if !host.Requested {
			unasked = append(unasked, host.Name)
		} else if host.Provisioned && host.Unfit == "" {
			lacking = append(lacking, host.Name)
		}
	}
	sort.Strings(unasked)
	sort.Strings(lacking)
	if len(unasked) > 0 {
		return &Step{Kind: PrepullAddons, Hosts: unasked, Version: s.Version, Reason: ReasonAddonImages,
			Message: fmt.Sprintf("asking the hosts of %s for the add-on images of %s", list(unasked), s.Version)}
	}
	if len(lacking) > 0 {
		return wait(ReasonAddonImages, "waiting for the add-on images of %s on the hosts of %s", s.Version, list(lacking))
	}
	return nil
}

// remove lets a Machine go whose place is taken, or not wanted any more, or taken by its replacement later. Leadership moves
// before the drain, so that etcd elects while all of its members still work.
func remove(s Snapshot, machine Machine, reason string, terms quorum.Terms) *Step {
	if s.StackedEtcd {
		if verdict := s.mayDepart(machine, terms); !verdict.Allowed {
			return wait(ReasonQuorum, "Machine %s cannot go: %s", machine.Name, verdict.Message).about(machine)
		}
		if step := handOver(s, machine, reason); step != nil {
			return step
		}
		if member := s.memberOf(machine); member != nil && member.Leader && member.Healthy {
			return wait(ReasonQuorum, "Machine %s cannot go: no other member can lead etcd", machine.Name).about(machine)
		}
	}
	return &Step{Kind: DeleteMachine, Machine: machine.Name, Reason: reason,
		Message: fmt.Sprintf("deleting Machine %s", machine.Name)}
}

// placeTaken are the terms of a departure after which nothing may be missing: the place of the Machine is taken, or not
// wanted any more.
func (s Snapshot) placeTaken(leaver Machine) quorum.Terms {
	member := s.memberOf(leaver)
	return quorum.Terms{Desired: s.Replicas, Spare: true, Lowered: s.dead(member), DeadMemberTimeout: s.Patience}
}

// pick is the active Machine that leaves next: one that a user marked, then outdated, then not working, then from the
// failure domain with most Machines, then the oldest.
func (s Snapshot) pick() Machine {
	active := s.active()
	crowd := map[string]int{}
	for _, machine := range active {
		crowd[machine.FailureDomain]++
	}
	sort.Slice(active, func(i, j int) bool {
		a, b := active[i], active[j]
		if a.Preferred != b.Preferred {
			return a.Preferred
		}
		// Before those that do not work: a new Machine that comes up slowly must not go in the place of an outdated one, else
		// a surge would never end.
		if a.UpToDate != b.UpToDate {
			return !a.UpToDate
		}
		aWorks, bWorks := s.shortcoming(a) == "", s.shortcoming(b) == ""
		if aWorks != bWorks {
			return !aWorks
		}
		if crowd[a.FailureDomain] != crowd[b.FailureDomain] {
			return crowd[a.FailureDomain] > crowd[b.FailureDomain]
		}
		if a.Created != b.Created {
			return a.Created < b.Created
		}
		return a.Name < b.Name
	})
	return active[0]
}

// followVersion gives the add-ons the version once every API server runs it, because kube-proxy may not be newer than
// any of them.
func followVersion(s Snapshot) *Step {
	if len(s.Machines) == 0 {
		return nil
	}
	if s.ConfigVersion != s.Version {
		return configure(s)
	}
	if step := fetchAddons(s); step != nil {
		return step
	}
	for _, machine := range s.Machines {
		if machine.Kubelet != s.Version {
			return wait(ReasonMachineNotReady, "waiting for Machine %s: its kubelet runs %q, not %s", machine.Name, machine.Kubelet, s.Version)
		}
	}
	if s.AddonsProblem != "" {
		return wait(ReasonAddonsUnknown, "CoreDNS and kube-proxy cannot follow: %s", s.AddonsProblem)
	}
	if !s.AddonsCurrent {
		return &Step{Kind: UpdateAddons, Reason: ReasonNewVersion,
			Message: fmt.Sprintf("giving CoreDNS and kube-proxy the images of %s", s.Version)}
	}
	return nil
}
