// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// What a host can bring into memory is bounded: real ones have far less.
const (
	maxDisks     = 512
	maxVolumes   = 128
	maxLinks     = 256
	maxAddresses = 1024
	maxList      = 256
	maxValue     = 16 << 10
)

//go:embed identity.sh
var identityFunctions string

//go:embed inspect.sh
var factsScript string

// Script prints the facts; Parse reads them.
var Script = TraceFunctions + LeftFunctions + identityFunctions + factsScript

// IdentityScript prints of the facts what tells one machine and one installation from another: the boot ID, the
// machine-id, what the firmware says, and the disks. Parse reads that as well.
var IdentityScript = identityFunctions + "quoin_identity\nquoin_disks :\n" + "say end ok\n"

// SplitIdentity parts what IdentityScript printed from what was printed after it.
func SplitIdentity(output string) (identity, rest string) {
	const end = "\nend ok\n"
	if at := strings.Index(output, end); at >= 0 {
		return output[:at+len(end)], output[at+len(end):]
	}
	return output, ""
}

// ErrTooMuch is that a host printed more than an answer holds: the end of it is missing, and nothing may be made of the
// rest.
var ErrTooMuch = errors.New("the host's answer is longer than any real one (4 MiB), so what it leaves out is " +
	"unknown; look at the host for thousands of users, keys, jobs or links, and remove them")

// Collect runs Script on the host as root and parses the answer.
func Collect(ctx context.Context, host ssh.Host) (*Facts, error) {
	begin := time.Now()
	// What is on the host may say of itself that the answer ends, but not by this word.
	word := rand.Text()
	result, err := host.Run(ctx, ssh.Command{Script: Script + "say end " + word + "\n", Sudo: true})
	if err != nil {
		return nil, fmt.Errorf("inspecting the host: %w", err)
	}
	end := time.Now()
	if result.Truncated {
		return nil, fmt.Errorf("inspecting the host: %w", ErrTooMuch)
	}
	facts, err := parse(result.Stdout, word)
	if err != nil {
		return nil, err
	}
	// The script reads the clock first and last: the middles of both spans are the same moment, but for the way there and
	// back.
	facts.ClockOffset = facts.Clock.Sub(begin.Add(end.Sub(begin) / 2))
	return facts, nil
}

// architectures turns uname -m into Go's words.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x",
	"riscv64": "riscv64"}

// Parse reads what Script printed.
func Parse(output string) (*Facts, error) { return parse(output, "ok") }

// parse reads an answer whose last line is end and that word.
func parse(output, end string) (*Facts, error) {
	facts := &Facts{}
	output, complete := strings.CutSuffix("\n"+output, "\nend "+end+"\n")
	// What is no text can be written to no status.
	for line := range strings.SplitSeq(strings.ToValidUTF8(output, "?"), "\n") {
		if facts.Traces.Take(line) {
			continue
		}
		word, value, _ := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		if len(value) > maxValue {
			return nil, fmt.Errorf("the host's answer %q has %d bytes, more than any real one", word, len(value))
		}
		if err := facts.take(word, value); err != nil {
			return nil, fmt.Errorf("the host's answer %q: %w", word, err)
		}
	}
	if !complete {
		return nil, errors.New("the host's answer to the inspection is cut off; it is asked again")
	}
	return facts, nil
}

func (f *Facts) take(word, value string) error {
	for _, reads := range []func(word, value string) (known bool, err error){f.system, f.hardware, f.software, f.past} {
		if known, err := reads(word, value); known || err != nil {
			return err
		}
	}
	return nil
}

// system is what the host is as a machine on the network.
func (f *Facts) system(word, value string) (known bool, err error) {
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
	case "boot":
		f.BootID = value
	case "machineid":
		f.MachineID = value
	case "link":
		f.link(value)
	case "address":
		err = f.address(value)
	case "default", "default6":
		if f.DefaultInterface == "" {
			f.DefaultInterface = value
		}
	case "clock":
		f.Clock, err = clock(value)
	case "clock.end":
		var end time.Time
		if end, err = clock(value); err == nil && !f.Clock.IsZero() {
			f.Clock = f.Clock.Add(end.Sub(f.Clock) / 2)
		}
	default:
		return false, nil
	}
	return true, err
}

