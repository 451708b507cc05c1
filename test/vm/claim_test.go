//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package vm_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	hostssh "github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/vm"
)

const (
	bootID = "cat /proc/sys/kernel/random/boot_id"
	// bootstrap is data as the kubeadm provider makes them, whose step before kubeadm hangs unless it was cut off before.
	bootstrap = `## template: jinja
#cloud-config
write_files:
-   path: /etc/cni/net.d/10-bridge.conflist
    content: |
      {"cniVersion": "0.4.0", "name": "bridge", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
       "ipMasq": true,
       "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
-   path: /run/kubeadm/kubeadm-join-config.yaml
    owner: root:root
    permissions: '0640'
    content: |
      apiVersion: kubeadm.k8s.io/v1beta4
      kind: JoinConfiguration
      discovery:
        bootstrapToken: {apiServerEndpoint: "` + vm.Endpoint + `", token: ` + vm.Token + `, caCertHashes: ["%s"]}
      nodeRegistration: {name: '{{ ds.meta_data.local_hostname }}'}
      timeouts: {discovery: 10m0s, kubeletHealthCheck: 10m0s, kubernetesAPICall: 5m0s, tlsBootstrap: 10m0s}
-   path: /run/cluster-api/placeholder
    owner: root:root
    permissions: '0640'
    content: "This placeholder file makes the folder"
bootcmd:
  - ` + bootID + ` >>/root/first
runcmd:
  - ` + bootID + ` >>/root/second
  - sync
  - test "$(wc -l </root/second)" -gt 1 || sleep 3600
  - kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml && echo success > /run/cluster-api/bootstrap-success.complete
`
	// pod runs on whichever Node takes it.
	pod = `
apiVersion: v1
kind: Pod
metadata: {name: work, namespace: default}
spec:
  automountServiceAccountToken: false
  containers: [{name: pause, image: "quoin.test/pause:3.10.1", imagePullPolicy: Never}]
`
	// counterAt is where on its raw disk the guest counts: behind what a file system marks the disk with.
	counterAt = 16384
	// counter makes a file system on the second disk, and has the guest count there from now on, after each boot.
	counter = `set -e
disk=/dev/disk/by-id/` + vm.ScratchID + `
mkfs.ext4 -q "$disk"
cat >/root/count <<'EOF'
n=0
while :; do
	n=$((n + 1))
	echo "$(` + bootID + `) $n" | dd of=` + "/dev/disk/by-id/" + vm.ScratchID + ` bs=512 seek=16384 count=1 conv=sync,notrunc oflag=direct 2>/dev/null
	sleep 0.2
done
EOF
printf '[Service]\nExecStart=/bin/sh /root/count\n[Install]\nWantedBy=multi-user.target\n' >/etc/systemd/system/count.service
systemctl --quiet enable --now count.service
sync
`
	// remains are what a pod may leave that neither a container nor a simulated machine has: a process in the groups of
	// pods, and a virtual server as kube-proxy makes it.
	remains = `set -e
mkdir -p /sys/fs/cgroup/kubepods.slice/quoin-left.slice
setsid sleep 12345 >/dev/null 2>&1 </dev/null &
echo $! >/sys/fs/cgroup/kubepods.slice/quoin-left.slice/cgroup.procs
modprobe ip_vs
ip link show kube-ipvs0 >/dev/null 2>&1 || ip link add name kube-ipvs0 type bridge
ip address add 10.96.0.77/32 dev kube-ipvs0
ipvsadm --add-service --tcp-service 10.96.0.77:443 --scheduler rr
`
	uncount = "systemctl --quiet disable --now count.service; rm /etc/systemd/system/count.service; systemctl daemon-reload"
)

// ran is the output of a script that must succeed.
func (b *bench) ran(script string) string {
	b.t.Helper()
	out, err := b.run(script)
	b.Expect(err).NotTo(gomega.HaveOccurred(), out)
	return out
}

// sectors reads the second disk as it is outside the machine.
func (b *bench) sectors(at int64, count int) []byte {
	b.t.Helper()
	disk, err := os.Open(b.machine.Scratch())
	b.Expect(err).NotTo(gomega.HaveOccurred())
	defer func() { _ = disk.Close() }()
	data := make([]byte, 512*count)
	_, err = disk.ReadAt(data, 512*at)
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return data
}

// counted is the boot ID and the number that the guest wrote last.
func (b *bench) counted() (boot, number string) {
	b.t.Helper()
	boot, number, _ = strings.Cut(strings.TrimSpace(string(bytes.Trim(b.sectors(counterAt, 1), "\x00"))), " ")
	return boot, number
}

