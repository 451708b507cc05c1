//go:build e2e

// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/e2e/lab"
)

// refusals are what a user gets wrong: each is refused with a way out, or shows as a condition that says what to do.
func refusals() {
	It("refuses versions and replica counts that cannot be, also through /scale [S1-1] [S0-15] [S0-19]", func(ctx SpecContext) {
		edit := func(patch string) error {
			plane := need(the.demo.ControlPlane(ctx))
			return the.lab.Management.Patch(ctx, plane, client.RawPatch(mergePatch, []byte(patch)))
		}
		Expect(edit(`{"spec":{"version":"1.36"}}`)).To(MatchError(ContainSubstring("such as v1.36.3")))
		Expect(edit(`{"spec":{"version":"latest"}}`)).To(MatchError(ContainSubstring("such as v1.36.3")))
		Expect(edit(`{"spec":{"version":"` + lab.OldVersion + `"}}`)).To(MatchError(ContainSubstring("v1.3")))
		Expect(edit(`{"spec":{"version":"v1.38.0"}}`)).To(MatchError(ContainSubstring("v1.3")))
		Expect(edit(`{"spec":{"replicas":2}}`)).To(MatchError(ContainSubstring("odd")))

		plane := need(the.demo.ControlPlane(ctx))
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
		Expect(the.lab.Management.SubResource("scale").Update(ctx, plane, client.WithSubResourceBody(scale))).To(MatchError(ContainSubstring("odd")))
		_, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "scale", "quoincontrolplane", plane.Name, "--namespace", lab.Namespace, "--replicas=2")
		Expect(err).To(MatchError(ContainSubstring("odd")))
	}, NodeTimeout(2*time.Minute))

	It("refuses to edit a template in place, and a virtual address that another cluster has", func(ctx SpecContext) {
		templates := &infrav1.QuoinMachineTemplateList{}
		Expect(the.lab.Management.List(ctx, templates, client.InNamespace(lab.Namespace))).To(Succeed())
		Expect(templates.Items).NotTo(BeEmpty())
		template := templates.Items[0].DeepCopy()
		template.Spec.Template.Spec.Artifacts.Bundle.Location = "/elsewhere/{{version}}"
		Expect(the.lab.Management.Update(ctx, template)).To(MatchError(And(ContainSubstring("cannot be changed in place"), ContainSubstring("make a new template"))))

		Expect(the.lab.Management.Create(ctx, quoinCluster("same-address", the.demo.VirtualAddress, 77))).
			To(MatchError(ContainSubstring("give this cluster another address")))
		Expect(the.lab.Management.Create(ctx, quoinCluster("same-router", "172.30.0.109", the.demo.RouterID))).
			To(MatchError(ContainSubstring("give this cluster another one")))
	}, NodeTimeout(2*time.Minute))

	It("says why no host matches", func(ctx SpecContext) {
		deployment := unmatched(ctx)
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(the.lab.Management.Delete(ctx, deployment))).To(Succeed())
			Eventually(func(ctx context.Context) ([]infrav1.QuoinMachine, error) { return machinesOf(ctx, deployment.Name) }).
				WithContext(ctx).WithTimeout(2 * time.Minute).Should(BeEmpty())
		}, NodeTimeout(3*time.Minute))
		Eventually(func(ctx context.Context) (string, error) {
			machines, err := machinesOf(ctx, deployment.Name)
			if err != nil || len(machines) != 1 {
				return fmt.Sprint(len(machines), " machines"), err
			}
			return condition(machines[0].Status.Conditions, infrav1.MachineReadyCondition), nil
		}).WithContext(ctx).Should(And(HavePrefix("Ready=False NoMatchingHost"), ContainSubstring("role=quantum")))
	}, NodeTimeout(6*time.Minute))

	It("says that a host is unreachable", func(ctx SpecContext) {
		host := &infrav1.QuoinHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: "nobody"},
			Spec:       infrav1.QuoinHostSpec{Address: "172.30.0.99", User: "quoin", CredentialsRef: infrav1.SecretReference{Name: lab.CredentialsSecret}},
		}
		Expect(the.lab.Management.Create(ctx, host)).To(Succeed())
		expectHost(ctx, "nobody", infrav1.HostReachableCondition, And(HavePrefix("Reachable=False Unreachable"), ContainSubstring("172.30.0.99")))
		expectHost(ctx, "nobody", infrav1.HostReadyCondition, HavePrefix("Ready=False"))
		Expect(the.lab.Management.Delete(ctx, host)).To(Succeed())
		expectGone(ctx, host)
	}, NodeTimeout(3*time.Minute))

	It("says that a key is refused, and that a host presents another key than the pinned one", func(ctx SpecContext) {
		stranger := lab.Stranger()
		must(the.lab.StartHost(ctx, stranger))
		must(the.lab.CreateOtherCredentials(ctx, "wrong-key"))
		host := need(the.lab.QuoinHost(ctx, stranger))
		host.Spec.CredentialsRef.Name = "wrong-key"

		By("giving the wrong SSH key")
		Expect(the.lab.Management.Create(ctx, host)).To(Succeed())
		expectHost(ctx, host.Name, infrav1.HostReachableCondition, HavePrefix("Reachable=False AuthenticationFailed"))

		By("giving the right one")
		host = quoinHost(ctx, host.Name)
		before := client.MergeFrom(host.DeepCopy())
		host.Spec.CredentialsRef.Name = lab.CredentialsSecret
		Expect(the.lab.Management.Patch(ctx, host, before)).To(Succeed())
		must(the.lab.AwaitHosts(ctx, 90*time.Second, infrav1.HostStateAvailable, stranger))

		By("changing the host's own keys")
		must(the.lab.NewHostKeys(ctx, stranger))
		// A connection that is still open was made to the right host; it ends when the host does.
		must(the.lab.Reboot(ctx, stranger))
		// An idle host is asked every few minutes; a person who knows better says so.
		annotate(ctx, host.Name, infrav1.RetryAnnotation+"=now")
		fingerprint := need(the.lab.HostKeyFingerprint(ctx, stranger))
		expectHost(ctx, host.Name, infrav1.HostKeyVerifiedCondition,
			And(HavePrefix("HostKeyVerified=False HostKeyChanged"), ContainSubstring(fingerprint), ContainSubstring(infrav1.AcceptHostKeyAnnotation)))
		expectHost(ctx, host.Name, infrav1.HostReadyCondition, HavePrefix("Ready=False"))

		By("accepting the new key by its fingerprint, as the message says")
		annotate(ctx, host.Name, infrav1.AcceptHostKeyAnnotation+"="+fingerprint)
		expectHost(ctx, host.Name, infrav1.HostKeyVerifiedCondition, HavePrefix("HostKeyVerified=True"))
		Expect(quoinHost(ctx, host.Name).Annotations).NotTo(HaveKey(infrav1.AcceptHostKeyAnnotation))
	}, NodeTimeout(12*time.Minute))

	It("does not take a virtual address that something already answers at", func(ctx SpecContext) {
		_, err := the.lab.Console(ctx, lab.Stranger().Container(),
			"ip address add 172.30.0.102/24 dev eth0; systemd-run --unit squatter socat TCP-LISTEN:6443,fork,reuseaddr EXEC:/bin/cat")
		must(err)
		spare := spareHost(ctx, "control-plane")
		cluster := need(the.lab.Create(ctx, lab.ClusterSpec{
			Name: "taken", Version: lab.OldVersion, VirtualAddress: "172.30.0.102", RouterID: 102, Workers: 0,
		}))
		Eventually(func(ctx context.Context) string {
			return condition(quoinHost(ctx, spare.Name).Status.Conditions, infrav1.HostReadyCondition)
		}).WithContext(ctx).WithTimeout(3 * time.Minute).Should(And(HavePrefix("Ready=False EndpointInUse"), ContainSubstring("172.30.0.102")))
		must(cluster.Delete(ctx, 4*time.Minute))
		must(the.lab.AwaitHosts(ctx, 2*time.Minute, infrav1.HostStateAvailable, spare))
		expectClean(ctx, spare)

		stranger := quoinHost(ctx, lab.Stranger().Name)
		Expect(the.lab.Management.Delete(ctx, stranger)).To(Succeed())
		expectGone(ctx, stranger)
	}, NodeTimeout(11*time.Minute))
}

