// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// ownership tries the fence between management planes: two claims of two generations meet on one host.
func ownership(ctx context.Context, s *session) (string, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return "", err
	}
	s.dirty = true
	record := func(uid string, generation int64) owner.Record {
		return owner.Record{Namespace: "conformance", Host: "host", Machine: "machine-" + uid, UID: uid, Generation: generation}
	}
	if err := s.store.Acquire(ctx, conn, record("first", 2)); err != nil {
		return "", fmt.Errorf("taking a host that nobody has: %w", err)
	}
	var stale *owner.StaleError
	var held *owner.HeldError
	if err := s.store.Acquire(ctx, conn, record("first", 1)); !errors.As(err, &stale) {
		return "", fmt.Errorf("an older generation of the claim was not refused as stale, but: %w", orNothing(err))
	}
	if err := s.store.Acquire(ctx, conn, record("second", 2)); !errors.As(err, &held) {
		return "", fmt.Errorf("another claim was not refused, but: %w", orNothing(err))
	}
	if err := s.store.Acquire(ctx, conn, record("first", 3)); err != nil {
		return "", fmt.Errorf("raising the generation: %w", err)
	}
	if err := s.store.Release(ctx, conn, record("first", 3)); err != nil {
		return "", fmt.Errorf("giving the host back: %w", err)
	}
	// The host remembers, or a plane restored from a backup would take it under a number that was used before.
	if err := s.store.Acquire(ctx, conn, record("second", 2)); !errors.As(err, &stale) {
		return "", fmt.Errorf("a generation older than the last released one was not refused as stale, but: %w", orNothing(err))
	}
	if err := s.store.Acquire(ctx, conn, record("second", 4)); err != nil {
		return "", fmt.Errorf("taking the host that was given back: %w", err)
	}
	_, err = s.run(ctx, "rm -f "+ssh.Quote(s.store.Root+"/owner.json"))
	return "the older of two generations is refused, also after a release", err
}

// orNothing makes an error that can be wrapped of the absence of one.
func orNothing(err error) error {
	if err == nil {
		return errors.New("granted")
	}
	return err
}
