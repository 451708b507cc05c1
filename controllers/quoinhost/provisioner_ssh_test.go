// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const manifestText = `{"kubernetesVersion":"v1.35.4","os":"linux","architecture":"amd64","files":[
{"path":"bin/kubeadm","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":1,
"kind":"binary","install":"/usr/bin/kubeadm","mode":"0755","roles":["control-plane","worker"]}]}`

// scripted is an ssh.Host that answers scripts by what they contain.
type scripted struct {
	// answers to scripts that contain a text; none is an empty one.
	answers map[string]string
	errs    map[string]error
	scripts []string
	// takes uploads.
	takes bool
}

func (s *scripted) Run(_ context.Context, command ssh.Command) (ssh.Result, error) {
	s.scripts = append(s.scripts, command.Script)
	for part, err := range s.errs {
		if strings.Contains(command.Script, part) {
			return ssh.Result{}, err
		}
	}
	// Scripts share parts: the one that says most about a script has its answer.
	closest := ""
	for part := range s.answers {
		if strings.Contains(command.Script, part) && (len(part) > len(closest) || len(part) == len(closest) && part > closest) {
			closest = part
		}
	}
	answer := s.answers[closest]
	// A verification ends with the word that it is given.
	if _, end, ok := strings.Cut(command.Script, "\necho 'end "); ok {
		answer = strings.TrimSuffix(answer, "end\n") + "end " + strings.Trim(end, "'\n") + "\n"
	}
	return ssh.Result{Stdout: answer}, nil
}

func (s *scripted) Upload(context.Context, string, os.FileMode, []byte) error {
	if s.takes {
		return nil
	}
	return errors.New("not expected")
}

func (s *scripted) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("not expected")
}

func (s *scripted) Connect(context.Context, *infrav1.QuoinHost) (ssh.Host, error) { return s, nil }

func (s *scripted) ConnectAgain(context.Context, *infrav1.QuoinHost) (ssh.Host, error) { return s, nil }

func (s *scripted) Identify(context.Context, *infrav1.QuoinHost) (string, error) { return keyA, nil }
func (s *scripted) Used(*infrav1.QuoinHost) (string, string, bool)               { return "", "", false }
func (s *scripted) Forget(*infrav1.QuoinHost)                                    {}
func (s *scripted) untouched(g *WithT) {
	for _, script := range s.scripts {
		g.Expect(script).NotTo(ContainSubstring("systemd-run"), "nothing may start")
		g.Expect(script).NotTo(ContainSubstring("/var/lib/quoin/runs"), "nothing may be uploaded")
	}
}

// anew is a connector that notes who has the Secrets read each time.
type anew struct {
	*scripted
	times int
}

func (a *anew) Connect(ctx context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	a.times++
	return a.scripted.Connect(ctx, host)
}

func TestAProbeDoesNotHaveSecretsReadEachTime(t *testing.T) {
	g := NewWithT(t)
	connector := &anew{scripted: &scripted{answers: map[string]string{"boot_id": "b1"}}}
	provisioner := &sshProvisioner{connector: connector}
	probed, err := provisioner.Probe(t.Context(), &infrav1.QuoinHost{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probed.BootID).To(Equal("b1"))
	g.Expect(connector.times).To(BeZero())
	_, _ = provisioner.Inspect(t.Context(), &infrav1.QuoinHost{})
	g.Expect(connector.times).To(Equal(1), "an inspection does: a key that was taken away ends there at once")
}

func TestAProbeReadsWhatAHostIsWhenItHasBooted(t *testing.T) {
	g := NewWithT(t)
	record := `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":1}`
	host := newHost()
	host.Status.Facts = &infrav1.HostFacts{BootID: "b'1"}
	connector := &scripted{answers: map[string]string{"boot_id": "b'1\n" + record + "\n"}}
	provisioner := &sshProvisioner{connector: connector}
	probed, err := provisioner.Probe(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(probed.Facts).To(BeNil())
	g.Expect(probed.Owner.UID).To(Equal("0123abcd"))
	g.Expect(connector.scripts[0]).To(ContainSubstring(ssh.Quote("b'1")), "a host says what it likes")

	connector.answers["boot_id"] = "b2\nboot b2\nmachineid " + idA + "\nuuid " + uuidA +
		"\nserial SN 1\ndisk sda 2048 0 wwn-1\nend ok\n"
	for _, owner := range []string{"", record + "\n"} {
		connector.answers["boot_id"] += owner
		probed, err = provisioner.Probe(t.Context(), host)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(probed.BootID).To(Equal("b2"))
		g.Expect(probed.Owner != nil).To(Equal(owner != ""))
		g.Expect(*probed.Facts).To(Equal(inspect.Facts{BootID: "b2", MachineID: idA, ProductUUID: uuidA, SerialNumber: "SN 1",
			Disks: []inspect.Disk{{ID: "wwn-1", Name: "sda", SizeBytes: 1 << 20}}}))
	}
	connector.answers["boot_id"] = "b2\nmachineid " + idA + "\n"
	_, err = provisioner.Probe(t.Context(), host)
	g.Expect(err).To(MatchError(ContainSubstring("cut off")), "half an answer says nothing about disks")
}

