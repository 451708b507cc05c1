// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func noise(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return content
}

// counted counts what was read of the content, and calls at when so much was.
type counted struct {
	io.ReadSeeker
	read   int64
	sought int
	at     int64
	then   func()
}

func (c *counted) Seek(offset int64, whence int) (int64, error) {
	c.sought++
	return c.ReadSeeker.Seek(offset, whence)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	c.read += int64(n)
	if c.then != nil && c.read >= c.at {
		c.then()
		c.then = nil
	}
	return n, err
}

// ways are the ways that a content takes to a host.
func ways(t *testing.T) map[string]sshtest.ServerOptions {
	return map[string]sshtest.ServerOptions{
		"root over SFTP":        {SFTP: true},
		"root without SFTP":     {},
		"another user and sudo": {User: "admin", Env: sudoStub(t, true), SFTP: true},
	}
}

func TestPushWritesExactlyAndGoesOnWhereItStopped(t *testing.T) {
	content := noise(3<<20 + 7)
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server, target := serve(t, options)
			path := filepath.Join(t.TempDir(), "it's content")
			ctx := context.Background()
			push := func() *counted {
				source := &counted{ReadSeeker: bytes.NewReader(content)}
				g.Expect(ssh.Push(ctx, dial(t, target), path, source, int64(len(content)), 0)).To(Succeed())
				got, err := os.ReadFile(path)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(bytes.Equal(got, content)).To(BeTrue())
				return source
			}
			g.Expect(push().read).To(BeEquivalentTo(len(content)))
			info, err := os.Stat(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
			g.Expect(push().read).To(BeZero(), "what is there is not sent again")

			g.Expect(os.Truncate(path, 1<<20)).To(Succeed())
			g.Expect(push().read).To(BeEquivalentTo(len(content)-1<<20), "only the rest is sent")

			g.Expect(os.WriteFile(path, append(bytes.Clone(content), 'x'), 0o600)).To(Succeed())
			g.Expect(push().read).To(BeEquivalentTo(len(content)), "a file that is too long is another one")

			// The connection breaks in the middle.
			g.Expect(os.Remove(path)).To(Succeed())
			cut := &counted{ReadSeeker: bytes.NewReader(content), at: 2 << 20, then: server.DropConnections}
			err = ssh.Push(ctx, dial(t, target), path, cut, int64(len(content)), 0)
			g.Expect(ssh.IsTransient(err)).To(BeTrue(), "%v", err)
			push()

			g.Expect(server.Transfers() > 0).To(Equal(name == "root over SFTP"))
		})
	}
}

func TestPushKeepsToItsRateAndItsTime(t *testing.T) {
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := serve(t, options)
			path := filepath.Join(t.TempDir(), "content")
			content := noise(1 << 20)
			conn := dial(t, target)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			// 1 MiB at 64 KiB/s takes 15 s: it cannot be done in three.
			err := ssh.Push(ctx, conn, path, bytes.NewReader(content), int64(len(content)), 64<<10)
			g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue(), "%v", err)
			g.Expect(ssh.IsTransient(err)).To(BeTrue())
			g.Eventually(func() int64 {
				info, err := os.Stat(path)
				if err != nil {
					return 0
				}
				return info.Size()
			}).WithTimeout(time.Minute).Should(And(BeNumerically(">", 0), BeNumerically("<=", 320<<10)))
		})
	}
}

func TestPushSaysWhatIsWrongOnWhichSide(t *testing.T) {
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := serve(t, options)
			conn := dial(t, target)
			ctx := context.Background()
			err := ssh.Push(ctx, conn, "/nowhere/at/all", bytes.NewReader([]byte("x")), 1, 0)
			var exit *ssh.ExitError
			g.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(And(ContainSubstring("/nowhere/at/all"), ContainSubstring("irectory"))))

			path := filepath.Join(t.TempDir(), "content")
			source := &counted{ReadSeeker: bytes.NewReader([]byte("short"))}
			err = ssh.Push(ctx, conn, path, source, 10, 0)
			g.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
			g.Expect(source.sought).To(Equal(1), "no other way makes the content longer")
			g.Expect(ssh.IsTransient(err)).To(BeFalse())

			g.Expect(ssh.Push(ctx, conn, path+".empty", bytes.NewReader(nil), 0, 0)).To(Succeed())
			g.Expect(path + ".empty").To(BeARegularFile())
		})
	}
}

