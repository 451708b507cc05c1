// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// TraceFunctions print, by quoin_traces, what outlives a claim unless somebody takes it back.
//
//go:embed traces.sh
var TraceFunctions string

// LeftFunctions print, by quoin_left, what a cluster left under names that nobody else uses.
//
//go:embed left.sh
var LeftFunctions string

// MaxTraces bounds a baseline: real hosts have some hundred traces.
const MaxTraces = 2048

// Trace is one thing on a host that outlives a claim unless somebody takes it back: a user, a key, a unit.
type Trace struct {
	// Kind as traces.sh calls it: user, key, cron.
	Kind string
	// Name within its kind: a file, a user.
	Name string
	// Value is what it is: the digest of a file, the line of a key.
	Value string
	// How is the mode and the owner of a file.
	How string
}

// Traces are what quoin_traces printed.
type Traces struct {
	// Kinds of which all was printed.
	Kinds []string
	All   []Trace
}

// Take reads a line, and reports whether it is one of traces.
func (t *Traces) Take(line string) bool {
	if kind, ok := strings.CutPrefix(line, "traced "); ok {
		// What the scripts print, and nothing that a host makes up.
		if kind != "" && strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") == "" && len(kind) < hashLength &&
			!slices.Contains(t.Kinds, kind) {
			t.Kinds = append(t.Kinds, kind)
		}
		return true
	}
	word, rest, ok := strings.Cut(line, " ")
	if !ok || word != "trace" && word != "file" {
		return false
	}
	kind, rest, _ := strings.Cut(rest, "\t")
	how := ""
	if word == "file" {
		how, rest, _ = strings.Cut(rest, "\t")
	}
	name, value, _ := strings.Cut(rest, "\t")
	t.All = append(t.All, Trace{Kind: kind, Name: name, Value: value, How: how})
	return true
}

// Baseline is what a host had before a claim: which kinds were read, and a hash of each trace. It is kept in the
// management cluster, where nobody on the host can write; a hash says nothing about what it is of.
type Baseline struct {
	kinds []string
	known map[string]bool
	// entries by kind; an earlier version's baseline has none.
	entries map[string][]entry
	earlier bool
}

// entry is a trace in a baseline: a short hash of its name, and a long one of all.
type entry struct{ name, whole string }

const (
	// hashLength is the length of a hash in a baseline: 96 bits, so that nobody makes another trace of the same.
	hashLength = 24
	// nameLength is that of a name's: it tells what changed from what is gone, and both are found.
	nameLength = 6
	// format begins a baseline; that of an earlier version begins with a kind, and holds neither modes nor owners nor
	// what is of which kind.
	format = "2:"
)

// Outdated reports whether an earlier version made the baseline. It counts for what it holds until the host is
// inspected as a free one.
func Outdated(encoded string) bool { return encoded != "" && !strings.HasPrefix(encoded, format) }

func digest(length int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\t")))
	return hex.EncodeToString(sum[:length/2])
}

// hash of a trace, as the shell makes it too: the reset of images.
func (t Trace) hash() string {
	if t.How == "" {
		return digest(hashLength, t.Kind, t.Name, t.Value)
	}
	return digest(hashLength, t.Kind, t.Name, t.Value, t.How)
}

func (t Trace) entry() entry { return entry{digest(nameLength, t.Kind, t.Name), t.hash()} }

// Encode is the baseline that these traces make: the format, and of each kind the entries in order. It is empty where
// there are more than any real host has: nothing can be compared then, and a host of which that is asked is not clean.
func (t *Traces) Encode() string {
	if len(t.All) > MaxTraces || len(t.Kinds) == 0 {
		return ""
	}
	entries := map[string][]string{}
	for _, trace := range t.All {
		e := trace.entry()
		entries[trace.Kind] = append(entries[trace.Kind], e.name+e.whole)
	}
	parts := make([]string, 0, len(t.Kinds))
	for _, kind := range slices.Sorted(slices.Values(t.Kinds)) {
		slices.Sort(entries[kind])
		parts = append(parts, kind+"="+strings.Join(slices.Compact(entries[kind]), ""))
	}
	return format + strings.Join(parts, ",")
}

// ParseBaseline reads what Encode made, of this version or an earlier one; nil is that of an empty one.
func ParseBaseline(encoded string) (*Baseline, error) {
	if encoded == "" {
		return nil, nil //nolint:nilnil // nothing is known
	}
	b := &Baseline{known: map[string]bool{}, entries: map[string][]entry{}, earlier: Outdated(encoded)}
	read := b.read
	if b.earlier {
		read = b.readEarlier
	}
	if !read(encoded) {
		return nil, errors.New("the baseline is not one that an inspection made")
	}
	return b, nil
}

