// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// told is what the member of an endpoint said of itself, without a list.
func told(endpoint string, id, leader, index, applied uint64) answer {
	return answer{endpoint: endpoint, status: &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: id}, Leader: leader,
		RaftIndex: index, RaftAppliedIndex: applied, DbSize: int64(id), Version: "3.6"}} //nolint:gosec // a few
}

func listed(of answer, agreed bool, members ...*pb.Member) answer {
	of.agreed, of.members = agreed, members
	return of
}

// The list is that of a quorum if there is one; what each member is comes from itself, or else from its host.
func TestAnswersAreCombined(t *testing.T) {
	g := NewWithT(t)
	a, b, c := &pb.Member{ID: 1, Name: "a"}, &pb.Member{ID: 2, Name: "b"}, &pb.Member{ID: 3, Name: "c", IsLearner: true}
	noted := listed(told("a", 1, 2, 90, 90), true, c, b, a)
	noted.alarms = []*pb.AlarmMember{{MemberID: 1, Alarm: pb.AlarmType_NONE}, {MemberID: 1, Alarm: pb.AlarmType_CORRUPT},
		{MemberID: 2, Alarm: pb.AlarmType_NOSPACE}}
	late := listed(told("b", 2, 2, 100, 95), true, b)
	read, err := combine([]answer{listed(told("c", 3, 2, 100, 100), false, c), noted, late})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read).To(Equal(Cluster{Agreed: true, Members: []Member{
		{ID: 1, Name: "a", ReportedBy: "a", Answers: true, Lag: 10, Size: 1, Version: "3.6", Alarms: []string{"CORRUPT"}},
		{ID: 2, Name: "b", ReportedBy: "b", Answers: true, Lag: 5, Size: 2, Version: "3.6", Leader: true,
			Alarms: []string{"NOSPACE"}},
		{ID: 3, Name: "c", ReportedBy: "c", Answers: true, Size: 3, Version: "3.6", Learner: true}}}),
		"the first list of a quorum, and a learner reads nothing through it without hanging")

	// Without a quorum nobody hangs, and who sees no leader does not answer. One may apply more than it told of its log.
	read, err = combine([]answer{listed(told("a", 1, 0, 9, 9), false, a, b), told("b", 2, 1, 9, 10),
		{endpoint: "c", err: errors.New("off")}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read).To(Equal(Cluster{Members: []Member{
		{ID: 1, Name: "a", ReportedBy: "a", Size: 1, Version: "3.6", Problem: "it sees no leader"},
		{ID: 2, Name: "b", ReportedBy: "b", Size: 2, Version: "3.6", Answers: true}}}))

	// One whose database hangs does not tell its status, and its host says how far its disk has come. One that others do
	// not know by name says itself which one it is.
	const disk = "it completes no read through the quorum, though others do: look at its disk"
	hangs, mute := told("b", 2, 1, 9, 9), answer{endpoint: "d", syncs: 1, err: errors.New("late")}
	hangs.syncs = 4
	read, err = combine([]answer{listed(told("a", 1, 1, 9, 9), true, a, b, c, &pb.Member{ID: 4, Name: "d"},
		&pb.Member{ID: 5, Name: "e"}, &pb.Member{ID: 6}), hangs, {endpoint: "c", err: errors.New("off")}, mute,
		told("f", 6, 1, 9, 9)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Members[1]).To(Equal(Member{ID: 2, Name: "b", ReportedBy: "b", Size: 2, Version: "3.6", Hangs: true,
		Syncs: 4, Problem: disk}))
	g.Expect(read.Members[2:]).To(Equal([]Member{{ID: 3, Name: "c", Learner: true, Problem: "off"},
		{ID: 4, Name: "d", Hangs: true, Syncs: 1, Problem: disk}, {ID: 5, Name: "e"},
		{ID: 6, ReportedBy: "f", Size: 6, Version: "3.6", Hangs: true, Problem: disk}}))

	_, err = combine(nil)
	g.Expect(err).To(MatchError("no host of an etcd member is known"))
	_, err = combine([]answer{{status: &pb.StatusResponse{}}, {err: errors.New("off")}, {err: errors.New("late")}})
	g.Expect(err).To(MatchError("no etcd member answered: off\nlate"))
}

// The alarm NOSPACE of a member that is gone keeps etcd from writing all the same, so those have it that are there.
func TestNoSpaceOutlivesItsMember(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.members = cluster.members[:2]
	endpoints := []Endpoint{start(t, ca, cluster, 1, "a", "a"), start(t, ca, cluster, 2, "b", "b")}
	alarms := func(raised ...*pb.AlarmMember) map[string][]string {
		cluster.mu.Lock()
		cluster.alarms = raised
		cluster.mu.Unlock()
		read, err := Client{}.Read(t.Context(), endpoints, credentialsOf(t, ca))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(read.Members).To(HaveLen(2))
		return map[string][]string{"a": read.Members[0].Alarms, "b": read.Members[1].Alarms}
	}
	const full, corrupt = pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT
	g.Expect(alarms(&pb.AlarmMember{MemberID: 3, Alarm: full})).
		To(Equal(map[string][]string{"a": {"NOSPACE"}, "b": {"NOSPACE"}}))
	g.Expect(alarms(&pb.AlarmMember{MemberID: 3, Alarm: full}, &pb.AlarmMember{MemberID: 2, Alarm: corrupt},
		&pb.AlarmMember{MemberID: 1, Alarm: full})).
		To(Equal(map[string][]string{"a": {"NOSPACE"}, "b": {"CORRUPT", "NOSPACE"}}))
	g.Expect(alarms(&pb.AlarmMember{MemberID: 1, Alarm: full})).To(Equal(map[string][]string{"a": {"NOSPACE"}, "b": nil}),
		"one that is there has its own")
	g.Expect(alarms(&pb.AlarmMember{MemberID: 3, Alarm: corrupt}, &pb.AlarmMember{})).
		To(Equal(map[string][]string{"a": nil, "b": nil}), "they would count as dead")
}

// An alarm CORRUPT of a member that is gone is that of nobody who is there, and is seen all the same.
func TestCorruptOutlivesItsMember(t *testing.T) {
	g := NewWithT(t)
	ca, cluster := newAuthority(t), three()
	cluster.members = cluster.members[:2]
	const full, corrupt = pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT
	cluster.alarms = []*pb.AlarmMember{{MemberID: 2, Alarm: corrupt}, {MemberID: 9, Alarm: corrupt},
		{MemberID: 3, Alarm: corrupt}, {MemberID: 4, Alarm: full}, {MemberID: 5}, {Alarm: corrupt}}
	endpoints := []Endpoint{start(t, ca, cluster, 1, "a", "a"), start(t, ca, cluster, 2, "b", "b")}
	read, err := Client{}.Read(t.Context(), endpoints, credentialsOf(t, ca))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Corrupt).To(Equal([]uint64{0, 3, 9}))
	g.Expect(read.Members[0].Alarms).To(Equal([]string{"NOSPACE"}))
	g.Expect(read.Members[1].Alarms).To(Equal([]string{"CORRUPT", "NOSPACE"}))
}

