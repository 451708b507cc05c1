// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redfishtest simulates a BMC that speaks Redfish, and misbehaves as real ones do.
package redfishtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// User and Password of the account of every simulated BMC.
const (
	User     = "operator"
	Password = "correct horse" //nolint:gosec // of a simulated BMC
)

// Options of a simulated BMC.
type Options struct {
	// Systems are the names of the computers; "1" when empty.
	Systems []string
	// ResetTypes that the BMC takes; On, ForceOff, GracefulShutdown, ForceRestart and PowerCycle when nil.
	ResetTypes []string
	// InActionInfo lists the reset types in a resource of their own.
	InActionInfo bool
	// SessionsOnly takes no basic authentication.
	SessionsOnly bool
	// Identify a computer: its UUID, SerialNumber and SKU; UUID(system) alone when nil.
	Identify func(system string) (uuid, serial, sku string)
	// Computer is the machine behind every system; one is simulated when nil.
	Computer Computer
}

// Computer is a machine whose power is its own: the BMC reads it, and answers an order before it is carried out.
type Computer interface {
	// Power is On or Off, as it is at this moment.
	Power() string
	// Order carries out a reset type. Two orders may come at once.
	Order(resetType string)
}

// Faults are how the BMC misbehaves. The zero value is good behavior.
type Faults struct {
	// Delay of every answer.
	Delay time.Duration
	// Hang leaves every request without an answer until the client gives up.
	Hang bool
	// Status is answered to everything, when not 0.
	Status int
	// FailReadings answers 503 to so many readings of a system after the first order.
	FailReadings int
	// StayOn takes every order with 204, and carries none out.
	StayOn bool
	// Flap says Off and On in turn once an order was given.
	Flap bool
	// Huge answers with a body without end.
	Huge bool
	// Padding lengthens every answer that is a resource by so many bytes.
	Padding int
	// Garbage answers with this instead of JSON, when not empty.
	Garbage string
	// LinkAway makes the links of the service root lead to another server.
	LinkAway string
	// Quote repeats the password in the text of errors.
	Quote bool
}

// Server is a simulated BMC.
type Server struct {
	options Options
	http    *httptest.Server

	mu          sync.Mutex
	certificate tls.Certificate
	faults      Faults
	power       map[string]string
	orders      []string
	readings    int
	logins      int
	sessions    map[string]string
	ordered     bool
	// acting are orders that a Computer carries out.
	acting sync.WaitGroup
}

// New starts a BMC whose computers are on. Close ends it.
func New(options Options) *Server {
	if len(options.Systems) == 0 {
		options.Systems = []string{"1"}
	}
	if options.ResetTypes == nil {
		options.ResetTypes = []string{"On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle"}
	}
	if options.Identify == nil {
		options.Identify = func(system string) (uuid, serial, sku string) { return UUID(system), "", "" }
	}
	s := &Server{options: options, power: map[string]string{}, sessions: map[string]string{},
		certificate: newCertificate()}
	for _, name := range options.Systems {
		s.power[name] = "On"
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
		error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.certificate}}, nil
	}}
	s.http.StartTLS()
	return s
}

// UUID of a computer that is not identified otherwise.
func UUID(system string) string {
	sum := sha256.Sum256([]byte(system))
	id := hex.EncodeToString(sum[:16])
	return strings.Join([]string{id[:8], id[8:12], id[12:16], id[16:20], id[20:]}, "-")
}

// Close ends the BMC, once its orders are carried out.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
	s.acting.Wait()
}

// Address of the service, as spec.bmc.address wants it.
func (s *Server) Address() string { return s.http.URL }

// Fingerprint of the certificate that the service presents now.
func (s *Server) Fingerprint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256(s.certificate.Certificate[0])
	return hex.EncodeToString(sum[:])
}

// Roots trust the certificate that the service presents now.
func (s *Server) Roots() *x509.CertPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool := x509.NewCertPool()
	if leaf, err := x509.ParseCertificate(s.certificate.Certificate[0]); err == nil {
		pool.AddCert(leaf)
	}
	return pool
}

// ChangeCertificate presents another certificate from now on.
func (s *Server) ChangeCertificate() {
	s.mu.Lock()
	s.certificate = newCertificate()
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// Misbehave sets the faults.
func (s *Server) Misbehave(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Power is what the computer really has, whatever the BMC says: On or Off.
func (s *Server) Power(system string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.powerOf(system)
}

func (s *Server) powerOf(system string) string {
	if s.options.Computer != nil {
		return s.options.Computer.Power()
	}
	return s.power[system]
}

// SetPower is a person at the button.
func (s *Server) SetPower(system, power string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.power[system] = power
}

// Orders are the reset types that were ordered, in their order.
func (s *Server) Orders() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.orders)
}

// Readings of the power state so far.
func (s *Server) Readings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings
}

// Logins that were tried so far with a wrong or a right password, by any way.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// Sessions that are open.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func newCertificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "bmc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
