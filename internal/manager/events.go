// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
)

// newBroadcaster sends events until ctx ends and what runs then has ended. A rollout of a large pool says more of its
// policy at once than client-go takes from one source about one object (25, then one each five minutes) before it drops
// events. Those of one reason are still combined, into one that shows the last message.
func newBroadcaster(ctx context.Context) record.EventBroadcaster {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: 200, QPS: 1. / 10, MaxEvents: 50}))
	context.AfterFunc(ctx, func() { time.AfterFunc(ShutdownTimeout, broadcaster.Shutdown) })
	return broadcaster
}

// sayingManager records events with all that they say.
type sayingManager struct{ ctrl.Manager }

// GetEventRecorder returns a recorder of events that are told apart by their messages, as those of Cluster API's
// managers are. Those of the events API are told apart by object, related object, reason and action: what is said
// within six minutes of the first becomes a number in its series, and of several steps the first alone is named.
func (m sayingManager) GetEventRecorder(name string) events.EventRecorder {
	//nolint:staticcheck // its successor loses messages
	return saying{m.GetEventRecorderFor(name)}
}

type saying struct{ record.EventRecorder }

// Eventf implements events.EventRecorder. No user sees the related object or the action; the message names them.
func (s saying) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	s.EventRecorder.Eventf(regarding, kind, reason, note, args...)
}
