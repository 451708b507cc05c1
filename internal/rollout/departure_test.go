// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// departure is a model of what Cluster API 1.14 does to a Machine that is being deleted
// (core/reconcilers/machine/machine_controller.go), and of the pods on its Node.
type departure struct {
	preDrain, preTerminate bool
	tainted, cordoned      bool
	excluded               bool
	unreachable, unread    bool
	// pods that are to be evicted; those that are protected are not, and those that hang never end.
	pods               int
	protected, hanging bool
	// volumes that are attached, and when pods were seen last that Cluster API does not evict any more.
	volumes int
	emptied time.Time
	// nodeDrainTimeout of the Machine; 0 is none.
	nodeDrainTimeout time.Duration
	asked            time.Time
	began, passed    time.Time
	// guarded says that its deletion waited for the policy at some time: one that somebody deletes before a first look is
	// Cluster API's alone.
	guarded bool
	// released is when Cluster API deleted the infrastructure, lost how many pods were on it that could have been drained.
	released time.Time
	lost     int
}

// podsEndAfter is how long a pod takes to end once it was asked to.
const podsEndAfter = 20 * time.Second

// walk has Cluster API look at the Machine once, and its kubelet end pods.
func (n *node) walk(now time.Time) {
	if n.pods > 0 && !n.asked.IsZero() && !n.hanging && !n.unreachable && now.Sub(n.asked) >= podsEndAfter {
		n.pods = 0
	}
	switch {
	case n.deleted.IsZero() || !n.released.IsZero():
		return
	case n.joined && n.preDrain:
		return
	case n.joined && n.passed.IsZero() && !n.excluded:
		if n.began.IsZero() {
			n.began = now
		}
		n.cordoned = true
		over := n.nodeDrainTimeout > 0 && now.Sub(n.began) >= n.nodeDrainTimeout
		if n.pods > 0 && !over {
			n.evict(now)
			if !n.unreachable {
				return
			}
		}
	}
	if n.preTerminate {
		if n.passed.IsZero() {
			n.passed = now
		}
		return
	}
	n.released = now
	if n.guarded && !n.unreachable && !n.excluded {
		n.lost = n.pods
	}
}

func (n *node) evict(now time.Time) {
	if !n.protected && n.asked.IsZero() {
		n.asked = now
	}
}

// left is for how long the host is being given up.
func (n *node) left(now time.Time) time.Duration {
	if !n.joined && !n.preTerminate {
		return now.Sub(n.deleted)
	}
	if n.released.IsZero() {
		return 0
	}
	return now.Sub(n.released)
}

func (n *node) departing() string {
	switch {
	case n.joined && n.preDrain:
		return "h"
	case n.preTerminate:
		return "d"
	}
	return "x"
}

// leave is what is known of it.
func (n *node) leave(f *fleet) Leave {
	l := Leave{PreDrain: n.preDrain, PreTerminate: n.preTerminate, Excluded: n.excluded, Began: n.began, Passed: n.passed,
		NodeName: n.name}
	l.Node = Node{Known: n.joined && !n.unread, Unreachable: n.unreachable, Unschedulable: n.cordoned, Marked: n.tainted,
		Listed: n.joined && !n.deleted.IsZero(), Volumes: slices.Repeat([]string{"prod/data"}, n.volumes)}
	if n.deleted.IsZero() {
		return l
	}
	if n.preDrain {
		l.Held = n.deleted
	}
	if n.pods > 0 && !n.passed.IsZero() {
		n.emptied = f.now
	}
	l.Node.Emptied = n.emptied
	for i := range n.pods {
		pod := Pod{Name: fmt.Sprintf("prod/%s-%c", n.name, 'a'+i), Owner: "StatefulSet db", Volumes: 1}
		if !n.asked.IsZero() {
			pod.Ends = n.asked.Add(podsEndAfter)
		}
		l.Node.Pods = append(l.Node.Pods, pod)
	}
	if n.pods > 0 && n.protected {
		l.Says = "Cannot evict pod as it would violate the pod's disruption budget: db: " + names(l.Node.Pods)
	}
	return l
}

