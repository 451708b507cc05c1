// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resolve turns shipped provider components into components that run where no cert-manager does: certificates
// are made here, once, instead of by a controller in the cluster. Every function changes the objects it is given and
// does no I/O.
package resolve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// validity is long enough for a test cluster kept for a while, and short enough that nobody takes it for production.
const validity = 30 * 24 * time.Hour

// Authority is a certificate authority that signs the serving certificates of one repository.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// ServingCertificate is a key pair, PEM encoded.
type ServingCertificate struct {
	Certificate []byte
	Key         []byte
}

// NewAuthority makes a self-signed authority whose life starts shortly before now, to tolerate clocks that differ.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "quoin test components"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the authority back: %w", err)
	}
	return &Authority{
		certificate: certificate,
		key:         key,
		pem:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// PEM is the authority's certificate, as it goes into a caBundle.
func (a *Authority) PEM() []byte { return a.pem }

// Serve signs a serving certificate for the given names and addresses.
func (a *Authority) Serve(names []string, addresses []net.IP) (ServingCertificate, error) {
	if len(names) == 0 && len(addresses) == 0 {
		return ServingCertificate{}, fmt.Errorf("a serving certificate needs a name or an address")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return ServingCertificate{}, fmt.Errorf("making a serving key: %w", err)
	}
	serial, err := serialNumber()
	if err != nil {
		return ServingCertificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "quoin test serving"},
		NotBefore:    a.certificate.NotBefore,
		NotAfter:     a.certificate.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     names,
		IPAddresses:  addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return ServingCertificate{}, fmt.Errorf("signing for %v %v: %w", names, addresses, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return ServingCertificate{}, fmt.Errorf("encoding a serving key: %w", err)
	}
	return ServingCertificate{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func serialNumber() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	return serial, nil
}
