// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var update = flag.Bool("update", false, "write the table of docs/trust.md")

// leftover is what a claim may leave behind.
type leftover struct {
	what string
	// make makes the host dirty; it ends with code 77 where the kernel or the system lacks what that needs.
	make string
	// found is in the finding of a verification, while it is there.
	found string
	fate  fate
}

// needed finds the program that a row cannot be shown without, of those that a system may lack.
var needed = regexp.MustCompile(`ip6?tables[a-z-]*`)

// inVM are the rows that make e2e-vm shows: kernels of machines that build and test often lack what these need.
var inVM = []string{"virtual server of ipvs"}

// fate is what becomes of it.
type fate int

const (
	// stays: a reset cannot know whose it is, so it is found afterwards too, against the record of before.
	stays fate = iota
	// compared: the reset removes it, and it is found against the record of before.
	compared
	// named: the reset removes it, and it is found by its name, as a cluster's, without a record.
	named
	// boots: nothing says whose it is or shows it, and it ends with a boot.
	boots
)

// Everything is there before the claim, too, under another name: an administrator's own, which stays and is not found.
const beforeClaim = `
volumes=/usr/libexec/kubernetes/kubelet-plugins/volume/exec
mkdir -p /root/.ssh /etc/profile.d /etc/sudoers.d /etc/cron.d /etc/systemd/system /etc/ssh /etc/udev/rules.d /opt/cni/bin /etc/cni/net.d /srv/theirs \
	/etc/containerd /etc/pam.d /etc/sysctl.d
echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAdministratorAdministratorAdministratorAdm admin' >/root/.ssh/authorized_keys
for f in /etc/sudoers.d/theirs /etc/cron.d/theirs /etc/systemd/system/theirs.service /etc/ssh/sshd_config /etc/udev/rules.d/theirs.rules \
	/opt/cni/bin/bridge /etc/cni/net.d/87-theirs.conflist /etc/containerd/config.toml /etc/pam.d/login /etc/sysctl.d/theirs.conf; do echo theirs >$f; done
mkdir -p /opt/cni/bin/theirs.d $volumes/theirs~driver
ln -s bridge /opt/cni/bin/theirs
echo 'theirs:x:1500:1500::/home/theirs:/bin/sh' >>/etc/passwd
printf 'theirs:*:1::::::\nroot:*:1::::::\n' >/etc/shadow
printf 'quoin.test/theirs:1 t sha256:aa 1\nquoin.test/other:1 t sha256:bb 1\n' >$D/images
ip link add name lxcbr0 type bridge 2>/dev/null || :
ip rule add pref 50 from 10.9.0.7 lookup 100
`

// afterReset prints what an administrator had before and has no longer.
const afterReset = `
for f in /root/.ssh/authorized_keys /etc/sudoers.d/theirs /etc/cron.d/theirs /etc/systemd/system/theirs.service /etc/ssh/sshd_config \
	/etc/udev/rules.d/theirs.rules /opt/cni/bin/bridge /opt/cni/bin/theirs.d /opt/cni/bin/theirs $volumes/theirs~driver \
	/etc/cni/net.d/87-theirs.conflist /etc/containerd/config.toml /etc/sysctl.d/theirs.conf /srv/theirs; do [ -e $f ] || echo "GONE $f"; done
grep -q '^theirs' /etc/passwd || echo GONE user
grep -q quoin.test/theirs:1 $D/images || echo GONE image
ip rule list | grep -q '^50:' || echo GONE rule
`

