// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"fmt"
	"strings"
)

// Verdict is what the QuoinCluster of a Site says and carries.
type Verdict struct {
	// Block says that the QuoinCluster carries block-move.
	Block bool
	// Movable, Reason and Message are the condition Movable. Reason is empty where the condition's own one applies.
	Movable         bool
	Reason, Message string
}

// Reasons of a Verdict beside those of obstacles.
const (
	// Movable: a move would go well.
	Movable = "Movable"
	// Quiet: the Cluster is paused, and nothing is in motion.
	Quiet = "Quiet"
	// NotQuiet: the Cluster is paused, and something is.
	NotQuiet = "NotQuiet"
)

// Judge says whether a move of the Cluster would go well, and, while it is paused, whether it may go on.
func Judge(s Site) Verdict {
	obstacles := Obstacles(s)
	if !s.Cluster.Paused {
		if len(obstacles) == 0 {
			return Verdict{Block: true, Movable: true, Reason: Movable, Message: Command(s)}
		}
		return Verdict{Block: true, Reason: obstacles[0].Reason, Message: sentences(messages(obstacles, false), "")}
	}
	undo := fmt.Sprintf(`to give the move up: kubectl -n %s patch cluster %s --type merge -p '{"spec":{"paused":null}}'`,
		s.Namespace, s.Cluster.Name)
	if kept := messages(obstacles, true); len(kept) > 0 {
		return Verdict{Block: true, Reason: firstKept(obstacles), Message: sentences(kept, undo)}
	}
	if waits := waits(s); len(waits) > 0 {
		return Verdict{Block: true, Reason: NotQuiet, Message: "block-move stays: " + sentences(waits, undo)}
	}
	return Verdict{Movable: true, Reason: Quiet,
		Message: "everything of the Cluster is quiet, and the free hosts of the namespace are held; " + undo}
}

// waits are what a paused Cluster is not yet quiet for. Each ends by itself, or names the way to end it.
func waits(s Site) []string {
	var found []string
	add := func(names []string, format string) {
		if len(names) > 0 {
			found = append(found, fmt.Sprintf(format, listed(names)))
		}
	}
	add(named(s.Neighbors, func(c Cluster) bool { return !c.Paused }, func(c Cluster) string { return c.Name }),
		"Cluster %s of the namespace is not paused, and a move takes all of them")
	unheld, _ := ToHold(s)
	add(unheld, "QuoinHost %s is to be held")
	add(named(s.Objects, func(o Object) bool { return !o.Paused }, func(o Object) string { return o.Name }),
		"%s: its controller has not seen the pause yet")
	add(named(s.Objects, func(o Object) bool {
		return o.Paused && !o.Quiet
	}, func(o Object) string { return o.Name + " (" + o.Note + ")" }),
		"%s has not ended yet")
	add(named(s.Hosts, func(h Host) bool { return s.moves(h) && !s.free(h) && !h.Paused }, hostName),
		"QuoinHost %s: its controller has not seen the pause yet")
	add(named(s.Hosts, func(h Host) bool {
		return s.moves(h) && !h.Quiet && (s.free(h) && h.Hold != nil || h.Paused)
	}, func(h Host) string {
		if h.Note == "" {
			return h.Name + " (its controller has not said yet that nothing runs there)"
		}
		return h.Name + " (" + h.Note + ")"
	}), "QuoinHost %s is not quiet")
	return found
}

// moves says whether the host has to be quiet for this Cluster: its own hosts, and those that nobody has.
func (s Site) moves(h Host) bool {
	return !h.Left && (s.free(h) || h.Consumer != nil && h.Consumer.Namespace == s.Namespace &&
		h.Consumer.Cluster == s.Cluster.Name)
}

func messages(obstacles []Obstacle, keeping bool) []string {
	var texts []string
	for _, o := range obstacles {
		if o.Keeps || !keeping {
			texts = append(texts, o.Message)
		}
	}
	return texts
}

func firstKept(obstacles []Obstacle) string {
	for _, o := range obstacles {
		if o.Keeps {
			return o.Reason
		}
	}
	return ""
}

// sentences joins the first few, and the way out.
func sentences(texts []string, end string) string {
	const most = 4
	if left := len(texts) - most; left > 0 {
		texts = append(append([]string{}, texts[:most]...), fmt.Sprintf("and %d more", left))
	}
	if end != "" {
		texts = append(texts, end)
	}
	return strings.Join(texts, "; ")
}
