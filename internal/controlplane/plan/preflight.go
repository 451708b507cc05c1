// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// The checks before a change, each list in the order in which they are asked. A new one gets its place in a list.

// beforeAnything stops what must never be done, whatever the state.
func beforeAnything(s facts) *controlplane.Step { return s.first(refuseVersion, refuseReplicas) }

// beforeJoin makes what a join needs; nil when it is all there. The images of the version's add-ons go first, while
// nothing has changed yet: from the first new API server on, every day that they are missing somewhere is a risk.
func beforeJoin(s facts) *controlplane.Step {
	return s.first(requireCertificates, requireWrites, fetchAddons, configure)
}

// beforeRollout is asked while no Machine is missing: the next one that is replaced may be the first of its version.
func beforeRollout(s facts) *controlplane.Step {
	return s.first(awaitVersion, mixNoVersions, fitStrategy, waitForWindow, backUp)
}

// refuseVersion keeps API servers from a version that does not follow theirs. Machines that never joined do not count:
// a version that was mistyped can be taken back.
func refuseVersion(s facts) *controlplane.Step {
	for _, machine := range s.Machines {
		if !s.Initialized || !machine.HostClaimed || s.Etcd.Known && s.neverJoined(machine) {
			continue
		}
		if err := skew.ControlPlaneStep(machine.Version, s.Version); err != nil {
			return s.refusal(s.during(controlplane.Rollout), controlplane.ReasonVersionSkew, "%s", err)
		}
	}
	if _, err := skew.Parse(s.Version); err != nil {
		return s.refusal(s.during(controlplane.Rollout), controlplane.ReasonVersionSkew, "%s", err)
	}
	return nil
}

// refuseReplicas keeps etcd from numbers of members with which it would be lost, or no safer.
func refuseReplicas(s facts) *controlplane.Step {
	if s.Replicas < 1 && s.present() > 0 {
		return s.refusal(s.during(s.refill()), controlplane.ReasonReplicas,
			"spec.replicas is 0, which would lose the cluster's data: set it to 1 or more, or delete the Cluster")
	}
	if s.StackedEtcd && s.Replicas > 0 && s.Replicas%2 == 0 {
		return s.refusal(s.during(s.refill()), controlplane.ReasonReplicas,
			"spec.replicas is %d, but etcd on the control plane needs an odd number of members: set %d or %d",
			s.Replicas, s.Replicas-1, s.Replicas+1)
	}
	return nil
}

// unreachable says what to look at while the API does not answer. Certificates that have ended come first: until they
// are renewed no API server is believed, whatever its endpoint and its host do, and no Machine can be replaced for
// them.
func (s facts) unreachable() string {
	const begin = "the workload cluster's API does not answer, and nothing is changed until it does: "
	var ended []string
	for _, machine := range s.Machines {
		if machine.CertificatesEnded != "" {
			ended = append(ended, fmt.Sprintf("%s (%s)", machine.Name, machine.CertificatesEnded))
		}
	}
	switch {
	case len(ended) == 0 && s.Unanswered:
		only := ""
		if s.StackedEtcd {
			only = ", because it may hold the only data"
		}
		return fmt.Sprintf("waiting for the first answer of the workload cluster's API: kubeadm has ended on a Machine, "+
			"and nothing is changed until then. If it takes long, look at its endpoint, and at the API servers on the "+
			"hosts. Where a new cluster will not come, as with a wrong endpoint, delete the Cluster and make it again: none "+
			"of its Machines is replaced%s. Where the objects were restored, docs/disaster-recovery.md says how to restore "+
			"etcd", only)
	case len(ended) == 0:
		return begin + "look at its endpoint, and at the API servers on the hosts"
	}
	return begin + fmt.Sprintf("the certificates of Machine %s have ended. Renew them on one host after the other, with "+
		"sudo kubeadm certs renew all and a reboot; then take annotation "+
		"machine.cluster.x-k8s.io/certificates-expiry off their KubeadmConfigs. If it does not answer then, look at its "+
		"endpoint", list(ended))
}

// requireReachability makes sure that later rules know what they decide about.
func requireReachability(s facts) *controlplane.Step {
	if !s.Reachable {
		return s.wait(s.ongoing(), controlplane.ReasonConnectionDown, "%s", s.unreachable())
	}
	if s.StackedEtcd && !s.Etcd.Known {
		wayOut := "Nothing is changed until it can: make a control-plane host reachable"
		if s.Etcd.Contradicts {
			wayOut = contradiction
		}
		return s.wait(s.ongoing(), controlplane.ReasonConnectionDown, "etcd cannot be read: %s. %s", s.Etcd.Problem, wayOut)
	}
	return nil
}

const certificatesSay = "condition CertificatesAvailable says which are missing, and why"

func requireCertificates(s facts) *controlplane.Step {
	if s.Certificates {
		return nil
	}
	return s.wait(s.ongoing(), controlplane.ReasonCertificates,
		"the cluster's certificates are missing, so no Machine can join; "+certificatesSay)
}

// requireWrites makes nothing while an alarm of no member in the list keeps etcd from taking writes: each join would
// fail, and cost a host its reset.
func requireWrites(s facts) *controlplane.Step {
	if s.Etcd.Alarm == "" {
		return nil
	}
	return s.wait(s.ongoing(), controlplane.ReasonQuorum, "no Machine can join: %s. What ends that: %s", s.Etcd.Alarm,
		quorum.CheckData)
}

// fitStrategy refuses a spec that its strategy cannot roll.
func fitStrategy(s facts) *controlplane.Step { return s.strategy().fit(s) }

