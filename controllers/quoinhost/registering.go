// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// registering makes the first contact. The key that is seen there is pinned before anything else happens.
func (r *reconciliation) registering(ctx context.Context) (result, error) {
	if !trusted(r.host) && !hostaccess.FirstContact(r.host) {
		r.find(&hostaccess.HostKeyMissingError{Host: r.key().String()})
		return onEvent(), nil
	}
	if !trusted(r.host) {
		key, o := call(ctx, r, callIdentify, shortCall, r.controller.Provisioner.Identify)
		if o.pending {
			return o.result, nil
		}
		if err := r.pin(ctx, key); err != nil {
			return result{}, err
		}
		r.event("Normal", "HostKeyRecorded", "recorded host key %s at the first contact; compare it with the host's own",
			fingerprint(key))
		return onEvent(), nil
	}
	if _, o := call(ctx, r, callProbe, shortCall, r.controller.Provisioner.Probe); o.pending {
		return o.result, nil
	}
	return r.moveTo(infrav1.HostStateInspecting), nil
}

func fingerprint(key string) string {
	keys, err := ssh.ParseHostKeys(key)
	if err != nil || len(keys) == 0 {
		return fmt.Sprintf("%q", key)
	}
	return ssh.Fingerprint(keys[0])
}
