// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/async"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/egress"
)

// from changes where the claim's version comes from.
func (w *world) from(a infrav1.Artifacts) {
	w.t.Helper()
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.Artifacts = a
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
}

var pushedBundle = infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: "/bundles/{{version}}",
	Delivery: infrav1.BundleDeliveryPush}}

func TestAPushedVersionIsThereBeforeItsPlanStarts(t *testing.T) {
	w := claimedWorld(t, false)
	w.from(pushedBundle)
	w.until("progress", func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostProvisionedCondition)
		return c != nil && c.Message == "sending the files of v1.35.4 to h1: 1024 of 3072 MiB are there"
	})
	w.g.Expect(w.room.count("provision")).To(BeZero())
	host := w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.count("push")).To(Equal(3))
	w.g.Expect(w.room.count("provision")).To(Equal(1))
	w.g.Expect(w.room.pushed[0].Role).To(Equal(artifacts.Worker))
	w.g.Expect(w.room.pushed[0].Owner.UID).To(Equal(host.Spec.ConsumerRef.Claim))

	// So are the add-ons of another version.
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{"v1.36.3"}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.until("images", func(h *infrav1.QuoinHost) bool { return len(h.Status.AddonVersions) == 2 })
	w.g.Expect(w.room.pushed[len(w.room.pushed)-1].Role).To(Equal(artifacts.Addon))
	w.g.Expect(w.room.count("push")).To(Equal(6))
}

func TestAPushThatFailsIsAConditionAndIsTriedAgain(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.set(func() {
		w.room.errs["push"] = &ArtifactsError{Place: "/bundles/v1.35.4",
			Err: errors.New("no such file in the manager's container")}
	})
	w.from(pushedBundle)
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostArtifactsUnavailableReason)
	w.g.Expect(found.Message).To(ContainSubstring("manager's container"))
	w.g.Expect(w.room.count("provision")).To(BeZero())
	w.room.set(func() { delete(w.room.errs, "push") })
	w.untilState(infrav1.HostStateProvisioned)
}

func TestNothingIsSentToAHostOfAnotherOwner(t *testing.T) {
	g := NewWithT(t)
	host := &scripted{answers: map[string]string{
		"owner.json": `{"namespace":"elsewhere","host":"x","machine":"m9","uid":"99999999","generation":1}`}}
	order := PushOrder{Owner: owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1},
		Role:      artifacts.Worker,
		Artifacts: artifacts.Wanted{Version: "v1.35.4", Source: sourceOf(pushedBundle)}}
	_, err := (&sshProvisioner{connector: host, pushes: async.NewSlots(maxPushes)}).Push(context.Background(), newHost(), order)
	var held *owner.HeldError
	g.Expect(errors.As(err, &held)).To(BeTrue(), "%v", err)
	for _, script := range host.scripts {
		g.Expect(script).NotTo(ContainSubstring("/cache"))
	}
}

// What another management cluster took over between two exchanges of one push gets nothing more.
func TestEveryExchangeOfAPushIsGuarded(t *testing.T) {
	g := NewWithT(t)
	const record = `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":1}`
	host := &scripted{answers: map[string]string{"owner.json": record}}
	order := PushOrder{Owner: owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1},
		Role: artifacts.Worker,
		Artifacts: artifacts.Wanted{Version: "v1.35.4", Source: artifacts.Source{Bundle: &artifacts.Bundle{
			Location: bundleOf(t), Push: true}}, Architecture: "amd64"}}
	_, err := (&sshProvisioner{connector: host, pushes: async.NewSlots(maxPushes)}).Push(t.Context(), newHost(), order)
	g.Expect(err).To(HaveOccurred(), "the answers are no host's")
	writes := 0
	for _, script := range host.scripts {
		if strings.Contains(script, "/cache") {
			writes++
			g.Expect(script).To(And(ContainSubstring("flock -s"), ContainSubstring("'"+record+"'")))
		}
	}
	g.Expect(writes).NotTo(BeZero())
	var source *ArtifactsError
	wanted := order.Artifacts
	g.Expect(errors.As(sourceError(wanted, fmt.Errorf("sending kubeadm: %w", owner.ErrMoved)), &source)).To(BeFalse())
	g.Expect(errors.As(sourceError(wanted, fmt.Errorf("sending kubeadm: %w", &owner.StaleError{})), &source)).To(BeFalse())
}

