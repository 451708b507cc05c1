// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// terms are those of a departure that somebody asked for: as much must be tolerated afterwards as is wanted, unless
// there is nothing to make a replacement from, or none can join. That is so while the Machine's own member is slow,
// which it may be for ever: kubeadm join asks every member.
func (s facts) terms(machine controlplane.Machine) quorum.Terms {
	if !s.replaceable() || s.strategy().leavesFirst() && !machine.UpToDate ||
		s.memberState(machine) == quorum.MemberSlow {
		return s.removedFirst()
	}
	return s.placeTaken()
}

// placeTaken are the terms of a departure after which nothing may be missing: the place of the Machine is taken, or not
// wanted any more, or its replacement can vote first.
func (s facts) placeTaken() quorum.Terms {
	return quorum.ToLeave(s.Replicas, true, s.DeadMemberTimeout)
}

// joinsInVain says why nothing can take the place of a Machine while etcd takes no writes, and what ends that; empty
// when something can.
func (s facts) joinsInVain() string {
	if full := s.full(); full != nil {
		return fmt.Sprintf("Nothing can take its place while the database of etcd member %s is full: %s", full.Name,
			quorum.MakeRoom)
	}
	if s.Etcd.Alarm != "" {
		return fmt.Sprintf("Nothing can take its place: %s. What ends that: %s", s.Etcd.Alarm, quorum.CheckData)
	}
	return ""
}

// full is a voter whose database has reached its quota; nil when there is none.
func (s facts) full() *quorum.Member {
	for i := range s.Etcd.Members {
		if member := &s.Etcd.Members[i]; s.StackedEtcd && s.stateOf(*member) == quorum.MemberFull {
			return member
		}
	}
	return nil
}

// joining names an active Machine that does not vote yet; empty when there is none.
func (s facts) joining() string {
	for _, machine := range s.active() {
		if s.joins(machine) {
			return machine.Name
		}
	}
	return ""
}

// joins reports whether the Machine does not vote yet.
func (s facts) joins(machine controlplane.Machine) bool {
	return s.StackedEtcd && !s.memberState(machine).Votes() || machine.Node == ""
}

// mayDepart judges etcd without the Machine's member, or without each that may be its own.
func (s facts) mayDepart(machine controlplane.Machine, terms quorum.Terms) quorum.Verdict {
	var members []quorum.Member
	if member := s.memberOf(machine); member != nil {
		members = []quorum.Member{*member}
	} else if s.mayVote(machine) {
		members = s.orphanedMembers()
	}
	ids := make([]uint64, 0, len(members))
	for _, member := range members {
		ids = append(ids, member.ID)
	}
	// Others whose member is not known leave after it: one Machine at a time.
	return quorum.JudgeOneOf(s.membership(), ids, 0, terms)
}

// mayRemove judges the removal of a member from etcd.
func (s facts) mayRemove(id uint64, terms quorum.Terms) quorum.Verdict {
	return quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.Remove, Members: []uint64{id}}, terms)
}

// mayJoin judges the join of a further Machine.
func (s facts) mayJoin() quorum.Verdict {
	return quorum.Judge(s.membership(), quorum.Operation{Kind: quorum.AddLearner}, quorum.ToJoin(s.Replicas))
}

// membership is etcd with what is known of the members' Machines: whose is being deleted departs, and until its drain
// was opened nothing happens to it, so that meanwhile it is as good as any other. So it is behind its drain while the
// quorum needs it.
func (s facts) membership() quorum.Membership {
	holders := make([]quorum.Holder, 0, len(s.Machines))
	for _, machine := range s.Machines {
		holders = append(holders, quorum.Holder{Name: machine.Name, FailureDomain: machine.FailureDomain,
			Deleting: machine.Deleting, Held: machine.DrainHook || s.neededBehindDrain(machine)})
	}
	return s.Etcd.HeldBy(holders, s.RemoveMembers)
}

