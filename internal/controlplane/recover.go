// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// Recovery is a person's word to restore an etcd that has lost its quorum, and how far that came.
type Recovery struct {
	// ID of the recovery; what was done under it is not done again.
	ID string
	// Machine whose etcd member survives.
	Machine string
	// GiveUp names all other Machines, whose members are lost.
	GiveUp []string
	// Snapshot that the survivor begins with; the data of its own member when empty.
	Snapshot string
	// Delivered says that the snapshot's data lie on the survivor's host, Delivery how far they came.
	Delivered bool
	Delivery  string
	// State that was recorded under the ID.
	State RecoveryState
	// Hosts by Machine.
	Hosts map[string]RecoveryHost
}

// RecoveryState is how far a recovery came.
type RecoveryState string

const (
	// RecoveryAsked means: nothing was done yet.
	RecoveryAsked RecoveryState = ""
	// RecoveryFetching means: the snapshot is brought to the survivor's host. Nothing else was done yet.
	RecoveryFetching RecoveryState = "Fetching"
	// RecoveryBegun means: hosts may have been told to stop their members.
	RecoveryBegun RecoveryState = "Begun"
	// RecoveryComplete means: the survivor is a cluster of one. Final.
	RecoveryComplete RecoveryState = "Complete"
	// RecoveryVoid means: a quorum was there, so nothing is done under the ID, whatever is lost later. Final.
	RecoveryVoid RecoveryState = "Void"
)

// RecoveryRecord is what the control plane carries along of its last recovery.
type RecoveryRecord struct {
	ID    string        `json:"id"`
	State RecoveryState `json:"state"`
	// Data of the snapshot that lay on the survivor's host when it began; nil when the member goes on with its own.
	Data *RecoveryData `json:"data,omitempty"`
}

// RecoveryData are the data of a snapshot on a host.
type RecoveryData struct {
	Snapshot string `json:"snapshot"`
	SHA256   string `json:"sha256"`
	Size     int64  `json:"size"`
}

// ReadRecoveryRecord is what text says of the recovery id; the record of another one says nothing. One that cannot be
// read forbids: it may say that all was done.
func ReadRecoveryRecord(text, id string) RecoveryRecord {
	if text == "" {
		return RecoveryRecord{ID: id}
	}
	var record RecoveryRecord
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return RecoveryRecord{ID: id, State: RecoveryVoid}
	}
	if record.ID != id {
		return RecoveryRecord{ID: id}
	}
	return record
}

// RecoveryHost is what is known of the host of a Machine.
type RecoveryHost struct {
	// Name of the host, as a person writes it to kubectl.
	Name string
	// Gone: it is not the Machine's any more, or is known not to run.
	Gone bool
	// Silent: it does not answer.
	Silent bool
	// Ordered: it was told its part. Succeeded and Failed tell how that ended; neither while it runs or has not begun.
	Ordered, Succeeded, Failed bool
	// Message says what went wrong.
	Message string
}

func (h RecoveryHost) done() bool   { return h.Ordered && h.Succeeded }
func (h RecoveryHost) failed() bool { return h.Ordered && h.Failed }

// restore carries out a recovery that a person asked for. It goes before everything that waits for a quorum, and in
// this order, so that at no moment two clusters can take writes: every member that is given up is stopped for good or
// is known not to run; only then one becomes a cluster of its own; only then the Machines of the others go.
func restore(s Snapshot) *Step {
	r := s.Recovery
	if r == nil || !s.Initialized {
		return nil
	}
	if r.over() {
		return r.free()
	}
	return s.restoring(*r)
}

// over tells that the recovery was carried out, or never will be.
func (r Recovery) over() bool { return r.State == RecoveryComplete || r.State == RecoveryVoid }

// free takes from the hosts the parts of a recovery that is over, which its end did not come to: its record is written
// first, because without their parts it would look as if somebody else had brought the quorum back.
func (r Recovery) free() *Step {
	for _, host := range r.Hosts {
		if !host.Ordered {
			continue
		}
		step := change(EndRecovery, Recover, ReasonRecovered, "recovery %s is over: no host has a part in it any more", r.ID)
		if r.State == RecoveryVoid {
			step.Kind, step.Reason = VoidRecovery, ReasonRecoveryVoid
		}
		return step
	}
	return nil
}

