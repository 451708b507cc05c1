// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/reset"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const provisionPlanID = "provision-0123abcd"

func (w *world) object(o client.Object, name string) {
	w.t.Helper()
	w.g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "team", Name: name}, o)).To(Succeed())
}

func (w *world) setBootstrapData(text string) {
	_, _, _, _, secret := consumer(false)
	secret.Data["value"] = []byte(text)
	w.g.Expect(w.client.Update(context.Background(), secret)).To(Succeed())
}

func (w *world) setDataSecretName(name *string) {
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	machine.Spec.Bootstrap.DataSecretName = name
	w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
}

// forgetStatus is what clusterctl move does.
func (w *world) forgetStatus() {
	host := w.host()
	host.Status = infrav1.QuoinHostStatus{}
	w.g.Expect(w.client.Status().Update(context.Background(), host)).To(Succeed())
	w.restart()
}

func TestAClaimedHostBecomesANode(t *testing.T) {
	w := claimedWorld(t, false)
	w.setDataSecretName(nil)
	waiting := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostWaitingForBootstrapDataReason)
	w.g.Expect(waiting.Message).To(ContainSubstring("Machine team/m1"))
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateClaimed))

	w.setDataSecretName(ptr.To("m1-bootstrap"))
	running := w.until("running", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.Step == "kubeadm-join"
	})
	w.g.Expect(condition1(running, infrav1.HostReadyCondition).Message).To(ContainSubstring("step 3 of 5, kubeadm-join"))
	w.untilState(infrav1.HostStateProvisioned)
	w.reconcile()
	host := w.host()
	w.g.Expect(host.Status.Version).To(Equal("v1.35.4"))
	w.g.Expect(host.Status.AddonVersions).To(Equal([]string{"v1.35.4"}))
	w.g.Expect(condition1(host, infrav1.HostProvisionedCondition).Status).To(Equal(metav1.ConditionTrue))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue))

	order := w.room.provision
	w.g.Expect(order.ProviderID).To(Equal("quoin://hosts/h1/0123abcd"))
	w.g.Expect(order.NodeAddresses).To(Equal([]string{"10.0.0.11"}))
	w.g.Expect(order.Role).To(Equal(artifacts.Worker))
	w.g.Expect(order.VirtualAddress).To(BeNil(), "workers do not carry the virtual address")
	w.g.Expect(order.Artifacts).To(Equal(artifacts.Wanted{Version: "v1.35.4", Architecture: "amd64",
		Source: artifacts.Source{Bundle: &artifacts.Bundle{Location: "/opt/bundles/{{version}}"}}}))
	w.g.Expect(order.Owner.Order).NotTo(BeEmpty())
	w.g.Expect(order.Owner).To(Equal(owner.Record{Namespace: "hosts", Host: "h1", Machine: "qm1", UID: "0123abcd",
		Generation: 1, ManagementCluster: "host-uid", Order: host.Spec.Order.Given}))
}

func TestTheFirstControlPlaneHostTakesTheVirtualAddressOnlyWhenItIsFree(t *testing.T) {
	w := claimedWorld(t, true)
	w.room.errs["provision"] = &EndpointInUseError{Address: "10.0.0.100", Answer: "02:42:ac:00:00:01 answers ARP requests"}
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostEndpointInUseReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("10.0.0.100"), ContainSubstring("02:42:ac:00:00:01"),
		ContainSubstring("another controlPlaneEndpoint")))
	w.g.Expect(w.room.plans).To(BeEmpty())
	w.room.set(func() { delete(w.room.errs, "provision") })
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.provision.Role).To(Equal(artifacts.ControlPlane))
	w.g.Expect(w.room.provision.ClaimedByUs).To(BeFalse())
	w.g.Expect(w.room.provision.VirtualAddress.Interface).To(Equal("eth0"))
	w.g.Expect(w.room.provision.VirtualAddress.VirtualRouterID).To(Equal(51))
	w.g.Expect(w.room.provision.VirtualAddress.Addresses[0].String()).To(Equal("10.0.0.100/32"))
}

func TestALaterControlPlaneHostExpectsTheVirtualAddressToAnswer(t *testing.T) {
	w := claimedWorld(t, true)
	_, _, _, peer, _ := consumer(true)
	peer.Name, peer.Spec.ProviderID = "qm0", "quoin://hosts/h0/88888888"
	peer.Status.Initialization.Provisioned = ptr.To(true)
	w.create(peer)
	w.g.Expect(w.client.Status().Update(context.Background(), peer)).To(Succeed())
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.provision.ClaimedByUs).To(BeTrue())
}

