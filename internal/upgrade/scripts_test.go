// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// Each file tells the story of one upgrade: what it writes and what it waits for, with what happens meanwhile.
//
//	fleet to=v1.36.3 [via=..] plane=v1.34.4,v1.34.4 pool=blue:v1.34.4 [policy=..] [topology=..] [manual] [unrecorded]
//	      [other=..]  kubelets of no pool
//	run [for=1h]     until nothing moves, or the time is over
//	once             until the next write
//	status           what people see
//	set <object> <version>, pool <name:version>, block <why>, pass, pause, resume, kill (the status is lost), approve,
//	skip <check> <why>, via .., first ..
//	plan             what people see of what is left, before and while it is done
//	windows          of the RolloutPolicy, as YAML
//	rollout          the spec of the RolloutPolicy, as YAML
//	pools            paused=.. ondelete=..
//	move <host>      the first Machine of the control plane is on another host
//	said             the conditions, and what steps say
//	cluster          gone, deleting, new or there
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
		case "other":
			f.others = arg.Vals
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
		case "unchecked":
			f.proxy, f.pathSkipped, f.addons = true, true, arg.Vals[0]
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
	case "cluster":
		f.cluster = words[0]
	case "said":
		return f.said()
	case "windows":
		f.windows = nil
		if err := yaml.UnmarshalStrict([]byte(d.Input), &f.windows); err != nil {
			t.Fatal(err)
		}
	case "rollout":
		f.rollout = quoinv1.RolloutPolicySpec{}
		if err := yaml.UnmarshalStrict([]byte(d.Input), &f.rollout); err != nil {
			t.Fatal(err)
		}
		f.windows = f.rollout.Windows
	case "pools":
		for i := range f.pools {
			f.pools[i].paused, f.pools[i].onDelete = argIs(d, "paused", f.pools[i].name), argIs(d, "ondelete", f.pools[i].name)
		}
	case "move":
		spare := words[0]
		f.plane.replace(0, &spare)
		f.plane.nodes[0] = f.plane.nodes[1]
	case "plan":
		return f.shown()
	case "status":
		return f.status()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return ""
}

func argIs(d *datadriven.TestData, key, value string) bool {
	return slices.ContainsFunc(d.CmdArgs, func(arg datadriven.CmdArg) bool {
		return arg.Key == key && slices.Contains(arg.Vals, value)
	})
}

// shown is what people see of the steps that are left.
func (f *fleet) shown() string {
	var text strings.Builder
	plan := f.upgrade.Status.Plan
	fmt.Fprintf(&text, "plan %s\n", plan.ID)
	said := func(holds []quoinv1.UpgradeHold) {
		for _, hold := range holds {
			fmt.Fprintf(&text, "  %s: %s\n", hold.Type, hold.Message)
		}
	}
	said(plan.Holds)
	for _, step := range f.upgrade.Status.Steps {
		if step.State == quoinv1.UpgradeStepDone {
			continue
		}
		fmt.Fprintln(&text, line(step))
		switch machines := step.Machines; {
		case machines != nil:
			more := map[bool]string{true: " .."}[int(*machines.Count) > len(machines.Hosts)]
			fmt.Fprintf(&text, "  %s %d: %s%s\n", step.Change, *machines.Count, strings.Join(machines.Hosts, ", "), more)
		case step.Change != "":
			fmt.Fprintf(&text, "  %s\n", step.Change)
		}
		said(step.Holds)
	}
	return text.String()
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
	for _, of := range []struct {
		what     string
		versions []clusterv1.StatusVersion
	}{{"control plane", status.ControlPlaneVersions}, {"all", status.Versions}} {
		fmt.Fprintf(&text, "  %s", of.what)
		for _, v := range of.versions {
			fmt.Fprintf(&text, " %s: %d", v.Version, v.Replicas)
		}
	}
	if status.AddonsVersion != "" {
		fmt.Fprintf(&text, "  add-ons %s", status.AddonsVersion)
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

// said is what the upgrade says of itself and of its steps.
func (f *fleet) said() string {
	var text strings.Builder
	status := f.upgrade.Status
	fmt.Fprintf(&text, "began %s, ended %s, add-ons %q\n", f.clock(status.StartTime.Time),
		f.clock(status.CompletionTime.Time), status.AddonsVersion)
	for _, c := range status.Conditions {
		if c.Type != quoinv1.ClusterUpgradePlannedCondition {
			fmt.Fprintf(&text, "%s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	for _, step := range status.Steps {
		if step.State != quoinv1.UpgradeStepPending && step.State != quoinv1.UpgradeStepDone {
			fmt.Fprintf(&text, "%s %s: %s\n", step.State, line(step), step.Message)
		}
	}
	for _, v := range status.Versions {
		fmt.Fprintf(&text, "%d of %s\n", v.Replicas, v.Version)
	}
	return text.String()
}