func provisionOrderOf(t *testing.T, location string) ProvisionOrder {
	config, err := cloudinit.Parse([]byte(work), cloudinit.InstanceData("h1", "quoin://hosts/h1/0123abcd", ""))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return ProvisionOrder{
		ID: provisionPlanID, Role: artifacts.ControlPlane, ProviderID: "quoin://hosts/h1/0123abcd",
		NodeAddresses: []string{"10.0.0.11", "fd00::11"},
		Owner:         owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1},
		Artifacts: artifacts.Wanted{Version: "v1.35.4", Architecture: "amd64",
			Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: location}}},
		Bootstrap: config,
		VirtualAddress: &keepalived.Config{
			Interface: "eth0", VirtualRouterID: 51, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.100/32")},
			Port: 6443,
		},
	}
}

func TestWhatCanBeFoundWrongByReadingIsFoundBeforeTheHostIsChanged(t *testing.T) {
	for name, c := range map[string]struct {
		location string
		host     *scripted
		check    func(*WithT, error)
	}{
		"no keepalived": {"/opt/{{version}}", &scripted{}, func(g *WithT, err error) {
			var lacks *LacksError
			g.Expect(errors.As(err, &lacks)).To(BeTrue(), "%v", err)
			g.Expect(lacks.What).To(Equal("keepalived"))
		}},
		"no curl": {"http://10.1.2.3/{{version}}",
			&scripted{answers: map[string]string{"command -v keepalived": "/usr/sbin/keepalived"}}, func(g *WithT, err error) {
				var lacks *LacksError
				g.Expect(errors.As(err, &lacks)).To(BeTrue(), "%v", err)
				g.Expect(lacks.What).To(Equal("curl"))
			}},
		"no bundle": {"/opt/{{version}}", &scripted{
			answers: map[string]string{"command -v keepalived": "/usr/sbin/keepalived"},
			errs:    map[string]error{"manifest.json": &ssh.ExitError{Code: 66, Stderr: "no such file"}},
		}, func(g *WithT, err error) {
			var source *ArtifactsError
			g.Expect(errors.As(err, &source)).To(BeTrue(), "%v", err)
			g.Expect(source.Place).To(Equal("/opt/v1.35.4"))
		}},
		"damaged manifest": {"/opt/{{version}}", &scripted{
			answers: map[string]string{"command -v keepalived": "/usr/sbin/keepalived", "manifest.json": "{"},
		}, func(g *WithT, err error) {
			var source *ArtifactsError
			g.Expect(errors.As(err, &source)).To(BeTrue(), "%v", err)
		}},
		"lost connection": {"/opt/{{version}}", &scripted{
			answers: map[string]string{"command -v keepalived": "/usr/sbin/keepalived"},
			errs:    map[string]error{"manifest.json": &ssh.UnreachableError{Endpoint: "x", Err: errors.New("reset by peer")}},
		}, func(g *WithT, err error) {
			var source *ArtifactsError
			g.Expect(errors.As(err, &source)).To(BeFalse(), "the bundle is not to blame: %v", err)
			g.Expect(ssh.IsTransient(err)).To(BeTrue())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			order := provisionOrderOf(t, c.location)
			order.ClaimedByUs = true
			err := (&sshProvisioner{connector: c.host}).Provision(context.Background(), newHost(), order)
			c.check(g, err)
			c.host.untouched(g)
		})
	}
}

