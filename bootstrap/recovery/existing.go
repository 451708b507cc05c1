// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	_ "embed"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

//go:embed existing.sh
var existingFunctions string

// ExistingStep follows kubeadm init. kubeadm tells the first member of a cluster to begin one, and all others that it exists.
// That counts whenever etcd starts without data: when the disk under it is not mounted or was replaced, the first member alone
// begins an empty cluster, under the ids that it had. Its API server then serves that, to whoever reaches it first. So it is
// told what the others are told, once it has data; without them it does not start, and is replaced like any dead member.
// Hosts whose etcd is elsewhere are left alone. The step may run again after it was cut off. It starts etcd and the API server again
// and waits for both, so it belongs right behind kubeadm init: before others join, and before the user's own commands.
func ExistingStep() run.Step {
	return run.Step{Name: "etcd-existing", Script: etcdFunctions + existingFunctions + "etcd_existing\n", Timeout: long}
}
