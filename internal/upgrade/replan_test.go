// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// A step that somebody undid began when it did, and one that is done before it began is somebody else's.
func TestWhatIsKnownOfAStepStaysKnown(t *testing.T) {
	g, f := NewWithT(t), large(2)
	f.pools[1].spec, f.pools[1].nodes = "v1.36.3", []string{"v1.36.3"}
	undone := quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, To: "v1.36.3", Object: "MachineDeployment pool-0000"}
	done := quoinv1.UpgradeStep{Type: quoinv1.UpgradeStepWorkers, To: "v1.36.3", Object: "MachineDeployment pool-0001"}
	was := undone
	was.StartTime, was.Change = metav1.NewTime(f.now), "Replace"
	was.Machines = &quoinv1.UpgradeStepMachines{Count: ptr.To[int32](1)}
	f.upgrade.Status.Steps = []quoinv1.UpgradeStep{was, done}
	of := deliberation{World: f.world(), Decision: &Decision{Status: f.upgrade.Status}, upgrade: &f.upgrade, now: f.now}
	of.index()
	begun, left := of.keep([]quoinv1.UpgradeStep{undone, done})
	g.Expect(begun).To(BeEmpty())
	g.Expect(left).To(Equal([]quoinv1.UpgradeStep{was, done}))
}