// neededBehindDrain reports whether the Machine is drained, and no quorum would be left without its member, as where
// another one fell ill during the drain. Its host stays as long as that member does, so who is ill need not wait for
// it.
func (s facts) neededBehindDrain(machine controlplane.Machine) bool {
	member := s.memberOf(machine)
	return machine.AtTermination && member != nil && !quorum.Judge(s.Etcd, quorum.Operation{Kind: quorum.Remove,
		Members: []uint64{member.ID}}, quorum.ByQuorumAlone(s.DeadMemberTimeout)).Allowed
}

// successor is the voter that takes over from the leader: healthy, known not to be far behind, on a Machine that stays
// before one that is kept for now, up to date before outdated, newest first. Nil when there is none.
func (s facts) successor(leader quorum.Member) *quorum.Member {
	var best *quorum.Member
	var bestMachine controlplane.Machine
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		if member.ID == leader.ID || member.Hearsay || member.Shortcoming() != "" || member.Lag > quorum.DefaultMaxLag {
			continue
		}
		for _, machine := range s.Machines {
			if machine.Name != member.Machine || machine.Deleting && !machine.DrainHook {
				continue
			}
			if best == nil || better(machine, bestMachine) {
				best, bestMachine = member, machine
			}
		}
	}
	return best
}

// better reports whether a should lead etcd rather than b.
func better(a, b controlplane.Machine) bool {
	switch {
	case a.Deleting != b.Deleting:
		return !a.Deleting
	case a.UpToDate != b.UpToDate:
		return a.UpToDate
	}
	return a.Created > b.Created
}

// reportQuorumLoss waits for a quorum that is lost: nothing that could be done here would bring it back, and much would
// destroy what is left of it.
func reportQuorumLoss(s facts) *controlplane.Step {
	if loss := s.quorumLoss(); loss != nil {
		return s.wait(controlplane.Repair, controlplane.ReasonQuorumLost, "%s. %s", loss.Message, loss.WayOut)
	}
	return nil
}

// electing reports whether etcd may be electing a leader, or its list was merely not confirmed in time.
func (s facts) electing() bool {
	return s.Initialized && s.StackedEtcd && s.Etcd.Known && !s.Etcd.Agreed && s.ElectionGrace > 0
}

// membersAwaited are the reasons of waits for members, of which a person may be advised to give one up.
var membersAwaited = []string{controlplane.ReasonMachineNotReady, controlplane.ReasonQuorum,
	controlplane.ReasonMemberWithoutMachine, controlplane.ReasonAddonImages}

// awaitElection has a wait for members be one for the election while there may be one: which of them works is not known
// before, so nobody is advised to give one up. meanwhile begins the sentence.
func (s facts) awaitElection(step *controlplane.Step, meanwhile string) *controlplane.Step {
	if step == nil || step.Kind != controlplane.Wait || !s.electing() ||
		step.Operation != controlplane.Remediate && !slices.Contains(membersAwaited, step.Reason) {
		return step
	}
	waits := *step
	waits.Reason = controlplane.ReasonQuorumLost
	waits.Message = fmt.Sprintf("%setcd did not confirm its list of members. So it is for a moment whenever it elects a "+
		"leader: it is waited for, for %s, until the quorum is said to be lost", meanwhile, s.ElectionGrace)
	return &waits
}