// The operator's keys count for what is sent and for what a host fetches, and nothing is written before.
func TestABundleThatTheOperatorDidNotSignComesOntoNoHost(t *testing.T) {
	const record = `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":1}`
	keys := []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Uq0tSYnUBGTsKBnBqKMZFGNkpzDnQb/hZ1UHrmzrk"}
	for name, send := range map[string]func(*sshProvisioner) error{
		"pushed": func(p *sshProvisioner) error {
			_, err := p.Push(t.Context(), newHost(), PushOrder{
				Owner: owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1},
				Role:  artifacts.Worker,
				Artifacts: artifacts.Wanted{Version: "v1.35.4", Source: artifacts.Source{Bundle: &artifacts.Bundle{
					Location: bundleOf(t), Push: true}}, Architecture: "amd64"}})
			return err
		},
		"fetched": func(p *sshProvisioner) error {
			order := provisionOrderOf(t, "/opt/{{version}}")
			return p.Stage(t.Context(), newHost(), StageOrder{ID: stagePlan(infrav1.StagedArtifacts{Version: "v1"}),
				Owner: order.Owner, Artifacts: order.Artifacts, Role: artifacts.Worker})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &scripted{takes: true, answers: map[string]string{"owner.json": record, "cat \"$": record,
				"manifest.json": manifestText, "/proc/uptime": fmt.Sprintf("clock %d.0 60 b1\n", time.Now().Unix())}}
			g.Expect(send(&sshProvisioner{connector: host, bundleKeys: keys, pushes: async.NewSlots(maxPushes)})).To(
				MatchError(ContainSubstring("the manager's --bundle-keys")))
			for _, script := range host.scripts {
				g.Expect(script).NotTo(ContainSubstring("/cache"))
			}
			g.Expect(host.starts()).To(BeEmpty())
		})
	}
}

// No server of bundles is connected to whose address is refused, whether its bundle is looked at or sent.
func TestABundleIsReadFromNoAddressThatIsRefused(t *testing.T) {
	const record = `{"namespace":"hosts","host":"h1","machine":"qm1","uid":"0123abcd","generation":1}`
	wanted := artifacts.Wanted{Version: "v1.35.4", Architecture: "amd64",
		Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: "http://127.0.0.1:1/{{version}}", Push: true}}}
	ours := owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1}
	for name, read := range map[string]func(*sshProvisioner) error{
		"sent": func(p *sshProvisioner) error {
			_, err := p.Push(t.Context(), newHost(), PushOrder{Owner: ours, Role: artifacts.Worker, Artifacts: wanted})
			return err
		},
		"looked at": func(p *sshProvisioner) error {
			return p.Stage(t.Context(), newHost(), StageOrder{ID: stagePlan(infrav1.StagedArtifacts{Version: "v1"}), Owner: ours,
				Artifacts: wanted, Role: artifacts.Worker})
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := &scripted{takes: true, answers: map[string]string{"owner.json": record, "cat \"$": record,
				"/proc/uptime": fmt.Sprintf("clock %d.0 60 b1\n", time.Now().Unix())}}
			err := read(&sshProvisioner{connector: host, egress: egress.NewKnowing(nil, nil), pushes: async.NewSlots(maxPushes)})
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("address 127.0.0.1 is refused")))
		})
	}
}

// bundleOf is a location with the manifest of a bundle.
func bundleOf(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	location := filepath.Join(t.TempDir(), "v1.35.4")
	g.Expect(os.MkdirAll(location, 0o700)).To(Succeed())
	manifest, err := json.Marshal(artifacts.Manifest{KubernetesVersion: "v1.35.4", OS: "linux", Architecture: "amd64",
		Files: []artifacts.File{{Path: "bin/kubeadm", SHA256: strings.Repeat("0", 64), Size: 1, Kind: artifacts.Binary,
			Install: "/usr/bin/kubeadm", Roles: []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(location, "manifest.json"), manifest, 0o600)).To(Succeed())
	return filepath.Join(filepath.Dir(location), "{{version}}")
}

// tarpits are hosts that take a connection and never answer, in the namespace tarpits, beside one that answers.
type tarpits struct {
	*scripted
	begun chan struct{}
}

func (p *tarpits) ConnectAgain(_ context.Context, host *infrav1.QuoinHost) (ssh.Host, error) {
	if host.Namespace == "tarpits" {
		return p, nil
	}
	return p.scripted, nil
}

func (p *tarpits) Run(ctx context.Context, _ ssh.Command) (ssh.Result, error) {
	p.begun <- struct{}{}
	<-ctx.Done()
	return ssh.Result{}, ctx.Err()
}

// A push takes a minute at a time of what all hosts share, and those of one tenant may take it whole each time.
func TestHostsTakeTurnsToBeSentFiles(t *testing.T) {
	g := NewWithT(t)
	host := &tarpits{scripted: &scripted{}, begun: make(chan struct{}, 32)}
	o := &sshProvisioner{connector: host, pushes: async.NewSlots(maxPushes)}
	at := func(namespace string) *infrav1.QuoinHost {
		host := newHost()
		host.Namespace = namespace
		return host
	}
	order := PushOrder{Owner: owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd", Generation: 1},
		Role:      artifacts.Worker,
		Artifacts: artifacts.Wanted{Version: "v1.35.4", Source: sourceOf(pushedBundle)}}
	ctx, end := context.WithCancel(t.Context())
	var hung sync.WaitGroup
	for range 16 {
		hung.Go(func() { _, _ = o.Push(ctx, at("tarpits"), order) })
	}
	for range 16 {
		<-host.begun
	}
	for range 8 {
		pushed, err := o.Push(ctx, at("tarpits"), order)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pushed.Waits).To(BeTrue(), "four fifths are theirs already")
	}
	pushed, _ := o.Push(t.Context(), at("good"), order)
	g.Expect(pushed.Waits).To(BeFalse())
	g.Expect(host.scripts).NotTo(BeEmpty())
	end()
	hung.Wait()
	pushed, _ = o.Push(ctx, at("tarpits"), order)
	g.Expect(pushed.Waits).To(BeFalse(), "nobody keeps a place, neither who waited nor who is done")

	w := claimedWorld(t, false)
	w.room.set(func() { w.room.pushWaits = true })
	w.from(pushedBundle)
	w.until("its turn", func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostProvisionedCondition)
		return c != nil && strings.Contains(c.Message, "waits until others have theirs")
	})
	w.g.Expect(w.room.count("provision")).To(BeZero())
	w.room.set(func() { w.room.pushWaits = false })
	w.untilState(infrav1.HostStateProvisioned)
}

