// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane/internal/before"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// renamed are the kinds of steps and the reasons that have another name now, by the one that they had before the
// refactoring.
var renamed = map[string]string{
	"CreateInit":     string(controlplane.CreateFirstMachine),
	"CreateJoin":     string(controlplane.CreateMachine),
	"PrepareMachine": string(controlplane.PreCreateMachine),
	"AdmitMachine":   string(controlplane.AllowHostClaim),
	"OpenDrain":      string(controlplane.ReleaseDrainHook),
	"ReleaseHook":    string(controlplane.ReleaseTerminateHook),
	"Evict":          string(controlplane.EvictPods),
	"GiveUpMachine":  string(controlplane.MarkForRemediation),
	"NotAdmitted":    controlplane.ReasonHostClaimNotAllowed,
	"StrayMember":    controlplane.ReasonOrphanedMember,
}

// renamedFields are the fields that have another name now, by the one that they had before.
var renamedFields = map[string]string{"Coming": "Pending", "Doing": "InFlight", "Otherwise": "Fallback",
	"Patience": "DeadMemberTimeout"}

// Whatever state a control plane is in, its next step is the one that it was before the refactoring. Histories and
// scripts are held to the same in their own tests. It goes with the package before, when the refactoring ends.
func TestStepsAreAsBefore(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		states := "20000"
		if os.Getenv("QUOIN_NIGHTLY") != "" {
			states = "1000000"
		}
		NewWithT(t).Expect(checks.Value.Set(states)).To(Succeed())
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, func(t *rapid.T) { decideAsBefore(t, anyState(t)) })
}

// A renamed reason is no difference, and a difference is found at any depth: else the comparison would prove nothing.
func TestTheComparisonWithBeforeFindsWhatDiffers(t *testing.T) {
	g := NewWithT(t)
	step := controlplane.Step{Kind: controlplane.PreCreateMachine, Operation: controlplane.Rollout,
		Fallback: &controlplane.Step{Kind: controlplane.Wait, Reason: controlplane.ReasonDraining},
		Attempt:  &controlplane.Attempt{Machine: "a", Time: noon}}
	want := *likeBefore[*before.Step](step)
	g.Expect(want.Kind).To(Equal(before.PrepareMachine))
	g.Expect(likeBefore[*before.Step](step)).To(Equal(&want))
	for name, change := range map[string]func(*before.Step){
		"kind":      func(s *before.Step) { s.Kind = before.Wait },
		"operation": func(s *before.Step) { s.Operation = before.ScaleUp },
		"attempt":   func(s *before.Step) { s.Attempt.RetryCount = 1 },
		"fallback":  func(s *before.Step) { s.Otherwise.Machine = "b" },
		"reason":    func(s *before.Step) { s.Otherwise.Reason = controlplane.ReasonQuorum },
	} {
		changed := likeBefore[*before.Step](step)
		change(changed)
		g.Expect(changed).NotTo(Equal(&want), name)
	}
	defer delete(renamed, "WasDraining")
	renamed["WasDraining"] = controlplane.ReasonDraining
	g.Expect(likeBefore[*before.Step](step).Otherwise.Reason).To(Equal("WasDraining"))
}

// decideAsBefore decides, and fails when that is another step than before the refactoring, or when what is told besides
// differs.
func decideAsBefore(t interface{ Fatalf(string, ...any) }, s controlplane.State) controlplane.Step {
	old := *likeBefore[*before.Snapshot](s)
	assessment := Assess(s)
	step, want := assessment.Step, before.Decide(old)
	if s.LeftBehind != "" || s.EtcdBehind != "" {
		return step // workers were nothing that it knew of, nor versions of etcd
	}
	if slices.ContainsFunc(s.Machines, func(m controlplane.Machine) bool { return !m.Returns }) && (want.Kind == before.PrepareMachine ||
		strings.Contains(step.Message, "could not be claimed again")) {
		return step // a Machine went first although its replacement could not have its host
	}
	if !s.Initialized && step.Reason == controlplane.ReasonHostGone {
		return step // a first Machine waited for ever where no host was left
	}
	if want.Otherwise != nil {
		// It was said what that is a part of only when it took the place of the step.
		want.Otherwise.Operation = want.Operation
	}
	got := *likeBefore[*before.Step](step)
	for _, pair := range [][2]any{
		{got, want},
		{step.MayProceed, want.Departs()},
		{step.RecheckAfter, recheckedBefore(s, old, want)},
		{likeBefore[*before.Step](step.Then), agreedBefore(old, want)},
		{step.WaitingOn(), renamedIn(want.WaitingOn())},
		{likeBefore[[]before.Ailment](assessment.Unhealthy), old.Ailing()},
		{facts{s}.suspended(), old.Suspended()},
		{likeBefore[*before.Loss](assessment.QuorumLoss), old.QuorumLoss()},
		{assessment.Unclaimed, unclaimedBefore(old)},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Fatalf("it was\n%+v\nand is\n%+v\nof\n%+v", pair[1], pair[0], s)
		}
	}
	return step
}

