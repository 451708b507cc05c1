// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// recordKubelet notes for the reset that the kubelet was enabled.
const recordKubelet = `quoin_record "unit kubelet.service" && `

// provisionPlan is the order of a host's way to a node: the version, what the kubelet must know before it registers,
// the virtual address before kubeadm asks for it, and the bootstrap data. The kubelet of a worker is enabled last, so
// that a host that reboots in between does not come up with half a node. That of a control plane is enabled before
// kubeadm: from the moment that its etcd member votes, the others may not do without it, and only the kubelet brings it
// back after a reboot.
func provisionPlan(order ProvisionOrder, supply *artifacts.Supply) (run.Plan, error) {
	// Whatever fails later, a host that boots again finds nothing of it undone.
	plan := run.Plan{ID: order.ID, Steps: []run.Step{cloudinit.GuardStep(), reset.BeforeStep()}}
	steps, files, err := supply.Plan(order.Role)
	if err != nil {
		return plan, &ArtifactsError{Place: order.Artifacts.Place(), Err: err}
	}
	plan.Files, plan.Steps = append(plan.Files, files...), append(plan.Steps, steps...)
	plan.Steps = append(plan.Steps, kubeletEnvironment(order))
	if order.VirtualAddress != nil {
		steps, err := keepalived.InstallSteps(*order.VirtualAddress, keepalived.Ownership{ClaimedByUs: order.ClaimedByUs})
		if err != nil {
			return plan, fmt.Errorf("virtual address: %w", err)
		}
		plan.Steps = append(plan.Steps, steps...)
	}
	if order.Role == artifacts.ControlPlane {
		plan.Steps = append(plan.Steps, run.Step{Name: "enable-control-plane", Script: recordKubelet +
			"systemctl enable kubelet.service"})
	}
	files, steps, err = bootstrapSteps(order)
	if err != nil {
		return plan, err
	}
	plan.Files, plan.Steps = append(plan.Files, files...), append(plan.Steps, steps...)
	plan.Steps = append(plan.Steps,
		run.Step{Name: "enable-kubelet", Script: recordKubelet + "systemctl enable --now kubelet.service"},
		run.Step{Name: "bootstrap-sentinel", Script: "umask 022; mkdir -p /run/cluster-api && echo success " +
			">/run/cluster-api/bootstrap-success.complete"},
	)
	return plan, plan.Validate()
}

// bootstrapSteps are those of the bootstrap data. Around kubeadm init stands the guard of the first etcd member: it is
// closed before others join, and before the user's own commands.
func bootstrapSteps(order ProvisionOrder) ([]run.File, []run.Step, error) {
	bootstrap, patches, err := order.Bootstrap.PatchInit(recovery.PatchesDirectory)
	if err != nil {
		return nil, nil, err
	}
	files, steps, err := bootstrap.Steps(cloudinit.Options{Disks: order.Disks})
	if err != nil || patches == "" {
		return files, steps, err
	}
	before, after := recovery.GuardSteps(patches)
	at := slices.IndexFunc(steps, func(step run.Step) bool { return step.Name == cloudinit.InitStep })
	return files, slices.Replace(steps, at, at+1, before, steps[at], after), nil
}

// kubeletEnvironment gives the kubelet its provider ID and node addresses; the unit reads the file.
func kubeletEnvironment(order ProvisionOrder) run.Step {
	args := []string{"--provider-id=" + order.ProviderID}
	if len(order.NodeAddresses) > 0 {
		args = append(args, "--node-ip="+strings.Join(order.NodeAddresses, ","))
	}
	return artifacts.KubeletArgsStep(args)
}
