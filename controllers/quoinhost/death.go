// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"time"

	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const (
	// defaultUnreachableTimeout is how long a host is silent before it counts as dead.
	defaultUnreachableTimeout = 10 * time.Minute
	// bootTime is what a power-cycled host gets to answer.
	bootTime = 5 * time.Minute
)

// death is what a silent host whose claim must end is to be met with. The claim of a host whose Machine is wanted never
// comes here: a node may be well without its sshd.
type death string

const (
	// notYet: it may still answer.
	notYet death = "not yet"
	// notOurs: it serves another management cluster, or another claim, as far as was seen.
	notOurs death = "not ours"
	// domainLost: too many hosts fell silent with it.
	domainLost death = "domain lost"
	// cycle: a boot is tried before anything is given up.
	cycle death = "cycle"
	// booting: it was cycled, and gets its time.
	booting death = "booting"
	// fence: the power goes off.
	fence death = "fence"
	// unfenced: nothing can say that it does not run, so a person must.
	unfenced death = "unfenced"
	// fenced: it does not run, and its claim need not end yet.
	fenced death = "fenced"
	// giveUp: its claim ends without it.
	giveUp death = "give up"
)

// unreachability is all that the verdict depends on.
type unreachability struct {
	policy infrav1.UnreachablePolicy
	// since when the host is silent.
	since time.Time
	// leaving: the QuoinMachine is being deleted, and not only its Machine, whose node may still be drained.
	leaving bool
	// usurped: the last that the host said is that it serves somebody else. Its power is theirs, too.
	usurped bool
	// lost: the failure domain is.
	lost bool
	// fenced: the host is known not to run.
	fenced bool
	// bmc: there is one; bmcFailed: the last order to it failed, or was not given because nobody vouched for it.
	bmc, bmcFailed bool
	// cycledAt is zero when the host was never cycled.
	cycledAt time.Time
}

func timeoutOf(policy infrav1.UnreachablePolicy) time.Duration {
	if policy.TimeoutSeconds == nil {
		return defaultUnreachableTimeout
	}
	return time.Duration(ptr.Deref(policy.TimeoutSeconds, 0)) * time.Second
}

// judge says what comes next. Whatever it says follows from what is recorded, so a manager that dies in between goes
// on.
func (s unreachability) judge(now time.Time) death {
	afterTimeout := s.policy.Release == infrav1.UnreachableReleaseAfterTimeout
	switch {
	case now.Before(s.since.Add(timeoutOf(s.policy))) && !s.fenced:
		return notYet
	case s.usurped:
		return notOurs
	case s.fenced && s.leaving:
		return giveUp
	case s.fenced:
		return fenced
	case s.lost:
		return domainLost
	case !s.bmc && afterTimeout && s.leaving, s.bmcFailed && afterTimeout && s.leaving:
		return giveUp
	case !s.bmc:
		return unfenced
	case s.cycledAt.Before(s.since):
		return cycle
	case now.Before(s.cycledAt.Add(bootTime)):
		return booting
	}
	return fence
}
