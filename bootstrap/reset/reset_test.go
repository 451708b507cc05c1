// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

var options = Options{VirtualAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")}}

// unrecorded is a host of which nothing is on record, and nobody else's.
var unrecorded = Options{IgnoreChanges: true}

// sandbox runs a script in namespaces of its own, with private copies of every directory that a reset touches, so that
// this machine's own are out of reach. systemctl, ctr and kubeadm are stubs.
func sandbox(t *testing.T, script string) string {
	t.Helper()
	if os.Getuid() != 0 || exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "true").
		Run() != nil {
		t.Skip("needs root and the right to make namespaces")
	}
	dir := t.TempDir()
	for name, body := range map[string]string{
		"systemctl": `echo "systemctl $*" >>` + dir + `/calls`,
		"kubeadm":   `echo "kubeadm $*" >>` + dir + `/calls; exit 1`,
		"ctr": `case "$*" in
*"containers ls -q") cat ` + dir + `/containers 2>/dev/null;;
*"containers delete"*) rm -f ` + dir + `/containers;;
esac`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\nexit 0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mknod(filepath.Join(dir, "containerd.sock"), syscall.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	setup := `set -eu
mkdir ` + dir + `/etc
cp -a /etc/passwd /etc/group /etc/alternatives ` + dir + `/etc/
mount --bind ` + dir + `/etc /etc
mount -t tmpfs none /var/lib
mount -t tmpfs none /run
mkdir /run/containerd
ln -s ` + dir + `/containerd.sock /run/containerd/
mount -t tmpfs none /var/log
mount -t tmpfs none /usr/local/bin
ip link set lo up
PATH=` + dir + `:$PATH
QUOIN_ROOT=/var/lib/quoin QUOIN_RUN_DIR=/var/lib/quoin/runs/reset D=` + dir + `
mkdir -p "$QUOIN_RUN_DIR"
export PATH QUOIN_ROOT QUOIN_RUN_DIR D
`
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--propagation", "private",
		"/bin/sh")
	cmd.Stdin = strings.NewReader(setup + script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// scripts writes the plan's steps as a function of the sandbox, each in a shell of its own as the runner does it.
func scripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var all strings.Builder
	all.WriteString("reset_all() {\n")
	for _, step := range Plan("reset", options).Steps {
		path := filepath.Join(dir, step.Name)
		if err := os.WriteFile(path, []byte(run.Prelude+step.Script), 0o600); err != nil {
			t.Fatal(err)
		}
		all.WriteString("/bin/sh " + path + " || { echo STEP " + step.Name + " FAILED; exit 1; }\n")
	}
	all.WriteString("}\n")
	return all.String()
}

const dirt = `
mkdir -p /etc/kubernetes/manifests /var/lib/etcd/member /var/lib/custom/member /var/lib/kubelet/pods/a/volumes/b /etc/cni/net.d /run/cluster-api /etc/keepalived
echo '    - --data-dir=/var/lib/custom' >/etc/kubernetes/manifests/etcd.yaml
echo x >/var/lib/etcd/member/wal; echo x >/var/lib/custom/member/wal
mount -t tmpfs none /var/lib/kubelet/pods/a/volumes/b
echo data >/var/lib/kubelet/pods/a/volumes/b/precious
echo 87-podman.conflist >/var/lib/quoin/cni-before
touch /etc/cni/net.d/87-podman.conflist /etc/cni/net.d/10-lab.conflist /run/cluster-api/bootstrap-success.complete
echo '# Written by Quoin. Do not edit: cleaning the host removes this file.' >/etc/keepalived/keepalived.conf
ip address add 10.0.0.100/32 dev lo
mkdir -p /var/log/pods/kube-system_etcd-n_0/etcd /var/log/containers
echo secret >/var/log/pods/kube-system_etcd-n_0/etcd/0.log; echo theirs >/var/log/theirs
ln -s /var/log/pods/kube-system_etcd-n_0/etcd/0.log /var/log/containers/etcd-n.log
echo c1 >$D/containers
. $D/prelude
echo theirs >/etc/hosts; echo new >$D/new
quoin_put $D/new /etc/hosts 0644
quoin_put $D/new /etc/ours/deep/file 0600
echo untouched >/etc/theirs
quoin_record 'unit kubelet.service'
if command -v iptables >/dev/null; then
	iptables -t nat -N KUBE-SERVICES; iptables -t nat -N KUBE-SVC; iptables -t nat -A KUBE-SERVICES -m comment --comment "a b" -j KUBE-SVC
	iptables -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
	iptables -N CNI-FORWARD; iptables -A FORWARD -j CNI-FORWARD; iptables -A FORWARD -s 10.9.9.9 -j DROP; iptables -N THEIRS
fi
`

const state = `
echo "hosts=$(cat /etc/hosts) theirs=$(cat /etc/theirs) log=$(cat /var/log/theirs) cni=$(ls /etc/cni/net.d | tr '\n' ,)"
for p in /etc/ours /etc/kubernetes /var/lib/etcd /var/lib/custom /var/lib/kubelet /var/log/pods /var/log/containers /run/cluster-api /etc/keepalived/keepalived.conf /var/lib/quoin/created; do [ ! -e $p ] || echo "LEFT $p"; done
if command -v iptables >/dev/null; then echo "rules=$({ iptables-save; ip6tables-save; } | grep -E '^(-A|:THEIRS|:KUBE|:CNI)' | tr '\n' ';')"; else echo 'rules=:THEIRS - [0:0];-A FORWARD -s 10.9.9.9/32 -j DROP;'; fi
cat $D/calls | sort -u
`

func TestResetLeavesWhatItFoundAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	verify := "verify() { /bin/sh -s -- /var/lib/quoin 6443 10250 -- 10.0.0.100 <<'VERIFY'\n" + verifyFunctions + verifyScript +
		"echo end\nVERIFY\n}\n"
	out := sandbox(t, prelude()+verify+scripts(t)+"set +e\n"+dirt+"echo BEFORE; verify; reset_all; echo AFTER; verify; "+
		"reset_all; echo AGAIN; verify"+state)
	before, rest, _ := strings.Cut(out, "AFTER\n")
	after, again, _ := strings.Cut(rest, "AGAIN\n")
	t.Log(out)

	_, before, _ = strings.Cut(before, "BEFORE\n")
	verified, err := read(before, unrecorded)
	g.Expect(err).NotTo(HaveOccurred())
	var what []string
	for _, f := range verified.Findings {
		what = append(what, f.What)
		g.Expect(f.Fix).NotTo(BeEmpty())
	}
	g.Expect(strings.Join(what, "\n")).To(And(ContainSubstring("/etc/kubernetes is not empty"),
		ContainSubstring("/var/lib/etcd is not empty"),
		ContainSubstring("containers of Kubernetes remain: c1"), ContainSubstring("mounts remain"),
		ContainSubstring("still holds the virtual address 10.0.0.100"),
		ContainSubstring("created still lists")))

	for _, text := range []string{after, again} {
		verified, err = read(text, unrecorded)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(verified.Findings).To(BeEmpty())
	}
	g.Expect(out).NotTo(ContainSubstring("FAILED"))
	g.Expect(again).To(ContainSubstring("hosts=theirs theirs=untouched log=theirs cni=87-podman.conflist,"))
	g.Expect(again).NotTo(ContainSubstring("LEFT"))
	g.Expect(again).To(MatchRegexp(`rules=:THEIRS - \[0:0\];-A FORWARD -s 10.9.9.9/32 -j DROP;\n`))
	g.Expect(again).To(ContainSubstring("kubeadm reset --force"))
	g.Expect(again).To(ContainSubstring("systemctl disable --now keepalived.service"))
}

// What the reset removes is looked for, each by itself: a person may have removed the rest.
func TestWhatAResetRemovesIsLookedFor(t *testing.T) {
	for name, c := range map[string]struct{ left, found string }{
		"a journal":       {"mkdir -p $QUOIN_ROOT/runs/provision-0123abcd", "provision-0123abcd"},
		"another journal": {"mkdir -p $QUOIN_ROOT/runs/addons-1.35.4", "addons-1.35.4"},
		"a snapshot":      {"mkdir -p $QUOIN_ROOT/recovery/a", "/recovery"},
		"an original":     {"mkdir -p $QUOIN_ROOT/originals/etc", "/originals"},
		"what was before": {"mkdir -p $QUOIN_ROOT/before", "/before"},
		"the arguments":   {"touch $QUOIN_ROOT/kubelet.env", "kubelet.env"},
		"a sentinel": {"mkdir -p /run/cluster-api; touch /run/cluster-api/bootstrap-success.complete",
			"bootstrap-success"},
		"bootstrap data": {"mkdir -p /run/kubeadm; touch /run/kubeadm/kubeadm.yaml", "/run/kubeadm is not empty"},
		"etcd's data elsewhere, behind a blank": {"mkdir -p '/var/lib/a b/member/wal'; touch '/var/lib/a b/member/wal/x'; " +
			"echo '/var/lib/a b' >$QUOIN_ROOT/etcd-data-dir", "/var/lib/a b is not empty: /var/lib/a b/member/wal/x"},
		"etcd's data elsewhere, named as a pattern": {"mkdir -p '/var/lib/x*/member/wal' /var/lib/xy; " +
			"touch '/var/lib/x*/member/wal/x' /var/lib/xy/theirs; echo '/var/lib/x*' >$QUOIN_ROOT/etcd-data-dir",
			"/var/lib/x* is not empty"},
		"logs": {"mkdir -p /var/log/pods/a_b_c/d", "/var/log/pods is not empty"},
		"links to logs": {"mkdir -p /var/log/containers; ln -s /gone /var/log/containers/a",
			"/var/log/containers is not empty"},
		"keepalived": {"mkdir -p /etc/keepalived; echo '# Written by Quoin. Do not edit: cleaning the host removes " +
			"this file.' >/etc/keepalived/keepalived.conf", "keepalived.conf"},
		"another's":        {"mkdir -p /etc/keepalived; echo '# mine' >/etc/keepalived/keepalived.conf", ""},
		"an enabled unit":  {"echo 'echo enabled' >>$D/systemctl", "the kubelet starts with the host"},
		"its own journal":  {"mkdir -p $QUOIN_ROOT/runs/reset-0123abcd-2 $QUOIN_ROOT/runs/scrub-17", ""},
		"what was staged":  {"mkdir -p $QUOIN_ROOT/runs/stage-1 $QUOIN_ROOT/cache", ""},
		"nothing whatever": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out := sandbox(t, prelude()+scripts(t)+verifyFunction()+"sed -i '/^exit 0$/d' $D/systemctl\n"+c.left+
				"\nverify; reset_all; echo RESET; verify\n")
			g.Expect(out).NotTo(ContainSubstring("FAILED"))
			before, after, _ := strings.Cut(out, "RESET\n")
			verified, err := read(before, unrecorded)
			found := verified.Findings
			g.Expect(err).NotTo(HaveOccurred())
			if c.found == "" {
				g.Expect(found).To(BeEmpty())
			} else {
				g.Expect(found).To(HaveLen(1))
				g.Expect(found[0].What).To(ContainSubstring(c.found))
				g.Expect(found[0].Fix).NotTo(BeEmpty())
			}
			if name != "an enabled unit" { // that stub never does anything
				verified, err = read(after, unrecorded)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(verified.Findings).To(BeEmpty())
			}
		})
	}
}

