// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// Proves: S0-65, S0-66, S0-68
//
// A cluster with a worker is moved by clusterctl's own mover, works on there, and is pivoted back by one command.
// Nobody labels anything by hand, and no host is changed before somebody edits something, but for the record of who may
// change it.
func TestAClusterMovesAndGoesOn(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "moves", replicas: 1, hosts: 5, strategy: surge, admission: true})
	court.untilWhole("coming up")
	court.addWorker()
	first, firstSite := court.plane, court.site
	second := secondPlane(t)
	secondSite := court.newSite(second)

	judge, writer := court.watchMembers(1), court.write()
	court.moveTo(g, second, secondSite, court.moveBy)
	court.roll("an upgrade where it was moved to")
	court.moveTo(g, first, firstSite, court.pivotBy)
	judge.end()
	court.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Replicas = ptr.To[int32](3) })
	court.untilWhole("three replicas where it came from")
	writer.end()
}

// Proves: S0-65, S0-68
//
// A namespace of any size is pivoted there and back, with a worker whose deletion a hook holds and hosts that nobody
// has: free, in maintenance, in quarantine. Owners are those of before, and no host is changed or asked to do more than
// show what it has: the worker is deleted again, and held. While a Machine was made ahead, the pivot refuses and
// touches nothing.
func TestAPivotOfAnySize(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int32{1, 3, 5} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			if replicas != 3 {
				needsTime(t)
			}
			t.Parallel()
			g := NewWithT(t)
			court := newCourt(t, courtOptions{name: fmt.Sprintf("sized-%d", replicas), replicas: replicas,
				hosts: int(replicas) + 4, strategy: surge, admission: true, workers: true})
			court.untilWhole("coming up")
			hold := court.holdWorker
			if replicas == 3 {
				hold = court.holdPool
			}
			untilHeld := hold(g)
			court.spareHosts(g)

			first, firstSite := court.plane, court.site
			second := secondPlane(t)
			secondSite := court.newSite(second)
			court.refusesAhead(g, second)
			owners := court.owners(g)
			court.moveTo(g, second, secondSite, court.pivotBy)
			untilHeld()
			g.Expect(cmp.Diff(owners, court.owners(g))).To(BeEmpty())
			court.moveTo(g, first, firstSite, court.pivotBy)
			untilHeld()
			g.Expect(cmp.Diff(owners, court.owners(g))).To(BeEmpty())
		})
	}
}

// holdWorker deletes a worker of no pool, and has a person's hook hold that.
func (c *court) holdWorker(g *WithT) (untilHeld func()) {
	c.t.Helper()
	c.addWorker()
	worker := c.guardedMachine("worker")
	before := client.MergeFrom(worker.DeepCopy())
	worker.Annotations = map[string]string{clusterv1.PreDrainDeleteHookAnnotationPrefix + "/person": ""}
	g.Expect(c.plane.Client.Patch(c.t.Context(), worker, before)).To(Succeed())
	g.Expect(c.plane.Client.Delete(c.t.Context(), worker)).To(Succeed())
	untilHeld = func() { c.untilHeld("worker") }
	untilHeld()
	return untilHeld
}

