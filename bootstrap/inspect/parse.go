// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Script prints the facts; Parse reads them.
//
//go:embed inspect.sh
var Script string

// Collect runs Script on the host as root and parses the answer.
func Collect(ctx context.Context, host ssh.Host) (*Facts, error) {
	begin := time.Now()
	result, err := host.Run(ctx, ssh.Command{Script: Script, Sudo: true})
	if err != nil {
		return nil, fmt.Errorf("inspecting the host: %w", err)
	}
	end := time.Now()
	facts, err := Parse(result.Stdout)
	if err != nil {
		return nil, err
	}
	// The script reads the clock first and last: the middles of both spans are the same moment, but for the way there and back.
	facts.ClockOffset = facts.Clock.Sub(begin.Add(end.Sub(begin) / 2))
	return facts, nil
}

// architectures turns uname -m into Go's words.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}

// Parse reads what Script printed.
func Parse(output string) (*Facts, error) {
	facts := &Facts{}
	complete := false
	for line := range strings.SplitSeq(output, "\n") {
		word, value, _ := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		if word == "end" {
			complete = true
		}
		if err := facts.take(word, value); err != nil {
			return nil, fmt.Errorf("the host's answer %q: %w", line, err)
		}
	}
	if !complete {
		return nil, errors.New("the host's answer to the inspection is cut off; it is asked again")
	}
	return facts, nil
}

func (f *Facts) take(word, value string) error {
	var err error
	switch word {
	case "hostname":
		f.Hostname = value
	case "os.id":
		f.OS.ID = value
	case "os.version":
		f.OS.VersionID = value
	case "os.name":
		f.OS.PrettyName = value
	case "kernel":
		f.Kernel = value
	case "machine":
		f.Architecture = value
		if known := architectures[value]; known != "" {
			f.Architecture = known
		}
	case "boot":
		f.BootID = value
	case "machineid":
		f.MachineID = value
	case "cpus":
		f.CPUs, err = strconv.Atoi(value)
	case "memory.kib":
		var kib int64
		kib, err = strconv.ParseInt(value, 10, 64)
		f.MemoryBytes = kib << 10
	case "swap":
		f.SwapEnabled = true
	case "disk":
		f.disk(value)
	case "address":
		err = f.address(value)
	case "default", "default6":
		if f.DefaultInterface == "" {
			f.DefaultInterface = value
		}
	case "cgroup":
		f.CgroupVersion, err = strconv.Atoi(value)
	case "systemd":
		f.Systemd = true
	case "cloudinit":
		f.CloudInitEnabled = true
	case "runtime":
		f.ContainerRuntime.Name = value
	case "runtime.version":
		f.ContainerRuntime.Version = strings.TrimPrefix(value, "v")
	case "runtime.socket":
		f.ContainerRuntime.SocketOK = true
	case "keepalived":
		f.KeepalivedInstalled = true
	case "curl":
		f.CurlInstalled = true
	case "missing":
		f.CommandsMissing = append(f.CommandsMissing, value)
	case "forwarding":
		// "local" is enough for us; a later "no" (DisableForwarding) wins.
		allowed := (value == "yes" || value == "local") && (f.TCPForwardingAllowed == nil || *f.TCPForwardingAllowed)
		f.TCPForwardingAllowed = &allowed
	case "kubernetes":
		f.KubernetesPresent = append(f.KubernetesPresent, value)
	case "owner":
		f.OwnerRecord = value
	case "clock":
		f.Clock, err = clock(value)
	case "clock.end":
		var end time.Time
		if end, err = clock(value); err == nil && !f.Clock.IsZero() {
			f.Clock = f.Clock.Add(end.Sub(f.Clock) / 2)
		}
	}
	return err
}

// disk leaves out what it cannot read: a device that vanished while it was looked at, or one with an odd driver, must not
// keep a host away whose other disks are fine.
func (f *Facts) disk(value string) {
	fields := strings.Fields(value)
	if len(fields) != 4 {
		return
	}
	// sysfs counts in 512 bytes whatever the disk's own sector is. Empty card readers have size 0.
	if sectors, err := strconv.ParseInt(fields[1], 10, 64); err == nil && sectors > 0 {
		f.Disks = append(f.Disks, Disk{Name: fields[0], SizeBytes: sectors * 512, Rotational: fields[2] == "1", ID: fields[3]})
	}
}

func (f *Facts) address(value string) error {
	dev, local, _ := strings.Cut(value, " ")
	// Point-to-point addresses come without a length.
	if !strings.Contains(local, "/") {
		addr, err := netip.ParseAddr(local)
		if err != nil {
			return err
		}
		local = netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	prefix, err := netip.ParsePrefix(local)
	if err != nil {
		return err
	}
	f.Addresses = append(f.Addresses, Address{Interface: dev, Address: prefix.Addr(), Prefix: prefix.Bits()})
	return nil
}

func clock(value string) (time.Time, error) {
	whole, fraction, _ := strings.Cut(value, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	// A date without %N prints it as it is.
	nanos, err := strconv.ParseInt(fraction, 10, 64)
	if err != nil {
		nanos = 0
	}
	return time.Unix(seconds, nanos), nil
}
