// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clocktest offers clocks for tests.
package clocktest

import "time"

// Shows is a clock.PassiveClock that shows what the function returns.
type Shows func() time.Time

// Now implements clock.PassiveClock.
func (s Shows) Now() time.Time { return s() }

// Since implements clock.PassiveClock.
func (s Shows) Since(t time.Time) time.Duration { return s().Sub(t) }
