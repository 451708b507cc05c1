// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
)

// A wait that rests on a host may last as long as the host likes. So its message says what a person can do.
func TestAWaitThatRestsOnAHostSaysTheWayOut(t *testing.T) {
	begun := func(s *controlplane.State) {
		s.Recovery.State = controlplane.RecoveryBegun
		part(s, "b", succeeded)
		part(s, "c", succeeded)
	}
	whole := func(s *controlplane.State) facts {
		s.Recovery, s.Reachable = nil, true
		s.Etcd.Agreed = true
		for i := range s.Etcd.Members {
			s.Etcd.Members[i].Healthy, s.Etcd.Members[i].Problem = true, ""
		}
		return facts{State: *s}
	}
	for name, test := range map[string]struct {
		step func(s *controlplane.State) *controlplane.Step
		says string
	}{
		"a given up Machine's bootstrap runs": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			s.Machines[1].Bootstrapped = false
			part(s, "b", func(h *controlplane.RecoveryHost) { h.Succeeded, h.Ordered = false, false })
			return restore(facts{State: *s})
		}, "kubectl annotate -n metal quoinhost host-b quoin.cluster.x-k8s.io/abandon="},
		"the survivor is silent": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			part(s, "a", running)
			part(s, "a", silent)
			return restore(facts{State: *s})
		}, "under another id"},
		"the survivor's etcd does not answer": {func(s *controlplane.State) *controlplane.Step {
			begun(s)
			part(s, "a", succeeded)
			return restore(facts{State: *s})
		}, "under another id"},
		"a host is released": {func(s *controlplane.State) *controlplane.Step {
			s.Machines[2].Deleting, s.Machines[2].Hook, s.Machines[2].DrainHook = true, false, false
			return leave(whole(s))
		}, "Ready of its QuoinMachine"},
		"hosts lack images": {func(s *controlplane.State) *controlplane.Step {
			s.Hosts = []controlplane.Host{{Name: "a", Machine: "a", Provisioned: true, Requested: true}}
			return fetchAddons(whole(s))
		}, "AddonImagesPresent"},
		"hosts lack what runs": {func(s *controlplane.State) *controlplane.Step {
			s.AddonsVersion = "v1.35.0"
			s.Hosts = []controlplane.Host{{Name: "a", Machine: "a", Provisioned: true, RequestedRunning: true,
				Unfit: "unreachable"}}
			return holdAddons(whole(s), s.Machines[2])
		}, "cluster.x-k8s.io/remediate-machine"},
		"a kubelet is of another version": {func(s *controlplane.State) *controlplane.Step {
			for i := range s.Machines {
				s.Machines[i].Healthy, s.Machines[i].Serving, s.Machines[i].Kubelet = true, true, "v1.36.3"
			}
			s.Machines[1].Kubelet, s.ConfigVersion = "v1.35.0", "v1.36.3"
			return followVersion(whole(s))
		}, "cluster.x-k8s.io/remediate-machine"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := lossOf3()
			step := test.step(&s)
			g.Expect(step).NotTo(BeNil())
			g.Expect(step.Kind).To(Equal(controlplane.Wait))
			g.Expect(step.Message).To(ContainSubstring(test.says))
		})
	}
}

const replaced = "cluster.x-k8s.io/remediate-machine"

