// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"cmp"
)

// Kind is what a Step does.
type Kind string

const (
	// Done means: nothing is left to do.
	Done Kind = "Done"
	// Wait means: something else must happen first; Reason and Message say what.
	Wait Kind = "Wait"
	// Refuse means: the spec asks for what is never done; Reason and Message say what to change.
	Refuse Kind = "Refuse"
	// CreateFirstMachine makes the first Machine, which runs kubeadm init.
	CreateFirstMachine Kind = "CreateFirstMachine"
	// CreateMachine makes one further Machine, which runs kubeadm join.
	CreateMachine Kind = "CreateMachine"
	// PreCreateMachine makes one further Machine, which claims no host until that is allowed; Machine is the one that
	// leaves or joins meanwhile.
	PreCreateMachine Kind = "PreCreateMachine"
	// AllowHostClaim lets Machine, which was pre-created, claim its host and join.
	AllowHostClaim Kind = "AllowHostClaim"
	// PrepullAddons asks Hosts to get the images of Version's CoreDNS and kube-proxy.
	PrepullAddons Kind = "PrepullAddons"
	// UpdateKubeadmConfig writes the wanted version and settings to the kubeadm-config ConfigMap.
	UpdateKubeadmConfig Kind = "UpdateKubeadmConfig"
	// MoveLeader makes the member To etcd's leader, in place of Machine's.
	MoveLeader Kind = "MoveLeader"
	// DeleteMachine deletes Machine.
	DeleteMachine Kind = "DeleteMachine"
	// ReleaseDrainHook approves Machine's drain.
	ReleaseDrainHook Kind = "ReleaseDrainHook"
	// StopAPIServer has the API server of Machine, which is drained, leave.
	StopAPIServer Kind = "StopAPIServer"
	// RequestBackup asks for a snapshot of etcd.
	RequestBackup Kind = "RequestBackup"
	// RemoveEtcdMember takes Member out of etcd; it was Machine's, or nobody's.
	RemoveEtcdMember Kind = "RemoveEtcdMember"
	// EvictPods makes one pass of evicting the pods of Machine's node, which Cluster API did not drain.
	EvictPods Kind = "EvictPods"
	// DeleteNode deletes Node from the workload cluster.
	DeleteNode Kind = "DeleteNode"
	// ReleaseTerminateHook lets Machine's host go.
	ReleaseTerminateHook Kind = "ReleaseTerminateHook"
	// UpdateAddons gives CoreDNS and kube-proxy the wanted version's images.
	UpdateAddons Kind = "UpdateAddons"
	// FetchSnapshot records that the snapshot of the recovery is to be brought to Machine's host.
	FetchSnapshot Kind = "FetchSnapshot"
	// BeginRecovery records that the recovery of etcd that was asked for begins.
	BeginRecovery Kind = "BeginRecovery"
	// OrderRecovery gives Machine's host its part in the recovery, Order, or takes that away when it is empty.
	OrderRecovery Kind = "OrderRecovery"
	// MarkForRemediation marks Machine, whose etcd member was given up, for its replacement.
	MarkForRemediation Kind = "MarkForRemediation"
	// EndRecovery records that the recovery is complete.
	EndRecovery Kind = "EndRecovery"
	// VoidRecovery records that the recovery is never carried out.
	VoidRecovery Kind = "VoidRecovery"
	// DeleteAll deletes all Machines and releases their hooks: the control plane goes.
	DeleteAll Kind = "DeleteAll"
	// RemoveFinalizer lets the control plane go.
	RemoveFinalizer Kind = "RemoveFinalizer"
)

