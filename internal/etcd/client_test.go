// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// authority is an etcd CA.
type authority struct {
	cert            *x509.Certificate
	key             *ecdsa.PrivateKey
	certPEM, keyPEM []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalECPrivateKey(key)
	g.Expect(err).NotTo(HaveOccurred())
	return &authority{cert: cert, key: key,
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		keyPEM:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}

func (a *authority) serving(t *testing.T, name string) tls.Certificate {
	t.Helper()
	g := NewWithT(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	g.Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// fakeCluster is the state that several fake members share.
type fakeCluster struct {
	mu       sync.Mutex
	members  []*pb.Member
	leader   uint64
	alarms   []*pb.AlarmMember
	noQuorum bool
	database database
	// deletions of keys.
	deletions int
	// stuck is a member that completes no read through the quorum.
	stuck uint64
	// remembered is what is listed without a quorum, in place of members. Forgetful members list nothing then.
	remembered []*pb.Member
	forgetful  bool
}

// fakeMember serves one member's RPCs over TLS.
type fakeMember struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedKVServer
	id      uint64
	cluster *fakeCluster
}

func (f *fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	leader := f.cluster.leader
	if f.cluster.noQuorum {
		leader = 0
	}
	return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: f.id}, Leader: leader,
		IsLearner: f.cluster.database.learner,
		Version:   "3.6.14", DbSize: int64(1000 * f.id), RaftIndex: 500, RaftAppliedIndex: 500 - 10*(f.id-1)}, nil
}

func (f *fakeMember) MemberList(ctx context.Context, request *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if request.Linearizable && f.cluster.stuck == f.id {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if request.Linearizable && f.cluster.noQuorum {
		return nil, status.Error(codes.FailedPrecondition, "etcdserver: no leader")
	}
	if !request.Linearizable && f.cluster.forgetful {
		return nil, status.Error(codes.Internal, "the database is closed")
	}
	members := f.cluster.members
	if !request.Linearizable && f.cluster.remembered != nil {
		members = f.cluster.remembered
	}
	return &pb.MemberListResponse{Header: &pb.ResponseHeader{MemberId: f.id}, Members: members}, nil
}

func (f *fakeMember) MemberRemove(
	_ context.Context, request *pb.MemberRemoveRequest,
) (*pb.MemberRemoveResponse, error) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	var kept []*pb.Member
	for _, member := range f.cluster.members {
		if member.ID != request.ID {
			kept = append(kept, member)
		}
	}
	f.cluster.members = kept
	return &pb.MemberRemoveResponse{}, nil
}

func (f *fakeMember) DeleteRange(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	f.cluster.deletions++
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{MemberId: f.id}}, nil
}

func (f *fakeMember) Alarm(context.Context, *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	return &pb.AlarmResponse{Alarms: f.cluster.alarms}, nil
}

func (f *fakeMember) MoveLeader(_ context.Context, request *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	f.cluster.mu.Lock()
	defer f.cluster.mu.Unlock()
	if f.cluster.leader != f.id {
		return nil, status.Error(codes.FailedPrecondition, "etcdserver: not leader")
	}
	f.cluster.leader = request.TargetID
	return &pb.MoveLeaderResponse{}, nil
}

// start serves a member and returns the endpoint of its host. certName is the name in its certificate.
func start(t *testing.T, ca *authority, cluster *fakeCluster, id uint64, name, certName string) Endpoint {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	server := grpc.NewServer(grpc.Creds(grpccredentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.serving(t, certName)},
		ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	member := &fakeMember{id: id, cluster: cluster}
	pb.RegisterClusterServer(server, member)
	pb.RegisterMaintenanceServer(server, member)
	pb.RegisterKVServer(server, member)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return Endpoint{Name: name, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" || address != ClientAddress {
			return nil, errors.New("not the member's loopback address: " + address)
		}
		return listener.DialContext(ctx)
	}}
}

func three() *fakeCluster {
	return &fakeCluster{leader: 1, members: []*pb.Member{
		{ID: 1, Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}},
		{ID: 2, Name: "b", PeerURLs: []string{"https://[fd00::2]:2380"}},
		{ID: 3, Name: "", IsLearner: true, PeerURLs: []string{"https://10.0.0.3:2380"}},
	}}
}

