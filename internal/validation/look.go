// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation looks at a Cluster once: at its Nodes, at its system-critical pods, and at what a person has
// checked. It changes nothing. Whether a rollout may go on by what was found, package rollout decides.
package validation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// Timeout of one check. They are made side by side, so it is that of a look too.
	Timeout = 20 * time.Second
	// mostMessage is what a result says at most.
	mostMessage = 1024
	// mostNamed of what is wrong are named.
	mostNamed = 10
	// ofCluster is how many checks come before a person's.
	ofCluster = 2
)

// Subject is what is looked at.
type Subject struct {
	// Pool is the MachineDeployment that is rolled out.
	Pool string
	// Machines of the Cluster, of all pools and of the control plane.
	Machines []clusterv1.Machine
	// Subjects are Machines of the pool that were healthy just before.
	Subjects []string
	// Checks of a person.
	Checks []quoinv1.RolloutCheck
	// Namespace of Secrets that checks name.
	Namespace string
	// Management reads Secrets, Workload the Cluster itself; both as they are now.
	Management, Workload client.Reader
	// Egress rules which addresses checks ask.
	Egress *egress.Rules
}

// check is one thing to look at. It returns what was seen, or an error that says what is wrong.
type check struct {
	name string
	look func(context.Context) (string, error)
}

// Look makes all checks side by side and returns their results: those of the Cluster first, and then the person's in
// their order. One that fails, panics or does not answer in time found something: what was not seen is not in order.
func Look(ctx context.Context, s *Subject) []quoinv1.RolloutCheckResult {
	checks := []check{{"Nodes", s.lookAtNodes}, {"Pods", s.lookAtPods}}
	for i := range s.Checks {
		checks = append(checks, check{s.Checks[i].Name, func(ctx context.Context) (string, error) {
			return s.ask(ctx, &s.Checks[i])
		}})
	}
	results, errs := make([]quoinv1.RolloutCheckResult, len(checks)), make([]error, len(checks))
	var group sync.WaitGroup
	for i, check := range checks {
		group.Go(func() { results[i], errs[i] = run(ctx, check) })
	}
	group.Wait()
	s.blame(results, errs)
	return results
}

// run bounds a check by Timeout, also one that does not heed it, and takes a panic for an error.
func run(ctx context.Context, check check) (quoinv1.RolloutCheckResult, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	type answer struct {
		message string
		err     error
	}
	answers := make(chan answer, 1)
	go func() {
		var given answer
		defer func() {
			if r := recover(); r != nil {
				given.err = fmt.Errorf("the check panicked: %v", r)
			}
			answers <- given
		}()
		given.message, given.err = check.look(ctx)
	}()
	var given answer
	select {
	case given = <-answers:
	case <-ctx.Done():
		given.err = fmt.Errorf("no answer within %s", Timeout)
	}
	result := quoinv1.RolloutCheckResult{Name: check.name, Status: quoinv1.RolloutCheckPassed, Message: given.message}
	if given.err != nil {
		result.Status, result.Message = quoinv1.RolloutCheckFailed, given.err.Error()
	}
	result.Message = text.Shorten(cmp.Or(result.Message, "it found nothing"), mostMessage)
	return result, given.err
}

// finding is what is wrong in a Cluster.
type finding struct {
	wrong []string
	// machines that were healthy just before and have some of it; elsewhere: others have.
	machines  []string
	elsewhere bool
}

// add what is wrong with one of the Machines, or with something else where that has no name.
func (f *finding) add(machine, wrong string) {
	f.wrong = append(f.wrong, wrong)
	switch {
	case machine == "":
		f.elsewhere = true
	case !slices.Contains(f.machines, machine):
		f.machines = append(f.machines, machine)
	}
}

// found is the finding; nil when nothing is wrong.
func (f *finding) found() error {
	if len(f.wrong) == 0 {
		return nil
	}
	return f
}

// Error names what is wrong.
func (f *finding) Error() string {
	wrong, more := slices.Sorted(slices.Values(f.wrong)), ""
	if n := len(wrong) - mostNamed; n > 0 {
		wrong, more = wrong[:mostNamed], fmt.Sprintf(", and %d more", n)
	}
	return strings.Join(wrong, ", ") + more
}

// blame notes the Machines that each result is held against. What a look at the Cluster found on one of them is. What a
// person's check answered is held against all of them, since nothing says where it comes from; but not beside something
// in the Cluster that is wrong elsewhere or was not seen, as that may be why (K-8). A check that nobody answered is
// held against none: an outage of a Prometheus says nothing about a template.
func (s *Subject) blame(results []quoinv1.RolloutCheckResult, errs []error) {
	elsewhere := false
	for i, err := range errs {
		about, answer := &finding{}, unwanted{}
		switch {
		case err == nil:
		case i < ofCluster && errors.As(err, &about):
			results[i].Machines = slices.Sorted(slices.Values(about.machines))
			elsewhere = elsewhere || about.elsewhere
		case i < ofCluster:
			elsewhere = true
		case !elsewhere && errors.As(err, &answer):
			results[i].Machines = slices.Sorted(slices.Values(s.Subjects))
		}
	}
}
