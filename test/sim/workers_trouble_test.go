// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	rollouts "github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// pausing has the policy of a pool stop after its canary, with a second new Machine that is held meanwhile.
func pausing(spec *quoinv1.RolloutPolicySpec) {
	spec.PauseAfter = quoinv1.RolloutPauseCanary
	spec.Groups = []quoinv1.RolloutGroup{{Name: "all", MachineDeployments: quoinv1.RolloutSelector{Names: []string{"amber"}}}}
}

// surgeBy has Cluster API make so many new Machines at once.
func surgeBy(most int) string {
	return fmt.Sprintf(`{"spec":{"rollout":{"strategy":{"type":"RollingUpdate",`+
		`"rollingUpdate":{"maxSurge":%d,"maxUnavailable":0}}}}}`, most)
}

// middle edits the pool amber and waits for the middle of its rollout: a canary that waits for a person, a Machine that is
// held, and nothing that was deleted.
func (c *court) middle(replicas int) (edit time.Time, canary string, held clusterv1.Machine) {
	c.t.Helper()
	edit = c.rollOut("amber")
	canary = c.untilPaused("amber", edit, replicas)
	c.until("a Machine that is held", func() string {
		_, young := c.workers("amber", edit)
		for _, machine := range young {
			if rollouts.AdmittedAt(&machine).IsZero() && lifecycle.Spared(&machine) {
				held = machine
				return ""
			}
		}
		return "there is none" + c.describeWorkers()
	})
	return edit, canary, held
}