// unclaimedBefore are the voters without a Machine, and what was told of each.
func unclaimedBefore(old before.Snapshot) (unclaimed []controlplane.UnclaimedMember) {
	for _, member := range old.Unclaimed() {
		unclaimed = append(unclaimed, controlplane.UnclaimedMember{Member: member, Message: old.DescribeUnclaimed(member)})
	}
	return unclaimed
}

// recheckedBefore is how soon the controller looked again.
func recheckedBefore(s controlplane.State, old before.Snapshot, step before.Step) controlplane.Recheck {
	switch step.Kind {
	case before.RemoveFinalizer:
		return controlplane.RecheckNever
	case before.UpdateKubeadmConfig, before.MoveLeader, before.RemoveEtcdMember:
		return controlplane.RecheckSoon
	case before.Done:
		return controlplane.RecheckIdle
	case before.Wait, before.Refuse:
		switch {
		case s.DrainInGrace:
			return controlplane.RecheckDrain
		case old.AwaitsMember():
			return controlplane.RecheckMember
		}
		return controlplane.RecheckBusy
	}
	return controlplane.RecheckStep
}

// agreedBefore is what the controller agreed to together with a step; nil when that was nothing.
func agreedBefore(old before.Snapshot, step before.Step) *before.Step {
	if step.Kind != before.DeleteMachine {
		return nil
	}
	if next := before.Decide(old.Deleted(step.Machine)); next.Kind == before.OpenDrain && next.Machine == step.Machine {
		return &next
	}
	return nil
}

// renamedIn says what is awaited in the words of now.
func renamedIn(waitingOn string) string {
	reason, machine, about := strings.Cut(waitingOn, " ")
	if is, has := renamed[reason]; has {
		reason = is
	}
	if about {
		return reason + " " + machine
	}
	return reason
}

// likeBefore is the value in the types of before, field by field of the same name.
func likeBefore[To any](value any) To {
	var to To
	target := reflect.ValueOf(&to).Elem()
	from := reflect.ValueOf(value)
	if target.Kind() == reflect.Pointer && from.Kind() != reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
		target = target.Elem()
	}
	convert(target, from)
	return to
}

func convert(to, from reflect.Value) {
	switch {
	case from.Type() == to.Type():
		to.Set(from)
	case from.Kind() == reflect.Struct:
		for _, pair := range sharedFields(to.Type(), from.Type()) {
			convert(to.Field(pair[0]), from.Field(pair[1]))
		}
		for _, name := range []string{"Kind", "Reason"} {
			word := to.FieldByName(name)
			if !word.IsValid() {
				continue
			}
			for was, is := range renamed {
				if word.String() == is {
					word.SetString(was)
				}
			}
		}
	case from.Kind() == reflect.Pointer && !from.IsNil():
		to.Set(reflect.New(to.Type().Elem()))
		convert(to.Elem(), from.Elem())
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			convert(to.Index(i), from.Index(i))
		}
	case from.Kind() == reflect.Map && !from.IsNil():
		to.Set(reflect.MakeMap(to.Type()))
		for _, key := range from.MapKeys() {
			element := reflect.New(to.Type().Elem()).Elem()
			convert(element, from.MapIndex(key))
			to.SetMapIndex(key, element)
		}
	case from.Kind() == reflect.Pointer, from.Kind() == reflect.Slice, from.Kind() == reflect.Map:
	default:
		to.Set(from.Convert(to.Type()))
	}
}

var shared = map[[2]reflect.Type][][2]int{}

// sharedFields are the indices of the fields of a type of before, and of the same ones now. None of them is gone; what
// only the type of now has is new.
func sharedFields(to, from reflect.Type) [][2]int {
	pairs, known := shared[[2]reflect.Type{to, from}]
	if known {
		return pairs
	}
	for i := range to.NumField() {
		name := to.Field(i).Name
		field, has := from.FieldByName(name)
		if !has {
			field, has = from.FieldByName(renamedFields[name])
		}
		if !has {
			panic(name + " of " + from.Name() + " is gone")
		}
		pairs = append(pairs, [2]int{i, field.Index[0]})
	}
	shared[[2]reflect.Type{to, from}] = pairs
	return pairs
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
	machine.Preferred, machine.NoneAhead = rare("preferred"), rare("none ahead")
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
	for i := range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(t, "prepared") {
		prepared := controlplane.Prepared{Name: fmt.Sprintf("p%d", i)}
		if rare("unfit") {
			prepared.Unfit = "it is outdated"
		}
		s.Prepared = append(s.Prepared, prepared)
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
