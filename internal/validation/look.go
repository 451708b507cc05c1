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
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// Timeout of one check. They are made side by side, so it is that of a look too.
	Timeout = 20 * time.Second
	// mostMessage is what a result says at most.
	mostMessage = 1024
	// mostNamed of what is wrong are named.
	mostNamed = 10
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
	// AnyAddress lets checks ask this host too, for tests.
	AnyAddress bool
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
	results := make([]quoinv1.RolloutCheckResult, len(checks))
	var group sync.WaitGroup
	for i, check := range checks {
		group.Go(func() { results[i] = run(ctx, check) })
	}
	group.Wait()
	return results
}

// run bounds a check by Timeout, also one that does not heed it, and takes a panic for an error.
func run(ctx context.Context, check check) quoinv1.RolloutCheckResult {
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
	return result
}

// found is the error that names what is wrong; nil when nothing is.
func found(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	more := ""
	if n := len(wrong) - mostNamed; n > 0 {
		wrong, more = wrong[:mostNamed], fmt.Sprintf(", and %d more", n)
	}
	return errors.New(strings.Join(wrong, ", ") + more)
}
