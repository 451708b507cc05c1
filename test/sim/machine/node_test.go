// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/apiserver"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

const version = "v1.36.3"

// bundle answers for a bundle of one version below http://bundles/<version>.
type bundle map[string]string

func newBundle() bundle {
	b := bundle{
		"bin/kubeadm":           string(machine.Executable("kubeadm", version)),
		"bin/kubelet":           string(machine.Executable("kubelet", version)),
		"images/proxy.tar":      "quoin.test/kube-proxy:" + version + "\n",
		"units/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n[Install]\nWantedBy=multi-user.target\n",
		"units/10-kubeadm.conf": "[Service]\nEnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\nEnvironmentFile=-/var/lib/quoin/kubelet.env\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBEADM_ARGS $QUOIN_KUBELET_ARGS\n",
	}
	file := func(path string, kind artifacts.Kind, install, mode string) artifacts.File {
		return artifacts.File{Path: path, SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(b[path]))), Size: int64(len(b[path])), Kind: kind, Install: install, Mode: mode,
			Roles: []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}}
	}
	image := file("images/proxy.tar", artifacts.Image, "", "")
	image.Images = []string{strings.TrimSpace(b["images/proxy.tar"])}
	manifest, _ := json.Marshal(artifacts.Manifest{KubernetesVersion: version, OS: "linux", Architecture: "amd64", Files: []artifacts.File{
		file("bin/kubeadm", artifacts.Binary, "/usr/bin/kubeadm", "0755"), file("bin/kubelet", artifacts.Binary, "/usr/bin/kubelet", "0755"), image,
		file("units/kubelet.service", artifacts.Unit, "/etc/systemd/system/kubelet.service", "0644"),
		file("units/10-kubeadm.conf", artifacts.Unit, "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "0644")}})
	b["manifest.json"] = string(manifest)
	return b
}

func (b bundle) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "bundles" {
		return nil, errors.New("no route to host")
	}
	recorder := httptest.NewRecorder()
	content, ok := b[strings.TrimPrefix(r.URL.Path, "/"+version+"/")]
	if !ok {
		http.NotFound(recorder, r)
	} else {
		http.ServeContent(recorder, r, "", time.Time{}, strings.NewReader(content))
	}
	return recorder.Result(), nil
}

// node gives a machine the least of what Kubernetes brings.
func node(o *machine.Options) {
	o.Web, o.Speed = newBundle(), 50
	o.Disks = []machine.Disk{{Name: "sda", WWN: "0x1", Bytes: 100 << 30, System: true}, {Name: "sdb", Serial: "data-1", Bytes: 1 << 40},
		{Name: "sdc", Serial: "wipe-1", Bytes: 1 << 40, FileSystem: "xfs", Label: "old"}}
	o.Programs = map[string]machine.Program{"ctr": ctr}
	o.Installable = map[string]machine.Program{"kubeadm": kubeadm, "kubelet": kubelet}
}

func ctr(_ context.Context, p *machine.Process) int {
	const store = "/var/lib/containerd/"
	args := p.Args[1:]
	if len(args) > 0 && args[0] == "version" {
		p.Printf("Client:\nServer:\n")
		return 0
	}
	if len(args) < 4 || args[0] != "-n" {
		return p.Fail("%q", p.Args)
	}
	name := func(n string) string { return store + strings.ReplaceAll(n, "/", "_") }
	switch strings.Join(args[2:4], " ") {
	case "images ls":
		files, _ := p.ReadDir(store)
		for _, f := range files {
			content, _ := p.ReadFile(store + f)
			if len(args) > 4 && args[4] == "-q" {
				p.Printf("%s\n", strings.Fields(string(content))[0])
			} else {
				p.Printf("%s", content)
			}
		}
	case "images import":
		content, err := p.ReadFile(args[4])
		if err != nil {
			return p.Fail("%v", err)
		}
		for _, n := range strings.Fields(string(content)) {
			if err := p.WriteFile(name(n), fmt.Appendf(nil, "%s type sha256:%x size -\n", n, sha256.Sum256(content)), 0o600); err != nil {
				return p.Fail("%v", err)
			}
		}
	case "images label":
		content, _ := p.ReadFile(name(args[4]))
		_ = p.WriteFile(name(args[4]), []byte(strings.Replace(string(content), " -\n", " "+args[5]+"\n", 1)), 0o600)
	case "images rm":
		_ = p.Remove(name(args[4]))
	case "tasks ls", "containers ls", "sandboxes ls":
	default:
		return p.Fail("%q", p.Args)
	}
	return 0
}

func kubeadm(_ context.Context, p *machine.Process) int {
	if version := machine.ExecutableText(p.Image); version == "" {
		return p.Fail("no version")
	}
	switch p.Args[1] {
	case "init", "join":
		for path, text := range map[string]string{"/etc/kubernetes/kubelet.conf": "secret", "/etc/kubernetes/manifests/etcd.yaml": "    - --data-dir=/var/lib/etcd\n",
			"/var/lib/etcd/member/wal": "x", "/var/lib/kubelet/config.yaml": "x", "/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=\"--a --b=c\"\n", "/var/lib/kubelet/pods/p/v/x": ""} {
			_ = p.MkdirAll(path[:strings.LastIndex(path, "/")], 0o755)
			if err := p.WriteFile(path, []byte(text), 0o600); err != nil {
				return p.Fail("%v", err)
			}
		}
		_ = p.Machine.Mount("/var/lib/kubelet/pods/p/v")
		p.Machine.AddLink(machine.Link{Name: "cni0", Kind: "bridge"})
		_ = p.Machine.AddRules(rules...)
		return p.Run("systemctl", "start", "kubelet")
	case "reset":
		return 1
	}
	return p.Fail("%q", p.Args)
}

// rules are two of kube-proxy and one of somebody else.
var rules = []string{"-t nat -N KUBE-SERVICES", "-t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES", "-t filter -A FORWARD -s 10.9.9.9/32 -j DROP"}

func kubelet(ctx context.Context, p *machine.Process) int {
	if _, err := p.Listen(10250); err != nil {
		return p.Fail("%v", err)
	}
	_ = p.WriteFile("/run/kubelet-args", []byte(strings.Join(p.Args, " ")), 0o600)
	<-ctx.Done()
	return 0
}

const bootstrapData = `#cloud-config
write_files:
- path: /run/kubeadm/kubeadm.yaml
  permissions: '0640'
  content: "token: abc"
- path: /run/cluster-api/placeholder
  content: "placeholder"
- path: /etc/motd
  append: true
  content: "node\n"
hostname: node-1
fs_setup:
- device: /dev/sdb
  filesystem: ext4
  label: data
  partition: none
mounts:
- [LABEL=data, /var/data]
users:
- name: ops
  groups: sudo
  sudo: ALL=(ALL) NOPASSWD:ALL
  ssh_authorized_keys: [ssh-ed25519 AAAA ops]
  passwd: $6$x
ntp:
  enabled: true
  servers: [time.test]
runcmd:
- export X=1
- echo "$X" >/root/x
- kubeadm init --config /run/kubeadm/kubeadm.yaml && echo success > /run/cluster-api/placeholder || exit 1
- [sh, -c, "echo $X done >>/root/x"]
`

func provision(ctx context.Context, g *WithT, m *machine.Machine) run.Plan {
	h := &machine.Host{Machine: m}
	supply, err := artifacts.Find(ctx, h, artifacts.Wanted{Version: version, Architecture: "amd64", Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: "http://bundles/{{version}}"}}})
	g.Expect(err).NotTo(HaveOccurred())
	steps, files, err := supply.Plan(artifacts.ControlPlane)
	g.Expect(err).NotTo(HaveOccurred())
	plan := run.Plan{ID: "provision", Steps: append([]run.Step{cloudinit.GuardStep(), reset.BeforeStep()}, steps...), Files: files}
	plan.Steps = append(plan.Steps, artifacts.KubeletArgsStep([]string{"--provider-id=quoin://a", "--node-ip=10.0.0.11"}))
	steps, err = keepalived.InstallSteps(vip, keepalived.Ownership{})
	g.Expect(err).NotTo(HaveOccurred())
	plan.Steps = append(plan.Steps, steps...)
	config, err := cloudinit.Parse([]byte(bootstrapData), cloudinit.Variables{})
	g.Expect(err).NotTo(HaveOccurred())
	files, steps, err = config.Steps(cloudinit.Options{Disks: []cloudinit.DiskRole{{ID: "data-1", Role: cloudinit.RoleData}}})
	g.Expect(err).NotTo(HaveOccurred())
	plan.Files, plan.Steps = append(plan.Files, files...), append(plan.Steps, steps...)
	plan.Steps = append(plan.Steps, run.Step{Name: "enable-kubelet", Script: `quoin_record "unit kubelet.service" && systemctl enable --now kubelet.service`})
	return plan
}

