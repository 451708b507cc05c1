// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transcript writes down what a plan did to a host, so that a simulated host can be held against a real one.
//
// A transcript is text, one fact per line, sorted within its part, with nothing in it that differs from run to run:
//
//	plan provision                         the kind of plan, without its claim
//	step kubeadm-join done 0               the journal: step, last word, exit code
//	result succeeded
//	created file -rw------- root:root /etc/kubernetes/kubelet.conf
//	changed file drwxr-xr-x root:root /var/lib/kubelet
//	removed /etc/kubernetes/bootstrap-kubelet.conf
//	unit kubelet.service enabled active    what systemd says afterwards
package transcript

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

//go:embed look.sh
var look string

// Recorder has looked at a host.
type Recorder struct {
	host  ssh.Host
	files map[string]string
}

// Before looks at the host. Call it when the plan has not begun.
func Before(ctx context.Context, host ssh.Host) (*Recorder, error) {
	files, _, err := seen(ctx, host)
	return &Recorder{host: host, files: files}, err
}

// After looks again when the plan has ended, and writes down the difference and the journal.
func (r *Recorder) After(ctx context.Context, planID string) (*Transcript, error) {
	files, units, err := seen(ctx, r.host)
	if err != nil {
		return nil, err
	}
	kind, _, _ := strings.Cut(planID, "-")
	t := &Transcript{Lines: []string{"plan " + kind}}
	journal, err := r.host.Run(ctx, ssh.Command{Sudo: true, Script: fmt.Sprintf(
		"cd /var/lib/quoin/runs/%s && sed 's/^/journal /' journal && sed 's/^/result /' result", planID)})
	if err != nil {
		return nil, fmt.Errorf("reading the journal of %s: %w", planID, err)
	}
	t.Lines = append(t.Lines, steps(journal.Stdout)...)
	t.Lines = append(t.Lines, difference(r.files, files)...)
	t.Lines = append(t.Lines, units...)
	r.files = files
	return t, nil
}

// seen returns the files by normalized name, and the lines about units.
func seen(ctx context.Context, host ssh.Host) (files map[string]string, units []string, err error) {
	result, err := host.Run(ctx, ssh.Command{Script: look, Sudo: true})
	if err != nil {
		return nil, nil, fmt.Errorf("looking at the host: %w", err)
	}
	files = map[string]string{}
	complete := false
	for line := range strings.Lines(result.Stdout) {
		line = strings.TrimSpace(line)
		fields := strings.Fields(line)
		switch {
		case line == "end":
			complete = true
		case len(fields) == 4 && fields[0] == "file":
			files[normalize(fields[3])] = strings.Join(fields[:3], " ")
		case len(fields) > 0 && fields[0] == "unit":
			units = append(units, line)
		}
	}
	if !complete {
		return nil, nil, errors.New("looking at the host: its answer is cut off")
	}
	return files, units, nil
}

var variable = []struct {
	pattern *regexp.Regexp
	stand   string
}{
	{regexp.MustCompile(`/runs/(provision|reset|addons|scrub)-[^/]*`), "/runs/$1-CLAIM"},
	{regexp.MustCompile(`kubelet-client-\d{4}(-\d\d)+\.pem`), "kubelet-client-TIME.pem"},
	{regexp.MustCompile(`/images/[0-9a-f]{64}`), "/images/SUM"},
	{regexp.MustCompile(`/cache/[0-9a-f]{64}`), "/cache/SUM"},
	{regexp.MustCompile(`/versions/v[0-9.]+`), "/versions/VERSION"},
	{regexp.MustCompile(`/log/[a-z]+-[^/]*`), "/log/STEP"},
}

func normalize(name string) string {
	for _, v := range variable {
		name = v.pattern.ReplaceAllString(name, v.stand)
	}
	return name
}

// steps says how each step of the journal ended. The steps that install files are named after a bundle's files, which
// are not the same in both worlds: one line stands for all of them.
func steps(output string) []string {
	var lines []string
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for line := range strings.Lines(output) {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 6 && fields[0] == "journal":
			step := fields[3]
			for _, verb := range []string{"image-", "install-"} {
				if strings.HasPrefix(step, verb) {
					step = verb + "*"
				}
			}
			add("step " + step + " " + strings.Join(fields[4:6], " "))
		case len(fields) > 1 && fields[0] == "result":
			add("result " + strings.Join(fields[1:], " "))
		}
	}
	return lines
}

func difference(before, after map[string]string) []string {
	var lines []string
	for name, is := range after {
		switch was, known := before[name]; {
		case !known:
			lines = append(lines, "created "+is+" "+name)
		case was != is:
			lines = append(lines, "changed "+is+" "+name)
		}
	}
	for name := range before {
		if _, left := after[name]; !left {
			lines = append(lines, "removed "+name)
		}
	}
	slices.Sort(lines)
	return lines
}
