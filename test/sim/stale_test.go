// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// Objects from the day of one replica are made on another management plane while the cluster has three. The other plane takes the
// one host over that they know, and is right to. It finds two healthy voters that no Machine runs: it removes neither, and tells
// how a person would; also while the one that it knows does not hear one of them, which votes through the other.
func TestObjectsOfAnotherDayRemoveNoVoter(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "another-day", replicas: 1, hosts: 3, strategy: surge})
	court.untilWhole("coming up")
	second := secondPlane(t)
	day, move := t.TempDir(), &plane.Move{From: court.plane, To: second, Namespace: court.options.name}
	g.Expect(move.ToDirectory(t.Context(), day)).To(Succeed())
	known := court.memberOf(court.machines()[0])
	court.options.replicas = 3
	court.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Replicas = ptr.To[int32](3) })
	court.untilWhole("three replicas")
	var unknown *kube.Member
	court.until("being led by one of the new ones", func() string {
		leader, others := court.leaderOf()
		if court.memberOf(leader) == known {
			known.Pause()
			time.Sleep(4 * time.Second)
			known.Resume()
			return "the first one leads"
		}
		if unknown = court.memberOf(others[0]); unknown == known {
			unknown = court.memberOf(others[1])
		}
		return ""
	})
	court.untilWhole("being whole")
	before, trees, count := court.inside(), court.trees(), len(court.machines())
	g.Expect(before.members).To(HaveLen(3))

	site := court.newSite(second)
	g.Expect(move.FromDirectory(t.Context(), day)).To(Succeed())
	court.plane, court.site = second, site
	judge := court.watchMembers(3)
	court.until("taking the one host over", func() string { return court.lacksGeneration(2) })
	court.untilReason(controlplanev1.ControlPlaneEtcdClusterHealthyCondition, controlplanev1.MemberWithoutMachineReason)
	g.Expect(conditions.GetMessage(court.object(), controlplanev1.ControlPlaneEtcdClusterHealthyCondition)).
		To(ContainSubstring("kubectl annotate quoincontrolplane -n another-day c " + controlplanev1.RemoveEtcdMemberAnnotation + "="))
	time.Sleep(10 * time.Second)
	known.Part(unknown, true)
	time.Sleep(20 * time.Second)
	g.Expect(court.inside()).To(Equal(before), "while one of them is heard by the other alone")
	known.Part(unknown, false)
	judge.end()
	g.Expect(court.inside()).To(Equal(before))
	g.Expect(court.changedSince(trees)).To(BeEmpty(), "no host is changed")
	g.Expect(court.machines()).To(HaveLen(1), "and no Machine is made beside %d that exist elsewhere", count)
}

// A management plane stays behind after a move, without knowing: it died before the copies came alive. A person wakes it, and
// edits and deletes there what only the other plane has a right to.
func TestAPlaneThatStayedBehindChangesNothingInTheCluster(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "behind", replicas: 3, hosts: 4, strategy: removeFirst})
	court.untilWhole("coming up")
	behind := court.leaveBehind()
	before, trees := court.inside(), court.trees()

	behind.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Version, spec.Replicas = version, ptr.To[int32](1)
	})
	machine := behind.machines()[0]
	g.Expect(behind.plane.Client.Delete(t.Context(), &machine)).To(Succeed())
	var mu sync.Mutex
	changes := map[*plane.Manager][]string{}
	court.listen(func(e event) {
		if e.where == "etcd" || e.where == "workload" {
			mu.Lock()
			defer mu.Unlock()
			changes[e.manager] = append(changes[e.manager], e.String())
		}
	})
	judge := court.watchMembers(3)
	g.Expect(behind.site.Start()).To(Succeed())
	behind.untilReason(controlplanev1.ControlPlaneProgressingCondition, "StaleClaim")
	time.Sleep(10 * time.Second)
	g.Expect(conditions.GetReason(behind.object(), controlplanev1.ControlPlaneProgressingCondition)).To(Equal("StaleClaim"))
	judge.end()
	mu.Lock()
	defer mu.Unlock()
	g.Expect(changes[behind.site.Manager()]).To(BeEmpty(), "of etcd, and through the API server of the cluster")
	g.Expect(court.inside()).To(Equal(before))
	g.Expect(court.changedSince(trees)).To(BeEmpty(), "no host is changed")
	g.Expect(court.lacks()).To(BeEmpty())
}

