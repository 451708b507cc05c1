// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
)

// Proves: R20
//
// A kubelet is told to start on cgroup v1 by what kubeadm reads on the host, in whatever form that comes.
func TestBootstrapDataThatTellOfCgroupV1(t *testing.T) {
	const merged = "apiVersion: kubelet.config.k8s.io/v1beta1\nfailCgroupV1: false\n"
	zip := func(text string) string {
		var zipped bytes.Buffer
		writer := gzip.NewWriter(&zipped)
		_, err := writer.Write([]byte(text))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(writer.Close()).To(Succeed())
		return zipped.String()
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for name, c := range map[string]struct {
		content, encoding string
		starts            bool
	}{
		"a merged patch":           {content: merged, starts: true},
		"base64":                   {content: encode(merged), encoding: "base64", starts: true},
		"gzip in base64":           {content: encode(zip(merged)), encoding: "gzip+base64", starts: true},
		"told to fail, in base64":  {content: encode("failCgroupV1: true\n"), encoding: "base64"},
		"of an encoding that lies": {content: merged[:8] + "!", encoding: "base64"},
		"a JSON patch":             {content: `[{"op":"add","path":"/failCgroupV1","value":false}]`, starts: true},
		"in another order":         {content: `[{"value": false, "path": "/failCgroupV1", "op": "replace"}]`, starts: true},
		"a JSON patch in YAML":     {content: "- op: replace\n  path: /failCgroupV1\n  value: false\n", starts: true},
		"a JSON patch in base64": {content: encode(`[{"op":"add","path":"/failCgroupV1","value":false}]`),
			encoding: "base64", starts: true},
		"a JSON patch that asks":  {content: `[{"op":"test","path":"/failCgroupV1","value":false}]`},
		"a JSON patch that fails": {content: `[{"op":"add","path":"/failCgroupV1","value":true}]`},
		"of another setting":      {content: `[{"op":"add","path":"/failSwapOn","value":false}]`},
		"the last operation counts": {content: "- {op: add, path: /failCgroupV1, value: false}\n" +
			"- {op: add, path: /failCgroupV1, value: true}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			data := fmt.Sprintf("## template: jinja\n#cloud-config\nwrite_files:\n- path: /etc/kubernetes/patches/"+
				"kubeletconfiguration0.yaml\n  owner: root:root\n  encoding: %q\n  content: %q\nhostname: "+
				"'{{ ds.meta_data.local_hostname }}'\n", c.encoding, c.content)
			NewWithT(t).Expect(StartsOnCgroupV1([]byte(data))).To(Equal(c.starts))
		})
	}
}
