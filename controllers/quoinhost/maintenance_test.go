// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// modes are the columns of the table in docs/hosts.md.
var modes = map[string]func(*infrav1.QuoinHost){
	"normally":       func(*infrav1.QuoinHost) {},
	"in maintenance": func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "new fans"} },
	"paused": func(h *infrav1.QuoinHost) {
		metav1.SetMetaDataAnnotation(&h.ObjectMeta, clusterv1.PausedAnnotation, "")
	},
	"held": func(h *infrav1.QuoinHost) { h.Spec.HeldFor = &infrav1.HostHold{Reason: "the fleet moves"} },
	"detached": func(h *infrav1.QuoinHost) {
		metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.DetachedAnnotation, "")
	},
}

// deeds are its rows: each brings a host to where the deed is due, sets the mode, and says whether it was done.
var deeds = map[string]func(*testing.T, func(*infrav1.QuoinHost)) (*world, bool){
	"connect, inspect, probe": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := newWorld(t, newHost())
		return w, during(w, mode, func() bool { return w.room.count("inspect") > 0 })
	},
	"record or accept a host key": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := newWorld(t, newHost())
		return w, during(w, mode, func() bool { return len(w.host().Spec.HostKeys) > 0 })
	},
	"take the host over from another management cluster": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		w.update(func(h *infrav1.QuoinHost) { h.Spec.ClaimGeneration, h.Spec.ManagedBy = 3, "another" })
		return w, during(w, mode, func() bool { return w.host().Spec.ClaimGeneration == 4 })
	},
	"start the installation of a node": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		return w, during(w, mode, func() bool { return w.room.count("provision") > 0 })
	},
	"follow a plan that runs": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := atWork(t)
		before := w.room.count("follow")
		return w, during(w, mode, func() bool { return w.room.count("follow") > before })
	},
	"take up a plan that a reboot cut off": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := atWork(t)
		w.room.set(func() {
			w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Lost: true, Message: "cut off"}}
		})
		return w, during(w, mode, func() bool { return slices.Contains(w.changes(), "resume "+provisionPlanID) })
	},
	"bring the add-on images of another version": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		wantAddons(w, "v1.36.0")
		return w, during(w, mode, func() bool { return w.room.count("addons") > 0 })
	},
	"stage a version on a free host": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := stagingWorld(t, infrav1.StageRoleWorker)
		return w, during(w, mode, func() bool { return w.room.count("stage") > 0 })
	},
	"start a reset": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		deleteMachine(w)
		return w, during(w, mode, func() bool { return w.room.count("clean") > 0 })
	},
	"verify a reset that ended": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		deleteMachine(w)
		w.until("reset", func(*infrav1.QuoinHost) bool { return w.room.count("clean") > 0 })
		return w, during(w, mode, func() bool { return w.room.count("verify") > 0 })
	},
	"end the claim of a clean host": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := claimedWorld(t, false)
		w.untilState(infrav1.HostStateProvisioned)
		deleteMachine(w)
		w.until("clean", (*infrav1.QuoinHost).Released)
		finish(w, &infrav1.QuoinMachine{}, "qm1")
		finish(w, &clusterv1.Machine{}, "m1")
		return w, during(w, mode, func() bool { return w.host().Spec.ConsumerRef == nil })
	},
	"reboot after a reset": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := rebootingWorld(t)
		w.until("verified", func(h *infrav1.QuoinHost) bool {
			return h.Status.Operation != nil && h.Status.Operation.Step == stageVerified
		})
		return w, during(w, mode, func() bool { return w.room.count("reboot") > 0 })
	},
	"change the power of a dead host": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := silentWorld(t, withBMC)
		w.now = w.now.Add(time.Hour)
		deleteMachine(w)
		return w, during(w, mode, func() bool { return len(w.bmc.told()) > 0 })
	},
	"write on the host why it is quarantined": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := newWorld(t, newHost())
		w.room.facts.KubernetesPresent = []string{"/etc/kubernetes is not empty"}
		w.untilState(infrav1.HostStateQuarantined)
		return w, during(w, mode, func() bool { return w.room.count("isolate") > 0 })
	},
	"verify a quarantined host without a reset": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := unclean(t, false)
		before := w.room.count("verify")
		return w, during(w, func(h *infrav1.QuoinHost) {
			mode(h)
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.VerifyOnlyAnnotation, "")
		}, func() bool { return w.room.count("verify") > before })
	},
	"let a Machine go without a clean host": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := unclean(t, false)
		return w, during(w, func(h *infrav1.QuoinHost) {
			mode(h)
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.ReleaseUncleanAnnotation, h.ProviderID())
		}, func() bool { return w.host().ReleasedUnclean() })
	},
	"carry out abandon": func(t *testing.T, mode func(*infrav1.QuoinHost)) (*world, bool) {
		w := atWork(t)
		w.room.set(func() { w.room.err = errNoRoute })
		w.until("silent", func(h *infrav1.QuoinHost) bool { return h.Status.UnreachableSince != nil })
		return w, during(w, func(h *infrav1.QuoinHost) {
			mode(h)
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, infrav1.AbandonAnnotation, h.ProviderID())
		}, func() bool { return w.host().Status.State == infrav1.HostStateQuarantined })
	},
}

