// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// machine is a folder that comes first in the PATH of a host's sessions, and where the runner is installed.
type machine struct {
	*WithT
	folder, runner string
}

// newMachine has a root that the test need not be: id and stat say what they are told to.
func newMachine(t *testing.T) *machine {
	m := &machine{WithT: NewWithT(t), folder: t.TempDir()}
	m.runner = filepath.Join(m.folder, "quoin-run")
	text, err := os.ReadFile("../../hack/quoin-run")
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(os.WriteFile(m.runner, text, 0o755)).To(Succeed())
	m.program("id", "echo 0")
	m.program("stat", `[ "$2" = %u ] && { echo 0; exit; }; exec /usr/bin/stat "$@"`)
	m.program("logger", fmt.Sprintf(`printf '%%s\n' "$@" >>%s/log`, m.folder))
	m.Expect(os.Chmod(m.folder, 0o755)).To(Succeed())
	return m
}

func (m *machine) program(name, body string) {
	m.Expect(os.WriteFile(filepath.Join(m.folder, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755)).To(Succeed())
}

// sudo runs one program only, and tells it who called.
func (m *machine) sudo(before string) {
	m.program("sudo", fmt.Sprintf(`%s
[ "$1 $2" = "-n --" ] || exit 9
[ "$3" = %s ] || { echo "sudo: a password is required" >&2; exit 1; }
shift 2
echo "sudo: unable to resolve host h1: Name or service not known" >&2
SUDO_USER=quoin SUDO_UID=1000 exec "$@"`, before, m.runner))
}

func (m *machine) options() sshtest.ServerOptions {
	return sshtest.ServerOptions{User: "quoin", Env: []string{"PATH=" + m.folder + ":" + os.Getenv("PATH")}}
}

const wantsTTY = `( : </dev/tty ) 2>/dev/null || { echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1; }`

func TestSudoMayBeLimitedToTheRunner(t *testing.T) {
	m := newMachine(t)
	m.sudo("")
	_, target := serve(t, m.options())
	_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "true", Sudo: true})
	var sudo *ssh.SudoError
	m.Expect(errors.As(err, &sudo)).To(BeTrue(), "any other program is refused: %v", err)

	target.SudoCommand = m.runner
	conn := dial(t, target)
	script := "# it's \"quoted\" $HOME `true`\nset -- ; echo \"$#\" über; wc -c\necho oops >&2; exit 7\n\n"
	input := strings.Repeat("line of input\n", 20000)
	result, err := conn.Run(context.Background(), ssh.Command{Script: script, Stdin: strings.NewReader(input), Sudo: true})
	var exit *ssh.ExitError
	m.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	m.Expect(exit.Code).To(Equal(7))
	m.Expect(strings.Fields(result.Stdout)).To(Equal([]string{"0", "über", "280000"}))
	m.Expect(result.Stderr).To(Equal("oops\n"))
	log, err := os.ReadFile(filepath.Join(m.folder, "log"))
	m.Expect(err).NotTo(HaveOccurred())
	m.Expect(string(log)).To(ContainSubstring(fmt.Sprintf("caller=quoin uid=1000 sha256=%x bytes=%d\n",
		sha256.Sum256([]byte(script)), len(script))))
	m.Expect(string(log)).NotTo(ContainSubstring("oops"), "the script itself is not logged")

	content := noise(300_001)
	path := filepath.Join(t.TempDir(), "file")
	m.Expect(conn.Upload(context.Background(), path, 0o600, content)).To(Succeed())
	m.Expect(os.ReadFile(path)).To(Equal(content))
}

func TestTheRunnerRefusesWhatIsNotRootsOwn(t *testing.T) {
	for says, spoil := range map[string]func(m *machine){
		"must be run as root": func(m *machine) { m.program("id", "echo 1000") },
		"does not belong to root": func(m *machine) {
			m.program("stat",
				`[ "$2" = %u ] && { echo 1000; exit; }; exec /usr/bin/stat "$@"`)
		},
		"quoin-run can be written by others":     func(m *machine) { m.Expect(os.Chmod(m.runner, 0o775)).To(Succeed()) },
		"quoin-run can be written by others  ":   func(m *machine) { m.Expect(os.Chmod(m.runner, 0o757)).To(Succeed()) },
		"can be written by others than root; ch": func(m *machine) { m.Expect(os.Chmod(m.folder, 0o777)).To(Succeed()) },
		"is a symbolic link": func(m *machine) {
			m.Expect(os.Rename(m.runner, m.runner+".real")).To(Succeed())
			m.Expect(os.Symlink(m.runner+".real", m.runner)).To(Succeed())
		},
	} {
		t.Run(says, func(t *testing.T) {
			m := newMachine(t)
			m.sudo("")
			spoil(m)
			witness := filepath.Join(t.TempDir(), "ran")
			_, target := serve(t, m.options())
			target.SudoCommand = m.runner
			_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "touch " + witness, Sudo: true})
			var sudo *ssh.SudoError
			m.Expect(errors.As(err, &sudo)).To(BeTrue(), "%v", err)
			m.Expect(err).To(MatchError(And(ContainSubstring(strings.TrimSpace(says)),
				ContainSubstring("quoin ALL=(root) NOPASSWD: "+m.runner))))
			m.Expect(ssh.NeverRan(err)).To(BeTrue())
			m.Expect(witness).NotTo(BeAnExistingFile())
		})
	}
}