// depart does what was decided about Machines that leave.
func (f *fleet) depart() []Decision {
	var done []Decision
	for _, d := range f.pools {
		if guards, _ := Guards(&f.policy, d.name, d.labels); guards {
			continue
		}
		for _, n := range d.machines {
			n.preDrain, n.preTerminate, n.tainted = false, false, false // as the controller does
		}
	}
	for _, d := range f.result.Leaves {
		n := f.pool(d.Pool).node(d.Machine)
		switch d.Action {
		case Guard:
			n.preDrain, n.preTerminate, n.guarded = true, true, true
			continue
		case Unguard:
			n.preDrain, n.preTerminate = false, false
		case Taint, Untaint:
			n.tainted = d.Action == Taint
		case Replace:
			f.pool(d.Pool).replace(n, f.now)
		case Drain:
			n.preDrain, n.cordoned = false, n.joined
		case Evict:
			n.evict(f.now)
			continue
		case DeletePods:
			n.asked = f.now
		case Skip:
			n.excluded = true
		case Terminate:
			n.preTerminate = false
		default:
			continue
		}
		done = append(done, d)
	}
	return done
}

// endangered is the first Machine whose host was given up with pods on it.
func (d *deployment) endangered() *node {
	i := slices.IndexFunc(d.machines, func(n *node) bool { return n.lost > 0 })
	if i < 0 {
		return nil
	}
	return d.machines[i]
}

// depicts what a script says of Machines that leave:
//
//	pods <pool> <n>                 that every Node runs, and a drain evicts
//	volumes <pool> <n>              that are attached to every Node
//	drainTimeout <pool> <duration>  nodeDrainTimeoutSeconds of every Machine
//	protect, loosen, hang, unreachable, unread, cordon, exclude, unhook <machine>
//	kubelet <pool> <version>        of Machines that are made from its template
//	nodes                           which are tainted or cordoned, and what their kubelets are
func (f *fleet) depicts(what string, words []string) (says string, known bool) {
	if what == "nodes" {
		return f.nodes(), true
	}
	if what == "kubelet" {
		of := f.pool(words[0])
		of.kubelets[of.template] = words[1]
		return "", true
	}
	if len(words) == 2 {
		for _, n := range f.pool(words[0]).machines {
			switch what {
			case "pods":
				n.pods, _ = strconv.Atoi(words[1])
			case "volumes":
				n.volumes, _ = strconv.Atoi(words[1])
			case "drainTimeout":
				n.nodeDrainTimeout, _ = time.ParseDuration(words[1])
			default:
				return "", false
			}
		}
		return "", true
	}
	if len(words) != 1 {
		return "", false
	}
	for _, d := range f.pools {
		if n := d.node(words[0]); n != nil {
			return "", n.is(what)
		}
	}
	return "", false
}

func (n *node) is(what string) bool {
	switch what {
	case "protect", "loosen":
		n.protected = what == "protect"
	case "hang":
		n.hanging = true
	case "unreachable":
		n.unreachable, n.ill = true, "NodeHealthy: kubelet stopped posting node status"
	case "unread":
		n.unread = true
	case "cordon":
		n.cordoned = true
	case "exclude":
		n.excluded = true
	case "refuse", "permit":
		n.undeletable = what == "refuse"
	case "unhook":
		n.preDrain, n.preTerminate = false, false
	default:
		return false
	}
	return true
}

// nodes says which are tainted or cordoned, and what their kubelets are.
func (f *fleet) nodes() string {
	var text strings.Builder
	for _, d := range f.pools {
		for _, n := range d.machines {
			kubelet := ""
			if is := d.kubelets[n.template]; is != "" && n.joined {
				kubelet = " " + is
			}
			if n.tainted || n.cordoned || kubelet != "" {
				fmt.Fprintf(&text, "%s%s%s%s\n", n.name, kubelet, map[bool]string{true: " tainted"}[n.tainted],
					map[bool]string{true: " cordoned"}[n.cordoned])
			}
		}
	}
	return text.String()
}
