// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver ends the API server of a host that leaves the control plane.
package apiserver

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	// kubernetes holds the directory of manifests, and later the manifest. A reset empties it.
	kubernetes = "/etc/kubernetes"
	// longest is how long the kubelet may take. It sends SIGTERM when the manifest is gone, and SIGKILL when the pod's
	// grace, half a minute, is over.
	longest = time.Minute
	// pause between two looks.
	pause = 200 * time.Millisecond
)

//go:embed stop.sh
var stopScript string

// Stop has the kubelet end the API server, and returns when it has ended: when its manifest lies outside the directory
// of manifests and no process of it is left. Nothing that the host does after that may need the kubelet to reach the
// API, because the kubelet of a control-plane host talks to its own API server. To call it again changes nothing, and
// on a host without an API server it does nothing. A kubelet that does not end it within a minute is an *ssh.ExitError.
//
// An API server that is told to end takes itself out of the endpoints of the Service kubernetes before it stops to
// listen (PreShutdownHooks in k8s.io/apiserver/pkg/server/genericapiserver.go), as long as etcd answers it.
func Stop(ctx context.Context, host ssh.Host) error {
	if _, err := host.Run(ctx, ssh.Command{Sudo: true, Script: script(kubernetes, "/proc", longest)}); err != nil {
		return fmt.Errorf("having the kubelet end the API server: %w", err)
	}
	return nil
}

func script(kubernetes, proc string, longest time.Duration) string {
	return fmt.Sprintf("kubernetes=%s proc=%s looks=%d pause=%.1f\n%s", kubernetes, proc, longest/pause, pause.Seconds(),
		stopScript)
}