func (s Snapshot) restoring(r Recovery) *Step {
	survivor := r.Hosts[r.Machine]
	if s.quorate(survivor) {
		// It would else begin by itself at the next loss, at nobody's word.
		return change(VoidRecovery, Recover, ReasonRecoveryVoid,
			"etcd has a quorum, so recovery %s is not carried out, now or later; ask under another id if the quorum is lost",
			r.ID)
	}
	if r.State == RecoveryAsked || r.State == RecoveryFetching {
		if s.Etcd.Known && s.QuorumLoss() == nil {
			return nil
		}
		if why := s.refuseRecovery(r); why != "" {
			return s.refusal(Recover, ReasonRecoveryRefused, "recovery %s is not carried out: %s", r.ID, why)
		}
		if step := s.fetching(r); step != nil {
			return step
		}
		return change(BeginRecovery, Recover, ReasonRecovering,
			"recovery %s of etcd begins: Machine %s carries the cluster on%s, "+
				"given up are %s", r.ID, r.Machine, r.with(), orNobody(r.GiveUp)).about(r.Machine)
	}
	if step := s.fence(r); step != nil {
		return step
	}
	switch {
	case survivor.failed():
		return s.recoveryFailed(r, r.Machine, survivor)
	case !survivor.Ordered:
		return &Step{Kind: OrderRecovery, Operation: Recover, RecheckAfter: RecheckStep, Machine: r.Machine,
			Order:  OrderSurvive,
			Reason: ReasonRecovering, Message: fmt.Sprintf(
				"the etcd member of Machine %s becomes a cluster of one%s: no other can come back", r.Machine, r.with())}
	case !survivor.done():
		return s.recoveryWaits(r.Machine, survivor, "makes its etcd member a cluster of one")
	}
	return s.carryOn(r)
}

// fetching has the snapshot brought to the survivor's host before any member is stopped: it may be damaged, or nobody
// may have its key.
func (s Snapshot) fetching(r Recovery) *Step {
	switch {
	case r.Snapshot == "" || r.Delivered && r.State == RecoveryFetching:
		return nil
	case r.State == RecoveryAsked:
		return change(FetchSnapshot, Recover, ReasonRecoveryFetching,
			"recovery %s: snapshot %s is brought to the host of Machine %s "+
				"before any etcd member is stopped", r.ID, r.Snapshot, r.Machine).about(r.Machine)
	}
	return s.wait(Recover, ReasonRecoveryFetching,
		"snapshot %s is brought to the host of Machine %s before any etcd member is stopped: %s",
		r.Snapshot, r.Machine, r.Delivery).about(r.Machine)
}

// quorate tells that a quorum is there which the recovery has not made.
func (s Snapshot) quorate(survivor RecoveryHost) bool {
	return s.StackedEtcd && s.Etcd.Known && s.Etcd.Agreed && (!survivor.Ordered || s.Etcd.Count().Voters > 1 &&
		!survivor.done())
}

// refuseRecovery says why a recovery cannot begin as it was asked for; empty when it can.
func (s Snapshot) refuseRecovery(r Recovery) string {
	if !s.StackedEtcd {
		return "etcd is external and has to be restored where it runs"
	}
	index := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.Name == r.Machine })
	switch {
	case s.Etcd.Contradicts:
		return s.Etcd.Problem
	case index < 0:
		return fmt.Sprintf("Machine %s, which is to survive, is none of this control plane; it has %s", r.Machine,
			orNobody(s.names("")))
	case s.Machines[index].Deleting:
		return fmt.Sprintf("Machine %s, which is to survive, is being deleted", r.Machine)
	case s.Machines[index].Node == "":
		return fmt.Sprintf("Machine %s, which is to survive, never became a node", r.Machine)
	case r.Hosts[r.Machine].Gone:
		return fmt.Sprintf("the host of Machine %s, which is to survive, is gone", r.Machine)
	}
	others := s.names(r.Machine)
	if given := slices.Sorted(slices.Values(r.GiveUp)); !slices.Equal(given, others) {
		return fmt.Sprintf("giveUp names %s, but the Machines whose members would be lost are %s: name exactly those",
			orNobody(given), orNobody(others))
	}
	return ""
}

// names of all Machines but one, sorted.
func (s Snapshot) names(except string) []string {
	var names []string
	for _, machine := range s.Machines {
		if machine.Name != except {
			names = append(names, machine.Name)
		}
	}
	slices.Sort(names)
	return names
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return list(names)
}

