// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "cmp"

// Effect is what carrying out a step adds to what was decided.
type Effect struct {
	// Made is the Machine that it made; empty when it made none.
	Made string
	// Detail ends the step's message, such as with the pods that are still evicted.
	Detail string
}

// Outcome is a step as it was carried out, for reports: it is about the Machine that it made, and it is the fallback
// where what nothing depends on failed.
type Outcome struct{ Step }

// Done is the outcome of a step that was carried out.
func (s Step) Done(effect Effect) Outcome {
	s.Machine = cmp.Or(effect.Made, s.Machine)
	s.Message += effect.Detail
	return Outcome{s}
}