// holdPool deletes the only Machine of a pool, in whose place another one is made first, and which our hook holds: a
// budget keeps a pod on its Node for longer than Cluster API drains it.
func (c *court) holdPool(g *WithT) (untilHeld func()) {
	c.t.Helper()
	c.addPolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.Drain.TimeoutSeconds = ptr.To[int32](1) })
	c.addPool("amber", 1)
	c.until("amber", func() string { return c.lacksPool("amber", time.Time{}, 1) })
	c.patchPool("amber", `{"spec":{"template":{"spec":{"deletion":{"nodeDrainTimeoutSeconds":1}}}}}`)
	var name string
	c.until("hooks of amber", func() string {
		machines, _ := c.workers("amber", time.Now().Add(time.Hour))
		name = machines[0].Name
		_, hooked := machines[0].Annotations[quoinv1.RolloutPreTerminateHookAnnotation]
		if !hooked || ptr.Deref(machines[0].Spec.Deletion.NodeDrainTimeoutSeconds, 0) != 1 {
			return fmt.Sprintf("it has %v, %+v", machines[0].Annotations, machines[0].Spec.Deletion)
		}
		return ""
	})
	c.runGuarded("db", c.guardedMachine(name).Status.NodeRef.Name)
	g.Expect(c.plane.Client.Delete(c.t.Context(), c.guardedMachine(name))).To(Succeed())
	untilHeld = func() {
		c.untilHeld(name)
		c.until("our hook, and another Machine in its place", func() string {
			all, _ := c.workers("amber", time.Now().Add(time.Hour))
			held := c.guardedMachine(name)
			if held.Status.Deletion == nil || held.Status.Deletion.WaitForPreTerminateHookStartTime.IsZero() ||
				held.Status.Deletion.NodeDrainStartTime.IsZero() || len(all) != 2 {
				return c.describeWorkers()
			}
			for _, machine := range all {
				if machine.Name != name && (!machine.DeletionTimestamp.IsZero() ||
					!conditions.IsTrue(&machine, clusterv1.MachineAvailableCondition)) {
					return c.describeWorkers()
				}
			}
			return ""
		})
	}
	untilHeld()
	return untilHeld
}

// untilHeld waits until a Machine is being deleted, and that is written down for a move.
func (c *court) untilHeld(name string) {
	c.t.Helper()
	c.until("a deletion that is held", func() string {
		machine := c.guardedMachine(name)
		if machine.DeletionTimestamp.IsZero() || machine.Annotations[infrav1.DeletionAnnotation] != string(machine.UID) {
			return fmt.Sprintf("deleted %s, %v", machine.DeletionTimestamp, machine.Annotations)
		}
		return ""
	})
}

// refusesAhead has a pivot refuse a Machine that was made ahead. Nothing is paused or marked for its sake.
func (c *court) refusesAhead(g *WithT, to *plane.Plane) {
	c.t.Helper()
	c.makeWorker("ahead", map[string]string{infrav1.HoldClaimAnnotation: ""})
	site := &infrav1.QuoinCluster{}
	c.until("an obstacle", func() string {
		g.Expect(c.plane.Client.Get(c.t.Context(), c.key, site)).To(Succeed())
		message := conditions.GetMessage(site, infrav1.ClusterMovableCondition)
		if !strings.Contains(message, "ahead was made ahead") {
			return message
		}
		return ""
	})
	g.Expect(c.pivotBy(c.t.Context(), c.plane, to)).To(And(MatchError(execute.ErrRefused),
		MatchError(ContainSubstring("Machine ahead was made ahead and has no node"))))
	for _, side := range []*plane.Plane{c.plane, to} {
		g.Expect(apierrors.IsNotFound(side.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.options.name,
			Name: execute.JournalName}, &corev1.ConfigMap{}))).To(BeTrue())
	}
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &corev1.SecretList{}, &infrav1.QuoinHostList{}} {
		g.Expect(to.Client.List(c.t.Context(), list, client.InNamespace(c.options.name))).To(Succeed())
		g.Expect(itemsOf(g, list)).To(BeEmpty(), "%T", list)
	}
	cluster := &clusterv1.Cluster{}
	g.Expect(c.plane.Client.Get(c.t.Context(), c.key, cluster)).To(Succeed())
	g.Expect(ptr.Deref(cluster.Spec.Paused, false)).To(BeFalse())
	ahead := c.guardedMachine("ahead")
	g.Expect(c.plane.Client.Delete(c.t.Context(), ahead)).To(Succeed())
	c.until("its end", func() string {
		if err := c.plane.Client.Get(c.t.Context(), client.ObjectKeyFromObject(ahead), ahead); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v %v", err, ahead.Finalizers)
		}
		return ""
	})
	// Nobody collects the garbage here.
	g.Expect(c.plane.Client.Delete(c.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.options.name, Name: "ahead"}})).To(Succeed())
	c.until("the obstacle's end", c.lacksMovable)
}

