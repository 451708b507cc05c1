// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/backup/restore"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/backuptest"
)

// dies ends the shell before its nth change, as a reset of the host does.
func dies(n int) string {
	script := fmt.Sprintf("left=%d\ndie() { left=$((left - 1)); [ $left -gt 0 ] || command kill -9 $$; }\n", n)
	for _, command := range []string{"mv", "cp", "rm", "mkdir", "ln", "sync", "kill", "systemctl"} {
		script += command + "() { die; command " + command + ` "$@"; }` + "\n"
	}
	return script
}

// Wherever the step that raises the revision is cut off, also within etcdutl, the next attempt ends with the data of a whole member,
// far above the old ones, which are kept until the end; also where the log has a disk of its own.
func TestRaisingTheRevisionGoesOnWhereverItWasCutOff(t *testing.T) {
	for _, own := range []bool{false, true} {
		for n := 1; ; n++ {
			h, log := stopped(t, own)
			cut, err := h.step(raise(dies(n)))
			g := NewWithT(t)
			if n == 1 {
				// Within etcdutl, which left something.
				tool := filepath.Join(h.root, "var/lib/quoin/recovery/etcdutl")
				whole, err := os.ReadFile(tool)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(os.WriteFile(tool, []byte("#!/bin/sh\nmkdir -p "+h.path("/var/lib/etcd/raised-recover-r1.part/member")+"\nkill -9 $PPID\n"), 0o700)).To(Succeed()) //nolint:gosec // a program
				_, err = h.step(raise(""))
				g.Expect(err).To(HaveOccurred())
				g.Expect(os.WriteFile(tool, whole, 0o600)).To(Succeed()) // its mode stays
			}
			output, again := h.step(raise(""))
			g.Expect(again).NotTo(HaveOccurred(), "cut off before change %d (%s): %s", n, cut, output)
			revision := func(member string) int64 {
				db, err := bolt.Open(h.path("/var/lib/etcd/"+member+"/snap/db"), 0o600, &bolt.Options{ReadOnly: true})
				g.Expect(err).NotTo(HaveOccurred())
				defer func() { _ = db.Close() }()
				var last []byte
				g.Expect(db.View(func(tx *bolt.Tx) error {
					last, _ = tx.Bucket([]byte("key")).Cursor().Last()
					return nil
				})).To(Succeed())
				return int64(binary.BigEndian.Uint64(last)) //nolint:gosec // revisions are positive
			}
			g.Expect(revision("before-recover-r1")).To(BeNumerically("<", 2_000_000_000))
			g.Expect(revision("member")).To(BeNumerically(">", 2_000_000_000), "cut off before change %d", n)
			logs := func(directory string) []string {
				files, err := filepath.Glob(directory + "/*.wal")
				g.Expect(err).NotTo(HaveOccurred())
				return files
			}
			g.Expect(logs(log)).To(HaveLen(1))
			if own {
				g.Expect(logs(log + "/before-recover-r1")).To(HaveLen(2))
			}
			if err == nil {
				g.Expect(n).To(BeNumerically(">", 4))
				break
			}
		}
	}
}

// Another recovery stops the plan of the first one: it finds the old member or the new one, and not half of either.
func TestAPlanThatIsStoppedLeavesAWholeMember(t *testing.T) {
	for _, own := range []bool{false, true} {
		g := NewWithT(t)
		h, log := stopped(t, own)
		output, err := h.step(raise("mv() { command mv \"$@\" && case $* in *before-recover-r1) kill -TERM $$ ;; esac; }\n"))
		g.Expect(err).NotTo(HaveOccurred(), output)
		g.Expect(h.path("/var/lib/etcd/member/snap/db")).To(BeAnExistingFile())
		g.Expect(filepath.Glob(log + "/*.wal")).To(HaveLen(1))
	}
}

// A plan that is stopped for good, because it does not end in time, has changed nothing yet while a large log is copied to its disk.
func TestAPlanThatIsKilledWhileItCopiesLeavesTheLogThatWasThere(t *testing.T) {
	g := NewWithT(t)
	h, log := stopped(t, true)
	before, err := filepath.Glob(log + "/*.wal")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = h.step(raise("cp() { case $* in *.wal*) kill -KILL $$ ;; esac; command cp \"$@\"; }\n"))
	g.Expect(err).To(HaveOccurred())
	g.Expect(h.path("/var/lib/etcd/before-recover-r1")).NotTo(BeADirectory())
	g.Expect(filepath.Glob(log + "/*.wal")).To(Equal(before))
}

// raise is the step, with something before it.
func raise(before string) run.Step { return survive("raise-revision", before) }

