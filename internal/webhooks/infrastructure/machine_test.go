// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

type machineChange func(*infrav1.QuoinMachineSpec)

func machine(changes ...machineChange) *infrav1.QuoinMachine {
	m := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "m"}}
	m.Spec.Artifacts.Bundle = &infrav1.Bundle{Location: "/opt/bundles/{{version}}"}
	for _, change := range changes {
		change(&m.Spec)
	}
	return m
}

func provided(id string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) { s.ProviderID = id }
}

func selecting(key string, operator metav1.LabelSelectorOperator, values ...string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) {
		s.HostSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key, Operator: operator, Values: values}}}
	}
}

func addons(versions ...string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) { s.AddonVersions = versions }
}

func from(location string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) { s.Artifacts.Bundle = &infrav1.Bundle{Location: location} }
}

func accepting(namespaces ...string) machineChange {
	return func(s *infrav1.QuoinMachineSpec) { s.HostNamespaces = namespaces }
}

func nothing(*infrav1.QuoinMachineSpec) {}

func TestMachineSpec(t *testing.T) {
	for name, c := range map[string]struct {
		change            machineChange
		refusal           string
		refusedInTemplate string
	}{
		"nothing more":              {nothing, "", ""},
		"a provider ID":             {provided("quoin://hosts/host-1/0a1b2c3d"), "", "spec.template.spec.providerID"},
		"another provider's ID":     {provided("aws:///eu-1/i-1"), "spec.providerID", "spec.template.spec.providerID"},
		"a provider ID of no claim": {provided("quoin://hosts/host-1"), "spec.providerID", "spec.template.spec.providerID"},
		"a selector":                {selecting("disk", metav1.LabelSelectorOpIn, "ssd"), "", ""},
		"a selector of no value": {selecting("disk", metav1.LabelSelectorOpIn), "spec.hostSelector",
			"spec.template.spec.hostSelector"},
		"a selector's operator": {selecting("disk", "Is", "ssd"), "spec.hostSelector", "spec.template.spec.hostSelector"},
		"a selector's key": {selecting("not a key", metav1.LabelSelectorOpExists), "spec.hostSelector",
			"spec.template.spec.hostSelector"},
		"hosts of a namespace":     {accepting("hosts"), "", ""},
		"hosts of every namespace": {accepting("*"), "", ""},
		"hosts of a pattern": {accepting("hosts", "rack-*"), "spec.hostNamespaces[1]",
			"spec.template.spec.hostNamespaces[1]"},
		"add-on versions": {addons("v1.36.3", "v1.35.4"), "", ""},
		"an add-on version, half": {addons("v1.36.3", "v1.35"), "spec.addonVersions[1]",
			"spec.template.spec.addonVersions[1]"},
		"a location up the tree": {from("/opt/../{{version}}"), "spec.artifacts.bundle.location",
			"spec.template.spec.artifacts.bundle.location"},
		"a location with a user": {from("http://me:secret@10.1.2.3/{{version}}"), "spec.artifacts.bundle.location",
			"spec.template.spec.artifacts.bundle.location"},
		"an add-on version, no v": {addons("1.36.3"), "spec.addonVersions[0]", "spec.template.spec.addonVersions[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&MachineWebhook{}).ValidateCreate(t.Context(), machine(c.change))
			expectRefusal(t, err, c.refusal)
			template := &infrav1.QuoinMachineTemplate{}
			template.Spec.Template.Spec = machine(c.change).Spec
			_, err = machineTemplates.ValidateCreate(t.Context(), template)
			expectRefusal(t, err, c.refusedInTemplate)
		})
	}
}

func TestMachineKeepsWhatItsHostWasChosenBy(t *testing.T) {
	const one, other = "quoin://hosts/host-1/0a1b2c3d", "quoin://hosts/host-2/0a1b2c3d"
	for name, c := range map[string]struct {
		before, after machineChange
		refusal       string
	}{
		"gets a provider ID":      {nothing, provided(one), ""},
		"keeps its provider ID":   {provided(one), provided(one), ""},
		"changes its provider ID": {provided(one), provided(other), "spec.providerID"},
		"loses its provider ID":   {provided(one), nothing, "spec.providerID"},
		"changes its selector": {selecting("disk", metav1.LabelSelectorOpExists),
			selecting("gpu", metav1.LabelSelectorOpExists), "spec.hostSelector"},
		"gets a selector": {nothing, selecting("gpu", metav1.LabelSelectorOpExists), "spec.hostSelector"},
		"keeps its selector": {selecting("gpu", metav1.LabelSelectorOpExists),
			selecting("gpu", metav1.LabelSelectorOpExists), ""},
		"accepts hosts of another namespace": {provided(one), func(s *infrav1.QuoinMachineSpec) {
			s.ProviderID, s.HostNamespaces = one, []string{"hosts"}
		}, ""},
		"takes that back":           {accepting("hosts"), nothing, ""},
		"changes its artifacts":     {nothing, from("/elsewhere/{{version}}"), "spec.artifacts"},
		"gets an add-on version":    {addons("v1.35.4"), addons("v1.35.4", "v1.36.3"), ""},
		"loses its add-on versions": {addons("v1.35.4"), nothing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&MachineWebhook{}).ValidateUpdate(t.Context(), machine(c.before), machine(c.after))
			expectRefusal(t, err, c.refusal)

			deleting := machine(c.after)
			now := metav1.Now()
			deleting.DeletionTimestamp = &now
			_, err = (&MachineWebhook{}).ValidateUpdate(t.Context(), machine(c.before), deleting)
			expectRefusal(t, err, "")
		})
	}
}

// What the schema admits must not fail on a host, and what a host can fetch must not be refused.
func TestTheSchemaAndTheHostAgreeOnBundleLocations(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile("../../../config/crd/infrastructure/bases/infrastructure.cluster.x-k8s.io_quoinmachines.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	rule := regexp.MustCompile(`self\.matches\('+(\^.+?\$)'+\)`).FindSubmatch(text)
	g.Expect(rule).To(HaveLen(2))
	characters, err := regexp.Compile(string(rule[1]))
	g.Expect(err).NotTo(HaveOccurred())
	for location, fine := range map[string]bool{
		"/opt/quoin/bundles/{{version}}":                 true,
		"http://[2001:db8::7]:8080/bundles/{{version}}":  true,
		"https://bundles.example.com/a~b%20/{{version}}": true,
		"http://10.1.2.3/get?v={{version}}":              false,
		"http://10.1.2.3/a&b={{version}}":                false,
		"/opt/my bundles/{{version}}":                    false,
		"/opt/$(reboot)/{{version}}":                     false,
	} {
		g.Expect(characters.MatchString(location)).To(Equal(fine), "schema: %s", location)
		_, err := (&MachineWebhook{}).ValidateCreate(t.Context(), machine(from(location)))
		g.Expect(err == nil).To(Equal(fine), "webhook: %s: %v", location, err)
	}
}
