// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// missingAddons is the first wanted version whose add-on images are not on the host.
func (r *reconciliation) missingAddons() (string, bool) {
	if r.claim.quoinMachine == nil {
		return "", false
	}
	for _, version := range slices.Sorted(slices.Values(r.claim.quoinMachine.Spec.AddonVersions)) {
		if !slices.Contains(r.host.Status.AddonVersions, version) {
			return version, true
		}
	}
	return "", false
}

// maxAddonVersions is what the API takes: one more, and the whole status would be refused.
const maxAddonVersions = 16

// holdsAddons notes that the images of the version's add-ons are on the host. A node that outlives many upgrades of its
// control plane forgets the earliest ones that nobody asks for any more.
func (r *reconciliation) holdsAddons(version string) {
	if version == "" || slices.Contains(r.host.Status.AddonVersions, version) {
		return
	}
	var wanted []string
	if r.claim.quoinMachine != nil {
		wanted = r.claim.quoinMachine.Spec.AddonVersions
	}
	over := len(r.host.Status.AddonVersions) + 1 - maxAddonVersions
	kept := slices.DeleteFunc(slices.Clone(r.host.Status.AddonVersions), func(old string) bool {
		if over <= 0 || old == r.host.Status.Version || slices.Contains(wanted, old) {
			return false
		}
		over--
		return true
	})
	kept = append(kept, version)
	r.host.Status.AddonVersions = kept
}

// addonsPrefix begins the names of plans that bring the images of add-ons.
const addonsPrefix = "addons-"

// addonsPlan names the plan for a version. A plan's ID has no capitals and no plus sign, which a version may have.
func addonsPlan(version string) string {
	return addonsPrefix + strings.NewReplacer("+", "-", "_", "-").Replace(strings.ToLower(version))
}

// bringAddons brings the images of a version's add-ons to the host.
func (r *reconciliation) bringAddons(ctx context.Context, version string) (result, error) {
	id := r.attempt(addonsPlan(version))
	imports, claim := &r.controller.imports, importOf(r)
	if runs := r.host.Status.Operation; runs != nil && runs.ID == id && runs.Phase == infrav1.HostOperationRunning {
		imports.hold(claim, r.now)
	}
	status, o := r.follow(ctx, id)
	if o.pending {
		return o.result, nil
	}
	switch status.Phase {
	case run.NotStarted:
		if r.maintenanceGate("bringing the add-on images of " + version) {
			return r.probe(ctx), nil
		}
		if o, err := r.importsInTurn(ctx, version); err != nil || o.pending {
			return o.result, err
		}
		wanted, err := r.addonArtifacts(ctx, version)
		if err != nil {
			return result{}, err
		}
		order := AddonsOrder{ID: id, Owner: r.ownerRecord(), Artifacts: wanted}
		files := PushOrder{order.Owner, order.Artifacts, artifacts.Addon}
		if o := r.push(ctx, id, infrav1.HostAddonImagesCondition, files); o.pending {
			return o.result, nil
		}
		if o := start(ctx, r, id, order, r.controller.Provisioner.Addons); o.pending {
			return o.result, nil
		}
		return r.started(id)
	case run.Succeeded:
		imports.release(claim)
		r.holdsAddons(version)
		r.event("Normal", "AddonImagesPresent", "the images of the add-ons of %s are on the host", version)
		return after(0), nil
	case run.Failed, run.Interrupted:
		imports.release(claim)
		message := fmt.Sprintf("the add-on images of %s could not be brought to the host: %s", version, status.Message)
		r.setFalse(infrav1.HostAddonImagesCondition, infrav1.HostStepFailedReason, message)
		r.event("Warning", infrav1.HostStepFailedReason, "%s", message)
		r.record(nextAttempt(id, addonsPlan(version)), run.Status{Phase: run.NotStarted})
		return r.tryLater(), nil
	}
	r.setFalse(infrav1.HostAddonImagesCondition, infrav1.HostStepRunningReason,
		fmt.Sprintf("add-on images of %s: %s", version, status.Message))
	return r.poll(), nil
}
