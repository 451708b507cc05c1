// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// drainDoubt is for how long a drain must look skipped until that is believed: Cluster API writes in one request where it has
// come to, and in the next one what it did there.
const drainDoubt = time.Second

// doubtCache remembers since when the drains of Machines look skipped.
type doubtCache struct{ sinceCache[string] }

// settle makes Machines of which a skipped drain is not to be believed yet such that are drained, and tells whether there is
// any.
func (c *doubtCache) settle(uid types.UID, machines []controlplane.Machine, now time.Time, doubt time.Duration) (doubtful bool) {
	var undrained []string
	for _, machine := range machines {
		if machine.Undrained {
			undrained = append(undrained, machine.Name)
		}
	}
	since := c.note(uid, now, undrained)
	for i := range machines {
		if machine := &machines[i]; machine.Undrained && now.Sub(since[machine.Name]) < doubt {
			machine.Undrained, machine.AtTermination, doubtful = false, false, true
		}
	}
	return doubtful
}
