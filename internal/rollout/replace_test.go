// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// succession is what is known of it.
func (d *deployment) succession(n *node) Succession {
	s := Succession{Deleted: n.deleted, Replacement: n.replacement}
	if slices.Contains(d.machines, n.replaces) {
		s.Replaces = n.replaces.name
	}
	return s
}

// replace makes another Machine of the same MachineSet, beside what that counts.
func (d *deployment) replace(n *node, now time.Time) {
	if n.replacement != "" {
		panic("a second one in the place of " + n.name)
	}
	d.made++
	n.replacement = fmt.Sprintf("%s-%d", d.name, d.made)
	d.machines = append(d.machines, &node{name: n.replacement, template: n.template, created: now, replaces: n})
}

// What the annotation of another Machine says, as a template or a move brings it, is not true of this one.
func TestAReplacementIsOfOneMachine(t *testing.T) {
	g := NewWithT(t)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}}
	g.Expect(SuccessionOf(machine)).To(Equal(Succession{}))
	machine.Annotations = map[string]string{quoinv1.RolloutReplacementAnnotation: ReplacementOf(machine, "b")}
	g.Expect(SuccessionOf(machine).Replacement).To(Equal("b"))
	machine.UID = "2"
	g.Expect(SuccessionOf(machine).Replacement).To(BeEmpty())
	machine.UID = ""
	machine.Annotations[quoinv1.RolloutReplacementAnnotation] = "b"
	g.Expect(SuccessionOf(machine).Replacement).To(BeEmpty())
}
