// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudinit reads the cloud-config that Cluster API's kubeadm bootstrap provider renders into typed data and
// into steps for package run. It is pure: whatever it cannot execute is an error before a host is touched.
package cloudinit

import "os"

// Config is a parsed cloud-config.
type Config struct {
	// Files of write_files in order, decoded.
	Files []File
	// BootCommands of bootcmd. Quoin runs them once, before the files are written.
	BootCommands []Command
	// Commands of runcmd, in order and classified.
	Commands []Command
	// Users of users.
	Users []User
	// NTP of ntp; nil when absent.
	NTP *NTP
	// PartitionTables of disk_setup, in order.
	PartitionTables []PartitionTable
	// FileSystems of fs_setup, in order.
	FileSystems []FileSystem
	// Mounts of mounts: up to six fstab fields each.
	Mounts [][]string
	// Hostname of hostname or fqdn; empty when absent.
	Hostname string
}

// File is one entry of write_files.
type File struct {
	Path string
	// Owner is user[:group]; empty means root:root.
	Owner string
	// Mode holds the Unix permission bits, special bits included.
	Mode    os.FileMode
	Append  bool
	Content []byte
}

// Kind classifies a command.
type Kind string

const (
	// Plain is a command of the user.
	Plain Kind = "Plain"
	// KubeadmInit is `kubeadm init ...`, with the sentinel file that follows it.
	KubeadmInit Kind = "KubeadmInit"
	// KubeadmJoin is `kubeadm join ...`, with the sentinel file that follows it.
	KubeadmJoin Kind = "KubeadmJoin"
)

// Command is one entry of runcmd or bootcmd.
type Command struct {
	// Shell is the command as sh text; a list entry is quoted word by word.
	Shell string
	Kind  Kind
}

// Once says that the command must never start twice.
func (c Command) Once() bool { return c.Kind != Plain }

// User is one entry of users.
type User struct {
	Name, Passwd, Gecos, HomeDir, Shell, PrimaryGroup, Sudo string
	Groups                                                  []string
	Inactive                                                bool
	// LockPassword is cloud-init's lock_passwd; true when absent.
	LockPassword      bool
	SSHAuthorizedKeys []string
}

// NTP is the ntp section.
type NTP struct {
	Enabled bool
	Servers []string
}

// Options say how a Config becomes steps.
type Options struct {
	// KubeadmArgs are appended to kubeadm init and kubeadm join, for example --ignore-preflight-errors=SystemVerification.
	KubeadmArgs []string
	// Disks of the host that have a role; disk_setup and fs_setup touch no other.
	Disks []DiskRole
}
