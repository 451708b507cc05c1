// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var (
	//go:embed steps.sh
	stepFunctions string
	//go:embed verify.sh
	verifyScript string
)

// Plan is idempotent: every step may run on a host that was reset already, or that was never a node. The owner record is
// left alone: release it after Verify found nothing. Call run.StopOthers first, with this plan's ID.
//
// Images stay in containerd: they are a cache under checked names, and the next claim is likely to need them.
func Plan(id string, o Options) run.Plan {
	// Without keepalived first, the address would move to a member that is going away, or stay with a dead API server.
	steps := keepalived.ReleaseSteps(o.VirtualAddresses)
	for _, step := range []struct{ name, function string }{
		{"kubeadm-reset", "reset_kubeadm"},
		{"stop-kubelet", "reset_kubelet"},
		{"remove-pods", "reset_pods"},
		{"unmount", "reset_mounts"},
		{"remove-network", "reset_network"},
		{"remove-files", "reset_files"},
		{"forget-runs", "reset_runs"},
	} {
		steps = append(steps, run.Step{Name: step.name, Script: stepFunctions + step.function + "\n"})
	}
	return run.Plan{ID: id, Steps: steps}
}

// Verify reads back, in one exchange, what is left. No findings and no error means clean.
func Verify(ctx context.Context, host ssh.Host, o Options) ([]Finding, error) {
	ports := o.Ports
	if ports == nil {
		ports = DefaultPorts
		if o.ControlPlanePort != 0 && o.ControlPlanePort != 6443 {
			ports = append([]int{o.ControlPlanePort}, ports...)
		}
	}
	args := []string{ssh.Quote(run.DefaultRoot)}
	for _, port := range ports {
		args = append(args, strconv.Itoa(port))
	}
	args = append(args, "--")
	for _, address := range o.VirtualAddresses {
		args = append(args, address.Addr().String())
	}
	script := "set -- " + strings.Join(args, " ") + "\n" + verifyScript
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return nil, fmt.Errorf("verifying the reset: %w", err)
	}
	return parse(result.Stdout)
}

func parse(output string) ([]Finding, error) {
	var findings []Finding
	complete := false
	for line := range strings.SplitSeq(output, "\n") {
		if line == "end" {
			complete = true
		}
		if rest, ok := strings.CutPrefix(line, "found "); ok {
			what, fix, _ := strings.Cut(rest, "\t")
			findings = append(findings, Finding{What: what, Fix: fix})
		}
	}
	if !complete {
		// Silence must never pass for cleanliness.
		return nil, errors.New("verifying the reset: the host's answer is cut off; it is asked again")
	}
	return findings, nil
}
