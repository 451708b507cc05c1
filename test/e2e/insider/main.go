// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command insider is a client that lives in a pod of the workload cluster.
//
//	insider <namespace> <report>
//
// reads and writes a ConfigMap through the Service kubernetes every half second, over connections that it keeps, as
// controllers do, and writes down how long it got no answer, how long no scheduler renewed its lease, and how long the
// cluster's DNS named nobody.
//
//	insider call <workload> <collector>
//
// asks a workload, and tells a collector what became of it; see call.go.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/insider/report"
)

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount"
	period  = 500 * time.Millisecond
	// patience is longer than any gap that is allowed.
	patience = 5 * time.Second
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "call" {
		call(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) != 3 {
		log.Fatal("usage: insider <namespace> <report> | call <workload> <collector>")
	}
	authority, err := os.ReadFile(account + "/ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	c := &client{
		url:  "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		http: &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}},
	}
	var mu sync.Mutex
	result := report.Report{}
	every := func(gaps *report.Gaps, attempt func(ctx context.Context, n int) error) {
		for n := 0; ; n++ {
			begin := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := attempt(ctx, n)
			cancel()
			mu.Lock()
			gaps.Note(begin, time.Now(), err)
			content, _ := json.Marshal(result)
			if err := os.WriteFile(os.Args[2]+".new", content, 0o644); err == nil { //nolint:gosec // the test reads it as another user
				_ = os.Rename(os.Args[2]+".new", os.Args[2])
			}
			mu.Unlock()
			time.Sleep(max(0, period-time.Since(begin)))
		}
	}
	of := "/api/v1/namespaces/" + os.Args[1] + "/configmaps/insider"
	go every(&result.Reads, func(ctx context.Context, _ int) error {
		_, err := c.do(ctx, http.MethodGet, of, nil)
		return err
	})
	renewed := ""
	go every(&result.Schedulers, func(ctx context.Context, _ int) error {
		answer, err := c.do(ctx, http.MethodGet, schedulerLease, nil)
		if err != nil {
			return err
		}
		before := renewed
		if renewed = renewal.FindString(string(answer)); renewed == before {
			return errors.New("no scheduler renewed its lease")
		}
		return nil
	})
	go every(&result.Names, func(ctx context.Context, _ int) error {
		_, err := net.DefaultResolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		return err
	})
	every(&result.Writes, func(ctx context.Context, n int) error {
		_, err := c.do(ctx, http.MethodPatch, of, fmt.Appendf(nil, `{"data":{"count":"%d"}}`, n))
		return err
	})
}

// schedulerLease is renewed every 2 s by the scheduler that leads.
const schedulerLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"

var renewal = regexp.MustCompile(`"renewTime":\s*"[^"]*"`)

type client struct {
	url  string
	http *http.Client
}

func (c *client) do(ctx context.Context, method, of string, body []byte) ([]byte, error) {
	// It is renewed while the pod runs.
	token, err := os.ReadFile(account + "/token")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+of, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.200s", response.Status, answer)
	}
	return answer, err
}
