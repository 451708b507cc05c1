// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
)

// A sync that fails is how a disk says that it lost what it took.
func TestAStepThatCannotBeJournaledDoesNotBegin(t *testing.T) {
	g := NewWithT(t)
	l := newLab(t)
	stubs := t.TempDir()
	broken := filepath.Join(stubs, "broken")
	found, err := exec.LookPath("sync")
	g.Expect(err).NotTo(HaveOccurred())
	stub := "#!/bin/sh\n[ -e '" + broken + "' ] && case $* in */journal*) exit 1;; esac\nexec " + found + " \"$@\"\n"
	g.Expect(os.WriteFile(filepath.Join(stubs, "sync"), []byte(stub), 0o755)).To(Succeed())
	l.host.Env = []string{"PATH=" + stubs + ":" + os.Getenv("PATH")}
	plan := run.Plan{ID: "p", Steps: []run.Step{
		{Name: "first", Script: `touch '` + broken + `'`},
		{Name: "kubeadm-init", Once: true, Script: `echo x >>"$QUOIN_ROOT/once"`},
	}}
	l.start(plan)
	l.wait("p", func(s run.Status) bool { return s.Lost && s.Phase == run.Running })
	g.Expect(l.lines("once")).To(BeEmpty())
	l.start(plan)
	time.Sleep(100 * time.Millisecond)
	g.Expect(l.lines("once")).To(BeEmpty())

	g.Expect(os.Remove(broken)).To(Succeed())
	plan.Steps[0].Script = "true"
	l.start(plan)
	l.wait("p", final)
	g.Expect(len(l.lines("once"))).To(BeNumerically("<=", 1))
}

// A journal that cannot be read is not one without the line that is asked for: what runs once would run again.
func TestAJournalThatCannotBeReadBeginsNothing(t *testing.T) {
	for name, failure := range map[string]string{
		"awk fails":                     "exit 2",
		"awk says what it says of none": "exit 1",
		"awk is killed":                 "kill -KILL $$",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLab(t)
			plan := onceUntilGo(l, "p")
			l.start(plan)
			l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
			l.kill("p")
			l.wait("p", func(s run.Status) bool { return s.Lost })

			stubs := t.TempDir()
			broken := filepath.Join(stubs, "broken")
			found, err := exec.LookPath("awk")
			g.Expect(err).NotTo(HaveOccurred())
			stub := "#!/bin/sh\n[ -e '" + broken + "' ] && " + failure + "\nexec " + found + " \"$@\"\n"
			g.Expect(os.WriteFile(filepath.Join(stubs, "awk"), []byte(stub), 0o755)).To(Succeed())
			g.Expect(os.WriteFile(broken, nil, 0o600)).To(Succeed())
			l.host.Env = []string{"PATH=" + stubs + ":" + os.Getenv("PATH")}
			journal := filepath.Join("runs", "p", "journal")
			before := l.lines(journal)
			l.start(plan)
			time.Sleep(200 * time.Millisecond)
			g.Expect(l.lines(journal)).To(Equal(before))
			g.Expect(l.lines("once")).To(HaveLen(1))

			g.Expect(os.Remove(broken)).To(Succeed())
			l.start(plan)
			g.Expect(l.wait("p", final).Phase).To(Equal(run.Interrupted))
			g.Expect(l.lines("once")).To(HaveLen(1))
		})
	}
}

func TestAnEmptyResultIsNone(t *testing.T) {
	for name, end := range map[string]func(*lab, run.Plan){
		"start": func(l *lab, plan run.Plan) { l.start(plan) },
		"stop": func(l *lab, _ run.Plan) {
			if err := l.runner.Stop(t.Context(), l.host, "p"); err != nil {
				l.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := newLab(t)
			plan := onceUntilGo(l, "p")
			l.start(plan)
			l.wait("p", func(run.Status) bool { return len(l.lines("once")) == 1 })
			l.kill("p")
			l.write(filepath.Join(l.root, "runs", "p", "result"), "")
			l.wait("p", func(s run.Status) bool { return s.Lost })
			end(l, plan)
			g.Expect(l.wait("p", final).Phase).To(Equal(run.Interrupted))
			g.Expect(l.lines("once")).To(HaveLen(1))
		})
	}
}

// The real thing: a file system without a free block, in a mount namespace of its own.
func TestAFullDiskBeginsNothing(t *testing.T) {
	if os.Getuid() != 0 || exec.Command("unshare", "--mount", "true").Run() != nil {
		t.Skip("needs root and the right to make namespaces")
	}
	g := NewWithT(t)
	dir := t.TempDir()
	runner, err := os.ReadFile("runner.sh")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "runner.sh"), runner, 0o600)).To(Succeed())
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "/bin/sh")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(`set -eu
mkdir full
echo boot-1 >boot
mount -t tmpfs -o size=64k none full
mkdir full/scripts full/log
: >full/prelude.sh
: >full/complete
echo 'once 1 0 60' >full/steps
echo "echo x >>$PWD/once" >full/scripts/once
: >full/journal
sync
dd if=/dev/zero of=full/fill bs=4k 2>/dev/null || :
code=0
/bin/sh ./runner.sh "$PWD" "$PWD/full" ./boot run 2>/dev/null || code=$?
echo "code=$code begun=$(cat once 2>/dev/null)"
rm full/fill
/bin/sh ./runner.sh "$PWD" "$PWD/full" ./boot run
echo "begun=$(cat once) result=$(cat full/result)"
`)
	out, err := cmd.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
	g.Expect(string(out)).To(Equal("code=1 begun=\nbegun=x result=succeeded\n"))
}
