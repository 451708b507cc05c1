// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrStalled ends what makes no progress.
var ErrStalled = errors.New("nothing moved")

// watchdog cancels a context when nothing moves for a while. A whole snapshot has no bound that fits both a fast
// network and a slow one.
type watchdog struct {
	mu    sync.Mutex
	timer *time.Timer
	limit time.Duration
}

func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{limit: limit}
	w.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("%w for %s", ErrStalled, limit)) })
	return ctx, w, func() {
		w.timer.Stop()
		cancel(context.Canceled)
	}
}

// tick notes that something moved.
func (w *watchdog) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A timer that has fired stays so: its context is over.
	if w.timer.Stop() {
		w.timer.Reset(w.limit)
	}
}

// reader ticks with each Read.
func (w *watchdog) reader(r io.Reader) io.Reader { return tickingReader{r, w} }

type tickingReader struct {
	r io.Reader
	w *watchdog
}

func (t tickingReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.w.tick()
	}
	return n, err
}
