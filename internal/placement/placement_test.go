// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// TestScripts runs the scenarios of testdata. Commands:
//
//	hosts       one host per line: [namespace/]name key=value ... with the keys state, domain, offer (comma separated),
//	            former, failed (pool@minutes ago) and staged (version@role), and the flags inUse, notReady, leaving, held, detached, maintenance,
//	            preparing, serving; any other key=value is a label
//	select      namespace=.. accept=(..) selector=(..) domain=.. members=(domain=n,..) pool=.. version=.. former
//	            worker
//	soon        with the arguments of select: when each host could be claimed
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".fail") {
			return // a history that a property left there
		}
		var hosts []Host
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "hosts":
				hosts = nil
				for _, line := range strings.Split(d.Input, "\n") {
					hosts = append(hosts, parseHost(t, line))
				}
				return fmt.Sprintf("%d hosts\n", len(hosts))
			case "select":
				result := Select(parseRequest(t, d), hosts)
				if result.Chosen != nil {
					chosen := result.Chosen.Namespace + "/" + result.Chosen.Name
					if note := result.Note(); note != "" {
						chosen += ": " + note
					}
					return chosen + "\n"
				}
				return result.Message() + "\n"
			case "soon":
				var told strings.Builder
				for _, host := range hosts {
					fmt.Fprintf(&told, "%s: %s\n", host.Name, soon(parseRequest(t, d), host))
				}
				return told.String()
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// soon is when the host could be claimed: now, after what prepares it, or after its machine has left.
func soon(request Request, host Host) string {
	var when []string
	if Select(request, []Host{host}).Chosen != nil {
		when = append(when, "free")
	}
	if Pending(request, host) {
		when = append(when, "coming")
	}
	if Returning(request, host) {
		when = append(when, "returning")
	}
	if len(when) == 0 {
		return "no"
	}
	return strings.Join(when, " ")
}

// now is the time of every scenario.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func parseHost(t *testing.T, line string) Host {
	fields := strings.Fields(line)
	h := Host{Namespace: "default", Name: fields[0], State: StateAvailable, Ready: true, Labels: map[string]string{}}
	if ns, name, ok := strings.Cut(fields[0], "/"); ok {
		h.Namespace, h.Name = ns, name
	}
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "state":
			h.State = value
		case "domain":
			h.FailureDomain = value
		case "offer":
			h.ConsumerNamespaces = strings.Split(value, ",")
		case "inUse":
			h.InUse = true
		case "notReady":
			h.Ready = false
		case "leaving":
			h.Leaving = true
		case "held":
			h.Held = true
		case "detached":
			h.Detached = true
		case "maintenance":
			h.Maintenance = true
		case "preparing":
			h.Preparing = true
		case "serving":
			h.Serving = true
		case "former":
			h.FormerPool = value
		case "staged":
			version, role, _ := strings.Cut(value, "@")
			h.Staged = append(h.Staged, infrav1.StagedArtifacts{Namespace: "default", Template: "t", Version: version, Role: role})
		case "failed":
			pool, age, _ := strings.Cut(value, "@")
			minutes, err := strconv.Atoi(age)
			if err != nil {
				t.Fatal(err)
			}
			h.FailedPool, h.FailedAt = pool, now.Add(-time.Duration(minutes)*time.Minute)
		default:
			if value == "" {
				t.Fatalf("unknown flag %s", key)
			}
			h.Labels[key] = value
		}
	}
	return h
}

func parseRequest(t *testing.T, d *datadriven.TestData) Request {
	r := Request{Namespace: "default", Members: map[string]int{}, Now: now}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "namespace":
			r.Namespace = arg.Vals[0]
		case "accept":
			r.HostNamespaces = arg.Vals
		case "domain":
			r.FailureDomain = arg.Vals[0]
		case "pool":
			r.Pool = arg.Vals[0]
		case "former":
			r.PreferFormer = true
		case "worker":
			r.Worker = true
		case "version":
			r.Version = arg.Vals[0]
		case "selector":
			selector, err := labels.Parse(strings.Join(arg.Vals, ","))
			if err != nil {
				t.Fatal(err)
			}
			r.Selector = selector
		case "members":
			for _, v := range arg.Vals {
				domain, n, _ := strings.Cut(v, "=")
				r.Members[domain], _ = strconv.Atoi(n)
			}
		}
	}
	return r
}

