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

// recovering does the host's part in a recovery of etcd, once: a plan that failed is not tried again, because a person
// has to look. While it is asked for, nothing else is done to the host, so that the operation in its status tells of
// it.
func (r *reconciliation) recovering(ctx context.Context) (_ result, handled bool, _ error) {
	machine := r.claim.quoinMachine
	if machine == nil || machine.Spec.EtcdRecovery == nil {
		conditions.Delete(r.host, infrav1.HostEtcdRecoveryCondition)
		return result{}, false, nil
	}
	wanted := machine.Spec.EtcdRecovery
	id := infrav1.RecoverOperation(wanted.ID)
	say := func(status metav1.ConditionStatus, reason, message string) {
		r.condition(infrav1.HostEtcdRecoveryCondition, status, reason, message)
	}
	status, o := r.follow(ctx, id)
	if o.pending {
		return o.result, true, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if r.maintenanceGate("the recovery of etcd") {
			return r.probe(ctx), true, nil
		}
		order := RecoverOrder{Owner: r.ownerRecord(), Order: recovery.Order{ID: id, Action: recovery.Action(wanted.Action),
			Member: wanted.Member}}
		if s := wanted.Snapshot; s != nil {
			order.Snapshot = &recovery.Snapshot{SHA256: s.SHA256, Size: s.SizeBytes}
		}
		say(metav1.ConditionFalse, infrav1.HostStepRunningReason, "its part in the recovery of etcd is about to start")
		if o := start(ctx, r, id, order, r.controller.Provisioner.Recover); o.pending {
			return o.result, true, nil
		}
		res, err := r.started(id)
		return res, true, err
	case run.Succeeded:
		if !conditions.IsTrue(r.host, infrav1.HostEtcdRecoveryCondition) {
			r.event("Normal", infrav1.HostEtcdRecoveryCondition, "recovery %s of etcd: %s is done", wanted.ID, wanted.Action)
		}
		say(metav1.ConditionTrue, string(wanted.Action), "")
		return r.probe(ctx), true, nil
	case run.Failed, run.Interrupted:
		if status.Message != "" {
			message := fmt.Sprintf("recovery %s of etcd: %s", wanted.ID, status.Message)
			if !r.isFalse(infrav1.HostEtcdRecoveryCondition, message) {
				r.event("Warning", infrav1.HostStepFailedReason, "%s", message)
			}
			say(metav1.ConditionFalse, infrav1.HostStepFailedReason, message)
		}
		return r.probe(ctx), true, nil
	}
	say(metav1.ConditionFalse, infrav1.HostStepRunningReason, "recovery of etcd: "+status.Message)
	return r.poll(), true, nil
}
