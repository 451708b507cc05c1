// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	rollouts "github.com/quoin-dev/cluster-api-provider-quoin/internal/rollout"
)

// patchPool changes a MachineDeployment as a user does.
func (c *court) patchPool(name, patch string) {
	c.t.Helper()
	pool := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: name}}
	if err := c.plane.Client.Patch(c.t.Context(), pool, client.RawPatch("application/merge-patch+json",
		[]byte(patch))); err != nil {
		c.t.Fatal(err)
	}
}

// holdsOnDelete fails the test when a pool with OnDelete has a Machine above its replicas, more than one is missing, or
// one leaves of which it is not written down that a rollout deletes it.
func (c *court) holdsOnDelete(pool string, since time.Time, replicas int) (gone int) {
	c.t.Helper()
	old, young := c.workers(pool, since)
	if len(old)+len(young) > replicas {
		c.t.Fatalf("%d Machines for %d replicas%s", len(old)+len(young), replicas, c.describeWorkers())
	}
	there := 0
	for _, machine := range young {
		if !rollouts.AdmittedAt(&machine).IsZero() && !rollouts.Gated(&machine) {
			there++
		}
	}
	for _, machine := range old {
		switch {
		case machine.DeletionTimestamp.IsZero():
			there++
		case rollouts.DeletedFor(&machine) == "":
			c.t.Fatalf("%s leaves without a reason%s", machine.Name, c.describeWorkers())
		}
	}
	if there < replicas-1 {
		c.t.Fatalf("%d of %d Machines are there%s", there, replicas, c.describeWorkers())
	}
	return replicas - len(old)
}

// A pool with OnDelete is edited, with Cluster API's own controllers: the rollout deletes one Machine, a person looks at
// what takes its place, and the others follow one by one. There is never one more than replicas.
//
// Proves: S3-13, S3-19, S3-26
func TestWorkersOfAnOnDeletePoolAreReplaced(t *testing.T) {
	needsTime(t)
	t.Parallel()
	court := newCourt(t, courtOptions{name: "ondelete", replicas: 1, hosts: 4, strategy: surge, admission: true, workers: true})
	court.untilWhole("coming up")
	policy := &quoinv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ondelete", Name: "workers"}}
	policy.Spec.ClusterName, policy.Spec.PauseAfter = court.key.Name, quoinv1.RolloutPauseCanary
	policy.Spec.Strategy = &quoinv1.RolloutStrategy{RolloutVictims: quoinv1.RolloutVictims{
		Waves: quoinv1.RolloutWavesFailureDomain}}
	court.create(policy)
	court.addPool("blue", 3)
	court.patchPool("blue", `{"spec":{"rollout":{"strategy":{"type":"OnDelete"}}}}`)
	court.until("blue", func() string { return court.lacksPool("blue", time.Time{}, 3) })
	upToDate := func() string {
		if reason := conditions.GetReason(court.policy(), quoinv1.RolloutPolicyProgressingCondition); reason != quoinv1.UpToDateReason {
			return reason
		}
		return ""
	}
	court.until("being up to date", upToDate)

	// The API server counts seconds.
	time.Sleep(1100 * time.Millisecond)
	edit := metav1.NewTime(time.Now().Truncate(time.Second))
	court.patchPool("blue", fmt.Sprintf(`{"spec":{"rollout":{"after":%q}}}`, edit.UTC().Format(time.RFC3339)))
	paused := ""
	court.until("the canary", func() string {
		if gone := court.holdsOnDelete("blue", edit.Time, 3); gone > 1 {
			t.Fatalf("%d Machines are gone beside the canary%s", gone, court.describeWorkers())
		}
		if paused = court.policy().Status.PausedAfter; paused == "" {
			return "nobody is asked" + court.describeWorkers()
		}
		return ""
	})
	court.goOn(paused)
	court.until("blue", func() string {
		court.holdsOnDelete("blue", edit.Time, 3)
		return court.lacksPool("blue", edit.Time, 3)
	})
	court.until("being up to date again", upToDate)
}
