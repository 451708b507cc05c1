// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// stopExchange bounds the conversation in which a host ends its API server. It is longer than the kubelet may take.
const stopExchange = 90 * time.Second

// stopAPIServer has a host end its API server when the control plane asks for it: after the drain, while the etcd member beside it
// still answers. What became of it is said in a condition, which the control plane waits for, for a while. A host whose kubelet does
// not end it is asked once by each manager; anything else that fails is tried again.
func (t *turn) stopAPIServer() outcome {
	const condition = infrav1.HostAPIServerStoppedCondition
	if !t.apiServerLeaves() {
		conditions.Delete(t.host, condition)
		return ready
	}
	op := "stop-api-server " + t.host.Spec.ConsumerRef.Claim
	if conditions.IsTrue(t.host, condition) || t.r.pace.marked(t.key(), op) {
		return ready
	}
	if t.host.Spec.Maintenance != nil {
		t.condition(condition, metav1.ConditionFalse, infrav1.HostMaintenanceReason, maintenanceNote(t.host, "the API server is not ended"))
		return ready
	}
	t.condition(condition, metav1.ConditionFalse, infrav1.HostStepRunningReason, "the API server is being ended")
	ours := t.ownerRecord()
	refusal, o := exchange(t, op, stopExchange, func(ctx context.Context, host *infrav1.QuoinHost) (*ssh.ExitError, error) {
		err := t.r.Exchanges.StopAPIServer(ctx, host, ours)
		if exit := (*ssh.ExitError)(nil); errors.As(err, &exit) {
			return exit, nil
		}
		return nil, err
	})
	switch {
	case o.pending:
		return o
	case refusal != nil:
		t.condition(condition, metav1.ConditionFalse, infrav1.HostStepFailedReason, refusal.Error())
		t.event("Warning", "APIServerNotStopped", "QuoinMachine %s leaves the control plane, and its API server serves until its etcd member is removed: %s",
			t.claim.quoinMachine.Name, refusal)
	default:
		t.condition(condition, metav1.ConditionTrue, infrav1.HostAPIServerStoppedReason, "")
		t.event("Normal", infrav1.HostAPIServerStoppedCondition, "the API server has ended, because QuoinMachine %s leaves the control plane", t.claim.quoinMachine.Name)
	}
	return ready
}

// apiServerLeaves reports whether the control plane asks for the end of the API server. An annotation that somebody copied to a
// QuoinMachine that lives asks for nothing.
func (t *turn) apiServerLeaves() bool {
	c := t.claim
	if c.quoinMachine == nil || c.cluster != nil && !c.cluster.DeletionTimestamp.IsZero() || c.machine != nil && c.machine.DeletionTimestamp.IsZero() {
		return false
	}
	_, controlPlane := c.quoinMachine.Labels[clusterv1.MachineControlPlaneLabel]
	_, err := time.Parse(time.RFC3339, c.quoinMachine.Annotations[infrav1.StopAPIServerAnnotation])
	return controlPlane && err == nil
}
