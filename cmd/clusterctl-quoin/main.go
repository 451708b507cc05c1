// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command clusterctl-quoin is a plugin of clusterctl: `clusterctl quoin ...` when it is in the PATH. It also runs
// alone.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// Exit codes beside 0 and 1, for scripts.
const (
	// exitRefused: nothing was done, and a person has to see to what was found.
	exitRefused = 3
	// exitUndone: what was begun was undone.
	exitUndone = 4
)

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends what does not listen, such as kind
	out := progress.New(os.Stdout)
	err := newRoot(out).ExecuteContext(ctx)
	stop()
	out.Show("")
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, execute.ErrRefused):
		return exitRefused
	case errors.Is(err, execute.ErrUndone):
		return exitUndone
	}
	return 1
}
