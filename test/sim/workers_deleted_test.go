// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// guardPool makes a pool whose Machines are drained as a policy says, and waits until all carry its hooks.
func (c *court) guardPool(name string, replicas int32) []clusterv1.Machine {
	c.t.Helper()
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: "workers"}}
	policy.Spec.ClusterName = c.key.Name
	policy.Spec.Drain = &quoinv1.RolloutDrain{PostDrainDelaySeconds: ptr.To[int32](1), IntervalSeconds: ptr.To[int32](1)}
	c.create(policy)
	c.addPool(name, replicas)
	c.until(name, func() string { return c.lacksPool(name, time.Time{}, int(replicas)) })
	var all []clusterv1.Machine
	c.until("hooks", func() string {
		all, _ = c.workers(name, time.Now().Add(time.Hour))
		for _, machine := range all {
			if _, is := machine.Annotations[quoinv1.RolloutPreTerminateHookAnnotation]; !is {
				return machine.Name + " has none"
			}
		}
		return ""
	})
	c.until("being up to date", func() string {
		if reason := conditions.GetReason(c.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
			return reason + c.describeWorkers()
		}
		return ""
	})
	return all
}

// holdsReplicas fails the test when replicas were changed, or there are more Machines than they and one more.
func (c *court) holdsReplicas(pool string, replicas int) (all []clusterv1.Machine) {
	c.t.Helper()
	all, _ = c.workers(pool, time.Now().Add(time.Hour))
	object := &clusterv1.MachineDeployment{}
	if err := c.plane.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.options.name, Name: pool}, object); err != nil {
		c.t.Fatal(err)
	}
	if *object.Spec.Replicas != int32(replicas) || len(all) > replicas+1 {
		c.t.Fatalf("%d Machines for %d replicas%s", len(all), *object.Spec.Replicas, c.describeWorkers())
	}
	return all
}

// lacksParts says which part of a worker belongs to no Machine that is there.
func (c *court) lacksParts() string {
	machines, parts, configs := &clusterv1.MachineList{}, &infrav1.QuoinMachineList{}, &bootstrapv1.KubeadmConfigList{}
	for _, list := range []client.ObjectList{parts, configs, machines} {
		if err := c.plane.Client.List(c.t.Context(), list, client.InNamespace(c.options.name)); err != nil {
			return err.Error()
		}
	}
	var objects []client.Object
	for i := range parts.Items {
		objects = append(objects, &parts.Items[i])
	}
	for i := range configs.Items {
		objects = append(objects, &configs.Items[i])
	}
	for _, object := range objects {
		owner := metav1.GetControllerOf(object)
		if owner == nil || !slices.ContainsFunc(machines.Items, func(m clusterv1.Machine) bool { return m.UID == owner.UID }) {
			return fmt.Sprintf("%T %s belongs to nobody", object, object.GetName())
		}
	}
	if len(parts.Items) != len(machines.Items) || len(configs.Items) != len(machines.Items) {
		return fmt.Sprintf("%d QuoinMachines and %d KubeadmConfigs for %d Machines", len(parts.Items), len(configs.Items),
			len(machines.Items))
	}
	return ""
}

