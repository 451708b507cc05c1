// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestChanges(t *testing.T) {
	type leaf struct {
		A string   `json:"a,omitempty"`
		L []string `json:"l,omitempty"`
	}
	type tree struct {
		One leaf  `json:"one"`
		Two *leaf `json:"two,omitempty"`
	}
	for name, c := range map[string]struct {
		before, after any
		want          []string
	}{
		"nothing":         {tree{One: leaf{A: "x"}}, tree{One: leaf{A: "x"}}, nil},
		"a leaf":          {tree{One: leaf{A: "x"}}, tree{One: leaf{A: "y"}}, []string{"one.a"}},
		"a leaf goes":     {tree{One: leaf{A: "x"}}, tree{}, []string{"one.a"}},
		"an object comes": {tree{}, tree{Two: &leaf{A: "x"}}, []string{"two.a"}},
		"an empty one":    {tree{}, tree{Two: &leaf{}}, []string{"two"}},
		"a list, whole":   {tree{One: leaf{L: []string{"x"}}}, tree{One: leaf{L: []string{"x", "y"}}}, []string{"one.l"}},
		"several, sorted": {tree{One: leaf{A: "x"}}, tree{One: leaf{A: "y", L: []string{"z"}}, Two: &leaf{A: "x"}},
			[]string{"one.a", "one.l", "two.a"}},
		"pointers to equals": {&leaf{A: "x"}, &leaf{A: "x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			changes, err := Changes(c.before, c.after)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changes).To(Equal(c.want))
		})
	}
}
