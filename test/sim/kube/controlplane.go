// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// ports of a control plane, where kubeadm puts them.
const (
	apiPort         = 6443
	etcdClientPort  = 2379
	etcdPeerPort    = 2380
	etcdMetricsPort = 2381
)

// ControlPlaneOptions of a simulated cluster that has a control plane of its own.
type ControlPlaneOptions struct {
	// Assets is the directory with etcd and kube-apiserver; that of KUBEBUILDER_ASSETS when empty.
	Assets string
	// NodeGrace is how long a kubelet is silent before its Node's conditions become Unknown; 2 s when 0.
	NodeGrace time.Duration
	// Patience of kubeadm with etcd and the API server, where a real one has minutes; a minute when 0.
	Patience time.Duration
	// Syncs has etcd sync its files, which costs time; Member.Disk needs it.
	Syncs bool
}

// ControlPlane is the control plane of one workload cluster: real etcd members, one for each control-plane host, and one
// real API server that stands for those of all hosts. It comes to life with kubeadm init on a machine. Close it.
//
// On this machine everything lies on addresses 127.x.y.n that no other control plane has: those of the members by their
// number, .253 the API server, .254 the endpoint. Members know each other by the addresses of their machines, which exist
// nowhere; a proxy between them translates, and is where their network fails.
type ControlPlane struct {
	options ControlPlaneOptions
	reaper  *rig.Reaper
	prefix  string
	guard   net.Listener
	cancel  context.CancelFunc

	// peers is the proxy between members, store the API server's way to a member.
	peers, store net.Listener

	mu      sync.Mutex
	members map[*machine.Machine]*Member
	byIP    map[string]*Member
	// backends are the API servers of machines that serve, in the order of their coming.
	backends []*backend
	next     int
	front    net.Listener
	server   *apiServer
	kubelets map[string]*kubeletState
	departed departures
	closed   bool
	watcher  watcher
	// starting is held while the API server is being started.
	starting sync.Mutex
}

// NewControlPlane reserves what a control plane needs. Nothing runs until a machine does kubeadm init.
func NewControlPlane(o ControlPlaneOptions) (*ControlPlane, error) {
	if o.Assets == "" {
		o.Assets = os.Getenv(rig.AssetsVariable)
	}
	if o.Assets == "" {
		return nil, fmt.Errorf("%[1]s is not set: run `export %[1]s=$(hack/bundle/envtest-assets.sh)` first", rig.AssetsVariable)
	}
	if o.NodeGrace == 0 {
		o.NodeGrace = 2 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	c := &ControlPlane{options: o, members: map[*machine.Machine]*Member{}, byIP: map[string]*Member{}, kubelets: map[string]*kubeletState{}}
	// Who listens at .252 has the rest, also among other processes of this machine.
	for try := 0; c.guard == nil; try++ {
		c.prefix = fmt.Sprintf("127.%d.%d.", 64+rand.IntN(128), rand.IntN(256))
		var err error
		if c.guard, err = net.Listen("tcp", c.prefix+"252:6443"); err != nil && try > 100 {
			return nil, fmt.Errorf("looking for loopback addresses: %w", err)
		}
	}
	var err error
	if c.reaper, err = rig.NewReaper(); err != nil {
		return nil, errors.Join(err, c.guard.Close())
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	for _, listener := range []*net.Listener{&c.peers, &c.store} {
		// The name 127.0.0.1 is in every member's certificate.
		if *listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			c.Close()
			return nil, err
		}
	}
	go serve(c.peers, c.proxyPeer)
	go serve(c.store, c.proxyStore)
	go c.manage(ctx)
	return c, nil
}

// Close ends every process and removes the data.
func (c *ControlPlane) Close() {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	members, server, front := c.members, c.server, c.front
	c.mu.Unlock()
	c.watcher.mu.Lock()
	c.watcher.close()
	c.watcher.mu.Unlock()
	for _, member := range members {
		member.stop()
	}
	if server != nil {
		server.stop()
	}
	for _, listener := range []net.Listener{c.guard, c.peers, c.store, front} {
		if listener != nil {
			_ = listener.Close()
		}
	}
	_ = c.reaper.Finish()
}

// Endpoint is where the API server answers while a control-plane machine serves it: what stands in front of the machines
// is a load balancer.
func (c *ControlPlane) Endpoint() (host string, port int32) { return c.prefix + "254", apiPort }

func (c *ControlPlane) endpoint() string {
	return net.JoinHostPort(c.prefix+"254", strconv.Itoa(apiPort))
}

// Config is an administrator's way to the API server, through the endpoint. It fails before the first kubeadm init.
func (c *ControlPlane) Config() (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return nil, errors.New("the simulated cluster has no API server yet: no kubeadm init came so far")
	}
	return rest.CopyConfig(c.server.admin), nil
}

// client is Config's.
func (c *ControlPlane) client() (kubernetes.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return nil, errors.New("no API server yet")
	}
	return c.server.client, nil
}

// serving says whether anything answers at the endpoint.
func (c *ControlPlane) serving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server != nil && len(c.backends) > 0
}

// scratch is a directory on this machine that ends with the control plane.
func (c *ControlPlane) scratch(elements ...string) string {
	return filepath.Join(append([]string{c.reaper.Scratch()}, elements...)...)
}

// backend is the API server of one machine, as the load balancer sees it.
type backend struct {
	machine *machine.Machine
	conns   map[net.Conn]bool
}

// addBackend lets the load balancer use the machine.
func (c *ControlPlane) addBackend(m *machine.Machine) (*backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	b := &backend{machine: m, conns: map[net.Conn]bool{}}
	c.backends = append(c.backends, b)
	if c.front == nil {
		front, err := net.Listen("tcp", c.endpoint())
		if err != nil {
			return nil, err
		}
		c.front = front
		go serve(front, c.balance)
	}
	return b, nil
}

// removeBackend breaks the connections to the machine's API server. Without any, connections are refused.
func (c *ControlPlane) removeBackend(b *backend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.backends[:0:0]
	for _, other := range c.backends {
		if other != b {
			kept = append(kept, other)
		}
	}
	c.backends = kept
	for conn := range b.conns {
		_ = conn.Close()
	}
	if len(c.backends) == 0 && c.front != nil {
		_ = c.front.Close()
		c.front = nil
	}
}

// serves says whether the machine is a backend.
func (c *ControlPlane) serves(m *machine.Machine) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.backends {
		if b.machine == m {
			return true
		}
	}
	return false
}

// balance gives a connection to the next machine.
func (c *ControlPlane) balance(conn net.Conn) {
	c.mu.Lock()
	if len(c.backends) == 0 || c.server == nil {
		c.mu.Unlock()
		_ = conn.Close()
		return
	}
	c.next++
	b, address := c.backends[c.next%len(c.backends)], c.server.address
	b.conns[conn] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(b.conns, conn)
		c.mu.Unlock()
	}()
	far, err := net.Dial("tcp", address)
	if err != nil {
		_ = conn.Close()
		return
	}
	splice(conn, far)
}
