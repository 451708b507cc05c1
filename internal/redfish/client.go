// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redfish reads and changes the power of one computer through its baseboard management controller (BMC), which
// speaks Redfish (DMTF DSP0266): the service root, one ComputerSystem, its PowerState and its Reset action, and no
// more.
//
// A BMC is an old, small and often wrong computer. So its answers are bounded in size and time, its links must stay
// within its own service, and what it says it did is believed only when it has been read back.
package redfish

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/origin"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// PowerState of a computer, as its BMC says it.
type PowerState string

// The power states of DSP0266.
const (
	On          PowerState = "On"
	Off         PowerState = "Off"
	PoweringOn  PowerState = "PoweringOn"
	PoweringOff PowerState = "PoweringOff"
	Paused      PowerState = "Paused"
)

// Target is a computer as seen from its BMC.
type Target struct {
	// Address of the service: https://<host>[:<port>].
	Address string
	// System is the @odata.id of the ComputerSystem; the only one there is when empty.
	System string
	// Machine that is meant: nothing is believed or ordered of a ComputerSystem that is not it.
	Machine Machine
	// Credentials to log in with.
	Credentials Credentials
	// Fingerprint pins the service's certificate: the SHA-256 of its DER form in hexadecimal digits. When empty, the
	// certificate must be signed by one of Roots and made out to the address.
	Fingerprint string
	// Roots are trusted without a fingerprint; those of the system when nil.
	Roots *x509.CertPool

	// Interval between two readings of a power state that should change; 3 s when 0. "Off" is believed after two
	// readings in a row.
	Interval time.Duration
	// RequestTimeout bounds each request; 20 s when 0. BMCs take seconds for what a computer does in milliseconds.
	RequestTimeout time.Duration
	// ChangeTimeout bounds a change of power with its readings; 2 min when 0, and never longer than the context.
	ChangeTimeout time.Duration
	// Output bounds, for all BMCs and hosts of an Owner, what is kept at once of answers that are longer than
	// ssh.OutputPiece. Each answer is bounded all the same; nothing else is when nil.
	Output ssh.OutputRoom
	// Owner is who shares room in Output.
	Owner string
	// Due is asked right before each order that ends what runs on the computer; what it returns is returned, and the
	// order not given. Nothing is asked when nil.
	Due func(ctx context.Context) error
	// Control is that of net.Dialer: what it refuses is not connected to. Nothing is refused when nil.
	Control func(ctx context.Context, network, address string, c syscall.RawConn) error
}

// Machine is by what a computer is known, of which one suffices where the others do not differ. What is empty is
// unknown.
type Machine struct {
	// ID is a person's word: the UUID, the SerialNumber or the SKU that the BMC itself says, as it is written there.
	// What is known beside it counts only where UUID and Serial both say that the computer is another.
	ID string
	// UUID of its firmware, in either byte order; Serial number of its maker.
	UUID, Serial string
	// Shared names another machine that is known by ID, or without one has the UUID and a BMC, so that neither says which
	// of the two it is.
	Shared string
}

// Client talks to one BMC. It is safe for concurrent use; Close ends its session and its connections.
type Client struct {
	target Target
	base   *url.URL
	http   *http.Client

	mu sync.Mutex
	// token of a session, when the service takes no basic authentication; session is what ends it.
	token, session string
	// system is the path of the computer, once known.
	system string
}

// New makes a client. It connects to nothing yet.
func New(target Target) (*Client, error) {
	base, err := url.Parse(target.Address)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || strings.Trim(base.Path, "/") != "" ||
		base.RawQuery != "" {
		return nil, fmt.Errorf("the BMC's address %q is not of the form https://<host>[:<port>]", target.Address)
	}
	base.Path = ""
	for _, d := range []struct {
		field   *time.Duration
		unset   time.Duration
		minimum time.Duration
	}{
		{&target.Interval, 3 * time.Second, time.Millisecond},
		{&target.RequestTimeout, 20 * time.Second, time.Millisecond},
		{&target.ChangeTimeout, 2 * time.Minute, time.Millisecond},
	} {
		if *d.field == 0 {
			*d.field = d.unset
		}
		*d.field = max(*d.field, d.minimum)
	}
	c := &Client{target: target, base: base}
	c.http = &http.Client{
		Transport: &http.Transport{
			// A management network is reached as hosts are: directly. A proxy that the environment names for fetching
			// artifacts must never see these credentials.
			Proxy:                  nil,
			DialContext:            (&net.Dialer{Timeout: target.RequestTimeout, ControlContext: target.Control}).DialContext,
			TLSClientConfig:        tlsConfig(target),
			TLSHandshakeTimeout:    target.RequestTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			MaxConnsPerHost:        2,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true,
		},
		CheckRedirect: stayAtHome,
	}
	return c, nil
}

// stayAtHome follows a redirection of a reading within the service (a missing slash, say), and no other: credentials
// are for the one certificate that was pinned.
func stayAtHome(next *http.Request, before []*http.Request) error {
	first := before[0]
	if len(before) > 3 || first.Method != http.MethodGet || origin.Of(next.URL) != origin.Of(first.URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// State reads the power state.
func (c *Client) State(ctx context.Context) (PowerState, error) {
	system, err := c.readSystem(ctx)
	if err != nil {
		return "", err
	}
	return system.power, nil
}

// Close ends the session, if there is one, and closes the connections.
func (c *Client) Close() {
	c.mu.Lock()
	session, token := c.session, c.token
	c.session, c.token = "", ""
	c.mu.Unlock()
	if session != "" {
		// A BMC has room for a handful of sessions and forgets them after many minutes.
		ctx, cancel := context.WithTimeout(context.Background(), min(c.target.RequestTimeout, 5*time.Second))
		defer cancel()
		_, _ = c.send(ctx, request{action: "logging out", method: http.MethodDelete, path: session, token: token})
	}
	c.http.CloseIdleConnections()
}

func tlsConfig(target Target) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: target.Roots}
	if target.Fingerprint == "" {
		return config
	}
	// BMCs come with certificates that nobody signed and that name nobody; the pin replaces the chain and the name.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		seen := ""
		if len(state.PeerCertificates) > 0 {
			seen = Fingerprint(state.PeerCertificates[0])
		}
		if want := strings.ToLower(target.Fingerprint); seen != want {
			return &CertificateError{Address: target.Address, Expected: want, Seen: seen}
		}
		return nil
	}
	return config
}