// spareHosts has one of the free hosts in maintenance, and one more in quarantine.
func (c *court) spareHosts(g *WithT) {
	c.t.Helper()
	hosts := c.quoinHosts(c.plane)
	at := slices.IndexFunc(hosts, func(host infrav1.QuoinHost) bool { return host.Spec.ConsumerRef == nil })
	resting := hosts[at].DeepCopy()
	resting.Spec.Maintenance = &infrav1.Maintenance{Reason: "new fans"}
	g.Expect(c.plane.Client.Patch(c.t.Context(), resting, client.MergeFrom(&hosts[at]))).To(Succeed())
	dirty, err := c.fleet.Add(c.options.name + "-dirty")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(dirty.Machine.FS().WriteFile("/etc/kubernetes/admin.conf",
		machine.File{Mode: 0o600, Content: []byte("of another cluster")})).To(Succeed())
	c.create(quoinHost(dirty, c.options.name))
	c.hosts = append(c.hosts, dirty)
	c.until("a host in quarantine", func() string {
		for _, host := range c.quoinHosts(c.plane) {
			if host.Status.State == infrav1.HostStateQuarantined {
				return ""
			}
		}
		return "none is"
	})
}

// owners is clusterctl's graph of owners, an edge each, without what a move makes anew.
func (c *court) owners(g *WithT) (edges []string) {
	c.t.Helper()
	graph, err := cluster.GetOwnerGraph(c.t.Context(), c.options.name, c.plane.Kubeconfig(),
		func(o unstructured.Unstructured) bool { return o.GetName() != execute.JournalName })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(graph)).To(BeNumerically(">", 10))
	for _, node := range graph {
		edges = append(edges, node.Object.Kind+" "+node.Object.Name)
		for _, owner := range node.Owners {
			edges = append(edges, fmt.Sprintf("%s %s of %s %s %s, controller %v, blocks %v", node.Object.Kind, node.Object.Name,
				owner.APIVersion, owner.Kind, owner.Name, ptr.Deref(owner.Controller, false),
				ptr.Deref(owner.BlockOwnerDeletion, false)))
		}
	}
	slices.Sort(edges)
	return edges
}

// firstDeletion kills the mover before it deletes its first object.
func firstDeletion(_ int, what string) error {
	return killedIf(strings.HasPrefix(what, "source") && !strings.HasSuffix(what, "patch Cluster c"))
}

func killedIf(now bool) error {
	if now {
		return plane.ErrMoverKilled
	}
	return nil
}

// A mover dies before it deletes anything, and somebody lets the copy go on, which takes the host over. The move is
// then run again as docs/move.md says: what belongs to the Cluster is paused, the Cluster not, and what was moved is
// resumed.
func TestAMoveThatDiedIsRunAgain(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "again", replicas: 1, hosts: 2, strategy: surge, admission: true})
	court.untilWhole("coming up")
	first, second := court.plane, secondPlane(t)
	secondSite := court.newSite(second)
	run := func(before func(int, string) error) error {
		return (&plane.Move{From: first, To: second, Namespace: court.options.name, Before: before}).Run(t.Context())
	}
	g.Expect(run(firstDeletion)).To(MatchError(plane.ErrMoverKilled))
	g.Expect(run(nil)).To(MatchError(ContainSubstring("paused")), "clusterctl moves nothing that is paused")
	court.asWritten(first, second, "resume-target")
	court.plane, court.site = second, secondSite
	court.until("taking over", func() string { return court.lacksGeneration(2) })

	court.asWritten(first, second, "pause-children")
	g.Expect(run(nil)).To(Succeed())
	g.Expect(court.quoinHosts(first)).To(BeEmpty())
	court.asWritten(first, second, "resume-children")
	court.untilWhole("being resumed")
	court.until("holding its hosts", func() string { return court.lacksGeneration(2) })
	court.roll("an upgrade after the second attempt")
}

// A mover dies in the middle of the deletion of the source. It is finished as docs/move.md says, and the target
// resumed.
func TestAMoveThatDiedWhileItDeletedIsFinished(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "finished", replicas: 1, hosts: 2, strategy: surge, admission: true})
	court.untilWhole("coming up")
	first, second := court.plane, secondPlane(t)
	secondSite := court.newSite(second)
	deletions := 0
	move := &plane.Move{From: first, To: second, Namespace: court.options.name, Before: func(_ int, what string) error {
		if strings.HasPrefix(what, "source delete") {
			deletions++
		}
		// The object is marked, and some are gone.
		return killedIf(deletions > 5)
	}}
	g.Expect(move.Run(t.Context())).To(MatchError(plane.ErrMoverKilled))
	trees := court.trees()
	court.asWritten(first, second, "look", "finish-deletion", "resume-target", "after")
	g.Expect(court.quoinHosts(first)).To(BeEmpty())
	court.plane, court.site = second, secondSite
	court.until("taking over", func() string { return court.lacksGeneration(2) })
	court.untilWhole("being resumed")
	g.Expect(court.changedSince(trees)).To(BeEmpty(), "no host was changed")
	court.roll("an upgrade after the move")
}