// formatted reports whether a file system's magic number is on the second disk.
func (b *bench) formatted() bool {
	b.t.Helper()
	return bytes.Equal(b.sectors(2, 1)[0x38:0x3a], []byte{0x53, 0xef})
}

func provisions(b *bench) {
	ctx := b.t.Context()
	hash, err := b.cluster.CAHash()
	b.Expect(err).NotTo(gomega.HaveOccurred())
	b.Expect(b.plane.AddMachine(ctx, plane.MachineOptions{Namespace: b.key.Namespace, Name: "m", Version: version,
		Bootstrap: fmt.Appendf(nil, bootstrap, hash),
		Artifacts: infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{}}})).To(gomega.Succeed())
	var before string
	b.until(2*patience, "the plan does not come to its last commands", func() bool {
		var err error
		before, err = b.run("cat /root/second && sync")
		return err == nil && before != ""
	})
	b.Expect(b.redfish().PowerCycle(ctx)).To(gomega.Succeed())
	after := b.untilUp(before)
	b.until(2*patience, "the host never became "+string(infrav1.HostStateProvisioned), func() bool {
		return b.host().Status.State == infrav1.HostStateProvisioned
	})
	b.Expect(b.ran("cat /root/first")).To(gomega.Equal(before), "a step that was done is not done again")
	b.Expect(b.ran("cat /root/second")).To(gomega.Equal(before+"\n"+after), "the one that was cut off is")

	journal := "/var/lib/quoin/runs/" + infrav1.ProvisionOperation(b.host().Spec.ConsumerRef.Claim) + "/journal"
	b.t.Logf("journal:\n%s", b.ran("cat "+journal))
	times := func(what string) string {
		return b.ran(`awk '$4 == "` + what + `" { print $3 }' ` + journal + " | sort | uniq -d")
	}
	b.Expect(times("start")).To(gomega.Equal("pre-kubeadm"), "nothing but that step began twice")
	b.Expect(times("done")).To(gomega.BeEmpty())

	asked := func(args ...string) string {
		out, err := b.cluster.Kubectl(ctx, "", args...)
		if err != nil {
			return err.Error()
		}
		return out
	}
	b.until(patience, "its Node is not ready", func() bool {
		return asked("get", "node", "vm-1", "-o",
			`jsonpath={.spec.providerID} {.status.conditions[?(@.type=="Ready")].status}`) ==
			b.host().ProviderID()+" True"
	})
	_, err = b.cluster.Kubectl(ctx, pod, "apply", "-f", "-")
	b.Expect(err).NotTo(gomega.HaveOccurred())
	b.Eventually(func() string {
		return asked("get", "pod", "work", "-o", "jsonpath={.spec.nodeName} {.status.phase}")
	}).WithTimeout(patience).WithPolling(time.Second).Should(gomega.Equal("vm-1 Running"), func() string {
		return asked("describe", "pod", "work") +
			b.ran("journalctl -u kubelet -u containerd --no-pager | tail -n 30; ctr -n k8s.io images ls")
	})
	b.t.Logf("its Node: %s", asked("get", "nodes", "-o", "wide"))
}

