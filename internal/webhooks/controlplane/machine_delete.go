// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/collections"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/placement"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/quorum"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/observed"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/webhooks"
)

const machineDeletionPath = "/validate-deletion-cluster-x-k8s-io-v1beta2-machine"

// The webhook is called for no other Machines than those of config/control-plane-quoin/match_conditions.yaml.
//
// +kubebuilder:webhook:verbs=delete,path=/validate-deletion-cluster-x-k8s-io-v1beta2-machine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=cluster.x-k8s.io,resources=machines,versions=v1beta2,name=deletion.machine.controlplane.quoin.cluster.x-k8s.io,sideEffects=NoneOnDryRun,timeoutSeconds=10,admissionReviewVersions=v1
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachines,verbs=list
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// MachineDeletionWebhook refuses to delete a Machine of a QuoinControlPlane when the members of etcd that would then be
// on their way out are too many. It judges by what the control plane last read of etcd and by the Machines as they are,
// and connects to no host. The cluster itself is asked for one thing: how its kubelets are configured, where the only
// voter's replacement would have a host with cgroup v1.
//
// Two deletions at the same moment may each be judged without the other. That is no danger: the hooks on the Machines
// and the QuoinMachines' lifecycle hooks let one member go at a time, and none that etcd needs. What this webhook adds
// is that a person hears No before anything has begun, since a deletion cannot be taken back.
type MachineDeletionWebhook struct {
	// Reader reads Machines, QuoinMachines, their template, control plane, Cluster and Namespace as they are: no cache.
	Reader client.Reader
	// Hosts reads QuoinHosts, of which there may be thousands: a cache.
	Hosts client.Reader
	// Workload reads a workload cluster; nothing in it is read when it is nil.
	Workload webhooks.Workload
	// Recorder of the deletions that were let through although etcd does not survive them.
	Recorder events.EventRecorder

	now     func() time.Time
	decoder admission.Decoder
}

func (w *MachineDeletionWebhook) setup(mgr ctrl.Manager) error {
	w.decoder = admission.NewDecoder(mgr.GetScheme())
	w.now = time.Now
	if w.Recorder == nil {
		w.Recorder = mgr.GetEventRecorder("quoincontrolplane-admission")
	}
	mgr.GetWebhookServer().Register(machineDeletionPath, &admission.Webhook{Handler: w})
	return nil
}

// Handle answers a DELETE. A DELETECOLLECTION comes here as one DELETE for each of its objects, without their names in
// the request.
func (w *MachineDeletionWebhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	machine := &clusterv1.Machine{}
	if err := w.decoder.DecodeRaw(request.OldObject, machine); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the Machine: %w", err))
	}
	departure, err := w.observe(ctx, machine)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError,
			fmt.Errorf("see what etcd is left with without Machine %s: %w", client.ObjectKeyFromObject(machine), err))
	}
	if departure.free != "" {
		return admission.Allowed(departure.free)
	}
	if departure.paused {
		return admission.Denied(departure.lost())
	}
	verdict := departure.judge()
	if verdict.Allowed {
		response := admission.Allowed(verdict.Reason)
		if verdict.Message != "" {
			response = response.WithWarnings(verdict.Message)
		}
		return response
	}
	reason, overridden := machine.Annotations[controlplanev1.AllowQuorumLossAnnotation]
	if !overridden || strings.TrimSpace(reason) == "" {
		return admission.Denied(departure.refusal(verdict, overridden))
	}
	return w.override(request, departure, verdict, reason)
}

// override lets a refused deletion through, and tells everybody: who asked, who audits, and who looks at the control
// plane.
func (w *MachineDeletionWebhook) override(
	request admission.Request, departure *departure, verdict quorum.Verdict, reason string,
) admission.Response {
	if !ptr.Deref(request.DryRun, false) {
		w.Recorder.Eventf(departure.controlPlane, departure.machine, corev1.EventTypeWarning,
			controlplanev1.QuorumLossAllowedReason, "DeleteMachine",
			"%s deletes Machine %s although %s Its annotation %s says: %s", request.UserInfo.Username,
			departure.machine.Name, fullStop(verdict.Message), controlplanev1.AllowQuorumLossAnnotation, reason)
	}
	response := admission.Allowed(verdict.Reason).WithWarnings(
		fmt.Sprintf("annotation %s lets Machine %s go; its hooks still keep its host until etcd can do without it",
			controlplanev1.AllowQuorumLossAnnotation, departure.machine.Name))
	response.AuditAnnotations = map[string]string{
		"allow-quorum-loss": reason,
		"verdict":           verdict.Reason + ": " + verdict.Message,
	}
	return response
}

// fullStop ends a text with one full stop.
func fullStop(text string) string { return strings.TrimRight(strings.TrimSpace(text), ".") + "." }

