// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/etcdtest"
)

// realMember is an etcd process.
type realMember struct {
	name     string
	endpoint Endpoint
	peer     string
	data     string
	process  *os.Process
	// run starts the process; arguments given here hold instead of those it has.
	run func(arguments ...string)
}

// realCluster runs etcd processes on the loopback address, with the certificates that kubeadm would give them.
type realCluster struct {
	t       *testing.T
	ca      *authority
	members []*realMember
}

// binary of etcd, from where envtest has it.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "etcd")
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS does not say where etcd is")
	}
	return path
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	c := &realCluster{t: t, ca: newAuthority(t)}
	c.start("a", true)
	return c
}

// start runs a member: the first of a new cluster, or one that the others were told of.
func (c *realCluster) start(name string, first bool) *realMember {
	c.t.Helper()
	g := NewWithT(c.t)
	etcd, directory := binary(c.t), c.t.TempDir()
	client, peer := freeAddress(c.t), freeAddress(c.t)
	member := c.prepare(name, peer, client)
	member.data = filepath.Join(directory, "data")
	var initial []string
	for _, m := range c.members {
		initial = append(initial, m.name+"=http://"+m.peer)
	}
	state := "existing"
	if first {
		state = "new"
	} else {
		list, err := c.client(c.members[0]).MemberList(c.t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		known := false
		for _, m := range list.Members {
			known = known || m.PeerURLs[0] == "http://"+peer
		}
		if !known {
			// etcd adds nobody in the first seconds in which members are connected.
			g.Eventually(func() error {
				_, err := c.client(c.members[0]).MemberAddAsLearner(c.t.Context(), []string{"http://" + peer})
				return err
			}, 20*time.Second, 100*time.Millisecond).Should(Succeed())
		}
	}
	certificate := c.ca.serving(c.t, name)
	key, err := x509.MarshalECPrivateKey(certificate.PrivateKey.(*ecdsa.PrivateKey))
	g.Expect(err).NotTo(HaveOccurred())
	files := map[string][]byte{
		"ca.crt":     c.ca.certPEM,
		"server.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		"server.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
	}
	for file, content := range files {
		g.Expect(os.WriteFile(filepath.Join(directory, file), content, 0o600)).To(Succeed())
	}
	arguments := []string{
		"--name", name, "--data-dir", member.data,
		"--listen-client-urls", "https://" + client, "--advertise-client-urls", "https://" + client,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", strings.Join(append(initial, name+"=http://"+peer), ","), "--initial-cluster-state", state,
		"--client-cert-auth", "--trusted-ca-file", filepath.Join(directory, "ca.crt"),
		"--cert-file", filepath.Join(directory, "server.crt"), "--key-file", filepath.Join(directory, "server.key"),
		"--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error", "--unsafe-no-fsync",
	}
	member.run = func(others ...string) {
		command := exec.Command(etcd, append(slices.Clone(arguments), others...)...) //nolint:gosec // a test's own etcd
		command.Stderr = c.t.Output()
		NewWithT(c.t).Expect(command.Start()).To(Succeed())
		member.process = command.Process
		c.t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
	}
	member.run()
	c.members = append(c.members, member)
	g.Eventually(func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		_, err := memberStatus(ctx, c.client(member))
		return err
	}, 20*time.Second, 50*time.Millisecond).Should(Succeed())
	return member
}

func (c *realCluster) prepare(name, peer, client string) *realMember {
	return &realMember{name: name, peer: peer, endpoint: Endpoint{Name: name, Dial: func(ctx context.Context, network,
		address string) (net.Conn, error) {
		if address != ClientAddress {
			return nil, fmt.Errorf("not the member's loopback address: %s", address)
		}
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, client)
	}}}
}

// client of one member, for as long as the test.
func (c *realCluster) client(member *realMember) *clientv3.Client {
	c.t.Helper()
	client, err := connect(c.t.Context(), member.endpoint, credentialsOf(c.t, c.ca))
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *realCluster) read() Cluster {
	c.t.Helper()
	read, err := Client{}.Read(c.t.Context(), c.endpoints(), credentialsOf(c.t, c.ca))
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return read
}

func (c *realCluster) endpoints() []Endpoint {
	var endpoints []Endpoint
	for _, member := range c.members {
		endpoints = append(endpoints, member.endpoint)
	}
	return endpoints
}

// promote gives the members that do not vote their vote, as soon as etcd finds them ready.
func (c *realCluster) promote() {
	c.t.Helper()
	g := NewWithT(c.t)
	for _, member := range c.read().Members {
		if member.Learner {
			g.Eventually(func() error {
				_, err := c.client(c.members[0]).MemberPromote(c.t.Context(), member.ID)
				return err
			}, 20*time.Second, 100*time.Millisecond).Should(Succeed())
		}
	}
}

