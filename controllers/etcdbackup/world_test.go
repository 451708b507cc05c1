// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/backuptest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clocktest"
)

var key = client.ObjectKey{Namespace: "prod", Name: "cp"}

// world is a management cluster with a control plane of three, its etcd, a volume, and a clock.
type world struct {
	*WithT
	t        *testing.T
	api      client.Client
	recorder *events.FakeRecorder
	r        *Reconciler
	volume   string
	spool    string
	now      time.Time
	// told are the patches of status.
	told []string
	// log is what reconciles wrote, at any level.
	log strings.Builder

	mu       sync.Mutex
	members  []etcd.Member
	quorum   bool
	snapshot []byte
	// asked are the nodes whose snapshot was asked for; hold, when set, holds it up until it is closed.
	asked []string
	hold  chan struct{}
	// host is the shell of every host that has none of its own in shells; those with a nil one are switched off.
	host   ssh.Host
	shells map[string]ssh.Host
	// connected are the hosts that were to be connected to.
	connected []string
	// sha256 is what a person who asks for a recovery knows of the snapshot.
	sha256 string
	// refuse is what members answer.
	refuse map[string]error
}

func (w *world) Read(context.Context, []etcd.Endpoint, etcd.Credentials) (etcd.Cluster, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return etcd.Cluster{Members: w.members, Agreed: w.quorum}, nil
}

func (w *world) Snapshot(ctx context.Context, endpoint etcd.Endpoint, _ etcd.Credentials) (backup.Stream, error) {
	w.mu.Lock()
	w.asked = append(w.asked, endpoint.Name)
	snapshot, hold, refusal := w.snapshot, w.hold, w.refuse[endpoint.Name]
	w.mu.Unlock()
	if refusal != nil {
		return backup.Stream{}, refusal
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return backup.Stream{}, ctx.Err()
		}
	}
	return backup.Stream{ReadCloser: io.NopCloser(bytes.NewReader(snapshot)), Size: int64(len(snapshot)), Revision: 1,
		Node: endpoint.Name, Version: "3.6.14"}, nil
}

func (w *world) ConnectOnce(_ context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected = append(w.connected, host.Name)
	shell, own := w.shells[host.Name]
	if !own {
		shell = w.host
	}
	if shell == nil {
		return nil, errors.New("switched off")
	}
	return shell, nil
}

func (w *world) DialHost(context.Context, *infrav1.QuoinHost, string, string) (net.Conn, error) {
	return nil, errors.New("not in this test")
}

func certificate(g *WithT) (certPEM, keyPEM []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	g.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalECPrivateKey(private)
	g.Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func newWorld(t *testing.T, spec *controlplanev1.EtcdBackup) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, volume: t.TempDir(), spool: t.TempDir(),
		now:      time.Date(2026, 11, 21, 12, 0, 0, 500_000_000, time.UTC),
		recorder: events.NewFakeRecorder(100), quorum: true, snapshot: backuptest.Signed(backuptest.Database(t, 50)),
		refuse: map[string]error{}}
	scheme := clienttest.Scheme(clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme,
		controlplanev1.AddToScheme)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c", UID: "cluster"}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group,
		Kind: "QuoinControlPlane", Name: key.Name}
	controlPlane := &controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		UID: "plane", Generation: 1,
		Finalizers: []string{controlplanev1.ControlPlaneFinalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c",
			UID: "cluster"}}}}
	controlPlane.Spec.Backup = spec
	controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
	controlPlane.Status.Replicas = ptr.To[int32](3)
	conditions.Set(controlPlane, metav1.Condition{Type: "Available", Status: metav1.ConditionTrue, Reason: "Available"})
	caCert, caKey := certificate(w.WithT)
	objects := []client.Object{cluster, controlPlane,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c-etcd"},
			Data: map[string][]byte{"tls.crt": caCert, "tls.key": caKey}}}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("m%d", i)
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name,
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c", clusterv1.MachineControlPlaneLabel: ""},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(controlPlane,
				controlplanev1.GroupVersion.WithKind("QuoinControlPlane"))}}}
		machine.Spec.InfrastructureRef.Name = name
		machine.Status.NodeRef.Name = "node-" + name
		infra := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}
		infra.Spec.ProviderID = "quoin://hosts/" + name + "/0000"
		objects = append(objects, machine, infra,
			&infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: "hosts", Name: name}})
		w.members = append(w.members, etcd.Member{ID: uint64(i), Name: "node-" + name, Leader: i == 1, Answers: true})
	}
	w.api = clienttest.Unmanaged(scheme).WithObjects(objects...).
		WithStatusSubresource(&controlplanev1.QuoinControlPlane{}, &clusterv1.Machine{}, &infrav1.QuoinMachine{},
			&infrav1.QuoinHost{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string,
			object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			data, err := patch.Data(object)
			w.Expect(err).NotTo(HaveOccurred())
			w.told = append(w.told, string(data))
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		}}).Build()
	w.restart()
	return w
}

