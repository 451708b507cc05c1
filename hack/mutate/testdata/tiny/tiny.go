// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tiny has a boundary that its test does not look at, and a function that none calls.
package tiny

// Grown reports whether a person may vote.
func Grown(age int) bool {
	return age >= 18
}

func idle() string { return "never called" }
