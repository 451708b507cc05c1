// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Disks have no partitions here: a file system lies on the whole of one.

func init() {
	simple("blkid", "o:s:pc:", map[string]string{"output": "o:", "match-tag": "s:", "probe": "p"}, func(p *Process, o options, args []string) int {
		code := 2
		p.enter()
		var out strings.Builder
		for _, d := range p.Machine.disks {
			if len(args) > 0 && !slices.ContainsFunc(args, func(a string) bool { return p.Machine.resolveDevice(a) == d }) || d.FileSystem == "" {
				continue
			}
			code = 0
			pairs := [][2]string{{"LABEL", d.Label}, {"UUID", d.UUID}, {"TYPE", d.FileSystem}}
			var words []string
			for _, pair := range pairs {
				if pair[1] == "" || o.on("s") && !slices.Contains(o["s"], pair[0]) {
					continue
				}
				switch o.last("o") {
				case "value":
					out.WriteString(pair[1] + "\n")
				case "export":
					out.WriteString(pair[0] + "=" + pair[1] + "\n")
				default:
					words = append(words, fmt.Sprintf("%s=%q", pair[0], pair[1]))
				}
			}
			if len(words) > 0 {
				out.WriteString("/dev/" + d.Name + ": " + strings.Join(words, " ") + "\n")
			}
		}
		p.leave()
		p.say(out.String())
		return code
	})
	simple("wipefs", "afnqi", map[string]string{"all": "a", "force": "f", "no-act": "n", "quiet": "q", "noheadings": "i", "output": "O:", "parsable": "P"}, func(p *Process, o options, args []string) int {
		code := 0
		for _, name := range args {
			p.enter()
			d := p.Machine.resolveDevice(name)
			busy := d != nil && slices.ContainsFunc(p.Machine.mounts, func(at mount) bool { return at.source == "/dev/"+d.Name })
			fstype := ""
			if d != nil {
				fstype = d.FileSystem
			}
			wipe := d != nil && (!busy || o.on("f")) && o.on("a") && !o.on("n")
			if wipe {
				d.FileSystem, d.Label, d.UUID, d.root = "", "", "", nil
			}
			p.leave()
			switch {
			case d == nil:
				code = p.Fail("error: %s: probing initialization failed: No such file or directory", name)
			case o.on("a") && !wipe && !o.on("n"):
				code = p.Fail("error: %s: probing initialization failed: Device or resource busy", name)
			case o.on("P") && !o.on("a"):
				p.Printf("# offset,uuid,label,type\n")
				if fstype != "" {
					p.Printf("0x438,%s,%s,%s\n", d.UUID, d.Label, fstype)
				}
			case fstype != "" && !o.on("q") && !o.on("a"):
				p.Printf("%s %s\n", d.Name, fstype)
			}
		}
		return code
	})
	for _, fstype := range []string{"ext4", "xfs", "btrfs"} {
		simple("mkfs."+fstype, "FfqL:U:m:E:O:b:", nil, func(p *Process, o options, args []string) int {
			p.enter()
			d := p.Machine.resolveDevice(args[0])
			busy := d != nil && slices.ContainsFunc(p.Machine.mounts, func(at mount) bool { return at.source == "/dev/"+d.Name })
			if d != nil && !busy {
				d.FileSystem, d.Label = fstype, o.last("L")
				id := randomHex(32)
				d.UUID = id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
				d.format()
			}
			p.leave()
			if d == nil {
				return p.Fail("The file %s does not exist and no size was specified.", args[0])
			}
			if busy {
				return p.Fail("%s is mounted; will not make a filesystem here!", args[0])
			}
			return 0
		})
	}
	simple("blockdev", "", map[string]string{"getsize64": "z", "getsz": "Z", "rereadpt": "r"}, func(p *Process, o options, args []string) int {
		p.enter()
		d := p.Machine.resolveDevice(args[0])
		p.leave()
		switch {
		case d == nil:
			return p.Fail("cannot open %s: No such file or directory", args[0])
		case o.on("z"):
			p.Printf("%d\n", d.Bytes)
		case o.on("Z"):
			p.Printf("%d\n", d.Bytes/512)
		}
		return 0
	})
	simple("lsblk", "nPro:dpb", map[string]string{"noheadings": "n", "pairs": "P", "raw": "r", "output": "o:", "paths": "p", "nodeps": "d"}, lsblkCommand)
	add("dd", ddCommand)
}

func lsblkCommand(p *Process, o options, args []string) int {
	if !o.on("n") || !o.on("o") {
		return p.unknown("lsblk with headings, or without -o")
	}
	p.enter()
	m := p.Machine
	list := m.disks
	if len(args) > 0 {
		list = nil
		for _, arg := range args {
			if d := m.resolveDevice(arg); d != nil {
				list = append(list, d)
			}
		}
	}
	var out strings.Builder
	bad := ""
	for _, d := range list {
		point := ""
		if d.System {
			point = "/"
		}
		for _, at := range m.mounts {
			if at.source == "/dev/"+d.Name {
				point = at.point
			}
		}
		fstype := d.FileSystem
		if d.System && fstype == "" {
			fstype = "ext4"
		}
		name := d.Name
		if o.on("p") {
			name = "/dev/" + name
		}
		all := map[string]string{"NAME": name, "TYPE": "disk", "FSTYPE": fstype, "LABEL": d.Label, "UUID": d.UUID, "MOUNTPOINT": point, "SIZE": strconv.FormatInt(d.Bytes, 10)}
		var words []string
		for column := range strings.SplitSeq(o.last("o"), ",") {
			value, known := all[column]
			switch {
			case !known:
				bad = column
			case o.on("P"):
				words = append(words, fmt.Sprintf("%s=%q", column, value))
			default:
				words = append(words, value)
			}
		}
		out.WriteString(strings.Join(words, " ") + "\n")
	}
	p.leave()
	switch {
	case bad != "":
		return p.unknown("the column %s", bad)
	case len(list) == 0:
		p.Fail("%s: not a block device", strings.Join(args, " "))
		return 32
	}
	return p.say(out.String())
}

// ddCommand writes zeros over a disk, or into a file; nothing else is known.
func ddCommand(_ context.Context, p *Process) int {
	words := map[string]string{}
	for _, arg := range p.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		words[key] = value
	}
	if words["if"] != "/dev/zero" || words["of"] == "" {
		return p.unknown("dd of other than zeros")
	}
	p.enter()
	d := p.Machine.resolveDevice(words["of"])
	full := p.Machine.full
	if d != nil && words["seek"] == "" {
		d.FileSystem, d.Label, d.UUID, d.root = "", "", "", nil
	}
	p.leave()
	if d != nil {
		return 0
	}
	size, _ := strconv.Atoi(strings.TrimRight(words["bs"], "kM"))
	size *= map[bool]int{true: 1 << 10, false: 1}[strings.HasSuffix(words["bs"], "k")] * map[bool]int{true: 1 << 20, false: 1}[strings.HasSuffix(words["bs"], "M")]
	count, err := strconv.Atoi(words["count"])
	if err != nil || full {
		return p.Fail("error writing '%s': No space left on device", words["of"])
	}
	if err := p.writeMode(words["of"], make([]byte, size*count), os.FileMode(0o644)); err != nil {
		return p.Fail("error writing '%s': %s", words["of"], errText(err))
	}
	return 0
}
