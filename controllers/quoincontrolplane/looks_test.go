// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/secret"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// A look that failed is made again later and later, and one that succeeded is forgotten, as is a Machine that is gone.
func TestFailedLooksAreMadeLaterEachTime(t *testing.T) {
	g := NewWithT(t)
	c := &lookCache{}
	start := time.Now()
	g.Expect(c.due("p", "m", start)).To(BeTrue())
	at, pause := start, time.Duration(0)
	for range 10 {
		c.note("p", "m", at, false)
		pause = c.failed["p"]["m"].pause
		g.Expect(c.due("p", "m", at.Add(pause-time.Second))).To(BeFalse())
		g.Expect(c.due("p", "m", at.Add(pause))).To(BeTrue())
		at = at.Add(pause)
	}
	g.Expect(pause).To(Equal(longestLookAgain))
	g.Expect(c.due("p", "other", at)).To(BeTrue())
	g.Expect(c.due("other", "m", at)).To(BeTrue())
	c.note("p", "m", at, true)
	g.Expect(c.due("p", "m", at)).To(BeTrue())
	c.note("p", "m", at, false)
	c.keep("p", map[types.UID]bool{"other": true})
	g.Expect(c.failed).To(BeEmpty())
}

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
	s := &scope{cluster: cluster, plane: &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{UID: "plane"}}, machines: collections.New(),
		configs: map[string]*bootstrapv1.KubeadmConfig{}, hosts: map[string]*infrav1.QuoinHost{}}
	s.workload.health = map[string]machineHealth{}
	for _, name := range []string{"m0", "m1", "m2"} {
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}}
		machine.Status.NodeRef.Name = name
		s.machines.Insert(machine)
		s.configs[name], s.hosts[name] = &bootstrapv1.KubeadmConfig{}, &infrav1.QuoinHost{}
		s.workload.health[name] = machineHealth{serving: true}
	}
	for range 5 {
		g.Expect(w.r.noteCertificates(t.Context(), s)).To(Succeed())
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
	return w.mgmt.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name("c", secret.ClusterCA)},
		Data: map[string][]byte{secret.TLSCrtDataName: authority.KeyPair.Cert, secret.TLSKeyDataName: authority.KeyPair.Key}})
}