func prelude() string { return "cat >$D/prelude <<'PRELUDE'\n" + run.Prelude + "\nPRELUDE\n" }

func TestKeepalivedGoesFirst(t *testing.T) {
	g := NewWithT(t)
	plan := Plan("reset-1", options)
	g.Expect(plan.Validate()).To(Succeed())
	g.Expect(plan.Steps[0].Name).To(Equal("release-virtual-address"))
	g.Expect(plan.Steps[1].Name).To(Equal("stop-kubelet"))
	for _, step := range plan.Steps {
		g.Expect(step.Once).To(BeFalse())
	}
}

// mute answers without the closing word, as a connection that breaks does.
type mute struct{ ssh.Host }

func (mute) Run(context.Context, ssh.Command) (ssh.Result, error) { return ssh.Result{}, nil }

func TestSilenceIsNotCleanliness(t *testing.T) {
	_, err := Verify(context.Background(), mute{}, options)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("cut off")))
}

func TestAMountWhoseServerIsGoneIsDetached(t *testing.T) {
	g := NewWithT(t)
	script := `
mkdir -p /var/lib/kubelet/pods/a /var/lib/quoin-mount
mount -t tmpfs none /var/lib/kubelet/pods/a
mount -t tmpfs none /var/lib/quoin-mount
echo 'mount /var/lib/quoin-mount' >"$QUOIN_ROOT/created"
real=$(command -v umount) limit=$(command -v timeout)
printf '#!/bin/sh\n[ "$1" = -l ] || exec sleep 3600\nexec %s "$@"\n' "$real" >$D/umount
printf '#!/bin/sh\nshift\nexec %s 1 "$@"\n' "$limit" >$D/timeout
printf '#!/bin/sh\nexec sleep 3600\n' >$D/mountpoint
chmod +x $D/umount $D/timeout $D/mountpoint
set +e
` + run.Prelude + stepFunctions + `
reset_mounts
reset_files
echo "left=$(grep -c -e /var/lib/kubelet -e quoin-mount /proc/self/mounts)"
`
	g.Expect(sandbox(t, script)).To(ContainSubstring("left=0"))
}

