// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/insider/report"
)

const (
	callPeriod = 50 * time.Millisecond
	// callLimit is how long a request may take before it counts as failed.
	callLimit  = 5 * time.Second
	tellPeriod = time.Second
)

// call asks a workload twenty times a second, each time over a connection of its own and once, until it is told to end.
// Then the last request still gets its answer, and the collector the whole account.
func call(workload, collector string) {
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pod, _ := os.Hostname()
	calls := report.Calls{Pod: pod, Node: os.Getenv("NODE_NAME")}
	asker := &http.Client{Timeout: callLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	teller := &http.Client{Timeout: callLimit}
	last := time.Time{}
	for ending.Err() == nil {
		began := time.Now()
		err := ask(asker, workload)
		calls.Note(began, time.Now(), err)
		if time.Since(last) >= tellPeriod {
			last = time.Now()
			account := encode(calls)
			go func() { _ = tell(teller, collector, account) }() // it must not hold the next request up
		}
		time.Sleep(max(0, callPeriod-time.Since(began)))
	}
	calls.Ended = true
	for range 10 {
		err := tell(teller, collector, encode(calls))
		if err == nil {
			return
		}
		log.Print(err)
		time.Sleep(500 * time.Millisecond)
	}
}

func ask(client *http.Client, workload string) error {
	response, err := client.Get(workload)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && (response.StatusCode != http.StatusOK || len(answer) == 0) {
		err = fmt.Errorf("%s: %.200q", response.Status, answer)
	}
	return err
}

func encode(calls report.Calls) []byte {
	content, err := json.Marshal(calls)
	if err != nil {
		log.Fatal(err)
	}
	return content
}

// tell is not counted: it shows what was seen and is no part of it.
func tell(client *http.Client, collector string, account []byte) error {
	response, err := client.Post(collector, "application/json", bytes.NewReader(account))
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the collector says %s", response.Status)
	}
	return nil
}
