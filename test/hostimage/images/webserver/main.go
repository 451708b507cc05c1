// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command webserver is the workload of the tests: it says which pod on which
// node answered, so that a test sees where requests land and when they fail.
//
//	GET /         "<pod> <node>\n"
//	GET /healthz  "ok\n", 503 once the pod is being ended
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// drain is how long requests are still answered after the signal to end: until
// then other nodes' Service rules may still lead here.
const drain = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	var ending atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		hostname, _ := os.Hostname()
		fmt.Fprintln(w, hostname, os.Getenv("NODE_NAME"))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if ending.Load() {
			http.Error(w, "ending", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})

	address := os.Getenv("ADDRESS")
	if address == "" {
		address = ":8080"
	}
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		ending.Store(true)
		time.Sleep(drain)
		limit, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		_ = server.Shutdown(limit)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err) //nolint:gocritic // the process ends, and its signal handler with it
	}
	// ListenAndServe returns as soon as Shutdown begins; requests under way
	// still need a moment.
	time.Sleep(100 * time.Millisecond)
}
