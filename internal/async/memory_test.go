// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package async

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

// What a call found is taken, or its object goes while it runs, or before it is taken.
func TestNothingIsRememberedOfObjectsThatAreGone(t *testing.T) {
	g := NewWithT(t)
	c := New(Options{MaxConcurrent: 4})
	defer c.Close()
	for i := range memorytest.Lives {
		key := types.NamespacedName{Namespace: fmt.Sprintf("n%d", i), Name: "h"}
		call := func(ctx context.Context) (int, error) {
			if i%3 == 1 {
				<-ctx.Done()
			}
			return i, nil
		}
		_, done, err := Do(c, key, "call", 0, call)
		g.Expect(done).To(BeFalse())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(memorytest.Entries(c)).To(HaveKeyWithValue(".calls", 1))
		if i%3 == 1 {
			c.Cancel(key)
		}
		<-c.Events()
		switch i % 3 {
		case 0:
			value, done, err := Do(c, key, "call", 0, call)
			g.Expect([]any{value, done, err}).To(Equal([]any{i, true, nil}))
		case 2:
			c.Cancel(key)
		}
		g.Expect(memorytest.Text(memorytest.Entries(c))).To(BeEmpty())
	}
}