var leftovers = []leftover{
	{"key of a user who was there",
		`echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITenant tenant' >>/root/.ssh/authorized_keys`,
		"authorized keys of user root", stays},
	{"second file of keys", `echo key >/root/.ssh/authorized_keys2`, "authorized keys of user root", stays},
	{"user", `echo 'tenant:x:1501:1501::/home/tenant:/bin/sh' >>/etc/passwd`, "user tenant", stays},
	{"user who is root by another name",
		`echo 'daemon2:x:0:0::/:/usr/sbin/nologin' >>/etc/passwd`, "user daemon2", stays},
	{"shell for a user who had none",
		`sed -i 's|^\(games:.*\):/usr/sbin/nologin|\1:/bin/sh|' /etc/passwd`, "user games", stays},
	{"password", `sed -i 's|^root:\*|root:$6$salt$hash|' /etc/shadow`, "password of user root", stays},
	{"membership in a group", `sed -i 's|^\(sudo:.*\)$|\1theirs|' /etc/group`, "user theirs in group sudo", stays},
	{"rule of sudo", `echo 'x ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/x`, "/etc/sudoers.d/x", stays},
	{"rule of sudo in a file that was there", `echo more >>/etc/sudoers.d/theirs`, "/etc/sudoers.d/theirs", stays},
	{"rule of sudo in a file whose name is two lines", `echo x >'/etc/sudoers.d/a
b'`, `rule of sudo $'/etc/sudoers.d/a\012b'`, stays},
	{"link whose target says that the answer ends", `ln -s 'y
end
traced cron' /etc/profile.d/x`, "setting of logins /etc/profile.d/x", stays},
	{"setting of sshd", `echo more >>/etc/ssh/sshd_config`, "/etc/ssh/sshd_config", stays},
	{"setting of sshd that is removed", `rm /etc/ssh/sshd_config`, "setting of sshd: gone since the inspection, 1 of", stays},
	{"rule of sudo that is removed with its directory", `rm -r /etc/sudoers.d`, "rule of sudo: gone since the inspection, 1 of",
		stays},
	{"user who is removed", `sed -i /^theirs:/d /etc/passwd`, "user: gone since the inspection, 1 of", stays},
	{"key that is removed", `: >/root/.ssh/authorized_keys`, "authorized key: gone since the inspection, 1 of", stays},
	{"cron job that everybody may write", `chmod 666 /etc/cron.d/theirs`, "cron job /etc/cron.d/theirs", stays},
	{"cron job that is another's", `chown 1500 /etc/cron.d/theirs`, "cron job /etc/cron.d/theirs", stays},
	{"directory of jobs that everybody may write", `chmod 777 /etc/cron.d`, "cron job /etc/cron.d/ ", stays},
	{"cron job", `echo x >/etc/cron.d/x`, "/etc/cron.d/x", stays},
	{"cron job of a user", `mkdir -p /var/spool/cron/crontabs; echo x >/var/spool/cron/crontabs/tenant`,
		"/var/spool/cron/crontabs/tenant", stays},
	{"unit of systemd", `echo x >/etc/systemd/system/x.service`, "/etc/systemd/system/x.service", stays},
	{"unit that is enabled", `mkdir -p /etc/systemd/system/multi-user.target.wants
ln -s /usr/lib/systemd/system/x.service /etc/systemd/system/multi-user.target.wants/x.service`, "wants/x.service", stays},
	{"library that each program loads",
		`for f in /lib/*/libm.so.6 /lib64/libm.so.6; do [ ! -e $f ] || echo $f >/etc/ld.so.preload; done`, "/etc/ld.so.preload", stays},
	{"unit until the next boot",
		`mkdir -p /run/systemd/transient; echo x >/run/systemd/transient/run-u7.service`, "transient/run-u7.service", stays},
	{"unit until the next boot under a name of Quoin's",
		`mkdir -p /run/systemd/transient; echo x >/run/systemd/transient/quoin-run-x.service`, "transient/quoin-run-x.service",
		stays},
	{"unit below /run", `mkdir -p /run/systemd/system; echo x >/run/systemd/system/x.service`,
		"unit until the next boot /run/systemd/system/x.service", stays},
	{"user whose services run without a login",
		`mkdir -p /var/lib/systemd/linger; : >/var/lib/systemd/linger/theirs`, "/var/lib/systemd/linger/theirs", stays},
	{"unit of a user", `mkdir -p /home/theirs/.config/systemd/user; echo x >/home/theirs/.config/systemd/user/x.service`,
		"service of a user /home/theirs/.config/systemd/user/x.service", stays},
	{"script that each login runs", `mkdir -p /etc/profile.d; echo x >/etc/profile.d/x.sh`, "/etc/profile.d/x.sh", stays},
	{"script that writes the message of the day",
		`mkdir -p /etc/update-motd.d; echo x >/etc/update-motd.d/99-x`, "/etc/update-motd.d/99-x", stays},
	{"file that steers what root fetches", `echo insecure >/root/.curlrc`, "/root/.curlrc", stays},
	{"script that each shell of root runs", `echo x >>/root/.bashrc`, "/root/.bashrc", stays},
	{"script that each shell of a user runs", `mkdir -p /home/theirs; echo x >/home/theirs/.bashrc`, "/home/theirs/.bashrc", stays},
	{"script that sshd runs for a user", `mkdir -p /home/theirs/.ssh; echo x >/home/theirs/.ssh/rc`, "/home/theirs/.ssh/rc", stays},
	{"script that each shell runs", `echo more >>/etc/bash.bashrc`, "/etc/bash.bashrc", stays},
	{"command that the package manager runs", `mkdir -p /etc/apt/apt.conf.d; echo x >/etc/apt/apt.conf.d/99x`,
		"/etc/apt/apt.conf.d/99x", stays},
	{"command that runs when logs are rotated", `mkdir -p /etc/logrotate.d; echo x >/etc/logrotate.d/x`, "/etc/logrotate.d/x", stays},
	{"command that runs when a network comes up", `mkdir -p /etc/NetworkManager/dispatcher.d
echo x >/etc/NetworkManager/dispatcher.d/x`, "/etc/NetworkManager/dispatcher.d/x", stays},
	{"command that cloud-init runs at each boot", `mkdir -p /etc/cloud/cloud.cfg.d; echo x >/etc/cloud/cloud.cfg.d/x.cfg`,
		"/etc/cloud/cloud.cfg.d/x.cfg", stays},
	{"setting of systemd for all it runs", `echo x >/etc/systemd/system.conf`, "/etc/systemd/system.conf", stays},
	{"place where programs look for libraries", `mkdir -p /etc/ld.so.conf.d; echo /tmp >/etc/ld.so.conf.d/x.conf`,
		"/etc/ld.so.conf.d/x.conf", stays},
	{"authority that the system trusts", `mkdir -p /usr/local/share/ca-certificates; echo x >/usr/local/share/ca-certificates/x.crt`,
		"ca-certificates/x.crt", stays},
	{"program in the way of another", `echo x >/usr/local/sbin/systemctl`, "/usr/local/sbin/systemctl", stays},
	{"rule of PAM", `echo more >>/etc/pam.d/login`, "/etc/pam.d/login", stays},
	{"setting that a boot gives the kernel", `echo x >/etc/sysctl.d/x.conf`, "/etc/sysctl.d/x.conf", stays},
	{"module that a boot loads",
		`mkdir -p /etc/modules-load.d; echo x >/etc/modules-load.d/x.conf`, "/etc/modules-load.d/x.conf", stays},
	{"setting of containerd", `echo more >>/etc/containerd/config.toml`, "/etc/containerd/config.toml", stays},
	{"mirror that images are pulled from", `mkdir -p /etc/containerd/certs.d/_default
echo '[host."https://mirror.test"]' >/etc/containerd/certs.d/_default/hosts.toml`,
		"certs.d/_default/hosts.toml", stays},
	{"setting of crictl", `echo x >/etc/crictl.yaml`, "setting of containerd /etc/crictl.yaml", stays},
	{"device that containerd brings into pods", `mkdir -p /run/cdi; echo x >/run/cdi/x.yaml`, "/run/cdi/x.yaml", stays},
	{"plugin that containerd runs", `mkdir -p /etc/nri; echo x >/etc/nri/x.conf`, "/etc/nri/x.conf", stays},
	{"mount that a boot makes", `echo 'evil:/x /home/theirs nfs password=secret 0 0' >>/etc/fstab`,
		"line of /etc/fstab for /home/theirs came", stays},
	{"file system mounted over a directory", `mount -t tmpfs none /srv/theirs || exit 77`, "mount at /srv/theirs came", stays},
	{"rule of udev", `echo x >/etc/udev/rules.d/x.rules`, "/etc/udev/rules.d/x.rules", stays},

	{"rules of kube-proxy in iptables", `command -v iptables >/dev/null || exit 77
iptables -N KUBE-SERVICES && iptables -A FORWARD -j KUBE-SERVICES || exit 77`, "chain :KUBE-SERVICES", named},
	{"rules of kube-proxy in ip6tables",
		`ip6tables -N KUBE-SERVICES 2>/dev/null || exit 77`, "chain :KUBE-SERVICES", named},
	{"rules in the other variant of iptables, legacy", `iptables-legacy -N cali-FORWARD 2>/dev/null || exit 77`,
		"chain :cali-FORWARD", named},
	{"rules in the other variant of iptables, nft", `iptables-nft -N cali-FORWARD 2>/dev/null || exit 77`,
		"chain :cali-FORWARD", named},
	{"program that shows what is left, removed", `printf '#!/bin/sh\nexit 1\n' >$D/ipset; chmod +x $D/ipset`,
		"ipset: worked at the inspection", stays},
	{"table of nftables",
		`command -v nft >/dev/null && nft add table ip kube-proxy 2>/dev/null ||
	stub nft 'list tables' 'delete table' 'table ip theirs' 'table ip kube-proxy'`, "nftables table ip kube-proxy", named},
	{"set of ipset", `command -v ipset >/dev/null && ipset create KUBE-CLUSTER-IP hash:ip 2>/dev/null ||
	stub ipset 'list -name' destroy theirs KUBE-CLUSTER-IP`, "ipset KUBE-CLUSTER-IP", named},
	{"virtual server of ipvs",
		`ip link add name kube-ipvs0 type bridge && ip address add 10.96.0.1/32 dev kube-ipvs0 || exit 77
ipvsadm -A -t 10.96.0.1:443 -s rr 2>/dev/null || exit 77`, "virtual server of ipvs", compared},
	{"link of flannel or of a bridge plugin", `ip link add name cni0 type bridge || exit 77`, "link cni0", named},
	{"link of Calico", `ip link add name cali0123456789a type bridge || exit 77`, "link cali0123456789a", named},
	{"link of Cilium", `ip link add name lxc0123456789ab type bridge || exit 77`, "link lxc0123456789ab", named},
	{"link of another plugin", `ip link add name weave type bridge || exit 77`, "link weave", compared},
	{"rule of policy routing",
		`ip rule add pref 9 fwmark 0x200/0xf00 lookup 2004 || exit 77`, "rule of policy routing", compared},
	{"route of a plugin",
		`ip route add blackhole 10.244.7.0/26 proto 80 || exit 77`, "route blackhole 10.244.7.0/26", compared},
	{"configuration of a network plugin",
		`echo x >/etc/cni/net.d/10-x.conflist`, "/etc/cni/net.d/10-x.conflist", compared},
	{"settings of Cilium for the kernel", `echo x >/etc/sysctl.d/99-zzz-override_cilium.conf`,
		"/etc/sysctl.d/99-zzz-override_cilium.conf", compared},
	{"addresses that a network plugin gave",
		`mkdir -p /var/lib/cni/networks/x; echo x >/var/lib/cni/networks/x/10.0.0.2`,
		"/var/lib/cni is not empty", named},
	{"program of a network plugin", `echo x >/opt/cni/bin/x`, "/opt/cni/bin/x", compared},
	{"program in the place of the host's own", `echo x >/opt/cni/bin/x; mv /opt/cni/bin/x /opt/cni/bin/bridge`,
		"/opt/cni/bin/bridge", compared},
	{"the host's own program overwritten", `echo x >/opt/cni/bin/bridge`, "/opt/cni/bin/bridge", compared},

	{"driver of volumes",
		`mkdir -p $volumes/nodeagent~uds; echo x >$volumes/nodeagent~uds/uds`, "volume/exec/nodeagent~uds/uds", compared},

	{"image", `printf 'quoin.test/x:1 t sha256:aa 1\n' >>$D/images`, "image quoin.test/x:1 with sha256:aa", compared},
	{"image under the name of another", `sed -i 's/sha256:bb/sha256:cc/' $D/images`,
		"image quoin.test/other:1 with sha256:cc", compared},
	{"containers", `echo c1 >$D/containers`, "containers of Kubernetes remain", named},
	{"process that held a container which containerd forgot", `cp "$(readlink -f "$(command -v sh)")" $D/containerd-shim-runc-v2
$D/containerd-shim-runc-v2 -c 'sleep 600; :' -namespace k8s.io >/dev/null 2>&1 &
until grep -q containerd-shim /proc/$!/comm; do sleep 0.1; done`, "holds a container of Kubernetes that is gone", named},
	{"process that a pod started on the host itself",
		`mount -t tmpfs none /sys/fs/cgroup; mkdir -p /sys/fs/cgroup/kubepods.slice/x
sleep 600 >/dev/null 2>&1 & echo $! >/sys/fs/cgroup/kubepods.slice/x/cgroup.procs`, "processes of pods run: sleep", named},
	{"process that left the groups of pods", `sleep 600 >/dev/null 2>&1 &`, "", boots},
	{"setting of the running kernel", `echo 9 >/proc/sys/net/ipv4/tcp_syn_retries`, "", boots},
	{"directory of the kubelet", `mkdir -p /var/lib/kubelet/pods/a; echo x >/var/lib/kubelet/pods/a/x`,
		"/var/lib/kubelet is not empty", named},
	{"remains of a CSI driver", `mkdir -p /var/lib/kubelet/plugins/x; echo x >/var/lib/kubelet/plugins/x/state`,
		"/var/lib/kubelet is not empty", named},
	{"mount of a volume", `mkdir -p /var/lib/kubelet/pods/a/v; mount -t tmpfs none /var/lib/kubelet/pods/a/v`,
		"mounts remain", named},
	{"data of etcd",
		`mkdir -p /var/lib/etcd/member; echo x >/var/lib/etcd/member/wal`, "/var/lib/etcd is not empty", named},
	{"certificates and configuration of the node",
		`mkdir -p /etc/kubernetes/pki; echo x >/etc/kubernetes/pki/ca.key`,
		"/etc/kubernetes is not empty", named},
	{"logs of pods",
		`mkdir -p /var/log/pods/a_b_c/d; echo x >/var/log/pods/a_b_c/d/0.log`, "/var/log/pods is not empty", named},
	{"credentials of an administrator of the cluster",
		`mkdir -p /root/.kube; echo x >/root/.kube/config`, "/root/.kube/config",
		compared},
	{"data of a hostPath volume",
		`mkdir -p /opt/local-path-provisioner/pvc-1`, "directory /opt/local-path-provisioner", stays},
	{"data of a hostPath volume, whose name has blanks", `mkdir -p '/srv/customer data'`,
		"directory /srv/customer data", stays},
	{"data of a hostPath volume, whose name is a pattern", `mkdir -p '/srv/[a]*?'`, "directory /srv/[a]*?", stays},
	{"data of a storage plugin", `mkdir -p /var/lib/rook/mon-a`, "directory /var/lib/rook", stays},
	{"data below a directory that was there", `mkdir -p /srv/theirs/x`, "", stays},
	{"another file of the system replaced", `cp /bin/true $D/sshd; echo x >/etc/x.conf`, "", stays},
}

