// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version tells which Quoin runs.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by -ldflags "-X github.com/quoin-dev/cluster-api-provider-quoin/internal/version.version=v0.1.0" and so on.
var (
	version string
	commit  string
)

// Info is what a person who reads a log needs to find the source.
type Info struct {
	// Version is the release, or "devel".
	Version string
	// Commit is the revision, with a trailing "+" when files were changed; "" when unknown.
	Commit string
	// Go is the version of the compiler.
	Go string
}

// Get returns what was set at build time, and else what the Go toolchain recorded.
func Get() Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok && info.Commit == "" {
		for _, setting := range build.Settings {
			switch {
			case setting.Key == "vcs.revision":
				info.Commit = setting.Value + info.Commit
			case setting.Key == "vcs.modified" && setting.Value == "true":
				info.Commit += "+"
			}
		}
	}
	if info.Version == "" {
		info.Version = "devel"
	}
	return info
}

// String is one line for logs and --version.
func (i Info) String() string {
	if i.Commit == "" {
		return fmt.Sprintf("quoin %s (%s)", i.Version, i.Go)
	}
	return fmt.Sprintf("quoin %s (commit %s, %s)", i.Version, i.Commit, i.Go)
}
