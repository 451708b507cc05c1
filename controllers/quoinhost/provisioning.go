// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/cloudinit"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/keepalived"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/run"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/suitability"
)

// defaultAPIServerPort is what kubeadm uses.
const defaultAPIServerPort = 6443

// factsLast is how old facts may be when a host is about to become a node.
const factsLast = 5 * time.Minute

// claimed waits for bootstrap data. The journal on the host is asked first: after a move the status is empty, and the
// claim may long be a node.
func (t *turn) claimed() (result, error) {
	if t.host.Status.Facts == nil {
		return t.moveTo(infrav1.HostStateInspecting)
	}
	status, o := t.followProvisioning(infrav1.ProvisionOperation(t.host.Spec.ConsumerRef.Claim))
	if o.pending {
		return o.result, nil
	}
	if status.Phase != run.NotStarted {
		return t.moveTo(infrav1.HostStateProvisioning)
	}
	machine := t.claim.machine
	if machine == nil || t.claim.cluster == nil || t.claim.quoinMachine.Spec.ProviderID == "" ||
		ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "") == "" {
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostWaitingForBootstrapDataReason,
			fmt.Sprintf("waiting for the bootstrap data of Machine %s/%s", t.host.Spec.ConsumerRef.Namespace, t.host.Spec.ConsumerRef.Machine))
		return onEvent(), nil
	}
	return t.moveTo(infrav1.HostStateProvisioning)
}

// provisioning starts the plan of the claim, once, and follows it to its end.
func (t *turn) provisioning() (result, error) {
	id := infrav1.ProvisionOperation(t.host.Spec.ConsumerRef.Claim)
	status, o := t.followProvisioning(id)
	if o.pending {
		return o.result, nil
	}
	switch status.Phase {
	case run.NotStarted:
		return t.startProvisioning(id)
	case run.Succeeded:
		return t.becameNode()
	case run.Failed:
		return t.provisionEnded(infrav1.HostStepFailedReason, status, "the Machine must be replaced: delete it, and its host is reset")
	case run.Interrupted:
		return t.provisionEnded(infrav1.HostBootstrapInterruptedReason, status, "kubeadm is not run twice, so the Machine must be replaced: delete it, and its host is reset")
	}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
		fmt.Sprintf("%s on %s: %s", t.version(), t.host.Name, status.Message))
	return t.poll(id), nil
}

// followProvisioning follows the plan of the claim. When neither the host nor our status knows the plan, but the objects say
// that the claim was a node once, then the host lost its journal: kubeadm would run for the second time.
func (t *turn) followProvisioning(id string) (run.Status, outcome) {
	status, o := t.follow(id)
	if !o.pending && status.Phase == run.NotStarted && !status.Lost && t.wasNode() {
		status = run.Status{Phase: run.Interrupted, Message: journalLost}
		t.record(id, status)
	}
	return status, o
}

// wasNode says whether the claim was a node once. The Machine's provider ID, which core copies only from a provisioned
// QuoinMachine, says so even after a move, which drops every status.
func (t *turn) wasNode() bool {
	if m := t.claim.quoinMachine; m != nil && ptr.Deref(m.Status.Initialization.Provisioned, false) {
		return true
	}
	m := t.claim.machine
	return m != nil && (m.Status.NodeRef.IsDefined() || m.Spec.ProviderID != "" && m.Spec.ProviderID == t.host.ProviderID())
}

// provisionEnded shows why the bootstrap data will not run to its end. A phase that was only remembered has no message;
// the condition then says it already.
func (t *turn) provisionEnded(reason string, status run.Status, todo string) (result, error) {
	if status.Message == "" {
		if conditions.GetReason(t.host, infrav1.HostProvisionedCondition) == reason {
			return onEvent(), nil
		}
		t.r.pace.unmark(t.key(), "follow "+t.host.Status.Operation.ID)
		return after(0), nil
	}
	message := status.Message
	if status.Tail != "" {
		message += "\n" + lastLines(status.Tail, 12)
	}
	message += "\n" + todo
	if !t.isFalse(infrav1.HostProvisionedCondition, message) {
		t.event("Warning", reason, "%s", message)
		// Another attempt of the same pool tries other hosts first.
		t.host.Status.LastFailure = &infrav1.HostFailure{Time: metav1.Time{Time: t.now}, Pool: t.pool(), Reason: reason}
	}
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, message)
	return onEvent(), nil
}

// becameNode is the end of the way.
func (t *turn) becameNode() (result, error) {
	version := t.version()
	t.host.Status.Version = version
	t.holdsAddons(version)
	t.condition(infrav1.HostProvisionedCondition, metav1.ConditionTrue, infrav1.HostProvisionedReason, "")
	t.condition(infrav1.HostCleanCondition, metav1.ConditionFalse, infrav1.HostInUseReason, "the host belongs to a Machine")
	return t.moveTo(infrav1.HostStateProvisioned)
}

