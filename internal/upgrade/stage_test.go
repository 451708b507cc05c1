// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	prod = "QuoinControlPlane prod"
	blue = "MachineDeployment blue"
)

// estate is a fleet with free hosts, which get what they are asked for when they are told to.
type estate struct {
	*WithT
	*fleet
	spares []Spare
}

func newEstate(t *testing.T, hosts int, serves ...string) *estate {
	t.Helper()
	e := &estate{WithT: NewWithT(t), fleet: newFleet("")}
	e.plane.name = prod
	e.upgrade.Spec.Version, e.upgrade.Spec.Via = "v1.36.3", []string{"v1.35.4"}
	e.plane.nodes, e.plane.spec, e.addons = []string{"v1.34.4"}, "v1.34.4", "v1.34.4"
	e.pool("blue:v1.34.4")
	for i := range hosts {
		e.spares = append(e.spares, Spare{Name: fmt.Sprintf("hosts/h%d", i), Serves: serves})
	}
	return e
}

func of(role, version string) infrav1.StagedArtifacts {
	return infrav1.StagedArtifacts{Namespace: "default", Template: role, Role: role, Version: version}
}

// decide takes one step, and asks the hosts.
func (e *estate) decide() Decision {
	w := e.world()
	w.Spares = e.spares
	w.Supplies = map[string]infrav1.StagedArtifacts{prod: of(infrav1.StageRoleControlPlane, ""),
		blue: of(infrav1.StageRoleWorker, "")}
	d := Next(w, &e.upgrade, e.now)
	if d.Change != nil {
		e.apply(*d.Change)
	}
	for _, request := range d.Stage {
		for i := range e.spares {
			if e.spares[i].Name == request.Host && d.Change == nil {
				e.spares[i].Stage = request.Stage
			}
		}
	}
	e.upgrade.Status = d.Status
	return d
}

// planned has a plan, and hosts that were asked by it.
func (e *estate) planned() *estate {
	e.decide()
	e.decide()
	return e
}

func (e *estate) asked() (names []string) {
	for _, spare := range e.spares {
		if spare.Stage != nil {
			names = append(names, spare.Name)
		}
	}
	return names
}

// finish has a host get what it is asked for.
func (e *estate) finish(i int) { e.spares[i].Staged = e.spares[i].Stage.Artifacts }

func (e *estate) said() metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(e.upgrade.Status.Conditions, quoinv1.ClusterUpgradeStagedCondition),
		metav1.Condition{})
}

func TestFreeHostsAreAskedForTheNextVersionOfWhatTheyServe(t *testing.T) {
	e := newEstate(t, 2, prod, blue).planned()
	e.Expect(e.spares[0].Stage.Artifacts).To(Equal([]infrav1.StagedArtifacts{
		of(infrav1.StageRoleControlPlane, "v1.35.4"), of(infrav1.StageRoleWorker, "v1.36.3")}))
	e.Expect(e.spares[0].Stage.RequestedBy).To(Equal(e.upgrade.Namespace + "/" + e.upgrade.Name))
	e.Expect(e.spares[0].Stage.Until.Time).To(Equal(e.now.Add(24 * time.Hour)))
	e.Expect(e.said().Message).To(Equal("v1.35.4, v1.36.3 is staged on 0 of 2 free hosts; nothing waits for that"))
	e.finish(1)
	e.decide()
	e.Expect(e.said().Message).To(HavePrefix("v1.35.4, v1.36.3 is staged on 1 of 2"))
	e.Expect(e.said().Reason).To(Equal(quoinv1.StagingReason))
	e.finish(0)
	e.Expect(e.decide().Stage).To(BeEmpty(), "nothing new is asked for")
	e.Expect(e.said().Status).To(Equal(metav1.ConditionTrue))

	// The control plane is at its first hop: the hosts that are free now serve the second.
	e.plane.nodes, e.plane.spec, e.addons = []string{"v1.35.4"}, "v1.35.4", "v1.35.4"
	for range 10 {
		e.decide()
		e.pass()
	}
	e.Expect(e.spares[0].Stage.Artifacts[0]).To(Equal(of(infrav1.StageRoleControlPlane, "v1.36.3")))
}

// pass has every check pass.
func (e *estate) pass() {
	for i := range e.checks {
		e.checks[i].Completed = e.now
	}
}

