// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds a pod's namespaces: it waits for a signal and reaps the
// children that a shared process namespace hands to it.
//
// With -v it only says what it is and succeeds: kubeadm's health check before
// an upgrade runs a Job of this image with that flag.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	for _, argument := range os.Args[1:] {
		if argument == "-v" {
			fmt.Println("pause of the Quoin tests")
			return
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended: signals of several may arrive as
// one.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
	}
}