// survive is a step of the survivor, with something before it.
func survive(name, before string) run.Step {
	steps := recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}).Steps
	step := steps[slices.IndexFunc(steps, func(s run.Step) bool { return s.Name == name })]
	step.Script = before + step.Script
	return step
}

// powerCut has the host lose what is not on its disk: at once after files get a name on which the next step relies.
const powerCut = `cp() { command cp "$@" || return; for to; do :; done; unsynced=$to; }
sync() { command sync "$@" || return; [ "$1" != -f ] || unsynced=; }
mv() {
	command mv "$@" || return
	for to; do :; done
	[ -z "$unsynced" ] || find "$to" -type f -exec truncate -s 0 {} +
	kill -9 $$
}
`

// The copy of the data is what is left of them when all is done, so it counts once it is on the disk, and not before.
func TestTheCopyOfTheDataOutlivesAPowerCut(t *testing.T) {
	g := NewWithT(t)
	h, _ := stopped(t, false)
	_, err := h.step(survive("keep-data", powerCut))
	g.Expect(err).To(HaveOccurred())
	output, err := h.step(survive("keep-data", ""))
	g.Expect(err).NotTo(HaveOccurred(), output)
	whole, err := os.ReadFile(h.path("/var/lib/etcd/member/snap/db"))
	g.Expect(err).NotTo(HaveOccurred())
	kept, err := os.ReadFile(h.path("/var/lib/quoin/recovery/data-recover-r1/member/snap/db"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(kept)).To(Equal(len(whole)), "the copy that the next attempt believes in is empty")
}

// A recovery copies the data of etcd and makes them anew: the survivor is not stopped, and nothing of it is changed, where
// there is no room for both.
func TestASurvivorHasRoomForAllThatARecoveryCopies(t *testing.T) {
	const tool = 32768
	for name, c := range map[string]struct {
		disks      int
		data, kept int
		refused    string
	}{
		"one disk, and room for one of the two": {1, 1999 + tool, 1999 + tool, "need"},
		"one disk, not one KiB too few":         {1, 2001 + tool, 2001 + tool, ""},
		"two disks, and no room for new data":   {2, 1000, 5000 + tool, "/var/lib/etcd has 1000 KiB free"},
		"two disks, and no room for the copy":   {2, 5000, 1000 + tool, "/var/lib/quoin/recovery has"},
		"two disks with room":                   {2, 1001, 1001 + tool, ""},
	} {
		g := NewWithT(t)
		h, _ := stopped(t, false)
		output, err := h.step(survive("check-member", fmt.Sprintf("du() { echo 1000; }\n"+
			"df() { case \"$2\" in *quoin*) set -- %d ;; *) set -- %d ;; esac; echo disk 9 9 \"$1\" 1%% /; }\n"+
			"stat() { case \"$3\" in *quoin*) echo %d ;; *) echo 1 ;; esac; }\n", c.kept, c.data, c.disks)))
		if c.refused == "" {
			g.Expect(err).NotTo(HaveOccurred(), "%s: %s", name, output)
			continue
		}
		g.Expect(err).To(HaveOccurred(), name)
		g.Expect(output).To(And(ContainSubstring(c.refused), ContainSubstring("make room, and ask again")), name)
	}
}

// stopped is a host as the step before leaves it, and where the log of etcd lies: on a disk of its own, or with the data.
func stopped(t *testing.T, own bool) (*host, string) {
	t.Helper()
	g := NewWithT(t)
	h := newHost(t, "a")
	kept, data, manifest := h.path("/var/lib/quoin/recovery"), h.path("/var/lib/etcd"), h.manifest("a="+h.peerURL)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	g.Expect(os.WriteFile(file, backuptest.Signed(backuptest.Database(t, 10)), 0o600)).To(Succeed())
	g.Expect(restore.Restore(file, restore.Member{Name: "a", PeerURL: h.peerURL, DataDirectory: data})).To(Succeed())
	log := filepath.Join(data, "member/wal")
	if own {
		log = h.path("/var/log-of-etcd")
		g.Expect(os.Rename(filepath.Join(data, "member/wal"), log)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(log, "0000000000000001-0000000000000009.wal"), nil, 0o600)).To(Succeed())
		manifest = strings.Replace(manifest, "    - etcd\n", "    - etcd\n    - --wal-dir="+log+"\n", 1)
	}
	g.Expect(os.MkdirAll(kept, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(kept, "etcd.yaml"), []byte(manifest), 0o600)).To(Succeed())
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(kept, "etcdutl"), []byte("#!/bin/sh\n"+asEtcdutl+"=1 exec "+self+` "$@"`+"\n"), 0o700)).To(Succeed()) //nolint:gosec // a program
	return h, log
}