// refusing is a host whose guard speaks against everything.
type refusing struct{ ssh.Host }

var errGuard = errors.New("another has it")

func (refusing) Run(context.Context, ssh.Command) (ssh.Result, error) { return ssh.Result{}, errGuard }

func (r refusing) Unguarded() ssh.Host { return r.Host }

func TestNoWayToTheHostIsPastItsGuard(t *testing.T) {
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := serve(t, options)
			path := filepath.Join(t.TempDir(), "content")
			err := ssh.Push(t.Context(), refusing{dial(t, target)}, path, strings.NewReader("x"), 1, 0)
			g.Expect(err).To(MatchError(errGuard))
			g.Expect(path).NotTo(BeAnExistingFile())
		})
	}
}

// A guard does not cost the quicker way.
func TestAGuardedHostIsPushedToOverSFTP(t *testing.T) {
	g := NewWithT(t)
	server, target := serve(t, sshtest.ServerOptions{SFTP: true})
	path := filepath.Join(t.TempDir(), "content")
	g.Expect(ssh.Push(t.Context(), consenting{dial(t, target)}, path, strings.NewReader("x"), 1, 0)).To(Succeed())
	g.Expect(server.Transfers()).To(BeEquivalentTo(1))
}

type consenting struct{ ssh.Host }

func (c consenting) Unguarded() ssh.Host { return c.Host }

// A file gets its name when the host has seen that it is the right one.
func TestPushVerifiedNamesNoFileThatIsDamaged(t *testing.T) {
	g := NewWithT(t)
	content := noise(1 << 10)
	sum := sha256.Sum256(content)
	host, path := &sshtest.Local{}, filepath.Join(t.TempDir(), "it's content")
	push := func() error {
		return ssh.PushVerified(t.Context(), host, path, hex.EncodeToString(sum[:]), bytes.NewReader(content),
			int64(len(content)), 0)
	}
	g.Expect(os.WriteFile(path+".part", []byte("of another file"), 0o600)).To(Succeed())
	g.Expect(push()).To(MatchError(ssh.ErrDamaged))
	g.Expect(path).NotTo(BeAnExistingFile())
	g.Expect(path+".part").NotTo(BeAnExistingFile(), "it would be taken for the beginning again")

	cut := errors.New("the connection broke")
	host.Fail = func(command ssh.Command) error {
		if strings.Contains(command.Script, "sha256sum") {
			return cut
		}
		return nil
	}
	g.Expect(push()).To(MatchError(cut))
	g.Expect(path).NotTo(BeAnExistingFile())

	host.Fail = nil
	sent := len(host.Runs())
	g.Expect(push()).To(Succeed())
	g.Expect(host.Runs()).To(HaveLen(sent+2), "it is all there, so it is measured and verified")
	got, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(got, content)).To(BeTrue())
	g.Expect(path + ".part").NotTo(BeAnExistingFile())
}

// After an error nothing reads the content any more: its owner may close it or begin anew.
func TestPushLetsGoOfTheContent(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{SFTP: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &counted{ReadSeeker: bytes.NewReader(noise(8 << 20)), at: 1 << 20, then: cancel}
	err := ssh.Push(ctx, dial(t, target), filepath.Join(t.TempDir(), "content"), source, 8<<20, 0)
	g.Expect(errors.Is(err, context.Canceled)).To(BeTrue(), "%v", err)
	read := source.read
	g.Consistently(func() int64 { return source.read }, "200ms").Should(Equal(read))
}
