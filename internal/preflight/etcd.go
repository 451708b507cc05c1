// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
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
	if etcd == nil || len(etcd.Members) == 0 || s.Now.Sub(etcd.ObservedTime.Time) > etcdTooOld {
		return "", []quoinv1.Finding{blocks(object, "Unobserved",
			fmt.Sprintf("the members of etcd were not read in the last %s", etcdTooOld), see)}, nil
	}
	var findings []quoinv1.Finding
	if !ptr.Deref(etcd.Agreed, false) {
		findings = append(findings, blocks(object, "NoQuorum", "no quorum confirms the list of members", see))
	}
	for _, member := range etcd.Members {
		name := "etcd member " + member.Name
		switch {
		case !ptr.Deref(member.Healthy, false):
			findings = append(findings, blocks(name, "Unhealthy", "is not healthy: "+member.Problem,
				"have its Machine replaced, or mend its host"))
		case member.Role == "Learner":
			findings = append(findings, blocks(name, "Learner", "does not vote yet", "wait until it votes"))
		case member.Machine == "":
			findings = append(findings, blocks(name, "NoMachine", "has no Machine, so nothing would upgrade it", see))
		}
	}
	message := fmt.Sprintf("%d members, of which %d more may fail", len(etcd.Members), ptr.Deref(etcd.Tolerates, 0))
	return message, findings, nil
}
