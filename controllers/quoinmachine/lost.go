// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinmachine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// absentEvery is how often an absent host is looked for; its arrival is an event as well.
const absentEvery = time.Minute

// hostLost shows that no host here carries the claim. The cache is not believed: a moved host may not be in it yet.
func (r *Reconciler) hostLost(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (ctrl.Result, error) {
	host, err := r.claimedHost(ctx, quoinMachine, v.machine)
	if err != nil {
		return ctrl.Result{}, err
	}
	if host != nil {
		v.host = host
		return ctrl.Result{}, nil
	}
	absent, err := r.hostAbsent(ctx, quoinMachine)
	if err != nil {
		return ctrl.Result{}, err
	}
	message := fmt.Sprintf("the QuoinHost that provider ID %s names is here, but not claimed by this QuoinMachine any "+
		"more, so its node is gone or will be; no other host is claimed. "+
		"Look at the QuoinHost before Machine %s is replaced", quoinMachine.Spec.ProviderID, v.machine.Name)
	switch {
	case absent && saidGone(quoinMachine):
		message = fmt.Sprintf("the QuoinHost that provider ID %s names is not here, and a person said that it does not run "+
			"any more; delete Machine %s so that another one replaces it",
			quoinMachine.Spec.ProviderID, v.machine.Name)
	case absent:
		message = absentNote(quoinMachine) + ". Nothing is done, and no other host is claimed"
	}
	v.obstacle = &obstacle{infrav1.MachineHostLostReason, message}
	return ctrl.Result{RequeueAfter: absentEvery}, nil
}

// keptForHost reports whether a QuoinMachine in deletion that no host here is claimed by has to stay, because the host
// that it names is not here: nobody has reset that one, so its kubelet lives on, with the credentials of its node.
func (r *Reconciler) keptForHost(
	ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation,
) (bool, error) {
	absent, err := r.hostAbsent(ctx, quoinMachine)
	if err != nil || !absent {
		return false, err
	}
	if saidGone(quoinMachine) {
		if r.Recorder != nil {
			r.Recorder.Eventf(quoinMachine, nil, "Warning", "HostGivenUp", "HostGivenUp",
				"the host of provider ID %s is not here and was not reset: a person said that it does not run any more",
				quoinMachine.Spec.ProviderID)
		}
		return false, nil
	}
	v.hold = &obstacle{infrav1.MachineHostLostReason, absentNote(quoinMachine) +
		fmt.Sprintf(". The QuoinMachine is kept until the QuoinHost is here and its reset was verified. "+
			"Only if the machine behind it does not run any more, and is gone or will be wiped: kubectl -n %s annotate "+
			"quoinmachine %s %s=%s",
			quoinMachine.Namespace, quoinMachine.Name, infrav1.AbandonAnnotation, quoinMachine.Spec.ProviderID)}
	if r.Recorder != nil && conditions.GetReason(quoinMachine,
		infrav1.MachineReadyCondition) != infrav1.MachineHostLostReason {
		r.Recorder.Eventf(quoinMachine, nil, "Warning", infrav1.MachineHostLostReason, infrav1.MachineHostLostReason, "%s",
			absentNote(quoinMachine))
	}
	return true, nil
}

// absentNote says what an absent host means.
func absentNote(quoinMachine *infrav1.QuoinMachine) string {
	namespace, name, _, _ := infrav1.ParseProviderID(quoinMachine.Spec.ProviderID)
	return fmt.Sprintf("QuoinHost %s/%s, which provider ID %s names, is not here: it may be on its way from another "+
		"management cluster, or was left behind there, while its node runs. "+
		"Bring it here, with its Secrets: its claim is found again", namespace, name, quoinMachine.Spec.ProviderID)
}

// saidGone reports whether a person said of the very host that it does not run any more, and is gone or will be wiped.
func saidGone(quoinMachine *infrav1.QuoinMachine) bool {
	return quoinMachine.Annotations[infrav1.AbandonAnnotation] == quoinMachine.Spec.ProviderID
}

// hostAbsent reports whether there is no QuoinHost of the name that the provider ID gives. One that is there looks
// after its host itself, whoever has claimed it since. The API server is asked: a moved host may not be in the cache
// yet.
func (r *Reconciler) hostAbsent(ctx context.Context, quoinMachine *infrav1.QuoinMachine) (bool, error) {
	namespace, name, _, err := infrav1.ParseProviderID(quoinMachine.Spec.ProviderID)
	if err != nil {
		return false, nil //nolint:nilerr // it names no host
	}
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &infrav1.QuoinHost{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading QuoinHost %s/%s of QuoinMachine %s/%s: %w", namespace, name, quoinMachine.Namespace,
			quoinMachine.Name, err)
	}
	return apierrors.IsNotFound(err), nil
}

// showMoving says of a paused QuoinMachine whose host is not here that it is on its way, and no more of one whose host
// is here.
func (r *Reconciler) showMoving(ctx context.Context, quoinMachine *infrav1.QuoinMachine, v *observation) error {
	before := quoinMachine.DeepCopy()
	absent := quoinMachine.Spec.ProviderID != "" && v.host == nil
	said := conditions.GetReason(quoinMachine, infrav1.MachineReadyCondition) == infrav1.MachineMovingReason
	switch {
	case absent && !said:
		conditionsOf(quoinMachine, metav1.Condition{Type: infrav1.MachineReadyCondition, Status: metav1.ConditionFalse,
			Reason:  infrav1.MachineMovingReason,
			Message: "paused, as clusterctl move does while the objects move; " + absentNote(quoinMachine)})
	case !absent && said:
		conditions.Delete(quoinMachine, infrav1.MachineReadyCondition)
	default:
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, quoinMachine, patch)); err != nil {
		return fmt.Errorf("patching QuoinMachine %s/%s: %w", quoinMachine.Namespace, quoinMachine.Name, err)
	}
	return nil
}
