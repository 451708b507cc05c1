// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/plane"
)

// consent is a namespace with Machines and one with a host, which belongs to somebody else.
type consent struct {
	lab
	g    *WithT
	team string

	sentTo sync.Mutex
	// sent is everything that a command on a host read.
	sent bytes.Buffer
}

func newConsent(t *testing.T) *consent {
	t.Helper()
	c := &consent{g: NewWithT(t), team: "consent-team", lab: lab{t: t, plane: needsPlane(t),
		key: types.NamespacedName{Namespace: "consent-hostile", Name: "consent-hostile"}}}
	c.fleet = newFleet(t, kube.Options{}, func(o *sim.Options) {
		o.Input = func(_ *sim.Host, input []byte) {
			c.sentTo.Lock()
			defer c.sentTo.Unlock()
			c.sent.Write(input)
		}
	})
	var err error
	c.host, err = c.fleet.Add(c.key.Name)
	c.g.Expect(err).NotTo(HaveOccurred())
	c.g.Expect(c.plane.Namespace(t.Context(), c.team)).To(Succeed())
	object := quoinHost(c.host, c.key.Namespace)
	object.Spec.ConsumerNamespaces = []string{"*"}
	c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.key.Namespace}},
		credentials(c.fleet, c.key.Namespace), object, &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: c.team, Name: "pool"},
			Spec: infrav1.QuoinMachineTemplateSpec{Template: infrav1.QuoinMachineTemplateResource{Spec: infrav1.QuoinMachineSpec{
				Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: kube.BundleLocation}}}}}})
	c.run()
	t.Cleanup(func() {
		if err := c.manager.Stop(); err != nil {
			t.Errorf("stopping the manager: %v", err)
		}
	})
	return c
}

// run starts a manager of both namespaces.
func (c *consent) run() {
	c.t.Helper()
	manager, err := c.plane.Run(context.Background(), plane.Options{Namespaces: []string{c.team, c.key.Namespace},
		Haste: hurry, Connections: hasty})
	c.g.Expect(err).NotTo(HaveOccurred())
	c.manager = manager
}

// secret is what the bootstrap data of a Machine alone say.
func secret(machine string) string { return "the-secret-of-" + machine }

// reached reports whether the bootstrap data of a Machine came to the host.
func (c *consent) reached(machine string) bool {
	c.sentTo.Lock()
	defer c.sentTo.Unlock()
	return bytes.Contains(c.sent.Bytes(), []byte(secret(machine)))
}

// machine makes one of the template.
func (c *consent) machine(name string) {
	c.t.Helper()
	c.g.Expect(c.plane.AddMachine(c.t.Context(), plane.MachineOptions{Namespace: c.team, Name: name, Version: version,
		Bootstrap: []byte(strings.Replace(worker, "before kubeadm", secret(name), 1)), Template: "pool"})).To(Succeed())
}

func (c *consent) quoinMachine(name string) *infrav1.QuoinMachine {
	c.t.Helper()
	m := &infrav1.QuoinMachine{}
	c.g.Expect(c.plane.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.team, Name: name}, m)).To(Succeed())
	return m
}

// untilMachine waits until a Machine says why it has no host.
func (c *consent) untilMachine(name, why string) {
	c.t.Helper()
	c.g.Eventually(func() string {
		m := c.quoinMachine(name)
		if m.Spec.ProviderID != "" {
			StopTrying(name + " has the host").Now()
		}
		return conditions.GetMessage(m, infrav1.MachineReadyCondition)
	}).WithTimeout(patience).Should(ContainSubstring(why), c.describe)
}

// templateAccepts has the template accept hosts of namespaces.
func (c *consent) templateAccepts(namespaces ...string) {
	c.t.Helper()
	template := &infrav1.QuoinMachineTemplate{}
	key := client.ObjectKey{Namespace: c.team, Name: "pool"}
	c.g.Expect(c.plane.Client.Get(c.t.Context(), key, template)).To(Succeed())
	before := client.MergeFrom(template.DeepCopy())
	template.Spec.Template.Spec.HostNamespaces = namespaces
	c.g.Expect(c.plane.Client.Patch(c.t.Context(), template, before)).To(Succeed())
}

// machineAccepts has a Machine that there is accept hosts of namespaces.
func (c *consent) machineAccepts(name string, namespaces ...string) {
	c.t.Helper()
	m := c.quoinMachine(name)
	before := client.MergeFrom(m.DeepCopy())
	m.Spec.HostNamespaces = namespaces
	c.g.Expect(c.plane.Client.Patch(c.t.Context(), m, before)).To(Succeed())
}

func (c *consent) changeHost(change func(*infrav1.QuoinHostSpec)) {
	c.t.Helper()
	h := c.object()
	before := client.MergeFrom(h.DeepCopy())
	change(&h.Spec)
	c.g.Expect(c.plane.Client.Patch(c.t.Context(), h, before)).To(Succeed())
}