// A member whose log has a disk of its own survives as any other.
func TestASurvivorWhoseLogLiesElsewhere(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	log := a.path("/var/log-of-etcd")
	g.Expect(os.Mkdir(log, 0o700)).To(Succeed())
	a.init(t, "--wal-dir="+log)
	a.kill()
	output, err := a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
	g.Expect(err).NotTo(HaveOccurred(), output)
	keys := a.keys(t)
	g.Expect(keys.Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
	g.Expect(keys.Header.Revision).To(BeNumerically(">", 1_000_000_000))
	g.Expect(filepath.Glob(a.path("/var/lib/etcd") + "/*")).To(ConsistOf(a.path("/var/lib/etcd/member")))
	g.Expect(filepath.Glob(log + "/*recover-r1*")).To(BeEmpty())
}

// late has etcd bring to its database nothing before it ends.
var late = []string{"--backend-batch-interval=1h", "--backend-batch-limit=1000000"}

// Only an etcd that ends in order has in its database what it took from its log. A large one takes longer than the kubelet grants.
func TestASurvivorThatEndsSlowlyLosesNothing(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t, late...)
	a.kill()
	a.mu.Lock()
	a.slow = true
	a.mu.Unlock()
	output, err := a.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(a.keys(t).Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
}

// instead has a step call what stands there in place of some of its functions.
func instead(step run.Step, functions string) run.Step {
	call := strings.LastIndex(strings.TrimSuffix(step.Script, "\n"), "\n") + 1
	step.Script = step.Script[:call] + functions + step.Script[call:]
	return step
}

// By a manifest with the flag, etcd answers as a quorum beside which nobody can ask again, and throws out who joined when it is
// started once more. Whatever ends a step, none of ours is left, also where a step before it was killed.
func TestAManifestWithTheFlagDoesNotOutliveItsStep(t *testing.T) {
	for name, test := range map[string]struct {
		step, stub string
		left, keep bool
	}{
		"etcd is not ready":                      {"force-new-cluster", "quoin_settle() { return 1; }\n", false, false},
		"the time of the step is over":           {"force-new-cluster", "ready() { kill -TERM $$; return 1; }\n", false, false},
		"it ended by itself":                     {"force-new-cluster", "quoin_settle() { :; }\nkeep_tool() { :; }\n", false, false},
		"the disk is full when it is resumed":    {"force-new-cluster", "forced() { quoin_fail full; }\n", true, false},
		"another id is asked for, and refused":   {"check-member", "room() { quoin_fail full; }\n", true, false},
		"systemd does not answer":                {"force-new-cluster", "systemctl() { case $1 in is-active) echo active ;; *) return 1 ;; esac; }\nquoin_settle() { return 1; }\n", false, false},
		"the mark of the kubelet is not written": {"force-new-cluster", "systemctl() { [ $1 != is-active ] || echo active; }\nquoin_settle() { return 1; }\nresting=/proc/nowhere\n", true, false},
		"a person put it there, as nobody knows": {"check-member", "rm \"$kept/etcd.yaml\"\n", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, _ := stopped(t, false)
			if test.left {
				forced := strings.Replace(h.manifest("a="+h.peerURL), "    - etcd\n", "    - etcd\n    - --force-new-cluster\n", 1)
				g.Expect(os.WriteFile(h.manifestPath(), []byte(forced), 0o600)).To(Succeed())
			}
			_, err := h.step(instead(survive(test.step, ""), test.stub))
			g.Expect(err).To(HaveOccurred())
			if test.keep {
				g.Expect(h.manifestPath()).To(BeAnExistingFile())
			} else {
				g.Expect(h.manifestPath()).NotTo(BeAnExistingFile())
			}
		})
	}
}

// Where etcdutl is missing the recovery fails behind the start with the flag. Etcd does not run by that any more, and another id
// is carried out.
func TestARecoveryThatFailedIsAskedForAgain(t *testing.T) {
	g := NewWithT(t)
	a := alone(t)
	a.init(t)
	a.kill()
	a.powerCut()
	tool := filepath.Join(image, "etcdutl")
	g.Expect(os.Rename(tool, tool+".away")).To(Succeed())
	back := func() error { return os.Rename(tool+".away", tool) }
	t.Cleanup(func() { _ = back() })
	for _, step := range recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}).Steps[:4] {
		// Nor is it on this machine.
		output, err := a.step(instead(step, "command() { [ \"$2\" != etcdutl ] && type \"$2\"; }\n"))
		if step.Name != "force-new-cluster" {
			g.Expect(err).NotTo(HaveOccurred(), output)
			continue
		}
		g.Expect(err).To(HaveOccurred())
		g.Expect(output).To(ContainSubstring("is neither in etcd's image nor on this host"))
	}
	g.Expect(a.manifestPath()).NotTo(BeAnExistingFile())
	g.Eventually(func() error {
		_, err := net.Dial("tcp", strings.TrimPrefix(a.metricsURL, "http://"))
		return err
	}, 30*time.Second).Should(HaveOccurred(), "etcd still runs")
	a.kubeletRuns(t)

	g.Expect(back()).To(Succeed())
	output, err := a.carryOut(recovery.Order{ID: "recover-r2", Action: recovery.Survive, Member: "a"})
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(a.keys(t).Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
}