func TestAHostOfAnotherOwnerIsNotReset(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{answers: map[string]string{
		"owner.json": `{"namespace":"elsewhere","host":"x","machine":"m9","uid":"99999999","generation":1}`}}
	err := (&sshProvisioner{connector: host}).Clean(context.Background(), newHost(),
		CleanOrder{ID: "scrub-1", Owner: owner.Record{Generation: 1}})
	var held *owner.HeldError
	g.Expect(errors.As(err, &held)).To(BeTrue(), "%v", err)
	host.untouched(g)
}

func TestThePlanTakesAHostToANodeInOrder(t *testing.T) {
	g := NewWithT(t)
	order := provisionOrderOf(t, "/opt/{{version}}")
	supply, err := artifacts.Find(t.Context(), &scripted{answers: map[string]string{"manifest.json": manifestText}},
		order.Artifacts)
	g.Expect(err).NotTo(HaveOccurred())
	plan, err := provisionPlan(order, supply)
	g.Expect(err).NotTo(HaveOccurred())
	at := map[string]int{}
	for i, step := range plan.Steps {
		at[step.Name] = i
		g.Expect(step.Once).To(Equal(step.Name == "kubeadm-join"), step.Name)
	}
	g.Expect(at).To(HaveKey("kubeadm-join"))
	virtual, err := keepalived.InstallSteps(*provisionOrderOf(t, "/opt/{{version}}").VirtualAddress,
		keepalived.Ownership{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(at["kubelet-environment"]).To(BeNumerically(">", 0), "after the version")
	g.Expect(at[virtual[len(virtual)-1].Name]).To(BeNumerically(">", at["kubelet-environment"]))
	g.Expect(at["kubeadm-join"]).To(BeNumerically(">", at[virtual[len(virtual)-1].Name]),
		"the virtual address is there before kubeadm asks for it")
	g.Expect(at["enable-kubelet"]).To(BeNumerically(">", at["kubeadm-join"]))
	g.Expect(at["bootstrap-sentinel"]).To(Equal(len(plan.Steps) - 1))
	g.Expect(plan.Steps[at["kubelet-environment"]].Script).To(
		ContainSubstring("QUOIN_KUBELET_ARGS=--provider-id=quoin://hosts/h1/0123abcd --node-ip=10.0.0.11,fd00::11"))
}

// Only kubeadm init leaves a member that would begin a cluster anew without its data.
func TestTheGuardOfEtcdStandsAroundKubeadmInit(t *testing.T) {
	for command, guarded := range map[string]bool{"init": true, "join": false} {
		g := NewWithT(t)
		order := provisionOrderOf(t, "/opt/{{version}}")
		data := strings.NewReplacer("kubeadm join", "kubeadm "+command, "/etc/kubernetes/x",
			"/run/kubeadm/kubeadm-join-config.yaml",
			"content: hello", `content: "---\nkind: ClusterConfiguration\n---\nkind: InitConfiguration\n"`).Replace(work)
		var err error
		order.Bootstrap, err = cloudinit.Parse([]byte(data), cloudinit.InstanceData("h1", "quoin://hosts/h1/0123abcd", ""))
		g.Expect(err).NotTo(HaveOccurred())
		supply, err := artifacts.Find(t.Context(), &scripted{answers: map[string]string{"manifest.json": manifestText}},
			order.Artifacts)
		g.Expect(err).NotTo(HaveOccurred())
		plan, err := provisionPlan(order, supply)
		g.Expect(err).NotTo(HaveOccurred())
		at := func(name string) int {
			return slices.IndexFunc(plan.Steps, func(step run.Step) bool { return step.Name == name })
		}
		file := slices.IndexFunc(plan.Files, func(file run.File) bool {
			return strings.Contains(string(file.Content),
				"ClusterConfiguration")
		})
		g.Expect(at("kubeadm-" + command)).To(BeNumerically(">", 0))
		if !guarded {
			g.Expect(at("guard-etcd")).To(Equal(-1))
			g.Expect(at("close-etcd-guard")).To(Equal(-1))
			g.Expect(string(plan.Files[file].Content)).NotTo(ContainSubstring("patches"))
			continue
		}
		g.Expect(at("guard-etcd")).To(Equal(at("kubeadm-init")-1), "behind the user's commands, which may bring patches")
		g.Expect(at("close-etcd-guard")).To(Equal(at("kubeadm-init")+1), "before anybody else joins, and before the "+
			"commands of users")
		for _, name := range []string{"guard-etcd", "close-etcd-guard"} {
			g.Expect(plan.Steps[at(name)].Once).To(BeFalse(), "it goes on when the host reboots in the middle")
		}
		g.Expect(string(plan.Files[file].Content)).To(
			ContainSubstring("patches:\n  directory: /etc/kubernetes/quoin/patches\n"))
	}
}

// Of two etcd members that vote none may be missing, and only its kubelet starts one again after a reboot.
func TestTheKubeletOfAControlPlaneIsEnabledBeforeItsMemberVotes(t *testing.T) {
	g := NewWithT(t)
	for role, early := range map[artifacts.Role]bool{artifacts.ControlPlane: true, artifacts.Worker: false} {
		order := provisionOrderOf(t, "/opt/{{version}}")
		order.Role = role
		supply, err := artifacts.Find(t.Context(), &scripted{answers: map[string]string{"manifest.json": manifestText}},
			order.Artifacts)
		g.Expect(err).NotTo(HaveOccurred())
		plan, err := provisionPlan(order, supply)
		g.Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, step := range plan.Steps {
			names = append(names, step.Name)
		}
		if !early {
			g.Expect(names).NotTo(ContainElement("enable-control-plane"), "a worker does not come up with half a node")
			continue
		}
		at := slices.Index(names, "enable-control-plane")
		g.Expect(at).To(And(BeNumerically(">", 0), BeNumerically("<", slices.Index(names, "kubeadm-join"))))
		g.Expect(plan.Steps[at].Script).To(ContainSubstring("systemctl enable kubelet.service"))
	}
}

func TestTheAPIServerIsStoppedUnderTheOwnerRecord(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{}
	ours := owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2}
	g.Expect((&sshProvisioner{connector: host}).StopAPIServer(context.Background(), newHost(), ours)).To(Succeed())
	stop := host.scripts[len(host.scripts)-1]
	g.Expect(stop).To(ContainSubstring("kube-apiserver"))
	before, _, _ := strings.Cut(stop, "kube-apiserver")
	g.Expect(before).To(ContainSubstring("owner.lock"), "check and change are one")
}

// A plan of another recovery would go on where it is, and start etcd on a host on which this one stops it.
func TestAPartInARecoveryEndsEveryOtherPlanOnTheHost(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{}
	order := RecoverOrder{Owner: owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2},
		Order: recovery.Order{ID: "recover-r2", Action: recovery.Stop}}
	g.Expect((&sshProvisioner{connector: host}).Recover(t.Context(), newHost(), order)).To(Succeed())
	g.Expect(host.starts()).To(HaveLen(1))
	before, _, _ := strings.Cut(host.scripts[len(host.scripts)-1], "systemd-run")
	g.Expect(before).To(ContainSubstring(`[ "$id" = ` + ssh.Quote("recover-r2") + ` ] || stop_plan "$id"`))
}

