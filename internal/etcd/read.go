// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// quorumReadTimeout bounds what needs a quorum inside a reading; without one the member's own memory is read instead.
const quorumReadTimeout = 2 * time.Second

// Cluster is an etcd membership as its members tell it.
type Cluster struct {
	// Members by id.
	Members []Member
	// Agreed reports whether a quorum confirmed the list; else it is what one member remembers.
	Agreed bool
	// Corrupt are the ids of members that are not in the list, and for which an alarm CORRUPT is raised; 0 where etcd does
	// not know whose data are corrupt (checkPeerHashes in server/etcdserver/corrupt.go).
	Corrupt []uint64
}

// Member of an etcd cluster.
type Member struct {
	// ID of the member.
	ID uint64
	// Name is that of the member's node; empty while the member has not started.
	Name string
	// PeerAddresses are the IP addresses or names in the member's peer URLs.
	PeerAddresses []string
	// ReportedBy is the endpoint whose host has the member by its own word; empty when none said so.
	ReportedBy string
	// Learner does not vote.
	Learner bool
	// Leader of the cluster.
	Leader bool
	// Alarms that are raised for the member: NOSPACE, CORRUPT. NOSPACE also when it is raised for one that is not in the
	// list.
	Alarms []string
	// Answers reports whether the member itself was asked and sees a leader, and does not hang.
	Answers bool
	// Hangs: it is a voter that was reached, and completed no read through the quorum while another voter did. Syncs is
	// how often such a one has written to its disk, by its own count: as long as that grows, the disk is merely slow.
	Hangs bool
	Syncs uint64
	// Lag is how many entries of the log the member has not applied yet that the furthest member knows to be committed.
	// Size is that of its database file in bytes, Version that of its etcd. Of a member that was not reached they are
	// zero.
	Lag     uint64
	Size    int64
	Version string
	// Connected: its host is not known here, and a member that answers is connected with it. Unasked: nobody could tell,
	// or its own host led to nothing of etcd, and a member that answers is connected with it.
	Connected, Unasked bool
	// Problem says why Answers and Connected are false, as far as somebody was asked.
	Problem string
}

// Started reports whether the member has run: etcd learns an added member's name only from itself.
func (m Member) Started() bool { return m.Name != "" }

// answer is what one member said.
type answer struct {
	endpoint string
	status   *pb.StatusResponse
	// cluster is the id of the cluster that the list of members is of.
	cluster uint64
	members []*pb.Member
	alarms  []*pb.AlarmMember
	agreed  bool
	err     error
	// syncs is how often the member has written to its disk, as far as it was asked.
	syncs uint64
}

// hangs reports whether a member was reached and did not answer through the quorum. Whose database hangs does not even
// tell its status.
func (a *answer) hangs() bool {
	return a != nil && !a.agreed && (a.status != nil || a.syncs > 0)
}

// stragglers is how long the others are waited for once one has told what a quorum agrees on: a member that starts, or
// whose host hangs, would else cost each reading its whole time. One that is late counts as one that did not answer
// this time. It is longer than quorumReadTimeout, so that a voter that hangs has always said so before.
const stragglers = quorumReadTimeout + time.Second

// hesitation is after how long one that did not answer is asked for the little that needs neither its log nor its
// database.
const hesitation = time.Second

// ErrContradiction is what a reading ends with when one member speaks for a quorum, and another one speaks for a quorum
// of other members, or remembers others and knows more of etcd's log than the first. One of them is of another etcd: it
// began anew without its data, or is from before a recovery. Which one is not known here, and by the list of the wrong
// one members would be given up that hold the data.
var ErrContradiction = errors.New("etcd contradicts itself")

// Read asks all endpoints at once and puts their answers together. It takes at most ReadTimeout, and fails when no
// endpoint told a list of members. When members contradict each other it asks again, for as long, because one may have
// come or gone between two answers; it fails with ErrContradiction when they still do. Of members without an endpoint
// the others are asked, for a short while more.
func (Client) Read(ctx context.Context, endpoints []Endpoint, credentials Credentials) (Cluster, error) {
	answers := askAll(ctx, endpoints, credentials)
	if contradiction(answers) != nil {
		answers = askAll(ctx, endpoints, credentials)
	}
	if err := contradiction(answers); err != nil {
		return Cluster{}, err
	}
	cluster, err := combine(answers)
	if err == nil {
		cluster.askPeers(ctx, endpoints, credentials, answers)
		cluster.shareNoSpace(answers)
		cluster.Corrupt = cluster.outlived(answers, pb.AlarmType_CORRUPT)
	}
	return cluster, err
}