// asWritten runs commands of docs/move.md, each of which is marked there with its name.
func (c *court) asWritten(source, target *plane.Plane, names ...string) {
	c.t.Helper()
	asWritten(c.t, source, target, c.options.name, c.key.Name, names...)
}

func asWritten(t testing.TB, source, target *plane.Plane, namespace, cluster string, names ...string) {
	t.Helper()
	document, err := os.ReadFile(filepath.Join(source.Root(), "docs", "move.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := "set -o errexit -o pipefail -o nounset\n"
	for _, name := range append([]string{"names"}, names...) {
		_, after, found := strings.Cut(string(document), "<!-- tried: "+name+" -->\n```sh\n")
		commands, _, ended := strings.Cut(after, "```")
		if !found || !ended {
			t.Fatalf("docs/move.md has no commands with the name %s", name)
		}
		script += commands
	}
	script = strings.NewReplacer("source.kubeconfig", source.Kubeconfig(), "target.kubeconfig", target.Kubeconfig(),
		"my-namespace", namespace, "my-cluster", cluster).Replace(script)
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+os.Getenv(rig.AssetsVariable)+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	t.Logf("%s:\n%s", strings.Join(names, ", "), output)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(names, ", "), err)
	}
}

// lacksGeneration says which host that somebody has was not taken over in this generation by the plane that has its
// object.
func (c *court) lacksGeneration(generation int64) string {
	for _, host := range c.quoinHosts(c.plane) {
		if host.Spec.ConsumerRef == nil {
			continue
		}
		if host.Spec.ClaimGeneration != generation || host.Spec.ManagedBy != string(host.UID) ||
			c.record(host.Name).Generation != generation {
			return fmt.Sprintf("%s: generation %d, managed by %s (%s is ours), the host says %+v",
				host.Name, host.Spec.ClaimGeneration, host.Spec.ManagedBy, host.UID, c.record(host.Name))
		}
	}
	return ""
}

// moveBy moves with clusterctl's mover alone.
func (c *court) moveBy(ctx context.Context, from, to *plane.Plane) error {
	return (&plane.Move{From: from, To: to, Namespace: c.options.name}).Run(ctx)
}

// pivotBy moves as `clusterctl quoin pivot` does.
func (c *court) pivotBy(ctx context.Context, from, to *plane.Plane) error {
	sides := map[string]*execute.Side{}
	for name, p := range map[string]*plane.Plane{"source": from, "target": to} {
		if err := p.Inventory(ctx); err != nil {
			return err
		}
		side, err := execute.Connect(ctx, name, cluster.Kubeconfig{Path: p.Kubeconfig()}, nil)
		if err != nil {
			return err
		}
		sides[name] = side
	}
	pivoted := &execute.Pivot{Source: sides["source"], Target: sides["target"], Namespace: c.options.name,
		Local: nowhere{}, Report: c.t.Logf}
	return pivoted.Run(ctx, pivot.Wish{})
}

// nowhere is a workspace that is lost: the journals of both sides suffice.
type nowhere struct{}

func (nowhere) Load() (*pivot.Journal, error) { return nil, nil }
func (nowhere) Save(*pivot.Journal) error     { return nil }

