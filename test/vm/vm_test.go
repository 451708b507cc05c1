//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	hostssh "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/hostpower"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/redfishtest"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/vm"
)

const (
	// The first three fields read otherwise in the other byte order.
	uuid   = "33221100-5544-7766-8899-aabbccddeeff"
	serial = "QUOIN-VM-1"
	// version is that of image.sh.
	version = "v1.35.4"
	// patience is how long an emulated machine may take for anything but the waits of the controllers.
	patience = 6 * time.Minute
)

// bench is the machine under test, what it is managed by, and the cluster that it joins.
type bench struct {
	*gomega.WithT
	t       *testing.T
	cluster *vm.Cluster
	machine *vm.Machine
	bmc     *redfishtest.Server
	plane   *plane.Plane
	key     types.NamespacedName
	private []byte
	signer  ssh.Signer
}

// A host with a kernel, disks and a plug of its own: its boots, its BMC, its inspection, and a claim from its plan over
// its fencing to its release.
func TestAMachineWithAKernelAndAPlug(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	b := newBench(t)
	for _, step := range []struct {
		name string
		run  func(*bench)
	}{
		{"boots, and ends and begins by its BMC", switches},
		{"is registered and inspected, and not switched by another's BMC", registers},
		{"becomes a worker, and resets in the middle of that", provisions},
		{"is fenced while it writes", fences},
		{"is reset, wiped and verified", resets},
	} {
		began := time.Now()
		if !t.Run(step.name, func(t *testing.T) { step.run(b.of(t)) }) {
			return
		}
		t.Logf("%s: %s", step.name, time.Since(began).Round(time.Second))
	}
}

func newBench(t *testing.T) *bench {
	image, err := exec.Command("./image.sh").Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "vm")
	must(t, err)
	login, err := ssh.NewPublicKey(public)
	must(t, err)
	b := &bench{t: t, key: types.NamespacedName{Namespace: "vm", Name: "vm-1"}, private: pem.EncodeToMemory(block)}
	b.signer, err = ssh.NewSignerFromKey(private)
	must(t, err)
	b.cluster, err = vm.NewCluster(t.Context(), t.TempDir(), built(t, "kubernetes", version), built(t, "etcd"), version)
	must(t, err)
	t.Cleanup(b.cluster.Close)
	b.machine, err = vm.New(vm.Options{Image: strings.TrimSpace(string(image)), Dir: t.TempDir(), UUID: uuid, Serial: serial,
		AuthorizedKey: ssh.MarshalAuthorizedKey(login), APIServer: b.cluster.Port})
	must(t, err)
	t.Cleanup(b.machine.Close)
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(b.machine.Console())
			t.Logf("console: %s", console[max(0, len(console)-4000):])
		}
	})
	b.bmc = newBMC(t, uuid, serial, b.machine)
	b.manage(t)
	return b
}

