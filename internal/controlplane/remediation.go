// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "time"

// Remediation is what the replacement of unhealthy Machines depends on besides the Machines.
type Remediation struct {
	// Now is when everything was read.
	Now time.Time
	// MaxRetry is how often a replacement may be replaced; nil without limit.
	MaxRetry *int
	// RetryPeriod lies between two attempts; nil when the spec leaves it open.
	RetryPeriod *time.Duration
	// MinHealthyPeriod after an attempt a failure is a new one; nil when the spec leaves it open.
	MinHealthyPeriod *time.Duration
	// Deferred says why nothing is replaced for its health now; empty when nothing speaks against it.
	Deferred string
	// Pending is the attempt whose Machine left first, until the one is made that takes its place.
	Pending *Attempt
}

// Attempt is one replacement of an unhealthy Machine. Its JSON is the value of an annotation.
type Attempt struct {
	// Machine that is replaced.
	Machine string `json:"machine"`
	// Time at which that began.
	Time time.Time `json:"timestamp"`
	// RetryCount is how many attempts before this one ended in an unhealthy Machine.
	RetryCount int `json:"retryCount"`
}

// Health is what shows that a Machine has to be replaced, and what speaks against it. Times are zero when they do not
// apply.
type Health struct {
	// Marked is what a MachineHealthCheck that leaves the remedy to us says; empty when none does.
	Marked string
	// ByHand: a person asked for the replacement with an annotation.
	ByHand bool
	// Spared says why it is not to be replaced for its health, such as an annotation; empty when it may.
	Spared string
	// Final says why it will never become a node: its bootstrap data failed, or its host was given up.
	Final string
	// InfrastructureGone: somebody deleted what holds its host.
	InfrastructureGone bool
	// MemberIllSince is since when it has no healthy voter, for a reason that a new one would not have. Like AnswersSince
	// and the time of Replaces it does not come after Remediation.Now: what was noted before the clock was set back, and
	// lies ahead, began when it was first seen so.
	MemberIllSince time.Time
	// SilentSince is since when its host does not answer, AnswersSince since when it does.
	SilentSince, AnswersSince time.Time
	// NodeLostSince is since when its kubelet does not report, NodeReadySince since when its Node is Ready.
	NodeLostSince, NodeReadySince time.Time
	// DomainLost says that its failure domain is taken for lost, by the hosts of its namespace in it.
	DomainLost string
	// Born is when the Machine was made.
	Born time.Time
	// Replaces is the attempt that it was made by; nil when it replaces no unhealthy Machine.
	Replaces *Attempt
}
