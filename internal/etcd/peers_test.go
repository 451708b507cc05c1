// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestParsePeers(t *testing.T) {
	g := NewWithT(t)
	peers, err := parsePeers(strings.NewReader(`# HELP etcd_network_active_peers The current number of active peer connections.
# TYPE etcd_network_active_peers gauge
etcd_network_active_peers{Local="8e9e05c52164694d",Remote="1"} 1
etcd_network_active_peers{Local="8e9e05c52164694d",Remote="ffffffffffffffff"} 0
etcd_network_disconnected_peers_total{Local="8e9e05c52164694d",Remote="2"} 1
`))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(peers).To(Equal(map[uint64]bool{1: true, 0xffffffffffffffff: false}))
}

// What cannot be told by metrics is no death.
func TestMetricsMustBePlausible(t *testing.T) {
	g := NewWithT(t)
	of := func(agreed bool, answers ...bool) *Cluster {
		c := &Cluster{Agreed: agreed}
		for i, answer := range answers {
			c.Members = append(c.Members, Member{ID: uint64(i + 1), Answers: answer})
		}
		return c
	}
	g.Expect(of(true, true, false, false).plausible(map[uint64]bool{2: true}, 1)).To(BeTrue())
	g.Expect(of(true, true, false, false).plausible(nil, 1)).To(BeFalse(), "a quorum of one of three")
	g.Expect(of(false, true, false, false).plausible(nil, 1)).To(BeTrue())
	g.Expect(of(true, true, true, true, false, false).plausible(map[uint64]bool{1: true, 2: true, 3: true}, 3)).
		To(BeTrue())
	g.Expect(of(true, true, true, true, false, false).plausible(nil, 3)).
		To(BeFalse(), "members that answer do not hear each other")
}

// What listens on a host in etcd's place may say a lot.
func TestTheHeadersOfMetricsAreBounded(t *testing.T) {
	g := NewWithT(t)
	ca := newAuthority(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 100<<10))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.serving(t, "a")}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	_, err := metricsOf(t.Context(), Endpoint{Name: "a", Dial: dial}, credentialsOf(t, ca))
	g.Expect(err).To(MatchError(ContainSubstring("exceeded 65536 bytes")))
}
