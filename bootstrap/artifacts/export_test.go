// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// SetKernel points the install steps at another kernel than this machine's, and returns what it was.
func SetKernel(etc, proc string) (restore func()) {
	before := hostKernel
	hostKernel = kernelPaths{etc: etc, proc: proc}
	return func() { hostKernel = before }
}

// KernelStep is the step for the settings below these directories.
func KernelStep(etc, proc string) run.Step { return kernelStep(kernelPaths{etc: etc, proc: proc}) }

// SetContainerd points the check of containerd's room at another directory.
func SetContainerd(root string) (restore func()) {
	before := containerdRoot
	containerdRoot = root
	return func() { containerdRoot = before }
}

// SetRoot points what is asked outside of plans at another directory.
func SetRoot(root string) (restore func()) {
	before := hostRoot
	hostRoot = root
	return func() { hostRoot = before }
}

// SetCNIPlugins points the look for plugins at another directory.
func SetCNIPlugins(dir string) (restore func()) {
	before := cniPlugins
	cniPlugins = []string{dir}
	return func() { cniPlugins = before }
}

// Lacks asks the host what it lacks, and returns how many files that are.
func Lacks(ctx context.Context, host ssh.Host, files []File) (int, Progress, error) {
	lacking, progress, err := lacks(ctx, host, files)
	return len(lacking), progress, err
}
