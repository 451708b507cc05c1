// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// quoin is this provider on simulated hosts, two more than Machines so that no Machine waits for one to become clean, with real etcd members and a real API server.
type quoin struct {
	cluster *kube.ControlPlane
	fleet   *sim.Fleet
	members []*sim.Host
	work    *work
}

func newQuoin(b *testing.B) *quoin {
	b.Helper()
	q := &quoin{work: &work{steps: map[step]bool{}}}
	var err error
	if q.cluster, err = kube.NewControlPlane(kube.ControlPlaneOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(q.cluster.Close)
	nodes, err := kube.New(kube.Options{ControlPlane: q.cluster, Versions: []string{oldVersion, newVersion}})
	if err != nil {
		b.Fatal(err)
	}
	if q.fleet, err = sim.New(sim.Options{Cluster: nodes}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(q.fleet.Close)
	for i := range replicas + 2 {
		host, err := q.fleet.Add(fmt.Sprintf("h%d", i+1))
		if err != nil {
			b.Fatal(err)
		}
		host.Machine.OnJournal(q.work.journal)
		q.members = append(q.members, host)
	}
	return q
}

func (q *quoin) name() string { return "quoin" }

func (q *quoin) hosts() time.Duration { return q.work.soFar() }

func (q *quoin) controlPlane() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind("QuoinControlPlane"))
	return object
}

func (q *quoin) objects() []client.Object {
	objects := []client.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "ssh"}, Type: corev1.SecretTypeSSHAuth,
		Data: map[string][]byte{corev1.SSHAuthPrivateKey: q.fleet.PrivateKey()},
	}}
	for _, host := range q.members {
		address, port := host.Address()
		objects = append(objects, &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Name: host.Name},
			Spec:       infrav1.QuoinHostSpec{Address: address, Port: port, User: "root", CredentialsRef: infrav1.SecretReference{Name: "ssh"}},
		})
	}
	host, port := q.cluster.Endpoint()
	return append(objects, plane.ClusterObjects(plane.ClusterOptions{
		Namespace: q.name(), Name: q.name(), Host: host, Port: port, Replicas: replicas, Version: oldVersion,
		// As theirs: one Machine more at a time, also while the host that becomes free is still being cleaned.
		Care:      controlplanev1.QuoinControlPlaneCare{Rollout: controlplanev1.QuoinControlPlaneRollout{Strategy: controlplanev1.RolloutStrategySurge}},
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
	})...)
}

// work is the time in which at least one host runs a step of a plan: on its own, whoever looks.
type work struct {
	mu    sync.Mutex
	steps map[step]bool
	since time.Time
	sum   time.Duration
}

type step struct {
	m          *machine.Machine
	plan, name string
}

// journal hears what hosts write down.
func (w *work) journal(m *machine.Machine, plan, name, word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, key := len(w.steps), step{m, plan, name}
	if word == "start" {
		w.steps[key] = true
	} else {
		delete(w.steps, key)
	}
	switch {
	case before == 0 && len(w.steps) > 0:
		w.since = time.Now()
	case before > 0 && len(w.steps) == 0:
		w.sum += time.Since(w.since)
	}
}

func (w *work) soFar() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.steps) == 0 {
		return w.sum
	}
	return w.sum + time.Since(w.since)
}