// TestSelectNeverPicksAnIneligibleHostAndIsDeterministic draws hosts at random: whatever the order they come in, the
// same one is picked, and it is free, offered, accepted, selected and in the wanted failure domain. Nobody waits while a host is
// free.
func TestSelectNeverPicksAnIneligibleHostAndIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		domain := rapid.SampledFrom([]string{"", "a", "b"})
		namespace := rapid.SampledFrom([]string{"default", "team", "hosts"})
		pool := rapid.SampledFrom([]string{"", "team/a", "team/b"})
		host := rapid.Custom(func(t *rapid.T) Host {
			return Host{
				Namespace: namespace.Draw(t, "namespace"), Name: rapid.StringMatching(`[a-c][0-9]`).Draw(t, "name"),
				Labels: map[string]string{"role": rapid.SampledFrom([]string{"worker", "storage"}).Draw(t, "role")},
				State: rapid.SampledFrom([]string{StateAvailable, StateAvailable, StateAvailable, "Cleaning", "Quarantined",
					""}).Draw(t, "state"),
				Ready:       rapid.SampledFrom([]bool{true, true, false}).Draw(t, "ready"),
				InUse:       rapid.SampledFrom([]bool{false, false, true}).Draw(t, "inUse"),
				Leaving:     rapid.SampledFrom([]bool{false, false, true}).Draw(t, "leaving"),
				Held:        rapid.SampledFrom([]bool{false, false, true}).Draw(t, "held"),
				Detached:    rapid.SampledFrom([]bool{false, false, true}).Draw(t, "detached"),
				Maintenance: rapid.SampledFrom([]bool{false, false, true}).Draw(t, "maintenance"),
				FormerPool:  pool.Draw(t, "former"),
				FailedPool:  pool.Draw(t, "failed"),
				FailedAt: rapid.SampledFrom([]time.Time{{}, now, now.Add(-30 * time.Minute), now.Add(-2 * time.Hour)}).
					Draw(t, "failedAt"),
				FailureDomain: domain.Draw(t, "domain"),
				ConsumerNamespaces: rapid.SampledFrom([][]string{
					nil, {AnyNamespace}, {"team"}, {"default", "team"},
				}).Draw(t, "offer"),
			}
		})
		hosts := rapid.SliceOfNDistinct(host, 0, 12, func(h Host) string {
			return h.Namespace + "/" + h.Name
		}).Draw(t, "hosts")
		request := Request{Namespace: namespace.Draw(t, "for"), Now: now, Pool: pool.Draw(t, "pool"),
			HostNamespaces: rapid.SampledFrom([][]string{nil, {AnyNamespace}, {"hosts"}, {"default", "team"}}).Draw(t, "accepts"),
			PreferFormer:   rapid.Bool().Draw(t, "prefers"), FailureDomain: domain.Draw(t, "in"), Members: map[string]int{
				"a": rapid.IntRange(0, 3).Draw(t, "a"), "b": rapid.IntRange(0, 3).Draw(t, "b"),
			}}
		if rapid.Bool().Draw(t, "selects") {
			request.Selector = labels.SelectorFromSet(labels.Set{"role": "worker"})
		}

		eligible := func(h Host) bool {
			offered := h.Namespace == request.Namespace
			if len(h.ConsumerNamespaces) > 0 {
				offered = slices.Contains(h.ConsumerNamespaces, request.Namespace) || slices.Contains(h.ConsumerNamespaces, "*")
			}
			accepted := h.Namespace == request.Namespace
			if len(request.HostNamespaces) > 0 {
				accepted = slices.Contains(request.HostNamespaces, h.Namespace) || slices.Contains(request.HostNamespaces, "*")
			}
			return offered && accepted && h.State == StateAvailable && h.Ready && !h.InUse && !h.Leaving && !h.Held && !h.Detached &&
				!h.Maintenance &&
				(request.Selector == nil || h.Labels["role"] == "worker") &&
				(request.FailureDomain == "" || request.FailureDomain == h.FailureDomain)
		}
		got := Select(request, hosts)
		if got.Chosen != nil && !eligible(*got.Chosen) {
			t.Fatalf("chose %+v", *got.Chosen)
		}
		if got.Chosen == nil && slices.ContainsFunc(hosts, eligible) {
			t.Fatalf("chose nothing: %s", got.Message())
		}
		counted := 0
		for n := range maps.Values(got.Reasons) {
			counted += n
		}
		if free := len(slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool {
			return !eligible(h)
		})); counted != len(hosts)-free {
			t.Fatalf("%d hosts counted, %d are not eligible", counted, len(hosts)-free)
		}
		again := Select(request, rapid.Permutation(hosts).Draw(t, "shuffled"))
		if !reflect.DeepEqual(got, again) {
			t.Fatalf("order matters: %+v, then %+v", got, again)
		}
	})
}
