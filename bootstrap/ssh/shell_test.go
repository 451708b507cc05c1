// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

func TestALoginShellThatRefusesNeverRan(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{Exec: func(_ string, _ io.Reader, _, stderr io.Writer) int {
		_, _ = io.WriteString(stderr, "This account is currently not available.\n")
		return 1
	}})
	_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "true"})
	g.Expect(err).To(MatchError(ContainSubstring("not available")))
	g.Expect(ssh.NeverRan(err)).To(BeTrue())
}

func TestSuccessThatNeverBeganIsNone(t *testing.T) {
	for name, said := range map[string]string{"a ForceCommand": "Welcome to the backup server.\n", "a silent one": ""} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := serve(t, sshtest.ServerOptions{Exec: func(_ string, _ io.Reader, stdout, _ io.Writer) int {
				_, _ = io.WriteString(stdout, said)
				return 0
			}})
			_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: "true"})
			g.Expect(err).To(MatchError(And(ContainSubstring("did not start /bin/sh"),
				ContainSubstring(strings.TrimSpace(said)))))
			g.Expect(ssh.NeverRan(err)).To(BeTrue())
		})
	}
}

// sudo's secure_path of some distributions, and the PATH that sshd gives to a session, lack /usr/local.
func TestToolsBelowUsrLocalAreFound(t *testing.T) {
	g := NewWithT(t)
	_, target := serve(t, sshtest.ServerOptions{Env: []string{"PATH=/usr/bin:/bin"}})
	result, err := dial(t, target).Run(context.Background(), ssh.Command{Script: `echo "$PATH"`})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Split(strings.TrimSpace(result.Stdout), ":")).
		To(ContainElements("/usr/local/bin", "/usr/local/sbin", "/usr/sbin"))
	g.Expect(result.Stdout).To(HavePrefix("/usr/bin:/bin:"), "what the host prefers comes first")
}

// A connection that breaks looks to the host like a script that is over.
func TestHalfAScriptIsNotRun(t *testing.T) {
	for name, arrives := range map[string]int64{"a part": 40, "all but the end": 60} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			witness := filepath.Join(t.TempDir(), "ran")
			script := "touch " + witness + "\n" + strings.Repeat("# more\n", 20)
			_, target := serve(t, sshtest.ServerOptions{Exec: func(command string, stdin io.Reader, stdout,
				stderr io.Writer) int {
				shell := exec.Command("/bin/sh", "-c", command)
				shell.Stdin, shell.Stdout, shell.Stderr = io.LimitReader(stdin, int64(len("touch "+witness+"\n"))+arrives), stdout,
					stderr
				_ = shell.Run()
				return shell.ProcessState.ExitCode()
			}})
			_, err := dial(t, target).Run(context.Background(), ssh.Command{Script: script})
			g.Expect(ssh.NeverRan(err)).To(BeTrue(), "%v", err)
			g.Expect(witness).NotTo(BeAnExistingFile())
		})
	}
}

func TestWhatTheScriptEndsWithIsItsOwn(t *testing.T) {
	for script, want := range map[string]string{
		"echo a":                   "a\n",
		"echo a # comment":         "a\n",
		"cat <<E\n#b\nE\n":         "#b\n",
		"printf '%s' 'a\n\n'":      "a\n\n",
		"echo über-große Wörter\n": "über-große Wörter\n",
		"":                         "",
	} {
		g := NewWithT(t)
		_, target := serve(t, sshtest.ServerOptions{})
		result, err := dial(t, target).Run(context.Background(), ssh.Command{Script: script})
		g.Expect(err).NotTo(HaveOccurred(), script)
		g.Expect(result.Stdout).To(Equal(want), script)
	}
}
