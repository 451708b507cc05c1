// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// MemberView is a member as a test sees it from outside, however ill its host is.
type MemberView struct {
	ID      uint64
	Name    string
	Learner bool
	// Running says that its process exists, Ready that it votes and sees a leader.
	Running, Ready bool
}

// EtcdClient reaches the members with the API server's credentials, without any host in between: through the given ones, or
// through all that run. It fails before the first kubeadm init.
func (c *ControlPlane) EtcdClient(members ...*Member) (*clientv3.Client, error) {
	c.mu.Lock()
	server := c.server
	if len(members) == 0 {
		members = c.running()
	}
	endpoints := endpointsOf(members)
	c.mu.Unlock()
	return c.etcdClientOf(server, endpoints)
}

// running are the members whose process exists, in the order of their coming; mu is held.
func (c *ControlPlane) running() []*Member {
	var running []*Member
	for _, member := range c.members {
		if member.Running() {
			running = append(running, member)
		}
	}
	slices.SortFunc(running, func(a, b *Member) int { return a.number - b.number })
	return running
}

func endpointsOf(members []*Member) []string {
	var endpoints []string
	for _, member := range members {
		endpoints = append(endpoints, "https://"+net.JoinHostPort(member.ip, strconv.Itoa(etcdClientPort)))
	}
	return endpoints
}

func (c *ControlPlane) etcdClientOf(server *apiServer, endpoints []string) (*clientv3.Client, error) {
	if server == nil || len(endpoints) == 0 {
		return nil, errors.New("no etcd member of the simulated cluster runs")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.files["etcd-cafile"])
	pair, err := tls.X509KeyPair(server.files["etcd-certfile"], server.files["etcd-keyfile"])
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		TLS:         &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.dialEtcd)},
	})
}

// watcher is a client of all members that run, kept from one look at the membership to the next.
type watcher struct {
	mu        sync.Mutex
	server    *apiServer
	endpoints []string
	client    *clientv3.Client
}

// watch returns the client; a new one when other members run, or another cluster.
func (c *ControlPlane) watch() (*clientv3.Client, error) {
	c.mu.Lock()
	server, endpoints := c.server, endpointsOf(c.running())
	c.mu.Unlock()
	w := &c.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil && w.server == server && slices.Equal(w.endpoints, endpoints) {
		return w.client, nil
	}
	client, err := c.etcdClientOf(server, endpoints)
	if err != nil {
		return nil, err
	}
	w.close()
	w.server, w.endpoints, w.client = server, endpoints, client
	return client, nil
}

// close ends the client; mu is held.
func (w *watcher) close() {
	if w.client != nil {
		_ = w.client.Close()
		w.client = nil
	}
}

// Membership is the list of members that a quorum confirms.
func (c *ControlPlane) Membership(ctx context.Context) ([]MemberView, error) {
	client, err := c.watch()
	if err != nil {
		return nil, err
	}
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var views []MemberView
	for _, member := range list.Members {
		view := MemberView{ID: member.ID, Name: member.Name, Learner: member.IsLearner}
		peer, err := url.Parse(member.PeerURLs[0])
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		process := c.byIP[peer.Hostname()]
		c.mu.Unlock()
		if process != nil {
			view.Running, view.Ready = process.Running(), process.Ready()
		}
		views = append(views, view)
	}
	return views, nil
}