// freeAddress is one of loopback that nobody else's connections begin at: one of them may take a port of 127.0.0.1
// before etcd listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 2+rand.IntN(252)))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func TestReadOfRealMembers(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	for range 50 {
		_, err := cluster.client(cluster.members[0]).Put(t.Context(), "key", strings.Repeat("x", 10_000))
		g.Expect(err).NotTo(HaveOccurred())
	}
	// etcd writes its database every 100 ms.
	g.Eventually(func() int64 {
		return cluster.read().Members[0].Size
	}, 20*time.Second, 50*time.Millisecond).Should(BeNumerically(">", 400_000))

	// A member that was added and has not run yet: etcd knows where it will be, and no name.
	peer := freeAddress(t)
	added, err := cluster.client(cluster.members[0]).MemberAddAsLearner(t.Context(), []string{"http://" + peer})
	g.Expect(err).NotTo(HaveOccurred())
	read := cluster.read()
	g.Expect(read.Agreed).To(BeTrue())
	g.Expect(read.Members).To(HaveLen(2))
	for _, member := range read.Members {
		if member.ID == added.Member.ID {
			g.Expect(member.Started()).To(BeFalse())
			g.Expect(member.Learner).To(BeTrue())
			g.Expect(member.Answers).To(BeFalse())
			continue
		}
		g.Expect(member.Leader && member.Answers && member.Started()).To(BeTrue())
		g.Expect(member.Size).To(BeNumerically(">", 400_000))
		g.Expect(member.Lag).To(BeZero())
		g.Expect(member.Version).To(HavePrefix("3."))
	}
	// It blocks every join, and is cleared like any other member.
	_, err = cluster.client(cluster.members[0]).MemberAddAsLearner(t.Context(), []string{"http://" + freeAddress(t)})
	g.Expect(err).To(MatchError(ContainSubstring("too many learner")))
	g.Expect(Client{}.RemoveMember(t.Context(), cluster.endpoints(), credentialsOf(t, cluster.ca), added.Member.ID)).
		To(Succeed())

	cluster.start("b", false)
	g.Eventually(func() bool {
		for _, member := range cluster.read().Members {
			if member.Name == "b" {
				return member.Learner && member.Answers && member.Lag < 10
			}
		}
		return false
	}, 20*time.Second, 100*time.Millisecond).Should(BeTrue(), "a learner answers, and catches up")
	_, err = Client{}.Snapshot(t.Context(), cluster.members[1].endpoint, credentialsOf(t, cluster.ca))
	g.Expect(err).To(MatchError(ErrLearner))
	cluster.promote()

	// Of two voters one is lost: what is left remembers, and agrees on nothing.
	g.Expect(cluster.members[1].process.Kill()).To(Succeed())
	g.Eventually(func() bool { return cluster.read().Agreed }, 20*time.Second, 100*time.Millisecond).Should(BeFalse())
	read = cluster.read()
	g.Expect(read.Members).To(HaveLen(2))
	for _, member := range read.Members {
		if member.Name == "b" {
			g.Expect(member.Answers).To(BeFalse())
			g.Expect(member.Problem).NotTo(BeEmpty())
		}
	}
	// The survivor's data can still be saved.
	snapshot, err := Client{}.Snapshot(t.Context(), cluster.members[0].endpoint, credentialsOf(t, cluster.ca))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, snapshot)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(snapshot.Close()).To(Succeed())
}

// Of two voters one is removed, and the other one crashes as soon as that is said to be done. It must not ask the
// removed one for its vote when it comes back.
func TestTheSurvivorOfARemovalMayCrash(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	leaver, survivor := cluster.members[0], cluster.start("b", false)
	cluster.promote()
	ids := map[string]uint64{}
	for _, member := range cluster.read().Members {
		ids[member.Name] = member.ID
	}
	credentials := credentialsOf(t, cluster.ca)
	g.Expect(Client{}.MoveLeader(t.Context(), leaver.endpoint, credentials, ids["b"])).To(Succeed())
	// etcd removes nobody in the first seconds in which members are connected.
	g.Eventually(func() error {
		return Client{}.RemoveMember(t.Context(), []Endpoint{survivor.endpoint}, credentials, ids["a"])
	}, 20*time.Second, 100*time.Millisecond).Should(Succeed())

	g.Expect(survivor.process.Kill()).To(Succeed())
	_, _ = survivor.process.Wait()
	// The other one ends when it has learned of its removal.
	_ = leaver.process.Kill()
	survivor.run()
	g.Eventually(func() bool {
		read, err := Client{}.Read(t.Context(), []Endpoint{survivor.endpoint}, credentials)
		return err == nil && read.Agreed && len(read.Members) == 1
	}, 20*time.Second, 100*time.Millisecond).Should(BeTrue(), "it leads itself")
}