// observe reads what the verdict on a Machine's departure rests on. It stops as soon as nothing is left to judge.
func (w *MachineDeletionWebhook) observe(ctx context.Context, machine *clusterv1.Machine) (*departure, error) {
	d := &departure{machine: machine}
	if !machine.DeletionTimestamp.IsZero() {
		d.free = "it is being deleted already"
		return d, nil
	}
	if _, moved := machine.Annotations[clusterctlv1.DeleteForMoveAnnotation]; moved {
		d.free = "it lives on in another management cluster"
		return d, nil
	}
	owner := metav1.GetControllerOfNoCopy(machine)
	if owner == nil || owner.Kind != "QuoinControlPlane" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).
		Group != controlplanev1.GroupVersion.Group {
		d.free = "it is of no QuoinControlPlane"
		return d, nil
	}
	cluster, controlPlane := &clusterv1.Cluster{}, &controlplanev1.QuoinControlPlane{}
	var err error
	if d.free, err = w.ending(ctx, machine, owner.Name, cluster, controlPlane); err != nil || d.free != "" {
		return d, err
	}
	d.controlPlane = controlPlane
	if d.paused = ptr.Deref(cluster.Spec.Paused, false); d.paused {
		return d, nil
	}
	if d.machines, err = collections.GetControlPlaneMachinesForCluster(ctx, w.Reader, cluster); err != nil {
		return nil, fmt.Errorf("list the control-plane Machines: %w", err)
	}
	d.stacked = !controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined()
	d.membership = membershipOf(controlPlane, d.machines, w.now())
	if d.holdsNothing() {
		d.free = "it has no Node and no member of etcd"
		return d, nil
	}
	if d.holdsOnlyVote() {
		if d.replaceable, err = w.replaceable(ctx, d); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// ending reads what the Machine belongs to, and says what of that goes anyway; empty when nothing does.
func (w *MachineDeletionWebhook) ending(
	ctx context.Context, machine *clusterv1.Machine, owner string, cluster *clusterv1.Cluster,
	controlPlane *controlplanev1.QuoinControlPlane,
) (string, error) {
	// By name, whatever the UID in the reference: after a restore from a backup the garbage collector takes the Machines
	// of a living control plane for orphans.
	for _, above := range []struct {
		kind   string
		key    client.ObjectKey
		object client.Object
	}{
		{"Namespace", client.ObjectKey{Name: machine.Namespace}, &corev1.Namespace{}},
		{"Cluster", client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster},
		{"QuoinControlPlane", client.ObjectKey{Namespace: machine.Namespace, Name: owner}, controlPlane},
	} {
		err := w.Reader.Get(ctx, above.key, above.object)
		switch {
		case apierrors.IsNotFound(err):
			return above.kind + " " + above.key.Name + " is gone", nil
		case err != nil:
			return "", fmt.Errorf("read %s %s: %w", above.kind, above.key.Name, err)
		case !above.object.GetDeletionTimestamp().IsZero():
			return above.kind + " " + above.key.Name + " is being deleted", nil
		}
	}
	return "", nil
}

// replaceable reports whether a replacement can be made, or is being made, while the Machine is still there.
func (w *MachineDeletionWebhook) replaceable(ctx context.Context, d *departure) (bool, error) {
	if len(d.staying()) > 0 {
		return true, nil
	}
	template := &infrav1.QuoinMachineTemplate{}
	key := client.ObjectKey{Namespace: d.controlPlane.Namespace,
		Name: d.controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef.Name}
	if err := w.Reader.Get(ctx, key, template); apierrors.IsNotFound(err) {
		// Nothing is made from it: a refusal, which names the template and can be overridden, and no failure.
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read QuoinMachineTemplate %s: %w", key.Name, err)
	}
	request := placement.Request{Namespace: d.controlPlane.Namespace, Version: d.controlPlane.Spec.Version,
		HostNamespaces: template.Spec.Template.Spec.HostNamespaces}
	if wanted := template.Spec.Template.Spec.HostSelector; wanted != nil {
		selector, err := metav1.LabelSelectorAsSelector(wanted)
		if err != nil {
			// It selects no host.
			return false, nil //nolint:nilerr // a refusal, and no failure
		}
		request.Selector = selector
	}
	hosts := &infrav1.QuoinHostList{}
	err := w.Hosts.List(ctx, hosts)
	if err != nil {
		return false, fmt.Errorf("list QuoinHosts: %w", err)
	}
	machines := &infrav1.QuoinMachineList{}
	err = w.Reader.List(ctx, machines, client.InNamespace(d.controlPlane.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: d.machine.Spec.ClusterName})
	if err != nil {
		return false, fmt.Errorf("list the QuoinMachines of Cluster %s: %w", d.machine.Spec.ClusterName, err)
	}
	request.Taken = placement.Taken(hosts.Items, machines.Items)
	request.FailCgroupV1, err = w.failsOnCgroupV1(ctx, d.controlPlane, d.machine.Spec.ClusterName, hosts.Items)
	if err != nil {
		return false, err
	}
	for i := range hosts.Items {
		if placement.Select(request, []placement.Host{placement.HostOf(&hosts.Items[i])}).Chosen != nil {
			return true, nil
		}
	}
	return false, nil
}

// failsOnCgroupV1 reports whether the kubelet of a replacement would not start on those of the hosts that have cgroup
// v1 (R20), as the control plane and the QuoinMachine ask when they count and claim hosts.
func (w *MachineDeletionWebhook) failsOnCgroupV1(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, cluster string, hosts []infrav1.QuoinHost,
) (bool, error) {
	spec := &controlPlane.Spec
	return observed.FailsOnCgroupV1(hosts, spec.Version, func() ([]byte, error) {
		return observed.KubeletSettings(ctx, w.Reader, controlPlane.Namespace, &spec.KubeadmConfigSpec, true)
	}, func() bool {
		return w.Workload.FailsOnCgroupV1(ctx, client.ObjectKey{Namespace: controlPlane.Namespace, Name: cluster})
	})
}
