// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package apierr

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
)

func TestIgnoreGone(t *testing.T) {
	gone := fmt.Errorf("patching: %w", apierrors.NewNotFound(schema.GroupResource{Resource: "machines"}, "m"))
	other := errors.New("refused")
	for name, c := range map[string]struct{ in, out error }{
		"nothing":               {nil, nil},
		"gone":                  {gone, nil},
		"gone, in an aggregate": {fmt.Errorf("m: %w", kerrors.NewAggregate([]error{gone, gone})), nil},
		"another error":         {other, other},
		"an aggregate with another error": {kerrors.NewAggregate([]error{gone, other}),
			kerrors.NewAggregate([]error{gone, other})},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			if c.out == nil {
				g.Expect(IgnoreGone(c.in)).To(Succeed())
				return
			}
			g.Expect(IgnoreGone(c.in)).To(Equal(c.out))
		})
	}
}