// moveTo moves the court's objects, and waits until the other plane has taken all of them over.
func (c *court) moveTo(
	g *WithT, to *plane.Plane, site *plane.Site, move func(ctx context.Context, from, to *plane.Plane) error,
) {
	c.t.Helper()
	ctx := c.t.Context()
	from := c.plane
	c.until("nothing that is left to do in the cluster", c.strayNode)
	c.until("hosts that were let go", c.returning)
	c.until("being movable", c.lacksMovable)
	was := map[string]infrav1.QuoinHost{}
	for _, host := range c.quoinHosts(from) {
		was[host.Name] = host
	}
	machines, members := c.identities()
	trees, changing := c.trees(), c.changing()

	begin := time.Now()
	g.Expect(move(ctx, from, to)).To(Succeed())
	c.t.Logf("the mover took %s", time.Since(begin).Round(time.Millisecond))
	c.plane, c.site = to, site

	// Nothing is left that a stale plane could act on.
	g.Expect(c.quoinHosts(from)).To(BeEmpty())
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &clusterv1.MachineList{},
		&infrav1.QuoinMachineList{}, &controlplanev1.QuoinControlPlaneList{}} {
		g.Expect(from.Client.List(ctx, list, client.InNamespace(c.options.name))).To(Succeed())
		g.Expect(itemsOf(g, list)).To(BeEmpty(), "%T", list)
	}
	// Nobody collects the garbage here: the bootstrap data of Machines that were replaced stay.
	g.Expect(apierrors.IsNotFound(from.Client.Get(ctx, client.ObjectKey{Namespace: c.options.name, Name: "ssh"},
		&corev1.Secret{}))).To(BeTrue())
	c.until("taking over", func() string {
		for _, host := range c.quoinHosts(to) {
			before := was[host.Name]
			if host.Spec.ConsumerRef != nil {
				if host.Spec.ClaimGeneration != before.Spec.ClaimGeneration+1 {
					return fmt.Sprintf("%s has generation %d", host.Name, host.Spec.ClaimGeneration)
				}
				if record := c.record(host.Name); record.Generation != host.Spec.ClaimGeneration {
					return fmt.Sprintf("%s heard of generation %d", host.Name, record.Generation)
				}
			}
			if host.Status.State != before.Status.State ||
				conditions.IsTrue(&host, infrav1.HostReadyCondition) != conditions.IsTrue(&before, infrav1.HostReadyCondition) {
				return fmt.Sprintf("%s is %s: %s", host.Name, host.Status.State,
					conditions.GetMessage(&host, infrav1.HostReadyCondition))
			}
		}
		return c.lacksWorkers()
	})
	c.untilWhole("being whole after the move")
	g.Expect(c.quoinHosts(to)).To(HaveLen(len(was)))

	// Looked at for a while, and left as it is.
	time.Sleep(5 * time.Second)
	c.untilWhole("being left as it is")
	_, membersNow := c.identities()
	g.Expect(membersNow).To(Equal(members))
	g.Expect(c.machines()).To(HaveLen(len(machines)))
	g.Expect(c.changedSince(trees)).To(BeEmpty(), "a move changes no host")
	g.Expect(changing()).To(BeEmpty(), "programs that could change a host, though the move is over")
}

// strayNode names a Node whose Machine is gone: Cluster API gives its deletion up after a few seconds, and Quoin deletes
// it once its kubelet is known to have stopped, for which a host of the control plane is held.
func (c *court) strayNode() string {
	machines := &clusterv1.MachineList{}
	if err := c.plane.Client.List(c.t.Context(), machines, client.InNamespace(c.options.name)); err != nil {
		return err.Error()
	}
	names := sets.New[string]()
	for _, machine := range machines.Items {
		names.Insert(machine.Status.NodeRef.Name)
	}
	workload, err := c.workload(30 * time.Second)
	if err != nil {
		return err.Error()
	}
	nodes, err := workload.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for i := range nodes.Items {
		if node := nodes.Items[i].Name; !names.Has(node) {
			return "Node " + node + " has no Machine any more"
		}
	}
	return ""
}

// lacksMovable says why a pivot of the court would be refused.
func (c *court) lacksMovable() string {
	site := &infrav1.QuoinCluster{}
	if err := c.plane.Client.Get(c.t.Context(), c.key, site); err != nil {
		return err.Error()
	}
	return lacksMovable(site)
}

// lacksMovable says what a Cluster shows that refuses a pivot. It is written up to five seconds after what it is about,
// and a Machine that is being deleted refuses none.
func lacksMovable(site *infrav1.QuoinCluster) string {
	movable := conditions.Get(site, infrav1.ClusterMovableCondition)
	if movable == nil || movable.Status != metav1.ConditionTrue && movable.Reason != moving.DeletionInFlight {
		return fmt.Sprintf("%+v", movable)
	}
	return ""
}

