// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package memorytest_test

import (
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/memorytest"
)

type inner struct {
	words map[string][]string
	self  *inner
}

type outer struct {
	by     map[string]*inner
	loose  sync.Map
	hidden fmt.Stringer
	inner
}

func (o *outer) String() string { return "" }

func TestEveryMapBelowIsCounted(t *testing.T) {
	g := NewWithT(t)
	one := &inner{words: map[string][]string{"a": {"x"}, "b": nil}}
	one.self = one
	o := &outer{by: map[string]*inner{"k": one, "none": nil}, hidden: &outer{by: map[string]*inner{"k": one}}}
	g.Expect(memorytest.Text(memorytest.Entries(&outer{}))).To(BeEmpty())
	o.loose.Store("x", 1)
	o.words = map[string][]string{"c": nil}
	g.Expect(memorytest.Text(memorytest.Entries(o))).To(Equal("by: 2, by[].words: 2, inner.words: 1, loose: 1"))
}
