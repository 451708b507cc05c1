// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// pushFor is how long one call sends: long enough that asking what is lacking does not count, short enough that a
// person sees progress. A push of hours is many calls, none of which fails because its time is over.
const pushFor = time.Minute

// maxPushes is how many hosts are sent files at a time, of which those of one namespace are at most 16. Each of them
// takes the place of a short call for a minute; with more, nobody would look at the hosts of the others.
const maxPushes = 20

// Pushed is how far a push came.
type Pushed struct {
	artifacts.Progress
	// Waits says that nothing was sent, because it is the turn of others.
	Waits bool
}

// PushOrder is what sends the files of a version to a host.
type PushOrder struct {
	Owner     owner.Record
	Artifacts artifacts.Wanted
	Role      artifacts.Role
}

// sending begins the sentence about a push that is under way.
const sending = "sending "

// push sends what the host lacks of a version before the plan id, which installs it, is started. Until everything is
// there it says pending, and how far it came.
func (r *reconciliation) push(ctx context.Context, id, condition string, order PushOrder) outcome {
	pushed := milestone{"pushed", fmt.Sprint(id, order.Artifacts.Kubeadm, order.Artifacts.AddonVersions)}
	if !order.Artifacts.Pushed() || r.pace().marked(pushed) {
		return ready
	}
	say := func(how string) {
		r.setFalse(condition, infrav1.HostStepRunningReason,
			fmt.Sprintf("%sthe files of %s to %s%s", sending, order.Artifacts.Version, r.host.Name, how))
	}
	progress, o := call(ctx, r, callPush(id), longCall, with(order, r.controller.Provisioner.Push))
	switch {
	case o.pending && r.host.Status.NextAttempt == nil &&
		!strings.HasPrefix(conditions.GetMessage(r.host, condition), sending):
		say("")
		return o
	case o.pending:
		return o
	case progress.Waits:
		say(fmt.Sprintf(": waits until others have theirs, for %d hosts at a time are sent files, and of one namespace "+
			"four fifths of that", maxPushes))
		return pending(after(r.timings().Push))
	case !progress.Done:
		say(": " + progress.String())
		if progress.Later {
			return pending(after(r.timings().Push))
		}
		return pending(after(time.Millisecond))
	}
	// The call that starts the plan takes several turns.
	r.pace().mark(pushed)
	return ready
}

// Push implements Provisioner.
func (o *sshProvisioner) Push(ctx context.Context, host *infrav1.QuoinHost, order PushOrder) (Pushed, error) {
	conn, err := o.connector.ConnectAgain(ctx, host)
	if err != nil {
		return Pushed{}, err
	}
	if !o.pushes.Try(host.Namespace) {
		return Pushed{Waits: true}, nil
	}
	defer o.pushes.Leave(host.Namespace)
	// Nothing comes onto a host that serves another.
	guard, err := acquired(ctx, conn, order.Owner)
	if err != nil {
		return Pushed{}, err
	}
	order.Artifacts.Control, order.Artifacts.OperatorKeys = o.egress.Control, o.bundleKeys
	order.Artifacts.Vetted = &o.vetted
	progress, err := artifacts.Push(ctx, guard.On(conn), order.Artifacts, order.Role, pushFor)
	return Pushed{Progress: progress}, sourceError(order.Artifacts, err)
}

// sourceError blames the source for what is no failure of the connection, and not the host's word that it serves
// another.
func sourceError(wanted artifacts.Wanted, err error) error {
	if err == nil || ssh.NeverRan(err) || ssh.IsTransient(err) || owner.ServesAnother(err) ||
		errors.Is(err, owner.ErrMoved) {
		return err
	}
	return &ArtifactsError{Place: wanted.Place(), Err: err}
}
