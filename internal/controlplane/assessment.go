// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"

// Assessment is what a State means: what comes next, and what is to be reported besides.
type Assessment struct {
	// Step comes next.
	Step Step
	// Unhealthy are the Machines that have to be replaced for their health, and may be, the one that goes first in front.
	// Machines that are being deleted are not among them.
	Unhealthy []UnhealthyMachine
	// QuorumLoss says that etcd has no quorum; nil when it has one, or when that is not known.
	QuorumLoss *QuorumLoss
	// Unclaimed are voters that work, or may work, although no Machine of the control plane runs them, except those that a
	// person has given up.
	Unclaimed []UnclaimedMember
}

// UnclaimedMember is a voter that no Machine of the control plane runs.
type UnclaimedMember struct {
	quorum.Member
	// Message says what a person can do about it.
	Message string
}

// Reasons of an UnhealthyMachine.
const (
	UnhealthyByHand             = "RemediateMachineAnnotation"
	UnhealthyInfrastructureGone = "InfrastructureDeleted"
	UnhealthyNeverStarted       = "NeverStarted"
	UnhealthyHostLost           = "HostLost"
	UnhealthyHealthCheck        = "HealthCheckFailed"
	UnhealthyMemberMissing      = "MemberMissing"
	UnhealthyMemberNeverStarted = "MemberNeverStarted"
	UnhealthyLearnerStuck       = "LearnerStuck"
	UnhealthyMemberDead         = "MemberDead"
)

// UnhealthyMachine is a Machine that has to be replaced for its health.
type UnhealthyMachine struct {
	Machine Machine
	// Reason is a word for why, Message a sentence without the Machine's name.
	Reason, Message string
}

// QuorumLoss is a quorum that is not there.
type QuorumLoss struct {
	// ForGood: so many members are gone that those that are left cannot be a quorum again.
	ForGood bool
	// Message says what is missing, WayOut what a person can do.
	Message, WayOut string
}
