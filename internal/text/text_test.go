// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text  string
		bytes int
		want  string
	}{
		{"", 5, ""}, {"hello", 5, "hello"}, {"hello!", 5, "he..."}, {"grün war es", 6, "gr..."}, {"grün war es", 7, "grü..."},
		{"hello", 2, ".."}, {"hello", 0, ""}, {"ääää", 7, "ää..."},
		{"a\xffb", 5, "a?b"}, {"a\xffbcdef", 5, "a?..."},
	} {
		NewWithT(t).Expect(text.Shorten(c.text, c.bytes)).To(Equal(c.want))
	}
}

func TestSentence(t *testing.T) {
	for given, want := range map[string]string{"": "", "a host": "A host", "A host": "A host", "über": "Über", "3 hosts": "3 hosts"} {
		NewWithT(t).Expect(text.Sentence(given)).To(Equal(want))
	}
}