// during sets the mode, gives the controller a long time, and says whether the deed was done.
func during(w *world, mode func(*infrav1.QuoinHost), done func() bool) bool {
	w.update(mode)
	for range 40 {
		if done() {
			return true
		}
		w.linger(1)
	}
	return done()
}

// atWork has a host on which the bootstrap data runs, without an end.
func atWork(t *testing.T) *world {
	w := claimedWorld(t, false)
	w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "kubeadm-join",
		Message: "step 3 of 5, kubeadm-join"}}
	w.until("at work", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.Step == "kubeadm-join"
	})
	return w
}

// documented reads the table of docs/hosts.md: what is done, by mode.
func documented(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "<!-- what stops what: a test reads this table -->\n")
	if !found {
		t.Fatal("docs/hosts.md has no table of what stops what")
	}
	var columns []string
	rows := map[string]map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		switch {
		case columns == nil:
			columns = cells
		case strings.HasPrefix(cells[0], "--"):
		default:
			row := map[string]bool{}
			for i, cell := range cells[1:] {
				if cell != "yes" && cell != "no" {
					t.Fatalf("cell %q of row %q is neither yes nor no", cell, cells[0])
				}
				row[columns[i+1]] = cell == "yes"
			}
			rows[cells[0]] = row
		}
	}
	return rows
}

func TestWhatMaintenancePauseAndDetachStopIsWhatTheDocumentSays(t *testing.T) {
	table := documented(t)
	for deed := range deeds {
		if _, ok := table[deed]; !ok {
			t.Errorf("docs/hosts.md does not say what stops %q", deed)
		}
	}
	for deed, row := range table {
		scenario, ok := deeds[deed]
		if !ok {
			t.Errorf("nothing tests the row %q of docs/hosts.md", deed)
			continue
		}
		for name, mode := range modes {
			t.Run(deed+" "+name, func(t *testing.T) {
				g := NewWithT(t)
				want, ok := row[name]
				g.Expect(ok).To(BeTrue(), "docs/hosts.md has no column %q", name)
				w, done := scenario(t, mode)
				g.Expect(done).To(Equal(want), describe(w.host()))
				if want || w.host().Status.State == "" {
					return
				}
				ready := condition1(w.host(), infrav1.HostReadyCondition)
				g.Expect(ready).NotTo(BeNil())
				switch name {
				case "in maintenance":
					g.Expect(ready.Message).To(And(ContainSubstring("new fans"), ContainSubstring(`"maintenance":null`)))
				case "paused":
					g.Expect(ready.Message).To(ContainSubstring(clusterv1.PausedAnnotation + "-"))
				case "held":
					g.Expect(ready.Message).To(And(ContainSubstring("the fleet moves"), ContainSubstring(`"heldFor":null`)))
				case "detached":
					g.Expect(ready.Reason).To(Equal(infrav1.HostDetachedReason))
					g.Expect(ready.Message).To(ContainSubstring(infrav1.DetachedAnnotation + "-"))
				}
			})
		}
	}
}

func TestADetachedHostKeepsItsStateAndGoesOnWhenItIsAttached(t *testing.T) {
	w := atWork(t)
	w.room.set(func() { w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22"} })
	w.until("failing", func(h *infrav1.QuoinHost) bool { return h.Status.Failures != nil })
	w.update(modes["detached"])
	w.linger(3)
	asked := w.room.count("follow")
	host := w.host()
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioning))
	w.g.Expect(host.Status.NextAttempt).To(BeNil(), "nobody tries")
	w.g.Expect(w.room.count("forget")).To(BeNumerically(">", 0), "the connection is closed")
	w.g.Expect(condition1(host, infrav1.HostReachableCondition).Status).To(Equal(metav1.ConditionUnknown))
	w.linger(5)
	w.g.Expect(w.room.count("follow")).To(Equal(asked))

	w.room.set(func() { w.room.err = nil; w.room.script[provisionPlanID] = []run.Status{{Phase: run.Succeeded}} })
	w.update(func(h *infrav1.QuoinHost) { delete(h.Annotations, infrav1.DetachedAnnotation) })
	host = w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(condition1(host, infrav1.HostReachableCondition).Status).To(Equal(metav1.ConditionTrue))
}

func TestReadySaysWhenTheNextAttemptIsAndHowToHaveItNow(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22"}
	host := w.until("failed", func(h *infrav1.QuoinHost) bool {
		return h.Status.Failures != nil &&
			*h.Status.Failures == 2
	})
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(And(
		ContainSubstring("cannot reach 192.0.2.11:22"),
		ContainSubstring("failed 2 times in a row, next attempt at "+stamp(host.Status.NextAttempt.Time)),
		ContainSubstring("kubectl -n hosts annotate quoinhost h1 "+infrav1.RetryAnnotation+"=")))
}