// corrupt raises the alarm CORRUPT of a member that is not in the list any more. A write follows, which the alarm refuses: what is last
// in the log of a member that is killed at once may not have been known as agreed on.
func (h *host) corrupt(t *testing.T) {
	t.Helper()
	g, client := NewWithT(t), h.client(t)
	g.Expect(etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_CORRUPT, MemberID: 0xbeef})).NotTo(BeNil())
	_, err := client.Put(t.Context(), "behind", "the alarm")
	g.Expect(err).To(MatchError(rpctypes.ErrCorrupt))
}

// While the alarm CORRUPT of anybody is raised, etcd says that it is not ready, though it has a quorum. Beside that quorum a recovery
// is refused like any other; when it is lost, one succeeds, and the alarm stays until a person takes it away.
func TestASurvivorWithTheAlarmOfACorruptMember(t *testing.T) {
	for name, carryOut := range map[string]func(*host) (string, error){
		"by a plan": func(h *host) (string, error) {
			return h.carryOut(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"})
		},
		"by a plan, without curl": func(h *host) (string, error) {
			for _, step := range recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}).Steps {
				if output, err := h.step(instead(step, "command() { [ \"$2\" != curl ] && type \"$2\"; }\n")); err != nil {
					return output, err
				}
			}
			return "", nil
		},
		"by the script": func(h *host) (string, error) { return h.survive("a", "--others-are-off") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			a := alone(t)
			a.init(t)
			a.corrupt(t)
			output, err := carryOut(a)
			g.Expect(err).To(HaveOccurred())
			g.Expect(output).To(ContainSubstring("answers with a quorum"))
			g.Expect(a.manifestPath()).To(BeAnExistingFile(), "nothing was changed")

			a.kill()
			output, err = carryOut(a)
			g.Expect(err).NotTo(HaveOccurred(), output)
			g.Expect(a.keys(t).Count).To(BeNumerically(">=", 49), "the last one may not have been known as agreed on")
			alarms, err := a.client(t).AlarmList(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(alarms.Alarms).To(ConsistOf(HaveField("Alarm", etcdserverpb.AlarmType_CORRUPT)))
		})
	}
}

// A survivor that comes up late is a cluster of one, beside which no other id is admitted.
func TestASurvivorThatStartsLateSaysWhatIsLeftToDo(t *testing.T) {
	g := NewWithT(t)
	h, _ := stopped(t, false)
	output, err := h.step(instead(survive("start-etcd", ""), "stop_etcd() { :; }\nquoin_settle() { return 1; }\n"))
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("not ready after 900 s"))
	g.Expect(output).To(ContainSubstring("when it becomes ready after all, take spec.recovery away; if it never does, ask again under another id"))
}

// One that crashed, or that took longer than it may, is copied by nobody: what it lacks would be gone without a word.
func TestASurvivorThatEndsInAnyOtherWayIsNotCopied(t *testing.T) {
	for name, test := range map[string]struct{ before, says string }{
		"it crashed":       {"works() { return 1; }\n", "ended by itself"},
		"it took too long": {"quoin_settle() { return 1; }\nstart_etcd() { :; }\nworks() { return 0; }\nkeep_tool() { :; }\n", "did not end in order"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h, _ := stopped(t, false)
			steps := recovery.Plan(recovery.Order{ID: "recover-r1", Action: recovery.Survive, Member: "a"}).Steps
			step := steps[slices.IndexFunc(steps, func(s run.Step) bool { return s.Name == "force-new-cluster" })]
			step.Script = strings.Replace(step.Script, "recovery_force\n", "start_etcd() { :; }\nkeep_tool() { :; }\n"+test.before+"recovery_force\n", 1)
			output, err := h.step(step)
			g.Expect(err).To(HaveOccurred())
			g.Expect(output).To(ContainSubstring(test.says))
		})
	}
}