func credentialsOf(t *testing.T, ca *authority) Credentials {
	t.Helper()
	credentials, err := Mint(ca.certPEM, ca.keyPEM, time.Now())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return credentials
}

func TestReadPutsAnswersTogether(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.alarms = []*pb.AlarmMember{{MemberID: 2, Alarm: pb.AlarmType_NOSPACE}}
	endpoints := []Endpoint{
		start(t, ca, cluster, 1, "a", "a"),
		{Name: "b", Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("host is off") }},
	}
	began := time.Now()
	read, err := Client{}.Read(t.Context(), endpoints, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(began)).To(BeNumerically("<", ReadTimeout+2*time.Second))
	g.Expect(read.Agreed).To(BeTrue())
	g.Expect(read.Members).To(HaveLen(3))
	g.Expect(read.Members[0]).To(Equal(Member{ID: 1, Name: "a", Leader: true, Answers: true,
		PeerAddresses: []string{"10.0.0.1"},
		Size:          1000, Version: "3.6.14", ReportedBy: "a"}))
	g.Expect(read.Members[1].Answers).To(BeFalse())
	g.Expect(read.Members[1].Problem).To(And(HavePrefix("node b: "), ContainSubstring("host is off")))
	g.Expect(read.Members[1].Alarms).To(ConsistOf("NOSPACE"))
	g.Expect(read.Members[1].PeerAddresses).To(ConsistOf("fd00::2"))
	g.Expect(read.Members[2].Learner).To(BeTrue())
}

// A voter whose disk hangs still says who leads. That it does not work shows only in what it cannot read while another
// one can; when none can, none is worse than the others.
func TestAVoterThatReadsNothingThroughTheQuorumDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ca, cluster := newAuthority(t), three()
		cluster.stuck = 2
		endpoints := []Endpoint{start(t, ca, cluster, 1, "a", "a"), start(t, ca, cluster, 2, "b", "b")}
		for range 3 {
			began := time.Now()
			read, err := Client{}.Read(t.Context(), endpoints, credentialsOf(t, ca))
			g.Expect(time.Since(began)).To(Equal(2 * time.Second))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(read.Agreed).To(BeTrue())
			g.Expect(read.Members[0].Answers && !read.Members[0].Hangs).To(BeTrue())
			g.Expect(read.Members[1].Hangs).To(BeTrue())
			g.Expect(read.Members[1].Answers).To(BeFalse())
			g.Expect(read.Members[1].ReportedBy).To(Equal("b"), "it was waited for")
			g.Expect(read.Members[1].Problem).To(ContainSubstring("its disk"))
		}
		alone, err := Client{}.Read(t.Context(), endpoints[1:], credentialsOf(t, ca))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(alone.Agreed).To(BeFalse())
		g.Expect(alone.Members[1].Answers && !alone.Members[1].Hangs).To(BeTrue())
	})
}

func TestReadDoesNotWaitForOneThatHangsWhenOthersAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		ca, cluster := newAuthority(t), three()
		hangs := Endpoint{Name: "b", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		began := time.Now()
		read, err := Client{}.Read(t.Context(), []Endpoint{hangs, start(t, ca, cluster, 1, "a", "a")}, credentialsOf(t, ca))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(began)).To(Equal(3 * time.Second))
		g.Expect(read.Agreed).To(BeTrue())
		g.Expect(read.Members[0].Answers).To(BeTrue())
		g.Expect(read.Members[1].Answers).To(BeFalse())
		g.Expect(read.Members[1].Problem).To(ContainSubstring(errLate.Error()))

		cluster.noQuorum = true
		read, err = Client{}.Read(t.Context(), []Endpoint{hangs, start(t, ca, cluster, 1, "a", "a")}, credentialsOf(t, ca))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read.Members[1].Problem).NotTo(ContainSubstring(errLate.Error()), "without a quorum everybody is waited for")
	})
}

// counting is an endpoint whose host tells how often it has written to its disk, once it was connected to for the rest.
func counting(t *testing.T, ca *authority, endpoint Endpoint) Endpoint {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "etcd_disk_wal_fsync_duration_seconds_count 3\n"+
				"etcd_disk_backend_commit_duration_seconds_count 4\n")
		}), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{ca.serving(t, endpoint.Name)}}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	var connected atomic.Bool
	return Endpoint{Name: endpoint.Name, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Swap(true) {
			return listener.DialContext(ctx)
		}
		return endpoint.Dial(ctx, network, address)
	}}
}

