// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// resources of the management cluster that tell how things stand.
const resources = "clusters,quoinclusters,quoincontrolplanes,machinedeployments,machinesets,machines,quoinmachines,quoinhosts," +
	"kubeadmconfigs,quoinmachinetemplates,clusterclasses,clusterupgrades,preflightchecks,rolloutpolicies"

// hostReport is what is worth knowing of a host.
const hostReport = `
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=true
echo "== summary"; for run in /var/lib/quoin/runs/*/; do
	[ -f "$run/journal" ] || continue
	result=$(cat "$run/result" 2>/dev/null || echo "unfinished: $(tail -n 1 "$run/journal")")
	echo "$(basename "$run"): $result"
	case $result in succeeded) ;; *) grep -v DEPRECATION "$run/log/$(tail -n 1 "$run/journal" | cut -d" " -f3)" 2>/dev/null | tail -n 15 ;; esac
done
echo "== runs of Quoin"; for run in /var/lib/quoin/runs/*/; do
	[ -f "$run/journal" ] || continue
	echo "-- $run"; cat "$run/journal"; for log in "$run"/log/*; do echo "- $log"; tail -n 60 "$log"; done
done
echo "== calls of kubeadm"; cat ` + kubeadmCalls + ` 2>/dev/null
echo "== owner"; cat /var/lib/quoin/owner.json 2>/dev/null
echo "== failed units"; systemctl --no-pager --failed
echo "== processes"; ps axo pid,ppid,stat,etime,args | grep -v ' \['
echo "== containers"; ctr --namespace k8s.io task ls 2>/dev/null
echo "== images"; ctr --namespace k8s.io images ls -q 2>/dev/null | grep -v sha256
echo "== addresses"; ip -brief address; ip route
echo "== files"; ls -laR /etc/kubernetes /var/lib/etcd 2>/dev/null | head -n 100
echo "== journal"; journalctl --no-pager --boot --lines 1500
`

// Diagnose writes everything that may explain a failure into a folder under _artifacts, prints what matters most, and
// returns the folder. It never fails: what cannot be read says so in its file.
func (l *Lab) Diagnose(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	d := &diagnosis{lab: l, folder: filepath.Join(l.Root, "_artifacts", "diagnostics", time.Now().Format("150405-")+fileName(name))}
	if err := os.MkdirAll(d.folder, 0o755); err != nil {
		l.Printf("no diagnostics: %v", err)
		return ""
	}
	l.Printf("\n--- diagnostics of %q, in full in %s", name, d.folder)
	if _, err := os.Stat(l.Kubeconfig()); err == nil {
		d.management(ctx)
		d.workloads(ctx)
	}
	if l.engine.client != "" {
		d.hosts(ctx)
	}
	if log, err := os.ReadFile(l.Path("commands.log")); err == nil {
		d.write("commands.log", string(log))
	}
	l.Printf("--- end of diagnostics; in full in %s\n", d.folder)
	return d.folder
}

func fileName(text string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, text)
	return name[:min(len(name), 60)]
}

type diagnosis struct {
	lab    *Lab
	folder string
}

func (d *diagnosis) write(name, content string) {
	_ = os.WriteFile(filepath.Join(d.folder, name), []byte(content), 0o600)
}

// kubectl writes the answer to a file and returns it.
func (d *diagnosis) kubectl(ctx context.Context, file, kubeconfig string, args ...string) string {
	out, err := d.lab.run(ctx, command{
		name: d.lab.tools.kubectl, quiet: true, env: d.lab.privateHome(),
		args: append([]string{"--kubeconfig", kubeconfig, "--request-timeout", "15s"}, args...),
	})
	if err != nil {
		out += "\n" + err.Error()
	}
	d.write(file, out)
	return out
}