func TestTheVirtualAddressIsNeverANodeAddress(t *testing.T) {
	w := claimedWorld(t, true)
	w.room.facts.Addresses = append(w.room.facts.Addresses[:0:0], w.room.facts.Addresses[0], w.room.facts.Addresses[0])
	w.room.facts.Addresses[0].Address = virtualAddressesOf(&infrav1.QuoinCluster{Spec: infrav1.QuoinClusterSpec{
		ControlPlaneEndpoint: infrav1.APIEndpoint{Host: "10.0.0.100"},
		LoadBalancer:         infrav1.LoadBalancer{Type: infrav1.LoadBalancerKeepalived},
	}})[0].Addr()
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.provision.NodeAddresses).To(Equal([]string{"10.0.0.11"}))
}

func TestBootstrapDataThatCannotBeCarriedOutNeverReachesTheHost(t *testing.T) {
	says := map[string]string{"directive": "cloud-config disk_setup", "variable": "ds.meta_data.nothing"}
	for name, text := range map[string]string{
		"directive": "#cloud-config\ndisk_setup:\n  /dev/sda: {}\n",
		"variable":  "## template: jinja\n#cloud-config\nruncmd:\n- echo {{ ds.meta_data.nothing }}\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.setBootstrapData(text)
			found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapDataInvalidReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("the host was not touched"), ContainSubstring("KubeadmConfig")))
			told := &infrav1.QuoinMachine{}
			w.object(told, "qm1")
			w.g.Expect(conditions.GetMessage(told, infrav1.MachineBootstrapDataRanCondition)).To(
				And(ContainSubstring(says[name]), ContainSubstring("KubeadmConfig")))
			w.g.Expect(found.Message).NotTo(ContainSubstring(says[name]), "another namespace reads that")
			w.linger(5)
			w.g.Expect(w.room.count("provision")).To(BeZero())
		})
	}
}

func TestIgnitionIsRefused(t *testing.T) {
	w := claimedWorld(t, false)
	_, _, _, _, secret := consumer(false)
	secret.Data["format"] = []byte("ignition")
	w.g.Expect(w.client.Update(context.Background(), secret)).To(Succeed())
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapDataInvalidReason)
	w.g.Expect(found.Message).To(ContainSubstring("only cloud-config"))
}