func TestASudoThatWantsATerminalGetsOne(t *testing.T) {
	m := newMachine(t)
	m.sudo(wantsTTY)
	server, target := serve(t, m.options())
	target.SudoCommand = m.runner
	conn := dial(t, target)
	ctx := context.Background()
	// Everything that a terminal would change: control characters, line ends, no line end at all, both streams at once.
	content := append(noise(400_000), "\x03\x04\x11\x13\r\n\n.\n\x1a"...)
	result, err := conn.Run(ctx, ssh.Command{Script: "cat; head -c 100000 /dev/zero | tr '\\000' e >&2; exit 3",
		Stdin: bytes.NewReader(content), Sudo: true})
	var exit *ssh.ExitError
	m.Expect(errors.As(err, &exit)).To(BeTrue(), "%v", err)
	m.Expect(exit.Code).To(Equal(3))
	m.Expect(result.Stdout == string(content)).To(BeTrue(), "%d bytes came back of %d", len(result.Stdout), len(content))
	m.Expect(result.Stderr).To(Equal(strings.Repeat("e", ssh.MaxStderr)))

	path := filepath.Join(t.TempDir(), "file")
	m.Expect(conn.Upload(ctx, path, 0o640, content)).To(Succeed())
	m.Expect(os.ReadFile(path)).To(Equal(content))
	m.Expect(ssh.Push(ctx, conn, path+".pushed", bytes.NewReader(content), int64(len(content)), 0)).To(Succeed())
	m.Expect(os.ReadFile(path + ".pushed")).To(Equal(content))

	// Without a standard input, with one that nobody reads, and with one that has no end.
	result, err = conn.Run(ctx, ssh.Command{Script: "wc -c; tty -s && echo terminal", Sudo: true})
	m.Expect(errors.As(err, &exit)).To(BeTrue(), "the script's own streams are no terminal: %v", err)
	m.Expect(result.Stdout).To(Equal("0\n"))
	_, err = conn.Run(ctx, ssh.Command{Script: "true", Stdin: bytes.NewReader(content), Sudo: true})
	m.Expect(err).NotTo(HaveOccurred())

	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = conn.Run(short, ssh.Command{Script: "sleep 30", Sudo: true})
	var interrupted *ssh.InterruptedError
	m.Expect(errors.As(err, &interrupted)).To(BeTrue(), "%v", err)

	// What fails for another reason is still told from that.
	m.program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
	_, err = conn.Run(ctx, ssh.Command{Script: "true", Sudo: true})
	var sudo *ssh.SudoError
	m.Expect(errors.As(err, &sudo)).To(BeTrue(), "%v", err)
	m.Expect(err).To(MatchError(ContainSubstring("a password is required")))
	m.Expect(server.Accepted()).To(Equal(1))
}

func TestATerminalThatCannotBeHadIsSaidToBeMissing(t *testing.T) {
	m := newMachine(t)
	m.sudo(`echo "sudo: sorry, you must have a tty to run sudo" >&2; exit 1`)
	for _, refuse := range []bool{false, true} {
		options := m.options()
		options.RefuseTerminal = refuse
		_, target := serve(t, options)
		target.SudoCommand = m.runner
		_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "true", Sudo: true})
		var sudo *ssh.SudoError
		m.Expect(errors.As(err, &sudo)).To(BeTrue(), "%v", err)
		m.Expect(err).To(MatchError(ContainSubstring("Defaults:quoin !requiretty")))
		m.Expect(strings.Contains(err.Error(), "PermitTTY no")).To(Equal(refuse), "%v", err)
		m.Expect(ssh.NeverRan(err)).To(BeTrue())
	}
}

// A /tmp that is full, read-only or mounted noexec changes nothing: there is no file of ours in it, for any manner of
// running.
func TestNothingNeedsATemporaryFolder(t *testing.T) {
	m := newMachine(t)
	m.sudo(wantsTTY)
	options := m.options()
	options.Env = append(options.Env, "TMPDIR=/nowhere/at/all")
	_, limited := serve(t, options)
	limited.SudoCommand = m.runner
	options.User = "root"
	_, root := serve(t, options)
	for _, target := range []ssh.Target{limited, root} {
		conn := dial(t, target)
		ctx := context.Background()
		path := filepath.Join(t.TempDir(), "file")
		m.Expect(conn.Upload(ctx, path, 0o600, []byte("content"))).To(Succeed())
		m.Expect(ssh.Push(ctx, conn, path+".pushed", strings.NewReader("content"), 7, 0)).To(Succeed())
		result, err := conn.Run(ctx, ssh.Command{Script: "ls -A " + filepath.Dir(path), Sudo: true})
		m.Expect(err).NotTo(HaveOccurred())
		m.Expect(strings.Fields(result.Stdout)).To(Equal([]string{"file", "file.pushed"}))
	}
	runner, err := os.ReadFile(m.runner)
	m.Expect(err).NotTo(HaveOccurred())
	for _, line := range strings.Split(string(runner), "\n") {
		if !strings.HasPrefix(line, "#") {
			m.Expect(line).NotTo(MatchRegexp(`/tmp|mktemp|TMPDIR`))
		}
	}
}