func TestMetricsCountHostsByState(t *testing.T) {
	g := NewWithT(t)
	key := request(&world{}).NamespacedName
	key.Name = "metrics"
	before := len(states.of)
	states.set(key, infrav1.HostStateAvailable)
	states.set(key, infrav1.HostStateClaimed)
	g.Expect(states.of).To(HaveLen(before + 1))
	states.forget(key)
	g.Expect(states.of).To(HaveLen(before))
}

func TestAStaleControllerIsToldSoBeforeItHearsThatAPlanIsGone(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{answers: map[string]string{
		"owner.json": `{"namespace":"hosts","host":"h1","machine":"","uid":"","generation":3}`}}
	ours := owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2}
	provisioner := &sshProvisioner{connector: host}
	var stale *owner.StaleError
	for _, resume := range []bool{true, false} {
		_, err := provisioner.Follow(context.Background(), newHost(),
			FollowOrder{ID: provisionPlanID, Owner: ours, Resume: resume})
		g.Expect(errors.As(err, &stale)).To(BeTrue(), "%v", err)
	}
	g.Expect(errors.As(provisioner.Clean(context.Background(), newHost(), CleanOrder{ID: "reset-0123abcd", Owner: ours}),
		&stale)).To(BeTrue())
	g.Expect(errors.As(provisioner.Clean(context.Background(), newHost(),
		CleanOrder{ID: "scrub-1", Owner: owner.Record{Generation: 2}}), &stale)).To(BeTrue())
	for _, script := range host.scripts {
		g.Expect(script).NotTo(Or(ContainSubstring("systemd-run"), ContainSubstring("owner.lock"),
			ContainSubstring("systemctl stop")), "only reads")
	}
	probed, err := provisioner.Probe(context.Background(), newHost())
	g.Expect(err).NotTo(HaveOccurred(), "it may read")
	g.Expect(probed.Owner).To(BeNil(), "the answer is one line here, the boot ID")

	ours.Generation = 3
	status, err := provisioner.Follow(context.Background(), newHost(),
		FollowOrder{ID: provisionPlanID, Owner: ours, Resume: true})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Phase).To(Equal(run.NotStarted))
}

