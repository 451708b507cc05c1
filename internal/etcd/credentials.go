// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"sigs.k8s.io/cluster-api/util/certs"
)

// certificateLifetime bounds a minted client certificate. It only has to outlive one reading; clocks may differ.
const certificateLifetime = 30 * time.Minute

// clockLeeway lets a host's clock be behind ours.
const clockLeeway = 10 * time.Minute

// Credentials let a client of one etcd cluster in. Made for each reading, never stored.
type Credentials struct {
	config *tls.Config
}

// Mint makes short-lived client credentials from the PEM encoded certificate and key of an etcd cluster's authority.
func Mint(caCert, caKey []byte, now time.Time) (Credentials, error) {
	authority, err := certs.DecodeCertPEM(caCert)
	if err != nil {
		return Credentials{}, fmt.Errorf("etcd authority's certificate: %w", err)
	}
	if authority == nil {
		return Credentials{}, errors.New("etcd authority's certificate: no PEM block found")
	}
	signer, err := certs.DecodePrivateKeyPEM(caKey)
	if err != nil {
		return Credentials{}, fmt.Errorf("etcd authority's key: %w", err)
	}
	if signer == nil {
		return Credentials{}, errors.New("etcd authority's key: no PEM block found; with an external etcd there is none")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Credentials{}, fmt.Errorf("etcd client key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Credentials{}, fmt.Errorf("etcd client certificate's serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "quoin-control-plane"},
		NotBefore:    now.Add(-clockLeeway),
		NotAfter:     now.Add(certificateLifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
	if err != nil {
		return Credentials{}, fmt.Errorf("etcd client certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return Credentials{config: &tls.Config{
		MinVersion:   tls.VersionTLS12,
		RootCAs:      roots,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}}, nil
}

// forServer pins the name that the server's certificate must carry. A host of the wrong node is refused by its name,
// although its certificate comes from the same authority.
//
// The name is checked in VerifyConnection because gRPC overwrites tls.Config.ServerName with the endpoint's address
// (credentials/tls.go); that address, 127.0.0.1, is in every member's certificate.
func (c Credentials) forServer(name string) *tls.Config {
	config := c.config.Clone()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("etcd on node %s presented no certificate", name)
		}
		return state.PeerCertificates[0].VerifyHostname(name)
	}
	return config
}