// A person deletes one of three workers while a host is free, with Cluster API's own controllers, and our manager dies
// after every object that it makes for that: another Machine of the same MachineSet is Available before the deleted one
// is drained, replicas stay three, and no second one is made. Then another one is deleted while no host is free: it is
// drained at once, and its MachineSet makes the next one. In the end the pool is rolled out, and stopped in the middle.
//
// Proves: S3-9, S3-19
func TestAWorkerThatAPersonDeletesIsReplacedFirst(t *testing.T) {
	t.Parallel()
	court := newCourt(t, courtOptions{name: "deleted", replicas: 1, hosts: 5, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	first := court.guardPool("amber", 3)
	revision := first[0].Labels[clusterv1.MachineSetNameLabel]

	var mu sync.Mutex
	var kills []string
	killer := &assassin{court: court, lives: func() int { return 1 }, spares: func(e event) bool {
		mu.Lock()
		defer mu.Unlock()
		recorded := slices.Contains(kills, "POST machines") && e.what == "PATCH machines/"+first[0].Name
		made := e.where == "management" && (e.what == "POST quoinmachines" || e.what == "POST kubeadmconfigs" ||
			e.what == "POST machines" || recorded)
		if !made || slices.Contains(kills, e.what) {
			return true
		}
		kills = append(kills, e.what)
		return false
	}}
	court.listen(killer.hear)
	if err := court.plane.Client.Delete(t.Context(), court.guardedMachine(first[0].Name)); err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	court.until("another one before it is drained", func() string {
		all := court.holdsReplicas("amber", 3)
		available := 0
		for _, machine := range all {
			if machine.Labels[clusterv1.MachineSetNameLabel] != revision {
				t.Fatalf("%s is of another MachineSet%s", machine.Name, court.describeWorkers())
			}
			if !slices.ContainsFunc(first, func(m clusterv1.Machine) bool { return m.UID == machine.UID }) {
				made[machine.Name] = true
			}
			if conditions.IsTrue(&machine, clusterv1.MachineAvailableCondition) && machine.DeletionTimestamp.IsZero() {
				available++
			}
		}
		for _, machine := range all {
			_, held := machine.Annotations[quoinv1.RolloutPreDrainHookAnnotation]
			if machine.UID == first[0].UID && !held && available < 3 {
				t.Fatalf("%s is drained and %d are Available%s", machine.Name, available, court.describeWorkers())
			}
		}
		if len(all) != 3 || available != 3 || slices.ContainsFunc(all, func(m clusterv1.Machine) bool {
			return m.UID == first[0].UID
		}) {
			return fmt.Sprintf("%d Machines, %d Available%s", len(all), available, court.describeWorkers())
		}
		return ""
	})
	court.listen(nil)
	killer.end()
	t.Logf("killed after %v", kills)
	if len(kills) < 4 {
		t.Errorf("it was killed after %v only", kills)
	}
	if len(made) != 1 {
		t.Errorf("%d Machines were made: %v", len(made), made)
	}
	for name := range made {
		if !strings.HasPrefix(name, revision+"-") {
			t.Errorf("%s is not called like those of MachineSet %s", name, revision)
		}
	}
	court.until("parts that belong to Machines", court.lacksParts)
	court.until("being up to date", func() string {
		if reason := conditions.GetReason(court.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
			return reason + court.describeWorkers()
		}
		return ""
	})

	// The host that is free is taken out of use: there is no spare any more.
	court.reserveFree()
	next := first[1]
	if err := court.plane.Client.Delete(t.Context(), court.guardedMachine(next.Name)); err != nil {
		t.Fatal(err)
	}
	court.until("its drain", func() string {
		if all := court.holdsReplicas("amber", 3); len(all) > 3 {
			t.Fatalf("%d Machines without a free host%s", len(all), court.describeWorkers())
		}
		machine := &clusterv1.Machine{}
		err := court.plane.Client.Get(t.Context(), client.ObjectKeyFromObject(&next), machine)
		if _, held := machine.Annotations[quoinv1.RolloutPreDrainHookAnnotation]; err == nil && held {
			return "it is held" + court.describeWorkers()
		}
		return ""
	})
	court.until("amber", func() string {
		all := court.holdsReplicas("amber", 3)
		if slices.ContainsFunc(all, func(m clusterv1.Machine) bool { return m.UID == next.UID }) {
			return "it is there"
		}
		return court.lacksPool("amber", time.Time{}, 3)
	})
	court.until("parts that belong to Machines", court.lacksParts)

	court.addHost()
	court.stops()
	court.until("parts that belong to Machines", court.lacksParts)
}

// reserveFree keeps hosts that nobody has for control planes, once they are reset.
func (c *court) reserveFree() {
	c.t.Helper()
	c.until("a host that is free", func() string {
		hosts := &infrav1.QuoinHostList{}
		if err := c.plane.Client.List(c.t.Context(), hosts, client.InNamespace(c.options.name)); err != nil {
			return err.Error()
		}
		reserved := 0
		for i := range hosts.Items {
			host := &hosts.Items[i]
			if host.Spec.ConsumerRef != nil {
				continue
			}
			if err := c.plane.Client.Patch(c.t.Context(), host, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil,
				`{"metadata":{"labels":{%q:%q}}}`, infrav1.ReservedForLabel, infrav1.ReservedForControlPlane))); err != nil {
				return err.Error()
			}
			reserved++
		}
		if reserved == 0 {
			return "there is none"
		}
		return ""
	})
}
