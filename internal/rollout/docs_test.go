// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/lifecycle"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/docstest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// What the documentation shows is what happens: its example is the rollout of testdata/scripts/documented.txt.
func TestTheDocumentedRolloutHappens(t *testing.T) {
	g, example := NewWithT(t), &quoinv1.RolloutPolicy{}
	g.Expect(docstest.Happens(t, "../../docs/rollouts.md", "testdata/scripts/documented.txt", example)).To(Equal(2))
	g.Expect(example.Spec.PauseAfter).To(Equal(quoinv1.RolloutPauseCanary))
}

// standIn is a kubectl with as much of it as the documentation's release commands need, over a folder of Machines: get
// of all and of one, replace, and annotate that takes annotations off.
const standIn = `#!/usr/bin/env bash
set -euo pipefail
cd "$MACHINES"
case "$*" in
"get machines -A -o json") jq -s '{items: .}' ./*.json ;;
"-n team get machine "*" -o json") cat "$5.json" ;;
"replace -f -") replaced=$(cat); printf '%s' "$replaced" >"$(jq -r .metadata.name <<<"$replaced").json" ;;
"annotate machines -A --all "*- | "-n team annotate machine "*-)
  names=$(ls ./*.json)
  [ "$1" = annotate ] && shift 4 || { names="$5.json"; shift 5; }
  for name in $names; do
    for key; do
      less=$(jq --arg key "${key%-}" 'del(.metadata.annotations[$key])' "$name"); printf '%s' "$less" >"$name"
    done
  done ;;
*) echo "kubectl $*: the test knows no such command" >&2; exit 2 ;;
esac
`

// What the page says to do where the provider is gone leaves no gate, hook or mark of rollouts, has health checks look at
// each Machine again that waited, and leaves what is of others.
func TestTheReleaseCommandsRelease(t *testing.T) {
	programtest.Need(t, "jq")
	g, folder, bin := NewWithT(t), t.TempDir(), t.TempDir()
	ours := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ours", UID: "1"}}
	SetGate(ours, true)
	SetHooks(ours)
	SetMark(ours, true)
	ours.Annotations = lifecycle.Sparing(ours, true)
	both := ours.DeepCopy()
	both.Name = "both"
	theirs := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "theirs", UID: "3",
		Annotations: map[string]string{clusterv1.DeleteMachineAnnotation: "a person's",
			clusterv1.MachineSkipRemediationAnnotation:               ours.Annotations[clusterv1.MachineSkipRemediationAnnotation],
			clusterv1.PreDrainDeleteHookAnnotationPrefix + "/theirs": "somebody"}}}
	theirs.Spec.ReadinessGates = []clusterv1.MachineReadinessGate{{ConditionType: "Theirs"}}
	both.Spec.ReadinessGates = append(both.Spec.ReadinessGates, theirs.Spec.ReadinessGates...)
	// A person took the annotation over that was ours, by a value of their own.
	over := ours.DeepCopy()
	over.Name, over.Annotations[clusterv1.MachineSkipRemediationAnnotation] = "over", "a person's"
	file := func(machine *clusterv1.Machine) string { return filepath.Join(folder, machine.Name+".json") }
	for _, machine := range []*clusterv1.Machine{ours, both, over, theirs} {
		raw, err := json.Marshal(machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.WriteFile(file(machine), raw, 0o600)).To(Succeed())
	}
	g.Expect(os.WriteFile(filepath.Join(bin, "kubectl"), []byte(standIn), 0o700)).To(Succeed()) //nolint:gosec // it is run
	commands := docstest.Commands(t, "../../docs/rollouts.md", "kubectl annotate machines -A --all")
	g.Expect(commands).To(HaveLen(1))
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands[0]) //nolint:gosec // the page's own
	shell.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MACHINES="+folder)
	said, err := shell.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", said)
	read := func(machine *clusterv1.Machine) *clusterv1.Machine {
		after := &clusterv1.Machine{}
		raw, err := os.ReadFile(file(machine))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal(raw, after)).To(Succeed())
		return after
	}
	for machine, keeps := range map[*clusterv1.Machine]map[string]string{ours: nil, both: nil,
		over: {clusterv1.MachineSkipRemediationAnnotation: "a person's"}} {
		after := read(machine)
		g.Expect(Gated(after) || Hooked(after) || Marked(after) || lifecycle.Spared(after)).To(BeFalse())
		g.Expect(maps.Equal(after.Annotations, keeps)).To(BeTrue(), "%s keeps %v", machine.Name, after.Annotations)
	}
	g.Expect(read(ours).Spec.ReadinessGates).To(BeEmpty())
	g.Expect(read(both).Spec.ReadinessGates).To(Equal(theirs.Spec.ReadinessGates))
	g.Expect(read(theirs)).To(Equal(theirs))
}