// startProvisioning hands the plan to the host. Whatever can be found wrong without the host is found before it is touched.
func (t *turn) startProvisioning(id string) (result, error) {
	refuse := func(reason, message string) (result, error) {
		if !t.isFalse(infrav1.HostProvisionedCondition, message) {
			t.event("Warning", reason, "%s", message)
		}
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, message)
		return t.tryLater(), nil
	}
	if wait := t.backOff(); wait > 0 {
		return after(wait), nil
	}
	if t.maintained("the installation of a node") {
		return t.probe()
	}
	machine := t.claim.machine
	if machine == nil || t.claim.cluster == nil || ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "") == "" {
		return t.moveTo(infrav1.HostStateClaimed)
	}
	if !machine.DeletionTimestamp.IsZero() || !t.claim.quoinMachine.DeletionTimestamp.IsZero() {
		// Hooks may hold the deletion for long, and a node that came up meanwhile would only have to go again.
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostMachineDeletingReason,
			fmt.Sprintf("Machine %s/%s is being deleted: its bootstrap data is not run any more", machine.Namespace, machine.Name))
		return onEvent(), nil
	}
	if t.isUnsuitable() {
		// Inspect again: whatever it lacked may be there by now.
		reason := infrav1.HostUnsuitableReason
		if offset := t.host.Status.Facts.ClockOffset; offset != nil && offset.Abs() > suitability.MaxClockOffset {
			reason = infrav1.HostClockOffsetReason
		}
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, reason, conditions.GetMessage(t.host, infrav1.HostInspectedCondition))
		return t.reinspect()
	}
	if read := t.host.Status.Facts.InspectedAt; read == nil || t.now.Sub(read.Time) > factsLast {
		// A host may have been free for months: its clock, and whatever else a join needs, is looked at anew.
		return t.reinspect()
	}
	if why, err := t.outranked(); err != nil || why != "" {
		if why != "" && !t.isFalse(infrav1.HostProvisionedCondition, why) {
			t.event("Warning", infrav1.HostDuplicateReason, "%s", why)
		}
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostDuplicateReason, why)
		if err != nil {
			return result{}, err
		}
		return t.reinspect()
	}
	order, err := t.provisionOrder(id)
	var invalid *bootstrapDataError
	var address *endpointError
	switch {
	case errors.As(err, &invalid):
		return refuse(infrav1.HostBootstrapDataInvalidReason, invalid.Error())
	case errors.As(err, &address):
		return refuse(infrav1.ClusterEndpointMissingReason, address.Error())
	case err != nil:
		// It passes by itself; until then a person sees what it is.
		t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostExchangeFailedReason, err.Error())
		return result{}, err
	}
	if o := t.push(id, infrav1.HostProvisionedCondition, PushOrder{order.Owner, order.Artifacts, order.Role}); o.pending {
		return o.result, nil
	}
	if o := start(t, id, func(ctx context.Context, host *infrav1.QuoinHost) error {
		return t.r.Exchanges.Provision(ctx, host, order)
	}); o.pending {
		if t.host.Status.NextAttempt == nil {
			t.condition(infrav1.HostProvisionedCondition, metav1.ConditionFalse, infrav1.HostStepRunningReason,
				fmt.Sprintf("handing %s and the bootstrap data to %s", order.Artifacts.Version, t.host.Name))
		}
		return o.result, nil
	}
	t.event("Normal", "BootstrapStarted", "installing %s and running the bootstrap data of Machine %s", order.Artifacts.Version, machine.Name)
	return t.started(id)
}

// start names the exchange that starts a plan. The status names the plan first: whoever finds the host paused, in this
// process or a later one, asks the host about the plan that the status names. Its order is written down before, too.
func start(t *turn, id string, fn func(context.Context, *infrav1.QuoinHost) error) outcome {
	if !t.given(id) {
		if o := t.askHeard(); o.pending {
			return o
		}
		t.orders = id
		return pending(after(time.Millisecond))
	}
	if t.noted != id {
		return pending(after(time.Millisecond))
	}
	o := order(t, "start "+id, longExchange, fn)
	if told := t.host.Spec.Order; !o.pending && told != nil {
		t.r.pace.mark(t.key(), heard(told.Given), t.now)
	}
	return o
}

// bootstrapDataError says that the bootstrap data cannot be carried out; the host was not touched.
type bootstrapDataError struct{ err error }

func (e *bootstrapDataError) Error() string {
	return e.err.Error() + "; the host was not touched. Correct the KubeadmConfig and replace the Machine"
}

// endpointError says that the virtual address cannot be made of the spec.
type endpointError struct{ text string }

func (e *endpointError) Error() string { return e.text }