func TestOnlySoManyHostsAreAtWorkAtATime(t *testing.T) {
	e := newEstate(t, 7, prod).planned()
	e.Expect(e.asked()).To(HaveLen(4))
	e.decide()
	e.Expect(e.asked()).To(HaveLen(4))
	e.finish(0)
	e.spares[1].Failed = "no room"
	e.decide()
	e.Expect(e.asked()).To(HaveLen(6), "one that failed is at work no more")
	e.Expect(e.said().Reason).To(Equal(quoinv1.StagingFailedReason))
	e.Expect(e.said().Message).To(HaveSuffix("hosts/h1: no room"))
}

func TestHostsAreNotAskedForWhatDoesNotCome(t *testing.T) {
	for name, change := range map[string]func(*estate){
		"the preflight blocks": func(e *estate) {
			e.checks[0].Completed, e.checks[0].Blocks, e.checks[0].Summary = e.now, true, "a node is not ready"
		},
		"the host was claimed": func(e *estate) { e.spares[0].Serves = nil },
		"the upgrade is over": func(e *estate) {
			e.upgrade.Annotations = map[string]string{quoinv1.ClusterUpgradeCompletedAnnotation: Mark(&e.upgrade, e.now)}
		},
		"there is no legal way any more": func(e *estate) { e.upgrade.Spec.Via = nil },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEstate(t, 1, prod).planned()
			e.Expect(e.asked()).To(HaveLen(1))
			change(e)
			e.decide()
			e.Expect(e.asked()).To(BeEmpty())
		})
	}
}

func TestWhatAnotherUpgradeAskedForStays(t *testing.T) {
	e := newEstate(t, 2, prod)
	theirs := &infrav1.HostStage{RequestedBy: "default/another", Until: metav1.NewTime(e.now.Add(time.Hour)),
		Artifacts: []infrav1.StagedArtifacts{of(infrav1.StageRoleWorker, "v1.35.9")}}
	e.spares[0].Stage = theirs
	e.planned()
	e.Expect(e.spares[0].Stage).To(Equal(theirs))
	e.Expect(e.said().Message).To(ContainSubstring("0 of 1 free hosts"))
	// One that is gone asks for nothing any more.
	e.now = e.now.Add(2 * time.Hour)
	e.decide()
	e.Expect(e.spares[0].Stage.RequestedBy).To(Equal(e.upgrade.Namespace + "/" + e.upgrade.Name))
}

func TestARequestIsRenewed(t *testing.T) {
	e := newEstate(t, 1, prod).planned()
	e.finish(0)
	e.now = e.now.Add(12 * time.Hour)
	e.Expect(e.decide().Stage).To(BeEmpty())
	e.now = e.now.Add(time.Second)
	e.Expect(e.decide().Stage).To(HaveLen(1))
	e.Expect(e.spares[0].Stage.Until.Sub(e.now)).To(Equal(24 * time.Hour))
}

func TestNothingIsAskedWhileNothingIsWritten(t *testing.T) {
	e := newEstate(t, 1, prod)
	e.paused = true
	e.planned()
	e.Expect(e.asked()).To(BeEmpty())
	e.paused = false
	e.planned()
	e.Expect(e.asked()).To(HaveLen(1))
	e.spares[0].Serves = nil
	e.paused = true
	e.Expect(e.decide().Stage).To(BeEmpty(), "not even that is taken back")
	e.paused, e.first = false, "earlier"
	e.Expect(e.decide().Stage).To(BeEmpty(), "nor while another upgrade comes first")
	e.first = ""
	e.planned()
	e.Expect(e.asked()).To(BeEmpty())
	e.Expect(e.decide().Stage).To(BeEmpty(), "it is asked for nothing")
}