func verifyFunction() string {
	return "verify() { /bin/sh -s -- /var/lib/quoin 6443 -- <<'VERIFY'\n" + verifyFunctions + verifyScript + "echo end\nVERIFY\n}\nset +e\n"
}

// read parses the first answer in what a sandbox printed.
func read(out string, o Options) (Verification, error) {
	const end = "end"
	if answer, _, ok := strings.Cut(out, "\n"+end+"\n"); ok {
		out = answer + "\n" + end + "\n"
	}
	return parse(out, end, o)
}

func TestAZombieIsNoProcess(t *testing.T) {
	g := NewWithT(t)
	// The shell that would collect the first one has become sleep, which never does.
	out := sandbox(t, verifyFunction()+`
cp "$(command -v sleep)" $D/etcd; cp "$(command -v sleep)" $D/kubelet
sh -c "$D/etcd 0 & exec sleep 60" &
$D/kubelet 60 &
until grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done
verify
kill $!
`)
	g.Expect(out).To(ContainSubstring("process kubelet runs"))
	g.Expect(out).NotTo(ContainSubstring("process etcd"))
}

// containerd forgets a shim whose start or end it did not see through, and lists no container for it.
func TestAShimThatOutlivesItsContainerIsFoundAndEnded(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, verifyFunction()+`
cp "$(readlink -f "$(command -v sh)")" $D/containerd-shim-runc-v2
$D/containerd-shim-runc-v2 -c 'sleep 600; :' -namespace k8s.io -id a &
ours=$!
$D/containerd-shim-runc-v2 -c 'sleep 600; :' -namespace moby -id b &
theirs=$!
sleep 0.2
verify >$D/before
grep "process $ours holds a container of Kubernetes that is gone" $D/before && ! grep "process $theirs" $D/before && echo found
`+run.Prelude+stepFunctions+`
reset_pods
kill -0 $theirs && echo left
verify >$D/after
grep -c "holds a container" $D/after || echo ended
kill -s KILL $theirs
`)
	g.Expect(out).To(And(ContainSubstring("found\n"), ContainSubstring("left\n"), ContainSubstring("ended\n")), out)
}