func (f *Facts) hardware(word, value string) (known bool, err error) {
	switch word {
	case "machine":
		f.Architecture = value
		if known := architectures[value]; known != "" {
			f.Architecture = known
		}
	case "uuid":
		f.ProductUUID = value
	case "serial":
		f.SerialNumber = value
	case "cpus":
		f.CPUs, err = strconv.Atoi(value)
	case "memory.kib":
		var kib int64
		kib, err = strconv.ParseInt(value, 10, 53)
		f.MemoryBytes = kib << 10
	case "disk":
		f.disk(value)
	case "disk.wwn", "disk.serial", "disk.content", "disk.volume":
		f.diskDetail(strings.TrimPrefix(word, "disk."), value)
	default:
		return false, nil
	}
	return true, err
}

// software is what runs on the host, or is there to run.
func (f *Facts) software(word, value string) (known bool, err error) {
	switch word {
	case "swap":
		f.SwapEnabled = true
	case "cgroup":
		f.CgroupVersion, err = strconv.Atoi(value)
	case "kubelet.cgroupv1":
		starts := value == "yes"
		f.KubeletOnCgroupV1 = &starts
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
		if len(f.CommandsMissing) < maxList {
			f.CommandsMissing = append(f.CommandsMissing, value)
		}
	case "forwarding":
		// "local" is enough for us; a later "no" (DisableForwarding) wins.
		allowed := (value == "yes" || value == "local") && (f.TCPForwardingAllowed == nil || *f.TCPForwardingAllowed)
		f.TCPForwardingAllowed = &allowed
	default:
		return false, nil
	}
	return true, err
}

// past is what an earlier use of the host left.
func (f *Facts) past(word, value string) (known bool, err error) {
	switch word {
	case "cloudinit.guarded":
		f.CloudInitGuarded = true
	case "kubernetes":
		if len(f.KubernetesPresent) < maxList {
			f.KubernetesPresent = append(f.KubernetesPresent, value)
		}
	case "owner":
		f.OwnerRecord = value
	default:
		return false, nil
	}
	return true, nil
}

// disk leaves out what it cannot read: a device that vanished while it was looked at, or one with an odd driver, must
// not keep a host away whose other disks are fine.
func (f *Facts) disk(value string) {
	fields := strings.Fields(value)
	if len(fields) != 4 {
		return
	}
	// sysfs counts in 512 bytes whatever the disk's own sector is. Empty card readers have size 0.
	if sectors, err := strconv.ParseInt(fields[1], 10, 64); err == nil && sectors > 0 && sectors < 1<<53 &&
		len(f.Disks) < maxDisks {
		f.Disks = append(f.Disks, Disk{Name: fields[0], SizeBytes: sectors * 512, Rotational: fields[2] == "1",
			ID: fields[3]})
	}
}

// diskDetail adds to the disk that was told last.
func (f *Facts) diskDetail(kind, value string) {
	name, value, _ := strings.Cut(value, " ")
	value = strings.TrimSpace(value)
	if len(f.Disks) == 0 || f.Disks[len(f.Disks)-1].Name != name || value == "" {
		return
	}
	disk := &f.Disks[len(f.Disks)-1]
	switch kind {
	case "wwn":
		disk.WWN = strings.Trim(value, "_")
	case "serial":
		disk.Serial = strings.Trim(value, "_")
	case "content":
		disk.Content = value
	case "volume":
		disk.volume(value)
	}
}

var pair = regexp.MustCompile(`([A-Z]+)="((?:[^"\\]|\\.)*)"`)

// volume takes a line of lsblk in pairs: NAME="sda1" TYPE="part" FSTYPE="ext4" LABEL="" MOUNTPOINT="/".
func (d *Disk) volume(line string) {
	var v Volume
	into := map[string]*string{"NAME": &v.Name, "TYPE": &v.Type, "FSTYPE": &v.FileSystem, "LABEL": &v.Label,
		"MOUNTPOINT": &v.MountPoint}
	for _, match := range pair.FindAllStringSubmatch(line, 16) {
		if field := into[match[1]]; field != nil {
			*field = match[2]
		}
	}
	if v.Name != "" && (v.Type != "disk" || v.FileSystem != "" || v.MountPoint != "") && len(d.Volumes) < maxVolumes {
		d.Volumes = append(d.Volumes, v)
	}
}

// link leaves out what it cannot read, for the same reason.
func (f *Facts) link(value string) {
	fields := strings.Fields(value)
	if len(fields) != 4 || len(f.Links) >= maxLinks {
		return
	}
	if mtu, err := strconv.Atoi(fields[2]); err == nil {
		f.Links = append(f.Links, Link{Name: fields[0], HardwareAddress: fields[1], MTU: mtu, State: fields[3]})
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
	if len(f.Addresses) >= maxAddresses {
		return nil
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
