// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestAStaticPodNeedsWhatItMounts: kubeadm applies patches, and a container starts only when what it mounts is there. The
// kubelet looks once for each pod, the runtime each time; neither looks at what nobody mounts.
func TestAStaticPodNeedsWhatItMounts(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c := newControlPlane(t)
	one := c.host("one")
	c.must(one, `mkdir -p /patches /volumes && : >/volumes/here && ln -s /volumes/here /volumes/link &&
printf -- 'patches:\n  directory: /patches\n' >>/run/kubeadm/kubeadm.yaml`)
	c.write(one, "/patches/etcd1+strategic.yaml", `spec:
  containers:
  - name: etcd
    volumeMounts:
    - {name: link, mountPath: /link, readOnly: true}
    - {name: made, mountPath: /made}
  volumes:
  - {name: link, hostPath: {path: /volumes/link, type: File}}
  - {name: made, hostPath: {path: /volumes/made, type: DirectoryOrCreate}}
  - {name: nobodys, hostPath: {path: /volumes/missing, type: Directory}}
`)
	c.write(one, "/patches/kubeletconfiguration+strategic.yaml", "kind: KubeletConfiguration\n")
	c.must(one, initPlane)
	etcd := c.plane.Etcd(one.Machine)
	g.Eventually(etcd.Ready, patience, often).Should(BeTrue())
	c.must(one, "[ -d /volumes/made ] && ! [ -e /volumes/missing ]")
	staysOut := func() {
		t.Helper()
		g.Eventually(etcd.Running, patience, often).Should(BeFalse())
		g.Consistently(etcd.Running, 3*time.Second, often).Should(BeFalse())
	}

	c.must(one, "ln -sfnT /volumes/gone /volumes/link")
	g.Consistently(etcd.Running, time.Second, often).Should(BeTrue(), "a container that runs has what it has mounted")
	etcd.Kill()
	staysOut()
	c.must(one, "systemctl restart kubelet.service")
	staysOut()
	one.PowerOff()
	one.PowerOn()
	staysOut()
	c.must(one, "! [ -e /volumes/gone ] && : >/volumes/gone")
	g.Eventually(etcd.Ready, patience, often).Should(BeTrue())
}