// provisionOrder gathers what makes a node of the host, from the objects alone.
func (t *turn) provisionOrder(id string) (ProvisionOrder, error) {
	c, machine, facts := t.claim, t.claim.machine, t.host.Status.Facts
	order := ProvisionOrder{
		ID: id, Owner: t.ownerRecord(), Artifacts: t.artifacts(machine.Spec.Version), Role: artifacts.Worker,
		ProviderID: t.host.ProviderID(), NodeAddresses: facts.NodeAddresses,
	}
	for _, disk := range t.host.Spec.Disks {
		order.Disks = append(order.Disks, cloudinit.DiskRole{ID: disk.ID, Role: cloudinit.Role(disk.Role)})
	}
	data, err := t.r.bootstrapData(t.ctx, machine)
	if err != nil {
		return order, err
	}
	order.Bootstrap, err = cloudinit.Parse(data, instanceData(t.host, order.ProviderID))
	if err != nil {
		return order, &bootstrapDataError{fmt.Errorf("the bootstrap data of Machine %s/%s: %w", machine.Namespace, machine.Name, err)}
	}
	if !util.IsControlPlaneMachine(machine) {
		order.Artifacts, err = t.joining(order.Artifacts)
		return order, err
	}
	order.Role = artifacts.ControlPlane
	if c.quoinCluster == nil || c.quoinCluster.Spec.LoadBalancer.Type != infrav1.LoadBalancerKeepalived {
		return order, nil
	}
	if order.VirtualAddress, err = virtualAddress(c.quoinCluster, t.host); err != nil {
		return order, err
	}
	order.ClaimedByUs, err = t.r.peerProvisioned(t.ctx, c)
	return order, err
}

// virtualAddress is the host's part in the cluster's virtual address. It has the full prefix length: routes to the subnet
// come from the host's own address, and a virtual address must not attract the host's own traffic.
func virtualAddress(cluster *infrav1.QuoinCluster, host *infrav1.QuoinHost) (*keepalived.Config, error) {
	addresses := virtualAddressesOf(cluster)
	if len(addresses) == 0 || cluster.Spec.LoadBalancer.Keepalived == nil {
		return nil, &endpointError{fmt.Sprintf("QuoinCluster %s/%s has loadBalancer.type Keepalived, but its controlPlaneEndpoint.host is not an IP address; set one that is free",
			cluster.Namespace, cluster.Name)}
	}
	keepalivedSpec := cluster.Spec.LoadBalancer.Keepalived
	config := &keepalived.Config{
		Interface: keepalivedSpec.Interface, VirtualRouterID: int(keepalivedSpec.VirtualRouterID),
		Addresses: addresses, Port: portOf(cluster),
	}
	if config.Interface == "" {
		config.Interface = host.Spec.NodeNetwork.Interface
	}
	if config.Interface == "" {
		config.Interface = host.Status.Facts.DefaultInterface
	}
	return config, nil
}

func virtualAddressesOf(cluster *infrav1.QuoinCluster) []netip.Prefix {
	if cluster == nil || cluster.Spec.LoadBalancer.Type != infrav1.LoadBalancerKeepalived {
		return nil
	}
	address, err := netip.ParseAddr(cluster.Spec.ControlPlaneEndpoint.Host)
	if err != nil {
		return nil
	}
	return []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
}

func portOf(cluster *infrav1.QuoinCluster) int {
	if cluster == nil || cluster.Spec.ControlPlaneEndpoint.Port == 0 {
		return defaultAPIServerPort
	}
	return int(cluster.Spec.ControlPlaneEndpoint.Port)
}

// instanceData is what cloud-init's templates may ask for, under the names that users of other providers know.
func instanceData(host *infrav1.QuoinHost, providerID string) cloudinit.Variables {
	facts := host.Status.Facts
	variables := cloudinit.InstanceData(facts.Hostname, providerID, host.Spec.FailureDomain)
	if len(facts.NodeAddresses) > 0 {
		// One name for either family: a template need not know which one the cluster has.
		variables["ds.meta_data.node_ip"], variables["v1.node_ip"] = facts.NodeAddresses[0], facts.NodeAddresses[0]
	}
	for _, text := range facts.NodeAddresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		name := "local_ipv4"
		if address.Is6() {
			name = "local_ipv6"
		}
		variables["ds.meta_data."+name] = text
		variables["v1."+name] = text
	}
	return variables
}

func (t *turn) version() string {
	if t.claim.machine == nil {
		return t.host.Status.Version
	}
	return t.claim.machine.Spec.Version
}

// virtualAddresses of the claim's cluster, for hosts of its control plane.
func (t *turn) virtualAddresses() []netip.Prefix {
	if t.claim.machine != nil && !util.IsControlPlaneMachine(t.claim.machine) {
		return nil
	}
	return virtualAddressesOf(t.claim.quoinCluster)
}

// reinspect reads the facts of a claimed host again.
func (t *turn) reinspect() (result, error) {
	if wait := t.r.pace.remaining(t.key(), "inspect", time.Minute, t.now); wait > 0 {
		return after(wait), nil
	}
	return t.moveTo(infrav1.HostStateInspecting)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
