// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

const (
	// fewestImports is how many hosts of a Cluster bring add-on images at a time: an import keeps disks busy that etcd
	// needs. Of large Clusters it is one of importShare hosts, or a rollout would wait for days.
	fewestImports, importShare = 2, 10
	// importLease is for how long a host that is not heard of keeps its place.
	importLease = 2 * time.Minute
	// recount is how long the number of a Cluster's hosts counts.
	recount = time.Minute
)

// imports are the hosts that bring add-on images while they serve, by Cluster. Only this process knows them: the next
// one hears of those that go on by their operations. The zero value is ready.
type imports struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*importing
}

type importing struct {
	hosts map[types.NamespacedName]time.Time
	// limit on hosts, and when it was found.
	limit   int
	counted time.Time
}

// importKey is a host of a Cluster.
type importKey struct{ cluster, host types.NamespacedName }

func importOf(r *reconciliation) importKey {
	of := importKey{host: r.key()}
	if r.claim.quoinMachine != nil {
		of.cluster = types.NamespacedName{Namespace: r.claim.quoinMachine.Namespace,
			Name: r.claim.quoinMachine.Labels[clusterv1.ClusterNameLabel]}
	}
	return of
}

func (i *imports) of(cluster types.NamespacedName) *importing {
	if i.clusters == nil {
		i.clusters = map[types.NamespacedName]*importing{}
	}
	if i.clusters[cluster] == nil {
		i.clusters[cluster] = &importing{hosts: map[types.NamespacedName]time.Time{}}
	}
	return i.clusters[cluster]
}

// hold notes that the host is at work.
func (i *imports) hold(of importKey, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.of(of.cluster).hosts[of.host] = now
}

// release lets another host have the place.
func (i *imports) release(of importKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.of(of.cluster).hosts, of.host)
	if len(i.clusters[of.cluster].hosts) == 0 {
		delete(i.clusters, of.cluster)
	}
}

// acquire gives the host a place unless as many others of its Cluster have one as hosts allow, which counts them. It
// returns the limit too.
func (i *imports) acquire(
	of importKey, now time.Time, hosts func() (int, error),
) (acquired bool, limit int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	cluster := i.of(of.cluster)
	if now.Sub(cluster.counted) >= recount {
		count, err := hosts()
		if err != nil {
			return false, 0, err
		}
		cluster.limit, cluster.counted = max(fewestImports, count/importShare), now
	}
	others := 0
	for host, last := range cluster.hosts {
		switch {
		case now.Sub(last) >= importLease:
			delete(cluster.hosts, host)
		case host != of.host:
			others++
		}
	}
	if others >= cluster.limit {
		return false, cluster.limit, nil
	}
	cluster.hosts[of.host] = now
	return true, cluster.limit, nil
}

// importsInTurn is pending until few enough other hosts of the Cluster bring add-on images.
func (r *reconciliation) importsInTurn(ctx context.Context, version string) (outcome, error) {
	of := importOf(r)
	acquired, limit, err := r.controller.imports.acquire(of, r.now, func() (int, error) {
		machines := &infrav1.QuoinMachineList{}
		err := r.controller.Client.List(ctx, machines, client.UnsafeDisableDeepCopy,
			client.InNamespace(of.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: of.cluster.Name})
		return len(machines.Items), err
	})
	switch {
	case err != nil:
		return ready, fmt.Errorf("listing the QuoinMachines of Cluster %s: %w", of.cluster, err)
	case acquired:
		return ready, nil
	}
	r.setFalse(infrav1.HostAddonImagesCondition, infrav1.HostStepRunningReason, fmt.Sprintf("add-on images of %s: waits "+
		"until others have theirs, for %d hosts of the Cluster at a time bring images", version, limit))
	wait := r.pace().remaining(callProbe, r.timings().Probe)
	if wait == 0 {
		return pending(r.probe(ctx)), nil
	}
	return pending(after(min(wait, r.timings().Push))), nil
}