// What a voter that hangs has written to its disk is asked for a second after another one has answered, and is known
// whether the voter says something later or nothing at all.
func TestOneThatHangsIsAskedHowOftenItHasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		silent     bool
		reportedBy string
		took       time.Duration
	}{
		"it tells its status": {reportedBy: "b", took: quorumReadTimeout},
		"it tells nothing":    {silent: true, took: stragglers},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				ca, cluster := newAuthority(t), three()
				cluster.stuck = 2
				b := start(t, ca, cluster, 2, "b", "b")
				if c.silent {
					b.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				began := time.Now()
				read, err := Client{}.Read(t.Context(), []Endpoint{start(t, ca, cluster, 1, "a", "a"), counting(t, ca, b)},
					credentialsOf(t, ca))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(time.Since(began)).To(Equal(c.took))
				g.Expect(read.Members[1].Hangs).To(BeTrue())
				g.Expect(read.Members[1].Syncs).To(BeEquivalentTo(7))
				g.Expect(read.Members[1].ReportedBy).To(Equal(c.reportedBy))
			})
		})
	}
}

// What one member remembers is no list beside that of a quorum.
func TestReadTellsTheListOfTheQuorum(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.remembered = cluster.members[:1]
	read, err := Client{}.Read(t.Context(), []Endpoint{start(t, ca, cluster, 1, "a", "a")}, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Members).To(HaveLen(3))
	g.Expect(read.Members[1].Unasked).To(BeTrue(), "the others tell of b, and a has no metrics")
}

// Members that contradict each other are asked once more, because one may have come or gone in between.
func TestReadAsksAgainWhoContradicts(t *testing.T) {
	g := NewWithT(t)
	ca, alone := newAuthority(t), three()
	alone.members = alone.members[:1]
	a, b := start(t, ca, three(), 1, "a", "a"), start(t, ca, three(), 2, "b", "b")
	anew := start(t, ca, alone, 2, "b", "b")
	_, err := Client{}.Read(t.Context(), []Endpoint{a, anew}, credentialsOf(t, ca))
	g.Expect(err).To(MatchError(ErrContradiction))

	dial, asked := b.Dial, false
	b.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if asked {
			return dial(ctx, network, address)
		}
		asked = true
		return anew.Dial(ctx, network, address)
	}
	read, err := Client{}.Read(t.Context(), []Endpoint{a, b}, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Members).To(HaveLen(3))
}

func TestReadMeasuresLagFromTheFurthest(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	read, err := Client{}.Read(t.Context(), []Endpoint{start(t, ca, cluster, 1, "a", "a"),
		start(t, ca, cluster, 2, "b", "b"),
		start(t, ca, cluster, 3, "c", "c")}, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Members).To(HaveLen(3))
	for i, lag := range []uint64{0, 10, 20} {
		g.Expect(read.Members[i].Lag).To(Equal(lag))
		g.Expect(read.Members[i].Size).To(Equal(int64(1000 * (i + 1))))
	}
	g.Expect(read.Members[1].Started()).To(BeTrue())
	g.Expect(read.Members[2].Started()).To(BeFalse(), "nobody has told its name")
}

func TestReadWithoutQuorumTellsWhatIsRemembered(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.noQuorum = true
	read, err := Client{}.Read(t.Context(), []Endpoint{start(t, ca, cluster, 1, "a", "a")}, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Agreed).To(BeFalse())
	g.Expect(read.Members).To(HaveLen(3))
	g.Expect(read.Members[0].Answers).To(BeFalse())
	g.Expect(read.Members[0].Problem).To(ContainSubstring("no leader"))

	cluster.forgetful = true
	_, err = Client{}.Read(t.Context(), []Endpoint{start(t, ca, cluster, 1, "a", "a")}, credentialsOf(t, ca))
	g.Expect(err).To(MatchError(And(HavePrefix("no etcd member answered: node a: listing members: "),
		ContainSubstring("the database is closed"))))
}