// inspected is what an inspection before the claim makes of the host.
func inspected(t *testing.T) Options {
	t.Helper()
	traces := &inspect.Traces{}
	for line := range strings.SplitSeq(sandbox(t, fixture+verifyFunctions+"set +e\nquoin_left /var/lib/anew\nquoin_traces\n"), "\n") {
		traces.Take(line)
	}
	return Options{Baseline: traces.Encode()}
}

// dirtySandbox makes a host dirty in one way and resets it. What it lacks for that is none of the reset's.
func dirtySandbox(
	t *testing.T, l leftover, o Options,
) (before, after Verification, anewFound, out string, lacks bool) {
	t.Helper()
	g := NewWithT(t)
	out = sandbox(t, fixture+"(\nset +e\n"+run.Prelude+beforeScript+"\n)\nset +e\n(\n"+l.make+
		"\n)\n[ $? != 77 ] || { echo LACKS; exit 0; }\n"+verifyFunction()+"echo BEFORE; verify\necho ANEW\n"+
		verifyFunctions+anew+"echo AFTER\n"+
		stepsOf(t, o)+"reset_all >$D/log 2>&1; grep FAILED $D/log && cat $D/log\nverify\necho STATE\n"+afterReset)
	if strings.Contains(out, "LACKS\n") {
		return before, after, "", out, true
	}
	_, rest, _ := strings.Cut(out, "BEFORE\n")
	dirty, rest, _ := strings.Cut(rest, "ANEW\n")
	anewFound, rest, _ = strings.Cut(rest, "AFTER\n")
	clean, state, _ := strings.Cut(rest, "STATE\n")
	before, err := read(dirty, o)
	g.Expect(err).NotTo(HaveOccurred(), out)
	after, err = read(clean, o)
	g.Expect(err).NotTo(HaveOccurred(), out)
	if !strings.Contains(l.what, "removed") {
		g.Expect(state).To(BeEmpty(), "what an administrator had stays")
	}
	g.Expect(out).NotTo(ContainSubstring("FAILED"))
	return before, after, anewFound, out, false
}

