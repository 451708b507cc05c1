// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
)

// initialized is the bootstrap data of a host that runs a command with a configuration of kubeadm.
func initialized(t *testing.T, command, configuration string) *cloudinit.Config {
	t.Helper()
	config, err := cloudinit.Parse([]byte(fmt.Sprintf(`#cloud-config
write_files:
- path: /run/kubeadm/other
  content: other
- path: /run/kubeadm/kubeadm.yaml
  encoding: base64
  content: %s
runcmd:
- "true"
- %q
`, base64.StdEncoding.EncodeToString([]byte(configuration)), command)), host)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return config
}

const (
	kubeadmInit = "kubeadm init --config /run/kubeadm/kubeadm.yaml"
	aCluster    = "---\napiVersion: kubeadm.k8s.io/v1beta4\netcd: {local: {dataDir: '/data'}}\nkind: " +
		"ClusterConfiguration\n---\n"
	aHost = "kind: InitConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    - name: v\n      value: \"2\"\n  taints: []\n"
)

func TestPatchesAreAddedToTheConfigurationOfKubeadmInit(t *testing.T) {
	ours := aHost + "patches:\n  directory: /ours\n"
	for name, c := range map[string]struct{ configuration, want, directory string }{
		"none of the user's": {aCluster + aHost, aCluster + ours, "/ours"},
		"the other order":    {aHost + aCluster, ours + aCluster, "/ours"},
		"null":               {aCluster + aHost + "patches: null\n", aCluster + ours, "/ours"},
		"empty": {aCluster + aHost + "patches: {}\n", aCluster + aHost + "patches: {directory: /ours}\n",
			"/ours"},
		"the user's": {aCluster + aHost + "patches: {directory: /theirs}\n", aCluster + aHost +
			"patches: {directory: /theirs}\n", "/theirs"},
		"JSON": {aCluster + `{"kind": "InitConfiguration"}`, aCluster +
			`{"kind": "InitConfiguration", patches: {directory: /ours}}` + "\n", "/ours"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := initialized(t, kubeadmInit, c.configuration)
			patched, directory, err := config.PatchInit("/ours")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(directory).To(Equal(c.directory))
			g.Expect(string(patched.Files[1].Content)).To(Equal(c.want))
			g.Expect(string(config.Files[1].Content)).To(Equal(c.configuration), "what was given stays as it is")
			g.Expect(string(patched.Files[0].Content)).To(Equal("other"))
			again, directory, err := patched.PatchInit("/other")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(directory).To(Equal(c.directory))
			g.Expect(string(again.Files[1].Content)).To(Equal(c.want))
		})
	}
}

func TestWhoJoinsIsNotPatched(t *testing.T) {
	g := NewWithT(t)
	config := initialized(t, strings.Replace(kubeadmInit, "init", "join", 1), "kind: JoinConfiguration\n")
	patched, directory, err := config.PatchInit("/ours")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(directory).To(BeEmpty())
	g.Expect(patched).To(Equal(config))
}

func TestPatchesThatCannotBeAddedAreRefused(t *testing.T) {
	for want, c := range map[string]struct{ command, configuration string }{
		"without --config":           {"kubeadm init", aCluster + aHost},
		"none of the files":          {"kubeadm init --config=/root/mine.yaml", aCluster + aHost},
		"holds no InitConfiguration": {kubeadmInit, aCluster},
		"kubeadm.yaml: the configuration of kubeadm is not valid YAML": {kubeadmInit,
			"kind: InitConfiguration\n\ttoken: abc\n"},
		`"patches" is not an absolute path`: {kubeadmInit, aHost +
			"patches: {directory: patches}\n"},
	} {
		_, _, err := initialized(t, c.command, c.configuration).PatchInit("/ours")
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
	}
}
