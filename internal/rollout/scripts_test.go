// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// Each file tells rollouts: a pool is drawn whenever it changes, one letter for each Machine (see draw), with what is
// decided and why.
//
//	pool <name> replicas=3 surge=1 unavailable=0 [label=value]   a MachineDeployment with its own limits
//	policy           the spec of a RolloutPolicy
//	edit <pool>..    a new template
//	behind <pool>, level <pool>    whether its template is of another version than the control plane
//	revert <pool>    the template before
//	scale <pool> <n>, hosts <pool> <n>
//	pool .. current=1    so many of its Machines are at the present template already
//	pool .. topology=yes, applied=<manager>      who else writes the template
//	run [for=1h]     until nothing moves, or the time is over
//	every <duration>    how often everybody looks from now on: what takes less is not seen
//	break <pool>, mend <pool>      Nodes of the present template are not healthy
//	ill <machine> <why>, well <machine>, delete <machine>, select <machine> <why>
//	hostfails <machine> <why>    its host is not provisioned
//	refuse <machine>, permit <machine>      whether the API server lets it be deleted
//	controlplane unhealthy|outdated <why>, controlplane
//	at <time>        it is so late; took <pool> <duration>..
//	pause, resume    the policy
//	forget           the status is lost
//	forget-doneof    it does not say how many are to count, as that of an earlier release
//	looks find|flap  see validation_test.go
//	status           what people see
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		f := newFleet()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "begin" {
				f = newFleet()
				return ""
			}
			return f.command(t, d)
		})
	})
}

func (f *fleet) command(t *testing.T, d *datadriven.TestData) string {
	word := func(i int) string { return d.CmdArgs[i].Key }
	switch d.Cmd {
	case "pool":
		f.addPool(d)
	case "policy":
		f.policy = quoinv1.RolloutPolicySpec{}
		if err := yaml.UnmarshalStrict([]byte(d.Input), &f.policy); err != nil {
			t.Fatal(err)
		}
	case "edit":
		for i := range d.CmdArgs {
			f.edit(word(i))
		}
	case "behind", "level":
		of := f.pool(word(0))
		of.behind = map[int]bool{of.template: d.Cmd == "behind"}
	case "revert":
		f.pool(word(0)).template--
	case "scale":
		f.pool(word(0)).replicas, _ = strconv.Atoi(word(1))
	case "hosts":
		f.pool(word(0)).capacity, _ = strconv.Atoi(word(1))
	case "break", "mend":
		of := f.pool(word(0))
		f.broken[of.template] = d.Cmd == "break"
		for _, n := range of.machines {
			if n.template == of.template && n.joined && d.Cmd == "mend" {
				n.ill, n.healthy = "", f.now
			}
		}
	case "last", "mark", "domains":
		return f.leaving(t, d)
	case "ill", "well", "delete", "select", "hostfails":
		f.happens(d.Cmd, word(0), strings.TrimSpace(d.Input))
	case "controlplane":
		f.unhealthy, f.outdated = "", ""
		if len(d.CmdArgs) > 0 {
			*map[string]*string{"unhealthy": &f.unhealthy, "outdated": &f.outdated}[word(0)] = strings.TrimSpace(d.Input)
		}
	case "at", "took":
		f.passes(t, d)
	case "forget":
		for _, p := range f.pools {
			p.completed, p.selected, p.doneOf = "", "", 0
		}
		f.looks.record = nil
	case "forget-doneof":
		for _, p := range f.pools {
			p.doneOf = 0
		}
	case "run":
		limit := 12 * time.Hour
		if d.HasArg("for") {
			text := ""
			d.ScanArgs(t, "for", &text)
			limit, _ = time.ParseDuration(text)
		}
		return f.tell(limit)
	case "pause", "resume":
		f.idle, f.resumed = d.Cmd == "pause", f.now
	case "every":
		f.every, _ = time.ParseDuration(word(0))
	case "status":
		return f.status()
	default:
		if f.validates(d) {
			return ""
		}
		var words []string
		for i := range d.CmdArgs {
			words = append(words, word(i))
		}
		says, known := f.depicts(d.Cmd, words)
		if !known {
			t.Fatalf("unknown command %s", d.Cmd)
		}
		return says
	}
	return ""
}

func (f *fleet) addPool(d *datadriven.TestData) {
	p := &deployment{name: d.CmdArgs[0].Key, replicas: 3, surge: 1, labels: map[string]string{}, kubelets: map[int]string{},
		template: 1 + 100*len(f.pools)}
	for _, arg := range d.CmdArgs[1:] {
		number, _ := strconv.Atoi(arg.Vals[0])
		switch arg.Key {
		case "replicas":
			p.replicas = number
		case "paused":
			p.paused = true
		case "ondelete":
			p.onDelete, p.surge = true, 0
		case "hosts":
			p.capacity = number
		case "topology", "applied":
			p.rolls.topology, p.rolls.owner = arg.Key == "topology", arg.Vals[0]
			if p.rolls.topology {
				p.labels[clusterv1.ClusterTopologyOwnedLabel], p.labels[clusterv1.ClusterNameLabel] = "", "prod"
				p.labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel] = "md-" + p.name
			}
		case "surge":
			p.surge = number
		case "unavailable":
			p.unavailable = number
		case "domains":
			p.domains = strings.Split(arg.Vals[0], "/")
		case "order":
			p.newest = arg.Vals[0] == "newest"
		default:
			p.labels[arg.Key] = arg.Vals[0]
		}
	}
	if !d.HasArg("new") {
		p.whole(f.now)
	}
	delete(p.labels, "new")
	p.partly(p.labels["current"])
	delete(p.labels, "current")
	f.pools = append(f.pools, p)
}

func (f *fleet) edit(pool string) { f.pool(pool).template++ }

func (f *fleet) happens(what, machine, why string) {
	for _, p := range f.pools {
		if n := p.node(machine); n != nil {
			switch what {
			case "ill":
				n.ill = why
			case "well":
				n.ill, n.healthy = "", f.now
			case "delete":
				n.deleted = f.now
			case "select":
				n.needsUpdate = why
			case "hostfails":
				n.hostFailed = why
			}
			return
		}
	}
	panic("no Machine " + machine)
}

// status is what people see.
func (f *fleet) status() string {
	f.result = Plan(f.state(), &f.policy, f.now)
	var text strings.Builder
	if f.result.Problem != "" {
		return f.result.Problem + "\n"
	}
	for _, p := range f.result.Progress {
		fmt.Fprintf(&text, "%s outdated=%d held=%d inFlight=%d done=%d maxSurge=%d maxUnavailable=%d %s %s\n",
			strings.TrimPrefix(p.Group+"/"+p.Pool, "/"), p.Outdated, p.Held, p.InFlight, p.Done, p.Limits.Surge,
			p.Limits.Unavailable, p.Reason, p.Message)
	}
	if f.result.PausedAfter != "" {
		fmt.Fprintf(&text, "pausedAfter: %s\n", f.result.PausedAfter)
	}
	held := slices.DeleteFunc(slices.Clone(f.result.Decisions), func(d Decision) bool { return d.Action == Admit || d.Action == Count })
	for _, d := range held {
		fmt.Fprintf(&text, "%s %s (%s): %s\n", d.Action, d.Machine, d.Reason, d.Message)
	}
	return text.String()
}
