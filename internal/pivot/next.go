// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Cluster as it was found on one side.
type Cluster struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

// Side is what was found in one management cluster.
type Side struct {
	Clusters []Cluster `json:"clusters,omitempty"`
	// Present are the objects of the journal that are there, or, where there is no journal, those of the namespace.
	Present []Object `json:"present,omitempty"`
	// Marked is how many objects carry delete-for-move.
	Marked int `json:"marked"`
}

// World is what was found.
type World struct {
	Source Side `json:"source"`
	Target Side `json:"target"`
}

// Wish of the person who runs the command.
type Wish struct {
	// Abort asks for a pivot to be undone.
	Abort bool
	// TakeOver says that what is paused was left so by a move that died.
	TakeOver bool
	// Skip are checks that are not made, by name, with why that is right.
	Skip map[string]string
}

// Unskippable says that a check cannot be left out; empty where all can that the wish names.
func (w Wish) Unskippable() string {
	for _, name := range slices.Sorted(maps.Keys(w.Skip)) {
		switch {
		case name != SkipHosts:
			return fmt.Sprintf("there is no check %q to be skipped, only %s", name, SkipHosts)
		case w.Skip[name] == "":
			return fmt.Sprintf("--skip %s is without a reason: say %[1]s=<why that is right>", name)
		}
	}
	return ""
}

// Action is what comes next.
type Action string

// Actions.
const (
	// Refuse: nothing is written, and a person has to see to it.
	Refuse Action = "Refuse"
	// Begin: list what moves, write the journal, and copy.
	Begin Action = "Begin"
	// Copy, verify and release.
	Copy Action = "Copy"
	// Release: delete what is left on the source, and resume the target.
	Release Action = "Release"
	// Undo: delete the copies on the target, and resume the source.
	Undo Action = "Undo"
	// Resume the target, because the source has nothing any more.
	Resume Action = "Resume"
	// Nothing is left to do.
	Nothing Action = "Nothing"
)

// Step is what comes next, and why.
type Step struct {
	Action  Action `json:"action"`
	Message string `json:"message"`
}

// Next decides what comes next for what was found. Never does it let both sides act, and never does it delete the last
// copy of an object.
func Next(j *Journal, w World, wish Wish) Step {
	if j.Open() {
		w = j.only(w)
	}
	if names := both(active(w.Source), active(w.Target)); len(names) > 0 {
		return refusef("Cluster %s acts on both sides: pause it on the one whose hosts report StaleClaim "+
			"(spec.paused), and run this again", strings.Join(names, ", "))
	}
	if j.Open() {
		return j.next(w, wish)
	}
	return unwritten(w, wish)
}

// only leaves out Clusters that do not move: they neither hold the pivot up nor are touched by it.
func (j *Journal) only(w World) World {
	others := func(c Cluster) bool { return !j.Moves(c.Name) }
	w.Source.Clusters = slices.DeleteFunc(slices.Clone(w.Source.Clusters), others)
	w.Target.Clusters = slices.DeleteFunc(slices.Clone(w.Target.Clusters), others)
	return w
}

// Acting are the Clusters of the journal that act on the target before everything is there; only while it is copied.
func (j *Journal) Acting(w World) []string {
	if j == nil || j.Phase != Copying {
		return nil
	}
	return active(j.only(w).Target)
}

// next for a pivot that has been written down.
func (j *Journal) next(w World, wish Wish) Step {
	acting := j.Acting(w)
	if len(acting) == 0 && j.Phase == Copying {
		acting = j.Acted
	}
	switch {
	case len(acting) > 0:
		return refusef("Cluster %s acted on the target before everything was there, and may have taken hosts over: "+
			"nothing is copied over it, and nothing of it is deleted. Pause it there (spec.paused), go on as docs/move.md "+
			"says under \"Something arrived\", and then delete the ConfigMap quoin-pivot on both sides and pivot.json in "+
			"the workspace", strings.Join(acting, ", "))
	case wish.Abort && j.Phase == Releasing:
		return refusef("the point of no return is behind: every object is on the target. Run this without --abort to finish")
	case j.Phase == Undoing && len(active(w.Target)) > 0:
		return refusef("Cluster %s acts on the target, and its copy is to be deleted there: pause it there "+
			"(spec.paused) first", strings.Join(active(w.Target), ", "))
	case j.Phase == Undoing:
		return Step{Undo, "goes on undoing: " + j.Reason}
	case wish.Abort:
		return Step{Undo, "--abort"}
	case j.Phase == Releasing:
		return j.finish(w)
	case w.Source.Marked > 0:
		return refusef("%d objects of the source carry delete-for-move, and this pivot deletes nothing yet: "+
			"another move is at work, wait for its end", w.Source.Marked)
	}
	return Step{Copy, "goes on copying"}
}