// Proves: S0-50
//
// An upgrade with free hosts, whatever becomes of them, does what one without does, when that does it.
func TestStagingDelaysNothing(t *testing.T) {
	story := func(hosts int, change func(*estate)) []string {
		e := newEstate(t, hosts, prod, blue)
		for range 300 {
			if e.decide().Change != nil {
				continue
			}
			change(e)
			if !e.advance() && e.completed() {
				break
			}
		}
		return e.writes
	}
	without := story(0, func(*estate) {})
	NewWithT(t).Expect(without[len(without)-1]).To(HavePrefix("Complete"))
	for name, change := range map[string]func(*estate){
		"that get nothing": func(*estate) {},
		"that fail":        func(e *estate) { e.spares[0].Failed = "no room" },
		"that come and go": func(e *estate) { e.spares[1].Serves = e.spares[1].Serves[:(len(e.writes)+1)%2] },
		"that have it all": func(e *estate) {
			for i := range e.spares {
				if e.spares[i].Stage != nil {
					e.finish(i)
				}
			}
		},
	} {
		t.Run("hosts "+name, func(t *testing.T) {
			NewWithT(t).Expect(story(2, change)).To(Equal(without))
		})
	}
}

// More than four hosts at work, as when one upgrade follows another, are waited for.
func TestHostsThatAreAtWorkAreWaitedFor(t *testing.T) {
	e := newEstate(t, 4, prod).planned()
	for i := range 3 {
		busy := e.spares[0]
		busy.Name = fmt.Sprintf("hosts/more%d", i)
		e.spares = append(e.spares, busy)
	}
	e.spares = append(e.spares, Spare{Name: "hosts/free", Serves: []string{prod}})
	e.Expect(e.decide().Stage).To(BeEmpty())
	for i := range 4 {
		e.finish(i)
	}
	e.Expect(e.decide().Stage).To(HaveExactElements(HaveField("Host", "hosts/free")))
}

// A host is asked once for what its Machines have in common, for the next version of each of its objects, and for no
// more than eight.
func TestWhatAHostIsAskedFor(t *testing.T) {
	of := about()
	of.Supplies = map[string]infrav1.StagedArtifacts{}
	serves := []string{"none", "unplanned"}
	step := func(object, to string, supply bool, state quoinv1.UpgradeStepState) {
		of.Status.Steps = append(of.Status.Steps, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, Object: object,
			To: to, State: state})
		if supply {
			of.Supplies[object] = infrav1.StagedArtifacts{Template: strings.TrimRight(object, "'")}
		}
	}
	want := func(names ...string) (wants []infrav1.StagedArtifacts) {
		for _, name := range names {
			template, version, _ := strings.Cut(name, " ")
			wants = append(wants, infrav1.StagedArtifacts{Template: template, Version: version})
		}
		return wants
	}
	step("done", "v1.35.4", true, quoinv1.UpgradeStepDone)
	step("done", "v1.36.3", true, quoinv1.UpgradeStepPending)
	step("none", "v1.36.3", false, quoinv1.UpgradeStepPending)
	step("others", "v1.36.3", true, quoinv1.UpgradeStepPending)
	step("twice", "v1.35.4", true, quoinv1.UpgradeStepRunning)
	step("twice", "v1.36.3", true, quoinv1.UpgradeStepPending)
	step("done'", "v1.36.3", true, quoinv1.UpgradeStepPending)
	serves = append(serves, "done", "twice", "done'")
	of.Supplies["addons"] = infrav1.StagedArtifacts{Template: "addons"}
	of.Status.Steps = append(of.Status.Steps, quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepAddons, Object: "addons"})
	few := of.wants(Spare{Serves: append(serves, "addons")})
	NewWithT(t).Expect(few).To(Equal(want("done v1.36.3", "twice v1.35.4")))
	for i := range 9 {
		step(fmt.Sprint(i), "v1.36.3", true, quoinv1.UpgradeStepPending)
		serves = append(serves, fmt.Sprint(i))
	}
	NewWithT(t).Expect(of.wants(Spare{Serves: serves})).To(Equal(append(few, want("0 v1.36.3", "1 v1.36.3", "2 v1.36.3",
		"3 v1.36.3", "4 v1.36.3", "5 v1.36.3")...)))
}

// Which hosts are free is looked at each minute, also while none is, as long as something could be staged.
func TestFreeHostsAreLookedFor(t *testing.T) {
	e := newEstate(t, 0)
	e.decide()
	e.Expect(e.decide().Again).To(Equal(time.Minute))
	e.Expect(e.said().Reason).To(Equal(quoinv1.NoFreeHostReason))
	e.Expect(e.said().Status).To(Equal(metav1.ConditionFalse))
	e.Expect(e.said().Message).To(Equal("no host is free for the next Machines, so nothing is staged"))
	e.step(false)
	e.Expect(e.said()).To(BeZero(), "nothing that could be staged is known")
}