// built is the folder of programs that are compiled here.
func built(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("../../hack/bundle/build-binaries.sh", args...).Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newBMC has no PowerCycle, so a cycle is a reset of the running process.
func newBMC(t *testing.T, uuid, serial string, computer redfishtest.Computer) *redfishtest.Server {
	bmc := redfishtest.New(redfishtest.Options{
		ResetTypes: []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart"}, Computer: computer,
		Identify: func(string) (string, string, string) { return uuid, serial, "" },
	})
	t.Cleanup(bmc.Close)
	return bmc
}

func (b *bench) of(t *testing.T) *bench {
	of := *b
	of.t, of.WithT = t, gomega.NewWithT(t)
	return &of
}

// until waits, and says how the host stands when that was in vain.
func (b *bench) until(within time.Duration, what string, ok func() bool) {
	b.t.Helper()
	b.Eventually(ok).WithTimeout(within).WithPolling(200*time.Millisecond).Should(gomega.BeTrue(), func() string {
		return what + "\n" + b.describe()
	})
}

func (b *bench) describe() string {
	if b.plane == nil {
		return ""
	}
	host := b.host()
	text := fmt.Sprintf("state %s, operation %+v", host.Status.State, host.Status.Operation)
	for _, c := range host.Status.Conditions {
		text += fmt.Sprintf("\n  %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	return text
}

func (b *bench) host() *infrav1.QuoinHost {
	host := &infrav1.QuoinHost{}
	if err := b.plane.Client.Get(context.Background(), b.key, host); err != nil {
		b.t.Error(err)
	}
	return host
}

func (b *bench) untilState(state infrav1.HostState) {
	b.t.Helper()
	b.until(patience, "the host never became "+string(state), func() bool { return b.host().Status.State == state })
}

func (b *bench) update(change func(*infrav1.QuoinHost)) {
	b.t.Helper()
	host := b.host()
	before := host.DeepCopy()
	change(host)
	b.Expect(b.plane.Client.Patch(b.t.Context(), host, client.MergeFrom(before))).To(gomega.Succeed())
}

// run executes a script on the machine, beside the controllers.
func (b *bench) run(script string) (string, error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(b.machine.Port))
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Now().Add(3 * time.Minute))
	over, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{User: "root",
		Auth: []ssh.AuthMethod{ssh.PublicKeys(b.signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}) //nolint:gosec // ours
	if err != nil {
		_ = conn.Close()
		return "", err
	}
	c := ssh.NewClient(over, channels, requests)
	defer func() { _ = c.Close() }()
	session, err := c.NewSession()
	if err != nil {
		return "", err
	}
	out, err := session.CombinedOutput(script)
	return strings.TrimSpace(string(out)), err
}

// untilUp waits for sshd, and returns the boot ID.
func (b *bench) untilUp(before string) (boot string) {
	b.t.Helper()
	began := time.Now()
	b.until(patience, "sshd never answered", func() bool {
		var err error
		boot, err = b.run("cat /proc/sys/kernel/random/boot_id")
		return err == nil && boot != before
	})
	b.t.Logf("sshd answers after %s", time.Since(began).Round(time.Second))
	return boot
}

// redfish is a client of the BMC as the controllers have it.
func (b *bench) redfish() *redfish.Client {
	c, err := redfish.New(redfish.Target{Address: b.bmc.Address(), Fingerprint: b.bmc.Fingerprint(),
		Credentials: redfish.Login(redfishtest.User, redfishtest.Password), Machine: redfish.Machine{UUID: uuid}})
	b.Expect(err).NotTo(gomega.HaveOccurred())
	b.t.Cleanup(c.Close)
	return c
}

func switches(b *bench) {
	b.Expect(b.machine.Start()).To(gomega.Succeed())
	first := b.untilUp("")
	b.Expect(b.run("echo kept >/root/kept && sync")).To(gomega.BeEmpty())
	bmc := b.redfish()
	b.Expect(bmc.State(b.t.Context())).To(gomega.Equal(redfish.On))

	b.machine.Order("GracefulShutdown")
	b.until(patience, "the guest does not heed its power button", func() bool { return b.machine.Power() == "Off" })
	b.Expect(bmc.State(b.t.Context())).To(gomega.Equal(redfish.Off), "a guest that powers off is seen by the BMC")

	b.Expect(bmc.PowerOn(b.t.Context())).To(gomega.Succeed())
	second := b.untilUp(first)
	b.Expect(b.run("cat /root/kept")).To(gomega.Equal("kept"), "the same disk boots")
	b.Expect(bmc.PowerCycle(b.t.Context())).To(gomega.Succeed())
	b.untilUp(second)
	b.Expect(bmc.PowerOff(b.t.Context())).To(gomega.Succeed())
	b.Expect(b.machine.Power()).To(gomega.Equal("Off"))
	b.Expect(bmc.PowerOn(b.t.Context())).To(gomega.Succeed())
	b.untilUp(second)
	b.Expect(b.bmc.Orders()).To(gomega.Equal([]string{"On", "ForceRestart", "ForceOff", "On"}))
}

// manage begins a management plane, and ends it with the test t.
func (b *bench) manage(t *testing.T) {
	p, err := plane.Start(context.Background(), "vm")
	must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	manager, err := p.Run(context.Background(), plane.Options{Haste: 3, Connections: hostssh.PoolOptions{
		DialTimeout: 20 * time.Second, KeepAlive: 5 * time.Second}})
	must(t, err)
	t.Cleanup(func() { _ = manager.Stop() })
	b.plane = p
}

func (b *bench) secret(name string, kind corev1.SecretType, data map[string][]byte) {
	b.t.Helper()
	b.Expect(b.plane.Client.Create(b.t.Context(), &corev1.Secret{Type: kind, Data: data,
		ObjectMeta: metav1.ObjectMeta{Namespace: b.key.Namespace, Name: name}})).To(gomega.Succeed())
}

// unindexed lists what is not told apart by an index of the managers' caches.
type unindexed struct{ client.Reader }

func (u unindexed) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := (&client.ListOptions{}).ApplyOptions(options)
	all.FieldSelector = nil
	return u.Reader.List(ctx, list, all)
}

func bmcOf(bmc *redfishtest.Server, secret string) *infrav1.BMC {
	return &infrav1.BMC{Address: bmc.Address(), CertificateFingerprint: bmc.Fingerprint(),
		CredentialsRef: infrav1.SecretReference{Name: secret}}
}

func registers(b *bench) {
	ctx := b.t.Context()
	b.Expect(b.plane.Namespace(ctx, b.key.Namespace)).To(gomega.Succeed())
	// What a site puts there before it registers a host.
	b.ran("ctr --namespace k8s.io images import /opt/pause.tar")
	account := map[string][]byte{"username": []byte(redfishtest.User), "password": []byte(redfishtest.Password)}
	b.secret("ssh", corev1.SecretTypeSSHAuth, map[string][]byte{corev1.SSHAuthPrivateKey: b.private})
	b.secret("bmc", corev1.SecretTypeBasicAuth, account)
	b.secret("another-bmc", corev1.SecretTypeBasicAuth, account)
	another := newBMC(b.t, redfishtest.UUID("another"), "QUOIN-VM-2", b.machine)
	b.Expect(b.plane.Client.Create(ctx, &infrav1.QuoinHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.key.Namespace, Name: b.key.Name},
		Spec: infrav1.QuoinHostSpec{
			Address: "127.0.0.1", Port: int32(b.machine.Port), User: "root", CredentialsRef: infrav1.SecretReference{Name: "ssh"},
			Disks:       []infrav1.DiskRole{{ID: vm.ScratchID, Role: infrav1.DiskRoleWipe}},
			Unreachable: infrav1.UnreachablePolicy{TimeoutSeconds: ptr.To[int32](60)},
			BMC:         bmcOf(another, "another-bmc"),
		},
	})).To(gomega.Succeed())
	b.untilState(infrav1.HostStateAvailable)
	facts := b.host().Status.Facts
	b.t.Logf("inspected: %s, kernel %s, cgroup v%d, %s, disks %+v", facts.OSImage, facts.KernelVersion, facts.CgroupVersion,
		facts.ContainerRuntime, facts.Disks)
	b.Expect(facts.ProductUUID).To(gomega.Equal(uuid), "this kernel shows the UUID in the byte order that QEMU was given")
	b.Expect(facts.SerialNumber).To(gomega.Equal(serial))
	b.Expect(facts.CgroupVersion).To(gomega.BeEquivalentTo(2))
	b.Expect(facts.Disks).To(gomega.ContainElement(gomega.HaveField("ID", vm.ScratchID)))

	b.until(patience, "the BMC was not judged", func() bool {
		return conditions.IsFalse(b.host(), infrav1.HostBMCVerifiedCondition)
	})
	b.Expect(conditions.GetMessage(b.host(), infrav1.HostBMCVerifiedCondition)).To(gomega.And(
		gomega.ContainSubstring("is another machine's"), gomega.Not(gomega.ContainSubstring("systemID"))))
	b.Expect((&hostpower.Power{Reader: b.plane.Client, Hosts: unindexed{b.plane.Client}}).Off(ctx, b.host(), nil)).To(gomega.BeAssignableToTypeOf(
		&redfish.IdentityError{}))
	b.Expect(another.Orders()).To(gomega.BeEmpty(), "it is refused before any order")
	b.Expect(b.machine.Power()).To(gomega.Equal("On"))

	b.update(func(h *infrav1.QuoinHost) { h.Spec.BMC = bmcOf(b.bmc, "bmc") })
	b.until(patience, "its own BMC is not verified", func() bool {
		return conditions.IsTrue(b.host(), infrav1.HostBMCVerifiedCondition)
	})
}