// starts are the commands that made a host start a plan.
func (s *scripted) starts() (all []string) {
	for _, script := range s.scripts {
		for line := range strings.Lines(script) {
			if strings.HasPrefix(line, "systemd-run") {
				all = append(all, line)
			}
		}
	}
	return all
}

// idle is how systemd is told to leave processors and disks to everybody else.
const idle = "--property=Nice=19 --property=IOSchedulingClass=idle"

func TestWhatAPlanLeavesToOthersIsTheSameAfterAReboot(t *testing.T) {
	for id, leaves := range map[string]bool{
		addonsPlan("v1.36.3"):                             true,
		nextAttempt("addons-v1.36.3", "addons-v1.36.3"):   true,
		stagePlan(infrav1.StagedArtifacts{Version: "v1"}): true,
		provisionPlanID:                                   false,
		"reset-0123abcd":                                  false,
	} {
		t.Run(id, func(t *testing.T) {
			g := NewWithT(t)
			host := &scripted{answers: map[string]string{
				"now $(date":   "now 1700000010\ncomplete\n",
				"/proc/uptime": "clock 1700000010.0 60 b1\n",
				"cat \"$":      `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":2}`,
			}}
			ours := owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 2}

			_, err := (&sshProvisioner{connector: host}).Follow(t.Context(), newHost(),
				FollowOrder{ID: id, Owner: ours, Resume: true})

			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(host.starts()).To(HaveLen(1))
			g.Expect(strings.Contains(host.starts()[0], idle)).To(Equal(leaves), host.starts()[0])
		})
	}
}

func TestWhatNobodyWaitsForIsStartedIdle(t *testing.T) {
	order := provisionOrderOf(t, "/opt/{{version}}")
	for name, start := range map[string]func(*sshProvisioner) error{
		"staging": func(p *sshProvisioner) error {
			return p.Stage(t.Context(), newHost(), StageOrder{ID: stagePlan(infrav1.StagedArtifacts{Version: "v1"}),
				Owner: order.Owner, Artifacts: order.Artifacts, Role: artifacts.Worker})
		},
		"images of add-ons": func(p *sshProvisioner) error {
			return p.Addons(t.Context(), newHost(), AddonsOrder{ID: addonsPlan("v1.35.4"), Owner: order.Owner,
				Artifacts: order.Artifacts})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &scripted{takes: true, answers: map[string]string{
				"/proc/uptime": fmt.Sprintf("clock %d.0 60 b1\n", time.Now().Unix()),
				"manifest.json": strings.Replace(manifestText, "]}]}", `]},
{"path":"images/dns.tar","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":1,
"kind":"image","images":["quoin.test/dns:v1"],"roles":["control-plane","worker","addon"]}]}`, 1),
				"cat \"$": `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":1}`,
			}}

			g.Expect(start(&sshProvisioner{connector: host})).To(Succeed())

			g.Expect(host.starts()).To(ConsistOf(ContainSubstring(idle)))
		})
	}
}
