// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	rollouts "github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// newPool makes a Cluster with one control-plane Machine, a policy with a canary that soaks for a second and with drain
// hooks, and a pool named amber with so many spare hosts.
func newPool(t testing.TB, name string, replicas int32, spare int, change func(*quoinv1.RolloutPolicySpec)) *court {
	t.Helper()
	court := newCourt(t, courtOptions{name: name, replicas: 1, hosts: 1 + int(replicas) + spare, strategy: surge,
		admission: true, workers: true})
	// Ten of them share the processors with all the rest, one after the other.
	court.patience = whole + time.Duration(replicas)*time.Minute
	court.untilWhole("coming up")
	court.addPolicy(change)
	court.addPool("amber", replicas)
	court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, int(replicas)) })
	return court
}

func (c *court) addPolicy(change func(*quoinv1.RolloutPolicySpec)) {
	c.t.Helper()
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.SoakSeconds = c.key.Name, ptr.To[int32](1)
	policy.Spec.Drain = &quoinv1.RolloutDrain{PostDrainDelaySeconds: ptr.To[int32](1), IntervalSeconds: ptr.To[int32](1)}
	if change != nil {
		change(&policy.Spec)
	}
	c.create(policy)
}

func (c *court) changePolicy(edit func(*quoinv1.RolloutPolicySpec)) {
	c.t.Helper()
	c.editPolicy(func(policy *quoinv1.RolloutPolicy) { edit(&policy.Spec) })
}

// editPolicy as a person does, who tries again when somebody else wrote it or its webhook did not answer.
func (c *court) editPolicy(edit func(*quoinv1.RolloutPolicy)) {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		policy := c.policy()
		original := policy.DeepCopy()
		edit(policy)
		err := c.plane.Client.Patch(c.t.Context(), policy, client.MergeFrom(original))
		if err == nil {
			return
		}
		if time.Since(begin) > time.Minute || !apierrors.IsInternalError(err) && !apierrors.IsConflict(err) {
			c.t.Fatal(err)
		}
	}
}

// poolJudge looks at a pool all the time, from outside: nothing of ours says what is right.
type poolJudge struct {
	court *court
	pool  string
	stop  chan struct{}
	ended sync.WaitGroup

	mu sync.Mutex
	// least Available Machines that stay, most Machines with hosts.
	least, most int
	fewest      int
}

// judgePool has a pool never fall below so many Available Machines, and never have more with hosts than that.
func (c *court) judgePool(pool string, least, most int) *poolJudge {
	j := &poolJudge{court: c, pool: pool, stop: make(chan struct{}), least: least, most: most, fewest: 1 << 20}
	j.ended.Go(func() {
		for {
			select {
			case <-j.stop:
				return
			case <-time.After(100 * time.Millisecond):
				j.look()
			}
		}
	})
	return j
}

// allow other numbers from now on.
func (j *poolJudge) allow(least, most int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.least, j.most = least, most
}

func (j *poolJudge) look() {
	list := &clusterv1.MachineList{}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.court.plane.Client.List(context.Background(), list, client.InNamespace(j.court.options.name),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: j.pool}); err != nil {
		j.court.t.Error(err)
		return
	}
	available := 0
	for i := range list.Items {
		machine := &list.Items[i]
		if machine.DeletionTimestamp.IsZero() && conditions.IsTrue(machine, clusterv1.MachineAvailableCondition) {
			available++
		}
	}
	j.fewest = min(j.fewest, available)
	if available < j.least {
		j.court.t.Errorf("%d Machines of %s are available, and not %d%s", available, j.pool, j.least, j.court.describeWorkers())
		j.least = 0
	}
	if hosted := j.court.hosted(list.Items); hosted > j.most {
		j.court.t.Errorf("%d Machines of %s have hosts, and not %d%s", hosted, j.pool, j.most, j.court.describeWorkers())
		j.most = 1 << 20
	}
}

func (j *poolJudge) end() {
	close(j.stop)
	j.ended.Wait()
	j.court.t.Logf("never fewer than %d Machines of %s were available", j.fewest, j.pool)
}

// lacksOrder says what a rollout that is over left behind: on Machines what is ours and should not be there, on Nodes our
// taint and cordon, hosts that nobody has and that are not free, Machines' parts without a Machine.
func (c *court) lacksOrder(hooks bool) string {
	machines, hosts, parts := &clusterv1.MachineList{}, &infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{}
	for _, list := range []client.ObjectList{machines, hosts, parts} {
		if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name)); err != nil {
			return err.Error()
		}
	}
	owners := map[string]bool{}
	for i := range machines.Items {
		machine := &machines.Items[i]
		owners[machine.Spec.InfrastructureRef.Name] = true
		_, skips := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
		_, worker := machine.Labels[clusterv1.MachineDeploymentNameLabel]
		switch {
		case !machine.DeletionTimestamp.IsZero():
			return machine.Name + " is being deleted" + c.describeWorkers()
		case rollouts.Gated(machine), rollouts.Marked(machine), rollouts.DeletedFor(machine) != "", skips:
			return machine.Name + " carries what is ours" + c.describeWorkers()
		case worker && rollouts.Hooked(machine) != hooks:
			return fmt.Sprintf("%s has hooks: %v%s", machine.Name, !hooks, c.describeWorkers())
		}
	}
	for i := range parts.Items {
		if !owners[parts.Items[i].Name] {
			return "QuoinMachine " + parts.Items[i].Name + " has no Machine"
		}
	}
	claimed := 0
	for i := range hosts.Items {
		host := &hosts.Items[i]
		switch consumer := host.Spec.ConsumerRef; {
		case consumer == nil && host.Status.State != infrav1.HostStateAvailable:
			return fmt.Sprintf("host %s is nobody's and %s", host.Name, host.Status.State)
		case consumer != nil && !owners[consumer.Name]:
			return fmt.Sprintf("host %s is claimed by %s, which is not there", host.Name, consumer.Name)
		case consumer != nil:
			claimed++
		}
	}
	if claimed != len(machines.Items) {
		return fmt.Sprintf("%d hosts are claimed for %d Machines%s", claimed, len(machines.Items), c.describeWorkers())
	}
	return c.lacksOrderOfNodes(len(machines.Items))
}

func (c *court) lacksOrderOfNodes(want int) string {
	workload, err := c.workload(whole)
	if err != nil {
		return err.Error()
	}
	nodes, err := workload.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	if len(nodes.Items) != want {
		return fmt.Sprintf("there are %d Nodes for %d Machines", len(nodes.Items), want)
	}
	for _, node := range nodes.Items {
		_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
		_, control := node.Labels["node-role.kubernetes.io/control-plane"]
		if node.Spec.Unschedulable || excluded && !control || strings.Contains(fmt.Sprint(node.Spec.Taints), quoinv1.RolloutTaintKey) {
			return fmt.Sprintf("Node %s is out of use: %v %v", node.Name, node.Labels, node.Spec)
		}
	}
	return ""
}

// untilOver waits until a pool was rolled out since then, and nothing was left behind.
func (c *court) untilOver(pool string, since time.Time, replicas int, hooks bool) {
	c.t.Helper()
	c.until(pool, func() string { return c.lacksPool(pool, since, replicas) })
	c.until("  order", func() string { return c.lacksOrder(hooks) })
}

// withoutPolicy deletes the policy of a pool that is whole, and waits until nothing of it is left.
func (c *court) withoutPolicy() {
	c.t.Helper()
	if err := c.plane.Client.Delete(c.t.Context(), c.policy()); err != nil {
		c.t.Fatal(err)
	}
	c.until("order without a policy", func() string { return c.lacksOrder(false) })
}
