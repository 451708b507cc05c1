// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/secrettest"
)

// drawTokens draws what the Secrets of a host, of its Machine and of the Machine's Cluster hold.
func drawTokens() secrettest.Tokens {
	drawn := secrettest.Tokens{}
	for _, field := range []string{"file", "encoded file", "command", "listed command", "boot command", "server",
		"password",
		"ssh", "jump", "bmc user", "bmc", "authority"} {
		drawn[field] = secrettest.Draw()
	}
	drawn["phrase"] = "correct horse / \"battery\" staple"
	drawn["lines"] = secrettest.Draw() + "\n" + secrettest.Draw() + "\n" + secrettest.Draw()
	for _, field := range []string{"encoded file", "ssh", "jump", "bmc", "authority"} {
		drawn[field] += "\n" + secrettest.Draw()
	}
	return drawn
}

// pemOf is a key in PEM. No line of it but the first and the last is a secret.
func pemOf(key string) string {
	return "-----BEGIN EC PRIVATE KEY-----\n" + key + "\n-----END EC PRIVATE KEY-----\n"
}

func bootstrapDataOf(t secrettest.Tokens) string {
	indent := func(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }
	return fmt.Sprintf(`#cloud-config
write_files:
- path: /etc/one
  content: |
    key: %s
- path: /etc/two
  encoding: base64
  content: %s
- path: /etc/three
  content: |
    %s
- path: /etc/four
  content: '%s'
- path: /etc/kubernetes/pki/ca.key
  content: |
    %s
bootcmd:
- echo %s
runcmd:
- /usr/local/bin/log-in --as %s || exit 1
- [curl, -d, "%s", https://example.com]
- kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml
ntp: {servers: [%s]}
users:
- {name: ops, passwd: %s}
`, t["file"], base64.StdEncoding.EncodeToString([]byte("x "+t["encoded file"])), indent(t["lines"]), t["phrase"],
		indent(pemOf(t["authority"])), t["boot command"], t["command"], t["listed command"], t["server"], t["password"])
}

// printing is a host whose bootstrap data fail, and print what the host answers.
type printing struct {
	*machineRoom
	ssh *sshProvisioner
}

func (p *printing) Follow(ctx context.Context, host *infrav1.QuoinHost, order FollowOrder) (run.Status, error) {
	if status, err := p.machineRoom.Follow(ctx, host, order); err != nil || status.Phase == run.NotStarted {
		return status, err
	}
	return p.ssh.Follow(ctx, host, order)
}

// secretWorld has tokens in every Secret, and a host that prints.
type secretWorld struct {
	*world
	tokens secrettest.Tokens
	host   *scripted
	said   *events.FakeRecorder
	logs   *strings.Builder
}

func newSecretWorld(t *testing.T, namespace string) *secretWorld {
	host := newHost()
	host.Namespace, host.Spec.HostKeys = namespace, []string{keyA}
	host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	host.Spec.Bastion = &infrav1.Bastion{Address: "192.0.2.1", CredentialsRef: &infrav1.SecretReference{Name: "jump"}}
	withBMC(host)
	cluster, quoinCluster, machine, quoinMachine, secret := consumer(false)
	quoinMachine.Spec.ProviderID, quoinMachine.Spec.HostNamespaces = "quoin://"+namespace+"/h1/0123abcd",
		[]string{namespace}
	w := &secretWorld{tokens: drawTokens(), host: &scripted{answers: map[string]string{}}, logs: &strings.Builder{}}
	secret.Data["value"] = []byte(bootstrapDataOf(w.tokens))
	objects := []client.Object{host, cluster, quoinCluster, machine, quoinMachine, secret}
	for name, data := range map[string]map[string][]byte{
		"ssh":  {"ssh-privatekey": []byte(w.tokens["ssh"])},
		"jump": {"ssh-privatekey": []byte("-----BEGIN X-----\n" + w.tokens["jump"] + "\n-----END X-----\n")},
		"bmc":  {"username": []byte(w.tokens["bmc user"]), "password": []byte(w.tokens["bmc"])},
	} {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data})
	}
	w.world = newWorld(t, objects...)
	w.key.Namespace = namespace
	w.said = events.NewFakeRecorder(10_000)
	w.ctx = ctrl.LoggerInto(t.Context(), funcr.New(func(prefix, args string) {
		w.logs.WriteString(prefix + args)
	}, funcr.Options{Verbosity: 10}))
	w.r.Recorder = w.said
	w.r.Provisioner = &printing{machineRoom: w.room, ssh: &sshProvisioner{connector: w.host, secrets: w.r.secretsOf}}
	return w
}

