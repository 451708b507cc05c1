// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// machine is this machine behind a real SSH server, with plans started by setsid below a temporary directory. What would
// change the machine itself is left out.
func machine(t *testing.T, o sshtest.ServerOptions) *session {
	t.Helper()
	key := sshtest.NewKey()
	o.Authorized = key.PublicKey()
	// As if root, whoever runs the test.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "id"), []byte("#!/bin/sh\necho 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	o.Env = append(o.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	server, err := sshtest.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	// Other tests of this machine may run API servers.
	s := newSession(options{target: server.Target(key), force: true, skip: []string{"reset"}})
	dir := t.TempDir()
	s.runner = run.Runner{Root: filepath.Join(dir, "root"), Starter: sshtest.Setsid{Dir: dir}}
	s.store = owner.Store{Root: filepath.Join(dir, "root")}
	return s
}

// results of a run by check.
func results(report *Report) map[string]Outcome {
	all := map[string]Outcome{}
	for _, o := range report.Outcomes {
		all[o.Check] = o
	}
	return all
}

func TestAMachineThatDoesWhatIsNeeded(t *testing.T) {
	g := NewWithT(t)
	s := machine(t, sshtest.ServerOptions{})
	var out bytes.Buffer
	report := try(context.Background(), s, &out)
	for _, name := range []string{
		"host-key", "other-host-key", "root", "exit-code", "inspection", "unused", "upload", "sessions", "forwarding",
		"owner", "plan", "cut-connection", "resume", "once", "secrets", "nothing-left",
	} {
		g.Expect(results(report)[name].Result).To(Equal(OK), "%s: %s", name, results(report)[name].Detail)
	}
	g.Expect(results(report)["reset"].Result).To(Equal(Skip))
	g.Expect(out.String()).To(ContainSubstring(results(report)["host-key"].Detail), "the key is shown")
	g.Expect(s.runner.Root).NotTo(BeADirectory(), "what was put on the machine is gone")
}

func TestAMachineBehindAJumpHost(t *testing.T) {
	g := NewWithT(t)
	s := machine(t, sshtest.ServerOptions{})
	key := sshtest.NewKey()
	jump, err := sshtest.NewServer(sshtest.ServerOptions{User: "jump", Authorized: key.PublicKey()})
	g.Expect(err).NotTo(HaveOccurred())
	defer jump.Close()
	through := jump.Target(key)
	s.target.Bastion = &through
	s.skip = append(s.skip, "resume", "once", "secrets", "owner")
	var out bytes.Buffer
	report := try(context.Background(), s, &out)
	for _, name := range []string{"bastion", "host-key", "other-host-key", "cut-connection", "nothing-left"} {
		g.Expect(results(report)[name].Result).To(Equal(OK), "%s: %s", name, results(report)[name].Detail)
	}
}

func TestWhatIsWrongIsSaidWithAWayOut(t *testing.T) {
	for name, test := range map[string]struct {
		server  sshtest.ServerOptions
		spoil   func(*session)
		check   string
		want    string
		skipped string
	}{
		"forwarding is forbidden": {server: sshtest.ServerOptions{RefuseForwarding: true}, check: "forwarding", want: "AllowTcpForwarding"},
		"another host key": {
			spoil: func(s *session) { s.strict, s.target.HostKeys = true, []ssh.PublicKey{sshtest.NewKey().PublicKey()} },
			check: "host-key", want: "is pinned", skipped: "nothing-left",
		},
		"the key is refused": {
			spoil: func(s *session) { s.target.Signers = []ssh.Signer{sshtest.NewKey()} },
			check: "host-key", want: "authorized_keys", skipped: "root",
		},
		"another login shell": {
			server: sshtest.ServerOptions{Exec: func(_ string, _ io.Reader, stdout, _ io.Writer) int {
				_, _ = io.WriteString(stdout, "This account is not available.\n")
				return 1
			}},
			check: "root", want: "did not start /bin/sh", skipped: "plan",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := machine(t, test.server)
			if test.spoil != nil {
				test.spoil(s)
			}
			var out bytes.Buffer
			report := try(context.Background(), s, &out)
			outcome := results(report)[test.check]
			g.Expect(outcome.Result).To(Equal(Fail), out.String())
			g.Expect(outcome.Detail).To(ContainSubstring(test.want))
			if test.skipped != "" {
				g.Expect(results(report)[test.skipped].Result).To(Equal(Skip), out.String())
			}
			g.Expect(report.Passed()).To(BeFalse())
			g.Expect(report.Summary()).To(HavePrefix("This machine cannot serve"))
		})
	}
}

