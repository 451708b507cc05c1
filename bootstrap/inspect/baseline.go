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
		if strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz") == "" && len(kind) < hashLength &&
			!slices.Contains(t.Kinds, kind) {
			t.Kinds = append(t.Kinds, kind)
		}
		return true
	}
	rest, ok := strings.CutPrefix(line, "trace ")
	if !ok {
		return false
	}
	kind, rest, _ := strings.Cut(rest, "\t")
	name, value, _ := strings.Cut(rest, "\t")
	t.All = append(t.All, Trace{Kind: kind, Name: name, Value: value})
	return true
}

// Baseline is what a host had before a claim: which kinds were read, and a hash of each trace. It is kept in the
// management cluster, where nobody on the host can write; a hash says nothing about what it is of.
type Baseline struct {
	kinds []string
	known map[string]bool
}

// hashLength is the length of a hash in a baseline: 96 bits, so that nobody makes another trace of the same.
const hashLength = 24

// hash of a trace, as the shell makes it too: the reset of images.
func (t Trace) hash() string {
	sum := sha256.Sum256([]byte(t.Kind + "\t" + t.Name + "\t" + t.Value))
	return hex.EncodeToString(sum[:hashLength/2])
}

// Encode is the baseline that these traces make: the kinds, a colon, and the hashes in order. It is empty where there
// are more than any real host has: nothing can be compared then, and a host of which that is asked is not clean.
func (t *Traces) Encode() string {
	if len(t.All) > MaxTraces || len(t.Kinds) == 0 {
		return ""
	}
	hashes := make([]string, 0, len(t.All))
	for _, trace := range t.All {
		hashes = append(hashes, trace.hash())
	}
	slices.Sort(hashes)
	return strings.Join(slices.Sorted(slices.Values(t.Kinds)), ",") + ":" + strings.Join(slices.Compact(hashes), "")
}

// ParseBaseline reads what Encode made; nil is that of an empty one.
func ParseBaseline(encoded string) (*Baseline, error) {
	if encoded == "" {
		return nil, nil //nolint:nilnil // nothing is known
	}
	kinds, hashes, ok := strings.Cut(encoded, ":")
	if !ok || len(hashes)%hashLength != 0 {
		return nil, errors.New("the baseline is not one that an inspection made")
	}
	b := &Baseline{kinds: strings.Split(kinds, ","), known: map[string]bool{}}
	for hash := range slices.Chunk([]byte(hashes), hashLength) {
		b.known[string(hash)] = true
	}
	return b, nil
}

// Later are the traces that came, or changed, since the baseline was made.
func (b *Baseline) Later(now *Traces) []Trace {
	var later []Trace
	for _, trace := range now.All {
		if slices.Contains(b.kinds, trace.Kind) && !b.known[trace.hash()] {
			later = append(later, trace)
		}
	}
	return later
}

// Missing are the kinds that are compared now and were not read then, or the other way around.
func (b *Baseline) Missing(now *Traces) []string {
	var missing []string
	for _, kind := range now.Kinds {
		if !slices.Contains(b.kinds, kind) {
			missing = append(missing, kind)
		}
	}
	for _, kind := range b.kinds {
		if !slices.Contains(now.Kinds, kind) {
			missing = append(missing, kind)
		}
	}
	return missing
}
