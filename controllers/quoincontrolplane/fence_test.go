// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

// confirming are hosts that confirm our generation, unless err says why not.
type confirming struct {
	noHosts
	err        error
	held, free int
}

func (c *confirming) HoldHost(context.Context, *infrav1.QuoinHost) (func(context.Context) error, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.held++
	return func(context.Context) error { c.free++; return nil }, nil
}

// Neither etcd nor anything in the cluster is changed while no host of the control plane confirms our generation.
func TestNothingIsChangedThatNoHostConfirms(t *testing.T) {
	w := newWorld(t, 1)
	g := w.g
	initialized(t, w)
	hosts := &confirming{err: &owner.StaleError{Ours: owner.Record{Generation: 3}, Holder: owner.Record{Generation: 4}}}
	w.r.Hosts = hosts
	w.etcd.join("n-lost", "10.0.0.99", true)
	fails := func() error {
		_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		return err
	}
	g.Eventually(fails).Should(MatchError(ContainSubstring("another management plane took over")))
	g.Expect(w.etcd.removed).To(BeEmpty())

	hosts.err = nil
	w.reconcile()
	g.Expect(w.etcd.removed).To(HaveLen(1))

	hosts.err = errors.New("connection refused")
	w.edit(func(plane *controlplanev1.QuoinControlPlane) { plane.Spec.Version = newVer })
	for range 6 {
		_ = fails()
		w.fetchImages()
	}
	g.Expect(fails()).To(MatchError(ContainSubstring("no host of the control plane confirms that it serves this management cluster")))
	g.Expect(w.configVersion()).To(Equal(oldVer))
	hosts.err = nil
	w.reconcile()
	g.Expect(w.configVersion()).To(Equal(newVer))
	g.Expect(hosts.held).To(BeNumerically(">", 1))
	g.Expect(hosts.free).To(Equal(hosts.held), "each is let go")
}
