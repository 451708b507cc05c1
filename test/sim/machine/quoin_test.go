// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// known fails the test when a script asked for what the simulation lacks.
func known(t *testing.T, m *machine.Machine) {
	t.Helper()
	if unknown := m.Unknown(); len(unknown) > 0 {
		t.Errorf("the scripts asked for %q", unknown)
	}
}

func wait(t *testing.T, h ssh.Host, id string, until func(run.Status) bool) run.Status {
	t.Helper()
	var status run.Status
	NewWithT(t).Eventually(func() bool {
		var err error
		if status, err = (run.Runner{}).Poll(t.Context(), h, id); err != nil {
			return false
		}
		return until(status)
	}, "20s", "5ms").Should(BeTrue(), "last: %+v", &status)
	return status
}

func final(s run.Status) bool { return s.Phase.Final() }

func TestInspectionOfAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, func(o *machine.Options) {
		o.Disks = []machine.Disk{{Name: "sda", WWN: "0x5000c500a1b2c3d4", Bytes: 100 << 30}, {Name: "nvme0n1", IDs: []string{"nvme-eui.0025385b71b0f2a1"}, Bytes: 1 << 40},
			{Name: "sdb", Serial: "WD 42", Bytes: 2 << 40, Rotational: true}}
		o.Programs = map[string]machine.Program{"ctr": func(_ context.Context, p *machine.Process) int {
			// It has no containers and no images.
			if slices.Contains(p.Args, "version") {
				p.Printf("Client:\n\nServer:\n")
			}
			return 0
		}}
		o.ClockOffset = time.Hour
	})
	g.Eventually(func() bool { return m.FS().Exists("/run/containerd/containerd.sock") }, "5s").Should(BeTrue())
	facts, err := inspect.Collect(t.Context(), &machine.Host{Machine: m})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(facts.Hostname).To(Equal("host-1"))
	g.Expect(facts.BootID).To(Equal(m.BootID()))
	g.Expect(facts.MachineID).To(HaveLen(32))
	g.Expect(facts.Architecture).To(Equal("amd64"))
	g.Expect(facts.CPUs).To(Equal(4))
	g.Expect(facts.MemoryBytes).To(BeEquivalentTo(16 << 30))
	g.Expect(facts.Systemd).To(BeTrue())
	g.Expect(facts.CgroupVersion).To(Equal(2))
	g.Expect(facts.ContainerRuntime).To(Equal(inspect.ContainerRuntime{Name: "containerd", Version: "2.1.0", SocketOK: true}))
	g.Expect(facts.Addresses).To(HaveLen(1))
	g.Expect(facts.DefaultInterface).To(Equal("eth0"))
	g.Expect(facts.ClockOffset).To(BeNumerically("~", time.Hour, time.Minute))
	g.Expect(*facts.TCPForwardingAllowed).To(BeTrue())
	g.Expect(facts.KubernetesPresent).To(BeEmpty())
	ids := map[string]string{}
	for _, d := range facts.Disks {
		ids[d.Name] = d.ID
	}
	g.Expect(ids).To(Equal(map[string]string{"sda": "wwn-0x5000c500a1b2c3d4", "nvme0n1": "nvme-eui.0025385b71b0f2a1", "sdb": "WD_42"}))
	known(t, m)
}

func TestAPlanOnAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	plan := run.Plan{ID: "p", Files: []run.File{{Name: "f", Content: []byte("a\x00b\n")}}, Steps: []run.Step{
		{Name: "one", Script: `quoin_put "$QUOIN_RUN_DIR/files/f" /etc/ours/f 0640; echo one >>/root/order`},
		{Name: "two", Script: `echo two >>/root/order; id -u`, Once: true},
	}}
	g.Expect(run.Runner{}.Start(t.Context(), h, plan)).To(Succeed())
	status := wait(t, h, "p", final)
	g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
	g.Expect(m.FS().Text("/root/order")).To(Equal("one\ntwo\n"))
	g.Expect(m.FS().Text("/etc/ours/f")).To(Equal("a\x00b\n"))
	st, err := m.FS().Lstat("/etc/ours/f")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(st.Mode.String()).To(Equal("-rw-r-----"))
	g.Expect(m.FS().Text("/var/lib/quoin/created")).To(Equal("file /etc/ours/f\ndir /etc/ours\n"))
	g.Expect(m.FS().Exists("/var/lib/quoin/runs/p/scripts")).To(BeFalse())
	g.Expect(run.Runner{}.Start(t.Context(), h, plan)).To(Succeed())
	g.Expect(m.FS().Text("/root/order")).To(Equal("one\ntwo\n"))
	known(t, m)
}

// At each line that the runner writes, before it is written, the machine loses power. The plan ends as the rules say.
func TestAPlanCutAtEachJournalLine(t *testing.T) {
	for line := 1; line <= 6; line++ {
		t.Run(fmt.Sprint(line), func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t)
			h := &machine.Host{Machine: m}
			count := 0
			m.OnJournal(func(m *machine.Machine, plan, step, word string) {
				g.Expect(plan).To(Equal("p"))
				if count++; count == line {
					m.Reboot()
				}
			})
			plan := run.Plan{ID: "p", Steps: []run.Step{
				{Name: "a", Script: `echo a >>/root/order`},
				{Name: "once", Script: `echo once >>/root/order`, Once: true},
				{Name: "b", Script: `echo b >>/root/order`},
			}}
			// The power may go while the session that started the plan is still on its way out.
			_ = run.Runner{}.Start(t.Context(), h, plan)
			status := wait(t, h, "p", func(s run.Status) bool { return s.Lost })
			g.Expect(status.Phase).NotTo(Equal(run.Succeeded))
			g.Expect(run.Runner{}.Resume(t.Context(), h, "p")).To(Succeed())
			status = wait(t, h, "p", final)
			order := m.FS().Text("/root/order")
			g.Expect(strings.Count(order, "once")).To(BeNumerically("<=", 1))
			if line == 4 {
				// Cut before "once done": it ran, and nobody knows.
				g.Expect(status.Phase).To(Equal(run.Interrupted))
			} else {
				g.Expect(status.Phase).To(Equal(run.Succeeded), "%+v", status)
				g.Expect(strings.Count(order, "once")).To(Equal(1))
			}
			g.Expect(m.Boots()).To(Equal(2))
			known(t, m)
		})
	}
}

func TestAStepThatHangsOnAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, func(o *machine.Options) { o.Speed = 50 })
	h := &machine.Host{Machine: m}
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "hang", Timeout: 10 * time.Second,
		Script: `echo waiting; sh -c 'trap "" TERM; while :; do sleep 1; done'`}}}
	g.Expect(run.Runner{}.Start(t.Context(), h, plan)).To(Succeed())
	status := wait(t, h, "p", final)
	g.Expect(status.Message).To(Equal("step hang did not end within 10s: waiting"))
	for _, args := range m.Running() {
		g.Expect(strings.Join(args, " ")).NotTo(ContainSubstring("trap"))
	}
	known(t, m)
}

func TestStoppingPlansOnAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	for _, id := range []string{"a", "b"} {
		g.Expect(run.Runner{}.Start(t.Context(), h, run.Plan{ID: id, Steps: []run.Step{{Name: "hang", Script: "sleep 600"}}})).To(Succeed())
		wait(t, h, id, func(s run.Status) bool { return s.Step == "hang" })
	}
	g.Expect(run.Runner{}.StopOthers(t.Context(), h, "b")).To(Succeed())
	g.Expect(wait(t, h, "a", final).Phase).To(Equal(run.Interrupted))
	g.Expect(wait(t, h, "b", func(run.Status) bool { return true }).Phase).To(Equal(run.Running))
	g.Expect(run.Runner{}.Stop(t.Context(), h, "b")).To(Succeed())
	g.Expect(wait(t, h, "b", final).Phase).To(Equal(run.Interrupted))
	known(t, m)
}

func TestAFullDiskOfAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	var once sync.Once
	m.OnJournal(func(m *machine.Machine, _, step, word string) {
		if step == "b" && word == "start" {
			once.Do(func() { m.FS().SetFull(true) })
		}
	})
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "a", Script: "true"}, {Name: "b", Script: "echo b >>/root/b", Once: true}}}
	g.Expect(run.Runner{}.Start(t.Context(), h, plan)).To(Succeed())
	wait(t, h, "p", func(s run.Status) bool { return s.Lost })
	g.Expect(m.FS().Exists("/root/b")).To(BeFalse(), "what cannot be journaled does not begin")
	m.FS().SetFull(false)
	g.Expect(run.Runner{}.Resume(t.Context(), h, "p")).To(Succeed())
	g.Expect(wait(t, h, "p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(m.FS().Text("/root/b")).To(Equal("b\n"))
	known(t, m)
}

func TestManyStartsOnAMachineAreOne(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	plan := run.Plan{ID: "p", Steps: []run.Step{{Name: "count", Script: "echo x >>/root/count"}, {Name: "pause", Script: "sleep 0.1"}}}
	errs := make(chan error, 8)
	for range 8 {
		go func() { errs <- run.Runner{}.Start(t.Context(), &machine.Host{Machine: m}, plan) }()
	}
	for range 8 {
		g.Expect(<-errs).To(Succeed())
	}
	g.Expect(wait(t, &machine.Host{Machine: m}, "p", final).Phase).To(Equal(run.Succeeded))
	g.Expect(m.FS().Text("/root/count")).To(Equal("x\n"))
	known(t, m)
}

func TestTheOwnerOfAMachine(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	record := owner.Record{Namespace: "n", Host: "h", Machine: "m", UID: "u1", Generation: 2}
	g.Expect(owner.Acquire(t.Context(), h, record)).To(Succeed())
	read, err := owner.Read(t.Context(), h)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.UID).To(Equal("u1"))
	other := record
	other.UID, other.Generation = "u2", 1
	g.Expect(owner.Acquire(t.Context(), h, other)).NotTo(Succeed())
	g.Expect(owner.Release(t.Context(), h, record)).To(Succeed())
	known(t, m)
}

func TestACommandCutByAReboot(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t)
	h := &machine.Host{Machine: m}
	ended := make(chan error, 1)
	go func() {
		_, err := h.Run(t.Context(), ssh.Command{Script: "echo >/root/begun; sleep 600; echo >/root/ended"})
		ended <- err
	}()
	g.Eventually(func() bool { return m.FS().Exists("/root/begun") }, "5s").Should(BeTrue())
	m.Reboot()
	var interrupted *ssh.InterruptedError
	g.Expect(errors.As(<-ended, &interrupted)).To(BeTrue())
	m.PowerOff()
	_, err := h.Run(t.Context(), ssh.Command{Script: "true"})
	g.Expect(ssh.NeverRan(err)).To(BeTrue())
	m.PowerOn()
	_, err = h.Run(t.Context(), ssh.Command{Script: "true"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.FS().Exists("/root/ended")).To(BeFalse())
}

func TestAMachineThatIsAskedToReboot(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, func(o *machine.Options) { o.Speed = 50 })
	h := &machine.Host{Machine: m}
	boot := m.BootID()
	g.Expect(reset.Reboot(t.Context(), h, boot)).To(Succeed())
	g.Expect(reset.Reboot(t.Context(), h, boot)).To(Succeed())
	g.Eventually(m.Boots, "5s").Should(Equal(2))
	g.Expect(reset.Reboot(t.Context(), h, boot)).To(Succeed())
	g.Consistently(m.Boots, "200ms").Should(Equal(2))
	known(t, m)
}
