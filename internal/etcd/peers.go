// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
)

// maxMetrics bounds in bytes what is read of a member's metrics; a large cluster has less than 1 MiB.
const maxMetrics = 16 << 20

// activePeer is the metric by which a member tells whether it is connected with another (rafthttp/metrics.go): 1 while
// messages go through, and 0 once they do not, or within five seconds of the last sign of life.
var activePeer = regexp.MustCompile(`^etcd_network_active_peers\{Local="[0-9a-f]+",Remote="([0-9a-f]+)"\} ([0-9]+)$`)

// askPeers says of members whose hosts are not known here whether another one is connected with them. Those are never
// asked themselves: nobody knows whether their addresses can be reached from here, while no vote counts that other
// members do not hear. A member whose host is known, and leads to nothing of etcd, may work as well: its sshd may
// forward nothing any more. Whether it does nobody can tell as long as another one is connected with it.
func (c *Cluster) askPeers(ctx context.Context, endpoints []Endpoint, credentials Credentials, answers []answer) {
	known, asked := map[string]*answer{}, map[uint64]bool{}
	var answering []Endpoint
	for i, endpoint := range endpoints {
		known[endpoint.Name] = &answers[i]
		if status := answers[i].status; status.GetLeader() != 0 {
			answering = append(answering, endpoint)
			asked[status.GetHeader().GetMemberId()] = true
		}
	}
	var unknown, unreached []*Member
	for i := range c.Members {
		switch member := &c.Members[i]; {
		case !member.Started() || member.Answers:
		case known[member.Name] == nil:
			unknown = append(unknown, member)
		case c.Agreed && known[member.Name].status == nil && known[member.Name].syncs == 0:
			unreached = append(unreached, member)
		}
	}
	if len(unknown)+len(unreached) == 0 {
		return
	}
	heard, err := peersOf(ctx, answering, credentials)
	if err == nil && !c.plausible(heard, len(answering)) {
		err = errors.New("the metrics of the members do not tell which others they are connected with")
	}
	if err == nil {
		err = c.whollyAsked(heard, asked)
	}
	for _, member := range unreached {
		if heard[member.ID] {
			member.Unasked = true
			member.Problem = "other members are connected with it, but it could not be asked: " + member.Problem
		}
	}
	for _, member := range unknown {
		switch {
		case heard[member.ID]:
			member.Connected = true
		case err != nil:
			member.Unasked, member.Problem = true, err.Error()
		default:
			member.Problem = "no other member is connected with it"
		}
	}
}

// plausible reports whether the metrics can be what they are taken for: members that answer hear each other, and who
// speaks for a quorum hears one. An etcd that counted its connections in another way would else make every member look
// dead.
func (c *Cluster) plausible(heard map[uint64]bool, answering int) bool {
	voters, living := 0, 0
	for _, member := range c.Members {
		if member.Answers && answering > 1 && !heard[member.ID] {
			return false
		}
		if !member.Learner {
			voters++
			if member.Answers || heard[member.ID] {
				living++
			}
		}
	}
	return !c.Agreed || living > voters/2
}

// whollyAsked says which voter lives and was not asked with whom it is connected: a member that nobody else hears may
// vote through it.
func (c *Cluster) whollyAsked(heard, asked map[uint64]bool) error {
	for _, member := range c.Members {
		if !member.Learner && heard[member.ID] && !asked[member.ID] {
			return fmt.Errorf("no member that was asked is connected with it, but member %x (%s) votes and could not be asked",
				member.ID, member.Name)
		}
	}
	return nil
}

// peersOf are the members that one of the endpoints at least is connected with. Of those that are not among them
// nothing is known when there is an error: one that could not be asked might be connected with them.
func peersOf(ctx context.Context, endpoints []Endpoint, credentials Credentials) (map[uint64]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, quorumReadTimeout)
	defer cancel()
	var (
		mu      sync.Mutex
		reading sync.WaitGroup
		heard   = map[uint64]bool{}
		failure error
	)
	if len(endpoints) == 0 {
		failure = errors.New("no member answers that could tell whether it is connected")
	}
	for _, endpoint := range endpoints {
		reading.Go(func() {
			peers, err := activePeers(ctx, endpoint, credentials)
			mu.Lock()
			defer mu.Unlock()
			for id, active := range peers {
				heard[id] = heard[id] || active
			}
			if err != nil {
				failure = fmt.Errorf("node %s did not tell whether it is connected: %w", endpoint.Name, err)
			}
		})
	}
	reading.Wait()
	return heard, failure
}

// activePeers reads from a member's metrics which others it is connected with.
func activePeers(ctx context.Context, endpoint Endpoint, credentials Credentials) (map[uint64]bool, error) {
	metrics, err := metricsOf(ctx, endpoint, credentials)
	if err != nil {
		return nil, err
	}
	defer func() { _ = metrics.Close() }()
	return parsePeers(io.LimitReader(metrics, maxMetrics))
}

// syncCount are the metrics by which a member counts what it has written to its log and to its database.
var syncCount = regexp.MustCompile(`^etcd_disk_(?:wal_fsync|backend_commit)_duration_seconds_count ([0-9]+)$`)

// syncsOf is how often a member has written to its disk; zero when it does not say.
func syncsOf(ctx context.Context, endpoint Endpoint, credentials Credentials) (syncs uint64) {
	metrics, err := metricsOf(ctx, endpoint, credentials)
	if err != nil {
		return 0
	}
	defer func() { _ = metrics.Close() }()
	for lines := bufio.NewScanner(io.LimitReader(metrics, maxMetrics)); lines.Scan(); {
		if match := syncCount.FindStringSubmatch(lines.Text()); match != nil {
			count, _ := strconv.ParseUint(match[1], 10, 64)
			syncs += count
		}
	}
	return syncs
}

// metricsOf a member, which it serves beside everything else.
func metricsOf(ctx context.Context, endpoint Endpoint, credentials Credentials) (io.ReadCloser, error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: credentials.forServer(endpoint.Name),
		MaxResponseHeaderBytes: 64 << 10,
		// The transport's own context does not end with the request, so a dial to a host that hangs would stay.
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return endpoint.Dial(ctx, "tcp", ClientAddress)
		}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+ClientAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("reading its metrics: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, fmt.Errorf("reading its metrics: the HTTP status is %d", response.StatusCode)
	}
	return response.Body, nil
}

func parsePeers(metrics io.Reader) (map[uint64]bool, error) {
	peers := map[uint64]bool{}
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		match := activePeer.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		id, err := strconv.ParseUint(match[1], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("reading its metrics: %w", err)
		}
		peers[id] = match[2] != "0"
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading its metrics: %w", err)
	}
	return peers, nil
}