// prints has the bootstrap data fail with this output.
func (w *secretWorld) prints(tail string) {
	w.host.answers["/runs/"] = "now 1\ncomplete\nresult failed pre-kubeadm 1\nstep pre-kubeadm 0 0 60\n" +
		"journal 1 b pre-kubeadm start\njournal 1 b pre-kubeadm failed 1\ntail " + tail + "\n"
}

// surface is everything that people may read.
func (w *secretWorld) surface() (host, all string) {
	w.t.Helper()
	var text strings.Builder
	show := func(o any) {
		data, err := json.Marshal(o)
		w.g.Expect(err).NotTo(HaveOccurred())
		// As people read it.
		text.WriteString(strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\u003c`, "<").Replace(string(data)))
	}
	show(w.world.host())
	host = text.String()
	machine, quoinMachine := &clusterv1.Machine{}, &infrav1.QuoinMachine{}
	w.object(machine, "m1")
	w.object(quoinMachine, "qm1")
	show(machine)
	show(quoinMachine)
	for len(w.said.Events) > 0 {
		text.WriteString(<-w.said.Events)
	}
	families, err := metrics.Registry.Gather()
	w.g.Expect(err).NotTo(HaveOccurred())
	show(families)
	return host, text.String() + w.logs.String()
}

func TestNoSecretSurfaces(t *testing.T) {
	for _, namespace := range []string{"hosts", "team"} {
		t.Run(namespace, func(t *testing.T) {
			w := newSecretWorld(t, namespace)
			// Of what kubeadm itself makes on a host no Secret says what it is.
			made := secrettest.Tokens{"key": secrettest.Draw() + "\n" + secrettest.Draw()}
			encoded := base64.StdEncoding.EncodeToString([]byte(pemOf(made["key"])))
			w.prints("before\ntail " + w.tokens.Printed() + "\ntail     client-key-data: " + encoded + "\ntail " +
				`{"user":{"client-key-data":"` + encoded + `"}}` + "\ntail " +
				strings.ReplaceAll(pemOf(made["key"]), "\n", "\ntail ") + "error: it failed with " + w.tokens["command"])
			w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostStepFailedReason)
			host, all := w.surface()
			w.g.Expect(append(w.tokens.Leaks(all), made.Leaks(all)...)).To(BeEmpty())
			w.g.Expect(all).To(ContainSubstring("error: it failed with "+redact.Mark), "the rest is told")
			if namespace == "hosts" {
				w.g.Expect(host).NotTo(ContainSubstring("it failed with"), "to its own namespace")
				w.g.Expect(host).To(ContainSubstring("see QuoinMachine team/qm1"))
			}
		})
	}
}

func TestATokenThatTheOutputsCutWentThroughIsNotLeftInPart(t *testing.T) {
	for field, token := range drawTokens() {
		for i := range strings.Split(token, "\n") {
			t.Run(fmt.Sprint(field, i), func(t *testing.T) {
				w := newSecretWorld(t, "team")
				line := strings.Split(w.tokens[field], "\n")[i]
				w.prints(line[5:] + " is wrong " + strings.Repeat("word ", 1600))
				w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostStepFailedReason)
				_, all := w.surface()
				w.g.Expect(all).To(ContainSubstring("is wrong word"))
				for at := 5; at+redact.Least <= len(line); at++ {
					w.g.Expect(all).NotTo(ContainSubstring(line[at : at+redact.Least]))
				}
			})
		}
	}
}

func TestALineOfAnErrorThatWasCutLosesItsBeginning(t *testing.T) {
	w := newSecretWorld(t, "hosts")
	token := w.tokens["phrase"]
	said := (token[3:] + " is wrong" + strings.Repeat(" word", ssh.MaxStderr))[:ssh.MaxStderr]
	err := w.r.redacted(t.Context(), w.world.host(), fmt.Errorf("starting: %w", &ssh.ExitError{Code: 1, Stderr: said}))
	w.g.Expect(err.Error()).To(HavePrefix("starting: the command ended with code 1: is wrong word"))
}

func TestAnErrorOfAHostTellsNoSecret(t *testing.T) {
	for name, fail := range map[string]func(string) error{
		"a script": func(said string) error { return fmt.Errorf("starting: %w", &ssh.ExitError{Code: 1, Stderr: said}) },
		"sudo":     func(said string) error { return &ssh.SudoError{Endpoint: "x", User: "ops", Detail: said} },
		"a login shell": func(said string) error {
			return &ssh.UnreachableError{Endpoint: "x", Err: &ssh.ShellError{User: "ops", Said: said}}
		},
		"a source": func(said string) error { return &ArtifactsError{Place: "/opt", Err: errors.New(said)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newSecretWorld(t, "hosts")
			w.prints("x")
			// Of many lines the last few are told.
			said := "it said: " + strings.ReplaceAll(w.tokens.Printed(), "\n", " ")
			w.room.set(func() { w.room.errs["provision"] = fail(said) })
			w.until("tried", func(*infrav1.QuoinHost) bool { return w.room.count("provision") > 1 })
			_, all := w.surface()
			w.g.Expect(all).To(ContainSubstring("it said"))
			w.g.Expect(w.tokens.Leaks(all)).To(BeEmpty())
			answer := w.r.redacted(t.Context(), w.world.host(), fail(w.tokens.Printed()))
			w.g.Expect(w.tokens.Leaks(answer.Error())).To(BeEmpty())
		})
	}
}

func TestASilentHostHasNoSecretRead(t *testing.T) {
	g := NewWithT(t)
	r := &Reconciler{APIReader: interceptor.NewClient(newWorld(t).watching(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			t.Error("it was read")
			return nil
		}})}
	for _, err := range []error{nil, errNoRoute, context.DeadlineExceeded, &ssh.AuthError{}} {
		if err == nil {
			g.Expect(r.redacted(t.Context(), newHost(), nil)).To(Succeed())
			continue
		}
		g.Expect(r.redacted(t.Context(), newHost(), err)).To(BeIdenticalTo(err))
	}
}

func TestWhatCannotBeComparedIsNotShown(t *testing.T) {
	w := newSecretWorld(t, "team")
	secret := &corev1.Secret{}
	w.prints("it says something")
	w.untilState(infrav1.HostStateProvisioning)
	w.until("started", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.Phase == string(run.Running)
	})
	w.object(secret, "m1-bootstrap")
	w.g.Expect(w.client.Delete(t.Context(), secret)).To(Succeed())
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostStepFailedReason)
	_, all := w.surface()
	w.g.Expect(all).NotTo(ContainSubstring("something"))
	w.g.Expect(all).To(ContainSubstring("(not shown: reading bootstrap data Secret team/m1-bootstrap"))
}

func TestAFindingOfAVerificationTellsNoSecret(t *testing.T) {
	w := newSecretWorld(t, "hosts")
	// A private key that came to the keys by mistake: of the bootstrap data, and one that the host itself made.
	second := strings.Split(w.tokens["ssh"], "\n")[1]
	const made, id = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	answer := "found /etc/x is not empty: /etc/" + w.tokens["command"] + "\tremove it\n" +
		"found containers of Kubernetes remain: " + id + "\trestart containerd\n" +
		"skipped rules of iptables: " + w.tokens["file"] + " fails on this host\n"
	for _, line := range []string{"-----BEGIN OPENSSH PRIVATE KEY-----", w.tokens["lines"], w.tokens["ssh"] + made + made,
		made, keyA + " password=hunter22"} {
		answer += "trace key\troot\t" + strings.ReplaceAll(line, "\n", "\ntrace key\troot\t") + "\n"
	}
	w.host.answers["found "] = answer + "trace password\tops\tx\ntraced key\ntraced password\nend\n"
	provisioner := &sshProvisioner{connector: w.host, secrets: w.r.secretsOf}
	for _, passes := range []bool{false, true} {
		verified, err := provisioner.Verify(t.Context(), w.world.host(),
			CleanOrder{ID: "reset-1", Baseline: "key,password:", IgnoreChanges: passes})
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(verified.Findings).NotTo(BeEmpty())
		all := fmt.Sprint(verified.Findings, verified.Skipped)
		w.g.Expect(w.tokens.Leaks(all)).To(BeEmpty())
		w.g.Expect(all).NotTo(Or(ContainSubstring(made[:redact.Least]), ContainSubstring(second[:redact.Least]),
			ContainSubstring("hunter22")))
		w.g.Expect(all).To(And(ContainSubstring("rules of iptables: "+redact.Mark+" fails"), ContainSubstring(id),
			MatchRegexp(`line that is no key \(sha256 [0-9a-f]{12}\.\.\.\) in the authorized keys of user root`)))
		if !passes {
			w.g.Expect(all).To(And(ContainSubstring("authorized key SHA256:"), ContainSubstring("password of user ops")))
		}
	}
}

func TestWhatWasToldOfAnAttemptIsTakenBackWhenTheHostIsANode(t *testing.T) {
	w := claimedWorld(t, false)
	w.setBootstrapData("#cloud-config\npackages: [x]\n")
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapDataInvalidReason)
	told := &infrav1.QuoinMachine{}
	w.object(told, "qm1")
	w.g.Expect(conditions.Has(told, infrav1.MachineBootstrapDataRanCondition)).To(BeTrue())
	w.setBootstrapData(work)
	w.untilState(infrav1.HostStateProvisioned)
	w.object(told, "qm1")
	w.g.Expect(conditions.Has(told, infrav1.MachineBootstrapDataRanCondition)).To(BeFalse())
}

// Where a claim names somebody else's Machine, what the host says must not tell which words its bootstrap data have.
func TestOnlyTheBootstrapDataOfTheHostsOwnMachineAreTakenOutOfWhatItSays(t *testing.T) {
	const here, there = "quoin://hosts/h1/0123abcd", "quoin://hosts/h2/0123abcd"
	for name, c := range map[string]struct {
		change func(*infrav1.QuoinMachine, *clusterv1.Machine)
		taken  bool
	}{
		"it has the host":  {func(*infrav1.QuoinMachine, *clusterv1.Machine) {}, true},
		"after a move":     {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.UID = "89abcdef-0000" }, true},
		"it is its node":   {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.ProviderID = here }, true},
		"it has another":   {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.ProviderID = there }, false},
		"it will have one": {func(q *infrav1.QuoinMachine, _ *clusterv1.Machine) { q.Spec.ProviderID = there }, false},
		"other QuoinMachine": {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.InfrastructureRef.Name = "qm2" },
			false},
		"no QuoinMachine": {func(_ *infrav1.QuoinMachine, m *clusterv1.Machine) { m.Spec.InfrastructureRef.Kind = "Other" },
			false},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			host := w.host()
			cluster, quoinCluster, machine, quoinMachine, secret := consumer(true)
			c.change(quoinMachine, machine)
			secret.Data["value"] = []byte("#cloud-config\nwrite_files:\n- {path: /x, content: abcdefghijklmnopqrstuvwxyz}\n")
			w = newWorld(t, host, cluster, quoinCluster, machine, quoinMachine, secret)
			secrets, err := w.r.bootstrapSecrets(w.ctx, host)
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(len(secrets) > 0).To(Equal(c.taken))
		})
	}
}
