// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownwrites tells a controller that its cache has not shown it its own last write yet. A reconcile by such a
// cache decides by what it has changed itself: at best it does the same again and fails with a conflict, at worst it
// undoes it.
package ownwrites

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Timeout is how long a write is waited for. After it the cache is believed again: an API server that was restored
// from a backup counts its resource versions from a lower number, and would keep a controller waiting for ever.
const Timeout = 10 * time.Second

// Client notes what it writes. The zero value is not ready, see Track.
type Client struct {
	client.Client
	now func() time.Time

	mu     sync.Mutex
	writes map[types.UID]write
	// swept is when what is too old to be waited for was last dropped: nobody asks for an object that is gone.
	swept time.Time
}

type write struct {
	version string
	at      time.Time
}

// Track returns c with its writes noted. c reads from a cache.
func Track(c client.Client) *Client {
	return &Client{Client: c, now: time.Now, writes: map[types.UID]write{}}
}

// Behind says that the object, as it was read from the cache, is older than what was last written to it here. The event
// of that write is still to come, so a reconciler may just return; after Timeout the answer is no.
func (c *Client) Behind(o client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.writes[o.GetUID()]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(o.GetResourceVersion(), last.version)
	if err == nil && order < 0 && c.now().Sub(last.at) < Timeout {
		return true
	}
	delete(c.writes, o.GetUID())
	return false
}

// note keeps the version that the API server answered a write with.
func (c *Client) note(o client.Object, err error) error {
	if err != nil || o.GetUID() == "" {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.swept) >= Timeout {
		maps.DeleteFunc(c.writes, func(_ types.UID, w write) bool { return now.Sub(w.at) >= Timeout })
		c.swept = now
	}
	if gone := !o.GetDeletionTimestamp().IsZero() && len(o.GetFinalizers()) == 0; gone {
		delete(c.writes, o.GetUID())
		return nil
	}
	c.writes[o.GetUID()] = write{version: o.GetResourceVersion(), at: now}
	return nil
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.note(o, c.Client.Update(ctx, o, options...))
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.note(o, c.Client.Patch(ctx, o, patch, options...))
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter {
	return statusWriter{SubResourceWriter: c.Client.Status(), client: c}
}

type statusWriter struct {
	client.SubResourceWriter
	client *Client
}

// Update implements client.SubResourceWriter.
func (w statusWriter) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	return w.client.note(o, w.SubResourceWriter.Update(ctx, o, options...))
}

// Patch implements client.SubResourceWriter.
func (w statusWriter) Patch(
	ctx context.Context, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	return w.client.note(o, w.SubResourceWriter.Patch(ctx, o, patch, options...))
}
