// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

const (
	// tarpits are the hosts of one tenant, and share is how many of them are let have a call at once.
	tarpits, share = 600, 512
	// tarpitsOf is their namespace.
	tarpitsOf = "tarpits"
)

// pits is a fleet that takes connections, and whose calls never end: every other host says nothing at all, and the rest
// falls silent in its first command.
type pits struct {
	court *court
	// hosts that fall silent in a command, by name.
	hosts map[string]*sim.Host
	over  chan struct{}

	mu sync.Mutex
	// stuck are those that did.
	stuck map[string]bool
	// silent counts the open connections of each that says nothing.
	silent map[string]int
	// held are those that had a call at the last look.
	held map[string]bool
}

// register them.
func (p *pits) register(c *court) {
	c.t.Helper()
	p.court = c
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tarpitsOf}}, credentials(c.fleet, tarpitsOf))
	var created errgroup.Group
	created.SetLimit(16)
	for i := range tarpits {
		host, err := c.fleet.Add(fmt.Sprintf("%s-%03d", tarpitsOf, i))
		if err != nil {
			c.t.Fatal(err)
		}
		object := quoinHost(host, tarpitsOf)
		if i%2 == 0 {
			object.Spec.Port = p.listen(host.Name, object.Spec.Address)
		} else {
			p.hosts[host.Name] = host
		}
		created.Go(func() error { return c.plane.Client.Create(c.t.Context(), object) })
	}
	if err := created.Wait(); err != nil {
		c.t.Fatal(err)
	}
}

// listen takes connections on a port, and says nothing. It reads on, and so sees the other side go.
func (p *pits) listen(host, address string) (port int32) {
	p.court.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		p.court.t.Fatal(err)
	}
	p.court.t.Cleanup(func() { _ = listener.Close() })
	count := func(more int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent[host] += more
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			count(1)
			go func() {
				_, _ = io.Copy(io.Discard, connection)
				_ = connection.Close()
				count(-1)
			}()
		}
	}()
	return int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

// hang keeps a command of one of them from beginning.
func (p *pits) hang(host string) {
	p.mu.Lock()
	p.stuck[host] = true
	p.mu.Unlock()
	<-p.over
}

// hanging are those that keep a call from its end now.
func (p *pits) hanging() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := map[string]bool{}
	for host, open := range p.silent {
		if open > 0 {
			now[host] = true
		}
	}
	for host := range p.stuck {
		if p.hosts[host].Server.Open() > 0 {
			now[host] = true
		}
	}
	return now
}

// waiting are those that say what they wait for, and what to do about it.
func (p *pits) waiting() []string {
	list := &infrav1.QuoinHostList{}
	if err := p.court.plane.Client.List(context.Background(), list, client.InNamespace(tarpitsOf)); err != nil {
		p.court.t.Error(err)
	}
	var names []string
	for i := range list.Items {
		ready := conditions.Get(&list.Items[i], infrav1.HostReadyCondition)
		if ready != nil && ready.Status == metav1.ConditionFalse &&
			strings.Contains(ready.Message, fmt.Sprintf("the hosts of namespace %s have as many calls at once as there is room "+
				"for, at most %d of 640", tarpitsOf, share)) &&
			strings.Contains(ready.Message, "kubectl -n "+tarpitsOf+" get quoinhosts") {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// lacksHanging says what they lack until their share is full. What a call held that just ended may be seen beside what
// the next one holds, so those count that are seen at two looks.
func (p *pits) lacksHanging() string {
	hanging, waiting, both := p.hanging(), p.waiting(), 0
	for host := range hanging {
		if p.held[host] {
			both++
		}
	}
	p.held = hanging
	if both > share {
		p.court.t.Fatalf("%d tarpits have a call at once", both)
	}
	if both != share || len(waiting) != tarpits-share {
		return fmt.Sprintf("%d hang, %d say that they wait", both, len(waiting))
	}
	return ""
}

// TestATarpitFleetStarvesNobody has 600 hosts of one tenant keep every call for ever. Those of another tenant come
// after them, have calls all at once, and become a cluster, while each tarpit that waited when they came waits still.
func TestATarpitFleetStarvesNobody(t *testing.T) {
	t.Parallel()
	needsPlane(t)
	needsTime(t)
	g := NewWithT(t)
	const good = 50
	own, err := plane.Start(t.Context(), "sim-tarpits")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = own.Stop() })
	silent := &pits{over: make(chan struct{}), hosts: map[string]*sim.Host{}, stuck: map[string]bool{},
		silent: map[string]int{}}
	t.Cleanup(func() { close(silent.over) }) // when all that follows has ended
	court := newCourt(t, courtOptions{name: "beside-tarpits", replicas: 1, hosts: -1, workers: true, plane: own,
		adjust: func(o *plane.SiteOptions) {
			o.Everywhere = true
			// Longer than this test takes: no tarpit makes room by giving up, nor for want of a word that busy cores delay.
			o.Call, o.Connections.DialTimeout, o.Connections.KeepAlive = time.Hour, time.Hour, time.Hour
		}})
	var mu sync.Mutex
	begun, all := map[string]bool{}, make(chan struct{})
	court.listen(func(e event) {
		if e.where != "command" {
			return
		}
		host, _, _ := strings.Cut(e.what, " ")
		if strings.HasPrefix(host, tarpitsOf) {
			silent.hang(host)
			return
		}
		// The first command of each good host waits for those of all others.
		mu.Lock()
		if begun[host] = true; len(begun) == good {
			select {
			case <-all:
			default:
				close(all)
			}
		}
		mu.Unlock()
		select {
		case <-all:
		case <-t.Context().Done():
		}
	})
	begin := time.Now()
	silent.register(court)
	court.until("the tarpits", silent.lacksHanging)
	hanging, waiting := silent.hanging(), silent.waiting()

	for range good {
		court.addHost()
	}
	court.until("the first command of all good hosts at once", func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(begun) == good {
			return ""
		}
		return fmt.Sprintf("%d of %d have begun, while %d tarpits hang", len(begun), good, len(silent.hanging()))
	})
	court.untilWhole("the control plane")
	const workers = good - 1
	court.patience = whole + workers*time.Minute
	court.addPool("good", workers)
	court.until("the workers", func() string { return court.lacksPool("good", time.Time{}, workers) })
	court.until("all good hosts", func() string {
		list := &infrav1.QuoinHostList{}
		g.Expect(own.Client.List(t.Context(), list, client.InNamespace(court.options.name))).To(Succeed())
		for i := range list.Items {
			if !conditions.IsTrue(&list.Items[i], infrav1.HostReadyCondition) {
				return fmt.Sprintf("%s: %s", list.Items[i].Name, conditions.GetMessage(&list.Items[i], infrav1.HostReadyCondition))
			}
		}
		return ""
	})

	g.Expect(silent.hanging()).To(Equal(hanging), "no tarpit got more than its tenant's share, and none let go")
	g.Expect(silent.waiting()).To(Equal(waiting))
	t.Logf("%d tarpits, %d of which wait, and a cluster of %d hosts, in %s", tarpits, len(waiting), good,
		time.Since(begin).Round(100*time.Millisecond))
}
