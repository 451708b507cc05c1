// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Fact is something that became true once: of a machine, node or host.
type Fact struct{ What, Name string }

// What a Timeline records.
const (
	NodeReady       = "node Ready"
	NodeGone        = "node gone"
	MachineDeleting = "machine deleting"
	// MachineDrained: the node of a machine in deletion is cordoned and has no pod that a drain would have to move. It is
	// read from the node itself: the machine's own conditions follow only after its host was already asked for.
	MachineDrained = "machine drained"
	MachineGone    = "machine gone"
	// HostCleaning is told of the host, and of the machine that had it.
	HostCleaning  = "host cleaning"
	HostAvailable = "host available again"
)

// Timeline records in which order things happen to a cluster's machines, nodes and hosts. It looks several times a
// second; each look reads effects before their causes, so that a cause is never recorded later than its effect.
type Timeline struct {
	cluster *Cluster
	stop    context.CancelFunc
	done    chan struct{}

	mu    sync.Mutex
	looks int
	seen  map[Fact]int
	order []Fact
	notes map[string]int
	alive map[Fact]bool
	last  error
	// kubelets by the UID of their Node, changes of them, and the mixes of versions that there were.
	kubelets map[string]string
	changes  []string
	mixes    []string
	// lives of the Machines, by name.
	lives map[string]*Life
	// staged is what each host had when nobody had it.
	staged map[string][]infrav1.StagedArtifacts
}

