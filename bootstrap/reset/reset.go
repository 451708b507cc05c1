// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reset takes a host back to what it was before it became a node, and proves it.
package reset

import "net/netip"

// Options say what the host carried.
type Options struct {
	// VirtualAddresses of the cluster, released first and verified to be gone. Empty for workers and external load
	// balancers.
	VirtualAddresses []netip.Prefix
	// Ports that must be free afterwards; nil means DefaultPorts.
	Ports []int
	// ControlPlanePort is the API server's port; 0 means 6443.
	ControlPlanePort int
	// WipeDisks are the IDs of the disks that belonged to the claim; their signatures are erased. A disk that the system
	// uses, that is mounted or that is not there is left as it is and ends the plan with a sentence.
	WipeDisks []string
	// DataDisks are the IDs of the disks whose content stays, so that no second name of one is wiped.
	DataDisks []string
	// Baseline is what was on the host before the claim, of inspect.Traces; empty where nobody knows.
	Baseline string
	// IgnoreChanges lets pass what came or changed since the baseline.
	IgnoreChanges bool
	// OwnKey is the fingerprint of the key by which we came. An operator may have exchanged it during the claim.
	OwnKey string
}

// apiServerPort is what kubeadm uses when nobody says another one.
const apiServerPort = 6443

// DefaultPorts are the API server, kubelet and etcd.
var DefaultPorts = []int{apiServerPort, 10250, 2379, 2380}

// Finding is one thing of the old node that is still there.
type Finding struct {
	// What is a sentence: "process etcd runs (pid 123)".
	What string
	// Fix says what a person can do.
	Fix string
}

// Verification is what a host answered to Verify.
type Verification struct {
	Findings []Finding
	// Skipped are sentences about what could not be looked for.
	Skipped []string
}

// String is the finding with its way out.
func (f Finding) String() string { return f.What + "; " + f.Fix }
