// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

// Recheck says how soon to look again; whoever carries steps out knows how long that is.
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
