// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"sort"
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
	if len(active) > s.Replicas {
		leaving, required = s.pick().Name, s.shortcoming
	}
	for _, machine := range active {
		problem := required(machine)
		if problem == "" || machine.Name == leaving {
			continue
		}
		return wait(ReasonMachineNotReady, "waiting for Machine %s: %s", machine.Name, problem)
	}
	return nil
}

// replace rolls outdated Machines by a surge of one: a new one joins, works and votes, then an old one leaves.
func replace(s Snapshot) *Step {
	active := s.active()
	outdated := 0
	for _, machine := range active {
		if !machine.UpToDate {
			outdated++
		}
	}
	if outdated == 0 {
		return nil
	}
	if len(active) <= s.Replicas {
		return join(s, ReasonSurge, fmt.Sprintf("%d of %d Machines are outdated: making a new one first", outdated, len(active)))
	}
	leaver := s.pick()
	if step := holdAddons(s, leaver); step != nil {
		return step
	}
	return remove(s, leaver, ReasonReplaced)
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
		case host.Machine == "" || host.Machine == leaver.Name || host.PresentRunning:
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
		return remove(s, s.pick(), ReasonScaleDown)
	}
	return nil
}

// join makes a further Machine, and before it what its join needs. The images of the version's add-ons go first, while
// nothing has changed yet: from the first new API server on, every day that they are missing somewhere is a risk.
func join(s Snapshot, reason, message string) *Step {
	if !s.Certificates {
		return wait(ReasonCertificates, "the cluster's certificates are missing, so no Machine can join")
	}
	if step := fetchAddons(s); step != nil {
		return step
	}
	if s.ConfigVersion != s.Version {
		return configure(s)
	}
	return &Step{Kind: CreateJoin, Reason: reason, Message: message}
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
		} else if host.Provisioned && !host.Unreachable {
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

// remove lets a Machine go whose place is taken or not wanted any more. Leadership moves before the drain, so that etcd
// elects while all of its members still work.
func remove(s Snapshot, machine Machine, reason string) *Step {
	member := s.memberOf(machine)
	if s.StackedEtcd && member != nil {
		if verdict := s.mayRemove(member.ID); !verdict.Allowed {
			return wait(ReasonQuorum, "Machine %s cannot go: %s", machine.Name, verdict.Message)
		}
		// Only the leader itself can hand over. One that does not answer loses its lead by the removal.
		if member.Leader && member.Healthy {
			next := s.successor(*member)
			if next == nil {
				return wait(ReasonQuorum, "Machine %s cannot go: no other member can lead etcd", machine.Name)
			}
			return &Step{Kind: MoveLeader, Machine: machine.Name, Member: member.ID, To: next.ID, Reason: reason,
				Message: fmt.Sprintf("moving etcd leadership from Machine %s to %s", machine.Name, next.Machine)}
		}
	}
	return &Step{Kind: DeleteMachine, Machine: machine.Name, Reason: reason,
		Message: fmt.Sprintf("deleting Machine %s", machine.Name)}
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
		// While something is outdated only outdated Machines may go, else a surge would never end.
		if a.UpToDate != b.UpToDate {
			return !a.UpToDate
		}
		if a.Preferred != b.Preferred {
			return a.Preferred
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
