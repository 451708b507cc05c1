// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"strings"
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

// addPool makes a MachineDeployment, which Cluster API's own controllers make Machines of.
func (c *court) addPool(name string, replicas int32) {
	c.t.Helper()
	of := metav1.ObjectMeta{Namespace: c.options.name, Name: name}
	config := &bootstrapv1.KubeadmConfigTemplate{ObjectMeta: *of.DeepCopy()}
	config.Spec.Template.Spec.JoinConfiguration.NodeRegistration.Name = "{{ ds.meta_data.local_hostname }}"
	pool := &clusterv1.MachineDeployment{ObjectMeta: *of.DeepCopy(), Spec: clusterv1.MachineDeploymentSpec{
		ClusterName: c.key.Name, Replicas: ptr.To(replicas),
		Template: clusterv1.MachineTemplateSpec{Spec: clusterv1.MachineSpec{
			ClusterName: c.key.Name, Version: before,
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfigTemplate", Name: name}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinMachineTemplate", Name: c.key.Name},
		}},
	}}
	c.create(config, pool)
}

// workers are the Machines of a pool, by whether they were made before a time.
func (c *court) workers(pool string, since time.Time) (old, young []clusterv1.Machine) {
	list := &clusterv1.MachineList{}
	if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: pool}); err != nil {
		c.t.Error(err)
	}
	for _, machine := range list.Items {
		if machine.CreationTimestamp.Time.Before(since) {
			old = append(old, machine)
		} else {
			young = append(young, machine)
		}
	}
	return old, young
}

// lacksPool says what a pool of Machines that were made since then lacks.
func (c *court) lacksPool(pool string, since time.Time, replicas int) string {
	old, young := c.workers(pool, since)
	if len(old) > 0 || len(young) != replicas {
		return fmt.Sprintf("%s has %d old and %d new Machines%s", pool, len(old), len(young), c.describeWorkers())
	}
	for _, machine := range young {
		if !conditions.IsTrue(&machine, clusterv1.MachineAvailableCondition) {
			return fmt.Sprintf("%s is not Available%s", machine.Name, c.describeWorkers())
		}
	}
	return ""
}

// describeWorkers is what there is of them, for a failure.
func (c *court) describeWorkers() string {
	if c.pause > 0 {
		return ""
	}
	var text strings.Builder
	policies, machines := &quoinv1.RolloutPolicyList{}, &clusterv1.MachineList{}
	_ = c.plane.Client.List(context.Background(), policies, client.InNamespace(c.options.name))
	_ = c.plane.Client.List(context.Background(), machines, client.InNamespace(c.options.name))
	for _, policy := range policies.Items {
		fmt.Fprintf(&text, "\n%s: %+v", policy.Name, policy.Status)
	}
	for _, machine := range machines.Items {
		fmt.Fprintf(&text, "\n%s gates=%v annotations=%v node=%s", machine.Name, machine.Spec.ReadinessGates,
			machine.Annotations, machine.Status.NodeRef.Name)
		for _, condition := range machine.Status.Conditions {
			if condition.Status != metav1.ConditionTrue {
				fmt.Fprintf(&text, "\n  %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	return text.String()
}

// hosted counts the Machines that have hosts.
func (c *court) hosted(machines []clusterv1.Machine) int {
	number := 0
	for _, machine := range machines {
		object := &infrav1.QuoinMachine{}
		key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
		if err := c.plane.Client.Get(context.Background(), key, object); err == nil && object.Spec.ProviderID != "" {
			number++
		}
	}
	return number
}

func (c *court) policy() *quoinv1.RolloutPolicy {
	policy := &quoinv1.RolloutPolicy{}
	if err := c.plane.Client.Get(context.Background(), client.ObjectKey{Namespace: c.options.name, Name: "workers"},
		policy); err != nil {
		c.t.Error(err)
	}
	return policy
}

// untilPaused waits until a canary of the pool waits for a person. Meanwhile no more than one Machine of it is tried, and
// none is deleted; of the pools after it none is.
func (c *court) untilPaused(pool string, since time.Time, replicas int, after ...string) string {
	c.t.Helper()
	paused := ""
	c.until("the canary of "+pool, func() string {
		paused = c.policy().Status.PausedAfter
		for _, other := range append([]string{pool}, after...) {
			old, young := c.workers(other, since)
			allowed := 0
			if other == pool {
				allowed = 1
			}
			if hosted := c.hosted(young); hosted > allowed {
				c.t.Fatalf("%d Machines of %s have hosts%s", hosted, other, c.describeWorkers())
			}
			for _, machine := range old {
				if !machine.DeletionTimestamp.IsZero() {
					c.t.Fatalf("%s is being deleted%s", machine.Name, c.describeWorkers())
				}
			}
			if len(old) != replicas {
				c.t.Fatalf("%s has %d old Machines%s", other, len(old), c.describeWorkers())
			}
		}
		if !strings.HasPrefix(paused, pool) {
			return "nobody is asked" + c.describeWorkers()
		}
		return ""
	})
	return paused
}

func (c *court) goOn(after string) {
	c.t.Helper()
	policy := c.policy()
	original := policy.DeepCopy()
	policy.Spec.ContinueAfter = after
	if err := c.plane.Client.Patch(c.t.Context(), policy, client.MergeFrom(original)); err != nil {
		c.t.Fatal(err)
	}
}

// Two pools are edited at once, with Cluster API's own controllers: they go in their order, each after a canary that a
// person looked at, and nothing is deleted before. When the policy is deleted in the middle nothing of it stays.
//
// Proves: S3-6, S3-7, S3-26, S3-35, K-11
func TestWorkersAreReplacedInOrderAfterACanary(t *testing.T) {
	t.Parallel()
	court := newCourt(t, courtOptions{name: "workers", replicas: 1, hosts: 6, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "workers", Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.PauseAfter = court.key.Name, quoinv1.RolloutPauseCanary
	policy.Spec.SoakSeconds = ptr.To[int32](1)
	court.create(policy)
	pools := []string{"amber", "blue"}
	for _, pool := range pools {
		court.addPool(pool, 2)
	}
	for _, pool := range pools {
		court.until(pool, func() string { return court.lacksPool(pool, time.Time{}, 2) })
	}
	court.until("being up to date", func() string {
		if reason := conditions.GetReason(court.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
			return reason
		}
		return ""
	})

	// The API server counts seconds.
	time.Sleep(1100 * time.Millisecond)
	edit := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, name := range pools {
		pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "workers", Name: name}}
		if err := court.plane.Client.Patch(t.Context(), pool, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"spec":{"rollout":{"after":%q}}}`, edit.UTC().Format(time.RFC3339)))); err != nil {
			t.Fatal(err)
		}
	}
	court.goOn(court.untilPaused("amber", edit.Time, 2, "blue"))
	court.until("amber", func() string { return court.lacksPool("amber", edit.Time, 2) })
	court.untilPaused("blue", edit.Time, 2)
	if err := court.plane.Client.Delete(t.Context(), court.policy()); err != nil {
		t.Fatal(err)
	}
	court.until("blue without a policy", func() string { return court.lacksPool("blue", edit.Time, 2) })
	_, young := court.workers("blue", edit.Time)
	for _, machine := range young {
		if len(machine.Spec.ReadinessGates) > 0 {
			t.Errorf("%s has readiness gates %v", machine.Name, machine.Spec.ReadinessGates)
		}
	}
}
