// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// anew is when the time begins that something may take: then, or when a pause ended later, in which nobody acts; zero
// stays zero. What Cluster API does goes on with the Machine, what a policy does with the policy (State.Resumed).
func anew(began, resumed time.Time) time.Time {
	if !began.IsZero() && resumed.After(began) {
		return resumed
	}
	return began
}
