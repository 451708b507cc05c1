// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// A host crashes in the middle of kubeadm join and boots again. Its etcd member may vote by then, and the second voter of two
// is missed: it must come back with its host. Whoever joined half is replaced.
func TestAHostThatCrashesWhileItJoinsIsReplaced(t *testing.T) {
	for _, phase := range []string{"etcd-added", "etcd-started", "etcd-promoted", "mark-control-plane"} {
		needsTime(t)
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			var armed atomic.Bool
			court := newCourt(t, courtOptions{
				name: "crash-" + phase, replicas: 1, hosts: 2, strategy: surge, admission: true,
				onPhase: func(host *machine.Machine, verb, at string) {
					if verb == "join" && at == phase && armed.CompareAndSwap(true, false) {
						host.Owner.(*sim.Host).Reboot()
					}
				},
			})
			court.untilWhole("coming up")
			judge, writer := court.watchMembers(1), court.write()
			// Of two voters none may be missing; the host is away for as long as the test lets it.
			judge.lose(1)
			armed.Store(true)
			court.roll(fmt.Sprintf("a rollout whose new host crashes before %s", phase))
			judge.lose(-1)
			if armed.Load() {
				t.Error("nothing crashed")
			}
			writer.end()
			judge.end()
		})
	}
}