// imposeClaim writes the very claim of a Machine into the host, as whoever may write QuoinHosts can, and waits until
// the host refuses it.
func (c *consent) imposeClaim(name, reason, message string) {
	c.t.Helper()
	machine := &clusterv1.Machine{}
	c.g.Expect(c.plane.Client.Get(c.t.Context(), client.ObjectKey{Namespace: c.team, Name: name}, machine)).To(Succeed())
	c.changeHost(func(spec *infrav1.QuoinHostSpec) {
		spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: c.team, Name: name, Machine: name,
			Claim: infrav1.ClaimOf(string(machine.UID))}
	})
	host := c.until("refusing the claim, or provisioned", func(h *infrav1.QuoinHost) bool {
		return conditions.GetReason(h, infrav1.HostReadyCondition) == reason || h.Status.State == infrav1.HostStateProvisioned
	})
	c.g.Expect(c.reached(name)).To(BeFalse(), "bootstrap data were sent")
	c.g.Expect(conditions.GetReason(host, infrav1.HostReadyCondition)).To(Equal(reason))
	c.g.Expect(conditions.GetMessage(host, infrav1.HostReadyCondition)).To(ContainSubstring(message))
}

func (c *consent) untilFree() {
	c.t.Helper()
	c.until("free", func(h *infrav1.QuoinHost) bool {
		return h.Spec.ConsumerRef == nil && h.Status.State == infrav1.HostStateAvailable &&
			conditions.IsTrue(h, infrav1.HostReadyCondition)
	})
}

// untilNode waits until the host is the node of a Machine, and had its bootstrap data and no others.
func (c *consent) untilNode(name string, others ...string) {
	c.t.Helper()
	c.untilState(infrav1.HostStateProvisioned)
	c.g.Expect(c.object().Spec.ConsumerRef.Name).To(Equal(name))
	c.g.Expect(c.reached(name)).To(BeTrue())
	for _, other := range others {
		c.g.Expect(c.reached(other)).To(BeFalse(), other)
	}
}

func (c *consent) delete(name string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	c.g.Expect(c.plane.DeleteMachine(ctx, types.NamespacedName{Namespace: c.team, Name: name})).To(Succeed(), c.describe)
}

// TestAHostOfAnotherNamespaceNeedsTheConsentOfBothSides has a tenant register a host of his own and offer it to
// everybody. It gets the bootstrap data of the Machines that accept hosts of his namespace, as long as he offers it,
// and those of no other: not by placement, and not by a claim that he writes himself.
func TestAHostOfAnotherNamespaceNeedsTheConsentOfBothSides(t *testing.T) {
	t.Parallel()
	c := newConsent(t)
	c.untilFree()
	const notAccepted = "1 in a namespace that spec.hostNamespaces does not name"

	c.machine("unasked")
	c.untilMachine("unasked", notAccepted)
	c.imposeClaim("unasked", infrav1.HostNotAcceptedReason, "add "+c.key.Namespace+" to spec.hostNamespaces")
	c.g.Expect(c.quoinMachine("unasked").Spec.ProviderID).To(BeEmpty(), "it does not accept the host")
	c.changeHost(func(spec *infrav1.QuoinHostSpec) { spec.ConsumerRef = nil })
	c.untilFree()

	// The template is changed in place. It counts for what is made of it from then on.
	c.templateAccepts(c.team, c.key.Namespace)
	c.machine("consenting")
	c.untilNode("consenting", "unasked")
	c.untilMachine("unasked", notAccepted)

	// Both take it back. What was begun is seen to its end, and a manager that knows nothing sees it so, too.
	c.templateAccepts()
	c.machineAccepts("consenting")
	c.changeHost(func(spec *infrav1.QuoinHostSpec) { spec.ConsumerNamespaces = nil })
	c.g.Expect(c.manager.Stop()).To(Succeed())
	c.run()
	c.machine("late")
	c.untilMachine("late", "1 not offered to namespace "+c.team)
	host := c.object()
	c.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioned))
	c.g.Expect(conditions.IsTrue(host, infrav1.HostReadyCondition)).To(BeTrue(), c.describe)
	c.delete("consenting")
	c.untilFree()

	// One that accepts the host now does not get it, for it is not offered, whatever claim it carries.
	c.machineAccepts("late", c.key.Namespace)
	c.untilMachine("late", "1 not offered to namespace "+c.team)
	c.imposeClaim("late", infrav1.HostNamespaceNotAllowedReason, "Add the namespace to spec.consumerNamespaces")

	// With the consent of both it does, in place.
	c.changeHost(func(spec *infrav1.QuoinHostSpec) { spec.ConsumerNamespaces = []string{c.team} })
	c.untilNode("late", "unasked")
	c.delete("late")
	c.untilFree()
	c.g.Expect(c.reached("unasked")).To(BeFalse())
}
