// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pivot decides how a management cluster's objects go to another one: what was found on both sides and in the
// journal, and what comes next. It asks nobody and writes nothing; internal/pivot/execute does.
package pivot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Phase of a pivot.
type Phase string

// Phases of a pivot. A phase is written down before its first write is made.
const (
	// Copying: the source is paused and its objects are made on the target. It can be undone.
	Copying Phase = "Copying"
	// Undoing: the copies are deleted on the target, and the source resumes. It can only be finished.
	Undoing Phase = "Undoing"
	// Releasing: every object has been seen on the target. They are deleted on the source, and the target resumes. It can
	// only be finished.
	Releasing Phase = "Releasing"
	// Undone: the source acts, and the target has nothing.
	Undone Phase = "Undone"
	// Done: the target acts, and the source has nothing.
	Done Phase = "Done"
)

// ranks of phases, from the first to the last that a pivot can be in.
var ranks = []Phase{Copying, Undoing, Releasing, Undone, Done}

// Object is named as both sides know it.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// String is how a person names it.
func (o Object) String() string { return o.Kind + " " + o.Name }

// Journal of a pivot. It is kept in both management clusters and in the workspace, and holds names alone.
type Journal struct {
	// ID of the pivot.
	ID string `json:"id"`
	// Began is when its first phase was written down.
	Began time.Time `json:"began"`
	Phase Phase     `json:"phase"`
	// Reason why it is undone, in one sentence.
	Reason    string `json:"reason,omitempty"`
	Namespace string `json:"namespace"`
	// Source and Target are the UIDs of the namespaces kube-system.
	Source string `json:"source"`
	Target string `json:"target"`
	// Objects that move.
	Objects []Object `json:"objects"`
	// Existing are those that the target had before: they are not overwritten, and an undoing leaves them.
	Existing []Object `json:"existing,omitempty"`
	// Acted are Clusters that acted on the target before everything was there.
	Acted []string `json:"acted,omitempty"`
	// Holder is the run that works on the pivot, and Renewed when it last said so. Only the target's copy counts.
	Holder  string    `json:"holder,omitempty"`
	Renewed time.Time `json:"renewed,omitzero"`
}

// UnmarshalJSON implements json.Unmarshaler. A journal that is open is written again as a whole, and its phase decides
// what is deleted where, so one that a later release of the plugin went on with is refused.
func (j *Journal) UnmarshalJSON(data []byte) error {
	type known Journal
	if err := json.Unmarshal(data, (*known)(j)); err != nil || !j.Open() {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	err := strict.Decode(new(known))
	if err == nil && !slices.Contains(ranks, j.Phase) {
		err = fmt.Errorf("unknown phase %q", j.Phase)
	}
	if err != nil {
		return fmt.Errorf("a later release of clusterctl-quoin is in the middle of this pivot (%w): go on with that one", err)
	}
	return nil
}

// Lease is how long a run that says nothing is taken for alive.
const Lease = 2 * time.Minute

// HeldFrom says why a run may not work on the pivot yet; empty when it may.
func (j *Journal) HeldFrom(run string, now time.Time) string {
	if !j.Open() || j.Holder == "" || j.Holder == run || !now.Before(j.Renewed.Add(Lease)) {
		return ""
	}
	return fmt.Sprintf("another run (%s) works on this pivot, and said so %s ago: wait for its end. When it is dead, "+
		"this command goes on %s after its last word", j.Holder, now.Sub(j.Renewed).Round(time.Second), Lease)
}

// Open reports whether there is something left to do.
func (j *Journal) Open() bool { return j != nil && j.Phase != Done && j.Phase != Undone }

// Has reports whether the object moves.
func (j *Journal) Has(o Object) bool { return j != nil && slices.Contains(j.Objects, o) }

// Moves reports whether the Cluster moves.
func (j *Journal) Moves(cluster string) bool {
	return j != nil && slices.ContainsFunc(j.Objects, func(o Object) bool {
		return o.Kind == "Cluster" && o.Name == cluster && strings.HasPrefix(o.APIVersion, "cluster.x-k8s.io/")
	})
}

// Merge is what the copies of a journal say together; nil when there is none. Only copies with the same ID are about
// the same pivot: of these the phase that is furthest counts, because each is written down before it begins, and a kill
// can come between two of the copies. A pivot that is open comes before one that is closed, whenever it began.
func Merge(copies ...*Journal) *Journal {
	var last *Journal
	for _, j := range copies {
		j = furthest(j, copies)
		switch {
		case j == nil:
		case last == nil || j.Open() && !last.Open():
			last = j
		case j.Open() == last.Open() && j.Began.After(last.Began):
			last = j
		}
	}
	return last
}

// furthest of the copies that are about the same pivot.
func furthest(j *Journal, copies []*Journal) *Journal {
	for _, other := range copies {
		if other == nil || j == nil || other.ID != j.ID {
			continue
		}
		was, is := slices.Index(ranks, j.Phase), slices.Index(ranks, other.Phase)
		if is > was || is == was && len(other.Objects) > len(j.Objects) {
			j = other
		}
	}
	return j
}

// Between says why the journal is about other management clusters than these; empty when it is about them.
func (j *Journal) Between(namespace, source, target string) string {
	if j.Namespace == namespace && j.Source == source && j.Target == target {
		return ""
	}
	if j.Source == target && j.Target == source {
		return fmt.Sprintf("a pivot of namespace %s the other way is %s: finish that first (the same command as then)",
			j.Namespace, j.Phase)
	}
	return fmt.Sprintf("a pivot of namespace %s to another management cluster is %s: finish that first",
		j.Namespace, j.Phase)
}
