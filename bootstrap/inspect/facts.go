// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect learns what a host is, in one SSH exchange and without changing it.
package inspect

import (
	"net/netip"
	"time"
)

// Facts is what a host says of itself.
type Facts struct {
	Hostname string
	OS       OS
	Kernel   string
	// Architecture in Go's words: amd64, arm64.
	Architecture string
	BootID       string
	MachineID    string
	CPUs         int
	MemoryBytes  int64
	Disks        []Disk
	Addresses    []Address
	// DefaultInterface carries the default route; empty when there is none.
	DefaultInterface string
	// CgroupVersion is 1 or 2.
	CgroupVersion    int
	ContainerRuntime ContainerRuntime
	Systemd          bool
	CloudInitEnabled bool
	SwapEnabled      bool
	// Commands that kubeadm's preflight and the kubelet need but that this host lacks.
	CommandsMissing []string
	// TCPForwardingAllowed is nil when sshd would not tell.
	TCPForwardingAllowed *bool
	// Clock is the host's time; ClockOffset is host minus us, from the midpoint of the exchange (set by Collect).
	Clock               time.Time
	ClockOffset         time.Duration
	KeepalivedInstalled bool
	CurlInstalled       bool
	// KubernetesPresent lists left-overs: directories that are not empty, running processes, installed files of ours.
	KubernetesPresent []string
	// OwnerRecord is the raw content of the owner record; empty when there is none.
	OwnerRecord string
}

// OS is from os-release.
type OS struct{ ID, VersionID, PrettyName string }

// Disk is a whole disk.
type Disk struct {
	// ID is the most stable name known: WWN, else serial, else the kernel's name.
	ID, Name   string
	SizeBytes  int64
	Rotational bool
}

// Address is one global address of an interface.
type Address struct {
	Interface string
	Address   netip.Addr
	// Prefix is the length of the network part.
	Prefix int
}

// ContainerRuntime is the containerd of the host.
type ContainerRuntime struct {
	// Name is "containerd"; empty when none was found.
	Name, Version string
	// SocketOK says that it answers at /run/containerd/containerd.sock.
	SocketOK bool
}
