// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	capi "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
)

// bomb is YAML that becomes ten times as large with each level.
func bomb(levels int) string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range levels {
		before, now := string(rune('0'+i)), string(rune('1'+i))
		text += "a" + now + ": &a" + now + " [" + strings.TrimSuffix(strings.Repeat("*a"+before+",", 10), ",") + "]\n"
	}
	return text + "runcmd: *a" + string(rune('0'+levels)) + "\n"
}

func TestSmallDataThatWouldBecomeLargeIsRefused(t *testing.T) {
	g := NewWithT(t)
	_, err := cloudinit.Parse([]byte("#cloud-config\n"+bomb(9)), nil)
	g.Expect(err).To(MatchError(ContainSubstring("YAML alias")))

	zeros := zipped(strings.Repeat("\x00", 33<<20))
	one := "- {path: /x, encoding: gz+b64, content: " + zeros + "}\n"
	_, err = cloudinit.Parse([]byte("#cloud-config\nwrite_files:\n"+one), nil)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = cloudinit.Parse([]byte("#cloud-config\nwrite_files:\n"+one+one), nil)
	g.Expect(err).To(MatchError(ContainSubstring("larger than 67108864 bytes together")))

	_, err = cloudinit.Parse([]byte("#cloud-config\n"+strings.Repeat("#\n", 3<<20)), nil)
	g.Expect(err).To(MatchError(ContainSubstring("no Secret holds so much")))
	_, err = cloudinit.Parse([]byte("## template: jinja\n#cloud-config\n"+strings.Repeat("#{{v}}\n", 500000)),
		cloudinit.Variables{"v": strings.Repeat("long", 15)})
	g.Expect(err).To(MatchError(ContainSubstring("variables filled in")))
}

var rewrite = flag.Bool("rewrite", false, "record what the provider renders")

// The fuzz tests begin from these. They live in a package of their own, which does not build the provider each time.
func TestTheRecordedDataAreTheProviders(t *testing.T) {
	g := NewWithT(t)
	join, err := capi.NewNode(&capi.NodeInput{BaseUserData: everything(), JoinConfiguration: "kind: JoinConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	controlPlane, err := capi.NewInitControlPlane(&capi.ControlPlaneInput{BaseUserData: everything(),
		ClusterConfiguration: "kind: ClusterConfiguration", InitConfiguration: "kind: InitConfiguration"})
	g.Expect(err).NotTo(HaveOccurred())
	for name, data := range map[string][]byte{"join.yaml": join, "init.yaml": controlPlane} {
		path := filepath.Join("testdata", name)
		if *rewrite {
			g.Expect(os.WriteFile(path, data, 0o644)).To(Succeed()) //nolint:gosec // test data
		}
		recorded, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(data)).To(Equal(string(recorded)), "go test ./bootstrap/cloudinit -rewrite")
	}
}
