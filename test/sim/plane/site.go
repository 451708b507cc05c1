// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoinhost"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostaccess"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/manager"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/steady"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clocktest"
)

// SiteOptions of a site.
type SiteOptions struct {
	// Namespace of its own, which is made.
	Namespace string
	// Haste divides the waits of our controllers; nothing on a simulated host takes as long as a poll.
	Haste int
	// Connections tune SSH.
	Connections ssh.PoolOptions
	// Retry is how soon a workload cluster that did not answer is tried again; as in production when 0.
	Retry time.Duration
	// Everywhere has our manager look at all namespaces, of a plane of the site's own.
	Everywhere bool
	// Call is what a call with a host has at least; as in production when 0.
	Call time.Duration
	// Admission makes the API server ask our webhooks. Those of Cluster API are always asked, because they default.
	Admission bool
	// Workers has Cluster API's own controllers make Machines of MachineDeployments.
	Workers bool
	// Topologies has Cluster API's own controllers make Clusters of a ClusterClass; it needs Workers.
	Topologies bool
	// Backups is the volume of our manager's pod; none when empty. Spool is where snapshots wait.
	Backups, Spool string
	// Written is called after every change that our manager made, by the controller that made it.
	Written func(*Manager, Write)
}

// Site is a namespace with a whole management plane: Cluster API's core and kubeadm controllers, and all of ours in a
// manager that can be killed.
type Site struct {
	plane    *Plane
	options  SiteOptions
	upstream *Manager
	versions versions
	// offset of our manager's clock from that of all others.
	offset atomic.Int64

	mu      sync.Mutex
	manager *Manager
	ended   []*Manager
}

// NewSite makes the namespace and starts everything. Stop it.
func (p *Plane) NewSite(ctx context.Context, o SiteOptions) (*Site, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}}
	if err := p.Client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("making namespace %s: %w", o.Namespace, err)
	}
	s := &Site{plane: p, options: o, upstream: &Manager{}}
	upstream, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.upstream.cancel = cancel
	err := p.runCore(upstream, s.upstream, o)
	if err == nil {
		err = p.runBootstrap(upstream, s.upstream, o.Namespace, o.Retry)
	}
	if err == nil {
		err = s.Start()
	}
	if err == nil && o.Admission {
		var configurations []byte
		if configurations, err = p.ownWebhooks(); err == nil {
			err = p.admit(ctx, o.Namespace, o.Namespace+"-quoin", configurations)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Start runs our manager, after Kill.
func (s *Site) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Manager{versions: &s.versions}
	if s.options.Written != nil {
		m.written = func(w Write) { s.options.Written(m, w) }
	}
	options := &manager.Options{}
	options.AddFlags(pflag.NewFlagSet("sim", pflag.ContinueOnError))
	if !s.options.Everywhere {
		options.Namespace = s.options.Namespace
	}
	options.HealthAddress, options.Serving.DiagnosticsAddress = "0", "0"
	options.BackupDirectory, options.BackupSpool = s.options.Backups, s.options.Spool
	// Hosts are on loopback addresses.
	options.AllowedNetworks = []string{"127.0.0.0/8", "::1/128"}
	// The API servers are ours alone, and asked more often than in production.
	options.KubeAPIQPS, options.ClusterCacheClientQPS = -1, -1
	options.Harness = manager.Harness{
		Beside: true, Hosts: quickerHosts(s.options.Haste), ControlPlane: quicker(s.options.Haste), Mapper: s.plane.mapper, SSH: s.options.Connections,
		Webhooks:  s.plane.door.place(s.options.Namespace+"-quoin", m.dead.Load),
		Connector: func(c *hostaccess.Connector) { m.connector = c },
		ClusterCache: func(c clustercache.ClusterCache) clustercache.ClusterCache {
			retryConnections(c, s.options.Retry)
			return workloads{c, m}
		},
		Etcd:  members{etcd.Client{}, m},
		Clock: s.clock(),
	}
	if s.options.Call > 0 {
		options.Harness.Hosts.Call = s.options.Call
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	mgr, err := manager.New(ctx, m.config(s.plane.Config), options)
	if err != nil {
		return fmt.Errorf("making our manager: %w", err)
	}
	s.manager = m
	return m.start(ctx, mgr)
}

// quicker are the waits of a control plane whose hosts are so many times quicker than real ones.
func quicker(times int) quoincontrolplane.Timings {
	by := time.Duration(max(times, 1))
	timings := quoincontrolplane.DefaultTimings()
	for _, wait := range []*time.Duration{&timings.Words, &timings.DeadMember, &timings.OrphanedMember, &timings.SkippedDrain, &timings.APIServerStop} {
		*wait /= by
	}
	// Processes of simulated hosts end no sooner for that.
	timings.APIServerStop = max(timings.APIServerStop, 40*time.Second)
	for pace := range timings.Recheck {
		timings.Recheck[pace] /= by
	}
	return timings
}

// quickerHosts are the waits for hosts that are so many times quicker than real ones.
func quickerHosts(times int) quoinhost.Timings {
	t := quoinhost.DefaultTimings()
	for _, wait := range []*time.Duration{&t.Poll, &t.PollPause, &t.Probe, &t.Inspect, &t.RetryFirst, &t.RetryLast, &t.Power, &t.Push,
		&t.Isolate, &t.Vouch, &t.Next, &t.Longest} {
		*wait /= time.Duration(max(times, 1))
	}
	return t
}

// SetClockOffset sets the clock of our manager, and of those that follow it: what was written down before is as much
// longer ago, or lies ahead. Conditions are dated by all others' clock.
func (s *Site) SetClockOffset(offset time.Duration) { s.offset.Store(int64(offset)) }

// clock that one manager goes by.
func (s *Site) clock() clock.PassiveClock {
	start := time.Now()
	return steady.From(func() time.Time { return clocktest.Stepped(time.Now(), time.Duration(s.offset.Load())) },
		func() time.Duration { return time.Since(start) })
}

// Kill ends our manager at this instant.
func (s *Site) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.manager.dead.Load() {
		s.manager.Kill()
		s.ended = append(s.ended, s.manager)
	}
}

// Restart kills our manager and runs another one, which knows nothing.
func (s *Site) Restart() error {
	s.Kill()
	return s.Start()
}

// KillIf kills our manager at this instant if it is still this one, and says whether it was. Who was told true starts the
// next one, from elsewhere: the caller may be the manager itself.
func (s *Site) KillIf(m *Manager) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.manager != m || m.dead.Load() {
		return false
	}
	m.Kill()
	s.ended = append(s.ended, m)
	return true
}

// Manager is ours that runs now.
func (s *Site) Manager() *Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager
}

// Upstream are Cluster API's managers.
func (s *Site) Upstream() *Manager { return s.upstream }

// Stop ends all managers.
func (s *Site) Stop() error {
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []*Manager{s.manager, s.upstream} {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	for _, m := range s.ended {
		// What a killed one has to say is of no interest.
		_ = m.Stop()
	}
	return errors.Join(errs...)
}