// Reasons of a Step.
const (
	ReasonWorkersFirst        = "WaitingForWorkersDeletion"
	ReasonMachinesGoing       = "WaitingForMachineDeletion"
	ReasonClusterDeleting     = "ClusterDeleting"
	ReasonVersionSkew         = "VersionSkew"
	ReasonReplicas            = "IllegalReplicas"
	ReasonMachinesLost        = "MachinesLost"
	ReasonCertificates        = "WaitingForCertificates"
	ReasonInitializing        = "WaitingForKubeadmInit"
	ReasonConnectionDown      = "ConnectionDown"
	ReasonMachineNotReady     = "WaitingForMachine"
	ReasonDraining            = "Draining"
	ReasonJoinRuns            = "WaitingForJoinToEnd"
	ReasonOtherHooks          = "WaitingForOtherHooks"
	ReasonAPIServerLeaves     = "WaitingForAPIServerToLeave"
	ReasonAPIServerStays      = "APIServerStays"
	ReasonQuorum              = "QuorumAtRisk"
	ReasonTerminating         = "Terminating"
	ReasonOneAtATime          = "OneAtATime"
	ReasonTopologyVersion     = "TopologyVersionMismatch"
	ReasonNoSpareHost         = "NoSpareHost"
	ReasonBackup              = "WaitingForBackup"
	ReasonWindowClosed        = "WindowClosed"
	ReasonTooFewToRemove      = "TooFewToRemoveFirst"
	ReasonAddonImages         = "WaitingForAddonImages"
	ReasonAddonsUnknown       = "AddonsUnknown"
	ReasonSurge               = "Surge"
	ReasonScaleUp             = "ScaleUp"
	ReasonScaleDown           = "ScaleDown"
	ReasonReplaced            = "Replaced"
	ReasonReplacementFirst    = "ReplacementFirst"
	ReasonRemoveFirst         = "RemoveFirst"
	ReasonTakesPlace          = "Replacement"
	ReasonHostGone            = "HostGone"
	ReasonHostClaimNotAllowed = "HostClaimNotAllowed"
	ReasonToleranceLowered    = "ToleranceLowered"
	ReasonDrainSkipped        = "DrainSkipped"
	ReasonOrphanNode          = "OrphanNode"
	ReasonOrphanedMember      = "OrphanedMember"
	ReasonLeaving             = "Leaving"
	ReasonNothingToGuard      = "NothingToGuard"
	ReasonNewVersion          = "NewVersion"
	ReasonControlPlaneGoing   = "ControlPlaneDeleting"

	ReasonRemediated           = "Remediated"
	ReasonRemediationSuspended = "RemediationSuspended"
	ReasonRetriesExhausted     = "RemediationRetriesExhausted"
	ReasonRetryLater           = "RemediationRetryLater"
	ReasonQuorumLost           = "QuorumLost"

	ReasonRecovering       = "Recovering"
	ReasonRecoveryFetching = "RecoveryFetching"
	ReasonRecoveryFencing  = "RecoveryFencing"
	ReasonRecovered        = "Recovered"
	ReasonRecoveryRefused  = "RecoveryRefused"
	ReasonRecoveryFailed   = "RecoveryFailed"
	ReasonRecoveryVoid     = "RecoveryVoid"

	// ReasonStaleClaim says that a host of the control plane serves a newer generation of its claim than the objects here
	// know.
	ReasonStaleClaim = "StaleClaim"
	// ReasonMemberWithoutMachine says that an etcd member votes, and no Machine of the control plane runs it.
	ReasonMemberWithoutMachine = "MemberWithoutMachine"
)

// Orders to a host in a recovery of etcd.
const (
	OrderStop    = "Stop"
	OrderSurvive = "Survive"
)

// Step is one change, or why there is none now.
type Step struct {
	Kind Kind
	// Operation that the step is a part of; empty when nothing is left to do.
	Operation Operation
	// MayProceed while the housekeeping fails: the step goes on with a departure that was begun, takes away what is ill
	// and casts no vote, or is one of a recovery.
	MayProceed bool
	// RecheckAfter is how soon to reconcile again; RecheckNever when nothing is left to do.
	RecheckAfter Recheck
	// Then approves the drain of the Machine that the step deletes, together with it; nil else.
	Then    *Step
	Machine string
	// Node of DeleteNode.
	Node string
	// Member and To are etcd member ids.
	Member, To uint64
	// Hosts are names of infrastructure machines.
	Hosts []string
	// Remediates names the unhealthy Machine whose replacement the step is part of, or that waits here; empty else.
	Remediates string
	// Attempt is to be recorded with the step; nil when it begins none.
	Attempt *Attempt
	// FailureDomain that the Machine is bound to that the step makes, or allows a host; empty where any host will do.
	FailureDomain string
	// Order to the host of Machine, of OrderRecovery.
	Order string
	// Fallback is what the step is instead when it cannot be done, because nothing depends on it; nil else.
	Fallback *Step
	// Version whose images PrepullAddons is about.
	Version string
	// Reason is a word for conditions and events, Message a sentence for people.
	Reason, Message string
}