// A list is believed when a quorum confirmed it, and nobody else speaks for a quorum of others, or remembers others and
// is ahead.
func TestListsThatContradictEachOther(t *testing.T) {
	said := func(agreed bool, index uint64, ids ...uint64) answer {
		a := answer{endpoint: "n", cluster: 7, agreed: agreed, status: &pb.StatusResponse{RaftIndex: index}}
		for _, id := range ids {
			a.members = append(a.members, &pb.Member{ID: id})
		}
		return a
	}
	another := said(true, 100, 1, 2, 3)
	another.cluster = 8
	for name, tc := range map[string]struct {
		answers    []answer
		contradict bool
	}{
		"nobody answers":                           {[]answer{{err: errors.New("off")}}, false},
		"all tell the same, in any order":          {[]answer{said(true, 100, 1, 2, 3), said(true, 99, 3, 1, 2)}, false},
		"no quorum, and different memories":        {[]answer{said(false, 100, 1), said(false, 90, 1, 2, 3)}, false},
		"a member that was removed, or is cut off": {[]answer{said(true, 100, 1, 2), said(false, 90, 1, 2, 3)}, false},
		"two quorums":                              {[]answer{said(true, 4, 1), said(true, 100, 1, 2, 3)}, true},
		"two clusters of the same members":         {[]answer{said(true, 100, 1, 2, 3), another}, true},
		"one began anew while the others have none": {[]answer{said(true, 4, 1), {err: errors.New("off")},
			said(false, 100, 1, 2, 3)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			for range 2 {
				err := contradiction(tc.answers)
				g.Expect(errors.Is(err, ErrContradiction)).To(Equal(tc.contradict), "%v", err)
				slices.Reverse(tc.answers)
			}
		})
	}
}

func TestServerNameIsVerified(t *testing.T) {
	g := NewWithT(t)
	ca := newAuthority(t)
	// The host answers with a certificate of the right authority but of another node.
	_, err := Client{}.Read(t.Context(), []Endpoint{start(t, ca, three(), 1, "a", "other")}, credentialsOf(t, ca))
	g.Expect(err).To(MatchError(ContainSubstring("a")))
	_, err = Client{}.Read(t.Context(), []Endpoint{start(t, newAuthority(t), three(), 1, "a", "a")}, credentialsOf(t, ca))
	g.Expect(err).To(HaveOccurred())
}

func TestRemoveMember(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	dead := Endpoint{Name: "b", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("host is off")
	}}
	endpoints := []Endpoint{dead, start(t, ca, cluster, 1, "a", "a")}
	credentials := credentialsOf(t, ca)
	g.Expect(Client{}.RemoveMember(t.Context(), endpoints, credentials, 3)).To(Succeed())
	g.Expect(cluster.members).To(HaveLen(2))
	g.Expect(Client{}.RemoveMember(t.Context(), endpoints, credentials, 3)).To(Succeed(), "a second time is no error")
	g.Expect(cluster.deletions).To(Equal(2), "whoever asks again makes it durable as well")
	g.Expect(Client{}.RemoveMember(t.Context(), endpoints, credentials, 2)).To(Succeed())
	g.Expect(Client{}.RemoveMember(t.Context(), endpoints, credentials, 1)).To(MatchError(ErrLastMember))
	g.Expect(cluster.members).To(HaveLen(1))
}

func TestMoveLeader(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	a, b := start(t, ca, cluster, 1, "a", "a"), start(t, ca, cluster, 2, "b", "b")
	g.Expect(Client{}.MoveLeader(t.Context(), b, credentialsOf(t, ca), 2)).NotTo(Succeed(), "b does not lead")
	g.Expect(Client{}.MoveLeader(t.Context(), a, credentialsOf(t, ca), 2)).To(Succeed())
	g.Expect(cluster.leader).To(Equal(uint64(2)))
}

func TestMintIsShortLived(t *testing.T) {
	g := NewWithT(t)
	ca := newAuthority(t)
	now := time.Now()
	credentials, err := Mint(ca.certPEM, ca.keyPEM, now)
	g.Expect(err).NotTo(HaveOccurred())
	minted, err := x509.ParseCertificate(credentials.config.Certificates[0].Certificate[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(minted.NotAfter).To(BeTemporally("<=", now.Add(time.Hour)))
	_, err = Mint(ca.certPEM, nil, now)
	g.Expect(err).To(HaveOccurred())
}
