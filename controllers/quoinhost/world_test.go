// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	controlplaneneeds "github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/needs"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clocktest"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdXkf2p1JVpW4NwGQp7bP0vYx5mEwQ2m0M6jPqf1aYz"
	uid  = "0123abcd-0000-0000-0000-000000000000"
	work = `#cloud-config
write_files:
-   path: /etc/kubernetes/x
    content: hello
runcmd:
  - 'kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && ` +
		"echo success > /run/cluster-api/bootstrap-success.complete'\n"
)

// machineRoom is a host as the calls see it: what it remembers outlives the manager.
type machineRoom struct {
	mu sync.Mutex
	// err is what every call ends with, errs what single ones do.
	err  error
	errs map[string]error
	// block holds calls until it is closed.
	block    chan struct{}
	key      string
	facts    inspect.Facts
	plans    map[string]*fakePlan
	findings []reset.Finding
	skipped  []string
	// record is the owner record.
	record *owner.Record
	// changed lists every change of the host.
	changed []string
	// boots counts the boots after a reset, verified the orders of verifications.
	boots int
	// neverBoots takes the order to boot, and does nothing.
	neverBoots bool
	verified   []CleanOrder
	// neighbors answer probes of other hosts than the world's, by name; who is not among them is silent.
	neighbors map[string]*owner.Record
	// used are the fingerprint and the Secret's version that the host accepted.
	used [2]string
	// asked counts the calls by name.
	asked map[string]int
	// last orders received.
	pushed []PushOrder
	// followed are all looks at plans.
	followed []FollowOrder
	// pushWaits has others sent files first.
	pushWaits bool
	// pushLater has others read the files first.
	pushLater bool
	provision ProvisionOrder
	addons    AddonsOrder
	stage     StageOrder
	// staging is what happens while a version is handed over to be staged.
	staging    func(context.Context) error
	clean      CleanOrder
	recovery   RecoverOrder
	handedOver []netip.Prefix
	// script says how plans go: the phases that following polls see, by plan ID. Succeeded when there is none.
	script map[string][]run.Status
}

type fakePlan struct {
	starts int
	polls  int
}

func newRoom() *machineRoom {
	allowed := true
	return &machineRoom{
		key: keyA, errs: map[string]error{}, plans: map[string]*fakePlan{}, asked: map[string]int{},
		script: map[string][]run.Status{},
		facts: inspect.Facts{
			Hostname: "h1", OS: inspect.OS{ID: "debian", PrettyName: "Debian GNU/Linux 12"}, Kernel: "6.1",
			Architecture: "amd64", BootID: "boot-1",
			CPUs: 4, MemoryBytes: 8 << 30, DefaultInterface: "eth0", CgroupVersion: 2, Systemd: true,
			TCPForwardingAllowed: &allowed,
			Addresses:            []inspect.Address{{Interface: "eth0", Address: netip.MustParseAddr("10.0.0.11"), Prefix: 24}},
			ContainerRuntime:     inspect.ContainerRuntime{Name: "containerd", Version: "2.0.0", SocketOK: true},
		},
	}
}

func (m *machineRoom) enter(name string) error {
	m.mu.Lock()
	m.asked[name]++
	block, err := m.block, m.err
	if err == nil {
		err = m.errs[name]
	}
	m.mu.Unlock()
	if block != nil {
		<-block
	}
	return err
}

func (m *machineRoom) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[name]
}

func (m *machineRoom) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *machineRoom) Identify(context.Context, *infrav1.QuoinHost) (string, error) {
	return m.key, m.enter("identify")
}

func (m *machineRoom) Probe(_ context.Context, host *infrav1.QuoinHost) (ProbeResult, error) {
	if host.Name != "h1" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked["probe "+host.Name]++
		record, answers := m.neighbors[host.Name]
		if !answers {
			return ProbeResult{}, errNoRoute
		}
		return ProbeResult{Owner: record}, nil
	}
	err := m.enter("probe")
	m.mu.Lock()
	defer m.mu.Unlock()
	probed := ProbeResult{BootID: m.facts.BootID, Owner: m.record}
	if known := host.Status.Facts; known != nil && known.BootID != m.facts.BootID {
		probed.Facts = &inspect.Facts{BootID: m.facts.BootID, MachineID: m.facts.MachineID,
			ProductUUID: m.facts.ProductUUID, SerialNumber: m.facts.SerialNumber, Disks: m.facts.Disks}
	}
	return probed, err
}

