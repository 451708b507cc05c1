// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

const version = "v1.36.3"

// worker is the bootstrap data of a worker as Cluster API's kubeadm provider renders it.
const worker = `## template: jinja
#cloud-config

write_files:
-   path: /run/kubeadm/kubeadm-join-config.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiVersion: kubeadm.k8s.io/v1beta4
      discovery:
        bootstrapToken:
          apiServerEndpoint: 192.0.2.100:6443
          caCertHashes:
          - sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
          token: abcdef.0123456789abcdef
      kind: JoinConfiguration
      nodeRegistration:
        name: '{{ ds.meta_data.local_hostname }}'
        kubeletExtraArgs:
        - name: node-labels
          value: quoin.test/pool=sim
        taints: null
-   path: /run/cluster-api/placeholder
    owner: root:root
    permissions: '0640'
    content: "This placeholder file is used to create the /run/cluster-api sub directory in a way that is compatible with both Linux and Windows (mkdir -p /run/cluster-api does not work with Windows)"
runcmd:
  - echo before kubeadm
  - 'kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && echo success > /run/cluster-api/bootstrap-success.complete'
  - echo after kubeadm
`

// hurry is how many times faster than in production the controllers look.
const hurry = 10

// hasty notices a silent host soon.
var hasty = ssh.PoolOptions{DialTimeout: 3 * time.Second, KeepAlive: time.Second}

// lab is one host in a namespace of its own, with a manager that looks only there.
type lab struct {
	t     testing.TB
	plane *plane.Plane
	fleet *sim.Fleet
	host  *sim.Host
	key   types.NamespacedName
	// bootstrap data of its Machine; those of a worker when empty.
	bootstrap string

	mu      sync.Mutex
	manager *plane.Manager
	kills   int
	closed  bool
}

// newFleet makes the fleet of a test.
func newFleet(t testing.TB, o kube.Options, change func(*sim.Options)) *sim.Fleet {
	t.Helper()
	o.Config = needsPlane(t).Config
	if o.Versions == nil {
		o.Versions = []string{version}
	}
	cluster, err := kube.New(o)
	if err != nil {
		t.Fatal(err)
	}
	options := sim.Options{Cluster: cluster}
	if change != nil {
		change(&options)
	}
	fleet, err := sim.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	return fleet
}

// newLab makes a host and registers it.
func newLab(t testing.TB, fleet *sim.Fleet, name string) *lab {
	t.Helper()
	l := &lab{t: t, plane: needsPlane(t), fleet: fleet, key: types.NamespacedName{Namespace: name, Name: name}}
	var err error
	if l.host, err = fleet.Add(name); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := l.plane.Namespace(ctx, name); err != nil {
		t.Fatal(err)
	}
	l.create(credentials(fleet, name), quoinHost(l.host, name))
	l.start()
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed = true
		if err := l.manager.Stop(); err != nil {
			t.Errorf("stopping the manager: %v", err)
		}
	})
	return l
}

func credentials(fleet *sim.Fleet, namespace string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ssh"}, Type: corev1.SecretTypeSSHAuth,
		Data: map[string][]byte{corev1.SSHAuthPrivateKey: fleet.PrivateKey()},
	}
}

func quoinHost(host *sim.Host, namespace string) *infrav1.QuoinHost {
	address, port := host.Address()
	return &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: host.Name},
		Spec:       infrav1.QuoinHostSpec{Address: address, Port: port, User: "root", CredentialsRef: infrav1.SecretReference{Name: "ssh"}},
	}
}

func (l *lab) create(objects ...client.Object) {
	l.t.Helper()
	for _, o := range objects {
		if err := l.plane.Client.Create(l.t.Context(), o); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *lab) start() {
	manager, err := l.plane.Run(context.Background(), plane.Options{Namespaces: []string{l.key.Namespace}, Haste: hurry, Connections: hasty})
	if err != nil {
		l.t.Errorf("starting a manager: %v", err)
		return
	}
	l.manager = manager
}

// kill ends the manager at this instant and starts another one, which knows nothing.
func (l *lab) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.manager.Kill()
	l.kills++
	l.start()
}