// quorumLoss says that etcd has no quorum; nil when it has one, or when that is not known.
func (s facts) quorumLoss() *controlplane.QuorumLoss {
	if !s.Initialized || !s.StackedEtcd || !s.Etcd.Known || s.Etcd.Agreed {
		return nil
	}
	voters, gone := 0, 0
	var healthy, missing, unclaimed, unheard []string
	for _, member := range s.Etcd.Members {
		if member.Learner {
			continue
		}
		voters++
		id := fmt.Sprintf("%x", member.ID)
		name, known := cmp.Or(member.Name, id), s.known(member)
		if !known {
			unclaimed = append(unclaimed, id)
		}
		switch {
		case s.stateOf(member) == quorum.MemberHealthy:
			healthy = append(healthy, name)
		case s.holderGone(member):
			gone++
			missing = append(missing, name+" (its host is gone)")
		case !known:
			unheard = append(unheard, id)
			missing = append(missing, name+" (no Machine runs it, and nobody here knows its host)")
		default:
			missing = append(missing, name+" ("+member.Problem+")")
		}
	}
	needed := quorum.Majority(voters)
	if len(healthy) >= needed {
		return s.disagreement(healthy, missing, unclaimed)
	}
	loss := &controlplane.QuorumLoss{ForGood: voters-gone < needed}
	loss.Message = fmt.Sprintf("etcd has no quorum: %d of %d voters are healthy and %d are needed; missing are %s",
		len(healthy), voters, needed, list(missing))
	loss.WayOut = s.wayOutOfLoss(loss.ForGood, healthy, unheard)
	return loss
}

// disagreement is a quorum that is lost although enough voters look healthy: one whose disk hangs names its old leader
// for ever, while the one that works sees none. Nil for as long as etcd may be electing, or its list was merely not
// confirmed in time. It is never one for good, because as many hosts answer as are needed.
func (s facts) disagreement(naming, others, unclaimed []string) *controlplane.QuorumLoss {
	if s.ElectionGrace > 0 {
		return nil
	}
	loss := &controlplane.QuorumLoss{Message: "etcd has no quorum: no voter completes a read through it. A leader is " +
		"named by " + list(naming)}
	if len(others) > 0 {
		loss.Message += ", and not by " + list(others)
	}
	loss.WayOut = s.wayOutOfLoss(false, naming, unclaimed)
	return loss
}

// wayOutOfLoss is what a person can do about a quorum that is lost. Who names a leader may hang, and members of which
// nobody here knows the hosts may have the quorum without the others.
func (s facts) wayOutOfLoss(forGood bool, naming, unclaimed []string) string {
	switch {
	case forGood:
		return "It does not come back by itself, and nothing is changed automatically: restore it with " +
			"spec.recovery, from one survivor or from a snapshot (docs/disaster-recovery.md)"
	case s.Recovery != nil && s.Recovery.Withdrawn:
		return fmt.Sprintf("Recovery %s has begun and was taken away, and members that it has stopped do not come "+
			"back: put it back into spec.recovery as it was, or ask under another id (docs/disaster-recovery.md)", s.Recovery.ID)
	case s.ElectionGrace > 0:
		return fmt.Sprintf("So it is for a moment whenever etcd elects a leader: it is waited for, for %s, until it "+
			"is said to be lost", s.ElectionGrace)
	case len(unclaimed) > 0:
		return fmt.Sprintf("Members %s may be well, and have a quorum without the others: the objects here may be "+
			"older than they. If another management cluster has their Machines, pause this Cluster. Else look for their "+
			"hosts before you restore anything with spec.recovery (docs/disaster-recovery.md)", list(unclaimed))
	}
	look := ""
	if len(naming) > 0 {
		look = "Who names a leader and agrees with nobody may hang with its disk: look first at " + list(naming) + ". "
	}
	return look + "It comes back by itself with the hosts of enough members; nothing is changed meanwhile. " +
		"If they are lost for good, restore with spec.recovery, from one survivor or from a snapshot " +
		"(docs/disaster-recovery.md)"
}

// known reports whether a known Machine runs the member.
func (s facts) known(member quorum.Member) bool {
	return slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
		return machine.Name == member.Machine
	})
}

// holderGone reports whether nothing can bring a member back that does not work: its Machine's host was given up or
// released. One whose bootstrap data failed runs, and without a Machine nobody here knows its host, which may be well.
func (s facts) holderGone(member quorum.Member) bool {
	for _, machine := range s.Machines {
		if machine.Name == member.Machine {
			return machine.Health.Final != "" && machine.Bootstrapped || machine.Deleting && !machine.Hook
		}
	}
	return false
}