// Watch begins a timeline; Stop ends it.
func (c *Cluster) Watch(ctx context.Context) *Timeline {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t := newTimeline(c)
	t.stop = cancel
	go func() {
		defer close(t.done)
		for ctx.Err() == nil {
			err := t.look(ctx)
			t.mu.Lock()
			t.last = err
			t.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return t
}

func newTimeline(c *Cluster) *Timeline {
	return &Timeline{cluster: c, done: make(chan struct{}), seen: map[Fact]int{}, notes: map[string]int{},
		alive: map[Fact]bool{}, kubelets: map[string]string{}, lives: map[string]*Life{},
		staged: map[string][]infrav1.StagedArtifacts{}}
}

// Stop ends the timeline.
func (t *Timeline) Stop() {
	t.stop()
	<-t.done
}

// look reads everything once. The order of the reads matters; see Timeline.
func (t *Timeline) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before, nodesErr := t.cluster.Nodes(ctx)
	hosts := &infrav1.QuoinHostList{}
	if err := t.cluster.lab.Management.List(ctx, hosts, client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("hosts: %w", err)
	}
	machines, err := t.cluster.Machines(ctx)
	if err != nil {
		return err
	}
	infra := &infrav1.QuoinMachineList{}
	if err := t.cluster.lab.Management.List(ctx, infra, client.InNamespace(Namespace)); err != nil {
		return fmt.Errorf("QuoinMachines: %w", err)
	}
	// A look that could not see a cause must not note its effect either.
	drained, err := t.cluster.drained(ctx, machines)
	if err != nil {
		return err
	}
	// A node that is Ready is the cause of what happens to machines; one that is gone is the effect of it. So, twice.
	after, _ := t.cluster.Nodes(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks++
	if nodesErr == nil {
		t.goneUnless(NodeReady, NodeGone, names(before, func(n Node) string { return n.Name }))
		t.versions(t.cluster.byRole(before))
	}
	for _, host := range hosts.Items {
		switch host.Status.State {
		case infrav1.HostStateCleaning:
			t.saw(Fact{HostCleaning, host.Name})
			if ref := host.Spec.ConsumerRef; ref != nil {
				t.saw(Fact{HostCleaning, ref.Machine})
			}
		case infrav1.HostStateAvailable:
			if _, cleaned := t.seen[Fact{HostCleaning, host.Name}]; cleaned {
				t.saw(Fact{HostAvailable, host.Name})
			}
		}
	}
	t.machines(machines)
	t.live(time.Now(), machines, infra.Items, after, hosts.Items, drained)
	for _, machine := range drained {
		t.saw(Fact{MachineDrained, machine})
	}
	for _, node := range after {
		if node.Ready {
			t.alive[Fact{NodeReady, node.Name}] = true
			t.saw(Fact{NodeReady, node.Name})
		}
	}
	return nodesErr
}

// live notes when something is seen first. What an object says about the time goes before that of the look.
func (t *Timeline) live(
	now time.Time, machines []clusterv1.Machine, infra []infrav1.QuoinMachine, nodes []Node, hosts []infrav1.QuoinHost,
	drained []string,
) {
	first := func(at *time.Time, since time.Time) {
		if at.IsZero() {
			*at = since
		}
	}
	since := func(at *time.Time, all []metav1.Condition, kind string) {
		if of := meta.FindStatusCondition(all, kind); of != nil && of.Status == metav1.ConditionTrue {
			first(at, of.LastTransitionTime.Time)
		}
	}
	for _, host := range hosts {
		if host.Spec.ConsumerRef == nil {
			t.staged[host.Name] = host.Status.Staged
		}
	}
	for _, machine := range machines {
		life := t.lives[machine.Name]
		if life == nil {
			life = &Life{Name: machine.Name, Created: machine.CreationTimestamp.Time}
			t.lives[machine.Name] = life
		}
		// quoin://namespace/host/claim
		if parts := strings.Split(machine.Spec.ProviderID, "/"); len(parts) == 5 && life.Host == "" {
			life.Host, life.Claim = parts[3], parts[4]
			life.Staged = slices.ContainsFunc(t.staged[life.Host], func(of infrav1.StagedArtifacts) bool {
				return of.Version == machine.Spec.Version
			})
		}
		since(&life.Votes, machine.Status.Conditions, controlplanev1.MachineEtcdMemberHealthyCondition)
		since(&life.Available, machine.Status.Conditions, clusterv1.AvailableCondition)
		if !machine.DeletionTimestamp.IsZero() {
			life.Deleting = machine.DeletionTimestamp.Time
		}
		for _, of := range infra {
			if of.Name != machine.Spec.InfrastructureRef.Name {
				continue
			}
			since(&life.Claimed, of.Status.Conditions, infrav1.MachineHostClaimedCondition)
			if !life.Deleting.IsZero() {
				since(&life.Drainable, of.Status.Conditions, infrav1.MachineDrainableCondition)
				since(&life.Drained, of.Status.Conditions, infrav1.MachineDrainedCondition)
				since(&life.Terminable, of.Status.Conditions, infrav1.MachineTerminableCondition)
			}
		}
		for _, node := range nodes {
			if node.Ready && node.ProviderID == machine.Spec.ProviderID {
				first(&life.NodeReady, node.ReadySince)
			}
		}
	}
	for name, life := range t.lives {
		if slices.Contains(drained, name) {
			first(&life.Empty, now)
		}
		if !slices.ContainsFunc(machines, func(of clusterv1.Machine) bool { return of.Name == name }) {
			first(&life.Gone, now)
		}
		for _, host := range hosts {
			switch ref := host.Spec.ConsumerRef; {
			case host.Name != life.Host:
			case host.Status.State == infrav1.HostStateCleaning && ref != nil && ref.Machine == name:
				first(&life.Cleaning, now)
			// One that others wait for may have the next Machine before anybody sees that it is free.
			case !life.Cleaning.IsZero() &&
				(host.Status.State == infrav1.HostStateAvailable || ref != nil && ref.Machine != name):
				first(&life.Free, now)
			}
		}
	}
}

// Lives are those of the Machines that there were, the oldest first.
func (t *Timeline) Lives() []Life {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Life
	for _, life := range t.lives {
		all = append(all, *life)
	}
	slices.SortFunc(all, func(a, b Life) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return all
}

func (t *Timeline) machines(machines []clusterv1.Machine) {
	t.goneUnless("machine", MachineGone, names(machines, func(m clusterv1.Machine) string { return m.Name }))
	for _, machine := range machines {
		t.alive[Fact{"machine", machine.Name}] = true
		if machine.DeletionTimestamp.IsZero() {
			continue
		}
		t.saw(Fact{MachineDeleting, machine.Name})
		if condition := meta.FindStatusCondition(machine.Status.Conditions, clusterv1.MachineDeletingCondition); condition != nil {
			t.notes[machine.Name+": "+condition.Reason+": "+strings.Join(strings.Fields(condition.Message), " ")]++
		}
	}
}

// versions notes which kubelets there are together, and any that is another one than its Node had before.
func (t *Timeline) versions(nodes []Node) {
	var planes, workers []string
	for _, node := range nodes {
		of := &workers
		if node.ControlPlane {
			of = &planes
		}
		*of = append(*of, node.Kubelet)
		if had, known := t.kubelets[node.UID]; known && had != node.Kubelet {
			t.changes = append(t.changes, fmt.Sprintf("node %s: %s -> %s", node.Name, had, node.Kubelet))
		}
		t.kubelets[node.UID] = node.Kubelet
	}
	distinct := func(all []string) string {
		slices.Sort(all)
		return strings.Join(slices.Compact(all), ", ")
	}
	mix := fmt.Sprintf("control plane %s; workers %s", distinct(planes), distinct(workers))
	if len(t.mixes) == 0 || t.mixes[len(t.mixes)-1] != mix {
		t.mixes = append(t.mixes, mix)
	}
}

// byRole tells control-plane nodes by their hosts: a kubelet registers its Node some time before kubeadm labels it.
func (c *Cluster) byRole(nodes []Node) []Node {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if host, err := c.lab.Host(nodes[i].Name); err == nil {
			nodes[i].ControlPlane = host.Labels[RoleLabel] == "control-plane"
		}
	}
	return nodes
}

// Mixes are the versions of kubelets that there were together, one after another.
func (t *Timeline) Mixes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.mixes)
}

