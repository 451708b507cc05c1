// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// depot serves the bundle of a version, and counts what it is asked for.
type depot struct {
	files map[string]machine.File

	mu   sync.Mutex
	asks map[string]int
	// hangs is the file that never comes to its end.
	hangs string
}

func (d *depot) RoundTrip(request *http.Request) (*http.Response, error) {
	name := path.Base(request.URL.Path)
	d.mu.Lock()
	d.asks[name]++
	hangs := d.hangs == name
	d.mu.Unlock()
	if hangs {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	file, known := d.files["/opt/quoin"+request.URL.Path]
	if !known {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: request}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Request: request, ContentLength: int64(len(file.Content)),
		Body: io.NopCloser(bytes.NewReader(file.Content))}, nil
}

// asked is how often each file was fetched, manifests left out, which every plan reads.
func (d *depot) asked() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	asks := map[string]int{}
	for name, n := range d.asks {
		if name != "manifest.json" {
			asks[name] = n
		}
	}
	return asks
}

const depotLocation = "http://bundles.test/bundles/{{version}}"

// newStagingLab has a free host that is asked for what a worker of the version needs.
func newStagingLab(t *testing.T, name, hangs string) (*lab, *depot) {
	t.Helper()
	d := &depot{files: kube.Bundle(version), asks: map[string]int{}, hangs: hangs}
	l := newLab(t, newFleet(t, kube.Options{}, func(o *sim.Options) {
		o.Machine = func(m *machine.Options) { m.Web = d }
	}), name)
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "t"}}
	template.Spec.Template.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: depotLocation}
	l.create(template)
	l.untilState(infrav1.HostStateAvailable)
	host := l.object()
	host.Spec.Stage = &infrav1.HostStage{RequestedBy: name + "/u", Until: metav1.NewTime(time.Now().Add(time.Hour)),
		Artifacts: []infrav1.StagedArtifacts{{Namespace: name, Template: "t", Version: version,
			Role: infrav1.StageRoleWorker}}}
	NewWithT(t).Eventually(func() error {
		fresh := l.object()
		fresh.Spec.Stage = host.Spec.Stage
		return l.plane.Client.Update(t.Context(), fresh)
	}, "30s").Should(Succeed())
	return l, d
}

// addFetched makes the Machine that claims the host, and fetches its version.
func (l *lab) addFetched() {
	l.t.Helper()
	if err := l.plane.AddMachine(l.t.Context(), plane.MachineOptions{
		Namespace: l.key.Namespace, Name: "m", Version: version, Bootstrap: []byte(worker),
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: depotLocation}},
	}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) untilStaged() *infrav1.QuoinHost {
	l.t.Helper()
	return l.until("staged", func(h *infrav1.QuoinHost) bool { return len(h.Status.Staged) == 1 })
}

func cached(l *lab) (files []string) {
	for _, name := range l.host.Machine.FS().List("/var/lib/quoin/cache") {
		if !strings.HasSuffix(name, "/cache") {
			files = append(files, name)
		}
	}
	return files
}

// TestAStagedHostJoinsWithoutFetching takes a free host through the staging and to a node: what was staged is fetched
// once.
func TestAStagedHostJoinsWithoutFetching(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l, d := newStagingLab(t, "staged", "")
	staged := l.untilStaged()
	g.Expect(staged.Status.State).To(Equal(infrav1.HostStateAvailable))
	g.Expect(l.host.Machine.FS().Exists("/usr/bin/kubeadm")).To(BeFalse())
	g.Expect(l.host.Machine.Unknown()).To(BeEmpty(), "every command of every script is simulated")
	asked := d.asked()
	g.Expect(asked).To(HaveKeyWithValue("kubelet", 1))
	g.Expect(asked).To(HaveKeyWithValue("kube-proxy.tar", 1))
	g.Expect(asked).NotTo(HaveKey("kube-apiserver.tar"))
	g.Expect(cached(l)).To(HaveLen(5), "kubeadm, kubelet, kubectl and two units")

	l.addFetched()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	g.Expect(d.asked()).To(Equal(asked), "nothing was fetched again")
	g.Expect(l.joins()).To(Equal(1))
	g.Expect(l.untilState(infrav1.HostStateProvisioned).Status.Staged).To(BeEmpty())
	l.deleteMachine()
	l.untilState(infrav1.HostStateAvailable)
}

