// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/history"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

const (
	// PreCreatedLife is for how long a pre-created Machine may be allowed a host: for the end of a join, and a drain. A
	// health check counts the time that it has to come up from its creation, as a rule ten minutes, and its bootstrap
	// token lives for a quarter of an hour. After a longer drain the seconds that it saves do not matter.
	PreCreatedLife = 3 * time.Minute
	// KubeadmIsNew is how long after the begin of kubeadm the next Machine may be made: with the drain that follows, a
	// join that has taken longer leaves too little of PreCreatedLife. And of a host that is silent nobody knows that its
	// join is over.
	KubeadmIsNew = time.Minute
	// partsLag is how long the cache may not show the QuoinMachine of a Machine that was made.
	partsLag = 10 * time.Second
)

// PreCreated reports whether a Machine was pre-created and may have no host yet. One that has a host all the same
// counts as any other.
func (inv *Inventory) PreCreated(machine *clusterv1.Machine) bool {
	return placement.ClaimHeld(machine) && machine.DeletionTimestamp.IsZero() && inv.Initialized() &&
		!inv.hostClaimed(machine)
}

// hostClaimed reports whether a host was taken for the Machine at some time.
func (inv *Inventory) hostClaimed(machine *clusterv1.Machine) bool {
	if machine.Spec.ProviderID != "" || machine.Status.NodeRef.IsDefined() {
		return true
	}
	infra := inv.QuoinMachines[machine.Name]
	return infra != nil && (infra.Spec.ProviderID != "" || infra.Status.HostRef != nil || inv.claimedFor(infra))
}

// Parts are the Machines that the control plane consists of: all but those that were pre-created.
func (inv *Inventory) Parts() collections.Machines {
	return inv.Machines.Filter(func(machine *clusterv1.Machine) bool { return !inv.PreCreated(machine) })
}

// preCreatedOf says what a decision needs to know of a pre-created Machine, after others of them.
func (o *Observation) preCreatedOf(machine *clusterv1.Machine, others int) controlplane.PreCreatedMachine {
	preCreated := controlplane.PreCreatedMachine{Name: machine.Name}
	age := o.At.Sub(machine.CreationTimestamp.Time)
	check, infra := conditions.Get(machine, clusterv1.MachineHealthCheckSucceededCondition), o.QuoinMachines[machine.Name]
	switch {
	case len(o.Outdated[machine.Name]) > 0:
		preCreated.Unfit = "it is outdated"
	case check != nil && check.Status == metav1.ConditionFalse:
		preCreated.Unfit = "its health check gave it up"
	case infra == nil && age > partsLag, infra != nil && !infra.DeletionTimestamp.IsZero():
		preCreated.Unfit = "its QuoinMachine is going or gone"
	case age > PreCreatedLife:
		preCreated.Unfit = fmt.Sprintf("it was made more than %s ago", PreCreatedLife)
	case others > 0:
		preCreated.Unfit = "another one was made ahead, too"
	}
	return preCreated
}

// recallPreCreations says beside which Machines no next one is made yet, because that failed a short while ago, and
// which attempts are at Machines that are still there.
func (o *Observation) recallPreCreations(failed history.Attempts) history.Attempts {
	present := map[types.UID]bool{}
	for i := range o.State.Machines {
		machine := o.Machines[o.State.Machines[i].Name]
		present[machine.UID] = true
		o.State.Machines[i].PreCreationBackoff = !failed.Due(machine.UID, o.At)
	}
	return failed.Only(present)
}

// kubeadmBegan reports whether kubeadm join began on the host of a Machine a short while ago, by the host's clock, and
// is not known to be over.
func kubeadmBegan(host *infrav1.QuoinHost, now time.Time) bool {
	operation := host.Status.Operation
	if operation == nil || operation.Step != infrav1.HostOperationStepJoin || operation.Since == nil {
		return false
	}
	age := now.Sub(operation.Since.Time)
	return age > -KubeadmIsNew && age < KubeadmIsNew
}
