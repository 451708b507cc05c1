// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// RecoverOrder is what makes a host do its part in a recovery of etcd.
type RecoverOrder struct {
	Owner owner.Record
	recovery.Order
}

// recovering does the host's part in a recovery of etcd, once: a plan that failed is not tried again, because a person has to
// look. While it is asked for, nothing else is done to the host, so that the operation in its status tells of it.
func (t *turn) recovering() (_ result, handled bool, _ error) {
	machine := t.claim.quoinMachine
	if machine == nil || machine.Spec.EtcdRecovery == nil {
		conditions.Delete(t.host, infrav1.HostEtcdRecoveryCondition)
		return result{}, false, nil
	}
	wanted := machine.Spec.EtcdRecovery
	id := infrav1.RecoverOperation(wanted.ID)
	say := func(status metav1.ConditionStatus, reason, message string) {
		t.condition(infrav1.HostEtcdRecoveryCondition, status, reason, message)
	}
	status, o := t.follow(id)
	if o.pending {
		return o.result, true, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if t.maintained("the recovery of etcd") {
			r, err := t.probe()
			return r, true, err
		}
		order := RecoverOrder{Owner: t.ownerRecord(), Order: recovery.Order{ID: id, Action: recovery.Action(wanted.Action), Member: wanted.Member}}
		if s := wanted.Snapshot; s != nil {
			order.Snapshot = &recovery.Snapshot{SHA256: s.SHA256, Size: s.SizeBytes}
		}
		say(metav1.ConditionFalse, infrav1.HostStepRunningReason, "its part in the recovery of etcd is about to start")
		if o := start(t, id, func(ctx context.Context, host *infrav1.QuoinHost) error {
			return t.r.Exchanges.Recover(ctx, host, order)
		}); o.pending {
			return o.result, true, nil
		}
		r, err := t.started(id)
		return r, true, err
	case run.Succeeded:
		if !conditions.IsTrue(t.host, infrav1.HostEtcdRecoveryCondition) {
			t.event("Normal", infrav1.HostEtcdRecoveryCondition, "recovery %s of etcd: %s is done", wanted.ID, wanted.Action)
		}
		say(metav1.ConditionTrue, string(wanted.Action), "")
		r, err := t.probe()
		return r, true, err
	case run.Failed, run.Interrupted:
		if status.Message != "" {
			message := fmt.Sprintf("recovery %s of etcd: %s", wanted.ID, status.Message)
			if !t.isFalse(infrav1.HostEtcdRecoveryCondition, message) {
				t.event("Warning", infrav1.HostStepFailedReason, "%s", message)
			}
			say(metav1.ConditionFalse, infrav1.HostStepFailedReason, message)
		}
		r, err := t.probe()
		return r, true, err
	}
	say(metav1.ConditionFalse, infrav1.HostStepRunningReason, "recovery of etcd: "+status.Message)
	return t.poll(id), true, nil
}
