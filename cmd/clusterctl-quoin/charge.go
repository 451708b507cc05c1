// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// charge is which management cluster has the objects of a Cluster, as far as the last pivot says.
type charge struct {
	// By is the one that manages them; empty while a pivot is open, and when none is known.
	By cluster.Kubeconfig
	// Home is the side that is no bootstrap cluster: it manages them before a detour and afterwards.
	Home cluster.Kubeconfig
	// Open says that the pivot is not finished.
	Open bool
	// Bootstrap says that the bootstrap cluster manages them or, while it is open, that the pivot goes there.
	Bootstrap bool
	// Returned says that the bootstrap cluster manages what was elsewhere before. A birth that was undone never left it.
	Returned bool
}

// chargeOf says who is in charge after a pivot, of a workspace whose bootstrap cluster has that kubeconfig.
func chargeOf(last *record, bootstrap string) (c charge) {
	if last == nil || last.Journal == nil {
		return c
	}
	to := last.Target
	if last.Journal.Phase == pivot.Undone {
		to = last.Source
	}
	if c.Open = last.Journal.Open(); !c.Open {
		c.By = to
	}
	c.Bootstrap = samePath(to.Path, bootstrap)
	c.Returned = !c.Open && c.Bootstrap && (last.Back || last.Journal.Phase == pivot.Done)
	if c.Home = last.Target; samePath(last.Target.Path, bootstrap) {
		c.Home = last.Source
	}
	return c
}

// moved reports whether another management cluster than the bootstrap cluster is in charge.
func (c charge) moved() bool { return c.By.Path != "" && !c.Bootstrap }

// samePath reports whether two paths name the same file from here.
func samePath(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}