// The groups of pods have other names by the version and the driver of cgroups, and by a setting of the kubelet.
func TestAProcessThatOutlivesItsPodIsFoundAndEnded(t *testing.T) {
	for group, pods := range map[string]bool{
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-y.scope": true,
		"kubepods/burstable/podx/y":                     true,
		"pids/kubepods.slice/kubepods-besteffort.slice": true,
		"memory/kubepods/podx/y":                        true,
		"kubelet.slice/kubelet-kubepods.slice":          true,
		"system.slice/theirs.service":                   false,
		"docker/0123/kubepods.slice/podx":               false,
		"system.slice/docker-0123.scope/kubepods/podx":  false,
	} {
		t.Run(group, func(t *testing.T) {
			g := NewWithT(t)
			out := sandbox(t, verifyFunction()+`
mount -t tmpfs none /sys/fs/cgroup; group="/sys/fs/cgroup/`+group+`"; mkdir -p "$group"
sleep 600 & pid=$!
printf '0\n%s\n' $pid >"$group/cgroup.procs"
verify | grep "processes of pods run: sleep .*kill -s KILL $pid"
`+run.Prelude+stepFunctions+`
reset_pods
grep -q '^State:.[SR]' /proc/$pid/status 2>/dev/null && echo LIVES
kill -s KILL $pid 2>/dev/null || :
`)
			if pods {
				g.Expect(out).To(ContainSubstring("found processes of pods run: sleep"))
				g.Expect(out).NotTo(ContainSubstring("LIVES"))
			} else {
				g.Expect(out).To(Equal("LIVES\n"))
			}
		})
	}
}

func TestASlowContainerdIsNoFinding(t *testing.T) {
	g := NewWithT(t)
	out := sandbox(t, verifyFunction()+`
printf '#!/bin/sh\nexit 124\n' >$D/timeout; chmod +x $D/timeout
verify; echo "slow=$?"
printf '#!/bin/sh\nexit 1\n' >$D/timeout
verify; echo "broken=$?"
`)
	slow, broken, _ := strings.Cut(out, "slow=1\n")
	g.Expect(slow).To(ContainSubstring("it is asked again"))
	g.Expect(slow).NotTo(Or(ContainSubstring("found"), ContainSubstring("\nend")))
	g.Expect(broken).To(And(ContainSubstring("found containerd does not answer"), ContainSubstring("broken=0")))
}

// Packages go after the last program that is one of them ran, and while the list of them is there.
func TestPackagesGoBetweenKubeadmAndTheList(t *testing.T) {
	g := NewWithT(t)
	var names []string
	for _, step := range Plan("reset", options).Steps {
		names = append(names, step.Name)
	}
	at := func(name string) int { return slices.Index(names, name) }
	g.Expect(at("remove-packages")).To(And(BeNumerically(">", at("kubeadm-reset")),
		BeNumerically("<", at("remove-files"))))
	g.Expect(at("kubeadm-reset")).To(BeNumerically(">=", 0))
}
