// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// provisioned keeps a node's host: it has one that leaves hand the virtual address over and end its API server, brings the add-on
// images that the control plane asks for, and looks whether the host is there. It never starts the bootstrap plan, whatever the host's boot ID says.
func (t *turn) provisioned() (result, error) {
	if t.host.Status.Facts == nil {
		return t.moveTo(infrav1.HostStateInspecting)
	}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
	if r, handled, err := t.recovering(); handled {
		return r, err
	}
	if o, err := t.handOver(); err != nil || o.pending {
		return o.result, err
	}
	if o := t.stopAPIServer(); o.pending {
		return o.result, nil
	}
	version, missing := t.missingAddons()
	if !missing {
		if usurped(t.host) != nil {
			// Only what the host shows next ends that.
			return t.probe()
		}
		t.condition(infrav1.HostAddonImagesCondition, metav1.ConditionTrue, infrav1.MachineImagesPresentReason, "")
		return t.probe()
	}
	id := t.attempt(addonsPlan(version))
	status, o := t.follow(id)
	if o.pending {
		return o.result, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if t.maintained("bringing the add-on images of " + version) {
			return t.probe()
		}
		wanted, err := t.addonArtifacts(version)
		if err != nil {
			return result{}, err
		}
		order := AddonsOrder{ID: id, Owner: t.ownerRecord(), Artifacts: wanted}
		if o := t.push(id, infrav1.HostAddonImagesCondition, PushOrder{order.Owner, order.Artifacts, artifacts.Addon}); o.pending {
			return o.result, nil
		}
		if o := start(t, id, func(ctx context.Context, host *infrav1.QuoinHost) error {
			return t.r.Exchanges.Addons(ctx, host, order)
		}); o.pending {
			return o.result, nil
		}
		return t.started(id)
	case run.Succeeded:
		t.holdsAddons(version)
		t.event("Normal", "AddonImagesPresent", "the images of the add-ons of %s are on the host", version)
		return after(0), nil
	case run.Failed, run.Interrupted:
		message := fmt.Sprintf("the add-on images of %s could not be brought to the host: %s", version, status.Message)
		t.condition(infrav1.HostAddonImagesCondition, metav1.ConditionFalse, infrav1.HostStepFailedReason, message)
		t.event("Warning", infrav1.HostStepFailedReason, "%s", message)
		t.record(nextAttempt(id, addonsPlan(version)), run.Status{Phase: run.NotStarted})
		return t.tryLater(), nil
	}
	t.condition(infrav1.HostAddonImagesCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
		fmt.Sprintf("add-on images of %s: %s", version, status.Message))
	return t.poll(id), nil
}

// missingAddons is the first wanted version whose add-on images are not on the host.
func (t *turn) missingAddons() (string, bool) {
	if t.claim.quoinMachine == nil {
		return "", false
	}
	for _, version := range slices.Sorted(slices.Values(t.claim.quoinMachine.Spec.AddonVersions)) {
		if !slices.Contains(t.host.Status.AddonVersions, version) {
			return version, true
		}
	}
	return "", false
}

// maxAddonVersions is what the API takes: one more, and the whole status would be refused.
const maxAddonVersions = 16

// holdsAddons notes that the images of the version's add-ons are on the host. A node that outlives many upgrades of its
// control plane forgets the earliest ones that nobody asks for any more.
func (t *turn) holdsAddons(version string) {
	if version == "" || slices.Contains(t.host.Status.AddonVersions, version) {
		return
	}
	var wanted []string
	if t.claim.quoinMachine != nil {
		wanted = t.claim.quoinMachine.Spec.AddonVersions
	}
	over := len(t.host.Status.AddonVersions) + 1 - maxAddonVersions
	kept := slices.DeleteFunc(slices.Clone(t.host.Status.AddonVersions), func(old string) bool {
		if over <= 0 || old == t.host.Status.Version || slices.Contains(wanted, old) {
			return false
		}
		over--
		return true
	})
	kept = append(kept, version)
	t.host.Status.AddonVersions = kept
}

// addonsPlan names the plan for a version. A plan's ID has no capitals and no plus sign, which a version may have.
func addonsPlan(version string) string {
	return "addons-" + strings.NewReplacer("+", "-", "_", "-").Replace(strings.ToLower(version))
}

// attempt returns the recorded attempt of the plan, else the plan itself. A plan that failed is never run again under its
// ID, so another attempt has another one.
func (t *turn) attempt(id string) string {
	if operation := t.host.Status.Operation; operation != nil && attemptOf(operation.ID, id) > 0 {
		return operation.ID
	}
	return id
}

// attemptOf is which attempt of plan an ID names: "reset-x" is 1, "reset-x-2" is 2; 0 when it names another plan.
func attemptOf(id, plan string) int {
	if id == plan {
		return 1
	}
	var n int
	if rest, ok := strings.CutPrefix(id, plan+"-"); ok {
		if _, err := fmt.Sscanf(rest, "%d", &n); err == nil && fmt.Sprint(n) == rest && n > 1 {
			return n
		}
	}
	return 0
}

// nextAttempt names the attempt of plan that follows id.
func nextAttempt(id, plan string) string {
	return fmt.Sprintf("%s-%d", plan, attemptOf(id, plan)+1)
}