// TestAMachineTakesTheHostThatIsStaged has two free hosts, of which the first one by its name has nothing.
func TestAMachineTakesTheHostThatIsStaged(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l, d := newStagingLab(t, "preferred", "")
	bare, err := l.fleet.Add("a-bare")
	g.Expect(err).NotTo(HaveOccurred())
	l.create(quoinHost(bare, l.key.Namespace))
	other := func() *infrav1.QuoinHost {
		host := &infrav1.QuoinHost{}
		g.Expect(l.plane.Client.Get(t.Context(), types.NamespacedName{Namespace: l.key.Namespace, Name: bare.Name},
			host)).To(Succeed())
		return host
	}
	g.Eventually(func() infrav1.HostState { return other().Status.State }, patience).Should(
		Equal(infrav1.HostStateAvailable))
	l.untilStaged()
	asked := d.asked()
	l.addFetched()
	g.Eventually(func() bool { return l.object().Spec.ConsumerRef != nil || other().Spec.ConsumerRef != nil },
		patience).Should(BeTrue())
	g.Expect(other().Spec.ConsumerRef).To(BeNil(), "the other host was claimed")
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	g.Expect(d.asked()).To(Equal(asked), "nothing was fetched again")
}

// TestAStagedFileIsTrustedForNothing spoils each file that was staged.
func TestAStagedFileIsTrustedForNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l, d := newStagingLab(t, "spoiled", "")
	l.untilStaged()
	before := d.asked()
	code, err := l.host.Run(t.Context(), "for f in /var/lib/quoin/cache/*; do tr a-y b-z <$f >/tmp/x && cat /tmp/x >$f; done")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(BeZero())
	l.addFetched()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	for _, name := range []string{"kubeadm", "kubelet", "kubectl", "kubelet.service"} {
		g.Expect(d.asked()[name]).To(Equal(before[name]+1), name)
	}
	g.Expect(d.asked()["kube-proxy.tar"]).To(Equal(before["kube-proxy.tar"]))
	g.Expect(l.joins()).To(Equal(1))
}

// TestAClaimEndsStaging claims a host while a file that is being staged hangs.
func TestAClaimEndsStaging(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l, d := newStagingLab(t, "claimed", "kubelet")
	g.Eventually(func() int { return d.asked()["kubelet"] }, patience).Should(Equal(1))
	g.Expect(l.object().Status.State).To(Equal(infrav1.HostStateAvailable))
	d.mu.Lock()
	d.hangs = ""
	d.mu.Unlock()
	l.addFetched()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	g.Expect(d.asked()).To(HaveKeyWithValue("kubelet", 2))
	g.Expect(d.asked()).To(HaveKeyWithValue("kubeadm", 1))
	for _, name := range l.host.Machine.FS().List("/var/lib/quoin/runs") {
		if strings.Contains(name, "/stage-") && strings.HasSuffix(name, "/result") {
			g.Expect(l.host.Machine.FS().Text(name)).To(HavePrefix("interrupted"))
			return
		}
	}
	t.Error("the plan that staged has no result:", l.describe())
}

// TestStagingSurvivesKills kills the manager again and again until the host has what it is asked for.
func TestStagingSurvivesKills(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l, d := newStagingLab(t, "killed", "")
	for len(l.object().Status.Staged) == 0 && l.kills < 40 {
		time.Sleep(time.Duration(50+40*l.kills) * time.Millisecond)
		l.kill()
	}
	l.untilStaged()
	for name, n := range d.asked() {
		g.Expect(n).To(Equal(1), name)
	}
	l.addFetched()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	g.Expect(l.joins()).To(Equal(1))
}
