// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// TestAMoverThatDiesAnywhere kills clusterctl's mover before each of its writes, and has a person then do what docs/move.md
// says for what is found on both sides. Each time the node ends up in the target, in the next generation, with its host as it was.
func TestAMoverThatDiesAnywhere(t *testing.T) {
	needsTime(t)
	fleet := newFleet(t, kube.Options{}, nil)
	second := secondPlane(t)
	whole := newLab(t, fleet, "mover-none")
	writes := moveKilledBefore(t, whole, second, 0).writes
	table := make([]killedMove, len(writes))
	t.Run("cases", func(t *testing.T) {
		for i, what := range writes {
			t.Run(fmt.Sprintf("%d %s", i+1, what), func(t *testing.T) {
				t.Parallel()
				table[i] = moveKilledBefore(t, newLab(t, fleet, fmt.Sprintf("mover-%d", i+1)), second, i+1)
			})
		}
	})
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "write\tkilled before it\tthen, as docs/move.md says\toutcome")
	for i, line := range table {
		if line.outcome == "" {
			line.outcome = "FAILED"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", i+1, line.before, strings.Join(line.recovery, ", "), line.outcome)
	}
	_ = w.Flush()
	t.Log("\n" + text.String())
	if err := os.WriteFile(filepath.Join(thePlane.Root(), "_artifacts", "move-table.txt"), []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// killedMove is one line of the table.
type killedMove struct {
	before   string
	recovery []string
	outcome  string
	writes   []string
}

// moveKilledBefore moves the lab's node, kills the mover before that write, and mends it; 0 kills no mover.
func moveKilledBefore(t *testing.T, l *lab, second *plane.Plane, number int) (line killedMove) {
	g := NewWithT(t)
	l.untilState(infrav1.HostStateAvailable)
	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	l.ready(l.plane)
	tree := l.host.Tree(ownerRecord)
	manager, err := second.Run(context.Background(), plane.Options{Namespaces: []string{l.key.Namespace}, Haste: hurry, Connections: hasty})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = manager.Stop() })

	move := &plane.Move{From: l.plane, To: second, Namespace: l.key.Namespace}
	run := func() error {
		return (&plane.Move{From: l.plane, To: second, Namespace: l.key.Namespace}).Run(t.Context())
	}
	written := func(names ...string) {
		line.recovery = append(line.recovery, names...)
		asWritten(t, l.plane, second, l.key.Namespace, "c", names...)
	}
	if number == 0 {
		g.Expect(move.Run(t.Context())).To(Succeed())
	} else {
		move.KillBefore = func(n int, what string) bool {
			if n == number {
				line.before = what
			}
			return n == number
		}
		g.Expect(move.Run(t.Context())).To(MatchError(plane.ErrMoverKilled))
		switch found := move.Writes(); {
		case len(found) == 0:
			line.recovery = []string{"move"}
			g.Expect(run()).To(Succeed())
		case !contains(found, "target create"):
			written("resume-source")
			g.Expect(run()).To(Succeed())
		case !contains(found, "source patch", "patch Cluster c"):
			// Nothing on the source is marked as moved.
			written("pause-children")
			g.Expect(run()).To(Succeed())
			written("resume-children")
		case strings.HasPrefix(line.before, "source"):
			written("finish-deletion", "resume-target")
		default:
			written("resume-target")
		}
	}
	line.writes = move.Writes()

	l.ready(second)
	moved := &infrav1.QuoinHost{}
	g.Eventually(func(g Gomega) {
		g.Expect(second.Client.Get(context.Background(), l.key, moved)).To(Succeed())
		g.Expect(moved.Status.State).To(Equal(infrav1.HostStateProvisioned))
		g.Expect(moved.Spec.ManagedBy).To(Equal(string(moved.UID)))
		g.Expect(l.host.Machine.FS().Text(ownerRecord)).To(ContainSubstring(`"generation":2`))
	}).WithTimeout(patience).Should(Succeed())
	for _, list := range []client.ObjectList{&infrav1.QuoinHostList{}, &infrav1.QuoinMachineList{}, &corev1.SecretList{}} {
		g.Expect(l.plane.Client.List(t.Context(), list, client.InNamespace(l.key.Namespace))).To(Succeed())
		g.Expect(itemsOf(g, list)).To(BeEmpty(), "%T", list)
	}
	g.Expect(l.host.Tree(ownerRecord)).To(Equal(tree), "no host is changed")
	g.Expect(l.joins()).To(Equal(1))
	line.outcome = "node kept, generation 2"
	return line
}

// contains reports whether a write begins so, other than those that end as excepted.
func contains(writes []string, prefix string, except ...string) bool {
	for _, write := range writes {
		excepted := false
		for _, end := range except {
			excepted = excepted || strings.HasSuffix(write, end)
		}
		if strings.HasPrefix(write, prefix) && !excepted {
			return true
		}
	}
	return false
}
