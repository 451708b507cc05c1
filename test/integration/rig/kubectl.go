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
	"strings"
)

// Kubectl runs kubectl as the administrator, with the given standard input, and returns its standard output.
func (r *Rig) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, filepath.Join(r.assets, "kubectl"), args...)
	command.Env = []string{"HOME=" + r.reaper.scratch, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + r.Kubeconfig, r.reaper.mark}
	command.Stdin = strings.NewReader(input)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