// returning says which host was let go by its Machine, and does not say yet that it is free.
func (c *court) returning() string {
	for _, host := range c.quoinHosts(c.plane) {
		switch host.Status.State {
		case infrav1.HostStateClaimed, infrav1.HostStateProvisioning, infrav1.HostStateProvisioned, infrav1.HostStateCleaning,
			infrav1.HostStateInspecting:
			if host.Spec.ConsumerRef == nil {
				return fmt.Sprintf("%s is %s", host.Name, host.Status.State)
			}
		}
	}
	return ""
}

// shows are programs that only show what a host has, and ownerRecorded what keeps the record of who may change it.
var (
	shows = regexp.MustCompile(`^((/bin/)?sh -c |timeout |(awk|blkid|cat|cut|find|flock|grep|head|id|ip6?tables-save|ls|` +
		`lsblk|nproc|readlink|sed|sha256sum|sort|stat|sync|tail|tr|uname|wc)( |$)|(hostname|date \+%s(\.%N)?|` +
		`containerd --version|/usr/sbin/sshd -T)$|ip (-\S+ )*(address|link|route|rule) (show|list)|` +
		`ctr (-n \S+ )?(version|\S+ ls)|systemctl (show|is-active|is-enabled|list-\S+) )`)
	changes       = regexp.MustCompile(` (-i|-delete|-exec\S*) `)
	ownerRecorded = regexp.MustCompile(`^(mkdir -p /var/lib/quoin|chmod 0700 /var/lib/quoin|` +
		`mv -fT /var/lib/quoin/owner\.json\.part /var/lib/quoin/owner\.json)$`)
)

// changing lists which programs hosts start from now on, until what it returns is called, that could change them.
func (c *court) changing() (until func() []string) {
	var mu sync.Mutex
	over, found := false, sets.New[string]()
	for _, host := range c.hosts {
		host.Machine.OnProcess(func(e machine.Event) {
			program := strings.ReplaceAll(strings.Join(e.Args, " "), " -exec cat {} +", "") // which shows what was found
			if shows.MatchString(program) && !changes.MatchString(program) || ownerRecorded.MatchString(program) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !over {
				found.Insert(host.Name + ": " + program)
			}
		})
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		over = true
		return sets.List(found)
	}
}

func (c *court) quoinHosts(on *plane.Plane) []infrav1.QuoinHost {
	list := &infrav1.QuoinHostList{}
	if err := on.Client.List(context.Background(), list, client.InNamespace(c.options.name)); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

func itemsOf(g *WithT, list client.ObjectList) []string {
	var names []string
	g.Expect(meta.EachListItem(list, func(o runtime.Object) error {
		names = append(names, o.(client.Object).GetName())
		return nil
	})).To(Succeed())
	return names
}

// ownerRecord is where a host remembers who may change it.
const ownerRecord = "/var/lib/quoin/owner.json"

// record is what the host remembers of who may change it.
func (c *court) record(host string) owner.Record {
	record, err := owner.Parse(c.fleet.Host(host).Machine.FS().Text(ownerRecord))
	if err != nil {
		c.t.Fatalf("%s: %v", host, err)
	}
	return *record
}

// trees are the files of all hosts once their kubelets wrote theirs, but for the record of their owner and the data of
// what runs there.
func (c *court) trees() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, host := range c.hosts {
		if host.Machine.FS().Text("/etc/kubernetes/kubelet.conf") != "" {
			settled(c.t, host)
		}
		all[host.Name] = host.Tree(ownerRecord, "/var/lib/etcd")
	}
	return all
}

// changedSince are the paths at which hosts have something else than in their trees of then.
func (c *court) changedSince(then map[string]map[string]string) []string {
	var paths []string
	for name, tree := range c.trees() {
		for _, path := range differing(then[name], tree) {
			paths = append(paths, name+" "+path)
		}
	}
	return paths
}

// addWorker makes a Machine outside of the control plane, and waits for its Node.
func (c *court) addWorker() {
	c.t.Helper()
	c.makeWorker("worker", nil)
	c.until("a worker", c.lacksWorkers)
}

