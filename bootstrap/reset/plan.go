// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var (
	//go:embed steps.sh
	commonFunctions string
	//go:embed network.sh
	networkFunctions string
	//go:embed disks.sh
	diskFunctions string
	//go:embed before.sh
	beforeScript string
	//go:embed verify.sh
	verifyScript string
)

// stepFunctions is what the steps call.
var stepFunctions = inspect.TraceFunctions + inspect.LeftFunctions + artifacts.ImageFunctions + commonFunctions +
	networkFunctions

// verifyFunctions is what the verification calls.
var verifyFunctions = inspect.TraceFunctions + inspect.LeftFunctions

// BeforeStep notes what networks the host has, so that the reset at the end of the claim can tell what came since. It
// belongs before everything that brings pods onto the host.
func BeforeStep() run.Step { return run.Step{Name: "note-networks", Script: beforeScript} }

// Plan is idempotent: every step may run on a host that was reset already, or that was never a node. The owner record
// is left alone: release it after Verify found nothing. Call run.StopOthers first, with this plan's ID.
//
// Images that the host had before the claim stay, by their digests: they are a cache, and the next claim is likely to
// need them. Without a baseline, all of them stay.
func Plan(id string, o Options) run.Plan {
	// Without keepalived first, the address would move to a member that is going away, or stay with a dead API server.
	steps := keepalived.ReleaseSteps(o.VirtualAddresses)
	for _, step := range []struct{ name, function string }{
		{"stop-kubelet", "reset_kubelet"},
		// kubeadm takes the pods down as the kubelet would, sandbox and network with them. What ctr alone cannot do: a
		// task of a pod that lives makes it wait for good.
		{"kubeadm-reset", "reset_kubeadm"},
		{"remove-pods", "reset_pods"},
		{"unmount", "reset_mounts"},
		{"remove-network", "reset_network"},
		{"remove-files", "reset_files"},
	} {
		if step.name == "remove-files" {
			// After kubeadm, which is one of them, and before the list of them goes.
			steps = append(steps, artifacts.ReleaseSteps()...)
		}
		if step.name == "remove-pods" && !o.IgnoreChanges {
			step.function += "\nbaseline=" + ssh.Quote(o.Baseline) + "\nreset_images"
		}
		steps = append(steps, run.Step{Name: step.name, Script: stepFunctions + step.function + "\n"})
	}
	if len(o.WipeDisks) > 0 {
		// Late: a disk that must not be wiped ends the plan, and all else is then done.
		steps = append(steps, run.Step{Name: "wipe-disks", Script: inspect.DiskFunctions + diskFunctions +
			"keep=" + ssh.Quote(strings.Join(o.DataDisks, " ")) + "\nwipe_disks " + quoted(o.WipeDisks) + "\n"})
	}
	steps = append(steps, run.Step{Name: "forget-runs", Script: stepFunctions + "reset_runs\n"})
	return run.Plan{ID: id, Steps: steps}
}

// Verify reads back, in one exchange, what is left. No findings and no error means clean.
func Verify(ctx context.Context, host ssh.Host, o Options) (Verification, error) {
	ports := o.Ports
	if ports == nil {
		ports = DefaultPorts
		if o.ControlPlanePort != 0 && o.ControlPlanePort != apiServerPort {
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
	args = append(args, "--")
	script := verifyFunctions + verifyScript
	if len(o.WipeDisks) > 0 {
		args = append(args, quoted(o.WipeDisks))
		script = inspect.DiskFunctions + script
	}
	// What a host that was somebody's says of names and links ends no answer.
	end := "end " + rand.Text()
	script = "set -- " + strings.Join(args, " ") + "\n" + script + "echo " + ssh.Quote(end) + "\n"
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	if err != nil {
		return Verification{}, fmt.Errorf("verifying the reset: %w", err)
	}
	if result.Truncated {
		return Verification{}, fmt.Errorf("verifying the reset: %w", inspect.ErrTooMuch)
	}
	return parse(result.Stdout, end, o)
}

func quoted(words []string) string {
	out := make([]string, 0, len(words))
	for _, word := range words {
		out = append(out, ssh.Quote(word))
	}
	return strings.Join(out, " ")
}

const (
	// maxFindings and maxFinding bound what an answer can bring: a person reads the first few.
	maxFindings = 100
	maxFinding  = 1000
)

// shorten bounds a text of the host, between two characters.
func shorten(s string, bytes int) string { return strings.ToValidUTF8(s[:min(len(s), bytes)], "") }

// parse reads an answer whose last line is end.
func parse(output, end string, o Options) (Verification, error) {
	var v Verification
	var traces inspect.Traces
	output, complete := strings.CutSuffix("\n"+output, "\n"+end+"\n")
	for line := range strings.SplitSeq(strings.ToValidUTF8(output, "?"), "\n") {
		if traces.Take(line) {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "skipped "); ok && len(v.Skipped) < maxFindings {
			v.Skipped = append(v.Skipped, shorten(rest, maxFinding))
		}
		if rest, ok := strings.CutPrefix(line, "found "); ok && len(v.Findings) < maxFindings {
			what, fix, _ := strings.Cut(rest, "\t")
			v.Findings = append(v.Findings, Finding{What: shorten(what, maxFinding), Fix: shorten(fix, maxFinding)})
		}
	}
	if !complete {
		// Silence must never pass for cleanliness.
		return Verification{}, errors.New("verifying the reset: the host's answer is cut off; it is asked again")
	}
	v.compare(o, &traces)
	return v, nil
}
