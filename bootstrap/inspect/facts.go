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
	// ProductUUID is what the firmware calls the machine; empty where it has no such tables.
	ProductUUID string
	// SerialNumber is what the maker calls the machine; empty where the firmware does not say.
	SerialNumber string
	CPUs         int
	MemoryBytes  int64
	Disks        []Disk
	Addresses    []Address
	Links        []Link
	// DefaultInterface carries the default route; empty when there is none.
	DefaultInterface string
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// KubeletOnCgroupV1 says whether arguments of the kubelet on the host have it start on cgroup v1; nil with cgroup v2.
	KubeletOnCgroupV1 *bool
	ContainerRuntime  ContainerRuntime
	Systemd           bool
	CloudInitEnabled  bool
	// CloudInitGuarded says that our drop-in keeps it from undoing what a plan did.
	CloudInitGuarded bool
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
	// Traces of what is on the host and would outlive a claim.
	Traces Traces
}

// OS is from os-release.
type OS struct{ ID, VersionID, PrettyName string }

// Disk is a whole disk.
type Disk struct {
	// ID is the most stable name known: WWN, else serial, else the kernel's name.
	ID, Name   string
	SizeBytes  int64
	Rotational bool
	// WWN and Serial as the kernel knows them; empty when it does not.
	WWN, Serial string
	// Content is what lies on the disk itself, a partition table (gpt, dos) or a file system (ext4); empty when nothing
	// was found or nothing could be read.
	Content string
	// Volumes are the disk's partitions, what is built on them, and the disk itself when it carries a file system.
	Volumes []Volume
}

// Volume is something with a file system on a disk, or a place for one.
type Volume struct {
	// Name the kernel gives it ("sda1"), and Type as lsblk says it: disk, part, lvm, crypt, raid1.
	Name, Type string
	// FileSystem, Label and MountPoint; each empty when there is none.
	FileSystem, Label, MountPoint string
}

// Link is a network link that is hardware or stands for it: a bond or a bridge.
type Link struct {
	Name, HardwareAddress string
	MTU                   int
	// State as the kernel says it: up, down, unknown.
	State string
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
