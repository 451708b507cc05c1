// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"time"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
)

const (
	firstRetry = 30 * time.Second
	lastRetry  = 15 * time.Minute
	// lookInterval is how often a store is looked into in which nothing is to be stored: whether the last good snapshot
	// is still there. What is stored meanwhile is a look as well.
	lookInterval = 15 * time.Minute
)

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	wait := firstRetry
	for i := 1; i < failures && wait < lastRetry; i++ {
		wait *= 2
	}
	return min(wait, lastRetry)
}

// whenDue is when a snapshot is due, which may be in the past; zero when none is.
//
// Times in status are full seconds and those at which snapshots began are cut to such. So what began in the second of
// the request may have begun before it: only a later second counts, and is waited for.
func whenDue(
	spec *controlplanev1.EtcdBackup, status *controlplanev1.EtcdBackupStatus, newest *backup.Metadata, now time.Time,
) (time.Time, error) {
	var due time.Time
	var last time.Time
	if newest != nil {
		last = newest.Time
	}
	// Nor does what a clock that was ahead has dated answer a request.
	requested := status.Requested(now)
	answered := last.After(requested) && !last.After(now)
	if !requested.IsZero() && !answered {
		due = requested.Add(time.Second)
	}
	if spec.Schedule == "" {
		return due, nil
	}
	schedule, err := backup.ParseSchedule(spec.Schedule)
	if err != nil {
		return time.Time{}, err
	}
	scheduled := now
	if newest != nil {
		// A clock that was ahead must not put off the next one.
		scheduled = schedule.Next(earlier(last, now))
	}
	if due.IsZero() {
		return scheduled, nil
	}
	return earlier(due, scheduled), nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