func (c *court) setPaused(paused bool) {
	c.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	if err := c.plane.Client.Patch(c.t.Context(), cluster, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"paused":%v}}`, paused))); err != nil {
		c.t.Fatal(err)
	}
}

// stays says for a time what must not change.
func (c *court) stays(what string, length time.Duration, is func() string) {
	c.t.Helper()
	for begin := time.Now(); time.Since(begin) < length; time.Sleep(250 * time.Millisecond) {
		if lack := is(); lack != "" {
			c.t.Fatalf("%s: %s", what, lack)
		}
	}
}

// quietly says when the Machines of the pool amber are not what they were.
func (c *court) quietly() func() string {
	deleting := map[types.UID]bool{}
	all, _ := c.workers("amber", time.Now().Add(time.Hour))
	for _, machine := range all {
		deleting[machine.UID] = !machine.DeletionTimestamp.IsZero()
	}
	hosted := c.hosted(all)
	return func() string {
		now, _ := c.workers("amber", time.Now().Add(time.Hour))
		for _, machine := range now {
			if was, known := deleting[machine.UID]; !known || was == machine.DeletionTimestamp.IsZero() {
				return machine.Name + " was made or deleted" + c.describeWorkers()
			}
		}
		if len(now) != len(deleting) || c.hosted(now) != hosted {
			return "Machines went, or got hosts" + c.describeWorkers()
		}
		return ""
	}
}

// pausePolicy has nobody lead rollouts, or somebody again, and waits until that is seen.
func (c *court) pausePolicy(paused bool) {
	c.t.Helper()
	c.editPolicy(func(policy *quoinv1.RolloutPolicy) {
		delete(policy.Annotations, clusterv1.PausedAnnotation)
		if paused {
			metav1.SetMetaDataAnnotation(&policy.ObjectMeta, clusterv1.PausedAnnotation, "")
		}
	})
	c.until("seeing the pause of the policy, or its end", func() string {
		if conditions.IsTrue(c.policy(), quoinv1.RolloutPolicyPausedCondition) != paused {
			return "it does not"
		}
		return ""
	})
}

// stops rolls the pool amber of three with one host to spare. A person pauses the policy at its canary and in the middle
// of a drain, and our manager is another one each time; then the group is suspended in that drain. What has begun goes
// on when nobody pauses it any more, and nothing else is begun.
func (c *court) stops() {
	c.t.Helper()
	change := func(suspend bool, postDrainDelay int32, continueAfter string) {
		c.changePolicy(func(spec *quoinv1.RolloutPolicySpec) {
			pausing(spec)
			spec.Groups[0].Suspend, spec.ContinueAfter = ptr.To(suspend), continueAfter
			spec.Drain.PostDrainDelaySeconds = ptr.To(postDrainDelay)
		})
	}
	paused := func(what string, meanwhile func()) {
		c.pausePolicy(true)
		quiet := c.quietly()
		meanwhile()
		if err := c.site.Restart(); err != nil {
			c.t.Fatal(err)
		}
		c.stays(what, 4*time.Second, quiet)
		c.pausePolicy(false)
	}
	change(false, 600, "")
	edit := c.rollOut("amber")
	judge := c.judgePool("amber", 3, 4)
	canary := c.untilPaused("amber", edit, 3)
	paused("being paused at the canary", func() { change(false, 600, canary) })

	leaving := func() (names []string) {
		old, _ := c.workers("amber", edit)
		for _, machine := range old {
			if !machine.DeletionTimestamp.IsZero() {
				names = append(names, machine.Name)
			}
		}
		if len(names) > 1 {
			c.t.Fatalf("%v are being deleted%s", names, c.describeWorkers())
		}
		return names
	}
	c.until("the middle of a drain", func() string {
		names := leaving()
		if len(names) == 0 {
			return "nobody leaves" + c.describeWorkers()
		}
		deletion := c.guardedMachine(names[0]).Status.Deletion
		if deletion == nil || deletion.WaitForPreTerminateHookStartTime.IsZero() {
			return "it is not drained" + c.describeWorkers()
		}
		return ""
	})
	paused("being paused in the middle of a drain", func() { change(true, 1, canary) })
	c.until("the end of the drain", func() string {
		old, young := c.workers("amber", edit)
		if len(leaving()) > 0 || len(old) != 2 || len(young) != 2 {
			return fmt.Sprintf("%d old and %d new Machines%s", len(old), len(young), c.describeWorkers())
		}
		if reason := c.policy().Status.MachineDeployments[0].Reason; reason != string(rollouts.Suspended) {
			return reason
		}
		return ""
	})
	c.stays("being suspended", 3*time.Second, c.quietly())
	change(false, 1, canary)
	c.untilOver("amber", edit, 3, true)
	judge.end()
}

// A rollout of a pool is disturbed in its middle, by all who may: each time it ends as it must, and nothing of ours is left
// on Machines, Nodes and hosts. The last disturbance is the end of the Cluster.
func TestAWorkerRolloutIsDisturbedInTheMiddle(t *testing.T) {
	needsTime(t)
	sizes := []int{3}
	if nightly() {
		sizes = []int{3, 10, 100}
	}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) { disturb(t, size, max(2, size/10)) })
	}
}

// disturb is about a pool of the size that surges by so many, and has as many spare hosts. A rollout of a large one takes
// long, so one has all disturbances: some while it is paused after its canary, the others each after another part of it.
func disturb(t *testing.T, size, spare int) {
	t.Helper()
	court := newPool(t, fmt.Sprintf("disturbed-%d", size), int32(size), spare, pausing) //nolint:gosec // small numbers
	court.patchPool("amber", surgeBy(spare))
	replicas, hooks := size, true
	judge := court.judgePool("amber", size, size+spare)
	scale := func(to int) {
		court.patchPool("amber", fmt.Sprintf(`{"spec":{"replicas":%d}}`, to))
		replicas = to
	}
	together, paused, canary := size > 10, true, ""
	goOn := func() {
		if !together {
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.ContinueAfter = canary })
		}
	}
	disturbances := []struct {
		what string
		do   func()
	}{
		{"the policy soaks longer", func() {
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.SoakSeconds = ptr.To[int32](3) })
			goOn()
		}},
		{"the group is suspended and resumed", func() {
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.Groups[0].Suspend = ptr.To(true) })
			goOn()
			court.stays("being suspended", 10*time.Second, court.quietly())
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.Groups[0].Suspend = nil })
		}},
		{"the Cluster is paused with a Machine that is held", func() {
			court.setPaused(true)
			court.until("seeing the pause", func() string {
				if !conditions.IsTrue(court.policy(), quoinv1.RolloutPolicyPausedCondition) {
					return "it does not"
				}
				return ""
			})
			goOn()
			length := 20 * time.Second
			if nightly() {
				length = 20 * time.Minute // bootstrap tokens end meanwhile
			}
			court.stays("being paused", length, court.quietly())
			court.setPaused(false)
		}},
		{"the policy takes several at once and does not pause", func() {
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) {
				spec.Concurrency, spec.PauseAfter = ptr.To[int32](3), ""
			})
			court.until("not pausing", func() string { return court.policy().Status.PausedAfter })
			paused = false
		}},
		{"the pool is scaled up", func() {
			// Of the surge a host is left for it.
			scale(size + 1)
			goOn()
		}},
		{"the pool is scaled down", func() {
			judge.allow(size, size+1+spare)
			scale(size)
			goOn()
		}},
		{"the policy is deleted", func() {
			if err := court.plane.Client.Delete(t.Context(), court.policy()); err != nil {
				t.Fatal(err)
			}
			hooks = false
		}},
	}
	var edit time.Time
	part := 0
	for i, disturbance := range disturbances {
		if !together || i == 0 {
			judge.allow(replicas, replicas+spare+1)
			edit, canary, _ = court.middle(replicas)
		} else if !paused {
			judge.allow(size, size+1+spare)
			part++
			court.until("a part of the rollout", func() string {
				if _, young := court.workers("amber", edit); len(young) < part*size/5 {
					return fmt.Sprintf("%d new Machines", len(young))
				}
				return ""
			})
		}
		t.Log(disturbance.what)
		disturbance.do()
		if together && i < len(disturbances)-1 {
			continue
		}
		court.untilOver("amber", edit, replicas, hooks)
		if hooks {
			court.changePolicy(func(spec *quoinv1.RolloutPolicySpec) { spec.PauseAfter = quoinv1.RolloutPauseCanary })
		}
	}
	judge.end()
	court.addPolicy(pausing)
	court.middle(replicas)
	court.endsWithItsCluster()
}

// endsWithItsCluster deletes the Cluster, and waits until its Machines are gone and its hosts free.
func (c *court) endsWithItsCluster() {
	c.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
	if err := c.plane.Client.Delete(c.t.Context(), cluster); err != nil {
		c.t.Fatal(err)
	}
	c.collectWorkers()
	c.until("the end of the Cluster", func() string {
		machines, hosts := &clusterv1.MachineList{}, &infrav1.QuoinHostList{}
		for _, list := range []client.ObjectList{machines, hosts} {
			if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name)); err != nil {
				return err.Error()
			}
		}
		if len(machines.Items) > 0 {
			return fmt.Sprintf("%d Machines are there%s", len(machines.Items), c.describeWorkers())
		}
		for i := range hosts.Items {
			if host := &hosts.Items[i]; host.Spec.ConsumerRef != nil || host.Status.State != infrav1.HostStateAvailable {
				return fmt.Sprintf("host %s is %s, of %v", host.Name, host.Status.State, host.Spec.ConsumerRef)
			}
		}
		if err := c.plane.Client.Get(context.Background(), c.key, cluster); client.IgnoreNotFound(err) != nil || err == nil {
			return "the Cluster is there"
		}
		return ""
	})
}

// collectWorkers deletes the Machines of pools, as nobody collects garbage here: Cluster API deletes MachineDeployments, and
// what they own goes after them.
func (c *court) collectWorkers() {
	c.t.Helper()
	c.until("the end of the pools", func() string {
		pools, sets := &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}
		for _, list := range []client.ObjectList{pools, sets} {
			if err := c.plane.Client.List(context.Background(), list, client.InNamespace(c.options.name)); err != nil {
				return err.Error()
			}
		}
		if len(pools.Items) > 0 {
			return fmt.Sprintf("%d MachineDeployments are there", len(pools.Items))
		}
		for i := range sets.Items {
			if err := client.IgnoreNotFound(c.plane.Client.Delete(context.Background(), &sets.Items[i])); err != nil {
				return err.Error()
			}
		}
		return ""
	})
}

// A Machine that a rollout holds for longer than a health check gives a Node to start is not taken for a dead one, and is
// the one that counts in the end. The annotation that spares it is ours, and goes with its host.
func TestAHeldMachineIsNotRemediated(t *testing.T) {
	needsTime(t)
	court := newPool(t, "held", 2, 2, pausing)
	court.patchPool("amber", surgeBy(2))
	court.create(&clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: "held", Name: "amber"},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: court.key.Name,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "amber"}},
			Checks:      clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: ptr.To[int32](30)},
		},
	})
	judge := court.judgePool("amber", 2, 4)
	edit, canary, held := court.middle(2)
	length := 75 * time.Second
	if nightly() {
		length = 5 * time.Minute
	}
	same := func() *clusterv1.Machine {
		machine := &clusterv1.Machine{}
		if err := court.plane.Client.Get(context.Background(), client.ObjectKeyFromObject(&held), machine); err != nil {
			t.Fatalf("the Machine that is held: %v%s", err, court.describeWorkers())
		}
		return machine
	}
	court.stays("being held", length, func() string {
		machine := same()
		if machine.UID != held.UID || !machine.DeletionTimestamp.IsZero() || !lifecycle.Spared(machine) {
			return "it was not spared" + court.describeWorkers()
		}
		return ""
	})
	court.goOn(canary)
	court.until("not being spared any more", func() string {
		machine := same()
		if machine.UID != held.UID || !machine.DeletionTimestamp.IsZero() {
			t.Fatalf("it was replaced%s", court.describeWorkers())
		}
		if _, skips := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]; skips {
			return "it is" + court.describeWorkers()
		}
		return ""
	})
	court.untilOver("amber", edit, 2, true)
	if _, young := court.workers("amber", edit); len(young) == 2 && young[0].UID != held.UID && young[1].UID != held.UID {
		t.Errorf("the Machine that was held is not there any more%s", court.describeWorkers())
	}
	judge.end()
}

// A large pool is replaced with a canary and drains, while our manager dies. Of ten Machines with one spare host it dies at every
// fourth change, and in the next rollout at those one further on: in four of them at every change that there is. What a hundred
// Machines take is drawn, the same in each run.
func TestALargePoolIsReplaced(t *testing.T) {
	needsTime(t)
	const stride = 4
	for _, size := range []struct{ replicas, spare, rows, kills int }{{10, 1, stride, 12}, {100, 10, 1, 40}} {
		if size.replicas > 10 && !nightly() {
			continue
		}
		t.Run(fmt.Sprint(size.replicas), func(t *testing.T) {
			court := newPool(t, fmt.Sprintf("large-%d", size.replicas), int32(size.replicas), size.spare, nil) //nolint:gosec // small numbers
			court.patchPool("amber", surgeBy(size.spare))
			random := rand.New(rand.NewPCG(452, 4))
			for row := range size.rows {
				kinds, lived := map[string]int{}, 0
				kills := court.killWorkers(size.replicas, size.spare, func() int {
					lived++
					switch {
					case size.replicas > 10:
						return 1 + random.IntN(150)
					case lived == 1:
						return 1 + row
					}
					return stride
				}, func(e event) bool {
					// What each manager writes as it begins must not be all that any of them comes to.
					kind := workerName.ReplaceAllString(e.String(), "amber-*")
					kinds[kind]++
					return kinds[kind] > 3*size.replicas
				})
				artifact(t, fmt.Sprintf("kills-large-%d-%d.txt", size.replicas, row+1), drawKills(kills))
				if len(kills) < size.kills {
					t.Errorf("only %d kills", len(kills))
				}
			}
			court.withoutPolicy()
		})
	}
}