// anew is what an inspection asks of a host that was deleted and registered again, of which nobody has a record. What
// Quoin's own plans leave before a reset would say so by itself.
const anew = "(quoin_left_containers; quoin_left_anew /var/lib/anew)\n"

const fixture = `
mkdir -p /usr/libexec
for d in /root /home /opt /srv /mnt /var/spool /usr/libexec /usr/local/sbin /usr/local/share; do mkdir -p $d; mount -t tmpfs none $d; done
cat >$D/ctr <<'STUB'
#!/bin/sh
case "$*" in
*"containers ls -q") cat $D/containers 2>/dev/null;;
*"containers delete"*) rm -f $D/containers;;
*"images ls") echo REF TYPE DIGEST; cat $D/images;;
*"images rm"*) for last; do :; done; grep -v "^$last " $D/images >$D/images.new; mv $D/images.new $D/images;;
esac
exit 0
STUB
# stub <program> <list> <delete> <thing>...: where the system has no such program, one that has these things.
stub() {
	program=$1 list=$2 delete=$3
	shift 3
	printf '%s\n' "$@" >$D/$program.has
	cat >$D/$program <<STUB
#!/bin/sh
case "\$*" in
"$list") cat $D/$program.has ;;
"$delete "*) w="\$*"; w=\${w#* }; grep -v -- "\$w\$" $D/$program.has >$D/$program.new; mv $D/$program.new $D/$program.has ;;
*) exit 1 ;;
esac
STUB
	chmod +x $D/$program
	hash -r
}
ipset list -name >/dev/null 2>&1 || stub ipset 'list -name' destroy theirs
mount -t sysfs none /sys
` + beforeClaim

