// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// certificatesSoon is how long certificates should last: an upgrade that is held up must not meet their end.
const certificatesSoon = 14 * 24 * time.Hour

// lookAtCertificates looks when those that kubeadm made for each Machine of the control plane run out.
func lookAtCertificates(ctx context.Context, s Subject) (string, []quoinv1.Finding, error) {
	machines, err := s.machines(ctx)
	if err != nil {
		return "", nil, err
	}
	var findings []quoinv1.Finding
	known := 0
	for i := range machines {
		expiry := machines[i].Status.CertificatesExpiryDate
		if !util.IsControlPlaneMachine(&machines[i]) || expiry.IsZero() {
			continue
		}
		known++
		object, at := "Machine "+machines[i].Name, expiry.UTC().Format(time.RFC3339)
		switch left := expiry.Sub(s.Now); {
		case left <= 0:
			findings = append(findings, blocks(object, "Expired", "its certificates expired at "+at,
				"have the Machine replaced; or renew them on its host with kubeadm certs renew all, and remove annotation "+
					clusterv1.MachineCertificatesExpiryDateAnnotation+" from the Machine's KubeadmConfig"))
		case left <= certificatesSoon:
			findings = append(findings, warns(object, "ExpireSoon", "its certificates expire at "+at,
				"let the upgrade follow soon: each new Machine has new ones"))
		}
	}
	return fmt.Sprintf("certificates of %d Machines", known), findings, nil
}