var vip = keepalived.Config{Interface: "eth0", VirtualRouterID: 51, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")}, Port: 6443}

var resetOptions = reset.Options{VirtualAddresses: vip.Addresses, WipeDisks: []string{"wipe-1"},
	DataDisks: []string{"data-1"}, IgnoreChanges: true}

func TestTheLifeOfANodeOnAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, node)
	h := &machine.Host{Machine: m}
	fs := m.FS()
	before := fs.List("/etc")
	plan := provision(t.Context(), g, m)
	g.Expect(run.Runner{}.Start(t.Context(), h, plan)).To(Succeed())
	status := wait(t, h, "provision", final)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", &status)
	g.Expect(fs.Text("/root/x")).To(Equal("1\n1 done\n"))
	g.Expect(fs.Text("/etc/motd")).To(Equal("node\n"))
	g.Expect(fs.Text("/etc/hostname")).To(Equal("node-1\n"))
	g.Expect(fs.Text("/etc/sudoers.d/90-quoin-ops")).To(ContainSubstring("NOPASSWD"))
	g.Expect(fs.Text("/home/ops/.ssh/authorized_keys")).To(ContainSubstring("AAAA"))
	g.Expect(fs.Text("/etc/systemd/timesyncd.conf.d/quoin.conf")).To(ContainSubstring("time.test"))
	g.Eventually(func() string { return fs.Text("/run/kubelet-args") }, "10s").Should(Equal("/usr/bin/kubelet --a --b=c --provider-id=quoin://a --node-ip=10.0.0.11"))
	g.Expect(m.UnitState("kubelet")).To(Equal("active"))
	g.Expect(m.Mounts()).To(ContainElement("/var/data"))
	g.Expect(m.Sysctl("net.ipv4.ip_forward")).To(Equal("1"))
	g.Expect(fs.WriteFile("/var/data/precious", machine.File{Content: []byte("data")})).To(Succeed())

	m.Reboot()
	g.Eventually(func() string { return m.UnitState("kubelet") }, "10s").Should(Equal("active"))
	g.Expect(m.Mounts()).To(ContainElement("/var/data"))
	g.Expect(m.AddRules(rules...)).To(Succeed())
	m.AddLink(machine.Link{Name: "cni0", Kind: "bridge"})
	verified, err := reset.Verify(t.Context(), h, resetOptions)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(fmt.Sprint(verified.Findings)).To(And(ContainSubstring("process kubelet runs"), ContainSubstring("/etc/kubernetes is not empty"),
		ContainSubstring("listens on port 10250"), ContainSubstring("virtual address 10.0.0.100"), ContainSubstring("still holds xfs")))

	for _, first := range []bool{true, false} {
		held, err := keepalived.HandOver(t.Context(), h, vip.Addresses)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(held).To(Equal(first), "once is enough")
	}
	g.Expect(fs.List("/etc/keepalived")).To(ContainElement(HaveSuffix("quoin-leaving")))
	g.Expect(m.UnitState("keepalived")).To(Equal("active"), "it remains a candidate")

	const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	g.Expect(fs.WriteFile(manifest, machine.File{Content: []byte("kind: Pod\n")})).To(Succeed())
	for range 2 {
		g.Expect(apiserver.Stop(t.Context(), h)).To(Succeed())
	}
	g.Expect(fs.List("/etc/kubernetes")).To(And(ContainElement(HaveSuffix("/quoin-kube-apiserver.yaml")), Not(ContainElement(HaveSuffix("manifests/kube-apiserver.yaml")))))

	g.Expect(run.Runner{}.Start(t.Context(), h, reset.Plan("reset", resetOptions))).To(Succeed())
	status = wait(t, h, "reset", final)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", &status)
	verified, err = reset.Verify(t.Context(), h, resetOptions)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(verified.Findings).To(BeEmpty())
	g.Expect(fs.List("/etc")).To(Equal(before))
	held, err := keepalived.HandOver(t.Context(), h, vip.Addresses)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(held).To(BeFalse())
	g.Expect(fs.List("/etc")).To(Equal(before), "a host without keepalived is left alone")
	g.Expect(fs.Text("/etc/hostname")).To(Equal("host-1\n"))
	g.Expect(m.DiskFile("sdb", "/precious")).To(BeEquivalentTo("data"))
	g.Expect(m.Disks()[2].FileSystem).To(BeEmpty())
	g.Expect(m.Firewall()).To(And(Not(ContainSubstring("KUBE")), ContainSubstring("-s 10.9.9.9/32 -j DROP")))
	known(t, m)
}

