// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/rapidtest"
)

// Whatever state a control plane is in, however impossible, there is one step, which says why and names a Machine that
// exists, or one that a recovery recorded, and what only waits agrees to no second one.
func TestAnyStateHasAStepThatIsWhole(t *testing.T) {
	rapidtest.CheckAll(t, 20000, func(t *rapid.T) {
		s := anyState(t)
		step := Assess(s).Step
		if wrong := cmp.Or(incomplete(s, step), endless(step), forgetful(s, step), hasty(s, step)); wrong != "" {
			t.Fatalf("%s, of\n%+v", wrong, s)
		}
	})
}

// hasty says which node a step lets go because no member is its own in a list that no quorum has confirmed: one that is
// behind may lack it.
func hasty(s controlplane.State, step controlplane.Step) string {
	if !s.StackedEtcd || s.Etcd.Agreed || step.Operation == controlplane.Delete || step.Operation == controlplane.Recover ||
		step.Kind != controlplane.ReleaseDrainHook && step.Kind != controlplane.ReleaseTerminateHook ||
		slices.ContainsFunc(s.Etcd.Members, func(m quorum.Member) bool { return m.Machine == step.Machine }) {
		return ""
	}
	for _, machine := range s.Machines {
		if machine.Name == step.Machine && (machine.Node != "" || machine.Joined) {
			return fmt.Sprintf("%+v lets a node go, and nobody knows whether its member votes", step)
		}
	}
	return ""
}

// forgetful says what a step takes or makes although voters work that no Machine runs: the objects are older than they.
// Somebody may have asked for that, by the deletion of the Cluster or by a recovery.
func forgetful(s controlplane.State, step controlplane.Step) string {
	if !s.StackedEtcd || !s.Etcd.Known || !s.Initialized || step.Operation == controlplane.Delete ||
		step.Operation == controlplane.Recover {
		return ""
	}
	// Nobody's, where no Machine runs it and no person has given it up.
	nobodys := slices.IndexFunc(s.Etcd.Members, func(m quorum.Member) bool {
		return m.Machine == "" && casts(s, m) && !slices.Contains(s.RemoveMembers, m.ID)
	})
	if nobodys < 0 {
		return ""
	}
	var member *quorum.Member
	for i := range s.Etcd.Members {
		if m := &s.Etcd.Members[i]; m.ID == step.Member || member == nil && step.Machine != "" && m.Machine == step.Machine {
			member = m
		}
	}
	switch step.Kind {
	case controlplane.CreateMachine, controlplane.AllowHostClaim, controlplane.PreCreateMachine:
		return fmt.Sprintf("%+v makes a Machine beside member %x, which nobody knows", step, s.Etcd.Members[nobodys].ID)
	case controlplane.DeleteMachine, controlplane.ReleaseDrainHook, controlplane.RemoveEtcdMember:
		ordered := member != nil && slices.Contains(s.RemoveMembers, member.ID) && member.Machine == ""
		works := member != nil && casts(s, *member)
		// A node without a member of its own may run the one that nobody knows, and so may one whose join still runs.
		works = works || s.StackedEtcd && slices.ContainsFunc(s.Machines, func(machine controlplane.Machine) bool {
			return machine.Name == step.Machine && member == nil && machine.HostClaimed &&
				(machine.Joining || machine.Node != "" || machine.Joined)
		})
		if works && !ordered {
			return fmt.Sprintf("%+v takes a voter beside member %x, which nobody knows", step, s.Etcd.Members[nobodys].ID)
		}
	}
	return ""
}

// casts, in words that are not the planner's: a voter that works, or of which nobody knows that it does not, or whose
// disk comes further.
func casts(s controlplane.State, member quorum.Member) bool {
	return !member.Learner && (member.Healthy || member.Full || member.Unasked ||
		member.Progress > 0 && member.Silent < s.DeadMemberTimeout)
}

// incomplete says what a step lacks.
func incomplete(s controlplane.State, step controlplane.Step) string {
	switch {
	case step.Kind == "":
		return "a step of no kind"
	case step.Kind != controlplane.Done && (step.Reason == "" || step.Message == ""):
		return fmt.Sprintf("%+v does not say why", step)
	case step.Waiting() && step.Then != nil:
		return fmt.Sprintf("%+v waits, and agrees to another", step)
	case step.FailureDomain != "" && !slices.ContainsFunc(s.Domains, func(domain controlplane.FailureDomain) bool {
		return domain.Name == step.FailureDomain && (domain.Free > 0 || s.Spare.Free == 0 && domain.Pending > 0)
	}):
		return fmt.Sprintf("%+v binds a Machine where no host is", step)
	case step.Machine != "" && step.Operation != controlplane.Recover && !named(s, step.Machine):
		return fmt.Sprintf("%+v is about a Machine that does not exist", step)
	}
	for _, other := range []*controlplane.Step{step.Then, step.Fallback} {
		if other == nil {
			continue
		}
		if wrong := incomplete(s, *other); wrong != "" {
			return wrong
		}
	}
	return ""
}

