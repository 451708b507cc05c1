// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdtest runs real etcd on disks that become slow or hang, for tests of what is made of that.
package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

// Cluster is etcd on loopback, whose voters sync their files and have the certificates that kubeadm would give them.
type Cluster struct {
	t       *testing.T
	ca      tls.Certificate
	voters  map[string]*voter
	clients *x509.CertPool
}

type voter struct {
	address string
	process *os.Process
	client  *clientv3.Client
}

// Start runs voters of these names, who have agreed on a leader when it returns. The test is skipped where there is no
// etcd; and where nothing has a disk hang, by programtest.Need.
func Start(t *testing.T, caCert, caKey []byte, names ...string) *Cluster {
	t.Helper()
	g := NewWithT(t)
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	programtest.Need(t, "strace")
	ca, err := tls.X509KeyPair(caCert, caKey)
	g.Expect(err).NotTo(HaveOccurred())
	c := &Cluster{t: t, ca: ca, voters: map[string]*voter{}, clients: x509.NewCertPool()}
	g.Expect(c.clients.AppendCertsFromPEM(caCert)).To(BeTrue())
	var peers []string
	urls := map[string]string{}
	for _, name := range names {
		urls[name] = "http://" + freeAddress(t)
		peers = append(peers, name+"="+urls[name])
	}
	for _, name := range names {
		c.run(filepath.Join(assets, "etcd"), name, urls[name], strings.Join(peers, ","), caCert)
	}
	for _, name := range names {
		g.Eventually(func() error { return c.Put(name) }, 30*time.Second, 100*time.Millisecond).Should(Succeed())
	}
	return c
}

func (c *Cluster) run(etcd, name, peer, peers string, caCert []byte) {
	c.t.Helper()
	g := NewWithT(c.t)
	directory, address := c.t.TempDir(), freeAddress(c.t)
	// The name that a client of gRPC asks for is the address that it dials.
	certificate := c.issue(name, address)
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string][]byte{
		"ca.crt":     caCert,
		"server.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		"server.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	for file, content := range files {
		g.Expect(os.WriteFile(filepath.Join(directory, file), content, 0o600)).To(Succeed())
	}
	command := exec.Command(etcd, "--name", name, //nolint:gosec // a test's own etcd
		"--data-dir", filepath.Join(directory, "data"),
		"--listen-client-urls", "https://"+address, "--advertise-client-urls", "https://"+address,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", peers,
		"--client-cert-auth", "--trusted-ca-file", filepath.Join(directory, "ca.crt"),
		"--cert-file", filepath.Join(directory, "server.crt"), "--key-file", filepath.Join(directory, "server.key"),
		"--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error")
	command.Stderr = c.t.Output()
	g.Expect(command.Start()).To(Succeed())
	c.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + address},
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.clients,
			Certificates: []tls.Certificate{c.issue("writer", address)}}})
	g.Expect(err).NotTo(HaveOccurred())
	c.t.Cleanup(func() { _ = client.Close() })
	c.voters[name] = &voter{address: address, process: command.Process, client: client}
}

// issue returns a certificate for a name, to serve at an address and to be a client with.
func (c *Cluster) issue(name, address string) tls.Certificate {
	c.t.Helper()
	g := NewWithT(c.t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	host, _, err := net.SplitHostPort(address)
	g.Expect(err).NotTo(HaveOccurred())
	authority, err := x509.ParseCertificate(c.ca.Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(host)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, authority, key.Public(), c.ca.PrivateKey)
	g.Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Dial connects with a voter, whatever address is asked for: it is the one of the voter on its own host.
func (c *Cluster) Dial(ctx context.Context, name string) (net.Conn, error) {
	voter, known := c.voters[name]
	if !known {
		return nil, fmt.Errorf("there is no voter %s", name)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", voter.address)
}

// Put writes through a voter, and fails where that takes more than a second.
func (c *Cluster) Put(name string) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	_, err := c.voters[name].client.Put(ctx, "key", "value")
	return err
}

// Disk has each write to a voter's disk take so long until it is done, from its return on; only the thread that writes
// waits for it. What it returns makes the disk quick again.
func (c *Cluster) Disk(name string, delay time.Duration) (quick func()) {
	c.t.Helper()
	command := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", //nolint:gosec // a test's own etcd
		"-p", fmt.Sprint(c.voters[name].process.Pid), "-e", "trace=fdatasync",
		"-e", fmt.Sprintf("inject=fdatasync:delay_enter=%d", delay.Microseconds()))
	g := NewWithT(c.t)
	g.Expect(command.Start()).To(Succeed())
	quick = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	c.t.Cleanup(quick)
	// A write that gets through in between is applied, and its database hangs besides its log, so that the voter tells no
	// status.
	g.Eventually(func() bool { return traced(c.voters[name].process.Pid) }, 30*time.Second, time.Millisecond).
		Should(BeTrue())
	return quick
}

// traced reports whether strace holds each thread of a process.
func traced(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err == nil && strings.Contains(string(status), "\nTracerPid:\t0\n") {
			return false
		}
	}
	return len(threads) > 0
}

// freeAddress is one of loopback that nobody else's connections begin at: one of them may take a port of 127.0.0.1
// before etcd listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+mathrand.IntN(254), mathrand.IntN(256),
		2+mathrand.IntN(252)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
