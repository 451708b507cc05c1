// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// row is what kubectl get rolloutpolicies prints of the policy, but for its age; an empty column is -.
func (w *world) row() string {
	w.t.Helper()
	raw, err := os.ReadFile("../../config/crd/infrastructure/bases/quoin.cluster.x-k8s.io_rolloutpolicies.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	definition := &apiextensionsv1.CustomResourceDefinition{}
	w.Expect(yaml.Unmarshal(raw, definition)).To(Succeed())
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.policy())
	w.Expect(err).NotTo(HaveOccurred())
	columns := []string{w.policy().Name}
	for _, column := range definition.Spec.Versions[0].AdditionalPrinterColumns {
		if column.Priority > 0 || column.Name == "Age" {
			continue
		}
		path, cell := jsonpath.New(column.Name).AllowMissingKeys(true), &strings.Builder{}
		w.Expect(path.Parse("{" + column.JSONPath + "}")).To(Succeed())
		w.Expect(path.Execute(cell, object)).To(Succeed())
		if cell.Len() == 0 {
			cell.WriteByte('-')
		}
		columns = append(columns, cell.String())
	}
	return strings.Join(columns, " ")
}

// A person who follows the policies and their events reads the rollout in its order: who is tried, who is waited for,
// and that it is done.
func TestARolloutCanBeFollowed(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.PauseAfter = quoinv1.RolloutPauseCanary })
	var story []string
	tell := func() {
		t.Helper()
		w.reconcile()
		story = append(append(story, w.row()), w.recorded()...)
	}
	gone := func(name string) {
		t.Helper()
		w.Expect(w.client.Delete(t.Context(), w.machine(name))).To(Succeed())
	}
	tell()
	w.clock.Step(time.Minute)
	w.joins("new-0")
	tell()
	w.clock.Step(time.Minute)
	tell()
	w.adjust(policy, func() { policy.Spec.ContinueAfter = "new-0" })
	tell()
	gone("old-0")
	w.clock.Step(time.Minute)
	w.joins("new-1")
	tell()
	w.clock.Step(time.Minute)
	tell()
	gone("old-1")
	tell()
	w.Expect(story).To(Equal([]string{
		"workers c1 0/3 1 1 - RollingOut - False",
		"Normal Canary new-0: nothing is at the present template: one is tried alone",
		"Normal RollingOut blue: Machine new-0: nothing is at the present template: one is tried alone",
		"workers c1 0/3 1 1 - RollingOut - False",
		"workers c1 0/3 1 1 - Held new-0 False",
		"Warning Held blue: Machine new-0: it is validated; set spec.continueAfter to new-0 to go on",
		"workers c1 1/4 1 0 2026-11-23T08:05:00Z RollingOut - False",
		"Normal Validated new-0: it was healthy for 1m0s",
		"Normal RollingOut blue: Machine new-0: it was healthy for 1m0s",
		"Normal Next new-1: there is room for one more",
		"workers c1 1/3 1 0 2026-11-23T08:05:00Z RollingOut - False",
		"workers c1 2/3 0 0 - RollingOut - False",
		"Normal Validated new-1: it was healthy for 1m0s",
		"workers c1 2/2 0 0 - UpToDate - False",
		"Normal UpToDate there is nothing to replace",
	}))
}