func TestAMachineInUseIsNotTouched(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		facts inspect.Facts
		used  string
	}{
		"nothing on it":       {facts: inspect.Facts{}},
		"released":            {facts: inspect.Facts{OwnerRecord: `{"namespace":"default","host":"host-1","machine":"","uid":"","generation":7}`}},
		"owned":               {facts: inspect.Facts{OwnerRecord: `{"namespace":"default","host":"host-1","machine":"demo","uid":"abc","generation":7}`}, used: "demo"},
		"owned by the unread": {facts: inspect.Facts{OwnerRecord: "{"}, used: "owner record"},
		"a node":              {facts: inspect.Facts{KubernetesPresent: []string{"process kubelet"}}, used: "process kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &session{facts: &test.facts}
			_, err := unused(ctx, s)
			if test.used == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(And(ContainSubstring(test.used), ContainSubstring("--force"))))
			s.force = true
			g.Expect(unused(ctx, s)).To(ContainSubstring("not reset"))
			_, err = resetAndVerify(ctx, s)
			g.Expect(err).To(BeAssignableToTypeOf(&skipped{}), "a reset would have destroyed it")
		})
	}
}

func TestAReportCanBeShownAndRead(t *testing.T) {
	g := NewWithT(t)
	report := newReport("root", testTime)
	report.fact("kernel", "6.1.0")
	report.fact("sudo", " ")
	report.Outcomes = []Outcome{{Check: "host-key", Result: OK, Detail: "SHA256:abc"}, {Check: "root", Result: Fail, Detail: "a|b\nc"}}
	dir := t.TempDir()
	g.Expect(report.Write(filepath.Join(dir, "report.json"))).To(Succeed())
	g.Expect(report.Write(filepath.Join(dir, "report.md"))).To(Succeed())

	var read Report
	g.Expect(json.Unmarshal(content(t, dir, "report.json"), &read)).To(Succeed())
	g.Expect(&read).To(Equal(report))
	g.Expect(string(content(t, dir, "report.md"))).To(And(
		ContainSubstring("# Host conformance, 2026-03-01"), ContainSubstring("| kernel | 6.1.0 |"), Not(ContainSubstring("sudo |")),
		ContainSubstring(`| root | FAIL | 0.0 s | a\|b<br>c |`), ContainSubstring("1 checks OK, 1 failed")))
}

func content(t *testing.T, elements ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestTheCommandLine(t *testing.T) {
	g := NewWithT(t)
	_, private := sshtest.NewKeyPair()
	key := filepath.Join(t.TempDir(), "key")
	g.Expect(os.WriteFile(key, private, 0o600)).To(Succeed())

	for address, want := range map[string]string{
		"root@10.0.0.1": "10.0.0.1:22", "root@10.0.0.1:2222": "10.0.0.1:2222", "root@fd00::1": "[fd00::1]:22", "root@[fd00::1]:2222": "[fd00::1]:2222",
	} {
		o, err := parseOptions([]string{"--host", address, "--key", key}, io.Discard)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(o.target.Endpoint()).To(Equal(want))
		g.Expect(o.target.User).To(Equal("root"))
	}
	for want, args := range map[string][]string{
		"give --host":         {"--key", key},
		"user@address":        {"--host", "10.0.0.1", "--key", key},
		"no such file":        {"--host", "root@10.0.0.1", "--key", key + ".no"},
		"no check \"reste\"":  {"--host", "root@10.0.0.1", "--key", key, "--skip", "reset,reste"},
		".md or .json":        {"--host", "root@10.0.0.1", "--key", key, "--output", "report.txt"},
		"not an SSH":          {"--host", "root@10.0.0.1", "--key", key, "--known-host-key", "ssh-ed25519 nonsense"},
		"unexpected argument": {"--host", "root@10.0.0.1", "--key", key, "more"},
	} {
		var stderr bytes.Buffer
		g.Expect(execute(context.Background(), args, io.Discard, &stderr)).To(Equal(2))
		g.Expect(stderr.String()).To(ContainSubstring(want))
	}
	var help bytes.Buffer
	g.Expect(execute(context.Background(), []string{"--help"}, io.Discard, &help)).To(Equal(0))
	g.Expect(help.String()).To(And(ContainSubstring("--force"), ContainSubstring("Nothing of Kubernetes is installed")))
}
