// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command program stands for the manager where a release is tested: it is as small as a program with a module can be.
package main

import (
	"os"

	"github.com/spf13/pflag"
)

// version makes the bytes of each version others.
var version string

func main() {
	pflag.Parse()
	_, _ = os.Stdout.WriteString(version)
}
