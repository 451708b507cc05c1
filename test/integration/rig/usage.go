// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Usage is what a manager has cost since it was started, by its own metrics.
type Usage struct {
	// CPU is the time of all processors.
	CPU time.Duration
	// Management and Workload count requests, watches too, to the rig's API server and to any other.
	Management, Workload float64
}

// Minus is what came to it since before.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.CPU - before.CPU, u.Management - before.Management, u.Workload - before.Workload}
}

// Plus adds what another one has cost.
func (u Usage) Plus(other Usage) Usage {
	return Usage{u.CPU + other.CPU, u.Management + other.Management, u.Workload + other.Workload}
}

// Usage reads the metrics of a manager.
func (r *Rig) Usage(ctx context.Context, label string) (Usage, error) {
	manager, ok := r.Managers[label]
	if !ok {
		return Usage{}, fmt.Errorf("no manager %s", label)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, manager.Diagnostics+"/metrics", http.NoBody)
	if err != nil {
		return Usage{}, fmt.Errorf("reading the metrics of %s: %w", label, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Usage{}, fmt.Errorf("reading the metrics of %s: %w", label, err)
	}
	defer func() { _ = response.Body.Close() }()
	own, err := url.Parse(r.Config.Host)
	if err != nil {
		return Usage{}, fmt.Errorf("reading the metrics of %s: %w", label, err)
	}
	usage, seen := Usage{}, 0
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// <name>{<labels>} <value>
		at := strings.LastIndexByte(lines.Text(), ' ')
		name, _, _ := strings.Cut(lines.Text(), "{")
		if at < 0 || name != "rest_client_requests_total" && !strings.HasPrefix(name, "process_cpu_seconds_total ") {
			continue
		}
		value, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			return Usage{}, fmt.Errorf("reading the metrics of %s: %q: %w", label, lines.Text(), err)
		}
		seen++
		switch {
		case name != "rest_client_requests_total":
			usage.CPU = time.Duration(value * float64(time.Second))
		case strings.Contains(lines.Text(), fmt.Sprintf("host=%q", own.Host)):
			usage.Management += value
		default:
			usage.Workload += value
		}
	}
	if seen < 2 {
		return Usage{}, fmt.Errorf("%s tells neither its requests nor its CPU time", label)
	}
	return usage, lines.Err()
}