// shareNoSpace gives an alarm NOSPACE that is raised for no listed member to each voter that works. An alarm outlives
// its member: neither a removal nor a restore takes it off, and a restore leaves the others under new ids. As long as
// there is one etcd takes no writes of keys, whosever it is (etcdserver/apply/uber_applier.go, restoreAlarms). A voter
// that does not work is left as it is, because its silence is to be seen and counted.
//
// An alarm CORRUPT is not shared, though etcd then takes no writes either. The data of those in the list may be whole,
// and by it they would count as dead and give no snapshot.
func (c *Cluster) shareNoSpace(answers []answer) {
	if len(c.outlived(answers, pb.AlarmType_NOSPACE)) == 0 {
		return
	}
	noSpace := pb.AlarmType_NOSPACE.String()
	for i := range c.Members {
		member := &c.Members[i]
		works := member.Answers || member.Connected
		if works && !member.Learner && !slices.Contains(member.Alarms, noSpace) {
			member.Alarms = append(member.Alarms, noSpace)
		}
	}
}

// outlived are the ids of members that are not in the list, and for which such an alarm is raised.
func (c *Cluster) outlived(answers []answer, kind pb.AlarmType) []uint64 {
	var gone []uint64
	for _, said := range answers {
		for _, alarm := range said.alarms {
			if alarm.Alarm == kind && !slices.ContainsFunc(c.Members, func(m Member) bool { return m.ID == alarm.MemberID }) {
				gone = append(gone, alarm.MemberID)
			}
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

func askAll(ctx context.Context, endpoints []Endpoint, credentials Credentials) []answer {
	ctx, cancel := context.WithTimeout(ctx, ReadTimeout)
	defer cancel()
	type numbered struct {
		number int
		answer answer
	}
	// Room for all: who is not waited for any more must not hang.
	arriving := make(chan numbered, len(endpoints))
	answers := make([]answer, len(endpoints))
	for i, endpoint := range endpoints {
		answers[i] = answer{endpoint: endpoint.Name, err: fmt.Errorf("node %s: %w", endpoint.Name, errLate)}
		go func() { arriving <- numbered{i, ask(ctx, endpoint, credentials)} }()
	}
	var late, hesitates <-chan time.Time
	counts, answered, awaited := make(chan numbered, len(endpoints)), make([]bool, len(endpoints)), len(endpoints)
	for awaited > 0 {
		select {
		case one := <-arriving:
			one.answer.syncs = answers[one.number].syncs
			answers[one.number], answered[one.number] = one.answer, true
			awaited--
			if one.answer.agreed && late == nil {
				late, hesitates = time.After(stragglers), time.After(hesitation)
			}
		case <-hesitates:
			for i, endpoint := range endpoints {
				if !answered[i] {
					awaited++
					go func() { counts <- numbered{i, answer{syncs: syncsOf(ctx, endpoint, credentials)}} }()
				}
			}
		case one := <-counts:
			answers[one.number].syncs = one.answer.syncs
			awaited--
		case <-late:
			return answers
		}
	}
	return answers
}

// contradiction is an error when an answer comes from a quorum, and another one that tells other members does, too, or
// is ahead of it: a member that was removed, or that is cut off, is never ahead of the quorum.
func contradiction(answers []answer) error {
	at := slices.IndexFunc(answers, func(said answer) bool { return said.agreed })
	if at < 0 {
		return nil
	}
	first := &answers[at]
	for i := range answers {
		said := &answers[i]
		if said.members == nil || said.cluster == first.cluster && slices.Equal(said.ids(), first.ids()) {
			continue
		}
		other := "for one"
		if !said.agreed {
			if said.status.GetRaftIndex() <= first.status.GetRaftIndex() {
				continue
			}
			other = "knows more and remembers one"
		}
		return fmt.Errorf(
			"%w: node %s speaks for a quorum of %s (%s), and node %s %s of %s (%s). One of them lost its data and "+
				"began anew, or is from before a recovery: stop etcd there, by moving /etc/kubernetes/manifests/etcd.yaml out of "+
				"that directory",
			ErrContradiction, first.endpoint, first.names(), first.log(), said.endpoint, other, said.names(), said.log())
	}
	return nil
}

func (a *answer) ids() []uint64 {
	var ids []uint64
	for _, member := range a.members {
		ids = append(ids, member.ID)
	}
	slices.Sort(ids)
	return ids
}

func (a *answer) names() string {
	var names []string
	for _, member := range a.members {
		names = append(names, cmp.Or(member.Name, fmt.Sprintf("%x", member.ID)))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// log says what the member has seen, so that a person may know which one is wrong: one that began anew has seen little,
// and so has one that was made from a snapshot. It is rounded, because what a condition says must not change with every
// look.
func (a *answer) log() string {
	unit := uint64(1)
	for a.status.GetRaftIndex()/unit >= 10 {
		unit *= 10
	}
	return fmt.Sprintf("term %d, at least %d entries", a.status.GetRaftTerm(), a.status.GetRaftIndex()/unit*unit)
}

// errLate is what is known of a member that others did not wait for.
var errLate = fmt.Errorf("no answer %s after the others", stragglers)

func ask(ctx context.Context, endpoint Endpoint, credentials Credentials) answer {
	result := answer{endpoint: endpoint.Name}
	client, err := connect(ctx, endpoint, credentials)
	if err == nil {
		defer func() { _ = client.Close() }()
		result.status, err = memberStatus(ctx, client)
	}
	if err != nil {
		result.err = fmt.Errorf("node %s: %w", endpoint.Name, err)
		return result
	}
	quorum, cancel := context.WithTimeout(ctx, quorumReadTimeout)
	defer cancel()
	if list, err := client.MemberList(quorum); err == nil {
		result.cluster, result.members, result.agreed = list.Header.GetClusterId(), list.Members, true
		if alarms, err := client.AlarmList(quorum); err == nil {
			result.alarms = alarms.Alarms
		}
		return result
	}
	// Learners refuse quorum reads, and without a quorum nobody answers them.
	list, err := client.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		result.err = fmt.Errorf("node %s: listing members: %w", endpoint.Name, err)
		return result
	}
	result.cluster, result.members = list.Header.GetClusterId(), list.Members
	return result
}

func combine(answers []answer) (Cluster, error) {
	var (
		best     *answer
		failures []error
		byID     = map[uint64]*answer{}
		byName   = map[string]*answer{}
		furthest uint64
	)
	for i := range answers {
		said := &answers[i]
		byName[said.endpoint] = said
		if said.err != nil {
			failures = append(failures, said.err)
		}
		if said.status != nil && said.status.Header != nil {
			byID[said.status.Header.MemberId] = said
			furthest = max(furthest, said.status.RaftIndex)
		}
		if said.members != nil && (best == nil || said.agreed && !best.agreed) {
			best = said
		}
	}
	if best == nil {
		if len(failures) == 0 {
			return Cluster{}, errors.New("no host of an etcd member is known")
		}
		return Cluster{}, fmt.Errorf("no etcd member answered: %w", errors.Join(failures...))
	}
	cluster := Cluster{Agreed: best.agreed}
	for _, listed := range best.members {
		member := best.member(listed, byID[listed.ID], byName[listed.Name], furthest)
		cluster.Members = append(cluster.Members, member)
	}
	slices.SortFunc(cluster.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return cluster, nil
}

// member is what the answer lists, with what that member said of itself, which may be nothing, and what its host
// answered. furthest is the newest entry of the log that anybody knows.
func (a *answer) member(listed *pb.Member, said, asked *answer, furthest uint64) Member {
	member := Member{
		ID: listed.ID, Name: listed.Name, Learner: listed.IsLearner,
		Leader:        a.status != nil && a.status.Leader != 0 && listed.ID == a.status.Leader,
		PeerAddresses: hostsOf(listed.PeerURLs),
	}
	for _, alarm := range a.alarms {
		if alarm.MemberID == listed.ID && alarm.Alarm != pb.AlarmType_NONE {
			member.Alarms = append(member.Alarms, alarm.Alarm.String())
		}
	}
	if said != nil {
		member.ReportedBy, member.Size, member.Version = said.endpoint, said.status.DbSize, said.status.Version
		member.Lag = furthest - min(furthest, said.status.RaftAppliedIndex)
		asked = said
	}
	switch {
	case said != nil && said.status.Leader == 0:
		member.Problem = "it sees no leader"
	case a.agreed && !member.Learner && asked.hangs():
		member.Hangs, member.Syncs = true, asked.syncs
		member.Problem = "it completes no read through the quorum, though others do: look at its disk"
	case said != nil:
		member.Answers = true
	case asked != nil && asked.err != nil:
		member.Problem = asked.err.Error()
	}
	return member
}

func hostsOf(urls []string) []string {
	var hosts []string
	for _, raw := range urls {
		parsed, err := url.Parse(raw)
		if err != nil {
			continue
		}
		host := parsed.Hostname()
		if ip := net.ParseIP(host); ip != nil {
			host = ip.String()
		}
		hosts = append(hosts, host)
	}
	return hosts
}