func TestASecretThatIsNotTheMachinesBootstrapDataIsNotCarriedToAHost(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Secret)
		says   string
	}{
		"a Secret of another type": {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, `type "Opaque"`},
		"a Secret of another cluster": {func(s *corev1.Secret) {
			s.Labels = map[string]string{
				clusterv1.ClusterNameLabel: "c2"}
		}, `"c2"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			_, _, _, _, secret := consumer(false)
			w.g.Expect(w.client.Delete(context.Background(), secret)).To(Succeed())
			c.change(secret)
			w.create(secret)
			found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapDataInvalidReason)
			w.g.Expect(found.Message).To(ContainSubstring(c.says))
			w.g.Expect(w.room.count("provision")).To(BeZero())
		})
	}
}

func TestAClaimFromANamespaceThatTheHostIsNotOfferedToIsNotServed(t *testing.T) {
	w := claimedWorld(t, false)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"others"} })
	ready := w.untilReason(infrav1.HostReadyCondition, infrav1.HostNamespaceNotAllowedReason)
	w.g.Expect(ready.Message).To(And(ContainSubstring("not offered to namespace team"),
		ContainSubstring("spec.consumerNamespaces"), ContainSubstring("delete Machine m1")))
	w.linger(5)
	w.g.Expect(w.room.asked).To(BeEmpty(), "nobody even connects")

	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"team"} })
	w.untilState(infrav1.HostStateProvisioned)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = []string{"others"} })
	w.linger(3)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue),
		"what was begun is seen to its end")
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
}

func TestABundleThatIsMissingIsACondition(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.errs["provision"] = &ArtifactsError{Place: "/opt/bundles/v1.35.4", Err: errors.New("no manifest.json")}
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostArtifactsUnavailableReason)
	w.g.Expect(found.Message).To(And(ContainSubstring("/opt/bundles/v1.35.4"), ContainSubstring("spec.artifacts")))
	w.until("attempts grow apart", func(h *infrav1.QuoinHost) bool { return ptr.Deref(h.Status.Failures, 0) >= 3 })
}

func TestAHostThatLacksKeepalivedSaysSo(t *testing.T) {
	w := claimedWorld(t, true)
	w.room.errs["provision"] = &LacksError{What: "keepalived", Why: "the virtual address of the control plane needs it"}
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostUnsuitableReason)
	w.g.Expect(found.Message).To(ContainSubstring("keepalived is not installed on the host"))
}

func TestAManagerKilledDuringAJoinContinuesByAsking(t *testing.T) {
	w := claimedWorld(t, false)
	running := run.Status{Phase: run.Running, Step: "kubeadm-join", Message: "step 3 of 5, kubeadm-join"}
	w.room.script[provisionPlanID] = []run.Status{running, running, running, running, running, {Phase: run.Succeeded}}
	for range 4 {
		w.until("another poll", func() func(*infrav1.QuoinHost) bool {
			before := w.room.count("follow")
			return func(*infrav1.QuoinHost) bool {
				return w.room.count("follow") > before && w.room.plans[provisionPlanID] != nil
			}
		}())
		w.restart()
	}
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.count("provision")).To(Equal(1), "the bootstrap data is handed over once")
}

func TestAManagerKilledBeforeItWroteDownTheStartAsksTheHostFirst(t *testing.T) {
	w := claimedWorld(t, false)
	w.until("started", func(*infrav1.QuoinHost) bool { return w.room.count("provision") == 1 })
	// The plan runs on the host, the status says NotStarted, and the bootstrap data is gone meanwhile.
	_, _, _, _, secret := consumer(false)
	w.g.Expect(w.client.Delete(context.Background(), secret)).To(Succeed())
	w.restart()
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.count("provision")).To(Equal(1))
}

func TestAProvisionedHostWhoseStatusWasLostIsNotBootstrappedAgain(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.forgetStatus()
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.room.count("provision")).To(Equal(1))
	host := w.host()
	w.g.Expect(host.Status.Version).To(Equal("v1.35.4"))
	w.g.Expect(host.Status.Facts.NodeAddresses).NotTo(BeEmpty())
}

func TestAProvisionedHostThatRebootsStaysProvisioned(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.reconcile()
	w.room.set(func() { w.room.facts.BootID = "boot-2" })
	w.restart()
	w.now = w.now.Add(DefaultTimings().Probe)
	w.until("seen", func(h *infrav1.QuoinHost) bool { return h.Status.Facts.BootID == "boot-2" })
	w.linger(3)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
	w.g.Expect(w.room.count("provision")).To(Equal(1))
}

func TestAPlanThatFailedOrWasInterruptedSaysThatTheMachineMustBeReplaced(t *testing.T) {
	for reason, status := range map[string]run.Status{
		infrav1.HostStepFailedReason: {Phase: run.Failed, Step: "kubeadm-join",
			Message: "step 3 of 5, kubeadm-join, failed with code 1", Tail: "error: couldn't validate the identity",
			ExitCode: 1},
		infrav1.HostBootstrapInterruptedReason: {Phase: run.Interrupted, Step: "kubeadm-join",
			Message: "step 3 of 5, kubeadm-join, was cut off"},
	} {
		t.Run(reason, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.room.script[provisionPlanID] = []run.Status{status}
			found := w.untilReason(infrav1.HostProvisionedCondition, reason)
			told := &infrav1.QuoinMachine{}
			w.object(told, "qm1")
			w.g.Expect(conditions.GetMessage(told, infrav1.MachineBootstrapDataRanCondition)).To(
				And(ContainSubstring(status.Message), ContainSubstring(status.Tail), ContainSubstring("Machine must be replaced")))
			w.g.Expect(found.Message).To(And(ContainSubstring("kubeadm-join, "), ContainSubstring("see QuoinMachine team/qm1"),
				ContainSubstring("Machine must be replaced"), Not(ContainSubstring("couldn't validate"))))
			w.linger(5)
			w.restart()
			w.linger(5)
			again := condition1(w.host(), infrav1.HostProvisionedCondition)
			w.g.Expect(again.Message).To(Equal(found.Message))
			w.g.Expect(w.room.count("provision")).To(Equal(1), "it never starts twice")
		})
	}
}

func TestAPausedHostSeesAPlanToItsEndAndNothingMore(t *testing.T) {
	w := claimedWorld(t, false)
	running := run.Status{Phase: run.Running, Step: "kubeadm-join", Message: "step 3 of 5"}
	w.room.script[provisionPlanID] = []run.Status{running, running, running, {Phase: run.Succeeded}}
	w.until("polled", func(h *infrav1.QuoinHost) bool {
		return w.room.plans[provisionPlanID] != nil && w.room.plans[provisionPlanID].polls > 0
	})
	cluster := &clusterv1.Cluster{}
	w.object(cluster, "c1")
	cluster.Spec.Paused = ptr.To(true)
	w.g.Expect(w.client.Update(context.Background(), cluster)).To(Succeed())
	host := w.until("the end is seen", func(h *infrav1.QuoinHost) bool {
		return h.Status.Operation != nil && h.Status.Operation.Phase == string(run.Succeeded)
	})
	w.linger(3)
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateProvisioning))
	w.g.Expect(w.room.count("follow without resume")).To(BeNumerically(">", 0))
	cluster.Spec.Paused = nil
	w.g.Expect(w.client.Update(context.Background(), cluster)).To(Succeed())
	w.untilState(infrav1.HostStateProvisioned)
}

func TestAddonImagesOfFurtherVersionsAreBroughtAndARetryHasAnotherPlan(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	quoinMachine.Spec.AddonVersions = []string{"v1.35.4", "v1.36.3"}
	w.g.Expect(w.client.Update(context.Background(), quoinMachine)).To(Succeed())
	w.room.script["addons-v1.36.3"] = []run.Status{{Phase: run.Failed, Message: "step 1 of 2 failed: no space left"}}
	failed := w.untilReason(infrav1.HostAddonImagesCondition, infrav1.HostStepFailedReason)
	w.g.Expect(failed.Message).To(ContainSubstring("no space left"))
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Status).To(Equal(metav1.ConditionTrue),
		"the node serves all the same")
	w.until("images", func(h *infrav1.QuoinHost) bool { return len(h.Status.AddonVersions) == 2 })
	w.g.Expect(w.room.plans).To(HaveKey("addons-v1.36.3-2"))
	w.untilReason(infrav1.HostAddonImagesCondition, infrav1.MachineImagesPresentReason)
	w.g.Expect(w.room.count("provision")).To(Equal(1))
}

// A command of the bootstrap data may never end. A Machine that leaves does not wait for it: what runs is stopped as
// soon as nothing keeps the Machine from being drained, so that nothing of it adds a member to etcd any more.
func TestABootstrapThatHangsIsStoppedWhenItsMachineLeaves(t *testing.T) {
	w := claimedWorld(t, true)
	w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "runcmd-0", Message: "step 3 of 5"}}
	w.untilState(infrav1.HostStateProvisioning)
	machine := machineOf(w)
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, controlplanev1.PreDrainHookAnnotation, "")
	w.g.Expect(w.client.Update(t.Context(), machine)).To(Succeed())
	w.linger(5)
	w.g.Expect(w.client.Delete(t.Context(), machine)).To(Succeed())
	w.linger(5)
	w.g.Expect(w.room.count("stop")).To(BeZero(), "its departure was not agreed to")

	w.update(func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{Reason: "cables"} })
	machine = machineOf(w)
	delete(machine.Annotations, controlplanev1.PreDrainHookAnnotation)
	w.g.Expect(w.client.Update(t.Context(), machine)).To(Succeed())
	waits := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostMaintenanceReason)
	w.g.Expect(waits.Message).To(ContainSubstring("the end of the bootstrap of Machine m1"))
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Maintenance = nil })

	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapInterruptedReason)
	w.g.Expect(w.host().Status.Operation.Final()).To(BeTrue())
	w.restart()
	w.linger(5)
	w.g.Expect(w.room.count("stop")).To(Equal(1))
	w.g.Expect(w.host().Status.LastFailure).To(BeNil(), "it was ordered, and is no failure of the host")
}

// Cluster API never waits for hooks before the drain of a Machine without a Node, nor does anybody take them off: those
// of others keep no bootstrap from being stopped. Once there is a Node they do, because Cluster API waits for them.
func TestABootstrapThatHangsIsStoppedBesideAHookOfOthers(t *testing.T) {
	w := claimedWorld(t, true)
	w.room.script[provisionPlanID] = []run.Status{{Phase: run.Running, Step: "runcmd-0", Message: "step 3 of 5"}}
	w.untilState(infrav1.HostStateProvisioning)
	w.linger(5)
	node := func(name string) {
		machine := machineOf(w)
		machine.Status.NodeRef.Name = name
		w.g.Expect(w.client.Status().Update(t.Context(), machine)).To(Succeed())
	}
	node("node-1")
	w.editMachine(func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{controlplanev1.PreDrainHookAnnotation: "",
			clusterv1.PreDrainDeleteHookAnnotationPrefix + "/MigrateImportantApp": "my-app-migration-controller"}
	})
	w.g.Expect(w.client.Delete(t.Context(), machineOf(w))).To(Succeed())
	w.editMachine(func(m *clusterv1.Machine) { delete(m.Annotations, controlplanev1.PreDrainHookAnnotation) })
	w.linger(5)
	w.g.Expect(w.room.count("stop")).To(BeZero(), "Cluster API waits for the hook")
	node("")
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapInterruptedReason)
	w.g.Expect(w.room.count("stop")).To(Equal(1))
	w.g.Expect(w.host().Status.LastFailure).To(BeNil(), "it was ordered, and is no failure of the host")
}

func deleteMachine(w *world) {
	w.t.Helper()
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	w.g.Expect(w.client.Delete(context.Background(), quoinMachine)).To(Succeed())
	machine := &clusterv1.Machine{}
	w.object(machine, "m1")
	w.g.Expect(w.client.Delete(context.Background(), machine)).To(Succeed())
}

// loseConsumer takes the QuoinMachine away without its deletion being seen.
func loseConsumer(w *world) {
	w.t.Helper()
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	quoinMachine := &infrav1.QuoinMachine{}
	w.object(quoinMachine, "qm1")
	w.g.Expect(w.client.Delete(context.Background(), quoinMachine)).To(Succeed())
}

func finish(w *world, o client.Object, name string) {
	w.t.Helper()
	w.object(o, name)
	o.SetFinalizers(nil)
	w.g.Expect(w.client.Update(context.Background(), o)).To(Succeed())
}

func TestAHostIsFreeOnlyAfterAVerifiedResetAndTheEndOfItsMachine(t *testing.T) {
	w := claimedWorld(t, true)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	host := w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(host.Status.State).To(Equal(infrav1.HostStateCleaning))
	w.g.Expect(w.room.clean.ID).To(Equal("reset-0123abcd"))
	w.g.Expect(w.room.clean.VirtualAddresses).To(HaveLen(1))
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "the QuoinMachine is still there")

	finish(w, &infrav1.QuoinMachine{}, "qm1")
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "the Node goes with the Machine")
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring("Machine team/m1"))

	finish(w, &clusterv1.Machine{}, "m1")
	host = w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(host.Spec.ConsumerRef).To(BeNil())
	w.g.Expect(host.Status.Version).To(BeEmpty())
	w.g.Expect(host.Status.AddonVersions).To(BeEmpty())
	w.g.Expect(condition1(host, infrav1.HostProvisionedCondition).Reason).To(Equal(infrav1.HostNotClaimedReason))
	w.g.Expect(w.room.count("clean")).To(Equal(1))
}

func TestAManagerKilledDuringAResetContinues(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	deleteMachine(w)
	w.until("reset started", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
	w.restart()
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
}

func TestAMachineDeletedBeforeAnythingRanStillGoesThroughAReset(t *testing.T) {
	w := claimedWorld(t, false)
	w.setDataSecretName(nil)
	w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostWaitingForBootstrapDataReason)
	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
	w.g.Expect(w.room.count("provision")).To(BeZero())
}

func TestAHostThatIsNotCleanIsQuarantinedAndItsMachineWaits(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.findings = []reset.Finding{{What: "process etcd runs (pid 123)", Fix: "kill it"}}
	deleteMachine(w)
	w.untilState(infrav1.HostStateQuarantined)
	w.reconcile()
	host := w.host()
	message := condition1(host, infrav1.HostReadyCondition).Message
	w.g.Expect(message).To(And(ContainSubstring("process etcd runs (pid 123) (kill it)"),
		ContainSubstring(infrav1.RetryAnnotation)))
	w.g.Expect(host.Released()).To(BeFalse())
	w.g.Expect(w.room.count("verify")).To(Equal(maxVerifications))
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
	w.g.Expect(w.room.count("verify")).To(Equal(maxVerifications))

	w.room.set(func() { w.room.findings = nil })
	w.annotate(infrav1.RetryAnnotation, "")
	host = w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(host.Status.Operation.ID).To(Equal("reset-0123abcd-2"), "a plan that ended never runs again under its ID")
}

func TestAResetThatFailsIsTriedAFewTimesAndThenAPersonIsAsked(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	for _, id := range []string{"reset-0123abcd", "reset-0123abcd-2", "reset-0123abcd-3"} {
		w.room.script[id] = []run.Status{{Phase: run.Failed, Message: "step 2 of 9, unmount, failed with code 1: busy"}}
	}
	deleteMachine(w)
	host := w.untilState(infrav1.HostStateQuarantined)
	w.g.Expect(condition1(host, infrav1.HostCleanCondition).Message).To(
		ContainSubstring("unmount, failed with code 1: busy"))
	w.g.Expect(w.room.count("clean")).To(Equal(maxResets))
}

func TestAHostThatCannotBeReachedKeepsItsMachineWaiting(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("no route to host")}
	})
	deleteMachine(w)
	w.untilReason(infrav1.HostReachableCondition, infrav1.HostUnreachableReason)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateCleaning))
	w.g.Expect(w.host().Released()).To(BeFalse())
	w.room.set(func() { w.room.err = nil })
	w.until("clean", (*infrav1.QuoinHost).Released)
}

func TestAMissingConsumerIsNeverTakenForADeletedOne(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	loseConsumer(w)
	w.untilReason(infrav1.HostReadyCondition, infrav1.HostConsumerMissingReason)
	w.linger(5)
	w.g.Expect(w.room.count("clean")).To(BeZero(), "the objects may be on their way from another management plane")
	confirmReset(w)
	w.until("reset at a person's word", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
}

func TestAConsumerThatArrivesLaterEndsTheWait(t *testing.T) {
	for name, end := range map[string]run.Status{
		infrav1.HostProvisionedReason: {Phase: run.Succeeded, Message: "all 5 steps are done"},
		infrav1.HostStepFailedReason:  {Phase: run.Failed, Message: "step 3 of 5 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.room.script[provisionPlanID] = []run.Status{end}
			w.untilReason(infrav1.HostProvisionedCondition, name)
			w.linger(2)
			loseConsumer(w)
			w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostConsumerMissingReason)
			_, _, _, back, _ := consumer(false)
			w.create(back)
			w.untilReason(infrav1.HostProvisionedCondition, name)
			w.g.Expect(w.room.count("provision")).To(Equal(1))
		})
	}
}

func TestADeletionDoesNotWaitForTheDistanceOfAFailedStart(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.errs["provision"] = &ArtifactsError{Place: "/opt/bundles/v1.35.4", Err: errors.New("no manifest.json")}
	w.until("distant", func(h *infrav1.QuoinHost) bool { return ptr.Deref(h.Status.Failures, 0) >= 5 })
	at := w.now
	deleteMachine(w)
	w.until("reset", func(*infrav1.QuoinHost) bool { return w.room.count("clean") == 1 })
	w.g.Expect(w.now.Sub(at)).To(BeNumerically("<", 5*time.Second))
}

func TestAnOwnerRecordOfAnotherOwnerStopsTheClaim(t *testing.T) {
	w := claimedWorld(t, false)
	w.room.errs["provision"] = &owner.HeldError{Holder: owner.Record{Namespace: "other", Machine: "m9", UID: "99999999"}}
	found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostOwnedByOtherReason)
	w.g.Expect(found.Message).To(ContainSubstring("other/m9"))
}

func TestAClaimedHostThatIsDeletedWaitsForItsMachineAndSaysSo(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.client.Delete(context.Background(), w.host())).To(Succeed())
	w.linger(3)
	ready := condition1(w.host(), infrav1.HostReadyCondition)
	w.g.Expect(ready.Reason).To(Equal("Deleting"))
	w.g.Expect(ready.Message).To(And(ContainSubstring("claimed by QuoinMachine team/qm1"),
		ContainSubstring("delete Machine m1")))
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
}

func TestAClaimRemovedByHandEndsInInspection(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { w.room.facts.KubernetesPresent = []string{"/etc/kubernetes is not empty"} })
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil })
	w.untilState(infrav1.HostStateQuarantined)
}

// A reinstalled host, or one whose /var/lib/quoin was wiped, knows nothing of the plan.
func TestABootstrapWhoseJournalTheHostLostIsNeverStartedAgain(t *testing.T) {
	running := run.Status{Phase: run.Running, Step: "kubeadm-join", Message: "step 3 of 5"}
	for name, c := range map[string]struct {
		until func(*infrav1.QuoinHost) bool
		then  func(*world)
	}{
		"while it runs": {
			func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && h.Status.Operation.Step == running.Step
			},
			func(*world) {},
		},
		"when it was a node and the status is lost, by the QuoinMachine": {
			func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && h.Status.Operation.Step == running.Step
			},
			func(w *world) {
				quoinMachine := &infrav1.QuoinMachine{}
				w.object(quoinMachine, "qm1")
				quoinMachine.Status.Initialization.Provisioned = ptr.To(true)
				w.g.Expect(w.client.Status().Update(context.Background(), quoinMachine)).To(Succeed())
				w.forgetStatus()
			},
		},
		"when it was a node and every status is lost, by the Machine": {
			func(h *infrav1.QuoinHost) bool {
				return h.Status.Operation != nil && h.Status.Operation.Step == running.Step
			},
			func(w *world) {
				machine := &clusterv1.Machine{}
				w.object(machine, "m1")
				machine.Spec.ProviderID = "quoin://hosts/h1/0123abcd"
				w.g.Expect(w.client.Update(context.Background(), machine)).To(Succeed())
				w.forgetStatus()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.room.script[provisionPlanID] = []run.Status{running}
			w.until("running", c.until)
			w.room.set(func() { delete(w.room.plans, provisionPlanID) })
			c.then(w)
			found := w.untilReason(infrav1.HostProvisionedCondition, infrav1.HostBootstrapInterruptedReason)
			w.g.Expect(found.Message).To(And(ContainSubstring("the host lost its journal"),
				ContainSubstring("Machine must be replaced")))
			w.restart()
			w.linger(5)
			w.g.Expect(w.room.count("provision")).To(Equal(1))
			w.g.Expect(w.room.count("clean")).To(BeZero(), "only a deletion resets it")
		})
	}
}

func TestANodeWhoseJournalTheHostLostStaysANode(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() { delete(w.room.plans, provisionPlanID) })
	w.restart()
	w.linger(10)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateProvisioned))
	w.g.Expect(w.room.count("provision")).To(Equal(1))
	w.g.Expect(w.room.count("clean")).To(BeZero())
}

func TestAPlanThatIsOnTheHostButNotStartedIsNotALostJournal(t *testing.T) {
	g := NewWithT(t)
	g.Expect(lostJournal(run.Running, run.Status{Phase: run.NotStarted, Lost: true})).To(BeFalse(),
		"the host rebooted between upload and start")
	g.Expect(lostJournal(run.NotStarted, run.Status{Phase: run.NotStarted})).To(BeFalse())
	g.Expect(lostJournal(run.Failed, run.Status{Phase: run.NotStarted})).To(BeTrue())
	g.Expect(lostJournal(run.Running, run.Status{Phase: run.Running})).To(BeFalse())
}

func TestWhatIsGoneAMomentAfterTheResetDoesNotQuarantineTheHost(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.findings = []reset.Finding{{What: "process etcd runs (pid 123)", Fix: "kill it"}}
	deleteMachine(w)
	looks := func(n int32) func(*infrav1.QuoinHost) bool {
		return func(h *infrav1.QuoinHost) bool {
			return h.Status.Operation != nil && ptr.Deref(h.Status.Operation.Verifications, 0) == n
		}
	}
	w.until("looked at once", looks(1))
	at := w.now
	host := w.until("looked at twice", looks(2))
	clean := condition1(host, infrav1.HostCleanCondition)
	w.g.Expect(clean.Reason).To(Equal(infrav1.HostCleaningReason))
	w.g.Expect(clean.Message).To(And(ContainSubstring("process etcd runs"), ContainSubstring("looking again (2 of 4)")))
	w.g.Expect(w.now.Sub(at)).To(BeNumerically("~", 10*time.Second, time.Second), "twice the first distance")
	w.restart()
	w.until("looked at for the third time", looks(3))
	w.room.set(func() { w.room.findings = nil })
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
	w.g.Expect(w.room.count("verify")).To(Equal(4))
}

func TestAnExchangeThatFailsIsNoStepThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		reachable bool
	}{
		"the API server hiccups": {errors.New("reading credentials Secret hosts/ssh: the server is currently unable to " +
			"handle the request"), false},
		"no space for the upload": {fmt.Errorf("uploading the plan: %w",
			&ssh.ExitError{Code: 1, Stderr: "No space left on device"}), true},
		"a finding about the host": {&LacksError{What: "keepalived", Why: "..."}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, true)
			w.untilState(infrav1.HostStateProvisioning)
			host := w.host()
			condition1(host, infrav1.HostReachableCondition).Status = metav1.ConditionFalse
			w.g.Expect(w.client.Status().Update(context.Background(), host)).To(Succeed())
			w.room.set(func() { w.room.err = c.err })
			w.until("failed", func(h *infrav1.QuoinHost) bool { return ptr.Deref(h.Status.Failures, 0) > 0 })
			host = w.host()
			w.g.Expect(condition1(host, infrav1.HostProvisionedCondition).Reason).NotTo(Equal(infrav1.HostStepFailedReason),
				"that would end the Machine")
			w.g.Expect(condition1(host, infrav1.HostReachableCondition).Status == metav1.ConditionTrue).To(Equal(c.reachable))
			w.room.set(func() { w.room.err = nil })
			w.untilState(infrav1.HostStateProvisioned)
		})
	}
}

func TestWhatKeepsAHostFromBeingRegisteredIsShown(t *testing.T) {
	w := newWorld(t, newHost())
	w.room.err = errors.New("reading credentials Secret hosts/ssh: the server is currently unable to handle the request")
	ready := w.untilReason(infrav1.HostReadyCondition, infrav1.HostOperationFailedReason)
	w.g.Expect(ready.Message).To(ContainSubstring("the server is currently unable"))
}

func TestABootstrapSecretThatCannotBeReadNowIsReadLater(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioning)
	w.r.APIReader = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, ok := o.(*corev1.Secret); ok {
				return apierrors.NewServiceUnavailable("etcd has no leader")
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	_, err := w.r.Reconcile(context.Background(), request(w))
	w.g.Expect(err).To(MatchError(ContainSubstring("etcd has no leader")), "the queue tries it again")
	found := condition1(w.host(), infrav1.HostProvisionedCondition)
	w.g.Expect(found.Reason).To(Equal(infrav1.HostOperationFailedReason))
	w.g.Expect(found.Message).NotTo(ContainSubstring("replace the Machine"))
	w.r.APIReader = w.client
	w.untilState(infrav1.HostStateProvisioned)
}

func TestTemplatesMayAskForThePrimaryNodeAddressOfEitherFamily(t *testing.T) {
	for _, addresses := range [][]string{{"10.0.0.11", "fd00::11"}, {"fd00::11", "10.0.0.11"}, {"fd00::11"}} {
		h := newHost()
		h.Status.Facts = &infrav1.HostFacts{Hostname: "h1", NodeAddresses: addresses}
		variables := instanceData(h, "quoin://hosts/h1/0123abcd")
		NewWithT(t).Expect(variables).To(And(HaveKeyWithValue("ds.meta_data.node_ip", addresses[0]),
			HaveKeyWithValue("v1.node_ip", addresses[0])))
	}
}

func TestAHostThatNeverAnswersAgainIsAbandonedAtAPersonsWord(t *testing.T) {
	w := claimedWorld(t, false)
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.err = &ssh.UnreachableError{Endpoint: "192.0.2.11:22", Err: errors.New("no route to host")}
	})
	deleteMachine(w)
	w.untilReason(infrav1.HostReachableCondition, infrav1.HostUnreachableReason)
	w.g.Expect(condition1(w.host(), infrav1.HostReadyCondition).Message).To(ContainSubstring("annotate quoinhost h1 " +
		infrav1.AbandonAnnotation + "=quoin://hosts/h1/0123abcd"))

	w.annotate(infrav1.AbandonAnnotation, w.host().ProviderID())
	host := w.until("abandoned", (*infrav1.QuoinHost).Abandoned)
	w.g.Expect(host.Annotations).NotTo(HaveKey(infrav1.AbandonAnnotation))
	w.g.Expect(condition1(host, infrav1.HostReadyCondition).Message).To(ContainSubstring("gone or will be wiped"))
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil(), "the Node goes with the Machine")
	finish(w, &infrav1.QuoinMachine{}, "qm1")
	w.linger(3)
	w.g.Expect(w.host().Spec.ConsumerRef).NotTo(BeNil())
	finish(w, &clusterv1.Machine{}, "m1")
	w.until("without a claim", func(h *infrav1.QuoinHost) bool { return h.Spec.ConsumerRef == nil })
	w.linger(3)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined))
	w.g.Expect(w.host().Abandoned()).To(BeTrue())
	w.g.Expect(w.room.count("clean")).To(BeZero())

	w.room.set(func() { w.room.err = nil })
	w.linger(3)
	w.g.Expect(w.host().Status.State).To(Equal(infrav1.HostStateQuarantined), "that it answers proves nothing")
	w.annotate(infrav1.RetryAnnotation, "")
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.room.count("clean")).To(Equal(1))
	w.g.Expect(w.room.count("verify")).To(Equal(1))
}
