// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"
)

// BundleServer serves the bundles over HTTP on this machine's address in the lab's network, and counts.
type BundleServer struct {
	server   *http.Server
	location string
	served   atomic.Int64
}

// ServeBundles starts a server; Close ends it.
func (l *Lab) ServeBundles(ctx context.Context) (*BundleServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(Gateway, "0"))
	if err != nil {
		return nil, fmt.Errorf("serving bundles: %w", err)
	}
	b := &BundleServer{location: fmt.Sprintf("http://%s/bundles", listener.Addr())}
	files := http.StripPrefix("/bundles/", http.FileServer(http.Dir(filepath.Join(l.Cache, "bundles"))))
	b.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.served.Add(1)
			files.ServeHTTP(w, r)
		}),
	}
	go func() { _ = b.server.Serve(listener) }()
	return b, nil
}

// Location of all versions.
func (b *BundleServer) Location() string { return b.location }

// Served counts the requests.
func (b *BundleServer) Served() int64 { return b.served.Load() }

// Close ends the server.
func (b *BundleServer) Close() error { return b.server.Close() }