// named reports whether a Machine, or one that was pre-created, has the name.
func named(s controlplane.State, name string) bool {
	for _, machine := range s.Machines {
		if machine.Name == name {
			return true
		}
	}
	for _, machine := range s.PreCreated {
		if machine.Name == name {
			return true
		}
	}
	return false
}

// anyState is a control plane of which anything may be as it never is. How much of it differs from one that is well,
// differs too: what goes last in the order of the rules is met only where little does.
func anyState(t *rapid.T) controlplane.State {
	s := anyIllness(t)
	most := rapid.SampledFrom([]int{5, 15, 60, 200}).Draw(t, "order")
	rare := func(name string) bool { return rapid.IntRange(0, most).Draw(t, name) == most-1 }
	if rapid.IntRange(0, 3).Draw(t, "ill") != 1 {
		heal(&s, rare)
	}
	if machine := &s.Machines[0]; rapid.IntRange(0, 3).Draw(t, "one is kept") == 1 {
		machine.Deleting, machine.DrainHook, machine.AtTermination = true, true, false
	}
	if rapid.IntRange(0, 3).Draw(t, "one left its member") == 1 {
		s.Etcd.Members = append(s.Etcd.Members, quorum.Member{ID: 42, Name: "n42", Learner: rapid.Bool().Draw(t, "a learner"),
			Problem: "it does not answer", Silent: time.Duration(rapid.IntRange(0, 20).Draw(t, "its silence")) * time.Minute})
	}
	for i := range s.Machines {
		anyMachine(t, rare, &s, &s.Machines[i])
	}
	for i := range s.Etcd.Members {
		member := &s.Etcd.Members[i]
		member.Leader = i == 0
		member.Full, member.Unasked = rare("full"), rare("unasked")
		if rare("silent") {
			member.Healthy, member.Problem, member.Silent = false, "it does not answer",
				time.Duration(rapid.IntRange(0, 20).Draw(t, "silence"))*time.Minute
		}
		if member.Full {
			member.Problem = "its database is full: " + quorum.MakeRoom
		}
	}
	s.DeadMemberTimeout = 10 * time.Minute
	if rare("doubtful drain") {
		s.DrainInGrace = true
	}
	s.Name = "-n metal fleet"
	s.Replicas += rapid.IntRange(-1, 1).Draw(t, "scaled")
	s.Strategy = rapid.SampledFrom([]controlplane.Strategy{"", controlplane.Auto, controlplane.Surge,
		controlplane.RemoveFirst}).Draw(t, "strategy")
	s.Spare = controlplane.Spare{Free: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "free"), Pending: rapid.IntRange(0, 1).
		Draw(t, "coming"),
		Returning: rapid.IntRange(0, 1).Draw(t, "returning")}
	for i := range rapid.IntRange(0, 3).Draw(t, "domains") {
		s.Domains = append(s.Domains, controlplane.FailureDomain{Name: fmt.Sprintf("r%d", i),
			Free: min(s.Spare.Free, rapid.IntRange(0, 2).Draw(t, "free there")), Pending: rapid.IntRange(0, 1).Draw(t, "coming there")})
	}
	if rare("why") {
		s.Spare.Kind, s.Spare.Why = "hosts that role=control-plane selects", "3 in use"
	}
	s.InFlight = controlplane.InFlight{Operation: rapid.SampledFrom([]controlplane.Operation{"", controlplane.ScaleUp,
		controlplane.ScaleDown, controlplane.Rollout, controlplane.Remediate, controlplane.Repair, controlplane.Depart}).
		Draw(t, "doing"),
		Machine: fmt.Sprintf("m%d", rapid.IntRange(0, 5).Draw(t, "doing what"))}
	anyPeers(t, rare, &s)
	anySpec(t, rare, &s)
	anyHistory(t, rare, &s)
	if rare("recovery") || Assess(s).QuorumLoss != nil && rapid.Bool().Draw(t, "recovery of a loss") {
		s.Recovery = anyRecovery(t, rare, s)
	}
	return s
}

