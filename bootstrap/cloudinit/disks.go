// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// PartitionTable is one entry of disk_setup.
type PartitionTable struct {
	// Device as the bootstrap data names it, below /dev.
	Device string
	// GPT is false for the DOS table that cloud-init calls mbr.
	GPT bool
	// Partitions in order; empty when layout is false: the disk stays as it is.
	Partitions []Partition
	// Overwrite allows to replace what is on a disk with RoleWipe, and on no other.
	Overwrite bool
}

// Partition takes a share of its disk.
type Partition struct {
	Percent int
	// Type is what sfdisk takes: a DOS code or, for GPT, a GUID; empty for Linux.
	Type string
}

// FileSystem is one entry of fs_setup.
type FileSystem struct {
	Label, Type, Device string
	// Partition is none (the device itself), auto, any or a number.
	Partition string
	// Overwrite and ReplaceFS allow to replace what is on a disk with RoleWipe, and on no other.
	Overwrite    bool
	ReplaceFS    string
	ExtraOptions []string
}

// gptTypes are the GUIDs of what KubeadmConfig can name; cloud-config carries DOS codes for both tables.
var gptTypes = map[string]string{
	"83": "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
	"82": "0657FD6D-A4AB-43C4-84E5-0933C8484F4F",
	"fd": "A19D880F-05FC-4D3B-A006-743F0F84911E",
	"8e": "E6D6D379-F507-44C2-A23C-238F2A3DF928",
	"0c": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
	"07": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
}

var (
	dosType  = regexp.MustCompile(`^[0-9a-f]{1,2}$`)
	guid     = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	device   = regexp.MustCompile(`^/dev/[A-Za-z0-9._:+@/-]+$`)
	fsLabel  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	fileType = regexp.MustCompile(`^[a-z0-9_]+$`)
)

func parseDiskSetup(node *yaml.Node) ([]PartitionTable, error) {
	if node.Kind != yaml.MappingNode {
		return nil, errors.New("expected devices with their layouts")
	}
	var tables []PartitionTable
	for i := 0; i+1 < len(node.Content); i += 2 {
		name := node.Content[i].Value
		if err := checkDevice(name); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(tables, func(t PartitionTable) bool { return t.Device == name }) {
			return nil, fmt.Errorf("device %s is listed twice", name)
		}
		table, err := parseTable(name, node.Content[i+1])
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", name, err)
		}
		tables = append(tables, table)
	}
	return tables, nil
}

func parseTable(name string, node *yaml.Node) (PartitionTable, error) {
	var entry struct {
		TableType word `yaml:"table_type"`
		Layout    yaml.Node
		Overwrite bool
	}
	table := PartitionTable{Device: name}
	if err := decode(node, &entry); err != nil {
		return table, err
	}
	table.Overwrite = entry.Overwrite
	switch strings.ToLower(string(entry.TableType)) {
	case "", "mbr":
	case "gpt":
		table.GPT = true
	default:
		return table, fmt.Errorf("table type %q is not known; use gpt or mbr", entry.TableType)
	}
	switch {
	case entry.Layout.Kind == yaml.ScalarNode && entry.Layout.Tag == "!!bool":
		var all bool
		if err := entry.Layout.Decode(&all); err != nil {
			return table, plainYAML(err)
		}
		if all {
			table.Partitions = []Partition{{Percent: 100}}
		}
		return table, nil
	case entry.Layout.Kind == yaml.SequenceNode && len(entry.Layout.Content) > 0:
	default:
		return table, errors.New("it says neither that it is one partition nor what its partitions are; set layout or " +
			"diskLayout")
	}
	err := table.partitions(entry.Layout.Content)
	return table, err
}

