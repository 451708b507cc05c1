// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Each file tells the story of one upgrade: what it writes and what it waits for, with what happens meanwhile.
//
//	fleet to=v1.36.3 [via=..] plane=v1.34.4,v1.34.4 pool=blue:v1.34.4 [policy=..] [topology=..] [manual] [unrecorded]
//	run [for=1h]     until nothing moves, or the time is over
//	once             until the next write
//	status           what people see
//	set <object> <version>, pool <name:version>, block <why>, pass, pause, resume, kill (the status is lost), approve,
//	skip <check> <why>, via .., first ..
//	windows          of the RolloutPolicy, as YAML
//	freeze           no node is replaced any more
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var f *fleet
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "fleet" {
				f = fleetOf(d)
				return ""
			}
			return f.command(t, d)
		})
	})
}

func fleetOf(d *datadriven.TestData) *fleet {
	f := newFleet("")
	f.plane.name = "QuoinControlPlane prod"
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "to":
			f.upgrade.Spec.Version = arg.Vals[0]
		case "via":
			f.upgrade.Spec.Via = arg.Vals
		case "plane":
			f.plane.nodes, f.plane.spec, f.addons = arg.Vals, arg.Vals[0], arg.Vals[0]
		case "pool":
			f.pool(arg.Vals[0])
		case "policy":
			f.policies, _ = skew.Policies(arg.Vals[0])
		case "topology":
			f.topology, f.topologyVersion = arg.Vals, f.plane.spec
		case "manual":
			f.upgrade.Spec.Approve = quoinv1.UpgradeApprovalManual
		case "asneeded":
			f.upgrade.Spec.Workers = quoinv1.UpgradeWorkersAsNeeded
		case "deadline":
			seconds, _ := strconv.Atoi(arg.Vals[0])
			f.upgrade.Spec.DeadlineSeconds = ptr.To(int32(min(seconds, 1<<30)))
			f.upgrade.CreationTimestamp = metav1.NewTime(f.now)
		case "unrecorded":
			f.record = false
		default:
			panic(arg.Key)
		}
	}
	return f
}

// pool adds one of two nodes: "blue:v1.35.4".
func (f *fleet) pool(text string) {
	name, version, _ := strings.Cut(text, ":")
	f.pools = append(f.pools, pool{name: name, spec: version, nodes: []string{version, version}})
}

func (f *fleet) command(t *testing.T, d *datadriven.TestData) string {
	words := strings.Fields(strings.TrimSpace(d.Input))
	switch d.Cmd {
	case "run", "once":
		limit := 240 * time.Hour
		if d.HasArg("for") {
			text := ""
			d.ScanArgs(t, "for", &text)
			limit, _ = time.ParseDuration(text)
		}
		return f.tell(limit, d.Cmd == "once")
	case "set":
		*f.field(strings.Join(words[:len(words)-1], " ")) = words[len(words)-1]
	case "pool":
		f.pool(words[0])
	case "block":
		f.blocks = strings.Join(words, " ")
	case "pass":
		f.blocks = ""
	case "pause", "resume":
		f.upgrade.Spec.Paused = ptr.To(d.Cmd == "pause")
	case "kill":
		f.upgrade.Status = quoinv1.ClusterUpgradeStatus{}
	case "approve":
		f.upgrade.Spec.ApprovedPlan = f.upgrade.Status.Plan.ID
	case "skip":
		f.upgrade.Spec.Skip = []quoinv1.SkippedCheck{{Name: words[0], Reason: strings.Join(words[1:], " ")}}
	case "via":
		f.upgrade.Spec.Via = words
	case "asneeded":
		f.upgrade.Spec.Workers = quoinv1.UpgradeWorkersAsNeeded
	case "first":
		f.first = strings.Join(words, " ")
	case "freeze":
		f.frozen = true
	case "windows":
		f.windows = nil
		if err := yaml.UnmarshalStrict([]byte(d.Input), &f.windows); err != nil {
			t.Fatal(err)
		}
	case "status":
		return f.status()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

// tell is what the upgrade writes and says, each when it changes.
func (f *fleet) tell(limit time.Duration, once bool) string {
	var story strings.Builder
	end, said := f.now.Add(limit), ""
	for !f.now.After(end) {
		before := f.now
		d := f.step(false)
		if why := f.illegal(); why != "" {
			fmt.Fprintf(&story, "ILLEGAL: %s\n", why)
		}
		if progressing := meta.FindStatusCondition(d.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition); d.Change == nil &&
			progressing.Message != said {
			said = progressing.Message
			fmt.Fprintf(&story, "  %s\n", strings.ReplaceAll(strings.TrimSpace(said), "\n", "\n  "))
		}
		if d.Change != nil {
			fmt.Fprintf(&story, "%s %s\n", f.clock(before), f.writes[len(f.writes)-1])
			if once {
				return story.String()
			}
			continue
		}
		if stalled := meta.FindStatusCondition(d.Status.Conditions, quoinv1.ClusterUpgradeStalledCondition); stalled.Status == "True" &&
			!strings.Contains(story.String(), "STALLED") {
			fmt.Fprintf(&story, "%s STALLED: %s\n", f.clock(before), stalled.Message)
		}
		if meta.FindStatusCondition(d.Status.Conditions, quoinv1.ClusterUpgradeProgressingCondition).Reason ==
			quoinv1.PlannedReason {
			continue
		}
		switch {
		case f.advance():
		case d.Again > 0 && !f.now.Add(d.Again).After(end):
			f.now = f.now.Add(d.Again)
		default:
			return story.String()
		}
	}
	return story.String()
}

// clock shows the day as well where windows make it matter.
func (f *fleet) clock(at time.Time) string {
	if len(f.windows) > 0 {
		return at.Format("Mon 15:04:05")
	}
	return at.Format("15:04:05")
}

// status is what people see of it.
func (f *fleet) status() string {
	var text strings.Builder
	status := f.upgrade.Status
	fmt.Fprintf(&text, "%s  record %s -> %s", status.Step, f.statusVersion, f.specVersion)
	for _, v := range status.Versions {
		fmt.Fprintf(&text, "  %s: %d", v.Version, v.Replicas)
	}
	fmt.Fprintf(&text, "  version %q\n", status.Version)
	if status.Plan != nil && status.Plan.Changed != "" {
		fmt.Fprintf(&text, "changed: %s\n", status.Plan.Changed)
	}
	for _, step := range status.Steps {
		took := ""
		if !step.CompletionTime.IsZero() {
			took = step.CompletionTime.Sub(step.StartTime.Time).String()
		}
		fmt.Fprintf(&text, "%-8s %-60s %-8s %s\n", step.State, line(step), took, step.Why)
	}
	return text.String()
}
