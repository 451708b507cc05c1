// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdbackup

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/etcd"
)

// onlyHost reaches one host, at whose loopback address a real etcd answers.
type onlyHost struct{ name, address string }

func (o onlyHost) ConnectOnce(context.Context, *infrav1.QuoinHost) (ssh.Host, error) {
	return nil, errors.New("not in this test")
}

func (o onlyHost) DialHost(ctx context.Context, host *infrav1.QuoinHost, network, address string) (net.Conn, error) {
	if host.Name != o.name || address != etcd.ClientAddress {
		return nil, errors.New("switched off")
	}
	return (&net.Dialer{}).DialContext(ctx, network, o.address)
}

// From a real member, with the certificates of its cluster, to a snapshot that can be fetched.
func TestOfARealMember(t *testing.T) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	w := newWorld(t, toVolume("0 * * * *"))
	secret := &corev1.Secret{}
	w.Expect(w.api.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "c-etcd"}, secret)).To(Succeed())
	authority, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	w.Expect(err).NotTo(HaveOccurred())
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().
		Add(time.Hour),
		DNSNames: []string{"node-m2"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, authority.Leaf,
		private.Public(), authority.PrivateKey)
	w.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalECPrivateKey(private)
	w.Expect(err).NotTo(HaveOccurred())
	directory := t.TempDir()
	for name, content := range map[string][]byte{"ca.crt": secret.Data["tls.crt"],
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})} {
		w.Expect(os.WriteFile(filepath.Join(directory, name), content, 0o600)).To(Succeed())
	}
	free := func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		w.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = listener.Close() }()
		return listener.Addr().String()
	}
	address, peer := free(), "http://"+free()
	command := exec.Command(filepath.Join(assets, "etcd"), "--name", "node-m2", "--data-dir",
		filepath.Join(directory, "data"),
		"--listen-client-urls", "https://"+address, "--advertise-client-urls", "https://"+address, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "node-m2="+peer, "--client-cert-auth",
		"--unsafe-no-fsync", "--log-level", "error",
		"--trusted-ca-file", filepath.Join(directory, "ca.crt"), "--cert-file", filepath.Join(directory, "tls.crt"),
		"--key-file", filepath.Join(directory, "tls.key"))
	command.Stderr = t.Output()
	w.Expect(command.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	w.r.Hosts, w.r.Etcd = onlyHost{"m2", address}, nil
	// The clock decides about certificates here.
	w.r.Clock = clock.RealClock{}
	w.Eventually(func() *metav1.Condition {
		w.r.known = map[client.ObjectKey]*memory{}
		w.settle()
		return w.condition()
	}, time.Minute, 200*time.Millisecond).Should(HaveField("Status", metav1.ConditionTrue), func() string {
		return w.condition().Message
	})

	stored, err := backup.OpenVolume(w.volume, "clusters")
	w.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = stored.Close() }()
	target, problem := w.r.target(t.Context(), &reconciliation{controlPlane: w.controlPlane(), cluster: w.cluster()})
	w.Expect(problem).To(BeNil())
	good, err := backup.Good(t.Context(), stored, "prod/cp", target.authority, nil)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(good).To(HaveLen(1))
	w.Expect(good[0].Node).To(Equal("node-m2"))
	file, err := os.Create(filepath.Join(directory, "snapshot.db"))
	w.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	w.Expect(backup.Fetch(t.Context(), stored, "prod/cp", good[0], file)).To(Succeed())
}
