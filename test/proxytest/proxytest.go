// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxytest holds clients to their word that they ask no proxy which the environment of their process names.
package proxytest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// NotAsked runs ask, which is all that its test does, where every scheme has a proxy, and fails when that is asked. The
// environment is read once in a process, so the test has one of its own. A proxy is never meant for this machine: what
// is asked for needs a name of another one, such as bmc.invalid.
func NotAsked(t *testing.T, ask func()) {
	t.Helper()
	const inner = "QUOIN_TEST_OWN_PROCESS"
	if os.Getenv(inner) != "" {
		ask()
		return
	}
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	own := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$") //nolint:gosec // this one
	own.Env = append(os.Environ(), inner+"=1", "NO_PROXY=", "no_proxy=")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		own.Env = append(own.Env, name+"="+proxy.URL)
	}
	output, err := own.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: "+t.Name()) {
		t.Fatalf("%v: %s", err, output)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the proxy was asked %d times", n)
	}
}
