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
func laterCRDs(t testing.TB, c client.Client, add bool) {
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

// comesAndGoes has a later release come and go again after so many of the writes each, every time with managers that know
// nothing. It returns how many hosts have its field in their owner records meanwhile.
func (c *court) comesAndGoes(after int64, counts func(event) bool) (marked int) {
	c.t.Helper()
	g := NewWithT(c.t)
	change := make(chan struct{}, 1)
	var writes atomic.Int64
	c.listen(func(e event) {
		if e.manager != nil && counts(e) && writes.Add(1)%after == 0 {
			select {
			case change <- struct{}{}:
			default:
			}
		}
	})
	defer c.listen(nil)
	for _, later := range []bool{true, false} {
		<-change
		c.site.Kill()
		laterCRDs(c.t, c.plane.Client, later)
		if later {
			for _, host := range c.hosts {
				if laterRecord(host) {
					marked++
				}
			}
		}
		g.Expect(c.site.Start()).To(Succeed())
	}
	return marked
}

// stillMarked counts the hosts that have the field of the later release: all are somebody's.
func (c *court) stillMarked() (kept int) {
	c.t.Helper()
	for _, host := range c.hosts {
		if strings.Contains(host.Machine.FS().Text(ownerRecord), laterField) {
			kept++
			NewWithT(c.t).Expect(c.record(host.Name).Released()).To(BeFalse(), host.Name)
		}
	}
	return kept
}

// In the middle of a rollout a later release comes and goes again, and each of them works for some writes. What the later
// one adds to the schemas and to the hosts disturbs nobody, and stays where the hosts keep it. It changes the schemas of the
// plane, so it runs beside no other test.
func TestAPoolRollsWhileALaterReleaseComesAndGoes(t *testing.T) {
	needsTime(t)
	g := NewWithT(t)
	court := newPool(t, "releases", 2, 1, nil)
	edit, judge := court.rollOut("amber"), court.judgePool("amber", 2, 3)
	members := court.watchMembers(1)
	marked := court.comesAndGoes(8, byRollouts)
	g.Expect(court.lacksPool("amber", edit, 2)).NotTo(BeEmpty(), "the rollout was over before the later release was gone")
	court.until("amber", func() string { return court.lacksPool("amber", edit, 2) })
	court.untilOver("amber", edit, 2, true)
	judge.end()
	members.end()
	g.Expect(marked).To(BeNumerically(">=", 3))
	g.Expect(court.stillMarked()).To(BeNumerically(">=", 1), "the host of the control plane was not released")
	court.withoutPolicy()
}

// A control plane of three is replaced meanwhile: no voter is missing, no key is lost, and no host.
func TestAControlPlaneRollsWhileALaterReleaseComesAndGoes(t *testing.T) {
	needsTime(t)
	g := NewWithT(t)
	court := newCourt(t, courtOptions{name: "releases-cp", replicas: 3, hosts: 4, domains: 3, strategy: surge, admission: true})
	court.untilWhole("coming up")
	members, writer := court.watchMembers(3), court.write()
	old := court.outdate()
	marked := court.comesAndGoes(25, func(e event) bool { return e.where == "management" })
	g.Expect(court.lacksReplacements(old)).NotTo(BeEmpty(), "the rollout was over before the later release was gone")
	court.untilWhole("a rollout while a later release comes and goes")
	g.Expect(court.lacksReplacements(old)).To(BeEmpty())
	g.Expect(marked).To(BeNumerically(">=", 3))
	court.stillMarked()
	g.Expect(court.quoinHosts(court.plane)).To(HaveLen(4))
	writer.end()
	members.end()
	court.judgeDepartures()
}
