// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
)

// blow is what a test takes away from a control plane.
type blow string

const (
	nothing     blow = "nothing"
	etcdKilled  blow = "etcd killed"
	etcdStopped blow = "etcd stopped"
	etcdAlone   blow = "etcd cut off"
	etcdParted  blow = "etcd cut off from one other"
	diskSlow    blow = "disk of etcd slow"
	clockSteps  blow = "clocks of a host and of our manager set"
	hostCrashes blow = "host crashed"
	hostOff     blow = "host without power"
	domainOff   blow = "failure domain without power"
	// These are for good.
	diskDead   blow = "disk of etcd dead, a person asks for a replacement"
	hostBurns  blow = "host burnt, as a person says"
	hostSilent blow = "host gone, as a MachineHealthCheck finds"
	joinerLost blow = "host burnt while it joins"
)

// passing are the blows that end by themselves; lasting are those that somebody has to mend.
var (
	passing = []blow{etcdKilled, etcdStopped, etcdAlone, etcdParted, hostCrashes, hostOff, domainOff, clockSteps}
	lasting = []blow{diskDead, hostBurns, hostSilent, joinerLost}
)

// forGood tells whether the member is lost.
func (b blow) forGood() bool { return b == diskDead || b == hostBurns || b == hostSilent }

// joinPhases are those of kubeadm join at which a host is lost for good; from the last two on its member votes.
var joinPhases = []string{
	"preflight", "check-etcd", "kubelet-start", "etcd-join", "etcd-added", "etcd-started", "etcd-promoted", "mark-control-plane",
}

// trouble is what goes wrong during one rollout. All of it is drawn before the rollout begins.
type trouble struct {
	// lives are after how many events the controllers die, one after another.
	lives []int
	// The blow falls at an event, on a host, and lasts so long.
	blow   blow
	at     int
	host   int
	length time.Duration
}

// perMachine is about how many events there are while a Machine is replaced.
const perMachine = 150

func drawTrouble(random *rand.Rand, blows []blow, machines int) trouble {
	t := trouble{blow: blows[random.IntN(len(blows))], at: 1 + random.IntN(machines*perMachine), host: random.IntN(1000)}
	t.length = time.Duration(random.Int64N(int64(3 * time.Second))).Round(10 * time.Millisecond)
	for range random.IntN(4) {
		t.lives = append(t.lives, 1+random.IntN(perMachine/2))
	}
	return t
}

func (t trouble) String() string {
	return fmt.Sprintf("kills after %v, %s at event %d for %s", t.lives, t.blow, t.at, t.length)
}

// avenger makes one trouble happen to a court.
type avenger struct {
	court *court
	judge *judge
	trouble

	events atomic.Int64
	busy   sync.WaitGroup
	struck atomic.Pointer[sim.Host]
	told   string

	// What is for good is mended by mend: doomed is the Machine that must be replaced.
	doomed types.UID
	added  bool
	mended bool
	check  *clusterv1.MachineHealthCheck
}

// hear is told of every event.
func (a *avenger) hear(e event) {
	if e.where == "etcd" {
		// A membership that was changed this instant.
		a.judge.look()
	}
	if a.events.Add(1) != int64(a.at) || a.blow == nothing || a.blow == joinerLost {
		return
	}
	a.busy.Add(1)
	go func() {
		defer a.busy.Done()
		a.strike()
	}()
}

// joins is told of every phase of a kubeadm join, and loses the first host that comes to the drawn one.
func (a *avenger) joins(host *sim.Host, phase string) {
	at := a.host % len(joinPhases)
	if a.blow != joinerLost || phase != joinPhases[at] || a.struck.Load() != nil {
		return
	}
	a.told = fmt.Sprintf("%s: %s, before %s", host.Name, a.blow, phase)
	if at >= slices.Index(joinPhases, "etcd-promoted") {
		a.judge.burn(1)
	}
	host.PowerOff()
	a.struck.Store(host)
}

// victim is the host that the blow falls on: one whose member votes, if the loss is for good.
func (a *avenger) victim() *sim.Host {
	alive := make([]*sim.Host, 0, len(a.court.hosts))
	for _, host := range a.court.hosts {
		if !a.court.burnt[host] {
			alive = append(alive, host)
		}
	}
	votes := map[string]bool{}
	if a.blow.forGood() {
		members, err := a.court.members(context.Background())
		if err != nil {
			return nil
		}
		nodes := map[string]bool{}
		for _, machine := range a.court.machines() {
			nodes[machine.Status.NodeRef.Name] = true
		}
		for _, member := range members {
			votes[member.Name] = !member.Learner && member.Ready && nodes[member.Name]
		}
	}
	for i := range alive {
		host := alive[(a.host+i)%len(alive)]
		if !a.blow.forGood() || votes[host.Name] {
			return host
		}
	}
	return nil
}

