// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// laterField is what a later release of Quoin adds to specs, with a default, and to the owner records of hosts.
const laterField = "laterRelease"

// laterCRDs adds the field to the schemas, or takes it away again: the API server then prunes it from what is written.
func laterCRDs(t *testing.T, c client.Client, add bool) {
	t.Helper()
	for _, name := range []string{"quoinhosts.infrastructure", "quoinmachines.infrastructure",
		"quoincontrolplanes.controlplane"} {
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: name + ".cluster.x-k8s.io"}, crd); err != nil {
				return err
			}
			for i := range crd.Spec.Versions {
				spec := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
				if delete(spec.Properties, laterField); add {
					spec.Properties[laterField] = apiextensionsv1.JSONSchemaProps{Type: "string",
						Default: &apiextensionsv1.JSON{Raw: []byte(`"on"`)}}
				}
			}
			return c.Update(t.Context(), crd)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// laterRecord adds the field to the owner record of the host, if that has one, as a later release that takes it would.
func laterRecord(host *sim.Host) bool {
	files := host.Machine.FS()
	text := files.Text(ownerRecord)
	if text == "" {
		return false
	}
	return files.WriteFile(ownerRecord, machine.File{Mode: 0o600,
		Content: []byte(`{"` + laterField + `":{"wave":1},` + text[1:])}) == nil
}

// In the middle of a rollout a later release comes and goes again, each time with managers that know nothing, and each of
// them works for some writes. What the later one adds to the schemas and to the hosts disturbs nobody, and stays where the
// hosts keep it. It changes the schemas of the plane, so it runs beside no other test.
func TestAPoolRollsWhileALaterReleaseComesAndGoes(t *testing.T) {
	needsTime(t)
	g := NewWithT(t)
	court := newPool(t, "releases", 2, 1, nil)
	edit, judge := court.rollOut("amber"), court.judgePool("amber", 2, 3)
	members := court.watchMembers(1)
	change := make(chan struct{}, 1)
	var writes atomic.Int64
	court.listen(func(e event) {
		if e.manager != nil && byRollouts(e) && writes.Add(1)%8 == 0 {
			select {
			case change <- struct{}{}:
			default:
			}
		}
	})
	marked := 0
	for _, later := range []bool{true, false} {
		<-change
		court.site.Kill()
		laterCRDs(t, court.plane.Client, later)
		if later {
			for _, host := range court.hosts {
				if laterRecord(host) {
					marked++
				}
			}
		}
		g.Expect(court.site.Start()).To(Succeed())
	}
	t.Cleanup(func() { court.listen(nil) })
	g.Expect(court.lacksPool("amber", edit, 2)).NotTo(BeEmpty(), "the rollout was over before the later release was gone")
	court.until("amber", func() string { return court.lacksPool("amber", edit, 2) })
	court.untilOver("amber", edit, 2, true)
	judge.end()
	members.end()
	g.Expect(marked).To(BeNumerically(">=", 3))
	kept := 0
	for _, host := range court.hosts {
		if strings.Contains(host.Machine.FS().Text(ownerRecord), laterField) {
			kept++
			g.Expect(court.record(host.Name).Released()).To(BeFalse(), host.Name)
		}
	}
	g.Expect(kept).To(BeNumerically(">=", 1), "the host of the control plane was not released")
	court.withoutPolicy()
}