func stepsOf(t *testing.T, o Options) string {
	t.Helper()
	dir := t.TempDir()
	var all strings.Builder
	all.WriteString("reset_all() {\n")
	for _, step := range Plan("reset", o).Steps {
		path := dir + "/" + step.Name
		if err := os.WriteFile(path, []byte(run.Prelude+step.Script), 0o600); err != nil {
			t.Fatal(err)
		}
		all.WriteString("/bin/sh " + path + " || echo STEP " + step.Name + " FAILED\n")
	}
	all.WriteString("}\n")
	return all.String()
}

// together are the rows in groups that one host can show: those that stay, each with a finding of its own, and each of the
// others alone. What is taken away or mounted would hide what another one left.
func together(all []leftover) [][]leftover {
	var groups [][]leftover
	var many []leftover
	for _, l := range all {
		alone := l.fate != stays || l.found == "" || strings.Contains(l.make, "mount ") || strings.Contains(l.what, "removed")
		if alone || slices.ContainsFunc(many, func(other leftover) bool { return other.found == l.found }) {
			groups = append(groups, []leftover{l})
		} else {
			many = append(many, l)
		}
	}
	return append(groups, many)
}

// allStay makes one host dirty in all the ways: each is found before and after the reset, and nothing else.
func allStay(t *testing.T, rows []leftover, o Options) {
	t.Helper()
	g := NewWithT(t)
	all := leftover{}
	for _, l := range rows {
		all.make += "(\n" + l.make + "\n) || echo FAILED\n"
	}
	before, after, anew, out, _ := dirtySandbox(t, all, o)
	g.Expect(anew).NotTo(ContainSubstring("found "), out)
	g.Expect(after.Findings).To(HaveLen(len(rows)), out)
	for _, l := range rows {
		itself := ContainElement(And(HaveField("What", ContainSubstring(l.found)),
			HaveField("Fix", ContainSubstring("spec.cleaning.ignoreChanges"))))
		g.Expect(before.Findings).To(itself, l.what)
		g.Expect(after.Findings).To(itself, l.what)
	}
}