// At each line that the runner writes, before it is written, the machine loses power. Resumed, the plan ends, or was cut in
// the middle of kubeadm. Then the same with the reset: whatever was cut, the machine is clean in the end.
func TestANodeCutAtEachJournalLine(t *testing.T) {
	g := NewWithT(t)
	total := len(provision(t.Context(), g, newMachine(t, node)).Steps) * 2
	resets := len(reset.Plan("reset", resetOptions).Steps) * 2
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for line := 1; line <= total; line += stride {
		t.Run(fmt.Sprint(line), func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			m := newMachine(t, node)
			h := &machine.Host{Machine: m}
			before := m.FS().List("/etc")
			count, cuts := map[string]int{}, map[string]int{"provision": line, "reset": (line-1)%resets + 1}
			m.OnJournal(func(m *machine.Machine, plan, _, _ string) {
				if count[plan]++; count[plan] == cuts[plan] {
					m.Reboot()
				}
			})
			drive := func(plan run.Plan) run.Status {
				_ = run.Runner{}.Start(t.Context(), h, plan)
				return wait(t, h, plan.ID, func(s run.Status) bool {
					if s.Lost {
						_ = run.Runner{}.Resume(t.Context(), h, plan.ID)
					}
					return s.Phase.Final()
				})
			}
			plan := provision(t.Context(), g, m)
			status := drive(plan)
			if status.Phase == run.Interrupted {
				g.Expect(status.Step).To(Equal("kubeadm-init"))
			} else {
				g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", &status)
			}
			status = drive(reset.Plan("reset", resetOptions))
			g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", &status)
			verified, err := reset.Verify(t.Context(), h, resetOptions)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(verified.Findings).To(BeEmpty())
			g.Expect(m.FS().List("/etc")).To(Equal(before))
			g.Expect(m.Boots()).To(Equal(3))
			known(t, m)
		})
	}
}
