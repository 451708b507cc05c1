// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
)

// Census counts a control plane several times a second, and keeps the extremes.
type Census struct {
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	counts Counts
	doing  []string
}

// Counts are the extremes of a Census.
type Counts struct {
	// Looks that succeeded.
	Looks int
	// MostMachines is the most Machines there were at once, without those that have left and whose hosts are being released.
	// MostLeaving is the most that were past their pre-drain hook at once.
	MostMachines, MostLeaving int
	// FewestVoters and FewestTolerated are the least that status.etcd said.
	FewestVoters, FewestTolerated int
}

// Count begins a census of the control plane; Stop ends it.
func (c *Cluster) Count(ctx context.Context) *Census {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	census := &Census{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(census.done)
		for ctx.Err() == nil {
			census.look(ctx, c)
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return census
}

// Stop ends the census and returns what it found.
func (c *Census) Stop() Counts {
	c.stop()
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Story lists what the control plane said it did, each sentence when it was new.
func (c *Census) Story() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.doing...)
}

func (c *Census) look(ctx context.Context, cluster *Cluster) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	plane, err := cluster.ControlPlane(ctx)
	if err != nil {
		return
	}
	machines, err := cluster.Machines(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.add(plane, machines)
	if operation := plane.Status.Operation; operation != nil {
		said := fmt.Sprintf("%s %s", operation.Type, operation.Message)
		if len(c.doing) == 0 || c.doing[len(c.doing)-1][len(time.TimeOnly)+1:] != said {
			c.doing = append(c.doing, time.Now().Format(time.TimeOnly)+" "+said)
		}
	}
}

func (n *Counts) add(plane *controlplanev1.QuoinControlPlane, machines []clusterv1.Machine) {
	total, leaving := 0, 0
	for i := range machines {
		if _, controlPlane := machines[i].Labels[clusterv1.MachineControlPlaneLabel]; !controlPlane {
			continue
		}
		if placement.ClaimHeld(&machines[i]) {
			continue
		}
		_, part := machines[i].Annotations[controlplanev1.PreTerminateHookAnnotation]
		if part || machines[i].DeletionTimestamp.IsZero() {
			total++
		}
		deleting := meta.FindStatusCondition(machines[i].Status.Conditions, clusterv1.MachineDeletingCondition)
		_, held := machines[i].Annotations[controlplanev1.PreDrainHookAnnotation]
		if !machines[i].DeletionTimestamp.IsZero() && !held && deleting != nil {
			leaving++
		}
	}
	n.MostMachines, n.MostLeaving = max(n.MostMachines, total), max(n.MostLeaving, leaving)
	if etcd := plane.Status.Etcd; etcd != nil && etcd.Voters != nil && etcd.Tolerates != nil {
		if n.Looks == 0 {
			n.FewestVoters, n.FewestTolerated = int(*etcd.Voters), int(*etcd.Tolerates)
		}
		n.FewestVoters, n.FewestTolerated = min(n.FewestVoters, int(*etcd.Voters)), min(n.FewestTolerated, int(*etcd.Tolerates))
		n.Looks++
	}
}