// The table of docs/trust.md is what the scripts do: to a host that was made dirty in each way.
func TestWhatAClaimMayLeaveBehind(t *testing.T) {
	o := inspected(t)
	var table strings.Builder
	table.WriteString("| what a claim may leave behind | the reset | the verification | the inspection, registered anew |\n" +
		"|---|---|---|---|\n")
	for _, rows := range together(leftovers) {
		if len(rows) > 1 {
			t.Run(fmt.Sprintf("%d at once", len(rows)), func(t *testing.T) { allStay(t, rows, o) })
			continue
		}
		l := rows[0]
		t.Run(l.what, func(t *testing.T) {
			g := NewWithT(t)
			before, after, anew, out, lacks := dirtySandbox(t, l, o)
			if lacks {
				program := needed.FindString(l.make)
				if _, err := exec.LookPath(program); !slices.Contains(inVM, l.what) && (program == "" || err == nil) {
					t.Fatal("this kernel lacks what the row needs, and no VM shows it: the table would say what nobody saw")
				}
				t.Skip("the kernel, or this system, lacks what it needs")
			}
			if l.fate == named {
				g.Expect(anew).To(And(ContainSubstring("found "), ContainSubstring(l.found)), out)
			} else {
				g.Expect(anew).NotTo(ContainSubstring("found "), out)
			}
			found := func(v Verification) string { return fmt.Sprint(v.Findings) }
			if l.found == "" {
				g.Expect(found(before)).NotTo(ContainSubstring("since the inspection"))
				g.Expect(after.Findings).To(BeEmpty())
				return
			}
			g.Expect(found(before)).To(ContainSubstring(l.found), "while it is there: %s", out)
			if l.fate == stays {
				g.Expect(after.Findings).To(HaveLen(1), out)
				g.Expect(found(after)).To(ContainSubstring(l.found))
				g.Expect(after.Findings[0].Fix).To(ContainSubstring("spec.cleaning.ignoreChanges"))
			} else {
				g.Expect(after.Findings).To(BeEmpty(), out)
			}
		})
	}
	for _, l := range leftovers {
		cleans, finds, anew := "removes it", "finds it", "finds it"
		if l.fate != named {
			anew = "**takes it for the host's own**"
		}
		if l.fate == stays {
			cleans = "leaves it: nothing proves whose it is"
		}
		if l.found == "" {
			cleans, finds = "leaves it", "**does not see it**"
		}
		if l.fate == boots {
			cleans, finds = "leaves it; `spec.cleaning.reboot` ends it", "**does not see it without a boot**"
		}
		what := l.what
		if slices.Contains(inVM, what) {
			what += " (shown in a VM)"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", what, cleans, finds, anew)
	}
	const disk = "data on a disk with the role `Wipe` that discards nothing"
	t.Run(disk, keepsItsMiddle)
	table.WriteString("| " + disk + " | leaves it, but for signatures and both ends | **does not see it** | **does not see it** |\n")
	holdTable(t, "../../docs/trust.md", table.String())
}

// keepsItsMiddle shows what a disk that was wiped still holds.
func keepsItsMiddle(t *testing.T) {
	g := NewWithT(t)
	d := newDisks(t, "wipe-1")
	out := sandbox(t, d.steps("clean", Plan("reset", Options{WipeDisks: []string{"wipe-1"}}).Steps)+ours+`
printf '#!/bin/sh\nexit 1\n' >$D/blkdiscard; chmod +x $D/blkdiscard
disk=`+d.paths["wipe-1"]+`; mkfs.ext4 -q -F $disk; printf secret | dd of=$disk bs=1M seek=12 conv=notrunc,fsync 2>/dev/null
claim reset; clean
dd if=$disk bs=1M skip=12 count=1 2>/dev/null | grep -a -o secret
/bin/sh -s -- /var/lib/quoin -- -- wipe-1 -- <<'VERIFY'
`+d.functions()+verifyFunctions+verifyScript+`
VERIFY
`)
	g.Expect(out).To(ContainSubstring("secret\n"))
	g.Expect(out).NotTo(Or(ContainSubstring("FAILED"), ContainSubstring("found disk")))
}

// holdTable holds the table between two comments of a page against another one, or writes it there.
func holdTable(t *testing.T, page, table string) {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(page)
	g.Expect(err).NotTo(HaveOccurred())
	const begin, end = "<!-- begin: go test ./bootstrap/reset -update -->\n\n", "\n<!-- end -->"
	head, rest, ok := strings.Cut(string(content), begin)
	g.Expect(ok).To(BeTrue(), "the page has a place for the table")
	shown, tail, _ := strings.Cut(rest, end)
	if *update {
		g.Expect(os.WriteFile(page, []byte(head+begin+table+end+tail), 0o644)).To(Succeed()) //nolint:gosec // a page
		return
	}
	g.Expect(shown).To(Equal(table), "run: go test ./bootstrap/reset -run MayLeaveBehind -update")
}

// What the kernel or the system lacks is named, and never passes for clean in silence.
func TestWhatCannotBeSeenIsNamed(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, verifyFunction()+`
for f in iptables-save ip6tables-save iptables-legacy-save ip6tables-legacy-save iptables-nft-save ip6tables-nft-save nft ipset; do
	printf '#!/bin/sh\nexit 1\n' >$D/$f; chmod +x $D/$f
done
verify
`)
	verified, err := read(out, unrecorded)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Join(verified.Skipped, "\n")).To(And(ContainSubstring("rules of iptables: iptables-legacy-save fails"),
		ContainSubstring("tables of nftables: nft fails"), ContainSubstring("sets of ipset: ipset fails"),
		ContainSubstring("what came since the inspection: nothing is on record")))

	verified, err = parse("traced user\ntraced image\nend\n", "end", Options{Baseline: "2:user="})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified).To(Equal(Verification{
		Skipped: []string{"what came since the inspection, of image: not read both then and now"}}))
	verified, err = parse("trace user\tx\t0\nend\n", "end", Options{Baseline: "nonsense", IgnoreChanges: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Skipped).To(HaveLen(1))
}

// The record of an earlier version counts for what it holds, and what it lacks is named: no release of it quarantines the
// hosts that are registered.
func TestTheRecordOfAnEarlierVersionCounts(t *testing.T) {
	g := NewWithT(t)
	hash := func(line string) string {
		sum := sha256.Sum256([]byte(line))
		return hex.EncodeToString(sum[:12])
	}
	o := Options{Baseline: "cron,data,sudo:" + hash("cron\t/etc/cron.d/theirs\tsum") + hash("sudo\t/etc/sudoers.d/gone\tsum")}
	const now = "file cron\t644 0:0\t/etc/cron.d/theirs\tsum\nfile cron\t777 0:0\t/etc/cron.d/\tdirectory\n" +
		"trace data\t/srv/customer data\t\ntraced cron\ntraced data\ntraced sudo\n"
	verified, err := parse(now+"end\n", "end", o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(BeEmpty())
	g.Expect(verified.Skipped).To(ConsistOf(ContainSubstring("what is gone since the inspection")))
	for _, came := range []string{"file cron\t644 0:0\t/etc/cron.d/theirs\tother\n", "file sudo\t644 0:0\t$'a\\012b'\tsum\n"} {
		verified, err = parse(came+now+"end\n", "end", o)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verified.Findings).To(HaveLen(1), came)
	}
}

