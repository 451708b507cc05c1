// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/text"
)

// maxEventMessage in bytes is that of the events API: what reads events by it expects no longer ones.
const maxEventMessage = 1024

// newEventBroadcaster sends events, also for as long after the end of ctx as what runs then may take. What is queued
// when the process ends is lost. The rollout of a large pool has more events about its policy at once than client-go
// takes from one source about one object (25, then one each five minutes) before it drops them. Those of one reason are
// still combined, into one that shows the last message.
func newEventBroadcaster(ctx context.Context, shutdown time.Duration) record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: 200, QPS: 1. / 10, MaxEvents: 50}))
	context.AfterFunc(ctx, func() { time.AfterFunc(shutdown, broadcaster.Shutdown) })
	return broadcaster
}

// eventManager records events with their messages.
type eventManager struct{ ctrl.Manager }

// GetEventRecorder returns a recorder of events that differ by their messages, as those of Cluster API's managers do.
// Those of the events API differ by object, related object, reason and action: what is recorded within six minutes of
// the first becomes a number in its series, and of several steps the first alone is named.
func (m eventManager) GetEventRecorder(name string) events.EventRecorder {
	//nolint:staticcheck // its successor loses messages
	return messageRecorder{m.GetEventRecorderFor(name)}
}

type messageRecorder struct{ record.EventRecorder }

// Eventf implements events.EventRecorder, with at most maxEventMessage of a message. No user sees the related object or
// the action; the message names them.
func (r messageRecorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	r.Event(regarding, kind, reason, text.Shorten(fmt.Sprintf(note, args...), maxEventMessage))
}
