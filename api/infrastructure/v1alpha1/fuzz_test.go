// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
)

// Whatever provider ID a Node or a Machine has: one that is ours names one claim of one host, and is written as it was.
func FuzzParseProviderID(f *testing.F) {
	for _, id := range []string{"", "quoin://metal/host-1/6f1f7a52", "quoin://metal/host-1",
		"quoin://metal/host-1/", "quoin:///a/b",
		"quoin://a/b/c/d", "metal/host-1/6f1f7a52", "aws:///eu-west-1a/i-0", "QUOIN://a/b/c", "quoin://quoin://a/b/c",
		"quoin://a//c", "quoin://\xff/b/c"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		namespace, host, claim, err := ParseProviderID(id)
		m := &QuoinMachine{}
		m.Spec.ProviderID = id
		if ofNamespace, of, ok := HostOf(m); ok != (err == nil) || ofNamespace != namespace || of != host {
			t.Fatalf("%q is of %s/%s: %v", id, ofNamespace, of, ok)
		}
		if err != nil {
			if namespace+host+claim != "" {
				t.Fatalf("%q/%q/%q beside %v", namespace, host, claim, err)
			}
			return
		}
		if namespace == "" || host == "" || claim == "" || strings.Contains(namespace+host+claim, "/") ||
			ProviderID(namespace, host, claim) != id {
			t.Fatalf("%q names %q/%q/%q", id, namespace, host, claim)
		}
	})
}