// endings are, by the reason of a wait, words of which its message has some: the bound, whoever ends it, or what a
// person can do. What somebody else says, such as why no window is open, has its tests there.
var endings = map[string][]string{
	controlplane.ReasonClusterDeleting:  {"once nothing else"},
	controlplane.ReasonWorkersFirst:     {"condition Deleting"},
	controlplane.ReasonMachinesGoing:    {"condition Deleting"},
	controlplane.ReasonVersionSkew:      {"use the form", "; set ", "go to v", "set spec.version", "too old", "to become"},
	controlplane.ReasonReplicas:         {"set it to", ": set "},
	controlplane.ReasonMachinesLost:     {"Delete the Cluster"},
	controlplane.ReasonCertificates:     {"condition CertificatesAvailable"},
	controlplane.ReasonInitializing:     {replaced, "delete it to start over"},
	controlplane.ReasonConnectionDown:   {"othing is changed until", "spec.lifecycleHooks", contradiction},
	controlplane.ReasonMachineNotReady:  {replaced, "condition Remediating", "is not replaced", quorum.MakeRoom},
	controlplane.ReasonDraining:         {"nodeDrainTimeoutSeconds"},
	controlplane.ReasonJoinRuns:         {"quoin.cluster.x-k8s.io/abandon"},
	controlplane.ReasonOtherHooks:       {"whoever set them"},
	controlplane.ReasonAPIServerLeaves:  {"for minutes at most"},
	controlplane.ReasonTerminating:      {"condition Ready of its QuoinMachine"},
	controlplane.ReasonOneAtATime:       {"condition Deleting"},
	controlplane.ReasonNoSpareHost:      {"register or free one", "Quarantined"},
	controlplane.ReasonBackup:           {"condition BackupHealthy"},
	controlplane.ReasonWindowClosed:     {"no window is open"},
	controlplane.ReasonTooFewToRemove:   {"spec.rollout.strategy"},
	controlplane.ReasonAddonImages:      {"AddonImagesPresent"},
	controlplane.ReasonAddonsUnknown:    {"tried again"},
	controlplane.ReasonRecovering:       {"in the time that its steps have", "under another id", quorum.MakeRoom},
	controlplane.ReasonRecoveryFetching: {"tried again"},
	controlplane.ReasonRecoveryFencing:  {"quoin.cluster.x-k8s.io/abandon"},
	controlplane.ReasonRecoveryRefused:  {"under another", "external", "Name another Machine", "exactly those", contradiction},
	controlplane.ReasonRecoveryFailed:   {"under another id", "take spec.recovery away"},
	controlplane.ReasonQuorumLost:       {"spec.recovery", "it is waited for, for"},
	controlplane.ReasonTopologyVersion:  {"condition TopologyReconciled"},
	controlplane.ReasonStaleClaim:       {"the host knows generation"},
	controlplane.ReasonQuorum: {"ago and may be back", "spec.lifecycleHooks", replaced, "condition Remediating", "is not replaced",
		"nothing is changed until", quorum.MakeRoom, quorum.CheckData, "Repair ", "Wait until", "Add members first", "Add a host",
		"Delete one Machine", "Bring back", "Remove one of", "another one serves the cluster's API"},
	controlplane.ReasonMemberWithoutMachine: {"kubectl annotate quoincontrolplane"},
	controlplane.ReasonRemediationSuspended: {replaced},
	controlplane.ReasonRetriesExhausted:     {replaced},
	controlplane.ReasonRetryLater:           {"the next attempt begins at"},
}

// endless says of a step that waits that its message does not say what ends that; empty when it does.
func endless(step controlplane.Step) string {
	if step.Kind != controlplane.Wait && step.Kind != controlplane.Refuse ||
		slices.ContainsFunc(endings[step.Reason], func(words string) bool { return strings.Contains(step.Message, words) }) {
		return ""
	}
	return fmt.Sprintf("nobody knows what ends it: %s", tell(step))
}

// Whatever the reasons of waits are in the sources, each has words that say how it ends; that messages have them is
// held by the scripts and by the property of any state.
func TestEachReasonToWaitHasAnEnd(t *testing.T) {
	g := NewWithT(t)
	values := valuesOfReasons(g)
	found := map[string]bool{}
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		g.Expect(err).NotTo(HaveOccurred())
		ast.Inspect(parsed, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			called, _ := call.Fun.(*ast.SelectorExpr)
			plain, _ := call.Fun.(*ast.Ident)
			if called != nil && slices.Contains([]string{"wait", "waitFor", "refusal"}, called.Sel.Name) ||
				plain != nil && plain.Name == "hold" {
				for _, argument := range call.Args {
					if reason, ok := argument.(*ast.SelectorExpr); ok && strings.HasPrefix(reason.Sel.Name, "Reason") {
						found[values[reason.Sel.Name]] = true
					}
				}
			}
			return true
		})
	}
	g.Expect(slices.Sorted(maps.Keys(found))).To(Equal(slices.Sorted(maps.Keys(endings))),
		"a reason without an end, or an end without a reason")
}

// valuesOfReasons are the reasons of steps by the names of their constants.
func valuesOfReasons(g *WithT) map[string]string {
	values := map[string]string{}
	parsed, err := parser.ParseFile(token.NewFileSet(), "../step.go", nil, 0)
	g.Expect(err).NotTo(HaveOccurred())
	ast.Inspect(parsed, func(node ast.Node) bool {
		if constant, ok := node.(*ast.ValueSpec); ok && strings.HasPrefix(constant.Names[0].Name, "Reason") {
			if literal, ok := constant.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				g.Expect(err).NotTo(HaveOccurred())
				values[constant.Names[0].Name] = value
			}
		}
		return true
	})
	return values
}

// answer tells a step of a script, which fails when nobody knows what ends it.
func answer(t *testing.T, step controlplane.Step) string {
	t.Helper()
	if wrong := endless(step); wrong != "" {
		t.Error(wrong)
	}
	return tell(step)
}
