// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed disks.sh
var diskFunctions string

// DiskRole gives a disk of the host its role.
type DiskRole struct {
	// ID of the disk as an inspection prints it.
	ID   string
	Role Role
}

// Role says what may be done to a disk.
type Role string

const (
	// RoleSystem is a disk that is never set up.
	RoleSystem Role = "System"
	// RoleData is a disk whose content outlives every claim: it is partitioned and formatted while it is empty, and kept
	// as it is later.
	RoleData Role = "Data"
	// RoleWipe is a disk that belongs to one claim.
	RoleWipe Role = "Wipe"
)

var (
	diskID          = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:+@-]*$`)
	partitionSuffix = regexp.MustCompile(`-part[0-9]+$`)
)

// diskSteps sets disks up, after everything that can be known without the host was checked.
func (c *Config) diskSteps(roles []DiskRole) ([]run.Step, error) {
	if len(c.PartitionTables) == 0 && len(c.FileSystems) == 0 {
		return nil, nil
	}
	known := map[string]Role{}
	entries := make([]string, 0, len(roles))
	for _, disk := range roles {
		if !diskID.MatchString(disk.ID) {
			return nil, fmt.Errorf("disk %q in spec.disks of the QuoinHost must match %s", disk.ID, diskID)
		}
		known[disk.ID] = disk.Role
		entries = append(entries, string(disk.Role)+":"+disk.ID)
	}
	head := "umask 077\n" + inspect.DiskFunctions + diskFunctions + "disks=" + ssh.Quote(strings.Join(entries, " ")) + "\n"
	var partition, format strings.Builder
	for i, table := range c.PartitionTables {
		if err := settable(table.Device, known); err != nil {
			return nil, fmt.Errorf("cloud-config disk_setup: %w", err)
		}
		partition.WriteString(table.script(fmt.Sprintf("disk-%d", i)))
	}
	for i, system := range c.FileSystems {
		if err := settable(system.Device, known); err != nil {
			return nil, fmt.Errorf("cloud-config fs_setup: %w", err)
		}
		format.WriteString(system.script(fmt.Sprintf("fs-%d", i)))
	}
	var steps []run.Step
	if partition.Len() > 0 {
		steps = append(steps, run.Step{Name: "disk-setup", Script: head + partition.String()})
	}
	if format.Len() > 0 {
		steps = append(steps, run.Step{Name: "fs-setup", Script: head + format.String()})
	}
	return steps, nil
}

// DiskError says that the bootstrap data wants a disk set up that this host does not give away. It is known before the
// host is touched; the claim may wait until a person has corrected one or the other.
type DiskError struct {
	// Device as the bootstrap data names it.
	Device string
	// Role of the disk; empty when it has none.
	Role Role
}

func (e *DiskError) Error() string {
	if e.Role == "" {
		return fmt.Sprintf("%s is not among spec.disks of the QuoinHost, so nothing was done; add it there under the same "+
			"id with the role Data or Wipe, or claim a host that has it", e.Device)
	}
	return fmt.Sprintf(
		"%s has the role %s in spec.disks of the QuoinHost, so nothing was done; name another disk in the KubeadmConfig",
		e.Device, e.Role)
}

// settable refuses a disk that is named by its ID and has no role, or the wrong one. What a kernel name stands for is
// known on the host only, where the step looks.
func settable(device string, known map[string]Role) error {
	if path.Dir(device) != "/dev/disk/by-id" {
		return nil
	}
	id := path.Base(device)
	role, listed := known[id]
	if !listed {
		role, listed = known[partitionSuffix.ReplaceAllString(id, "")]
	}
	if !listed || (role != RoleData && role != RoleWipe) {
		return &DiskError{Device: device, Role: role}
	}
	return nil
}

func (t PartitionTable) script(intent string) string {
	if len(t.Partitions) == 0 {
		return ""
	}
	words := []string{"partition", intent, ssh.Quote(t.Device), map[bool]string{false: "dos", true: "gpt"}[t.GPT],
		digit(t.Overwrite)}
	for _, p := range t.Partitions {
		entry := fmt.Sprint(p.Percent)
		if p.Type != "" {
			entry += ":" + p.Type
		}
		words = append(words, entry)
	}
	return strings.Join(words, " ") + "\n"
}

func (f FileSystem) script(intent string) string {
	words := []string{"format", intent, ssh.Quote(f.Device), f.Partition, f.Type, ssh.Quote(f.Label), digit(f.Overwrite),
		ssh.Quote(f.ReplaceFS)}
	for _, option := range f.ExtraOptions {
		words = append(words, ssh.Quote(option))
	}
	return strings.Join(words, " ") + "\n"
}

func digit(set bool) string {
	if set {
		return "1"
	}
	return "0"
}
