// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/sshd"
)

// faults are what strikes a host or its controller.
var faults = []struct {
	name  string
	cause func(*lab)
}{
	{"kill the controller", func(l *lab) { go l.kill() }},
	{"drop the connection", func(l *lab) {
		// The one that is open, and the next one in its midst.
		l.host.Server.SetLine(sshd.Line{DropAfter: 4000, Times: 1})
		l.host.Server.Cut()
	}},
	{"reboot the host", func(l *lab) { l.host.Reboot() }},
}

// row is one line of the table.
type row struct {
	when    moment
	outcome map[string]string
}

// TestEveryStepSurvivesEveryFault takes a host through its life once for each step and each fault, with the fault right
// before the step is journaled, and when it is done but not journaled; in the midst of kubeadm, too.
//
// It is not parallel itself: its lives keep the processors busy alone, and would hold up what takes longest beside
// them.
func TestEveryStepSurvivesEveryFault(t *testing.T) {
	fleet := newFleet(t, kube.Options{}, nil)
	steps := everyStep(t, fleet)
	var table []*row
	var mu sync.Mutex
	t.Run("cases", func(t *testing.T) {
		for i, step := range steps {
			moments := []string{"begins", "ends"}
			if step.step == "kubeadm-join" {
				// A step that may run again does not care where it was cut.
				moments = []string{"begins", "works", "ends"}
			}
			for j, at := range moments {
				when := moment{step.plan, step.step, at}
				line := &row{when: when, outcome: map[string]string{}}
				table = append(table, line)
				for k, fault := range faults {
					name := fmt.Sprintf("f%02d%d%d", i, j, k)
					t.Run(when.String()+", "+fault.name, func(t *testing.T) {
						t.Parallel()
						outcome := liveWithFault(t, newLab(t, fleet, name), when, fault.cause, fault.name)
						mu.Lock()
						defer mu.Unlock()
						line.outcome[fault.name] = outcome
					})
				}
			}
		}
	})
	text := draw(table)
	t.Log("\n" + text)
	path := filepath.Join(thePlane.Root(), "_artifacts", "fault-table.txt")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// everyStep lives a life without faults and returns the steps it had.
func everyStep(t *testing.T, fleet *sim.Fleet) []moment {
	g := NewWithT(t)
	l := newLab(t, fleet, "f-none")
	w := watch(l.host)
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	l.deleteMachine()
	l.untilState(infrav1.HostStateAvailable)
	g.Expect(w.ranTwice()).To(BeEmpty())
	provision, reset := w.plan("provision"), w.plan("reset")
	g.Expect(provision).To(ContainElement(moment{plan: "provision", step: "kubeadm-join"}))
	g.Expect(reset).NotTo(BeEmpty())
	return append(provision, reset...)
}

// liveWithFault takes a host from registration to its release with one fault on the way, and says how it ended.
func liveWithFault(t *testing.T, l *lab, when moment, cause func(*lab), name string) string {
	g := NewWithT(t)
	w := watch(l.host)
	w.at(when, func() { cause(l) })
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	reason := l.untilProvisioned()

	// Only a kubeadm that began and whose end nobody wrote down is never run again.
	cut := when.step == "kubeadm-join" && when.at != "begins" && name == "reboot the host"
	if cut {
		g.Expect(reason).To(Equal(infrav1.HostBootstrapInterruptedReason), l.describe())
	} else {
		g.Expect(reason).To(Equal(infrav1.HostProvisionedReason), l.describe())
	}
	outcome := reason
	if when.plan == "reset" || cut {
		l.deleteMachine()
		l.untilState(infrav1.HostStateAvailable, infrav1.HostStateQuarantined)
		g.Expect(l.object().Status.State).To(Equal(infrav1.HostStateAvailable), l.describe())
		g.Expect(l.host.Machine.FS().List("/etc/kubernetes")).To(BeEmpty())
		outcome += ", then Available"
	}
	g.Expect(w.happened()).To(BeTrue(), "the fault must strike, or this proves nothing")
	g.Expect(w.ranTwice()).To(BeEmpty(), "no finished step runs twice")
	g.Expect(l.joins()).To(BeNumerically("<=", 1), "kubeadm join never runs twice")
	if t.Failed() {
		return "FAILED"
	}
	return outcome
}

// draw makes the table of it.
func draw(table []*row) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "plan\tstep\twhen it")
	for _, fault := range faults {
		fmt.Fprint(w, "\t"+fault.name)
	}
	fmt.Fprintln(w)
	for _, line := range table {
		fmt.Fprintf(w, "%s\t%s\t%s", line.when.plan, line.when.step, line.when.at)
		for _, fault := range faults {
			outcome := line.outcome[fault.name]
			if outcome == "" {
				outcome = "FAILED"
			}
			fmt.Fprint(w, "\t"+outcome)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return text.String()
}