// addMachine makes the Machine that claims the host.
func (l *lab) addMachine() {
	l.t.Helper()
	err := l.plane.AddMachine(l.t.Context(), plane.MachineOptions{
		Namespace: l.key.Namespace, Name: "m", Version: version, Bootstrap: []byte(cmp.Or(l.bootstrap, worker)),
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}},
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// deleteMachine deletes it as core does, and waits for its end.
func (l *lab) deleteMachine() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := l.plane.DeleteMachine(ctx, types.NamespacedName{Namespace: l.key.Namespace, Name: "m"}); err != nil {
		l.t.Fatalf("%v\n%s", err, l.describe())
	}
}

func (l *lab) object() *infrav1.QuoinHost {
	host := &infrav1.QuoinHost{}
	if err := l.plane.Client.Get(context.Background(), l.key, host); err != nil {
		l.t.Error(err)
	}
	return host
}

// patience is how long a host may take for anything. It needs a few seconds on an idle machine.
const patience = 4 * time.Minute

// until waits for a host that is as wanted.
func (l *lab) until(what string, ok func(*infrav1.QuoinHost) bool) *infrav1.QuoinHost {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		host := l.object()
		if ok(host) {
			return host
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the host never became %s:\n%s", what, l.describe())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *lab) untilState(states ...infrav1.HostState) *infrav1.QuoinHost {
	l.t.Helper()
	return l.until(fmt.Sprint(states), func(h *infrav1.QuoinHost) bool {
		for _, state := range states {
			if h.Status.State == state {
				return true
			}
		}
		return false
	})
}

// untilProvisioned waits for either end of the way to a node.
func (l *lab) untilProvisioned() (reason string) {
	l.t.Helper()
	host := l.until("provisioned or given up", func(h *infrav1.QuoinHost) bool {
		switch conditions.GetReason(h, infrav1.HostProvisionedCondition) {
		case infrav1.HostProvisionedReason, infrav1.HostStepFailedReason, infrav1.HostBootstrapInterruptedReason, infrav1.HostBootstrapDataInvalidReason:
			return true
		}
		return h.Status.State == infrav1.HostStateQuarantined
	})
	return conditions.GetReason(host, infrav1.HostProvisionedCondition)
}

// settled is what lies on the host once its kubelet wrote all that it writes.
func (l *lab) settled() map[string]string {
	l.t.Helper()
	settled(l.t, l.host)
	return l.host.Tree()
}

// settled waits until the kubelet of a node, which works on by itself, has written all that it writes.
func settled(t testing.TB, node *sim.Host) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() bool { return kube.RunsPod(node.Machine, "kube-proxy") }).
		WithTimeout(patience).Should(gomega.BeTrue(), node.Name)
}

// differing are the paths at which two trees differ, with what lies there in each.
func differing(before, after map[string]string) []string {
	var paths []string
	for path := range before {
		if before[path] != after[path] {
			paths = append(paths, fmt.Sprintf("%s: %.200q, then %.200q", path, before[path], after[path]))
		}
	}
	for path := range after {
		if _, was := before[path]; !was {
			paths = append(paths, fmt.Sprintf("%s: nothing, then %.200q", path, after[path]))
		}
	}
	slices.Sort(paths)
	return paths
}

// describe is all there is to know when a test fails.
func (l *lab) describe() string {
	var text strings.Builder
	host := l.object()
	fmt.Fprintf(&text, "state %s, operation %+v, next attempt %v", host.Status.State, host.Status.Operation, host.Status.NextAttempt)
	for _, c := range host.Status.Conditions {
		fmt.Fprintf(&text, "\n  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	files := l.host.Machine.FS()
	for _, path := range files.List("/var/lib/quoin/runs") {
		if strings.HasSuffix(path, "/journal") || strings.HasSuffix(path, "/result") {
			fmt.Fprintf(&text, "\n%s:\n%s", path, files.Text(path))
		}
	}
	if unknown := l.host.Machine.Unknown(); len(unknown) > 0 {
		fmt.Fprintf(&text, "\nunknown to the machine: %q", unknown)
	}
	fmt.Fprintf(&text, "\nprocesses: %v", l.host.Machine.Running())
	return text.String()
}

// joins counts how often kubeadm join went to work on the host.
func (l *lab) joins() int { return l.fleet.Cluster().Joins(l.host.Machine) }
