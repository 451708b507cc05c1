// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// tree lists what is below a directory, with the size and the time of each file but the locks.
func tree(t *testing.T, root string) string {
	t.Helper()
	list := ""
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path == root || filepath.Ext(path) == ".lock" {
			return err
		}
		info, err := entry.Info()
		list += fmt.Sprintln(path, info.Size(), info.ModTime().UnixNano())
		return err
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return list
}

// Whatever a management cluster had decided before another one took over, and sends after that, changes nothing.
func TestLateCommandsOfALowerGenerationChangeNothing(t *testing.T) {
	g := NewWithT(t)
	host, dir := &sshtest.Local{}, t.TempDir()
	root := filepath.Join(dir, "quoin")
	store := owner.Store{Root: root}
	starter := sshtest.Setsid{Dir: dir}
	of := func(guard owner.Guard) run.Runner {
		return run.Runner{Root: root, Starter: starter, Guard: guard.Script()}
	}
	plan := func(id, script string) run.Plan {
		return run.Plan{ID: id, Steps: []run.Step{{Name: "step", Script: script}}}
	}
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	late, err := store.Guard(ctx, host, record("a", 3))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(of(late).Start(ctx, host, plan("long", "touch "+filepath.Join(dir, "begun")+"; sleep 600"))).
		To(Succeed(), "while it is the newest")
	t.Cleanup(func() { _ = run.Runner{Root: root, Starter: starter}.Stop(context.Background(), host, "long") })

	g.Eventually(filepath.Join(dir, "begun"), time.Minute).Should(BeAnExistingFile())
	g.Expect(store.Acquire(ctx, host, record("a", 4))).To(Succeed())
	before := tree(t, filepath.Join(root, "runs"))
	touched := filepath.Join(dir, "touched")
	sum := sha256.Sum256([]byte("late"))
	for name, command := range map[string]func() error{
		"Start":      func() error { return of(late).Start(ctx, host, plan("late", "touch "+touched)) },
		"Resume":     func() error { return of(late).Resume(ctx, host, "long") },
		"StopOthers": func() error { return of(late).StopOthers(ctx, host, "late") },
		"Stop":       func() error { return of(late).Stop(ctx, host, "long") },
		"TakeOver":   func() error { return store.Acquire(ctx, host, record("a", 3)) },
		"a script": func() error {
			_, err := late.On(host).Run(ctx, ssh.Command{Script: "touch " + touched, Sudo: true})
			return err
		},
		"a file": func() error { return late.On(host).Upload(ctx, touched, 0o600, []byte("late")) },
		"a pushed file": func() error {
			return ssh.PushVerified(ctx, late.On(host), touched, hex.EncodeToString(sum[:]), strings.NewReader("late"), 4, 0)
		},
		"Hold": func() error {
			_, err := store.Hold(ctx, host, record("a", 3))
			return err
		},
	} {
		err := late.Explain(ctx, host, command())
		var stale *owner.StaleError
		g.Expect(errors.As(err, &stale)).To(BeTrue(), "%s: %v", name, err)
		g.Expect(stale.Holder.Generation).To(BeEquivalentTo(4), name)
	}
	g.Expect(tree(t, filepath.Join(root, "runs"))).To(Equal(before))
	g.Expect(filepath.Glob(touched + "*")).To(BeEmpty())
	status, err := run.Runner{Root: root, Starter: starter}.Poll(ctx, host, "long")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Phase).To(Equal(run.Running), "what runs belongs to the newer generation now")
}

// A plan that runs keeps nobody from taking over.
func TestAPlanDoesNotKeepTheLockOfItsStart(t *testing.T) {
	g := NewWithT(t)
	host, dir := &sshtest.Local{}, t.TempDir()
	root := filepath.Join(dir, "quoin")
	store := owner.Store{Root: root}
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	guard, err := store.Guard(ctx, host, record("a", 3))
	g.Expect(err).NotTo(HaveOccurred())
	runner := run.Runner{Root: root, Starter: sshtest.Setsid{Dir: dir}, Guard: guard.Script()}
	g.Expect(runner.Start(ctx, host, run.Plan{ID: "long", Steps: []run.Step{{Name: "step", Script: "sleep 600"}}})).
		To(Succeed())
	t.Cleanup(func() {
		_ = run.Runner{Root: root, Starter: sshtest.Setsid{Dir: dir}}.Stop(context.Background(), host, "long")
	})
	_, err = host.Run(ctx, ssh.Command{Script: "flock -n " + filepath.Join(root, "owner.lock") + " true"})
	g.Expect(err).NotTo(HaveOccurred())
}

