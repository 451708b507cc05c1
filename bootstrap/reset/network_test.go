// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// function runs some of the steps' functions in the sandbox, as a step would.
func function(name, body string) string {
	return name + "() {\n(\n" + run.Prelude + stepFunctions + body + "\n)\n}\n"
}

func TestOnlyWhatPluginsBroughtLeavesTheNetwork(t *testing.T) {
	g := NewWithT(t)
	if exec.Command("unshare", "--net", "sh", "-c",
		"ip link add name q0 type bridge && ip link add name v0 type veth peer name w0").Run() != nil {
		t.Skip("the kernel has no veth or bridge links")
	}
	out := sandbox(t, "note() {\n(\n"+run.Prelude+beforeScript+"\n)\n}\n"+function("network", "reset_network")+`
set +e
mount -t sysfs none /sys
link() { for l in "$@"; do ip link add name "$l" type bridge || echo "CANNOT MAKE $l"; done; }
link eth9 lxc-theirs cali-theirs
ip address add 10.9.0.1/24 dev eth9; ip link set eth9 up
ip rule add pref 50 fwmark 0x200/0xf00 lookup 2004
ip route add 10.7.0.0/16 via 10.9.0.3 proto bird
note
# Of the cluster:
link cali123 cilium_net lxcabc vxlan.calico flannel.1 weave kube-dummy-if kube-bridge-x
unshare --net sleep 60 & pod=$!
until [ "$(readlink /proc/$pod/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add name veth0a type veth peer name veth0b netns $pod
[ -e /sys/class/net/veth0a ] || echo "CANNOT MAKE veth0a"
ip rule add pref 9 fwmark 0x200/0xf00 lookup 2004
ip rule add pref 100 from all lookup local; ip rule delete pref 0
ip route add blackhole 10.244.7.0/26 proto 80
ip route add 10.244.8.0/26 via 10.9.0.3 proto bird
mkdir -p /run/flannel /etc/cni/net.d; echo x >/run/flannel/subnet.env
# Of somebody else, since:
link wg0
ip link add docker0 type bridge; ip link add veth1a type veth peer name veth1b; ip link set veth1a master docker0
ip link add lxcbr0 type bridge
ip rule add pref 200 from 10.9.0.7 lookup 100
ip route add 10.8.0.0/16 via 10.9.0.2
note
network; network
echo "LINKS $(ls /sys/class/net | tr '\n' ' ')"
kill $pod
ip rule list | sed 's/^/RULE /'
ip route list | sed 's/^/ROUTE /'
cp "$(command -v sleep)" $D/bird; $D/bird 60 & bird=$!
until [ "$(cat /proc/$bird/comm)" = bird ]; do sleep 0.05; done
ip route add 10.6.0.0/16 via 10.9.0.3 proto bird
network; kill $bird
ip route list | sed 's/^/WITH BIRD /'
ls -d /run/flannel 2>&1 || :
`)
	t.Log(out)
	g.Expect(out).NotTo(ContainSubstring("CANNOT MAKE"))
	_, links, _ := strings.Cut(out, "LINKS ")
	links, _, _ = strings.Cut(links, "\n")
	g.Expect(strings.Fields(links)).To(ConsistOf("lo", "eth9", "lxc-theirs", "cali-theirs", "wg0", "docker0", "veth1a",
		"veth1b", "lxcbr0"))
	var rules []string
	for line := range strings.SplitSeq(out, "\n") {
		if rule, ok := strings.CutPrefix(line, "RULE "); ok {
			rules = append(rules, strings.Fields(rule)[0])
		}
	}
	g.Expect(rules).To(Equal([]string{"0:", "50:", "200:", "32766:", "32767:"}))
	g.Expect(out).To(And(ContainSubstring("ROUTE 10.8.0.0/16 via 10.9.0.2"), ContainSubstring("ROUTE 10.9.0.0/24")))
	g.Expect(out).To(And(ContainSubstring("ROUTE 10.7.0.0/16 via 10.9.0.3"), ContainSubstring("WITH BIRD 10.6.0.0/16"),
		ContainSubstring("WITH BIRD 10.7.0.0/16")))
	g.Expect(out).NotTo(Or(ContainSubstring("blackhole"), ContainSubstring("10.244.8.0")))
	g.Expect(out).To(ContainSubstring("cannot access '/run/flannel'"))
}

// A virtual server of a load balancer on the host is not kube-proxy's, and nothing is ever flushed.
func TestOnlyTheServicesOfKubeProxyLeaveIPVS(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, function("services", "clear_services")+`
set +e
mount -t sysfs none /sys
ip link add name kube-ipvs0 type bridge && ip address add 10.96.0.1/32 dev kube-ipvs0 && ip address add fd96::1/128 dev kube-ipvs0 || echo SKIPPED
mkdir -p "$QUOIN_ROOT/before"
echo '-A -t 10.9.0.1:31000 -s rr' >"$QUOIN_ROOT/before/services"
cat >$D/ipvsadm <<'STUB'
#!/bin/sh
case $1 in
--save) cat <<'SERVICES'
-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 10.0.0.11:6443 -m -w 1
-A -u [fd96::1]:53 -s rr
-A -t 10.9.0.1:80 -s wlc
-a -t 10.9.0.1:80 -r 10.9.0.2:80 -m -w 1
-A -t 10.9.0.1:31000 -s rr
-A -t 10.9.0.1:32000 -s rr
-A -f 7 -s rr
SERVICES
;;
*) echo "CALL $*" ;;
esac
STUB
chmod +x $D/ipvsadm
services
`)
	if strings.Contains(out, "SKIPPED") {
		t.Skip("the kernel has no bridge links")
	}
	g.Expect(strings.Fields(out)).To(Equal(strings.Fields("CALL --delete-service -t 10.96.0.1:443 CALL --delete-service " +
		"-u [fd96::1]:53 CALL --delete-service -t 10.9.0.1:32000")))
}

func TestARebootIsAskedForOnce(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	for name, body := range map[string]string{
		"systemd-run": `echo "$*" >>` + dir + `/calls`,
		"systemctl":   `cat ` + dir + `/state`,
	} {
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755)).To(Succeed())
	}
	host := &sshtest.Local{Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH")}}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	g.Expect(err).NotTo(HaveOccurred())
	calls := func() string {
		content, _ := os.ReadFile(filepath.Join(dir, "calls"))
		return string(content)
	}
	state := func(word string) {
		g.Expect(os.WriteFile(filepath.Join(dir, "state"), []byte(word+"\n"), 0o600)).To(Succeed())
	}

	state("inactive")
	g.Expect(Reboot(t.Context(), host, "the boot before")).To(Succeed())
	g.Expect(calls()).To(BeEmpty(), "it has rebooted already")
	g.Expect(Reboot(t.Context(), host, strings.TrimSpace(string(boot)))).To(Succeed())
	g.Expect(calls()).To(ContainSubstring("systemctl reboot"))
	before := calls()
	state("active")
	g.Expect(Reboot(t.Context(), host, strings.TrimSpace(string(boot)))).To(Succeed())
	g.Expect(calls()).To(Equal(before), "it is on its way down")
}
