// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	g.Expect(of(false, true, true, false).plausible(nil, 2)).To(BeFalse(), "nor do two")
	g.Expect(of(true, true, true, false, false).plausible(map[uint64]bool{1: true, 2: true}, 2)).
		To(BeFalse(), "two of four agree on nothing")
}

// metrics are what a member says: text and HTTP status, and whether it sees a leader.
type metrics struct {
	text   string
	status int
	blind  bool
}

// serve the metrics, and count the connections that are asked for.
func (m metrics) serve(t *testing.T, ca *authority, name string, asked *atomic.Int32) Endpoint {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(cmp.Or(m.status, http.StatusOK))
		_, _ = io.WriteString(w, m.text)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.serving(t, name)}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return Endpoint{Name: name, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		asked.Add(1)
		if m.status < 0 {
			return nil, errors.New("no route to host")
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}
}

// hears are the metrics of a member that is connected with those, and not with the others that it names.
func hears(is bool, ids ...int) (text string) {
	for _, id := range ids {
		text += fmt.Sprintf("etcd_network_active_peers{Local=\"1\",Remote=\"%x\"} %d\n", id, map[bool]int{true: 1}[is])
	}
	return text
}

// A member whose host is not known here is judged by those that are asked, and by nobody when one could not be.
func TestOthersTellWhetherAMemberIsConnected(t *testing.T) {
	ca := newAuthority(t)
	credentials := credentialsOf(t, ca)
	const nobody = "no other member is connected with it"
	all := []Member{{ID: 1, Name: "a", Answers: true}, {ID: 2, Name: "b", Answers: true}, {ID: 3, Name: "c"}}
	for name, c := range map[string]struct {
		a, b metrics
		// c is what the host of the last member led to, where it is known.
		c       *answer
		members []Member
		agreed  bool
		// asked are how many of a and b; want is what is known of the last member.
		asked           int
		connected, blur bool
		problem         string
	}{
		"both hear it": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1, 3)}, agreed: true, asked: 2,
			connected: true},
		"one hears it": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1) + hears(false, 3)}, agreed: true,
			asked: 2, connected: true},
		"none hears it": {a: metrics{text: hears(true, 2) + hears(false, 3)}, b: metrics{text: hears(true, 1)}, agreed: true,
			asked: 2, problem: nobody},
		"one hears it, the other says nothing": {a: metrics{text: hears(true, 2, 3)}, b: metrics{status: 500}, agreed: true,
			asked: 2, connected: true},
		"one says nothing": {a: metrics{text: hears(true, 1, 2)}, b: metrics{status: 500}, asked: 2, blur: true,
			problem: "node b did not tell whether it is connected: reading its metrics: the HTTP status is 500"},
		"one cannot be reached": {a: metrics{text: hears(true, 1, 2)}, b: metrics{status: -1}, asked: 2, blur: true,
			problem: "node b did not tell whether it is connected: reading its metrics: no route to host"},
		"one sees no leader": {a: metrics{text: hears(true, 1, 2)}, b: metrics{blind: true}, asked: 1,
			members: []Member{{ID: 1, Name: "a", Answers: true}, {ID: 2, Name: "b", Learner: true}, {ID: 3, Name: "c"}},
			problem: nobody},
		"nobody sees a leader": {a: metrics{blind: true}, b: metrics{blind: true}, blur: true,
			problem: "no member answers that could tell whether it is connected"},
		"an etcd that counts in another way": {agreed: true, asked: 2, blur: true,
			problem: "the metrics of the members do not tell which others they are connected with"},
		"a voter that others hear was not asked": {a: metrics{text: hears(true, 2, 4)}, b: metrics{text: hears(true, 1)},
			members: append([]Member{{ID: 4, Name: "d"}}, all...), asked: 2, blur: true,
			problem: "no member that was asked is connected with it, but member 4 (d) votes and could not be asked"},
		"everybody's host is known": {members: all[:2]},
		"its host led nowhere, and both hear it": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1, 3)},
			c: &answer{}, agreed: true, asked: 2, blur: true,
			problem: "other members are connected with it, but it could not be asked: it was dialed"},
		"its host led nowhere, and none hears it": {a: metrics{text: hears(true, 2)}, b: metrics{text: hears(true, 1)},
			c: &answer{}, agreed: true, asked: 2, problem: "it was dialed"},
		"its host led nowhere, and none says whether it hears it": {a: metrics{status: 500}, b: metrics{status: 500},
			c: &answer{}, agreed: true, asked: 2, problem: "it was dialed"},
		"its host led nowhere, and no quorum agrees": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1, 3)},
			c: &answer{}, problem: "it was dialed"},
		"it hangs, and both hear it": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1, 3)},
			c: &answer{status: &pb.StatusResponse{}}, agreed: true, problem: "it was dialed"},
		"it writes to its disk alone": {a: metrics{text: hears(true, 2, 3)}, b: metrics{text: hears(true, 1, 3)},
			c: &answer{syncs: 1}, agreed: true, problem: "it was dialed"},
		"it has not started": {members: append(slices.Clone(all[:2]), Member{ID: 3})},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var asked atomic.Int32
			endpoints := []Endpoint{c.a.serve(t, ca, "a", &asked), c.b.serve(t, ca, "b", &asked)}
			var answers []answer
			for i, member := range []metrics{c.a, c.b} {
				status := &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: uint64(i + 1)}, Leader: 1}
				if member.blind {
					status.Leader = 0
				}
				answers = append(answers, answer{status: status})
			}
			members := slices.Clone(all)
			if c.members != nil {
				members = c.members
			}
			if c.c != nil {
				answers, endpoints = append(answers, *c.c), append(endpoints, Endpoint{Name: "c"})
				members[len(members)-1].Problem = "it was dialed"
			}
			cluster := &Cluster{Members: members, Agreed: c.agreed}
			want := slices.Clone(members)
			last := &want[len(want)-1]
			last.Connected, last.Unasked, last.Problem = c.connected, c.blur, c.problem
			if c.members != nil && want[0].Name == "d" {
				want[0].Connected = true
			}
			cluster.askPeers(t.Context(), endpoints, credentials, answers)
			g.Expect(cluster.Members).To(Equal(want))
			g.Expect(asked.Load()).To(BeEquivalentTo(c.asked))
		})
	}
}

// What a member has written to its disk is what it counts, and nothing while it does not say.
func TestSyncsAreCounted(t *testing.T) {
	g, ca, asked := NewWithT(t), newAuthority(t), atomic.Int32{}
	says := metrics{text: "etcd_disk_wal_fsync_duration_seconds_count 190\netcd_disk_backend_commit_duration_seconds_count 9\n" +
		"etcd_disk_wal_fsync_duration_seconds_sum 4\n"}
	g.Expect(syncsOf(t.Context(), says.serve(t, ca, "a", &asked), credentialsOf(t, ca))).To(BeEquivalentTo(199))
	silent := metrics{status: -1}
	g.Expect(syncsOf(t.Context(), silent.serve(t, ca, "a", &asked), credentialsOf(t, ca))).To(BeZero())
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