// strike takes something away; what is not for good it gives back after a while.
func (a *avenger) strike() {
	host := a.victim()
	if host == nil {
		a.told = "nobody to strike"
		return
	}
	member := a.court.cluster.Etcd(host.Machine)
	other := a.other(host)
	if member == nil && slices.Contains([]blow{etcdKilled, etcdStopped, etcdAlone, diskSlow}, a.blow) ||
		a.blow == etcdParted && (member == nil || other == nil) {
		a.blow = hostCrashes
	}
	a.told = fmt.Sprintf("%s: %s", host.Name, a.blow)
	if a.blow.forGood() {
		a.judge.burn(1)
		if a.blow == diskDead {
			member.LoseData()
		} else {
			host.PowerOff()
		}
		a.struck.Store(host)
		return
	}
	away := []*sim.Host{host}
	if a.blow == domainOff {
		away = nil
		for _, other := range a.court.hosts {
			if a.court.domains[other] == a.court.domains[host] && !a.court.burnt[other] {
				away = append(away, other)
			}
		}
	}
	a.judge.lose(len(away))
	defer func() {
		a.untilBack(away)
		a.judge.lose(-len(away))
	}()
	switch a.blow {
	case etcdKilled:
		member.Kill()
	case etcdStopped:
		member.Pause()
		time.Sleep(a.length)
		member.Resume()
	case etcdAlone:
		member.Isolate(true)
		time.Sleep(a.length)
		member.Isolate(false)
	case etcdParted:
		member.Part(other, true)
		time.Sleep(a.length)
		member.Part(other, false)
	case diskSlow:
		quick, err := member.Disk(time.Second + a.length*2/3)
		if err != nil {
			a.told += ", which ended before"
			return
		}
		time.Sleep(3 * a.length)
		quick()
	case clockSteps:
		// By hours our manager's certificates are of no use, and it reads no member; by minutes it does.
		unit := time.Hour
		if a.host%2 == 1 {
			unit = time.Minute
		}
		for _, offset := range []time.Duration{time.Duration(1+a.host%12) * unit, -time.Duration(1+a.host%7) * unit, 0} {
			host.Machine.SetClockOffset(offset)
			a.court.site.SetClockOffset(-offset)
			time.Sleep(a.length / 2)
		}
	case hostCrashes:
		host.Reboot()
	case hostOff, domainOff:
		for _, host := range away {
			host.PowerOff()
		}
		time.Sleep(a.length)
		for _, host := range away {
			host.PowerOn()
		}
	}
}

// other member than that of the host, which runs; nil when there is none.
func (a *avenger) other(host *sim.Host) *kube.Member {
	for i := range a.court.hosts {
		other := a.court.hosts[(a.host+i)%len(a.court.hosts)]
		if member := a.court.cluster.Etcd(other.Machine); other != host && member != nil && member.Running() {
			return member
		}
	}
	return nil
}

// untilBack waits until the members of the hosts answer again, or are members no more.
func (a *avenger) untilBack(hosts []*sim.Host) {
	// Whoever was killed this instant may still look alive.
	time.Sleep(2 * time.Second)
	names := map[string]bool{}
	for _, host := range hosts {
		names[host.Name] = true
	}
	for begin := time.Now(); time.Since(begin) < a.court.patience; time.Sleep(100 * time.Millisecond) {
		members, err := a.court.members(context.Background())
		if err == nil && !slices.ContainsFunc(members, func(m kube.MemberView) bool { return names[m.Name] && !m.Ready }) {
			return
		}
	}
	a.court.t.Errorf("%s: its member does not come back", a.told)
}

// mend does what people do about a loss that is for good, one thing after another. It is called again and again by the
// test's own goroutine, and says what is still to be done.
func (a *avenger) mend() string {
	host := a.struck.Load()
	if host == nil || a.mended {
		return ""
	}
	c := a.court
	if !a.added {
		// Whatever happens to the host, there is another one.
		c.addHostTo(c.domains[host])
		a.added = true
		if a.blow != diskDead {
			c.burnt[host] = true
		}
	}
	machine, object := c.machineOn(host)
	if a.doomed == "" && machine != nil {
		a.doomed = machine.UID
	}
	if machine == nil || machine.UID != a.doomed {
		a.mended = true
		if a.blow != diskDead && object != nil {
			c.giveUp(object)
		}
		if a.check != nil {
			if err := c.plane.Client.Delete(c.t.Context(), a.check); err != nil {
				c.t.Error(err)
			}
		}
		return ""
	}
	switch {
	case a.blow == diskDead && machine.DeletionTimestamp.IsZero():
		c.annotate(machine, clusterv1.RemediateMachineAnnotation)
	case a.blow == hostSilent && a.check == nil:
		a.check = c.healthCheck()
	case a.blow == hostBurns, a.blow == joinerLost, a.blow == hostSilent && !machine.DeletionTimestamp.IsZero():
		// The way out that the host's condition names.
		if object.Status.State != infrav1.HostStateQuarantined {
			c.giveUp(object)
		}
	}
	return fmt.Sprintf("Machine %s is still on host %s: %s", machine.Name, host.Name, a.blow)
}

// machineOn is the Machine that has the host, with the host's object; nil when there is none.
func (c *court) machineOn(host *sim.Host) (*clusterv1.Machine, *infrav1.QuoinHost) {
	object := &infrav1.QuoinHost{}
	if err := c.plane.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.options.name, Name: host.Name}, object); err != nil {
		c.t.Error(err)
		return nil, nil
	}
	if object.Spec.ConsumerRef == nil {
		return nil, object
	}
	for _, machine := range c.machines() {
		if machine.Name == object.Spec.ConsumerRef.Machine {
			return &machine, object
		}
	}
	return nil, object
}

// annotate adds an annotation that has no value.
func (c *court) annotate(object client.Object, key string) {
	if _, there := object.GetAnnotations()[key]; there {
		return
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, key))
	err := c.plane.Client.Patch(c.t.Context(), object, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		c.t.Error(err)
	}
}

// healthCheck has Machines replaced whose kubelet is silent for a second.
func (c *court) healthCheck() *clusterv1.MachineHealthCheck {
	check := &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.options.name, Name: "c"},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: c.key.Name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.ClusterNameLabel: c.key.Name}},
			Checks: clusterv1.MachineHealthCheckChecks{
				NodeStartupTimeoutSeconds: ptr.To[int32](600),
				UnhealthyNodeConditions:   []clusterv1.UnhealthyNodeCondition{{Type: "Ready", Status: "Unknown", TimeoutSeconds: ptr.To[int32](1)}},
			},
		},
	}
	c.create(check)
	return check
}