func TestNobodyTakesOverWhileTheRecordIsHeld(t *testing.T) {
	g := NewWithT(t)
	host, root := &sshtest.Local{}, t.TempDir()
	store := owner.Store{Root: root}
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	release, err := store.Hold(ctx, host, record("a", 3))
	g.Expect(err).NotTo(HaveOccurred())

	taken := make(chan error, 1)
	go func() { taken <- store.Acquire(ctx, host, record("a", 4)) }()
	g.Consistently(taken, 500*time.Millisecond).ShouldNot(Receive())
	again, err := store.Hold(ctx, host, record("a", 3))
	g.Expect(err).NotTo(HaveOccurred(), "one generation does not wait for itself")
	g.Expect(again(ctx)).To(Succeed())
	g.Expect(release(ctx)).To(Succeed())
	g.Eventually(taken, time.Minute).Should(Receive(BeNil()))
	g.Expect(release(ctx)).NotTo(Succeed(), "it had been let go before")

	var stale *owner.StaleError
	_, err = store.Hold(ctx, host, record("a", 3))
	g.Expect(errors.As(err, &stale)).To(BeTrue())
	g.Expect(filepath.Glob(filepath.Join(root, ".hold.*"))).To(BeEmpty())
}

// A host is asked to confirm a generation, not to be silent about it.
func TestAHostConfirmsOnlyWhatItWasTold(t *testing.T) {
	g := NewWithT(t)
	host, root := &sshtest.Local{}, t.TempDir()
	store := owner.Store{Root: root}
	var unheard *owner.UnheardError
	hold := func(record owner.Record) error {
		_, err := store.Hold(ctx, host, record)
		return err
	}
	g.Expect(errors.As(hold(record("a", 3)), &unheard)).To(BeTrue(), "there is no record")
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	err := hold(record("a", 4))
	g.Expect(errors.As(err, &unheard)).To(BeTrue(), "the newer generation has not reached it yet")
	g.Expect(err).To(MatchError(ContainSubstring("neither paused nor detached")))
	g.Expect(store.Release(ctx, host, record("a", 3))).To(Succeed())
	g.Expect(errors.As(hold(record("a", 3)), &unheard)).To(BeTrue(), "it serves nobody")
}

// A content that arrives for long keeps nobody from taking over, and gets no name after that.
func TestATakeOverOutrunsAFileThatArrives(t *testing.T) {
	content := []byte("much of it")
	sum := sha256.Sum256(content)
	for name, send := range map[string]func(host ssh.Host, path string, content io.ReadSeeker) error{
		"pushed": func(host ssh.Host, path string, content io.ReadSeeker) error {
			return ssh.PushVerified(ctx, host, path, hex.EncodeToString(sum[:]), content, int64(len("much of it")), 0)
		},
		"by a script": func(host ssh.Host, path string, content io.ReadSeeker) error {
			_, err := host.Run(ctx, ssh.Command{Sudo: true, Script: "cat >" + path + ".part\n", Stdin: content})
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred(), "what has begun ends")
			return host.Upload(ctx, path, 0o600, []byte("late"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, root := &sshtest.Local{}, t.TempDir()
			store := owner.Store{Root: root}
			g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
			guard, err := store.Guard(ctx, host, record("a", 3))
			g.Expect(err).NotTo(HaveOccurred())
			path := filepath.Join(root, "file")
			slow := &stalled{ReadSeeker: bytes.NewReader(content), begun: make(chan struct{}), end: make(chan struct{})}
			sent := make(chan error, 1)
			go func() { sent <- send(guard.On(host), path, slow) }()
			<-slow.begun
			g.Eventually(filepath.Join(root, "file.part"), time.Minute).Should(BeAnExistingFile(), "the look is over")
			g.Expect(store.Acquire(ctx, host, record("a", 4))).To(Succeed())
			close(slow.end)
			var stale *owner.StaleError
			g.Eventually(sent, time.Minute).Should(Receive(WithTransform(func(err error) bool {
				return errors.As(err, &stale)
			}, BeTrue())))
			g.Expect(path).NotTo(BeAnExistingFile())
		})
	}
}

// stalled is a content whose first byte comes at the end.
type stalled struct {
	io.ReadSeeker
	once       sync.Once
	begun, end chan struct{}
}

func (s *stalled) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.end
	return s.ReadSeeker.Read(p)
}

// Between the look and the change the record may change and speak for us all the same.
func TestAChangedRecordIsLookedAtAgain(t *testing.T) {
	g := NewWithT(t)
	host, root := &sshtest.Local{}, t.TempDir()
	store := owner.Store{Root: root}
	g.Expect(store.Acquire(ctx, host, record("a", 3))).To(Succeed())
	guard, err := store.Guard(ctx, host, record("a", 4))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(store.Acquire(ctx, host, record("a", 4))).To(Succeed())
	_, err = guard.On(host).Run(ctx, ssh.Command{Script: "exit 0", Sudo: true})
	g.Expect(err).To(MatchError(owner.ErrMoved))
}
