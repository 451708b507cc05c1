// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"testing"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

func TestAHeldHostIsClaimedByNobody(t *testing.T) {
	held := func(h *infrav1.QuoinHost) {
		h.Spec.HeldFor = &infrav1.HostHold{Source: "uid", Clusters: []string{"c1"}}
	}
	claimed := func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: "team", Name: "qm1", Machine: "m1", Claim: "0123abcd"}
	}
	for name, c := range map[string]struct {
		before, after *infrav1.QuoinHost
		refusal       string
	}{
		"a claim of a held host":                 {host("h1", held), host("h1", held, claimed), "unpausing its Clusters"},
		"a claim in the moment in which it ends": {host("h1", held), host("h1", claimed), ""},
		"a claim of a host that nobody holds":    {host("h1"), host("h1", claimed), ""},
		"a hold of a host whose Machine is gone": {host("h1", claimed), host("h1", held, claimed), ""},
		"any other change of a held host":        {host("h1", held), host("h1", held, at("192.0.2.8")), ""},
		"a hold of a person, and its end":        {host("h1", held), host("h1"), ""},
		"a change of a host both held and claimed": {host("h1", held, claimed), host("h1", held, claimed, at("192.0.2.8")),
			""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &HostWebhook{Client: reader(t), Live: reader(t)}
			_, err := w.ValidateUpdate(t.Context(), c.before, c.after)
			expectRefusal(t, err, c.refusal)
		})
	}
}
