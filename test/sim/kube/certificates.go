// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// authority signs what kubeadm makes on a host. Its files came with the bootstrap data.
type authority struct {
	cert *x509.Certificate
	key  any
	pem  []byte
}

// readAuthority reads <dir>/<name>.crt and .key of the machine.
func readAuthority(p *machine.Process, dir, name string) (*authority, error) {
	certPEM, err := p.ReadFile(dir + "/" + name + ".crt")
	if err != nil {
		return nil, err
	}
	keyPEM, err := p.ReadFile(dir + "/" + name + ".key")
	if err != nil {
		return nil, err
	}
	a, err := parseAuthority(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("failure loading CA %s: %w", name, err)
	}
	return a, nil
}

// parsePublic reads an authority that cannot sign.
func parsePublic(certPEM []byte) (*authority, error) {
	cert, err := certs.DecodeCertPEM(certPEM)
	if err != nil || cert == nil {
		return nil, fmt.Errorf("reading the certificate of an authority: %w", err)
	}
	return &authority{cert: cert, pem: certPEM}, nil
}

func parseAuthority(certPEM, keyPEM []byte) (*authority, error) {
	a := &authority{pem: certPEM}
	var err error
	if a.cert, err = certs.DecodeCertPEM(certPEM); err != nil {
		return nil, err
	}
	if a.key, err = certs.DecodePrivateKeyPEM(keyPEM); err != nil {
		return nil, err
	}
	if a.cert == nil || a.key == nil {
		return nil, errors.New("no PEM block found")
	}
	return a, nil
}

// subject of a certificate that an authority issues.
type subject struct {
	name         string
	organization []string
	// servers are the names and addresses of a server; a client's certificate has none.
	servers []string
	client  bool
}

// issue makes a key and a certificate, both in PEM. Keys are elliptic: those of kubeadm are not, and cost a second each.
func (a *authority) issue(s subject) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.name, Organization: s.organization},
		NotBefore: a.cert.NotBefore, NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, BasicConstraintsValid: true,
	}
	if s.client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if len(s.servers) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, server := range s.servers {
		if ip := net.ParseIP(server); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, server)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}

// client is a TLS configuration of a client that the authority knows.
func (a *authority) client(s subject) (*tls.Config, error) {
	s.client = true
	cert, key, err := a.issue(s)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.pool(), Certificates: []tls.Certificate{pair}}, nil
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// pin is how a join configuration names the authority.
func (a *authority) pin() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// kubeconfig of a client, with everything in it.
func (a *authority) kubeconfig(server, cluster string, s subject) ([]byte, error) {
	s.client = true
	cert, key, err := a.issue(s)
	if err != nil {
		return nil, err
	}
	context := s.name + "@" + cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: {Server: server, CertificateAuthorityData: a.pem}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{s.name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: s.name}},
		CurrentContext: context,
	})
}