func fences(b *bench) {
	ctx := b.t.Context()
	b.ran(counter)
	b.Expect(b.formatted()).To(gomega.BeTrue())
	first := b.ran(bootID)
	b.until(patience, "the guest does not count", func() bool { boot, _ := b.counted(); return boot == first })

	ordered := len(b.bmc.Orders())
	orders := func() []string { return b.bmc.Orders()[ordered:] }
	b.Expect(b.machine.Unplug()).To(gomega.Succeed())
	deleted := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 5*patience)
		defer cancel()
		deleted <- b.plane.DeleteMachine(ctx, types.NamespacedName{Namespace: b.key.Namespace, Name: "m"})
	}()
	b.until(patience, "nobody is asked for a word", func() bool {
		return conditions.GetReason(b.host(), infrav1.HostFencedCondition) == infrav1.HostUnconfirmedReason
	})
	b.Expect(orders()).To(gomega.BeEmpty(), "no other host vouches for this management cluster")
	b.update(func(h *infrav1.QuoinHost) {
		metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.PowerOffAnnotation, h.ProviderID())
	})
	var second string
	b.until(patience, "the guest does not count after its power was cycled", func() bool {
		second, _ = b.counted()
		return second != "" && second != first
	})
	b.Expect(orders()).To(gomega.Equal([]string{"ForceRestart"}))
	b.Expect(b.host().Fenced()).To(gomega.BeFalse())
	_, number := b.counted()
	b.until(patience, "the guest does not count on", func() bool { _, now := b.counted(); return now != number })

	b.until(2*patience, "the host is not fenced", func() bool { return b.host().Fenced() })
	boot, number := b.counted()
	b.Expect(boot).To(gomega.Equal(second))
	b.t.Logf("fenced at count %s", number)
	b.Consistently(func() string { _, now := b.counted(); return now }).WithTimeout(30*time.Second).
		WithPolling(100*time.Millisecond).Should(gomega.Equal(number), "what is fenced writes nothing")
	b.Expect(b.machine.Power()).To(gomega.Equal("Off"))
	b.Expect(<-deleted).To(gomega.Succeed())
	b.untilState(infrav1.HostStateQuarantined)
	b.Expect(orders()).To(gomega.Equal([]string{"ForceRestart", "ForceOff"}), "one order each")

	b.Expect(b.redfish().PowerOn(ctx)).To(gomega.Succeed())
	third := b.untilUp("")
	b.Expect(third).NotTo(gomega.BeElementOf(first, second), "it was off")
	b.until(patience, "nobody notices that the host is back", func() bool {
		return conditions.GetReason(b.host(), infrav1.HostCleanCondition) == infrav1.HostReturnedReason
	})
	b.Expect(orders()).To(gomega.Equal([]string{"ForceRestart", "ForceOff", "On"}))
}

// guest is the machine as a verification sees it, beside the controllers.
type guest struct {
	hostssh.Host
	*bench
}

func (g guest) Run(_ context.Context, command hostssh.Command) (hostssh.Result, error) {
	out, err := g.run(command.Script)
	return hostssh.Result{Stdout: out + "\n"}, err // which run takes off
}

// findings are what a verification finds that compares the host with its last inspection.
func (b *bench) findings() []reset.Finding {
	b.t.Helper()
	verified, err := reset.Verify(b.t.Context(), guest{bench: b}, reset.Options{Baseline: b.host().Spec.Baseline})
	b.Expect(err).NotTo(gomega.HaveOccurred())
	return verified.Findings
}

// findsRemains expects that a verification finds what remains makes.
func (b *bench) findsRemains() {
	b.t.Helper()
	found := b.findings()
	for _, what := range []string{"processes of pods run:.* sleep", "virtual server of ipvs TCP 0A60004D:01BB"} {
		b.Expect(found).To(gomega.ContainElement(gomega.HaveField("What", gomega.MatchRegexp(what))))
	}
}

func resets(b *bench) {
	b.ran(uncount)
	b.ran(remains)
	b.findsRemains()
	b.Expect(b.formatted()).To(gomega.BeTrue(), "nothing was reset yet")
	ordered := len(b.bmc.Orders())
	b.update(func(h *infrav1.QuoinHost) { metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.RetryAnnotation, "") })
	b.until(2*patience, "the host is not free", func() bool { return b.host().Status.State == infrav1.HostStateAvailable })
	host := b.host()
	b.Expect(host.Spec.ConsumerRef).To(gomega.BeNil())
	b.Expect(conditions.IsTrue(host, infrav1.HostCleanCondition)).To(gomega.BeTrue(), b.describe)
	b.t.Logf("released: %s", conditions.GetMessage(host, infrav1.HostCleanCondition))
	b.Expect(b.formatted()).To(gomega.BeFalse(), "a disk of the role Wipe has no file system")
	b.Expect(b.ran("systemctl is-enabled kubelet.service || :")).To(gomega.Equal("disabled"))
	b.Expect(b.ran("ls -d /etc/kubernetes/*.conf /etc/kubernetes/pki /var/lib/kubelet/pki /etc/cni/net.d/* 2>/dev/null || :")).To(gomega.BeEmpty())
	b.Expect(b.ran("ip -brief link | grep -E 'cni0|veth' || :")).To(gomega.BeEmpty())
	b.Expect(b.ran("ctr --namespace k8s.io containers ls -q")).To(gomega.BeEmpty())
	b.Expect(b.ran("pgrep -f 'sleep 1234[5]'; ipvsadm --save --numeric; ls -d /sys/class/net/kube-ipvs0 2>/dev/null || :")).
		To(gomega.BeEmpty(), "nothing is left of a pod's process and of kube-proxy's servers")
	b.Expect(b.findings()).To(gomega.BeEmpty())
	b.ran(remains)
	b.findsRemains()
	b.Expect(b.bmc.Orders()).To(gomega.HaveLen(ordered), "a host that runs is not switched for that")
}