// mergePatch is what `kubectl edit` sends for a custom resource.
const mergePatch = "application/merge-patch+json"

// expectHost waits for a condition of a host of the inventory.
func expectHost(ctx context.Context, name, kind string, matcher types.GomegaMatcher) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) string { return condition(quoinHost(ctx, name).Status.Conditions, kind) }).
		WithContext(ctx).WithTimeout(4*time.Minute).Should(matcher, "host %s", name)
}

// annotate a host, as a person does.
func annotate(ctx context.Context, host, annotation string) {
	GinkgoHelper()
	_, err := the.lab.Kubectl(ctx, the.lab.Kubeconfig(), "annotate", "quoinhost", host, "--namespace", lab.Namespace, annotation)
	must(err)
}

func expectGone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		return the.lab.Management.Get(ctx, client.ObjectKeyFromObject(object), object)
	}).WithContext(ctx).Should(MatchError(ContainSubstring("not found")))
}

func quoinCluster(name, address string, router int) *infrav1.QuoinCluster {
	return &infrav1.QuoinCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name},
		Spec: infrav1.QuoinClusterSpec{
			ControlPlaneEndpoint: infrav1.APIEndpoint{Host: address, Port: 6443},
			LoadBalancer: infrav1.LoadBalancer{
				Type: infrav1.LoadBalancerKeepalived, Keepalived: &infrav1.Keepalived{VirtualRouterID: int32(router)},
			},
		},
	}
}

