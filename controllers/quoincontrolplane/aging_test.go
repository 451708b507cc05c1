// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/secret"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
)

// deaf does not answer before all are asked.
type deaf struct {
	hosts, dialed atomic.Int32
	all           chan struct{}
}

func (*deaf) HoldHost(context.Context, *infrav1.QuoinHost) (func(context.Context) error, error) {
	return nil, errors.New("deaf")
}

func (d *deaf) DialHost(ctx context.Context, _ *infrav1.QuoinHost, _, _ string) (net.Conn, error) {
	if d.dialed.Add(1) == d.hosts.Load() {
		close(d.all)
	}
	select {
	case <-d.all:
		return nil, errors.New("nobody answers")
	case <-ctx.Done():
		return nil, errors.New("the others were not asked meanwhile")
	}
}

// Hosts that do not answer are asked all at once, and not again at the next look.
func TestExpiryOfHostsThatDoNotAnswerHoldsNothingUp(t *testing.T) {
	w := newWorld(t, 3)
	g := w.g
	hosts := &deaf{all: make(chan struct{})}
	hosts.hosts.Store(3)
	w.r.Hosts = hosts
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}}
	g.Expect(secretOfAuthority(t, w)).To(Succeed())
	w.r.Clock = clock.RealClock{}
	o := &observe.Observation{Inventory: observe.Inventory{Machines: collections.New(), Subject: observe.Subject{
		Cluster: cluster, ControlPlane: &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "plane"}}},
		KubeadmConfigs: map[string]*bootstrapv1.KubeadmConfig{}, Hosts: map[string]*infrav1.QuoinHost{}}}
	o.Workload.Health = map[string]observe.Health{}
	for _, name := range []string{"m0", "m1", "m2"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		machine.Status.NodeRef.Name = name
		o.Machines.Insert(machine)
		o.KubeadmConfigs[name], o.Hosts[name] = &bootstrapv1.KubeadmConfig{}, &infrav1.QuoinHost{}
		o.Workload.Health[name] = observe.Health{Serving: true}
	}
	for range 5 {
		g.Expect(w.r.noteCertificates(t.Context(), o)).To(Succeed())
	}
	g.Expect(hosts.dialed.Load()).To(BeEquivalentTo(3))
	g.Expect(hosts.all).To(BeClosed(), "they are asked at once")
}

func secretOfAuthority(t *testing.T, w *world) error {
	t.Helper()
	authority := &secret.Certificate{Purpose: secret.ClusterCA}
	if err := authority.Generate(); err != nil {
		return err
	}
	return w.mgmt.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: secret.Name("c", secret.ClusterCA)},
		Data: map[string][]byte{secret.TLSCrtDataName: authority.KeyPair.Cert, secret.TLSKeyDataName: authority.KeyPair.Key}})
}
