// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostFacts is what an inspection read.
type HostFacts struct {
	// inspectedAt is when.
	// +optional
	InspectedAt *metav1.Time `json:"inspectedAt,omitempty"`
	// hostname of the host, which becomes the name of its node.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// osImage is the operating system's name and version ("Debian GNU/Linux 12 (bookworm)").
	// +optional
	OSImage string `json:"osImage,omitempty"`
	// osID is the ID of os-release ("debian").
	// +optional
	OSID string `json:"osID,omitempty"`
	// kernelVersion as uname -r prints it.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// architecture in Go's words: amd64, arm64.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// bootID changes with each boot.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machineID of systemd.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// productUUID is what the firmware calls the machine.
	// +optional
	ProductUUID string `json:"productUUID,omitempty"`
	// serialNumber is what the maker calls the machine.
	// +optional
	SerialNumber string `json:"serialNumber,omitempty"`
	// cpus is the number of logical processors.
	// +optional
	CPUs int32 `json:"cpus,omitempty"`
	// memory of the host.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// disks of the host.
	// +optional
	// +listType=atomic
	Disks []Disk `json:"disks,omitempty"`
	// addresses of the host, with their interfaces.
	// +optional
	// +listType=atomic
	Addresses []InterfaceAddress `json:"addresses,omitempty"`
	// nodeAddresses are those of the addresses that the node uses, the primary one first.
	// +optional
	// +listType=atomic
	NodeAddresses []string `json:"nodeAddresses,omitempty"`
	// defaultInterface is the interface of the default route.
	// +optional
	DefaultInterface string `json:"defaultInterface,omitempty"`
	// cgroupVersion is 1 or 2.
	// +optional
	CgroupVersion int32 `json:"cgroupVersion,omitempty"`
	// kubeletOnCgroupV1 tells, of a host with cgroup v1, whether the arguments of its kubelet have --fail-cgroupv1=false.
	// +optional
	KubeletOnCgroupV1 *bool `json:"kubeletOnCgroupV1,omitempty"`
	// containerRuntime and its version ("containerd://2.2.0").
	// +optional
	ContainerRuntime string `json:"containerRuntime,omitempty"`
	// clockOffset of the host against the manager's clock; positive when the host is ahead.
	// +optional
	ClockOffset *metav1.Duration `json:"clockOffset,omitempty"`
	// cloudInitEnabled tells that cloud-init would run at the next boot.
	// +optional
	CloudInitEnabled *bool `json:"cloudInitEnabled,omitempty"`
	// tcpForwardingAllowed tells that sshd forwards TCP connections, which reading etcd through SSH needs.
	// +optional
	TCPForwardingAllowed *bool `json:"tcpForwardingAllowed,omitempty"`
}

// Disk is a block device.
type Disk struct {
	// id is stable over boots: a WWN, a serial number or a by-id name; the kernel's name where the disk has none.
	// +required
	ID string `json:"id,omitempty"`
	// name the kernel gives it now ("sda").
	// +optional
	Name string `json:"name,omitempty"`
	// size of the disk.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// rotational tells a spinning disk.
	// +optional
	Rotational *bool `json:"rotational,omitempty"`
}

// InterfaceAddress is an address with its interface.
type InterfaceAddress struct {
	// interface that has the address.
	// +required
	Interface string `json:"interface,omitempty"`
	// address with its prefix length ("10.0.0.7/24").
	// +required
	Address string `json:"address,omitempty"`
}
