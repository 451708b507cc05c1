// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Replicas are managers of one provider that elect a leader, behind the address that the API server calls for their
// webhooks. The last one that is there answers.
type Replicas struct {
	// Members in the order in which they started: the first one leads.
	Members []*Manager

	rig      *Rig
	alone    *Manager
	listener net.Listener
	mu       sync.Mutex
	serving  []int
	// callers are the API server's connections, answered how many each member had.
	callers  map[net.Conn]bool
	answered map[int]int
}

// Replicate ends a provider's manager, and starts several in its place.
func (r *Rig) Replicate(ctx context.Context, label string, count int) (*Replicas, error) {
	alone, ok := r.Managers[label]
	if !ok {
		return nil, fmt.Errorf("no manager %s", label)
	}
	if err := alone.process.stop(patience); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", alone.webhookPort))
	if err != nil {
		return nil, fmt.Errorf("listening in place of %s: %w", label, err)
	}
	replicas := &Replicas{rig: r, alone: alone, listener: listener, callers: map[net.Conn]bool{}, answered: map[int]int{}}
	go replicas.forward()
	for number := 1; number <= count; number++ {
		ports, err := freePorts(1)
		if err != nil {
			return replicas, err
		}
		member := &Manager{Label: label, certDir: alone.certDir, webhookPort: ports[0], replica: number}
		if err := r.startManager(ctx, member); err != nil {
			return replicas, err
		}
		replicas.Members = append(replicas.Members, member)
		if err := member.process.waitFor(ctx, http.DefaultClient, member.ready); err != nil {
			return replicas, err
		}
		replicas.mu.Lock()
		replicas.serving = slices.Insert(replicas.serving, 0, member.webhookPort)
		replicas.mu.Unlock()
		for first := number == 1; first; time.Sleep(200 * time.Millisecond) {
			if holder, err := replicas.Leader(ctx); err != nil {
				return replicas, err
			} else if holder != "" {
				break
			}
		}
	}
	return replicas, nil
}

// Prefer has a member answer before all others, and ends the connections that the API server keeps to another one.
func (r *Replicas) Prefer(member *Manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = slices.DeleteFunc(r.serving, func(port int) bool { return port == member.webhookPort })
	r.serving = slices.Insert(r.serving, 0, member.webhookPort)
	for caller := range r.callers {
		_ = caller.Close()
	}
}

// Answered is how many connections a member answered.
func (r *Replicas) Answered(member *Manager) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered[member.webhookPort]
}

// End asks a member to end, as a kubelet does, and waits until it has.
func (r *Replicas) End(member *Manager, grace time.Duration) error {
	r.mu.Lock()
	r.serving = slices.DeleteFunc(r.serving, func(port int) bool { return port == member.webhookPort })
	r.mu.Unlock()
	return member.process.stop(grace)
}

// Failed says how a member ended that did not end well, such as by a kill.
func (m *Manager) Failed() error { return m.process.exit }

// Leader is the holder of the provider's lease; empty when nobody has it.
func (r *Replicas) Leader(ctx context.Context) (string, error) {
	leases := &coordinationv1.LeaseList{}
	if err := r.rig.Client.List(ctx, leases, client.InNamespace(r.alone.deployment.Namespace)); err != nil {
		return "", fmt.Errorf("lease of %s: %w", r.alone.Label, err)
	}
	for _, lease := range leases.Items {
		return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
	}
	return "", nil
}

// Restore ends what is left, and starts the one manager again.
func (r *Replicas) Restore(ctx context.Context) error {
	for _, member := range r.Members {
		if err := member.process.stop(patience); err != nil {
			return err
		}
	}
	if err := r.listener.Close(); err != nil {
		return fmt.Errorf("closing the listener of %s: %w", r.alone.Label, err)
	}
	if err := r.rig.startManager(ctx, r.alone); err != nil {
		return err
	}
	return r.alone.process.waitFor(ctx, http.DefaultClient, r.alone.ready)
}

// forward connects who calls a webhook with one of those who serve.
func (r *Replicas) forward() {
	for {
		caller, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		ports := slices.Clone(r.serving)
		r.callers[caller] = true
		r.mu.Unlock()
		go func() {
			defer func() {
				_ = caller.Close()
				r.mu.Lock()
				delete(r.callers, caller)
				r.mu.Unlock()
			}()
			for _, port := range ports {
				manager, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				if err != nil {
					continue
				}
				r.mu.Lock()
				r.answered[port]++
				r.mu.Unlock()
				go func() {
					_, _ = io.Copy(manager, caller)
					_ = manager.Close()
				}()
				_, _ = io.Copy(caller, manager)
				return
			}
		}()
	}
}
