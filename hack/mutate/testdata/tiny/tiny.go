// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tiny has a boundary that its test does not look at, and a function that none calls; one that loops
// without a line of it, and one of which two lines are the same.
package tiny

// Grown reports whether a person may vote.
func Grown(age int) bool {
	return age >= 18
}

func idle() string { return "never called" }

// Least counts down.
func Least(n int) int {
	for n > 1 {
		n--
	}
	return n
}

// Later says the same twice.
func Later(n int) int {
	n++
	n++
	return n
}
