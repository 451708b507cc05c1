// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async

import (
	"context"
	"testing"

	"pgregory.net/rapid"
)

// However many namespaces keep their calls running, one that comes anew begins as long as any slot is free, and none
// has more than its share.
func TestSlotsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 40).Draw(t, "slots")
		shared := NewSlots(slots)
		own := map[string]int{}
		all := 0
		now, cancel := context.WithCancel(context.Background())
		cancel()
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			namespace := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "namespace")
			if own[namespace] > 0 && rapid.Bool().Draw(t, "leaves") {
				shared.Leave(namespace)
				own[namespace]--
				all--
				continue
			}
			free := slots - all
			// What cannot begin at once is given up at once.
			if shared.take(now, namespace) == nil {
				if free == 0 || own[namespace] > 0 && (free == 1 || own[namespace] >= 4*(free-1)) {
					t.Fatalf("%s has another one beside %d of its own, where %d are free", namespace, own[namespace], free)
				}
				own[namespace]++
				all++
			} else if free > 0 && own[namespace] == 0 {
				t.Fatalf("%s has none, where %d are free", namespace, free)
			}
		}
		for namespace, n := range own {
			for range n {
				shared.Leave(namespace)
			}
		}
		if shared.taken != 0 || len(shared.by) != 0 || len(shared.waiting) != 0 {
			t.Fatalf("%d are taken, by %v, and %d wait", shared.taken, shared.by, len(shared.waiting))
		}
	})
}