func (t *PartitionTable) partitions(entries []*yaml.Node) error {
	sum := 0
	for _, entry := range entries {
		var words []word
		if entry.Kind == yaml.ScalarNode {
			words = []word{word(entry.Value)}
		} else if err := decode(entry, &words); err != nil {
			return err
		}
		if len(words) != 1 && len(words) != 2 {
			return errors.New("a partition is a percentage, or a percentage with a type")
		}
		percent, err := strconv.Atoi(string(words[0]))
		if err != nil || percent < 1 || percent > 100 {
			return fmt.Errorf("share %q of a partition must be a percentage from 1 to 100", words[0])
		}
		if sum += percent; sum > 100 {
			return errors.New("its partitions take more than 100 percent")
		}
		partition := Partition{Percent: percent}
		if len(words) == 2 {
			if partition.Type, err = t.typeOf(string(words[1])); err != nil {
				return err
			}
		}
		t.Partitions = append(t.Partitions, partition)
	}
	if limit := map[bool]int{false: 4, true: 128}[t.GPT]; len(t.Partitions) > limit {
		return fmt.Errorf("its table holds at most %d partitions; use table type gpt for more than 4", limit)
	}
	return nil
}

func (t *PartitionTable) typeOf(code string) (string, error) {
	switch {
	case t.GPT && guid.MatchString(code):
		return code, nil
	case t.GPT && gptTypes[strings.ToLower(code)] != "":
		return gptTypes[strings.ToLower(code)], nil
	case !t.GPT && dosType.MatchString(strings.ToLower(code)):
		return strings.ToLower(code), nil
	}
	return "", fmt.Errorf("partition type %q is not known for this kind of table", code)
}

func checkDevice(name string) error {
	if !device.MatchString(name) || path.Clean(name) != name {
		return fmt.Errorf("device %q is not a path below /dev; name the disk by its id: /dev/disk/by-id/<id>", name)
	}
	return nil
}

// labelLengths are what the file systems that Quoin makes can hold.
var labelLengths = map[string]int{"ext2": 16, "ext3": 16, "ext4": 16, "xfs": 12, "btrfs": 255}

func parseFSSetup(node *yaml.Node) ([]FileSystem, error) {
	var entries []struct {
		Label, Filesystem, Device, Partition word
		Overwrite                            bool
		ReplaceFS                            word   `yaml:"replace_fs"`
		ExtraOpts                            []word `yaml:"extra_opts"`
	}
	if err := decode(node, &entries); err != nil {
		return nil, err
	}
	systems := make([]FileSystem, 0, len(entries))
	for _, e := range entries {
		system := FileSystem{Label: string(e.Label), Type: strings.ToLower(string(e.Filesystem)), Device: string(e.Device),
			Overwrite: e.Overwrite, ReplaceFS: strings.ToLower(string(e.ReplaceFS))}
		// The provider has no way to leave the label out; cloud-init takes this word for none.
		if strings.EqualFold(system.Label, "none") {
			system.Label = ""
		}
		for _, option := range e.ExtraOpts {
			if strings.ContainsAny(string(option), "\n\x00") {
				return nil, fmt.Errorf("device %s: an option of mkfs must be one line", e.Device)
			}
			system.ExtraOptions = append(system.ExtraOptions, string(option))
		}
		var err error
		if system.Partition, err = partitionOf(string(e.Partition)); err == nil {
			err = system.check()
		}
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", e.Device, err)
		}
		systems = append(systems, system)
	}
	return systems, nil
}

func partitionOf(text string) (string, error) {
	switch text = strings.ToLower(text); text {
	case "", "none":
		return "none", nil
	case "auto", "auto|any":
		return "auto", nil
	case "any":
		return "any", nil
	}
	if number, err := strconv.Atoi(text); err == nil && number >= 1 && number <= 128 {
		return strconv.Itoa(number), nil
	}
	return "", fmt.Errorf("partition %q is neither none, auto, any nor a number", text)
}

func (f FileSystem) check() error {
	if err := checkDevice(f.Device); err != nil {
		return err
	}
	length, known := labelLengths[f.Type]
	switch {
	case !known:
		return fmt.Errorf("file system %q is not made by Quoin; use ext4, xfs or btrfs", f.Type)
	case f.Label != "" && !fsLabel.MatchString(f.Label):
		return fmt.Errorf("label %q must match %s", f.Label, fsLabel)
	case len(f.Label) > length:
		return fmt.Errorf("label %q is longer than the %d letters that %s can hold", f.Label, length, f.Type)
	case f.ReplaceFS != "" && !fileType.MatchString(f.ReplaceFS):
		return fmt.Errorf("replace_fs %q is not the name of a file system", f.ReplaceFS)
	}
	return nil
}