// Of those that are there a voter that does not work stays one that is silent, and a learner votes on nothing.
func TestNoSpaceIsSharedByVotersThatWork(t *testing.T) {
	g := NewWithT(t)
	cluster := Cluster{Agreed: true, Members: []Member{{ID: 1, Answers: true}, {ID: 2, Connected: true}, {ID: 3},
		{ID: 4, Hangs: true}, {ID: 5, Unasked: true}, {ID: 6, Answers: true, Learner: true}}}
	cluster.shareNoSpace([]answer{{}, {alarms: []*pb.AlarmMember{{MemberID: 7, Alarm: pb.AlarmType_NOSPACE}}}})
	full := map[uint64]bool{}
	for _, member := range cluster.Members {
		full[member.ID] = len(member.Alarms) > 0
	}
	g.Expect(full).To(Equal(map[uint64]bool{1: true, 2: true, 3: false, 4: false, 5: false, 6: false}))
}

// What a contradiction says is the same in each look, and enough for a person to know which one is wrong.
func TestAContradictionSaysWhoSpeaksForWhom(t *testing.T) {
	g := NewWithT(t)
	few := listed(told("a", 1, 1, 9, 9), true, &pb.Member{ID: 0xab})
	many := listed(told("b", 2, 2, 129, 9), true, &pb.Member{ID: 3, Name: "c"}, &pb.Member{ID: 2, Name: "b"})
	many.status.RaftTerm = 4
	g.Expect(contradiction([]answer{few, many})).To(MatchError(And(HavePrefix("etcd contradicts itself: node a speaks "+
		"for a quorum of ab (term 0, at least 9 entries), and node b for one of b, c (term 4, at least 100 entries). One"),
		HaveSuffix("by moving /etc/kubernetes/manifests/etcd.yaml out of that directory"))))
	many.agreed = false
	g.Expect(contradiction([]answer{few, many})).To(MatchError(ContainSubstring(
		"and node b knows more and remembers one of b, c")))
	many.status.RaftIndex = 9
	g.Expect(contradiction([]answer{few, many})).To(Succeed(), "it is not ahead")
	for index, says := range map[uint64]string{0: "0", 10: "10", 11: "10", 99: "90", 100: "100"} {
		g.Expect((&answer{status: &pb.StatusResponse{RaftIndex: index}}).log()).To(
			Equal("term 0, at least " + says + " entries"))
	}
}

func TestHostsOf(t *testing.T) {
	NewWithT(t).Expect(hostsOf([]string{"https://10.0.0.1:2380", "https://%zz", "https://[fd00:0::2]:2380",
		"https://a:1"})).To(Equal([]string{"10.0.0.1", "fd00::2", "a"}))
}