// Who removes what shows his deeds has not undone them: on a shared host that is a finding, with what is to be brought
// back.
func TestWhatCannotBeSeenAnyMoreIsFoundOnASharedHost(t *testing.T) {
	g := NewWithT(t)
	before := &inspect.Traces{Kinds: []string{"password", "tool"}, All: []inspect.Trace{{Kind: "tool", Name: "nft"},
		{Kind: "tool", Name: "tc"}}}
	o := Options{Baseline: before.Encode()}
	const now = "trace tool\ttc\t\ntrace tool\tipset\t\ntraced tool\nend\n"
	verified, err := parse(now, "end", o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Skipped).To(BeEmpty())
	g.Expect(verified.Findings).To(ConsistOf(HaveField("What", ContainSubstring("nft: worked at the inspection")),
		HaveField("What", ContainSubstring("password of user: could be read"))))
	o.IgnoreChanges = true
	verified, err = parse(now, "end", o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(BeEmpty())
	g.Expect(strings.Join(verified.Skipped, "\n")).To(And(ContainSubstring("of password: not read"), ContainSubstring("nft: worked")))
}

// What a reset disables itself is not gone, nor what comes and goes; what changed is found once.
func TestWhatGoesByItselfIsNoFinding(t *testing.T) {
	g := NewWithT(t)
	before := &inspect.Traces{Kinds: []string{"image", "unit"}, All: []inspect.Trace{
		{Kind: "image", Name: "a", Value: "sha256:a"}, {Kind: "unit", Name: "/etc/systemd/system/a.service", Value: "x", How: "644 0:0"},
		{Kind: "unit", Name: "/etc/systemd/system/multi-user.target.wants/kubelet.service", Value: "-> x"}}}
	verified, err := parse("file unit\t666 0:0\t/etc/systemd/system/a.service\tx\ntraced unit\ntraced image\nend\n", "end",
		Options{Baseline: before.Encode()})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(ConsistOf(HaveField("What", ContainSubstring("a.service came or changed"))))
}

// A shared host of which nothing is on record, because an earlier version had none or because it had more than fits, is
// not clean: what an administrator may do about it is in the finding.
func TestASharedHostWithoutARecordIsNotClean(t *testing.T) {
	g := NewWithT(t)
	many := inspect.Traces{Kinds: []string{"user"}}
	for i := range inspect.MaxTraces + 1 {
		many.All = append(many.All, inspect.Trace{Kind: "user", Name: strconv.Itoa(i)})
	}
	for _, baseline := range []string{"", many.Encode(), "nonsense"} {
		verified, err := parse("trace user\tx\t0\ntraced user\nend\n", "end", Options{Baseline: baseline})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verified.Skipped).To(BeEmpty())
		g.Expect(verified.Findings).To(ConsistOf(HaveField("Fix", And(ContainSubstring("spec.cleaning.ignoreChanges"),
			ContainSubstring("register it again")))))

		verified, err = parse("trace user\tx\t0\ntraced user\nend\n", "end", Options{Baseline: baseline, IgnoreChanges: true})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verified.Findings).To(BeEmpty())
		g.Expect(verified.Skipped).To(ConsistOf(ContainSubstring("what came since the inspection")))
	}
}

// The key by which we came may have been exchanged during the claim; another one of the same user may not.
func TestTheKeyInUseIsNoChange(t *testing.T) {
	g := NewWithT(t)
	const blob = "AAAAC3NzaC1lZDI1NTE5AAAAIJ4V6Zd3xVYQ0Yd7cCk9F0TtqLrkVn3GJ8T3K7Wb5H2M"
	line := "trace key\troot\tssh-ed25519 " + blob + " rotated\ntraced key\nend\n"
	verified, err := parse(line, "end", Options{Baseline: "key:"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(HaveLen(1))
	own := fingerprint(inspect.Trace{Value: "ssh-ed25519 " + blob})
	g.Expect(verified.Findings[0].What).To(ContainSubstring(own))
	verified, err = parse(line, "end", Options{Baseline: "key:", OwnKey: own})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(BeEmpty())
}

// ends answers a verification by what was asked of it: what it says is followed by the end that it was given.
type ends struct {
	ssh.Host
	said      string
	forged    bool
	truncated bool
}

func (e ends) Run(_ context.Context, command ssh.Command) (ssh.Result, error) {
	lines := strings.Split(strings.TrimSpace(command.Script), "\n")
	end := strings.Trim(strings.TrimPrefix(lines[len(lines)-1], "echo "), "'")
	if e.forged {
		end = "end"
	}
	return ssh.Result{Stdout: e.said + end + "\n", Truncated: e.truncated}, nil
}

// A host that was a tenant's may print lines of his, and so many that what follows them is lost.
func TestAnAnswerThatIsCutOffIsNoneWhateverItSays(t *testing.T) {
	g := NewWithT(t)
	const said = "trace sshd\t/etc/ssh/x\t-> y\nend\ntraced sshd\n"
	o := Options{Baseline: "sshd:"}
	verified, err := Verify(t.Context(), ends{said: said}, o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(HaveLen(1))
	_, err = Verify(t.Context(), ends{said: said, forged: true}, o)
	g.Expect(err).To(MatchError(ContainSubstring("cut off")))
	_, err = Verify(t.Context(), ends{said: said, truncated: true}, o)
	g.Expect(err).To(MatchError(inspect.ErrTooMuch))
}

// What an earlier version noted before a claim says nothing about what it did not look at.
func TestAnEarlierNoteKeepsWhatItDidNotLookAt(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, fixture+`mkdir -p $QUOIN_ROOT/before /root/.kube; : >$QUOIN_ROOT/before/dirs
echo theirs >/root/.kube/config
`+stepsOf(t, Options{})+`reset_all >$D/log 2>&1; cat /root/.kube/config`)
	g.Expect(out).To(ContainSubstring("theirs"))
}

// What rewrites itself on a host that nobody touched is no change.
func TestWhatKubectlRewritesIsNoTrace(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, fixture+inspect.TraceFunctions+`mkdir -p /root/.kube/cache/http
echo x >/root/.kube/cache/http/x; echo x >/root/.kube/config; quoin_traces`)
	g.Expect(out).To(And(ContainSubstring("/root/.kube/config"), ContainSubstring("traced kube\n"),
		Not(ContainSubstring("/root/.kube/cache"))))
}

// A plan that runs is Quoin's own; a unit that is called like one and has no plan is somebody's.
func TestAPlanThatRunsIsNoTrace(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, fixture+inspect.TraceFunctions+`mkdir -p /run/systemd/transient $QUOIN_ROOT/runs/stage-1
for id in stage-1 stage-2 '' .; do echo x >/run/systemd/transient/quoin-run-$id.service; done
for f in session-3.scope x.slice x.slice-y.service; do echo x >/run/systemd/transient/$f; done; quoin_trace_services`)
	g.Expect(strings.Count(out, "transient/")).To(Equal(4), out)
	g.Expect(out).To(And(ContainSubstring("quoin-run-stage-2.service"), ContainSubstring("x.slice-y.service")))
}

