// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// A kubelet keeps the version that its host was installed with: another Machine is what brings another one, and the
// host is not touched until the Node was drained.
func TestKubeletsOfHosts(t *testing.T) {
	content, err := os.ReadFile("testdata/kubelets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Row, Edit, Hook, Waits    string
		ControlPlane, Early, Kept bool
	}
	if err := yaml.UnmarshalStrict(content, &cases); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d %s", i, c.Row), func(t *testing.T) {
			w := claimedWorld(t, c.ControlPlane)
			w.untilState(infrav1.HostStateProvisioned)
			before := w.room.provision
			w.editMachine(func(m *clusterv1.Machine) {
				if c.Edit != "" {
					m.Spec.Version = c.Edit
				}
				if c.Hook != "" {
					m.Annotations = map[string]string{c.Hook + ".delete.hook.machine.cluster.x-k8s.io/db": "its operator"}
				}
			})
			if c.Waits != "" {
				machine := &clusterv1.Machine{}
				w.deleteObject(machine, "m1")
				w.object(machine, "m1")
				conditions.Set(machine, metav1.Condition{Type: clusterv1.MachineDeletingCondition, Status: metav1.ConditionTrue,
					Reason: c.Waits})
				w.g.Expect(w.client.Status().Update(t.Context(), machine)).To(Succeed())
			}
			if c.Early || c.Waits == clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason {
				w.deleteObject(&infrav1.QuoinMachine{}, "qm1")
			}
			if c.Kept {
				w.linger(20)
				w.untouched()
			} else {
				w.until("clean", (*infrav1.QuoinHost).Released)
			}
			w.g.Expect(w.room.provision).To(Equal(before), "nothing is installed again")
		})
	}
}