// Waiting reports whether the step changes nothing.
func (s Step) Waiting() bool { return s.Kind == Done || s.Kind == Wait || s.Kind == Refuse }

// Joins reports whether the step lets a further Machine join.
func (s Step) Joins() bool { return s.Kind == CreateMachine || s.Kind == AllowHostClaim }

// WithMachine says which Machine the step is about.
func (s *Step) WithMachine(machine string) *Step {
	s.Machine = machine
	return s
}

// Operation is what a control plane is doing, in the words of its status.
type Operation string

const (
	// Initialize makes the first Machine.
	Initialize Operation = "Initialize"
	// ScaleUp makes missing Machines.
	ScaleUp Operation = "ScaleUp"
	// ScaleDown removes Machines that are not wanted any more.
	ScaleDown Operation = "ScaleDown"
	// Rollout replaces outdated Machines, or brings add-ons and settings up to date.
	Rollout Operation = "Rollout"
	// Remediate replaces an unhealthy Machine.
	Remediate Operation = "Remediate"
	// Repair clears what a failed join or a lost Machine left in etcd, or waits until what is broken works.
	Repair Operation = "Repair"
	// Depart sees a Machine out that somebody deleted.
	Depart Operation = "Depart"
	// SnapshotEtcd waits for a snapshot of etcd.
	SnapshotEtcd Operation = "Backup"
	// Recover restores an etcd that has lost its quorum, at a person's word.
	Recover Operation = "Recover"
	// Delete deletes the control plane.
	Delete Operation = "Delete"
)

// WaitingOn names what the step waits for: its reason, and the Machine that it is about. Empty when it waits for
// nothing.
func (s Step) WaitingOn() string {
	switch {
	case s.Fallback != nil:
		// What nothing depends on ends no waiting.
		return s.Fallback.WaitingOn()
	case s.Kind != Wait && s.Kind != Refuse:
		return ""
	case s.Machine != "":
		return s.Reason + " " + s.Machine
	}
	return s.Reason
}

// Recheck says how soon to reconcile again; whoever carries steps out knows how long that is.
type Recheck string

// The paces of a Recheck, from the soonest.
const (
	// RecheckSoon is for changes that nobody else sees.
	RecheckSoon Recheck = "Soon"
	// RecheckStep is for what a step has changed.
	RecheckStep Recheck = "Step"
	// RecheckDrain is for a drain that looks skipped and may not be.
	RecheckDrain Recheck = "Drain"
	// RecheckMember is for etcd members that are awaited: etcd sends no events.
	RecheckMember Recheck = "Member"
	// RecheckBusy is for whatever else is awaited: the kubelets' pods send no events either.
	RecheckBusy Recheck = "Busy"
	// RecheckIdle is for a control plane with which nothing is to be done.
	RecheckIdle Recheck = "Idle"
	// RecheckNever is for one that is gone.
	RecheckNever Recheck = ""
)

// Effect is what carrying out a step adds to what was decided.
type Effect struct {
	// Made is the Machine that it made; empty when it made none.
	Made string
	// Detail ends the step's message, such as with the pods that are still evicted.
	Detail string
}

// Outcome is a step as it was carried out, for reports: it is about the Machine that it made, and it is the fallback
// where what nothing depends on failed.
type Outcome struct{ Step }

// Done is the outcome of a step that was carried out.
func (s Step) Done(effect Effect) Outcome {
	s.Machine = cmp.Or(effect.Made, s.Machine)
	s.Message += effect.Detail
	return Outcome{s}
}