// Only the file of one member is over its quota. It is removed, or the others are restored without it, and what it has
// raised stays: nothing is written until somebody takes that off.
func TestRealMembersKeepTheAlarmOfOneThatIsGone(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	for _, name := range []string{"b", "c"} {
		cluster.start(name, false)
		cluster.promote()
	}
	credentials := credentialsOf(t, cluster.ca)
	first, gone := cluster.members[0], cluster.members[2]
	id := map[string]uint64{}
	for _, member := range cluster.read().Members {
		id[member.Name] = member.ID
	}
	client := cluster.client(first)
	_, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: id["c"], Alarm: pb.AlarmType_NOSPACE})
	g.Expect(err).NotTo(HaveOccurred())
	alarms := func() map[string][]string {
		t.Helper()
		told := map[string][]string{}
		for _, member := range cluster.read().Members {
			told[member.Name] = member.Alarms
		}
		return told
	}
	g.Expect(alarms()).To(Equal(map[string][]string{"a": nil, "b": nil, "c": {"NOSPACE"}}))

	// etcd removes nobody in the first seconds in which members are connected.
	g.Eventually(func() error {
		return Client{}.RemoveMember(t.Context(), []Endpoint{first.endpoint}, credentials, id["c"])
	}, 20*time.Second, 100*time.Millisecond).Should(Succeed())
	_ = gone.process.Kill()
	cluster.members = cluster.members[:2]
	g.Eventually(alarms, 20*time.Second, 100*time.Millisecond).
		Should(Equal(map[string][]string{"a": {"NOSPACE"}, "b": {"NOSPACE"}}))
	_, err = client.Put(t.Context(), "key", "value")
	g.Expect(err).To(MatchError(ContainSubstring("database space exceeded")))

	stream, err := Client{}.Snapshot(t.Context(), first.endpoint, credentials)
	g.Expect(err).NotTo(HaveOccurred())
	content, err := io.ReadAll(stream)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(stream.Close()).To(Succeed())
	saved, restored := filepath.Join(t.TempDir(), "snapshot.db"), filepath.Join(t.TempDir(), "data")
	g.Expect(os.WriteFile(saved, content, 0o600)).To(Succeed())
	g.Expect(snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{SnapshotPath: saved, OutputDataDir: restored,
		Name: "a", PeerURLs: []string{"http://" + first.peer}, InitialCluster: "a=http://" + first.peer,
		InitialClusterToken: "restored"})).To(Succeed())
	for _, member := range cluster.members {
		g.Expect(member.process.Kill()).To(Succeed())
		_, _ = member.process.Wait()
	}
	first.run("--data-dir", restored)
	cluster.members = cluster.members[:1]
	g.Eventually(func() (Cluster, error) {
		return Client{}.Read(t.Context(), cluster.endpoints(), credentials)
	}, 20*time.Second, 100*time.Millisecond).Should(And(HaveField("Agreed", true), HaveField("Members", ConsistOf(
		And(HaveField("ID", Not(Equal(id["a"]))), HaveField("Alarms", Equal([]string{"NOSPACE"})))))))

	// All alarms of all members, as etcdctl alarm disarm does.
	client = cluster.client(first)
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(alarms()).To(Equal(map[string][]string{"a": nil}))
	_, err = client.Put(t.Context(), "key", "value")
	g.Expect(err).NotTo(HaveOccurred())
}

