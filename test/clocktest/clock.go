// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clocktest offers clocks for tests.
package clocktest

import (
	"time"
	"unsafe"
)

// Shows is a clock.PassiveClock that shows what the function returns.
type Shows func() time.Time

// Now implements clock.PassiveClock.
func (s Shows) Now() time.Time { return s() }

// Since implements clock.PassiveClock.
func (s Shows) Since(t time.Time) time.Duration { return s().Sub(t) }

// Stepped is a time that time.Now returned, as it would have been had the clock been set by so many seconds before. As
// with a clock that is set, what lies between two of them is what passed, and what they show is not.
func Stepped(now time.Time, by time.Duration) time.Time {
	// The first word holds seconds above 30 bits of nanoseconds, behind a bit that tells of the monotonic reading.
	wall := (*uint64)(unsafe.Pointer(&now)) //nolint:gosec // nothing else makes such a time
	*wall += uint64(by/time.Second) << 30   //nolint:gosec // wraps round where it is less
	return now
}