// finish is what is left to do behind the point of no return.
func (j *Journal) finish(w World) Step {
	if missing := absent(w.Source.Present, w.Target.Present); len(missing) > 0 {
		return refusef("%s is not on the target any more: nothing is deleted on the source until it is back",
			Listed(missing))
	}
	gone := ""
	if lost := absent(absent(j.Objects, w.Target.Present), w.Source.Present); len(lost) > 0 {
		gone = ". On neither side any more: " + Listed(lost)
	}
	if len(w.Source.Present) > 0 {
		return Step{Release, fmt.Sprintf("goes on releasing: %d objects are left on the source%s",
			len(w.Source.Present), gone)}
	}
	return Step{Resume, "only the target's resumption is missing" + gone}
}

// unwritten is what comes next where no pivot is under way as far as anybody wrote down.
func unwritten(w World, wish Wish) Step {
	source, target := w.Source.Clusters, w.Target.Clusters
	shared := both(clusterNames(source), clusterNames(target))
	missing := absent(w.Source.Present, w.Target.Present)
	takeOver := func(a Action, format string, args ...any) Step {
		message := fmt.Sprintf(format, args...)
		if wish.TakeOver {
			return Step{a, message}
		}
		return refusef("%s. When a move that died has left it so, run this with --take-over", message)
	}
	switch {
	case wish.Abort:
		return refusef("no pivot is under way that could be undone")
	case len(source) == 0 && len(target) == 0:
		return refusef("no Cluster is in the namespace on either side")
	case len(source) == 0 && len(active(w.Target)) == len(target) && len(w.Source.Present) == 0:
		return Step{Nothing, "the target has everything, and acts"}
	case len(source) == 0 && len(w.Source.Present) == 0:
		return takeOver(Resume, "everything is on the target, and Cluster %s is paused there",
			strings.Join(paused(w.Target), ", "))
	case len(target) > 0 && (len(source) == 0 || w.Source.Marked > 0) && len(missing) > 0:
		return refusef("a move that died was deleting on the source, and %s is not on the target: move that by hand, or "+
			"delete it on the source when nobody needs it, and run this again", Listed(missing))
	case len(target) > 0 && (len(source) == 0 || w.Source.Marked > 0):
		return takeOver(Release, "%d objects are left on the source, %d of them marked as moved",
			len(w.Source.Present), w.Source.Marked)
	case len(both(shared, active(w.Target))) > 0:
		return refusef("Cluster %s acts on the target, and may have taken hosts over: nothing is copied over it. Pause it "+
			"there (spec.paused), and go on as docs/move.md says under \"Something arrived\"",
			strings.Join(both(shared, active(w.Target)), ", "))
	case len(shared) > 0:
		return takeOver(Copy, "Cluster %s is on both sides", strings.Join(shared, ", "))
	case len(paused(w.Source)) > 0:
		return takeOver(Begin, "Cluster %s is paused on the source", strings.Join(paused(w.Source), ", "))
	}
	return Step{Begin, fmt.Sprintf("Cluster %s moves", strings.Join(clusterNames(source), ", "))}
}

func refusef(format string, args ...any) Step { return Step{Refuse, fmt.Sprintf(format, args...)} }

func named(s Side, match func(Cluster) bool) []string {
	var names []string
	for _, c := range s.Clusters {
		if match(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

func active(s Side) []string { return named(s, func(c Cluster) bool { return !c.Paused }) }
func paused(s Side) []string { return named(s, func(c Cluster) bool { return c.Paused }) }

func clusterNames(clusters []Cluster) []string {
	return named(Side{Clusters: clusters}, func(Cluster) bool { return true })
}

func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(name string) bool { return !slices.Contains(b, name) })
}

// absent are the objects of all that are not among those.
func absent(all, those []Object) []Object {
	there := map[Object]bool{}
	for _, o := range those {
		there[o] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(o Object) bool { return there[o] })
}

// Listed names the first few.
func Listed(objects []Object) string {
	const shown = 5
	var names []string
	for _, o := range objects[:min(shown, len(objects))] {
		names = append(names, o.String())
	}
	if more := len(objects) - shown; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
