// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

const (
	// freshFor is how long after a look its success may be acted on: what was held by something else meanwhile is looked
	// at once more.
	freshFor = time.Minute
	// mostSubjects of one look, and of those that are remembered.
	mostSubjects = 64
	// mostFailure bounds what is said of a failed look.
	mostFailure = 1024
)

const (
	// Validating says that the Cluster is looked at.
	Validating Reason = "Validating"
	// ValidationFailed says that looks found something for longer than they may.
	ValidationFailed Reason = quoinv1.ValidationFailedReason
)

// Look is an order to look at a Cluster. What was found goes to Looked.
type Look struct {
	// Pool that is rolled out: other pools' failures are none (K-8).
	Pool string
	// Validation of the pool, and the digest of what the policy says about all.
	Validation *quoinv1.RolloutValidation
	Digest     string
	// Machines that have to be in order, with the time since when they are healthy.
	Machines []Subject
	// Due is when to look.
	Due time.Time
}

// Subject of a look.
type Subject struct {
	Name  string
	Since time.Time
}

// validationDigest of all that the policy says about validation.
func validationDigest(policy *quoinv1.RolloutPolicySpec) string {
	sum := fnv.New64a()
	say := json.NewEncoder(sum)
	_ = say.Encode(policy.Validation) // neither strings and numbers nor a hash fail
	for i := range policy.Groups {
		_ = say.Encode(policy.Groups[i].Name)
		_ = say.Encode(policy.Groups[i].Validation)
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// threshold is how many looks in a row have to find nothing; 0 where none is made (S3-12, K-7).
func threshold(v *quoinv1.RolloutValidation) int32 {
	if v == nil {
		return 0
	}
	return ptr.Deref(v.SuccessThreshold, 2)
}

func orSeconds(of *int32, unset int32) time.Duration {
	return seconds(ptr.To(ptr.Deref(of, unset)))
}

// Looked is the record after a look that ended at the given time. A success counts for the Machines that were looked at
// and are healthy since the same time; a failure takes all successes of the pool back (K-7).
func Looked(
	before *quoinv1.RolloutValidationStatus, look *Look, results []quoinv1.RolloutCheckResult, at time.Time,
) *quoinv1.RolloutValidationStatus {
	ended := metav1.NewTime(at).Rfc3339Copy()
	record := begin(before, look.Pool, look.Digest)
	if record.Since.IsZero() {
		record.Since = ended
	}
	record.LastLookTime = ended
	was := record.Results
	record.Results = nil
	for _, result := range results {
		result.Since = ended
		for _, earlier := range was {
			if earlier.Name == result.Name && earlier.Status == result.Status {
				result.Since = earlier.Since
			}
		}
		record.Results = append(record.Results, result)
	}
	if failures(record) != "" {
		record.Successes = ptr.To[int32](0)
		record.Machines = slices.DeleteFunc(record.Machines, func(m quoinv1.RolloutValidatedMachine) bool {
			return m.MachineDeployment == look.Pool
		})
		return record
	}
	enough := threshold(look.Validation)
	record.Successes = ptr.To(min(ptr.Deref(record.Successes, 0)+1, enough))
	if *record.Successes >= enough {
		record.Since = ended
	}
	for _, m := range look.Machines {
		succeeded(record, look, m, ended)
	}
	return record
}

// begin is the record of a pool: the one before where that is the same, and else a new one with what is remembered of
// other pools' Machines.
func begin(before *quoinv1.RolloutValidationStatus, pool, digest string) *quoinv1.RolloutValidationStatus {
	record := before.DeepCopy()
	if record == nil || record.Digest != digest {
		record = &quoinv1.RolloutValidationStatus{Digest: digest}
	}
	if record.MachineDeployment != pool {
		record = &quoinv1.RolloutValidationStatus{Digest: digest, MachineDeployment: pool, Machines: record.Machines}
	}
	return record
}

// succeeded counts a success of one Machine.
func succeeded(record *quoinv1.RolloutValidationStatus, look *Look, m Subject, at metav1.Time) {
	one := quoinv1.RolloutValidatedMachine{Name: m.Name, MachineDeployment: look.Pool, Successes: 1,
		HealthySince: metav1.NewTime(m.Since), LastLookTime: at}
	record.Machines = slices.DeleteFunc(record.Machines, func(known quoinv1.RolloutValidatedMachine) bool {
		if known.Name == m.Name && known.HealthySince.Time.Equal(m.Since) {
			one.Successes = min(known.Successes+1, threshold(look.Validation))
		}
		return known.Name == m.Name
	})
	if len(record.Machines) == mostSubjects {
		record.Machines = record.Machines[1:]
	}
	record.Machines = append(record.Machines, one)
}

// failures are what the last look found; empty when that was nothing.
func failures(record *quoinv1.RolloutValidationStatus) string {
	var found []string
	for _, result := range record.Results {
		if result.Status != quoinv1.RolloutCheckPassed {
			found = append(found, result.Name+": "+result.Message)
		}
	}
	return text.Shorten(strings.Join(found, "; "), mostFailure)
}

// blames reports whether the last look holds something against a Machine.
func blames(record *quoinv1.RolloutValidationStatus, m Machine) bool {
	return slices.ContainsFunc(record.Results, func(result quoinv1.RolloutCheckResult) bool {
		return result.Status != quoinv1.RolloutCheckPassed && slices.Contains(result.Machines, m.Name)
	})
}

// validation is what is known of validation, and who needs it.
type validation struct {
	record *quoinv1.RolloutValidationStatus
	// failed says why no rollout goes on; empty when validation does not take too long.
	failed string
	// needs looks, by pool in the order of the policy.
	needs []*Look
}

// recall takes from the record what still holds: nothing of another specification, and no Machine that is not healthy
// since the same time. No look is one of so many in a row with those before a pause.
func (p *planner) recall(pools []rules) {
	digest := validationDigest(p.policy)
	if p.Validation == nil || p.Validation.Digest != digest {
		return
	}
	record := p.Validation.DeepCopy()
	if record.LastLookTime.Time.Before(p.Resumed) {
		record.Successes = nil
	}
	record.Machines = slices.DeleteFunc(record.Machines, func(known quoinv1.RolloutValidatedMachine) bool {
		return known.LastLookTime.Time.Before(p.Resumed) || !slices.ContainsFunc(pools, func(pool rules) bool {
			return pool.Name == known.MachineDeployment && slices.ContainsFunc(pool.Machines, func(m Machine) bool {
				return m.Name == known.Name && m.Gated && !m.Deleting && m.Unhealthy == "" &&
					known.HealthySince.Time.Equal(m.Since)
			})
		})
	})
	p.validation.record = record
	for i := range pools {
		pool := &pools[i]
		// A pool that came to another group meanwhile may have no validation any more.
		if pool.Name != record.MachineDeployment || record.Since.IsZero() || pool.suspended != "" ||
			threshold(pool.validation) == 0 {
			continue
		}
		timeout := orSeconds(pool.validation.TimeoutSeconds, 900)
		if end := record.Since.Add(timeout); p.now.Before(end) {
			p.again(end.Sub(p.now))
			continue
		}
		p.validation.failed = fmt.Sprintf("MachineDeployment %s was not validated within %s: %s. Mend that, or take the "+
			"template before, or suspend its group; a successThreshold of 0 goes on without validation", pool.Name, timeout,
			cmp.Or(failures(record), "looks that found nothing were too few"))
		p.result.Stalled, p.result.Cause = p.validation.failed, ValidationFailed
	}
}

// afterFailedValidation is the rule that a failed validation stops every rollout (S3-10). A pool that waits for nothing
// but looks goes on having them made.
func (p *planner) afterFailedValidation(pool *rules, room *room) (Reason, string) {
	if p.validation.failed == "" || p.looksAt(pool) && room.inFlight == 0 {
		return "", ""
	}
	return ValidationFailed, p.validation.failed
}

// validatesFirst has the Cluster looked at before a Machine is admitted with no other one on its way: once before the
// first one of a pool (S3-10), and as often as after each one where one was replaced (S3-21).
func (p *planner) validatesFirst(pool *rules, room *room) (Reason, string) {
	enough := threshold(pool.validation)
	if enough == 0 || room.inFlight > 0 {
		return "", ""
	}
	if pool.in(counts) == 0 {
		enough = 1
	}
	known := int32(0)
	if record := p.validation.record; p.looksAt(pool) && p.fresh(record.LastLookTime) {
		known = ptr.Deref(record.Successes, 0)
	}
	if known >= enough {
		return "", ""
	}
	p.needLook(pool)
	return p.awaits(pool, known, enough)
}

// unvalidated says what the validation of a Machine waits for that is healthy and has soaked; empty when it is
// validated.
func (p *planner) unvalidated(pool *rules, m Machine) (Reason, string) {
	enough := threshold(pool.validation)
	if enough == 0 {
		return "", ""
	}
	known := p.validated(m)
	// Nobody looks while a person or a window is waited for, and then once more.
	if known.Successes >= enough && (p.fresh(known.LastLookTime) || p.pauses(pool, m) ||
		pool.off() && pool.exchanges() || pool.rolling() && p.schedule.closed()) {
		return "", ""
	}
	if look := p.needLook(pool); len(look.Machines) < mostSubjects {
		look.Machines = append(look.Machines, Subject{Name: m.Name, Since: m.Since})
	}
	return p.awaits(pool, known.Successes, enough)
}

// validated is what looks found nothing against so far of a Machine.
func (p *planner) validated(m Machine) (known quoinv1.RolloutValidatedMachine) {
	if p.validation.record != nil {
		for _, one := range p.validation.record.Machines {
			if one.Name == m.Name {
				known = one
			}
		}
	}
	return known
}

// awaitsValidation reports whether a Machine is not validated yet, and says so in its decision.
func (p *planner) awaitsValidation(pool *rules, m Machine, d *Decision) bool {
	d.Reason, d.Message = p.unvalidated(pool, m)
	return d.Reason != ""
}

func (p *planner) fresh(look metav1.Time) bool { return p.now.Before(look.Add(freshFor)) }

// needLook is the look that a pool needs.
func (p *planner) needLook(pool *rules) *Look {
	for _, look := range p.validation.needs {
		if look.Pool == pool.Name {
			return look
		}
	}
	look := &Look{Pool: pool.Name, Validation: pool.validation, Digest: validationDigest(p.policy)}
	p.validation.needs = append(p.validation.needs, look)
	return look
}

// looksAt reports whether the pool is the one that was looked at last.
func (p *planner) looksAt(pool *rules) bool {
	return p.validation.record != nil && p.validation.record.MachineDeployment == pool.Name
}

// awaits says how far validation is.
func (p *planner) awaits(pool *rules, successes, enough int32) (Reason, string) {
	record := p.validation.record
	waiting := record != nil && !record.Since.IsZero()
	switch {
	case waiting && !p.looksAt(pool):
		return Validating, fmt.Sprintf("it is validated after MachineDeployment %s", record.MachineDeployment)
	case waiting && p.validation.failed != "":
		return ValidationFailed, p.validation.failed
	case waiting && failures(record) != "":
		return Validating, "the Cluster does not validate, and is looked at again: " + failures(record)
	}
	return Validating, fmt.Sprintf("the Cluster is validated: %d of %d looks in a row found nothing",
		min(successes, enough-1), enough)
}

// order the next look: of the pool that is looked at already, or else of the first one that needs it.
func (p *planner) order() {
	record := p.validation.record
	if len(p.validation.needs) == 0 {
		if record != nil {
			record.Since = metav1.Time{}
		}
		p.result.Validation = record
		return
	}
	look := p.validation.needs[0]
	for _, other := range p.validation.needs {
		if record != nil && !record.Since.IsZero() && record.MachineDeployment == other.Pool {
			look = other
		}
	}
	record = begin(record, look.Pool, look.Digest)
	if record.Since.IsZero() {
		record.Since = metav1.NewTime(p.now).Rfc3339Copy()
		p.expire(record)
	}
	if !record.LastLookTime.IsZero() {
		interval := orSeconds(look.Validation.IntervalSeconds, 10)
		if failures(record) != "" {
			interval = orSeconds(look.Validation.FailureIntervalSeconds, 30)
		}
		look.Due = record.LastLookTime.Add(interval)
	}
	if look.Due.After(p.now) {
		p.again(look.Due.Sub(p.now))
	}
	p.result.Look, p.result.Validation = look, record
}

// expire drops successes that nobody acted on for long: what comes is not in a row with them.
func (p *planner) expire(record *quoinv1.RolloutValidationStatus) {
	if !p.fresh(record.LastLookTime) {
		record.Successes, record.Results, record.LastLookTime = nil, nil, metav1.Time{}
	}
	record.Machines = slices.DeleteFunc(record.Machines, func(m quoinv1.RolloutValidatedMachine) bool {
		return m.MachineDeployment == record.MachineDeployment && !p.fresh(m.LastLookTime)
	})
}