func (b *Baseline) read(encoded string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(encoded, format), ",") {
		kind, entries, ok := strings.Cut(part, "=")
		if !ok || len(entries)%(nameLength+hashLength) != 0 {
			return false
		}
		b.kinds = append(b.kinds, kind)
		for e := range slices.Chunk([]byte(entries), nameLength+hashLength) {
			whole := string(e[nameLength:])
			b.known[whole] = true
			b.entries[kind] = append(b.entries[kind], entry{string(e[:nameLength]), whole})
		}
	}
	return true
}

func (b *Baseline) readEarlier(encoded string) bool {
	kinds, hashes, ok := strings.Cut(encoded, ":")
	if !ok || len(hashes)%hashLength != 0 {
		return false
	}
	b.kinds = strings.Split(kinds, ",")
	for hash := range slices.Chunk([]byte(hashes), hashLength) {
		b.known[string(hash)] = true
	}
	return true
}

// Later are the traces that came, or changed, since the baseline was made.
func (b *Baseline) Later(now *Traces) []Trace {
	var later []Trace
	for _, trace := range now.All {
		if slices.Contains(b.kinds, trace.Kind) && trace.Kind != toolKind && !b.knows(trace) {
			later = append(later, trace)
		}
	}
	return later
}

func (b *Baseline) knows(trace Trace) bool {
	if !b.earlier {
		return b.known[trace.hash()]
	}
	// What that version did not print.
	if trace.Value == "directory" || trace.Kind == "data" && strings.ContainsAny(trace.Name, " *?[") {
		return true
	}
	trace.How = ""
	return b.known[trace.hash()]
}

// Gone says how many things of a kind that were there when the baseline was made are neither there nor changed.
type Gone struct {
	Kind  string
	Count int
	// Tools are the programs among them: the baseline knows no names, but there are few of these.
	Tools []string
}

// toolKind are the programs by which the scripts look. One more of them is no change.
const toolKind = "tool"

// tools are those that left.sh names.
var tools = []string{"iptables-save", "ip6tables-save", "iptables-legacy-save", "ip6tables-legacy-save",
	"iptables-nft-save", "ip6tables-nft-save", "nft", "ipset", "tc"}

// lasting are the kinds of which nothing goes unless somebody removes it, who then leaves the host less guarded, or
// itself locked out. Images, networks, mounts and units until the next boot come and go.
var lasting = []string{"user", "password", "member", "key", "sudo", "sshd", "cron", "unit", "boot", "kernel", "login",
	"home", "hook", toolKind}

// disabled by a reset are these, whoever enabled them.
var disabled = []string{"kubelet.service", "keepalived.service", "containerd.service"}

// Gone are the things that are gone since the baseline was made. One of an earlier version cannot tell.
func (b *Baseline) Gone(now *Traces) []Gone {
	there, changed := map[string]bool{}, map[string]bool{}
	for _, unit := range disabled {
		link := Trace{Kind: "unit", Name: "/etc/systemd/system/multi-user.target.wants/" + unit}
		changed[link.entry().name] = true
	}
	for _, trace := range now.All {
		e := trace.entry()
		there[e.whole] = true
		if !b.known[e.whole] {
			changed[e.name] = true
		}
	}
	var gone []Gone
	for _, kind := range b.kinds {
		if !slices.Contains(lasting, kind) || !slices.Contains(now.Kinds, kind) {
			continue
		}
		g := Gone{Kind: kind}
		for _, e := range b.entries[kind] {
			if there[e.whole] || changed[e.name] {
				continue
			}
			g.Count++
			for _, tool := range tools {
				if (Trace{Kind: kind, Name: tool}).hash() == e.whole {
					g.Tools = append(g.Tools, tool)
				}
			}
		}
		if g.Count > 0 {
			gone = append(gone, g)
		}
	}
	return gone
}

// Missing are the kinds that were read then and cannot be read now, and those that nobody read then.
func (b *Baseline) Missing(now *Traces) (lost, unknown []string) {
	for _, kind := range now.Kinds {
		if !slices.Contains(b.kinds, kind) {
			unknown = append(unknown, kind)
		}
	}
	for _, kind := range b.kinds {
		if !slices.Contains(now.Kinds, kind) {
			lost = append(lost, kind)
		}
	}
	return lost, unknown
}