// unmatched adds workers to the first cluster that select hosts by a label which no host has.
func unmatched(ctx context.Context) *clusterv1.MachineDeployment {
	GinkgoHelper()
	workers := need(the.demo.WorkerDeployment(ctx))
	template := &infrav1.QuoinMachineTemplate{}
	Expect(the.lab.Management.Get(ctx, client.ObjectKey{Namespace: lab.Namespace, Name: workers.Spec.Template.Spec.InfrastructureRef.Name}, template)).To(Succeed())
	const name = "nowhere"
	fresh := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name}, Spec: *template.Spec.DeepCopy()}
	fresh.Spec.Template.Spec.HostSelector = &metav1.LabelSelector{MatchLabels: map[string]string{lab.RoleLabel: "quantum"}}
	Expect(the.lab.Management.Create(ctx, fresh)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(the.lab.Management.Delete(ctx, fresh)).To(Succeed()) }, NodeTimeout(time.Minute))

	labels := map[string]string{clusterv1.ClusterNameLabel: the.demo.Name, "pool": name}
	deployment := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.Namespace, Name: name},
		Spec:       *workers.Spec.DeepCopy(),
	}
	deployment.Spec.Replicas = ptr.To[int32](1)
	deployment.Spec.Selector = metav1.LabelSelector{MatchLabels: labels}
	deployment.Spec.Template.Labels = labels
	deployment.Spec.Template.Spec.InfrastructureRef.Name = name
	Expect(the.lab.Management.Create(ctx, deployment)).To(Succeed())
	return deployment
}

// machinesOf are the QuoinMachines of a MachineDeployment.
func machinesOf(ctx context.Context, deployment string) ([]infrav1.QuoinMachine, error) {
	list := &infrav1.QuoinMachineList{}
	err := the.lab.Management.List(ctx, list, client.InNamespace(lab.Namespace), client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})
	return list.Items, err
}