// waitUntilStable waits until every Machine works, except one that is about to leave anyway.
func waitUntilStable(s facts) *controlplane.Step {
	// For a join it is enough that the others serve; one that takes the place of another must be able to run pods too.
	leaving, required := "", s.outage
	scheduled := s.scheduled()
	switch {
	case len(scheduled) > s.Replicas:
		leaving, required = s.pick().Name, s.shortcoming
	case len(scheduled) == s.Replicas && s.outdated() > 0:
		leaving = s.mendedByReplacement()
	}
	for _, machine := range scheduled {
		problem := required(machine)
		if problem == "" || machine.Name == leaving {
			continue
		}
		return s.waitFor(machine, controlplane.ReasonMachineNotReady, "waiting for Machine %s: %s", machine.Name,
			s.explained(machine, problem))
	}
	return nil
}

// awaitVersion makes nothing of a version that the Cluster's topology is about to change.
func awaitVersion(s facts) *controlplane.Step {
	if s.AwaitedVersion == "" {
		return nil
	}
	return s.wait(s.during(s.refill()), controlplane.ReasonTopologyVersion, "no Machine is made or replaced now: %s; "+
		"condition TopologyReconciled of the Cluster says what holds it", s.AwaitedVersion)
}

// mixNoVersions keeps a rollout from beginning that would leave somebody behind.
func mixNoVersions(s facts) *controlplane.Step {
	return leaveNobodyBehind(s, s.during(controlplane.Rollout),
		fmt.Sprintf("%d of %d Machines are outdated", s.outdated(), len(s.scheduled())))
}

// leaveNobodyBehind keeps the first API server of a version from starting while kubelets are too old for it (R9,
// S1-17): admission judged them when the version was edited, and since then a pool may have changed, or nobody was
// there to judge. It is asked wherever a Machine is made, since each is made of that version. Once one runs, going on
// ends the mixture soonest. Etcd that a Machine would bring too early keeps it from being made whatever runs (R18): its
// version may be asked for alone. meanwhile begins the sentence.
func leaveNobodyBehind(s facts, operation controlplane.Operation, meanwhile string) *controlplane.Step {
	if s.LeftBehind == "" && s.EtcdBehind == "" {
		return nil
	}
	running, runs := s.newestRunning()
	switch {
	case runs && s.EtcdBehind == "":
		return nil
	case runs:
		return s.refusal(operation, controlplane.ReasonVersionSkew, "%s, but none is made: %s", meanwhile, s.EtcdBehind)
	}
	behind := s.LeftBehind
	if behind != "" && s.EtcdBehind != "" {
		behind += "; "
	}
	wayBack := ""
	if running != "" {
		wayBack = "; or set spec.version back to " + running
	}
	return s.refusal(operation, controlplane.ReasonVersionSkew, "%s, but none is made of %s, which no API server runs "+
		"yet: %s%s%s", meanwhile, s.Version, behind, s.EtcdBehind, wayBack)
}

// newestRunning is the newest version that API servers of Machines run beside the wanted one, and whether one runs
// that.
func (s facts) newestRunning() (running string, wanted bool) {
	for _, machine := range s.Machines {
		version := machine.Version
		if machine.Deleting {
			version = machine.Kubelet // one that was torn away has no version of its own that could be read
		}
		switch {
		case version == "" || machine.Node == "" && !machine.Joined:
		case version == s.Version:
			wanted = true
		case running == "" || skew.Older(running, version):
			running = version
		}
	}
	return running, wanted
}

// waitForWindow begins no replacement while no window is open. What does not work is replaced all the same, and so is
// everything while certificates of an outdated Machine are about to expire. What is begun never comes here.
func waitForWindow(s facts) *controlplane.Step {
	if s.Window == "" || s.shortcoming(s.pick()) != "" ||
		slices.ContainsFunc(s.scheduled(), func(machine controlplane.Machine) bool {
			return !machine.UpToDate && machine.CertificatesExpire
		}) {
		return nil
	}
	step := s.wait(s.during(controlplane.Rollout), controlplane.ReasonWindowClosed, "%d of %d Machines are outdated: %s",
		s.outdated(), len(s.scheduled()), s.Window)
	step.RecheckAfter = controlplane.RecheckIdle
	return step
}

// backUp sees to it that etcd can be restored before anything is replaced.
func backUp(s facts) *controlplane.Step {
	if !s.StackedEtcd || !s.Backup.Wanted || s.Backup.Recent {
		return nil
	}
	if !s.Backup.Requested {
		return change(controlplane.RequestBackup, controlplane.SnapshotEtcd, controlplane.ReasonBackup,
			"asking for a snapshot of etcd before the next Machine is replaced: %s", s.Backup.Last)
	}
	return s.wait(controlplane.SnapshotEtcd, controlplane.ReasonBackup,
		"waiting for a snapshot of etcd before the next Machine is replaced: %s; condition BackupHealthy says why none "+
			"comes, and without spec.backup none is waited for", s.Backup.Last)
}

// refuseStale changes nothing once a single host of the control plane has said that it serves a newer generation. The
// host itself keeps the stale side away, and so does each of the others once it has heard of the newer side; etcd, the
// API server and the objects here know no generations. That the other hosts have not heard of it yet says nothing: they
// may be silent.
func refuseStale(s facts) *controlplane.Step {
	if len(s.StaleHosts) == 0 {
		return nil
	}
	names := make([]string, 0, len(s.StaleHosts))
	for _, host := range s.StaleHosts {
		names = append(names, host.Name)
	}
	return s.refusal(controlplane.Repair, controlplane.ReasonStaleClaim,
		"nothing of this control plane is changed from here, because another management cluster manages it: QuoinHost %s: %s",
		list(names), s.StaleHosts[0].Message)
}