func TestTheManagersOwnTroubleIsNotTheHosts(t *testing.T) {
	g := NewWithT(t)
	wanted := artifacts.Wanted{Version: "v1.35.4", Source: sourceOf(pushedBundle)}
	var source *ArtifactsError
	g.Expect(errors.As(sourceError(wanted, &artifacts.DepotError{}), &source)).To(BeTrue())
	lost := &ssh.InterruptedError{Endpoint: "x", Err: errors.New("reset by peer")}
	g.Expect(sourceError(wanted, lost)).To(BeIdenticalTo(lost))
}

func TestEverySourceReachesTheHostAsTheMachineSaysIt(t *testing.T) {
	g := NewWithT(t)
	rate := resource.MustParse("10M")
	bundle := infrav1.Bundle{Location: "https://x/{{version}}", Delivery: infrav1.BundleDeliveryFetch,
		PublicKeys: []string{"ssh-ed25519 AAAA"},
		Proxy:      "http://proxy:3128", CertificateAuthorities: "PEM", BytesPerSecond: &rate}
	g.Expect(sourceOf(infrav1.Artifacts{Bundle: &bundle})).To(Equal(artifacts.Source{Bundle: &artifacts.Bundle{
		Location: "https://x/{{version}}", PublicKeys: []string{"ssh-ed25519 AAAA"}, Proxy: "http://proxy:3128",
		CertificateAuthorities: "PEM", BytesPerSecond: 10_000_000}}))
	g.Expect(sourceOf(infrav1.Artifacts{Packages: &infrav1.Packages{Repository: "deb x", SigningKey: "key"}})).To(Equal(
		artifacts.Source{Packages: &artifacts.Packages{Repository: "deb x", SigningKey: "key"}}))
	for images, required := range map[string]bool{"": false, "Pullable": false, "Required": true} {
		g.Expect(sourceOf(infrav1.Artifacts{Preinstalled: &infrav1.Preinstalled{Images: images}})).To(Equal(
			artifacts.Source{Preinstalled: &artifacts.Preinstalled{ImagesRequired: required}}))
	}
}

// A host for which nothing can be read yet comes again as one does that waits for its turn, and not at once.
func TestAPushThatCouldDoNothingComesAgainLater(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.set(func() { w.room.pushLater = true })
	w.from(pushedBundle)
	w.until("what it waits for", func(h *infrav1.QuoinHost) bool {
		c := condition1(h, infrav1.HostProvisionedCondition)
		return c != nil && c.Message == "sending the files of v1.35.4 to h1: 0 of 3072 MiB are there; nothing of "+
			"bin/kubeadm is sent before its checksum is known"
	})
	asked, waits := w.room.count("push"), map[time.Duration]int{}
	for range 8 {
		waits[w.reconcile().RequeueAfter]++
	}
	w.g.Expect(w.room.count("push")).To(BeNumerically(">", asked))
	w.g.Expect(waits).To(HaveKey(w.r.Timings.Push))
	delete(waits, 0) // at the end of a call
	w.g.Expect(waits).To(HaveLen(1))
	w.room.set(func() { w.room.pushLater = false })
	w.untilState(infrav1.HostStateProvisioned)
}
