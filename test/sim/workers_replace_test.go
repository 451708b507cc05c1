// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// rollOut a pool anew by its own field, as of the second that is returned.
func (c *court) rollOut(pool string) time.Time {
	c.t.Helper()
	time.Sleep(1100 * time.Millisecond) // the API server counts seconds
	edit := metav1.NewTime(time.Now().Truncate(time.Second))
	object := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: pool}}
	if err := c.plane.Client.Patch(c.t.Context(), object, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"rollout":{"after":%q}}}`, edit.UTC().Format(time.RFC3339)))); err != nil {
		c.t.Fatal(err)
	}
	return edit.Time
}

// available counts the Machines of a pool that are.
func (c *court) available(pool string) int {
	all, _ := c.workers(pool, time.Now().Add(time.Hour))
	number := 0
	for i := range all {
		if conditions.IsTrue(&all[i], clusterv1.MachineAvailableCondition) && all[i].DeletionTimestamp.IsZero() {
			number++
		}
	}
	return number
}

// A fleet without a spare, with Cluster API's own controllers: nothing moves until the policy consents. Then the pool is
// replaced whole, with never more than one Machine missing, and no outdated Machine gets a host again.
//
// Proves: S3-1, S3-4, S3-19, S3-30
func TestAFleetWithoutASpareRolls(t *testing.T) {
	t.Parallel()
	court := newCourt(t, courtOptions{name: "nospare", replicas: 1, hosts: 3, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "nospare", Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.SoakSeconds = court.key.Name, ptr.To[int32](1)
	court.create(policy)
	court.addPool("amber", 2)
	court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, 2) })
	edit := court.rollOut("amber")
	first, _ := court.workers("amber", edit)
	court.until("saying that there is no spare", func() string {
		for _, progress := range court.policy().Status.MachineDeployments {
			if progress.Reason == "NoSpareHost" {
				return ""
			}
		}
		return "it does not" + court.describeWorkers()
	})
	if have := court.available("amber"); have != 2 {
		t.Fatalf("%d are available%s", have, court.describeWorkers())
	}
	consented := court.policy()
	before := consented.DeepCopy()
	consented.Spec.WhenNoSpare = quoinv1.RolloutWithoutSpareRemoveFirst
	if err := court.plane.Client.Patch(t.Context(), consented, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	old := map[string]bool{}
	for _, machine := range first {
		old[machine.Name] = true
	}
	revision := first[0].Labels[clusterv1.MachineDeploymentUniqueLabel]
	court.until("amber", func() string {
		all, _ := court.workers("amber", time.Now().Add(time.Hour))
		if have := court.available("amber"); have < 1 {
			t.Fatalf("%d are available%s", have, court.describeWorkers())
		}
		current := 0
		for _, machine := range all {
			switch {
			case machine.Labels[clusterv1.MachineDeploymentUniqueLabel] != revision:
				current++
			case !old[machine.Name] && court.hosted([]clusterv1.Machine{machine}) > 0:
				t.Fatalf("%s is outdated and has a host%s", machine.Name, court.describeWorkers())
			}
		}
		if current > 2 {
			t.Fatalf("%d new ones for 2%s", current, court.describeWorkers())
		}
		if current < 2 || len(all) > 2 || court.available("amber") < 2 {
			return fmt.Sprintf("%d of %d are new%s", current, len(all), court.describeWorkers())
		}
		return ""
	})
}

// Two workers at the present template are marked, one by its Node and one by its host: each is replaced once, one at a
// time, by Machines of the same MachineSet, and the hosts come back into use unmarked.
//
// Proves: S3-3, S3-5, S3-30
func TestMarkedWorkersAreReplaced(t *testing.T) {
	needsTime(t)
	t.Parallel()
	court := newCourt(t, courtOptions{name: "marked", replicas: 1, hosts: 3, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "marked", Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.WhenNoSpare = court.key.Name, quoinv1.RolloutWithoutSpareRemoveFirst
	court.create(policy)
	court.addPool("amber", 2)
	court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, 2) })
	first, _ := court.workers("amber", time.Now().Add(time.Hour))
	revision := first[0].Labels[clusterv1.MachineSetNameLabel]
	court.markNode(first[0].Status.NodeRef.Name)
	host := court.markHost(first[1].Spec.InfrastructureRef.Name)
	court.until("amber", func() string {
		all, _ := court.workers("amber", time.Now().Add(time.Hour))
		have := court.available("amber")
		if have < 1 {
			t.Fatalf("%d are available%s", have, court.describeWorkers())
		}
		fresh := 0
		for _, machine := range all {
			if machine.Labels[clusterv1.MachineSetNameLabel] != revision {
				t.Fatalf("%s is of another MachineSet%s", machine.Name, court.describeWorkers())
			}
			if machine.UID != first[0].UID && machine.UID != first[1].UID {
				fresh++
			}
		}
		if fresh != 2 || len(all) != 2 || have != 2 {
			return fmt.Sprintf("%d of %d are new, %d available%s", fresh, len(all), have, court.describeWorkers())
		}
		return ""
	})
	object := &infrav1.QuoinHost{}
	if err := court.plane.Client.Get(t.Context(), host, object); err != nil {
		t.Fatal(err)
	}
	if _, marked := object.Annotations[quoinv1.NeedsUpdateAnnotation]; marked {
		t.Errorf("%s is marked for the next Machine as well", object.Name)
	}
	after, _ := court.workers("amber", time.Now().Add(time.Hour))
	time.Sleep(3 * time.Second)
	again, _ := court.workers("amber", time.Now().Add(time.Hour))
	for i := range again {
		if len(again) != len(after) || again[i].UID != after[i].UID || !again[i].DeletionTimestamp.IsZero() {
			t.Fatalf("it goes on%s", court.describeWorkers())
		}
	}
}

func (c *court) markNode(name string) {
	c.t.Helper()
	config, err := c.cluster.Config()
	if err != nil {
		c.t.Fatal(err)
	}
	workload, err := client.New(config, client.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mark(workload, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// markHost marks the host of a QuoinMachine.
func (c *court) markHost(consumer string) client.ObjectKey {
	c.t.Helper()
	hosts := &infrav1.QuoinHostList{}
	if err := c.plane.Client.List(c.t.Context(), hosts, client.InNamespace(c.options.name)); err != nil {
		c.t.Fatal(err)
	}
	for i := range hosts.Items {
		if ref := hosts.Items[i].Spec.ConsumerRef; ref != nil && ref.Name == consumer {
			c.mark(c.plane.Client, &hosts.Items[i])
			return client.ObjectKeyFromObject(&hosts.Items[i])
		}
	}
	c.t.Fatalf("nobody has a host of %s", consumer)
	return client.ObjectKey{}
}

func (c *court) mark(through client.Client, object client.Object) {
	c.t.Helper()
	if err := through.Patch(c.t.Context(), object, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:""}}}`, quoinv1.NeedsUpdateAnnotation))); err != nil {
		c.t.Fatal(err)
	}
}