// KubeletChanges are the Nodes whose kubelet became another one while they lived.
func (t *Timeline) KubeletChanges() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.changes)
}

// Names are what a fact was seen of, in order.
func (t *Timeline) Names(what string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for _, fact := range t.order {
		if fact.What == what {
			all = append(all, fact.Name)
		}
	}
	return all
}

func names[T any](items []T, name func(T) string) []string {
	var all []string
	for _, item := range items {
		all = append(all, name(item))
	}
	return all
}

// goneUnless records the end of what was alive and is no longer present.
func (t *Timeline) goneUnless(kind, gone string, present []string) {
	for fact, alive := range t.alive {
		if alive && fact.What == kind && !slices.Contains(present, fact.Name) {
			t.alive[fact] = false
			t.saw(Fact{gone, fact.Name})
		}
	}
}

func (t *Timeline) saw(fact Fact) {
	if _, seen := t.seen[fact]; !seen {
		t.seen[fact] = t.looks
		t.order = append(t.order, fact)
	}
}

// Before says why cause cannot be said to have come before effect, or nothing when it did.
func (t *Timeline) Before(cause, effect Fact) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, sawCause := t.seen[cause]
	second, sawEffect := t.seen[effect]
	switch {
	case !sawCause:
		return fmt.Errorf("%s (%s) was never seen; what was:\n%s", cause.What, cause.Name, t.text())
	case !sawEffect:
		return fmt.Errorf("%s (%s) was never seen; what was:\n%s", effect.What, effect.Name, t.text())
	case first > second:
		return fmt.Errorf("%s (%s) came after %s (%s):\n%s", cause.What, cause.Name, effect.What, effect.Name, t.text())
	}
	return nil
}

// Noted tells whether a deleting machine's condition ever held all of the words.
func (t *Timeline) Noted(words ...string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for note := range t.notes {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(note, word) }) {
			return true
		}
	}
	return false
}

// String is the order of events, for a log.
func (t *Timeline) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text()
}

func (t *Timeline) text() string {
	var text strings.Builder
	for _, fact := range t.order {
		_, _ = fmt.Fprintf(&text, "  look %4d  %-22s %s\n", t.seen[fact], fact.What, fact.Name)
	}
	for note, times := range t.notes {
		_, _ = fmt.Fprintf(&text, "  %4d times  %s\n", times, note)
	}
	if t.last != nil {
		_, _ = fmt.Fprintf(&text, "  the last look failed: %v\n", t.last)
	}
	return text.String()
}
