// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// Whatever a person writes of members that are to leave etcd: each word is the id of one member or is said to be none,
// and no id is of a member that nobody wrote.
func FuzzMembersToRemove(f *testing.F) {
	for _, value := range []string{"", "8e9e05c52164694d", "8e9e05c52164694d, 1f", " ,,", "0x1f", "1_f", "-1", "+1", "1F",
		"18e9e05c52164694d", "member-1,1f", "\xff"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		ids, wrong := controlplanev1.MembersToRemove(value)
		for word := range strings.SplitSeq(value, ",") {
			word = strings.TrimSpace(word)
			id := strings.TrimLeft(strings.ToLower(word), "0")
			switch {
			case word == "":
			case len(wrong) > 0 && wrong[0] == word:
				wrong = wrong[1:]
				if len(id) <= 16 && strings.Trim(id, "0123456789abcdef") == "" {
					t.Fatalf("%q is an id", word)
				}
			case len(ids) > 0 && strings.TrimLeft(fmt.Sprintf("%x", ids[0]), "0") == id:
				ids = ids[1:]
			default:
				t.Fatalf("%q became %x, and %q is wrong", word, ids, wrong)
			}
		}
		if len(ids)+len(wrong) > 0 {
			t.Fatalf("%x and %q are not in %q", ids, wrong, value)
		}
	})
}