// fence makes sure that no member that is given up can ever come back: two of them would be a majority of the old
// cluster. Hosts that answer are told to stop theirs, all at once; of those that do not, somebody must know that they
// do not run.
func (s Snapshot) fence(r Recovery) *Step {
	var first *Step
	for _, machine := range s.Machines {
		if host := r.Hosts[machine.Name]; machine.Name != r.Machine && host.failed() {
			return s.recoveryFailed(r, machine.Name, host)
		}
	}
	for _, machine := range s.Machines {
		host := r.Hosts[machine.Name]
		if machine.Name == r.Machine || host.Gone || host.done() || machine.Health.Final != "" && !machine.Bootstrapped {
			continue
		}
		var step *Step
		switch {
		case host.Silent:
			step = s.wait(Recover, ReasonRecoveryFencing,
				"the host of Machine %s, which is given up, does not answer, and its etcd member must never come back. "+
					"Switch it off, keep it off until it is reset, and say so: kubectl annotate quoinhost %s "+
					"quoin.cluster.x-k8s.io/abandon=",
				machine.Name, host.Name).about(machine.Name)
		case !machine.Bootstrapped:
			step = s.wait(Recover, ReasonRecoveryFencing, "the bootstrap data of Machine %s, which is given up, still runs",
				machine.Name).about(machine.Name)
		case !host.Ordered:
			return &Step{Kind: OrderRecovery, Operation: Recover, RecheckAfter: RecheckStep, Machine: machine.Name,
				Order:  OrderStop,
				Reason: ReasonRecoveryFencing, Message: fmt.Sprintf(
					"the etcd member of Machine %s, which is given up, is stopped for good", machine.Name)}
		default:
			step = s.recoveryWaits(machine.Name, host, "stops its etcd member")
		}
		if first == nil {
			first = step
		}
	}
	return first
}

// with says what the survivor begins with, unless it is what it has.
func (r Recovery) with() string {
	if r.Snapshot == "" {
		return ""
	}
	return " with the data of snapshot " + r.Snapshot
}

func (s Snapshot) recoveryWaits(machine string, host RecoveryHost, what string) *Step {
	text := fmt.Sprintf("the host of Machine %s %s", machine, what)
	if host.Message != "" {
		text += ": " + host.Message
	}
	return s.wait(Recover, ReasonRecovering, "%s", text).about(machine)
}

// recoveryFailed stops: a person looks. Nothing is lost, because a host refuses before it changes anything, and keeps a
// copy.
func (s Snapshot) recoveryFailed(r Recovery, machine string, host RecoveryHost) *Step {
	return s.refusal(Recover, ReasonRecoveryFailed,
		"recovery %s failed on the host of Machine %s: %s. Nothing else is done under this id; "+
			"look at the host, and ask again under another id", r.ID, machine, host.Message).about(machine)
}

// carryOn gives up the Machines of the lost members once the survivor is a cluster that works; what follows is
// ordinary.
func (s Snapshot) carryOn(r Recovery) *Step {
	voters := 0
	var alone *quorum.Member
	for i, member := range s.Etcd.Members {
		if !member.Learner {
			voters++
			alone = &s.Etcd.Members[i]
		}
	}
	if !s.Etcd.Known || !s.Etcd.Agreed || voters != 1 || alone.Machine != r.Machine || !alone.Healthy {
		step := s.wait(Recover, ReasonRecovering, "etcd on Machine %s was restored; waiting until it answers as a cluster "+
			"of one", r.Machine).about(r.Machine)
		if s.Etcd.Contradicts {
			step.Message += ": " + s.Etcd.Problem
		}
		return step
	}
	for _, machine := range s.Machines {
		if machine.Name != r.Machine && slices.Contains(r.GiveUp, machine.Name) && !machine.Deleting &&
			!machine.Health.ByHand {
			return change(GiveUpMachine, Recover, ReasonRecovering,
				"Machine %s was given up in recovery %s: it is to be replaced",
				machine.Name, r.ID).about(machine.Name)
		}
	}
	if len(s.Prepared) > 0 {
		return drop(s.Prepared[0], Recover, "its bootstrap token may not be among the data that were restored")
	}
	return change(EndRecovery, Recover, ReasonRecovered,
		"recovery %s is complete: etcd has the one member of Machine %s, and the Machines "+
			"that were given up are replaced now", r.ID, r.Machine).about(r.Machine)
}
