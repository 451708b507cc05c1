// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// sent is a delivery of two files.
func sent(database string) Delivery {
	d := Delivery{ID: "recover-r1"}
	for _, file := range []struct{ name, content string }{{"member/wal/0.wal", "log"}, {"member/snap/db", database}} {
		content, sum := file.content, sha256.Sum256([]byte(file.content))
		d.Files = append(d.Files, File{Name: file.name, Content: strings.NewReader(content), Size: int64(len(content)),
			SHA256: hex.EncodeToString(sum[:])})
	}
	return d
}

// onHost has the deliveries of a test go below a directory of this machine.
func onHost(t *testing.T) (host *sshtest.Local, directory string) {
	t.Helper()
	root := hostRoot
	hostRoot = t.TempDir()
	t.Cleanup(func() { hostRoot = root })
	return &sshtest.Local{}, filepath.Join(hostRoot, "recovery", "snapshot-recover-r1")
}

func TestADeliveryThatIsCutOffAnywhereIsMadeWholeByTheNext(t *testing.T) {
	g := NewWithT(t)
	host, directory := onHost(t)
	cut := errors.New("the connection broke")
	for commands := 0; ; commands++ {
		g.Expect(os.RemoveAll(directory)).To(Succeed())
		left := commands
		host.Fail = func(ssh.Command) error {
			if left--; left < 0 {
				return cut
			}
			return nil
		}
		err := Deliver(t.Context(), host, sent("data"))
		if err == nil {
			g.Expect(commands).To(BeNumerically(">", 4))
			break
		}
		g.Expect(err).To(MatchError(cut))
		g.Expect(filepath.Join(directory, "sums")).NotTo(BeAnExistingFile(), "it says that all is there")
		host.Fail = nil
		g.Expect(Deliver(t.Context(), host, sent("data"))).To(Succeed())
		g.Expect(os.ReadDir(directory)).To(HaveLen(3), "two files and their list")
	}
	g.Expect(os.ReadFile(filepath.Join(directory, "sums"))).To(BeEquivalentTo(sent("data").list()))
	host.Fail = nil
	found, err := os.Stat(directory)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Mode().Perm()).To(BeEquivalentTo(0o700))
	g.Expect(Discard(t.Context(), host, "recover-r1")).To(Succeed())
	g.Expect(directory).NotTo(BeADirectory())
}

func TestADeliveryPutsOtherDataAndDamageRight(t *testing.T) {
	g := NewWithT(t)
	host, directory := onHost(t)
	g.Expect(Deliver(t.Context(), host, sent("of an earlier attempt"))).To(Succeed())
	wanted := sent("data")
	part := ""
	for _, file := range wanted.Files {
		if file.Name == "member/snap/db" {
			part = file.SHA256 + ".part"
		}
	}
	g.Expect(os.WriteFile(filepath.Join(directory, part), []byte("xxxx"), 0o600)).To(Succeed())
	g.Expect(Deliver(t.Context(), host, wanted)).To(Succeed())
	g.Expect(os.ReadFile(filepath.Join(directory, strings.TrimSuffix(part, ".part")))).To(BeEquivalentTo("data"))
	g.Expect(os.ReadDir(directory)).To(HaveLen(3))
}

func TestNothingIsDeliveredToAHostThatWasReset(t *testing.T) {
	g := NewWithT(t)
	host, directory := onHost(t)
	g.Expect(os.Remove(hostRoot)).To(Succeed())
	g.Expect(Deliver(t.Context(), host, sent("data"))).To(MatchError(ContainSubstring("was reset")))
	g.Expect(directory).NotTo(BeADirectory())
}
