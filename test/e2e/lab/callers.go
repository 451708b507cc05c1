// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/insider/report"
)

// callers are pods that ask a workload, one on each worker. A drain moves them like any other pod.
const callers = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: callers, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: callers}}
  template:
    metadata:
      labels: {app: callers}
    spec:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 1
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {app: callers}
      terminationGracePeriodSeconds: 30
      containers:
      - name: caller
        image: quoin.test/webserver:v1
        imagePullPolicy: Never
        command: [%[1]s/insider, call, %[2]s, %[3]s]
        env:
        - name: NODE_NAME
          valueFrom:
            fieldRef: {fieldPath: spec.nodeName}
        volumeMounts: [{name: folder, mountPath: %[1]s, readOnly: true}]
      volumes: [{name: folder, hostPath: {path: %[1]s}}]
`

// Callers ask a workload all the time from pods of the cluster, which tell this process what became of it.
type Callers struct {
	cluster *Cluster
	server  *http.Server

	mu    sync.Mutex
	calls map[string]report.Calls
}

// Call has a workload asked at a URL, and returns when two callers were answered.
func (c *Cluster) Call(ctx context.Context, workload string) (*Callers, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(Gateway, "0"))
	if err != nil {
		return nil, fmt.Errorf("collector of the callers: %w", err)
	}
	callers := &Callers{cluster: c, calls: map[string]report.Calls{}}
	callers.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(callers.collect)}
	go func() { _ = callers.server.Serve(listener) }()
	if err := callers.begin(ctx, workload, fmt.Sprintf("http://%s/", listener.Addr())); err != nil {
		_ = callers.server.Close()
		return nil, err
	}
	return callers, nil
}

func (c *Callers) begin(ctx context.Context, workload, collector string) error {
	// Whichever workers the pods come to have the program.
	for _, host := range c.cluster.lab.Hosts {
		if host.Labels[RoleLabel] == "worker" {
			if err := (&Insider{lab: c.cluster.lab, host: host}).install(ctx); err != nil {
				return err
			}
		}
	}
	manifests := fmt.Sprintf(callers, insiderFolder, workload, collector)
	if err := c.cluster.lab.Apply(ctx, c.cluster.Kubeconfig(), manifests); err != nil {
		return err
	}
	for began := time.Now(); len(c.Seen()) < 2; time.Sleep(time.Second) {
		if time.Since(began) > 2*time.Minute {
			return fmt.Errorf("no two callers of %s in %s were answered: %+v", workload, c.cluster.Name, c.Seen())
		}
	}
	return nil
}

func (c *Callers) collect(w http.ResponseWriter, r *http.Request) {
	var calls report.Calls
	if err := json.NewDecoder(r.Body).Decode(&calls); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// An account that was overtaken by a later one says nothing new.
	if had := c.calls[calls.Pod].Gaps; calls.Gaps.Successes > 0 &&
		(calls.Ended || calls.Gaps.Successes+calls.Gaps.Failures > had.Successes+had.Failures) {
		c.calls[calls.Pod] = calls
	}
}

// Seen is what each caller has seen so far, in the order of their names.
func (c *Callers) Seen() []report.Calls {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []report.Calls
	for _, name := range slices.Sorted(maps.Keys(c.calls)) {
		all = append(all, c.calls[name])
	}
	return all
}

// Stop ends the callers, and returns what all of them have seen once each has told its end.
func (c *Callers) Stop(ctx context.Context) ([]report.Calls, error) {
	defer func() { _ = c.server.Close() }()
	_, err := c.cluster.lab.Kubectl(ctx, c.cluster.Kubeconfig(), "delete", "deployment", "callers", "--namespace", "default")
	silent := func(calls report.Calls) bool { return !calls.Ended }
	for began := time.Now(); slices.ContainsFunc(c.Seen(), silent); time.Sleep(time.Second) {
		if time.Since(began) > time.Minute {
			err = errors.Join(err, errors.New("a caller did not tell its end, so what it saw last is not known"))
			break
		}
	}
	return c.Seen(), err
}

// Total sums up what callers have seen: how many requests were answered and failed, how the first of them did, and the longest
// time that one of them had no answer.
func Total(all []report.Calls) report.Calls {
	var total report.Calls
	for _, calls := range all {
		total.Failures = append(total.Failures, calls.Failures...)
		successes, failures := total.Gaps.Successes+calls.Gaps.Successes, total.Gaps.Failures+calls.Gaps.Failures
		if calls.Gaps.Longest > total.Gaps.Longest {
			total.Gaps = calls.Gaps
		}
		total.Gaps.Successes, total.Gaps.Failures = successes, failures
	}
	return total
}

// Describe is a line for each caller.
func Describe(all []report.Calls) string {
	var text strings.Builder
	for _, calls := range all {
		fmt.Fprintf(&text, "  %s on %s: %d answers, %d failures, longest gap %s\n", calls.Pod, calls.Node, calls.Gaps.Successes,
			calls.Gaps.Failures, calls.Gaps)
	}
	return text.String()
}
