// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// Start is the method form of the package's Start.
func (r Runner) Start(ctx context.Context, host ssh.Host, plan Plan) error { panic("not yet") }

// Resume is the method form of the package's Resume.
func (r Runner) Resume(ctx context.Context, host ssh.Host, id string) error { panic("not yet") }

// Poll is the method form of the package's Poll.
func (r Runner) Poll(ctx context.Context, host ssh.Host, id string) (Status, error) { panic("not yet") }

// Stop is the method form of the package's Stop.
func (r Runner) Stop(ctx context.Context, host ssh.Host, id string) error { panic("not yet") }

// StopOthers is the method form of the package's StopOthers.
func (r Runner) StopOthers(ctx context.Context, host ssh.Host, except string) error { panic("not yet") }
