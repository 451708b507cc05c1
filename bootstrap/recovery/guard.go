// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	_ "embed"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// PatchesDirectory is where kubeadm init finds our patch, unless its configuration names a directory with the user's
// patches.
const PatchesDirectory = "/etc/kubernetes/quoin/patches"

//go:embed guard.sh
var guardFunctions string

//go:embed guard.yaml
var guardPatch string

// GuardSteps keep the first member of a cluster from beginning it anew. By kubeadm that member begins a cluster, and
// all others join one that exists. That counts whenever etcd starts without data: when the disk under it is not mounted
// or was replaced, the first member alone begins an empty cluster, under the ids that it had, and its API server serves
// that.
//
// The step before kubeadm init adds a patch to the directory that kubeadm reads: the pod of etcd mounts a file, by a
// link of ours. The link leads to an empty file, and from the step behind kubeadm init on to a mark among the member's
// data. Without the mark neither the kubelet nor the container runtime starts etcd, and the member is replaced like any
// dead one.
//
// Both steps may run again after they were cut off. Hosts whose etcd is elsewhere are left alone.
func GuardSteps(patches string) (before, after run.Step) {
	functions := etcdFunctions + guardFunctions
	begin := strings.Join([]string{"guard_begin", ssh.Quote(patches), ssh.Quote(PatchesDirectory), ssh.Quote(guardPatch)},
		" ")
	before = run.Step{Name: "guard-etcd", Script: functions + begin + "\n"}
	after = run.Step{Name: "close-etcd-guard", Script: functions + "guard_close\n"}
	return before, after
}