// restart is what a new process begins with.
func (w *world) restart() {
	w.r = &Reconciler{Client: w.api, APIReader: w.api, Hosts: w, Etcd: w, Directory: w.volume, Spool: w.spool,
		Recorder: w.recorder,
		Clock:    clocktest.Shows(func() time.Time { return w.now })}
	w.r.prepare()
	calls := w.r.calls
	w.t.Cleanup(calls.Close)
}

func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	ctx := ctrl.LoggerInto(w.t.Context(), funcr.New(func(prefix, args string) {
		fmt.Fprintln(&w.log, prefix, args)
	}, funcr.Options{Verbosity: 10}))
	result, err := w.r.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	w.Expect(err).NotTo(HaveOccurred())
	return result
}

// surface is all that people may read of the control plane and its backups.
func (w *world) surface() string {
	w.t.Helper()
	object, err := json.Marshal(w.controlPlane())
	w.Expect(err).NotTo(HaveOccurred())
	families, err := metrics.Registry.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintln(string(object), w.told, w.events(), w.log.String(), families)
}

// settle reconciles until nothing runs, and returns the last result.
func (w *world) settle() ctrl.Result {
	w.t.Helper()
	for {
		result := w.reconcile()
		if !w.r.busy(key) && w.r.known[key].at() == "" {
			return result
		}
		select {
		case <-w.r.calls.Events():
		case <-time.After(30 * time.Second):
			w.t.Fatal("a call does not end")
		}
	}
}

func (m *memory) at() string {
	if m == nil {
		return ""
	}
	return m.running
}

func (w *world) controlPlane() *controlplanev1.QuoinControlPlane {
	w.t.Helper()
	controlPlane := &controlplanev1.QuoinControlPlane{}
	w.Expect(w.api.Get(w.t.Context(), key, controlPlane)).To(Succeed())
	return controlPlane
}

func (w *world) cluster() *clusterv1.Cluster {
	w.t.Helper()
	cluster := &clusterv1.Cluster{}
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c"}, cluster)).To(Succeed())
	return cluster
}

func (w *world) status() *controlplanev1.EtcdBackupStatus { return w.controlPlane().Status.Backup }

func (w *world) condition() *metav1.Condition {
	return conditions.Get(w.controlPlane(), controlplanev1.ControlPlaneBackupHealthyCondition)
}

// request does what a rollout does that wants a snapshot.
func (w *world) request() {
	w.t.Helper()
	controlPlane := w.controlPlane()
	before := controlPlane.DeepCopy()
	if controlPlane.Status.Backup == nil {
		controlPlane.Status.Backup = &controlplanev1.EtcdBackupStatus{}
	}
	controlPlane.Status.Backup.RequestedTime = metav1.NewTime(w.now.Truncate(time.Second))
	w.Expect(w.api.Status().Patch(w.t.Context(), controlPlane, client.MergeFrom(before))).To(Succeed())
}

func (w *world) edit(change func(*controlplanev1.QuoinControlPlane)) {
	w.t.Helper()
	controlPlane := w.controlPlane()
	controlPlane.Generation++
	change(controlPlane)
	w.Expect(w.api.Update(w.t.Context(), controlPlane)).To(Succeed())
}

func (w *world) events() (told []string) {
	for {
		select {
		case event := <-w.recorder.Events:
			told = append(told, event)
		default:
			return told
		}
	}
}

func toVolume(schedule string) *controlplanev1.EtcdBackup {
	return &controlplanev1.EtcdBackup{Schedule: schedule, Keep: ptr.To[int32](2),
		Store: controlplanev1.BackupStore{Volume: &controlplanev1.BackupVolume{Path: "clusters"}}}
}
