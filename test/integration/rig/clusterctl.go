// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// initFlags are the flags by which `clusterctl init` is told what to install.
var initFlags = map[string]string{
	repository.CoreLabel:           "--core=cluster-api",
	repository.BootstrapLabel:      "--bootstrap=kubeadm",
	repository.ControlPlaneLabel:   "--control-plane=quoin",
	repository.InfrastructureLabel: "--infrastructure=quoin",

	repository.PeerControlPlaneLabel:   "--control-plane=kubeadm",
	repository.PeerInfrastructureLabel: "--infrastructure=docker",
}

// writeRepository chooses the managers' webhook ports and writes the components that call them.
func (r *Rig) writeRepository(context.Context) error {
	ports, err := freePorts(len(r.options.Providers))
	if err != nil {
		return err
	}
	webhookPorts := map[string]int{}
	for i, label := range r.options.Providers {
		webhookPorts[label] = ports[i]
	}
	r.Repository, err = repository.Write(repository.Options{
		Root:         r.Root,
		Base:         filepath.Join(r.Dir, "repository"),
		Mode:         repository.Envtest,
		Providers:    r.options.Providers,
		WebhookPorts: webhookPorts,
		Variables:    r.options.Variables,
	})
	if err != nil {
		return err
	}
	for _, written := range r.Repository.Providers {
		r.Managers[written.Label] = &Manager{
			Label: written.Label, certDir: written.CertDir, webhookPort: webhookPorts[written.Label],
		}
	}
	return nil
}

// Init runs `clusterctl init` for the rig's providers and returns what it printed.
func (r *Rig) Init(ctx context.Context) (string, error) {
	args := []string{"init"}
	for _, written := range r.Repository.Providers {
		args = append(args, initFlags[written.Label])
	}
	// Unnamed providers would be installed with their defaults, from the network.
	for label, flag := range map[string]string{
		repository.BootstrapLabel: "--bootstrap=-", repository.ControlPlaneLabel: "--control-plane=-",
	} {
		if !slices.Contains(r.options.Providers, label) {
			args = append(args, flag)
		}
	}
	_, stderr, err := r.Clusterctl(ctx, nil, args...)
	return stderr, err
}

// Clusterctl runs clusterctl against the rig, away from the user's own settings, and returns both its outputs.
// Variables of a template have the form NAME=value.
func (r *Rig) Clusterctl(ctx context.Context, variables []string, args ...string) (stdout, stderr string, err error) {
	home := filepath.Join(r.reaper.scratch, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", "", fmt.Errorf("clusterctl: %w", err)
	}
	var out, errOut bytes.Buffer
	command := exec.CommandContext(ctx, r.tools.clusterctl, append(args, "--config="+r.Repository.Config)...)
	command.Env = []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + r.Kubeconfig, r.reaper.mark,
	}
	command.Env = append(command.Env, variables...)
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		return out.String(), errOut.String(), fmt.Errorf("clusterctl %s: %w\n%s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), errOut.String(), nil
}
