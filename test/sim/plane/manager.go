// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
)

// Write is a change that a manager made: of an object in its own API server, in that of a workload cluster, or of etcd's
// members.
type Write struct {
	// Where it was made: "management", "workload" or "etcd".
	Where string
	// What was done, such as "PATCH machines/x status".
	What string
}

// String says where and what.
func (w Write) String() string { return w.Where + " " + w.What }

// Manager runs controllers in this process.
type Manager struct {
	// written is called after every change, when set.
	written  func(Write)
	versions *versions

	cancel    context.CancelFunc
	dead      atomic.Bool
	silent    atomic.Bool
	requests  atomic.Int64
	writes    atomic.Int64
	connector *hostaccess.Connector

	running sync.WaitGroup
	mu      sync.Mutex
	errs    []error
	kinds   map[string]int64
}

// config reaches the API server as long as the manager lives.
func (m *Manager) config(to *rest.Config) *rest.Config {
	config := rest.CopyConfig(to)
	if m.versions == nil {
		m.versions = &versions{}
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if m.dead.Load() {
				return nil, errKilled
			}
			if m.silent.Load() {
				return nil, errSilent
			}
			m.count(request)
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode < 300 && request.Method != http.MethodGet {
				if what := changed(request); what != "" && m.versions.news(request.URL.Path, response) {
					m.wrote(Write{"management", what})
				}
			}
			return response, err
		})
	})
	return config
}

// changed says what a request changed, in few words; nothing for what nobody misses.
func changed(request *http.Request) string {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	for i, word := range path {
		if word == "namespaces" && i+2 < len(path) {
			path = path[i+2:]
			break
		}
	}
	switch path[0] {
	case "events", "leases":
		return ""
	}
	if strings.Contains(request.URL.RawQuery, "dryRun") {
		return ""
	}
	return request.Method + " " + strings.Join(path, "/")
}

// versions are those that the last writes answered with, by the path of the object. An apply that says what is there already
// is answered with the same version again, and is no change. It outlives managers.
type versions struct {
	mu   sync.Mutex
	last map[string]string
}

var resourceVersion = regexp.MustCompile(`"resourceVersion":"([^"]+)"`)

// news says whether the answer to a write has another version than the one before. What cannot be read is news.
func (v *versions) news(path string, response *http.Response) bool {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return true
	}
	found := resourceVersion.FindSubmatch(body)
	if found == nil {
		return true
	}
	object := strings.TrimSuffix(path, "/status")
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last[object] == string(found[1]) {
		return false
	}
	if v.last == nil {
		v.last = map[string]string{}
	}
	v.last[object] = string(found[1])
	return true
}

func (m *Manager) wrote(w Write) {
	m.writes.Add(1)
	if m.written != nil {
		m.written(w)
	}
}

// start runs a manager until the end of all, and waits until its caches are filled.
func (m *Manager) start(ctx context.Context, mgr ctrl.Manager) error {
	m.running.Add(1)
	failed := make(chan struct{})
	go func() {
		defer m.running.Done()
		if err := mgr.Start(ctx); err != nil {
			m.mu.Lock()
			m.errs = append(m.errs, err)
			m.mu.Unlock()
			close(failed)
		}
	}()
	select {
	case <-mgr.Elected():
	case <-failed:
		m.mu.Lock()
		defer m.mu.Unlock()
		return errors.Join(m.errs...)
	}
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("the manager's caches were not filled")
	}
	return nil
}

// Kill ends the manager as SIGKILL does: from this moment on nothing of it reaches an API server or a host any more, and
// what it had in memory is gone.
func (m *Manager) Kill() {
	m.dead.Store(true)
	if m.connector != nil {
		m.connector.Close()
	}
	m.cancel()
}

// Silence has no API server answer the manager's requests, or answer them again. What it watches is heard all the same.
func (m *Manager) Silence(silent bool) { m.silent.Store(silent) }

// Stop kills the manager and waits until it has ended.
func (m *Manager) Stop() error {
	m.Kill()
	ended := make(chan struct{})
	go func() {
		m.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		m.mu.Lock()
		defer m.mu.Unlock()
		return errors.Join(m.errs...)
	case <-time.After(30 * time.Second):
		return fmt.Errorf("the manager does not end")
	}
}

// Requests counts what the manager asked the API server for, Writes what it changed there, in workload clusters and etcd.
func (m *Manager) Requests() int64 { return m.requests.Load() }

// count a request, also by what it asks for.
func (m *Manager) count(request *http.Request) {
	m.requests.Add(1)
	kind := kindOf(request)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kinds == nil {
		m.kinds = map[string]int64{}
	}
	m.kinds[kind]++
}

// kindOf a request is its method and resource without the name of the object, such as "PATCH machines status".
func kindOf(request *http.Request) string {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	resource := min(2, len(path)-1) // /api/v1/<resource>
	if path[0] == "apis" {
		resource = min(3, len(path)-1)
	}
	if path[resource] == "namespaces" && resource+2 < len(path) {
		resource += 2
	}
	kind := request.Method + " " + path[resource]
	switch {
	case resource+2 < len(path):
		kind += " " + path[resource+2]
	case request.Method == http.MethodGet && resource+1 == len(path):
		kind = "LIST " + path[resource]
		if request.URL.Query().Has("watch") {
			kind = "WATCH " + path[resource]
		}
	}
	return kind
}

// Kinds are Requests by method and resource.
func (m *Manager) Kinds() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kinds)
}

// Writes counts changes.
func (m *Manager) Writes() int64 { return m.writes.Load() }

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var errKilled = errors.New("the manager was killed")