// heal makes most of what is ill well.
func heal(s *controlplane.State, rare func(string) bool) {
	for i := range s.Machines {
		machine := &s.Machines[i]
		if rare("stays ill") {
			continue
		}
		machine.Health = controlplane.Health{Born: machine.Health.Born, AnswersSince: machine.Health.Born,
			NodeReadySince: machine.Health.Born}
		machine.Healthy, machine.Serving = machine.Node != "", machine.Node != ""
	}
	for i := range s.Etcd.Members {
		if member := &s.Etcd.Members[i]; !rare("member stays ill") {
			member.Healthy, member.Machine = true, member.Name
		}
	}
	s.Etcd.Agreed = true
}

func anyMachine(t *rapid.T, rare func(string) bool, s *controlplane.State, machine *controlplane.Machine) {
	machine.Returns, machine.Registered = !rare("unlike"), machine.Node != ""
	machine.Preferred, machine.PreCreationBackoff = rare("preferred"), rare("none ahead")
	machine.Hook = !rare("no hook")
	machine.Undrained = machine.Deleting && rare("undrained")
	machine.DeletedAt = machine.Created
	if rare("drain ends") {
		machine.Deleting, machine.DrainHook, machine.AtTermination = true, false, true
	}
	if rare("ends") {
		machine.Deleting, machine.DrainHook, machine.Hook = true, false, false
		machine.HostClaimed = !rare("object only")
		s.Etcd.Members = slices.DeleteFunc(s.Etcd.Members, func(m quorum.Member) bool {
			return m.Machine == machine.Name && !rare("member stays")
		})
	}
	if rare("other hooks") {
		machine.OtherHooks = []string{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup"}
	}
	if machine.Deleting {
		machine.APIServer = rapid.SampledFrom([]controlplane.APIServer{"", controlplane.APIServerServing,
			controlplane.APIServerLeaving, controlplane.APIServerLeft,
			controlplane.APIServerStays}).Draw(t, "API server")
		machine.APIServerProblem = "its host does not answer"
	}
	if rare("joins") || machine.Node == "" && rapid.Bool().Draw(t, "kubeadm runs") {
		machine.Joining, machine.KubeadmBegan, machine.Bootstrapped, machine.Joined = true, !rare("long ago"), false, false
		machine.Healthy = false
	}
	if rare("no host yet") {
		machine.HostClaimed, machine.Node, machine.Joining, machine.Joined, machine.Bootstrapped = false, "", false, false,
			false
		machine.Healthy, machine.Serving, machine.Kubelet, machine.NoHost = false, false, "", rapid.Bool().
			Draw(t, "no host there")
		s.Etcd.Members = slices.DeleteFunc(s.Etcd.Members, func(m quorum.Member) bool { return m.Machine == machine.Name })
	}
	if rare("problem") {
		machine.Problem = "its Node is not Ready"
	}
	if rare("old version") {
		machine.Version = rapid.SampledFrom([]string{"v1.35.4", "v1.34.0", "v1.37.0"}).Draw(t, "version")
		machine.UpToDate, machine.Kubelet = false, machine.Version
	}
	if rare("domain lost") {
		machine.Health.DomainLost = "failure domain r1 is lost"
	}
	if rare("came back") {
		machine.Health.NodeReadySince = noon.Add(-5 * time.Minute)
	}
	if rapid.Bool().Draw(t, "replaces") {
		machine.Health.Replaces = &controlplane.Attempt{Machine: "m9", RetryCount: rapid.IntRange(0, 4).Draw(t, "retries"),
			Time: noon.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes since")) * time.Minute)}
	}
}

// anyPeers are the hosts, the Machines that were made ahead, and what is left of others.
func anyPeers(t *rapid.T, rare func(string) bool, s *controlplane.State) {
	for _, machine := range s.Machines {
		host := controlplane.Host{Name: machine.Name, Machine: machine.Name, Version: machine.Version,
			Provisioned: machine.Bootstrapped}
		host.Present, host.PresentRunning = !rare("image missing"), !rare("running image missing")
		host.Requested, host.RequestedRunning = !host.Present && rapid.Bool().Draw(t, "requested"), rapid.Bool().
			Draw(t, "running requested")
		s.Hosts = append(s.Hosts, host)
	}
	if rare("worker") {
		host := controlplane.Host{Name: "worker", Version: "v1.35.4", Provisioned: !rare("worker is new"),
			Requested: !rare("worker unasked"), Present: rapid.Bool().Draw(t, "worker ready")}
		if rare("worker unfit") {
			host.Unfit = "in maintenance"
		}
		s.Hosts = append(s.Hosts, host)
	}
	for i := range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(t, "preCreated") {
		preCreated := controlplane.PreCreatedMachine{Name: fmt.Sprintf("p%d", i)}
		if rare("unfit") {
			preCreated.Unfit = "it is outdated"
		}
		s.PreCreated = append(s.PreCreated, preCreated)
	}
	if rare("member ordered out") {
		s.RemoveMembers = []uint64{uint64(rapid.IntRange(1, 6).Draw(t, "member")), 42}
	}
	if rare("orphan Node") {
		s.OrphanNodes = []string{"n9"}
	}
	if rare("stale host") {
		s.StaleHosts = []controlplane.StaleHost{{Name: "metal/a",
			Message: "the host knows generation 5 of its claim, ours is 3"}}
	}
}

// anySpec is what is wanted, and what of the cluster besides its Machines is as wanted.
func anySpec(t *rapid.T, rare func(string) bool, s *controlplane.State) {
	if rare("wanted version") {
		s.Version = rapid.SampledFrom([]string{"v1.37.1", "v1.38.0", "v1.35.4", "latest"}).Draw(t, "wanted")
	}
	if rare("config behind") {
		s.ConfigVersion = "v1.35.4"
	}
	s.AddonsVersion = rapid.SampledFrom([]string{"", s.Version, "v1.35.4"}).Draw(t, "add-ons")
	s.AddonsCurrent = !rare("add-ons behind")
	if rare("add-ons unknown") {
		s.AddonsProblem = "kube-proxy could not be read"
	}
	s.Certificates, s.Reachable = !rare("no certificates"), !rare("unreachable")
	s.StackedEtcd = !rare("external etcd")
	switch {
	case rare("etcd unknown"):
		s.Etcd = quorum.Membership{Problem: "no member answered", Contradicts: rapid.Bool().Draw(t, "contradiction")}
	case rare("nobody confirmed the list"):
		s.Etcd.Agreed = false
	}
	if rare("no Machines") {
		s.Machines = nil
	}
	if rare("not initialized") {
		s.Initialized, s.Reachable = false, false
		s.Machines = s.Machines[:min(1, len(s.Machines))]
	}
	s.Deleting, s.ClusterDeleting = rare("deleting"), rare("Cluster deleting")
	s.Workers = rapid.IntRange(0, 1).Draw(t, "workers")
	s.Backup = controlplane.Backup{Wanted: rare("backup"), Recent: rapid.Bool().Draw(t, "recent"), Requested: rapid.Bool().
		Draw(t, "backup requested"), Last: "there is none yet"}
}

// anyHistory is what was done about ill Machines before.
func anyHistory(t *rapid.T, rare func(string) bool, s *controlplane.State) {
	if rare("deferred") {
		s.Remediation.Deferred = "the topology hands down another version"
	}
	if rare("pending") {
		s.Remediation.Pending = &controlplane.Attempt{Machine: "m9", Time: noon.Add(-time.Hour), RetryCount: 2}
	}
	if rare("most retries") {
		most := rapid.IntRange(0, 3).Draw(t, "most")
		s.Remediation.MaxRetry = &most
	}
	if rare("periods") {
		retry, healthy := 10*time.Minute, 30*time.Minute
		s.Remediation.RetryPeriod, s.Remediation.MinHealthyPeriod = &retry, &healthy
	}
}

// anyRecovery is a person's word to restore etcd from one of the Machines.
func anyRecovery(t *rapid.T, rare func(string) bool, s controlplane.State) *controlplane.Recovery {
	r := &controlplane.Recovery{ID: "r1", Machine: "m0", Hosts: map[string]controlplane.RecoveryHost{},
		State: rapid.SampledFrom([]controlplane.RecoveryState{controlplane.RecoveryAsked, controlplane.RecoveryFetching,
			controlplane.RecoveryBegun, controlplane.RecoveryComplete,
			controlplane.RecoveryVoid}).Draw(t, "state")}
	if rapid.Bool().Draw(t, "from a snapshot") {
		r.Snapshot, r.Delivery, r.Delivered = "monday.db", "the store does not answer", rapid.Bool().Draw(t, "delivered")
	}
	for _, machine := range s.Machines {
		if machine.Name != r.Machine && !rare("forgotten") {
			r.GiveUp = append(r.GiveUp, machine.Name)
		}
		host := controlplane.RecoveryHost{Name: "host-" + machine.Name, Gone: rare("host gone"), Silent: rare("host silent"),
			Ordered: rapid.Bool().Draw(t, "ordered")}
		host.Succeeded = host.Ordered && !rare("runs")
		host.Failed = host.Ordered && !host.Succeeded && rapid.Bool().Draw(t, "failed")
		r.Hosts[machine.Name] = host
	}
	return r
}