func (c *court) makeWorker(name string, annotations map[string]string) {
	c.t.Helper()
	of := metav1.ObjectMeta{Namespace: c.options.name, Name: name, Annotations: annotations,
		Labels: map[string]string{clusterv1.ClusterNameLabel: c.key.Name}}
	c.create(
		&bootstrapv1.KubeadmConfig{ObjectMeta: *of.DeepCopy(),
			Spec: bootstrapv1.KubeadmConfigSpec{JoinConfiguration: bootstrapv1.JoinConfiguration{
				NodeRegistration: bootstrapv1.NodeRegistrationOptions{Name: "{{ ds.meta_data.local_hostname }}"},
			}}},
		&infrav1.QuoinMachine{ObjectMeta: *of.DeepCopy(), Spec: infrav1.QuoinMachineSpec{
			Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
		}},
		&clusterv1.Machine{ObjectMeta: of, Spec: clusterv1.MachineSpec{
			ClusterName: c.key.Name, Version: before,
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: of.Name}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
				Kind: "QuoinMachine", Name: of.Name},
		}},
	)
}

// lacksWorkers says which worker has no Node yet.
func (c *court) lacksWorkers() string {
	list := &clusterv1.MachineList{}
	if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name)); err != nil {
		return err.Error()
	}
	for i := range list.Items {
		if machine := &list.Items[i]; !machine.Status.NodeRef.IsDefined() {
			return fmt.Sprintf("%s has no Node: %+v", machine.Name, machine.Status.Conditions)
		}
	}
	return ""
}

// kubectl delete namespace takes everything at once. The keys stay until the last host is clean.
func TestANamespaceEndsWithItsHostsClean(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "ends", replicas: 1, hosts: 3, admission: true})
	court.untilWhole("coming up")
	court.addWorker()
	kinds := []client.Object{
		&corev1.Secret{}, &infrav1.QuoinHost{}, &infrav1.QuoinMachine{}, &infrav1.QuoinMachineTemplate{},
		&infrav1.QuoinCluster{}, &bootstrapv1.KubeadmConfig{}, &controlplanev1.QuoinControlPlane{}, &clusterv1.Machine{},
		&clusterv1.Cluster{}, &corev1.ConfigMap{},
	}
	g.Expect(court.plane.Client.Delete(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ends"}})).To(Succeed())
	court.until("the end of the namespace", func() string {
		// As the controller of namespaces does, which does not run here.
		for _, kind := range kinds {
			if err := court.plane.Client.DeleteAllOf(t.Context(), kind, client.InNamespace("ends")); err != nil &&
				!apierrors.IsInternalError(err) {
				return fmt.Sprintf("deleting %T: %v", kind, err)
			}
		}
		var left []string
		for _, list := range []client.ObjectList{&corev1.SecretList{}, &infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{},
			&infrav1.QuoinClusterList{}, &bootstrapv1.KubeadmConfigList{}, &controlplanev1.QuoinControlPlaneList{},
			&clusterv1.MachineList{}, &clusterv1.ClusterList{}} {
			if err := court.plane.Client.List(t.Context(), list, client.InNamespace("ends")); err != nil {
				return err.Error()
			}
			_ = meta.EachListItem(list, func(o runtime.Object) error {
				object := o.(client.Object)
				left = append(left, fmt.Sprintf("%T %s %v", o, object.GetName(), object.GetFinalizers()))
				return nil
			})
		}
		return strings.Join(left, ", ")
	})
	for _, host := range court.hosts {
		g.Expect(clean(host)).To(BeEmpty(), host.Name)
		if host.Machine.FS().Text(ownerRecord) != "" {
			g.Expect(ptr.To(court.record(host.Name)).Released()).To(BeTrue(), host.Name)
		}
	}
}

// clean lists what is left of Kubernetes on a host.
func clean(host *sim.Host) []string {
	var left []string
	for name := range host.Tree() {
		for _, prefix := range []string{"/etc/kubernetes/", "/var/lib/kubelet/", "/var/lib/etcd/"} {
			if strings.HasPrefix(name, prefix) {
				left = append(left, name)
			}
		}
	}
	slices.Sort(left)
	return left
}