// leaveBehind moves the court's objects to another plane, and leaves the plane that they come from with all of them, dead and
// without knowing.
func (c *court) leaveBehind() *court {
	c.t.Helper()
	g := NewWithT(c.t)
	first, firstSite, second := c.plane, c.site, secondPlane(c.t)
	secondSite := c.newSite(second)
	g.Expect((&plane.Move{From: first, To: second, Namespace: c.options.name, Before: firstDeletion}).Run(c.t.Context())).
		To(MatchError(plane.ErrMoverKilled))
	firstSite.Kill()
	for _, p := range []*plane.Plane{first, second} {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))
		g.Expect(p.Client.Patch(c.t.Context(), cluster, patch)).To(Succeed())
	}
	behind := c.on(first, firstSite)
	c.plane, c.site = second, secondSite
	c.until("taking over", func() string { return c.lacksGeneration(2) })
	c.untilWhole("being whole where it was moved to")
	return behind
}

// The plane that stayed behind wakes up and wants another version, fewer replicas and a Machine less, while the other one rolls
// through troubles: hosts are released and claimed, and members come and go. Whatever it sees of that, it changes nothing.
func TestAControlPlaneRollsBesideAPlaneThatStayedBehind(t *testing.T) {
	needsTime(t)
	t.Parallel()
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "beside", replicas: 3, hosts: 4, domains: 3, strategy: surge})
	court.untilWhole("coming up")
	behind := court.leaveBehind()
	behind.change(func(spec *controlplanev1.QuoinControlPlaneSpec) {
		spec.Version, spec.Replicas = version, ptr.To[int32](1)
	})
	machine := behind.machines()[0]
	g.Expect(behind.plane.Client.Delete(t.Context(), &machine)).To(Succeed())
	var mu sync.Mutex
	var changes []string
	records := func(e event) {
		if e.manager != nil && e.manager == behind.site.Manager() && (e.where == "etcd" || e.where == "workload") {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, e.String())
		}
	}
	court.records.Store(&records)
	g.Expect(behind.site.Start()).To(Succeed())
	behind.untilReason(controlplanev1.ControlPlaneProgressingCondition, "StaleClaim")
	drawn := seed(t)
	for i, strategy := range []controlplanev1.RolloutStrategyType{surge, auto, surge, removeFirst} {
		random := rand.New(rand.NewPCG(drawn, uint64(i))) //nolint:gosec // small numbers
		court.suffer(rollout{strategy, 1, 1, passing}, drawTrouble(random, passing, 1))
	}
	mu.Lock()
	defer mu.Unlock()
	g.Expect(changes).To(BeEmpty(), "of etcd, and through the API server of the cluster")
	for _, host := range court.quoinHosts(court.plane) {
		if host.Spec.ConsumerRef != nil {
			g.Expect(court.record(host.Name).Generation).To(Equal(host.Spec.ClaimGeneration), host.Name)
		}
	}
}

// on is the same court, seen from one of two management planes.
func (c *court) on(p *plane.Plane, site *plane.Site) *court {
	return &court{t: c.t, options: c.options, plane: p, site: site, cluster: c.cluster, fleet: c.fleet, key: c.key, hosts: c.hosts, patience: c.patience}
}

// inside is what a management plane could change in the cluster itself.
type inside struct {
	members []uint64
	// nodes are their UIDs, and whether somebody keeps pods off them.
	nodes map[string]string
	// kubeadm is its configuration.
	kubeadm map[string]string
}

func (c *court) inside() inside {
	c.t.Helper()
	found := inside{nodes: map[string]string{}}
	_, found.members = c.identities()
	workload, err := c.workload(30 * time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	nodes, err := workload.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		taints := map[string]corev1.TaintEffect{}
		for _, taint := range node.Spec.Taints {
			taints[taint.Key] = taint.Effect
		}
		found.nodes[node.Name] = fmt.Sprint(node.UID, node.Spec.Unschedulable, slices.Sorted(maps.Keys(taints)))
	}
	config, err := workload.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(c.t.Context(), "kubeadm-config", metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	found.kubeadm = config.Data
	return found
}
