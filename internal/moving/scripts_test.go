// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the scenarios of testdata. One command, judge, whose input has one object per line, all in namespace
// team unless the name says otherwise; the first Cluster is the one that is asked.
//
//	cluster  <name> paused deleting unready class=<name> shared=<with> hooks=<name>
//	host     <name> uid=.. of=<namespace>/<cluster>/<machine> held=<cluster,..>@<source uid> paused quiet left deleting runs=.. owner=..
//	machine  <name> noNode ahead deleting owner=..
//	object   <name> unseen runs=.. owner=..
//	secret   <name> <problem>
//	recovery <id>
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "judge" {
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return drawn(siteOf(t, d.Input))
		})
	})
}

// drawn is everything that is decided for a site.
func drawn(s Site) string {
	var b strings.Builder
	v := Judge(s)
	annotation := "comes off"
	if v.Block {
		annotation = "stays"
	}
	fmt.Fprintf(&b, "block-move %s\n", annotation)
	if hosts, clusters := ToHold(s); len(hosts) > 0 {
		fmt.Fprintf(&b, "hold %s for %s\n", strings.Join(hosts, ","), strings.Join(clusters, ","))
	}
	if hosts := ToRelease(s); len(hosts) > 0 {
		fmt.Fprintf(&b, "release %s\n", strings.Join(hosts, ","))
	}
	fmt.Fprintf(&b, "Movable=%t %s\n  %s\n", v.Movable, v.Reason, strings.ReplaceAll(v.Message, "; ", "\n  "))
	return b.String()
}

// site reads the lines of a scenario.
func siteOf(t *testing.T, input string) Site {
	t.Helper()
	s := Site{Namespace: "team"}
	for _, line := range strings.Split(input, "\n") {
		fields := strings.Fields(line)
		kind, name, has := fields[0], fields[1], map[string]string{}
		for _, field := range fields[2:] {
			key, value, _ := strings.Cut(field, "=")
			has[key] = strings.ReplaceAll(value, "_", " ")
		}
		is := func(flag string) bool { _, ok := has[flag]; return ok }
		switch kind {
		case "cluster":
			c := Cluster{Name: name, Paused: is("paused"), Deleting: is("deleting"), Ready: !is("unready"), Class: has["class"],
				SharedWith: has["shared"], Hooks: has["hooks"]}
			if s.Cluster.Name == "" {
				s.Cluster = c
			} else {
				s.Neighbors = append(s.Neighbors, c)
			}
		case "host":
			s.Hosts = append(s.Hosts, hostOf(name, has, is))
		case "machine":
			s.Machines = append(s.Machines, Machine{Name: name, Deleting: is("deleting"), Node: !is("noNode"),
				Ahead: is("ahead"), Owner: has["owner"]})
		case "object":
			s.Objects = append(s.Objects, Object{Name: name, Paused: !is("unseen"), Quiet: !is("runs"), Note: has["runs"],
				Owner: has["owner"]})
		case "secret":
			s.Secrets = append(s.Secrets, Secret{Name: name, Problem: strings.Join(fields[2:], " ")})
		case "recovery":
			s.Recovery = name
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return s
}

func hostOf(name string, has map[string]string, is func(string) bool) Host {
	h := Host{Namespace: "team", Name: name, UID: has["uid"], Deleting: is("deleting"), Left: is("left"),
		Paused: is("paused"), Quiet: is("quiet"),
		Note: has["runs"], Owner: has["owner"]}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		h.Namespace, h.Name = namespace, rest
	}
	if of := strings.Split(has["of"], "/"); len(of) == 3 {
		h.Consumer = &Consumer{Namespace: of[0], Cluster: of[1], Machine: of[2]}
	}
	if is("held") {
		clusters, source, _ := strings.Cut(has["held"], "@")
		h.Hold = &Hold{Source: source}
		if clusters != "" {
			h.Hold.Clusters = strings.Split(clusters, ",")
		}
	}
	return h
}
