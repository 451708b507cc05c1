// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// A worker may outlive any number of patch releases of its control plane. One version more than the API takes, and the API
// server refuses the whole status, for ever.
func TestANodeThatOutlivesManyUpgradesForgetsTheEarliestAddons(t *testing.T) {
	w := claimedWorld(t, false)
	host := w.untilState(infrav1.HostStateProvisioned)
	for i := range maxAddonVersions - 1 {
		host.Status.AddonVersions = append(host.Status.AddonVersions, fmt.Sprintf("v1.36.%d", i))
	}
	w.g.Expect(w.client.Status().Update(context.Background(), host)).To(Succeed())

	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{"v1.36.0", "v1.36.14", "v1.36.20"}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.linger(20)
	versions := w.host().Status.AddonVersions
	w.g.Expect(versions).To(HaveLen(maxAddonVersions))
	w.g.Expect(versions).To(ContainElements("v1.35.4", "v1.36.0", "v1.36.14", "v1.36.20"), "what the host runs, and what is asked for")
	w.g.Expect(versions).NotTo(ContainElement("v1.36.1"))
}
