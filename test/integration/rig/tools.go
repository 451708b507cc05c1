// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// tools are the paths of the programs that a rig runs.
type tools struct {
	clusterctl string
	// managers by provider label.
	managers map[string]string
}

// buildTools builds what the cache lacks, and our own manager from the working tree.
func (r *Rig) buildTools(ctx context.Context) error {
	r.tools.managers = map[string]string{}
	var err error
	if r.tools.clusterctl, err = r.buildTool(ctx, "clusterctl"); err != nil {
		return err
	}
	upstream := map[string]string{
		repository.CoreLabel:      "cluster-api-controller",
		repository.BootstrapLabel: "kubeadm-bootstrap-controller",

		repository.PeerControlPlaneLabel:   "kubeadm-control-plane-controller",
		repository.PeerInfrastructureLabel: "cluster-api-dev-controller",
	}
	for label, tool := range upstream {
		if !slices.Contains(r.options.Providers, label) {
			continue
		}
		if r.tools.managers[label], err = r.buildTool(ctx, tool); err != nil {
			return err
		}
	}
	own := filepath.Join(r.reaper.scratch, "quoin-manager")
	for _, label := range repository.OwnLabels() {
		if !slices.Contains(r.options.Providers, label) {
			continue
		}
		if _, built := r.tools.managers[label]; !built {
			if _, err := r.run(ctx, "go", "build", "-o", own, "."); err != nil {
				return err
			}
		}
		r.tools.managers[label] = own
	}
	return nil
}

func (r *Rig) buildTool(ctx context.Context, tool string) (string, error) {
	output, err := r.run(ctx, filepath.Join(r.Root, "hack", "tools", "build.sh"), tool)
	return strings.TrimSpace(output), err
}

// run runs a program in the checkout and returns its standard output.
func (r *Rig) run(ctx context.Context, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = r.Root
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