func (d *diagnosis) management(ctx context.Context) {
	kubeconfig, show := d.lab.Kubeconfig(), d.lab.Printf
	show("%s", d.kubectl(ctx, "management.txt", kubeconfig, "get", resources, "--all-namespaces", "-o", "wide"))
	d.kubectl(ctx, "management.yaml", kubeconfig, "get", resources, "--all-namespaces", "-o", "yaml")
	show("conditions that are not as they should be:\n%s", d.kubectl(ctx, "conditions.txt", kubeconfig, "get", resources, "--all-namespaces", "-o",
		`go-template={{range .items}}{{$o := .}}{{if .status}}{{range .status.conditions}}{{if or (and (eq .status "False") (ne .type "Paused") (ne .type "Deleting") (ne .type "RollingOut") (ne .type "ScalingUp") (ne .type "ScalingDown") (ne .type "Remediating")) (eq .status "Unknown")}}{{$o.kind}}/{{$o.metadata.name}} {{.type}}={{.status}} {{.reason}}: {{.message}}
{{end}}{{end}}{{end}}{{end}}`))
	show("last events:\n%s", tail(d.kubectl(ctx, "events.txt", kubeconfig, "get", "events", "--all-namespaces", "--sort-by", ".lastTimestamp"), 25))
	d.kubectl(ctx, "management-pods.txt", kubeconfig, "get", "pods,leases,poddisruptionbudgets", "--all-namespaces", "-o", "wide")
	out, err := d.lab.run(ctx, command{name: d.lab.tools.kubectl, env: d.lab.privateHome(), quiet: true, args: []string{"--kubeconfig", kubeconfig,
		"get", "pods", "--all-namespaces", "-l", providerLabel, "-o", `jsonpath={range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{"\n"}{end}`}})
	if err != nil {
		return
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		d.kubectl(ctx, "previous-"+fields[1]+".log", kubeconfig, "logs", "--previous", "-n", fields[0], fields[1])
		log := d.kubectl(ctx, "manager-"+fields[1]+".log", kubeconfig, "logs", "-n", fields[0], fields[1])
		if errorsOf := grep(log, "E", "panic"); errorsOf != "" {
			show("last errors of %s:\n%s", fields[1], tail(errorsOf, 10))
		}
	}
}

// grep keeps the lines of a klog with a severity, or with a word.
func grep(text, severity, word string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if len(line) > 1 && strings.HasPrefix(line, severity) && line[1] >= '0' && line[1] <= '9' || strings.Contains(line, word) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func (d *diagnosis) workloads(ctx context.Context) {
	found, _ := filepath.Glob(d.lab.Path("clusters", "*", "kubeconfig"))
	for _, kubeconfig := range found {
		name := filepath.Base(filepath.Dir(kubeconfig))
		d.lab.Printf("cluster %s:\n%s", name, d.kubectl(ctx, name+".txt", kubeconfig, "get", "nodes,pods", "--all-namespaces", "-o", "wide"))
		d.kubectl(ctx, name+".yaml", kubeconfig, "get", "nodes,pods,deployments,daemonsets,configmaps", "--all-namespaces", "-o", "yaml")
		d.kubectl(ctx, name+"-events.txt", kubeconfig, "get", "events", "--all-namespaces", "--sort-by", ".lastTimestamp")
		out, err := d.lab.Clusterctl(ctx, nil, "describe", "cluster", name, "--namespace", Namespace, "--show-conditions", "all",
			"--kubeconfig", d.lab.Kubeconfig())
		if err != nil {
			out += "\n" + err.Error()
		}
		d.write(name+"-describe.txt", out)
	}
}

func (d *diagnosis) hosts(ctx context.Context) {
	out, err := d.lab.docker(ctx, "ps", "--all", "--filter", "label="+Label+"="+Name, "--format", "{{.Names}}")
	if err != nil {
		return
	}
	for _, container := range append(slices.Sorted(slices.Values(strings.Fields(out))), kindNode) {
		report, err := d.lab.run(ctx, command{name: d.lab.engine.client, args: []string{"exec", container, "/bin/sh", "-c", hostReport}, quiet: true})
		if err != nil {
			report += "\n" + err.Error()
		}
		d.write(container+".txt", report)
		if summary, _, ok := strings.Cut(report, "== runs"); ok && container != kindNode {
			d.lab.Printf("%s, %s", container, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(summary), "== ")))
		}
	}
}

// Describe prints a table of the management cluster for a person.
func (l *Lab) Describe(ctx context.Context, kinds string) (string, error) {
	out, err := l.Kubectl(ctx, l.Kubeconfig(), "get", kinds, "--namespace", Namespace)
	if err != nil {
		return "", fmt.Errorf("listing %s: %w", kinds, err)
	}
	return out, nil
}