// The routes of a bird that runs on the host itself come and go.
func TestRoutesOfTheHostsOwnBirdAreNoTraces(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, fixture+inspect.TraceFunctions+`ip route add blackhole 10.244.7.0/26 proto 12
ip route list | grep -q 'proto bird' || { echo LACKS; exit 0; }
quoin_trace_network; cp "$(command -v sleep)" $D/bird; $D/bird 60 & sleep 0.2; echo RUNS; quoin_trace_network; kill $!`)
	if strings.Contains(out, "LACKS") {
		t.Skip("this system has no name for bird's routes")
	}
	dead, alive, _ := strings.Cut(out, "RUNS")
	g.Expect(dead).To(ContainSubstring("trace route\tblackhole 10.244.7.0/26"))
	g.Expect(alive).NotTo(ContainSubstring("trace route"))
}

// An owner who shares no hosts may let changes pass, and then keeps the images too.
func TestChangesPassOnAPersonsWord(t *testing.T) {
	g := NewWithT(t)
	o := inspected(t)
	o.IgnoreChanges = true
	image := leftover{make: "printf 'quoin.test/x:1 t sha256:aa 1\\n' >>$D/images; echo x >/etc/cron.d/x"}
	before, after, _, out, _ := dirtySandbox(t, image, o)
	g.Expect(fmt.Sprint(before.Findings)).NotTo(ContainSubstring("cron"))
	g.Expect(after.Findings).To(BeEmpty())
	g.Expect(after.Skipped).To(ContainElement(ContainSubstring("cron job /etc/cron.d/x")))
	_, clean, _ := strings.Cut(out, "AFTER\n")
	g.Expect(clean).To(ContainSubstring("trace image\tquoin.test/x:1"))
}

// A host that was registered anew has no baseline, so an inspection looks for what needs none.
func TestAnInspectionFindsWhatAClusterLeft(t *testing.T) {
	for name, c := range map[string]struct {
		left  string
		found []string
	}{
		"rules": {"iptables -N KUBE-SERVICES || exit 77", []string{"KUBE-SERVICES"}},
		"links": {"ip link add name cni0 type bridge && ip link add name cali0123456789a type bridge || exit 77",
			[]string{"link cni0", "link cali0123456789a"}},
		"everything else": {`mkdir -p /var/log/pods/a_b_c /var/lib/quoin/runs/provision-1 /run/kubeadm /var/lib/cni /etc/keepalived
stub ipset 'list -name' destroy KUBE-CLUSTER-IP
echo c1 >$D/containers; echo x >/run/kubeadm/x; echo x >/var/lib/cni/x; echo '# Written by Quoin.' >/etc/keepalived/keepalived.conf`,
			[]string{"/var/log/pods", "ipset KUBE-CLUSTER-IP", "containers of Kubernetes remain: c1", "runs/provision-1 remains",
				"/run/kubeadm is not empty", "/var/lib/cni is not empty", "keepalived.conf is the one of a node"}},
		// Of podman, nerdctl and LXC, which come without a cluster; and what was staged.
		"of others": {`iptables -N CNI-FORWARD; ip link add name lxc-abcdefabcde type bridge; ip link add name lxcabc type bridge
mkdir -p /var/lib/cni/networks/x /var/lib/quoin/runs/stage-1 /var/lib/quoin/cache; echo x >/var/lib/cni/networks/x/10.88.0.2
printf '#!/bin/sh\n' >$D/podman; chmod +x $D/podman`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			// What the shell has run once it looks for no more.
			out := sandbox(t, fixture+"set +e\n("+c.left+"\n)\n[ $? != 77 ] || { echo LACKS; exit 0; }\nhash -r\n(\n"+
				inspect.Script+"\n) 2>/dev/null\n")
			if strings.Contains(out, "LACKS\n") {
				t.Skip("the kernel, or this system, lacks what it needs")
			}
			facts, err := inspect.Parse(out)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(facts.KubernetesPresent == nil).To(Equal(c.found == nil), "%q", facts.KubernetesPresent)
			for _, found := range c.found {
				g.Expect(facts.KubernetesPresent).To(ContainElement(ContainSubstring(found)))
			}
		})
	}
}
