// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// etcdTooOld is after how long nobody takes a membership for what it is now: it is read once a minute.
const etcdTooOld = 5 * time.Minute

// lookAtEtcd looks whether every member votes, is healthy and has a Machine, as the control plane last read it.
func lookAtEtcd(_ context.Context, s Subject) (string, []quoinv1.Finding, error) {
	switch {
	case s.ControlPlane == nil:
		return "", notLookedAt("the health of etcd"), nil
	case s.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined():
		return "external: its members are not looked after here", nil, nil
	}
	object := "QuoinControlPlane " + s.ControlPlane.Name
	etcd := s.ControlPlane.Status.Etcd
	const see = "see condition EtcdClusterHealthy of the control plane"
	if etcd == nil || len(etcd.Members) == 0 || controlplane.ReadingAge(etcd, s.Now) > etcdTooOld {
		return "", []quoinv1.Finding{blocks(object, "Unobserved",
			fmt.Sprintf("the members of etcd were not read in the last %s", etcdTooOld), see)}, nil
	}
	var findings []quoinv1.Finding
	if !ptr.Deref(etcd.Agreed, false) {
		findings = append(findings, blocks(object, "NoQuorum", "no quorum confirms the list of members", see))
	}
	for _, read := range etcd.Members {
		name, member := "etcd member "+read.Name, controlplane.MemberFrom(read)
		switch state := member.State(quorum.Forever); {
		case state == quorum.MemberLearner:
			findings = append(findings, blocks(name, "Learner", "does not vote yet", "wait until it votes"))
		case state != quorum.MemberHealthy:
			findings = append(findings, blocks(name, "Unhealthy", member.Shortcoming(), mends(member, state, see)))
		case member.Machine == "":
			findings = append(findings, blocks(name, "NoMachine", "has no Machine, so nothing would upgrade it", see))
		}
	}
	message := fmt.Sprintf("%d members, of which %d more may fail", len(etcd.Members), ptr.Deref(etcd.Tolerates, 0))
	return message, findings, nil
}

// mends says what helps a voter that is not healthy.
func mends(member quorum.Member, state quorum.MemberState, see string) string {
	switch {
	case state == quorum.MemberFull:
		return quorum.MakeRoom
	case member.Machine == "":
		return see
	case state == quorum.MemberWavering:
		return "wait a moment: it may be back. If it stays so, have its Machine replaced, or mend its host"
	case state == quorum.MemberSlow:
		return "wait until the disk of its host is quick again, or have its Machine replaced"
	}
	return "have its Machine replaced, or mend its host"
}
