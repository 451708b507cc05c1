// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// patience with one round, on a machine with other things to do.
const patience = 15 * time.Minute

// world is a control-plane provider with hosts. The Cluster and its control plane have its name, and so has their namespace.
type world interface {
	name() string
	// objects of a Cluster whose control plane has three Machines of the old version, in the order of their making.
	objects() []client.Object
	// controlPlane is empty, to be read into.
	controlPlane() *unstructured.Unstructured
	// hosts is the time that hosts were at work so far.
	hosts() time.Duration
}

// contender is a Cluster of a world, and what the replacement of its Machines has cost.
type contender struct {
	b     *testing.B
	plane *rig.Rig
	world world
	// labels of the managers that serve it, by role.
	labels []string
	round  int
	cost   cost
}

func newContender(b *testing.B, plane *rig.Rig, w world, labels []string) *contender {
	return &contender{b: b, plane: plane, world: w, labels: labels}
}

func (c *contender) create() {
	c.b.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.world.name()}}
	if err := c.plane.Client.Create(c.b.Context(), namespace); err != nil {
		c.b.Fatal(err)
	}
	for _, object := range c.world.objects() {
		object.SetNamespace(c.world.name())
		if err := c.plane.Client.Create(c.b.Context(), object); err != nil {
			c.b.Fatalf("making %T: %v", object, err)
		}
	}
}

func (c *contender) usage() (all [len(roles)]rig.Usage) {
	c.b.Helper()
	for i, label := range c.labels {
		usage, err := c.plane.Usage(c.b.Context(), label)
		if err != nil {
			c.b.Fatal(err)
		}
		all[i] = usage
	}
	return all
}

// roll makes every Machine outdated and waits until all are replaced.
func (c *contender) roll() {
	c.b.Helper()
	old := map[types.UID]bool{}
	for _, machine := range c.machines() {
		old[machine.UID] = true
	}
	c.round++
	begin, hosts, used := time.Now(), c.world.hosts(), c.usage()
	c.outdate()
	c.untilWhole(old)
	raw := time.Since(begin)
	hosts = c.world.hosts() - hosts
	c.cost.raw += raw
	c.cost.hosts += hosts
	for i, usage := range c.usage() {
		c.cost.managers[i] = c.cost.managers[i].Plus(usage.Minus(used[i]))
	}
	c.cost.machines += replicas
	c.b.Logf("%s, round %d: %s, of which hosts were at work for %s", c.world.name(), c.round, raw.Round(100*time.Millisecond), hosts.Round(100*time.Millisecond))
}

// outdate changes the version, or when it has changed already what the bootstrap data do.
func (c *contender) outdate() {
	c.b.Helper()
	patch := fmt.Sprintf(`{"spec":{"version":%q}}`, newVersion)
	if c.round > 1 {
		patch = fmt.Sprintf(`{"spec":{"kubeadmConfigSpec":{"preKubeadmCommands":["echo %d"]}}}`, c.round)
	}
	object := c.world.controlPlane()
	object.SetNamespace(c.world.name())
	object.SetName(c.world.name())
	if err := c.plane.Client.Patch(c.b.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		c.b.Fatal(err)
	}
}

func (c *contender) machines() []clusterv1.Machine {
	c.b.Helper()
	list := &clusterv1.MachineList{}
	if err := c.plane.Client.List(c.b.Context(), list, client.InNamespace(c.world.name())); err != nil {
		c.b.Fatal(err)
	}
	return list.Items
}

// untilWhole waits until the control plane says of itself that it is what its spec says, with none of the old Machines.
func (c *contender) untilWhole(old map[types.UID]bool) {
	c.b.Helper()
	begin := time.Now()
	for {
		lack := c.lacks(old)
		if lack == "" {
			return
		}
		if time.Since(begin) > patience {
			c.b.Fatalf("%s: %s; logs are in %s", c.world.name(), lack, c.plane.Dir)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (c *contender) lacks(old map[types.UID]bool) string {
	c.b.Helper()
	machines := c.machines()
	if len(machines) != replicas {
		return fmt.Sprintf("it has %d Machines", len(machines))
	}
	for i := range machines {
		switch {
		case old[machines[i].UID]:
			return machines[i].Name + " was not replaced"
		case !machines[i].Status.NodeRef.IsDefined():
			return machines[i].Name + " has no Node"
		}
	}
	object := c.world.controlPlane()
	if err := c.plane.Client.Get(c.b.Context(), client.ObjectKey{Namespace: c.world.name(), Name: c.world.name()}, object); err != nil {
		c.b.Fatal(err)
	}
	if observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration"); observed != object.GetGeneration() {
		return "its spec was not seen yet"
	}
	for _, count := range []string{"replicas", "readyReplicas", "upToDateReplicas"} {
		if n, _, _ := unstructured.NestedInt64(object.Object, "status", count); n != replicas {
			return fmt.Sprintf("its status says %d %s", n, count)
		}
	}
	return ""
}
