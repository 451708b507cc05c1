// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance tries whether a machine can serve as a host, with the very packages that the controllers use: first
// contact, inspection, plans that are cut off and taken up again, the owner record, and a reset that takes back what a
// plan made. It installs nothing of Kubernetes, and leaves the machine as it was.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute returns 0 when nothing failed, 1 when a check failed, 2 when the machine was not tried at all.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "conformance: %v\n", err)
		return 2
	}
	report := try(ctx, newSession(o), stdout)
	fmt.Fprintf(stdout, "\n%s\n", report.Summary())
	if o.output != "" {
		if err := report.Write(o.output); err != nil {
			fmt.Fprintf(stderr, "conformance: %v\n", err)
			return 2
		}
		fmt.Fprintf(stdout, "The report is in %s; docs/systems.md says how to contribute it.\n", o.output)
	}
	if !report.Passed() {
		return 1
	}
	return 0
}