// The first member of a cluster was made to begin one. Without its data it does so again, with the ids that it had, and
// is a quorum of itself for as long as the others do not reach it. By its list the others would be given up, who have
// the data.
func TestAMemberThatBeganAnewIsNotTheCluster(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	for _, name := range []string{"b", "c"} {
		cluster.start(name, false)
		cluster.promote()
	}
	read := func(endpoints ...Endpoint) (Cluster, error) {
		return Client{}.Read(t.Context(), endpoints, credentialsOf(t, cluster.ca))
	}
	first := cluster.members[0]
	g.Expect(first.process.Kill()).To(Succeed())
	_, _ = first.process.Wait()
	g.Expect(os.RemoveAll(first.data)).To(Succeed())
	first.run("--listen-peer-urls", "http://"+freeAddress(t))
	g.Eventually(func() ([]Member, error) {
		alone, err := read(first.endpoint)
		return alone.Members, err
	}, 20*time.Second, 100*time.Millisecond).Should(HaveLen(1), "by itself it looks like a cluster")
	_, err := read(cluster.endpoints()...)
	g.Expect(err).To(MatchError(ErrContradiction))
	g.Expect(err).
		To(
			MatchError(
				MatchRegexp(
					`node a speaks for a quorum of a \(term \d+, at least \d0* entries\), and node b for one of a, b, c \(term `)))

	g.Expect(first.process.Kill()).To(Succeed())
	_, _ = first.process.Wait()
	both, err := read(cluster.endpoints()...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(both.Agreed).To(BeTrue())
	g.Expect(both.Members).To(HaveLen(3))
}

// Whether a member votes is asked of the others when its host is not known: the objects may be older than the member.
func TestOthersTellOfAMemberWhoseHostIsNotKnown(t *testing.T) {
	binary(t)
	g := NewWithT(t)
	cluster := newRealCluster(t)
	other := cluster.start("b", false)
	cluster.promote()
	credentials := credentialsOf(t, cluster.ca)
	of := func(endpoints ...Endpoint) Member {
		got, err := Client{}.Read(t.Context(), endpoints, credentials)
		g.Expect(err).NotTo(HaveOccurred())
		at := slices.IndexFunc(got.Members, func(m Member) bool { return m.Name == other.name })
		g.Expect(at).To(BeNumerically(">=", 0))
		return got.Members[at]
	}
	read := func() Member { return of(cluster.members[0].endpoint) }
	g.Eventually(func() bool { return read().Connected }, 20*time.Second, 100*time.Millisecond).Should(BeTrue())
	g.Expect(read().Answers).To(BeFalse(), "nobody asked it itself")
	g.Expect(read().Unasked).To(BeFalse())
	closed := Endpoint{Name: "b", Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("administratively prohibited")
	}}
	viaClosed := func() Member { return of(cluster.members[0].endpoint, closed) }
	g.Expect(viaClosed()).To(And(HaveField("Unasked", true), HaveField("Problem", And(
		HavePrefix("other members are connected with it"), ContainSubstring("administratively prohibited")))))

	third := cluster.start("c", false)
	cluster.promote()
	g.Expect(other.process.Kill()).To(Succeed())
	g.Eventually(func() bool { return read().Connected }, 20*time.Second, 100*time.Millisecond).Should(BeFalse())
	g.Expect(read().Unasked).To(BeTrue(), "c may hear it, and nobody knows where c is")
	g.Expect(viaClosed().Unasked).To(BeFalse(), "who is asked does not hear it")
	g.Expect(read().Problem).To(MatchRegexp(`^no member that was asked is .*, but member [0-9a-f]+ \(c\) votes and could`))
	both := func() Member { return of(cluster.members[0].endpoint, third.endpoint) }
	g.Eventually(both, 20*time.Second, 100*time.Millisecond).Should(HaveField("Problem", "no other member is connected with it"))
	g.Expect(both().Unasked).To(BeFalse())

	// With the quorum the last one is gone that could tell: it sees no leader.
	g.Expect(third.process.Kill()).To(Succeed())
	g.Eventually(func() bool { return read().Unasked }, 20*time.Second, 100*time.Millisecond).Should(BeTrue())
}

// A disk that hangs stops the one thread of etcd that writes, and leaves alone what says who leads: the member's own
// word for it, whether it leads or follows. It counts as one that works in no reading until it works again. One whose
// disk is slow comes further in between.
func TestAVoterWhoseDiskHangsIsKnown(t *testing.T) {
	for name, leads := range map[string]bool{"the leader": true, "a follower": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ca, names := newAuthority(t), []string{"a", "b", "c"}
			cluster := etcdtest.Start(t, ca.certPEM, ca.keyPEM, names...)
			var endpoints []Endpoint
			for _, name := range names {
				endpoints = append(endpoints, Endpoint{Name: name, Dial: func(ctx context.Context, _, _ string) (net.Conn,
					error) {
					return cluster.Dial(ctx, name)
				}})
			}
			readAll := func() []Member {
				read, err := Client{}.Read(t.Context(), endpoints, credentialsOf(t, ca))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(read.Agreed).To(BeTrue())
				return read.Members
			}
			members := readAll()
			victim := members[slices.IndexFunc(members, func(m Member) bool { return m.Leader == leads })]
			read := func() Member {
				members := readAll()
				return members[slices.IndexFunc(members, func(m Member) bool { return m.ID == victim.ID })]
			}
			write := func() {
				for _, name := range names {
					if name != victim.Name {
						_ = cluster.Put(name)
					}
				}
			}

			quick := cluster.Disk(victim.Name, 2*time.Second)
			syncs := map[uint64]bool{}
			g.Eventually(func() map[uint64]bool {
				write()
				syncs[read().Syncs] = true
				return syncs
			}, 40*time.Second).Should(HaveLen(4), "a slow disk goes on")
			quick()

			cluster.Disk(victim.Name, time.Hour)
			g.Eventually(func() bool { write(); return read().Hangs }, 30*time.Second).Should(BeTrue())
			read() // what was on its way is done
			stands := read().Syncs
			g.Expect(stands).NotTo(BeZero())
			for range 4 {
				write()
				now := read()
				g.Expect(now.Hangs && !now.Answers).To(BeTrue(), now.Problem)
				g.Expect(now.Syncs).To(Equal(stands))
			}
		})
	}
}
