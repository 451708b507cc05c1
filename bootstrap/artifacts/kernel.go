// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	_ "embed"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed kernel.sh
var kernelScript string

// kernelPaths are where the settings of the kernel lie.
type kernelPaths struct{ etc, proc string }

// hostKernel is replaced by tests alone, which run the steps on the machine they are on.
var hostKernel = kernelPaths{etc: "/etc", proc: "/proc"}

// kernelStep prepares the kernel for kubeadm and for pods.
func kernelStep(at kernelPaths) run.Step {
	return run.Step{Name: "kernel-settings",
		Script: strings.NewReplacer("@ETC@", ssh.Quote(at.etc), "@PROC@", ssh.Quote(at.proc)).Replace(kernelScript)}
}
