// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// etcdutl makes a member's data directory of the database of another one: etcd's own code, with the directories on this machine that go
// with those of the manifest.
func (c *ControlPlane) etcdutl(ctx context.Context, p *machine.Process) int {
	flags := flagsOf(p.Args)
	from, ok := strings.CutSuffix(strings.Join(p.Args[min(3, len(p.Args)):min(4, len(p.Args))], ""), "/member/snap/db")
	member := c.Etcd(p.Machine)
	if len(p.Args) < 4 || p.Args[1] != "snapshot" || p.Args[2] != "restore" || !ok || member == nil {
		return p.Fail("simulated: only snapshot restore <data directory>/member/snap/db is known")
	}
	id, err := p.ReadFile(from + dataMark)
	if err != nil {
		return p.Fail("%v", err)
	}
	if !member.ended(ctx) {
		return p.Fail("simulated: etcd works on the data")
	}
	bump, _ := strconv.ParseUint(flags["bump-revision"], 10, 64)
	to, made := flags["data-dir"], member.dataID()
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:  c.scratch("etcd-data", strings.TrimSpace(string(id)), "member", "snap", "db"),
		OutputDataDir: c.scratch("etcd-data", made), Name: flags["name"], InitialCluster: flags["initial-cluster"],
		PeerURLs: strings.Split(flags["initial-advertise-peer-urls"], ","), InitialClusterToken: flags["initial-cluster-token"],
		SkipHashCheck: flags["skip-hash-check"] == "true", RevisionBump: bump, MarkCompacted: flags["mark-compacted"] == "true",
	}); err != nil {
		return p.Fail("%v", err)
	}
	for _, sub := range []string{"/member/snap", "/member/wal"} {
		if err := p.MkdirAll(to+sub, fs.FileMode(0o700)); err != nil {
			return p.Fail("%v", err)
		}
	}
	if err := p.WriteFile(to+dataMark, []byte(made+"\n"), 0o600); err != nil {
		return p.Fail("%v", err)
	}
	return 0
}

// ended waits for the end of a process that takes its leave, of which the simulated machine does not know any more.
func (m *Member) ended(ctx context.Context) bool {
	m.mu.Lock()
	process, done := m.process, m.done
	m.mu.Unlock()
	if process == nil {
		return true
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-time.After(grace):
	}
	return false
}