// acquire is owner.Acquire, and mayChange where there is no claim. The room is locked.
func (m *machineRoom) acquire(ours owner.Record) error {
	if m.record != nil {
		err := owner.Check(ours, *m.record)
		if stale := asStale(err); stale != nil || err != nil && ours.UID != "" {
			return err
		}
	}
	if m.record != nil {
		ours.Quarantine = m.record.Quarantine
	}
	ours.Heard = ""
	if ours.UID != "" && (m.record == nil || *m.record != ours) {
		m.record = &ours
		m.changed = append(m.changed, fmt.Sprintf("acquire %d", ours.Generation))
	}
	return nil
}

func (m *machineRoom) AcquireToken(_ context.Context, _ *infrav1.QuoinHost, ours owner.Record) error {
	if err := m.enter("take over"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.record == nil || m.record.Released() && m.record.Generation <= ours.Generation {
		return nil
	}
	return m.acquire(ours)
}

func (m *machineRoom) Inspect(context.Context, *infrav1.QuoinHost) (*inspect.Facts, error) {
	err := m.enter("inspect")
	m.mu.Lock()
	defer m.mu.Unlock()
	facts := m.facts
	if m.record != nil {
		raw, _ := json.Marshal(m.record)
		facts.OwnerRecord = string(raw)
	}
	return &facts, err
}

func (m *machineRoom) Follow(_ context.Context, _ *infrav1.QuoinHost, order FollowOrder) (run.Status, error) {
	id, ours, resume := order.ID, order.Owner, order.Resume
	if err := m.enter("follow"); err != nil {
		return run.Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed = append(m.followed, order)
	plan := m.plans[id]
	if plan == nil {
		if m.record != nil && asStale(owner.Check(ours, *m.record)) != nil {
			return run.Status{}, &owner.StaleError{Ours: ours, Holder: *m.record}
		}
		return run.Status{Phase: run.NotStarted, Message: "not on the host yet"}, nil
	}
	if !resume {
		m.asked["follow without resume"]++
	}
	script := m.script[id]
	if len(script) == 0 {
		script = []run.Status{{Phase: run.Running, Step: "kubeadm-join", StepIndex: 3, StepCount: 5,
			Message: "step 3 of 5, kubeadm-join"}, {Phase: run.Succeeded}}
	}
	status := script[min(plan.polls, len(script)-1)]
	plan.polls++
	if status.Lost {
		if stale := asStale(owner.Check(ours, *m.record)); stale != nil {
			return run.Status{}, stale
		}
		if resume {
			m.changed = append(m.changed, "resume "+id)
		}
	}
	return status, nil
}

func (m *machineRoom) start(name, id string, ours owner.Record) error {
	if err := m.enter(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.acquire(ours); err != nil {
		return err
	}
	if m.plans[id] == nil {
		m.changed = append(m.changed, name+" "+id)
		m.plans[id] = &fakePlan{}
		m.plans[id].starts++
	}
	return nil
}

func (m *machineRoom) Push(_ context.Context, _ *infrav1.QuoinHost, order PushOrder) (Pushed, error) {
	if err := m.enter("push"); err != nil {
		return Pushed{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushed = append(m.pushed, order)
	if m.pushWaits {
		return Pushed{Waits: true}, nil
	}
	if m.pushLater {
		return Pushed{Progress: artifacts.Progress{Total: 3 << 30, Reads: "bin/kubeadm", Later: true}}, nil
	}
	m.asked["push "+string(order.Role)]++
	there := int64(m.asked["push "+string(order.Role)]) << 30
	return Pushed{Progress: artifacts.Progress{There: there, Total: 3 << 30, Done: there == 3<<30}}, nil
}

func (m *machineRoom) Provision(_ context.Context, _ *infrav1.QuoinHost, order ProvisionOrder) error {
	m.set(func() { m.provision = order })
	return m.start("provision", order.ID, order.Owner)
}

func (m *machineRoom) Stage(ctx context.Context, _ *infrav1.QuoinHost, order StageOrder) error {
	var during func(context.Context) error
	m.set(func() { m.stage, during = order, m.staging })
	if during != nil {
		m.set(func() { m.asked["stage"]++ })
		return during(ctx)
	}
	return m.start("stage", order.ID, order.Owner)
}

func (m *machineRoom) Addons(_ context.Context, _ *infrav1.QuoinHost, order AddonsOrder) error {
	m.set(func() { m.addons = order })
	return m.start("addons", order.ID, order.Owner)
}

func (m *machineRoom) Recover(_ context.Context, _ *infrav1.QuoinHost, order RecoverOrder) error {
	m.set(func() { m.recovery = order })
	return m.start("recover", order.ID, order.Owner)
}

func (m *machineRoom) HandOver(_ context.Context, _ *infrav1.QuoinHost, ours owner.Record,
	addresses []netip.Prefix) (bool, error) {
	if err := m.enter("handover"); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handedOver = addresses
	return m.asked["handover"] == 1, m.acquire(ours)
}

func (m *machineRoom) StopAPIServer(_ context.Context, _ *infrav1.QuoinHost, ours owner.Record) error {
	if err := m.enter("stop API server"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.acquire(ours); err != nil {
		return err
	}
	m.changed = append(m.changed, "stop API server")
	return nil
}

func (m *machineRoom) StopPlan(_ context.Context, _ *infrav1.QuoinHost, ours owner.Record, id string) error {
	if err := m.enter("stop"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.acquire(ours); err != nil {
		return err
	}
	m.changed = append(m.changed, "stop "+id)
	m.script[id] = []run.Status{{Phase: run.Interrupted, Message: "it was stopped"}}
	return nil
}

func (m *machineRoom) Clean(_ context.Context, _ *infrav1.QuoinHost, order CleanOrder) error {
	m.set(func() { m.clean = order })
	return m.start("clean", order.ID, order.Owner)
}

func (m *machineRoom) Verify(_ context.Context, _ *infrav1.QuoinHost, order CleanOrder) (reset.Verification, error) {
	if err := m.enter("verify"); err != nil {
		return reset.Verification{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verified = append(m.verified, order)
	if len(m.findings) > 0 || order.RebootFollows {
		return reset.Verification{Findings: m.findings, Skipped: m.skipped}, nil
	}
	if order.Owner.UID == "" && (m.record == nil || m.record.Released() && m.record.Quarantine.Reason == "") {
		return reset.Verification{Skipped: m.skipped}, nil
	}
	if err := m.acquire(order.Owner); err != nil {
		return reset.Verification{}, err
	}
	m.record = &owner.Record{Namespace: order.Owner.Namespace, Host: order.Owner.Host, Generation: order.Owner.Generation,
		ManagementCluster: order.Owner.ManagementCluster, Order: order.Owner.Order}
	m.changed = append(m.changed, fmt.Sprintf("release %d", order.Owner.Generation))
	return reset.Verification{Skipped: m.skipped}, nil
}

func (m *machineRoom) Isolate(_ context.Context, _ *infrav1.QuoinHost, ours owner.Record, why owner.Quarantine) error {
	if err := m.enter("isolate"); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.record == nil {
		ours.Machine, ours.UID = "", ""
		m.record = &ours
	} else if err := owner.Check(ours, *m.record); err != nil {
		return err
	}
	record := *m.record
	record.Quarantine = why
	m.record = &record
	return nil
}

func (m *machineRoom) Forget(*infrav1.QuoinHost) { _ = m.enter("forget") }

func (m *machineRoom) Reboot(_ context.Context, _ *infrav1.QuoinHost, order CleanOrder, bootID string) (string, error) {
	if err := m.enter("reboot"); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if bootID == m.facts.BootID {
		if err := m.acquire(order.Owner); err != nil {
			return "", err
		}
		m.boots++
		m.changed = append(m.changed, "reboot")
		if !m.neverBoots {
			m.facts.BootID = fmt.Sprintf("boot-after-%s", bootID)
		}
		return bootID, nil
	}
	return m.facts.BootID, nil
}

func (m *machineRoom) Used(*infrav1.QuoinHost) (fingerprint, secretVersion string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used[0], m.used[1], m.used[0] != ""
}

// fakeBMC is a host's BMC; its machine is dead unless a cycle revives it.
type fakeBMC struct {
	mu    sync.Mutex
	err   error
	state string
	// lies: it takes every order and does nothing.
	lies bool
	// onCycle is what a boot brings about.
	onCycle func()
	orders  []string
	// count: questions are orders too.
	count bool
	// during happens between the beginning of a conversation about an order and the order.
	during func(context.Context)
}

// order is command, of a BMC that takes its time.
func (b *fakeBMC) order(ctx context.Context, due func(context.Context) error, name, state string) error {
	if b.during != nil {
		b.during(ctx)
	}
	if err := cmp.Or(ctx.Err(), due(ctx)); err != nil {
		return err
	}
	return b.command(name, state)
}

func (b *fakeBMC) set(err error, state string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.state = err, state
}

func (b *fakeBMC) command(name, state string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders = append(b.orders, name)
	if b.err == nil && !b.lies {
		b.state = state
	}
	return b.err
}

func (b *fakeBMC) State(context.Context, *infrav1.QuoinHost) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count {
		b.orders = append(b.orders, "state")
	}
	return b.state, b.err
}

func (b *fakeBMC) Off(ctx context.Context, _ *infrav1.QuoinHost, due func(context.Context) error) error {
	return b.order(ctx, due, "off", "Off")
}
func (b *fakeBMC) On(context.Context, *infrav1.QuoinHost) error { return b.command("on", "On") }
func (b *fakeBMC) Cycle(ctx context.Context, _ *infrav1.QuoinHost, due func(context.Context) error) error {
	if err := b.order(ctx, due, "cycle", "On"); err != nil {
		return err
	}
	if b.onCycle != nil {
		b.onCycle()
	}
	return nil
}

func (b *fakeBMC) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.orders...)
}

// world is a management cluster with one host.
type world struct {
	t      *testing.T
	g      *WithT
	client client.Client
	room   *machineRoom
	bmc    *fakeBMC
	r      *Reconciler
	now    time.Time
	key    types.NamespacedName
	// ctx of reconciles.
	ctx context.Context //nolint:containedctx // it carries a logger
}

func newScheme() *runtime.Scheme {
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme,
		controlplanev1.AddToScheme)
	return scheme
}

func newHost() *infrav1.QuoinHost {
	return &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: "h1", UID: "host-uid"},
		Spec: infrav1.QuoinHostSpec{
			Address: "192.0.2.11", Port: 22, User: "root", CredentialsRef: infrav1.SecretReference{Name: "ssh"},
			ConsumerNamespaces: []string{"*"},
		},
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	w := &world{t: t, g: NewWithT(t), ctx: context.Background(), room: newRoom(), bmc: &fakeBMC{state: "On"},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), key: types.NamespacedName{Namespace: "hosts", Name: "h1"}}
	builder := clienttest.Indexed(newScheme())
	w.client = builder.WithObjects(objects...).
		WithStatusSubresource(&infrav1.QuoinHost{}, &infrav1.QuoinMachine{}, &infrav1.QuoinCluster{}, &clusterv1.Machine{},
			&clusterv1.Cluster{}).Build()
	w.restart()
	return w
}

// restart replaces the manager, as after a SIGKILL: only objects and the host remember anything.
func (w *world) restart() {
	if w.r != nil {
		w.r.Calls.Close()
	}
	w.r = &Reconciler{
		Client: w.client, APIReader: w.client, Provisioner: w.room, Calls: async.New(async.Options{}),
		Power: w.bmc, PowerCalls: async.New(async.Options{}), NeedsPower: controlplaneneeds.Hosts{Reader: w.client}.Power,
		Clock: clocktest.Shows(func() time.Time { return w.now }), jitter: func() float64 { return 0 },
	}
	w.t.Cleanup(w.r.Calls.Close)
	w.t.Cleanup(w.r.PowerCalls.Close)
}

func (w *world) host() *infrav1.QuoinHost {
	host := &infrav1.QuoinHost{}
	w.g.Expect(w.client.Get(context.Background(), w.key, host)).To(Succeed())
	return host
}

// reconcile runs once, and waits for the call that it started.
func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	result, err := w.attempt()
	w.g.Expect(err).NotTo(HaveOccurred())
	return result
}

// attempt is reconcile where that may fail.
func (w *world) attempt() (ctrl.Result, error) {
	w.t.Helper()
	result, err := w.r.Reconcile(w.ctx, ctrl.Request{NamespacedName: w.key})
	for _, calls := range []*async.Calls{w.r.Calls, w.r.PowerCalls} {
		for {
			if _, _, running := calls.Running(w.key); !running {
				break
			}
			select {
			case <-calls.Events():
			case <-time.After(5 * time.Second):
				w.t.Fatal("an exchange did not end")
			}
			result.RequeueAfter = 0
		}
		select {
		case <-calls.Events():
			result.RequeueAfter = 0
		default:
		}
	}
	w.saysTheWayOut()
	return result, err
}

// until reconciles, letting time pass, until the host is as wanted.
func (w *world) until(what string, ok func(*infrav1.QuoinHost) bool) *infrav1.QuoinHost {
	w.t.Helper()
	for range 200 {
		if host := w.host(); ok(host) {
			return host
		}
		result := w.reconcile()
		w.now = w.now.Add(min(result.RequeueAfter, 10*time.Second))
	}
	host := w.host()
	w.t.Fatalf("never %s: state %s, operation %+v, conditions %s", what, host.Status.State, host.Status.Operation,
		describe(host))
	return nil
}

func (w *world) untilState(state infrav1.HostState) *infrav1.QuoinHost {
	w.t.Helper()
	return w.until(string(state), func(h *infrav1.QuoinHost) bool { return h.Status.State == state })
}

func (w *world) untilReason(condition, reason string) *metav1.Condition {
	w.t.Helper()
	host := w.until(condition+" "+reason, func(h *infrav1.QuoinHost) bool {
		c := condition1(h, condition)
		return c != nil && c.Reason == reason
	})
	return condition1(host, condition)
}

// linger reconciles n times more.
func (w *world) linger(n int) {
	w.t.Helper()
	for range n {
		result := w.reconcile()
		w.now = w.now.Add(min(result.RequeueAfter, 10*time.Minute))
	}
}

func (w *world) update(change func(*infrav1.QuoinHost)) {
	w.t.Helper()
	host := w.host()
	before := host.DeepCopy()
	change(host)
	w.g.Expect(w.client.Patch(context.Background(), host, client.MergeFrom(before))).To(Succeed())
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.g.Expect(w.client.Create(context.Background(), o)).To(Succeed())
	}
}

func (w *world) annotate(name, value string) {
	w.t.Helper()
	w.update(func(h *infrav1.QuoinHost) { h.Annotations = map[string]string{name: value} })
}

func condition1(h *infrav1.QuoinHost, kind string) *metav1.Condition {
	for i := range h.Status.Conditions {
		if h.Status.Conditions[i].Type == kind {
			return &h.Status.Conditions[i]
		}
	}
	return nil
}

func describe(h *infrav1.QuoinHost) string {
	text := ""
	for _, c := range h.Status.Conditions {
		text += fmt.Sprintf("\n  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

// consumer returns the objects that a claim leads to.
func consumer(controlPlane bool) (*clusterv1.Cluster, *infrav1.QuoinCluster, *clusterv1.Machine, *infrav1.QuoinMachine,
	*corev1.Secret) {
	labels := map[string]string{clusterv1.ClusterNameLabel: "c1"}
	if controlPlane {
		labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c1"},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinCluster", Name: "c1"}},
	}
	quoinCluster := &infrav1.QuoinCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c1"},
		Spec: infrav1.QuoinClusterSpec{
			ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "10.0.0.100", Port: 6443},
			LoadBalancer: infrav1.LoadBalancer{Type: infrav1.LoadBalancerKeepalived,
				Keepalived: &infrav1.Keepalived{VirtualRouterID: 51}},
		},
	}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1", UID: uid, Labels: labels,
			Finalizers: []string{"machine.cluster.x-k8s.io"}},
		Spec: clusterv1.MachineSpec{
			ClusterName: "c1", Version: "v1.35.4",
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("m1-bootstrap")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
				Kind: "QuoinMachine", Name: "qm1"},
		},
	}
	quoinMachine := &infrav1.QuoinMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "qm1", Labels: labels,
			Finalizers: []string{infrav1.MachineFinalizer}, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}},
		Spec: infrav1.QuoinMachineSpec{
			ProviderID: "quoin://hosts/h1/0123abcd", HostNamespaces: []string{"hosts"},
			Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: "/opt/bundles/{{version}}"}},
		},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m1-bootstrap", Labels: labels},
		Type:       clusterv1.ClusterSecretType,
		Data:       map[string][]byte{"value": []byte(work), "format": []byte("cloud-config")},
	}
	return cluster, quoinCluster, machine, quoinMachine, secret
}

// claimedWorld has a host that the QuoinMachine qm1 has claimed.
func claimedWorld(t *testing.T, controlPlane bool) *world {
	host := newHost()
	host.Spec.HostKeys = []string{keyA}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	cluster, quoinCluster, machine, quoinMachine, secret := consumer(controlPlane)
	return newWorld(t, host, cluster, quoinCluster, machine, quoinMachine, secret)
}

func request(w *world) ctrl.Request { return ctrl.Request{NamespacedName: w.key} }

// watching is the fake client as an interceptor takes it.
func (w *world) watching() client.WithWatch {
	return w.client.(client.WithWatch) //nolint:forcetypeassert // the fake is one
}
