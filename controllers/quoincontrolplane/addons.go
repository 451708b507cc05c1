// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	kubeadmpkg "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/observe"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// mostAddonVersions is what a QuoinMachine's spec may list.
const mostAddonVersions = 8

// requestAddons asks hosts to get the images of the step's version.
func (r *Reconciler) requestAddons(ctx context.Context, o *observe.Observation, step controlplane.Step) error {
	var failures []error
	for i := range o.ClusterQuoinMachines {
		infra := &o.ClusterQuoinMachines[i]
		if !slices.Contains(step.Hosts, infra.Name) {
			continue
		}
		changed := infra.DeepCopy()
		changed.Spec.AddonVersions = withVersion(infra.Spec.AddonVersions, step.Version)
		if err := r.Client.Patch(ctx, changed, client.MergeFrom(infra)); err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("asking for add-on images on QuoinMachine %s: %w", infra.Name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// addRunningAddons makes a new machine's host hold the images that CoreDNS and kube-proxy have now: they keep them
// until every API server is of the new version, and the bundle of a new version does not have them.
func addRunningAddons(o *observe.Observation, infra *unstructured.Unstructured) error {
	running := o.Workload.AddonsVersion
	if running == "" || running == o.ControlPlane.Spec.Version {
		return nil
	}
	versions, _, err := unstructured.NestedStringSlice(infra.Object, "spec", "addonVersions")
	if err != nil {
		return err
	}
	return unstructured.SetNestedStringSlice(infra.Object, withVersion(versions, running), "spec", "addonVersions")
}

// withVersion adds a version, and forgets the oldest when there are too many.
func withVersion(versions []string, added string) []string {
	versions = append(slices.Clone(versions), added)
	slices.SortFunc(versions, func(a, b string) int {
		switch {
		case skew.Older(a, b):
			return -1
		case skew.Older(b, a):
			return 1
		}
		return 0
	})
	versions = slices.Compact(versions)
	if len(versions) > mostAddonVersions {
		versions = versions[len(versions)-mostAddonVersions:]
	}
	return versions
}

// kubeadmControlPlane is a KubeadmControlPlane with what Cluster API's functions on workload clusters read of one.
func kubeadmControlPlane(controlPlane *controlplanev1.QuoinControlPlane, dnsTag string) *kcpv1.KubeadmControlPlane {
	synthetic := &kcpv1.KubeadmControlPlane{
		// Its annotations that leave CoreDNS and kube-proxy alone are honored on ours.
		ObjectMeta: metav1.ObjectMeta{Name: controlPlane.Name, Namespace: controlPlane.Namespace,
			Annotations: maps.Clone(controlPlane.Annotations)},
		Spec: kcpv1.KubeadmControlPlaneSpec{
			Version:           controlPlane.Spec.Version,
			KubeadmConfigSpec: *controlPlane.Spec.KubeadmConfigSpec.DeepCopy(),
		},
	}
	if dnsTag != "" {
		synthetic.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = dnsTag
	}
	return synthetic
}

func workloadFunctions(workload client.Client) *kubeadmpkg.Workload {
	return &kubeadmpkg.Workload{Client: workload, CoreDNSMigrator: &kubeadmpkg.CoreDNSMigrator{}}
}

// updateAddons gives CoreDNS and kube-proxy the images of the wanted version. If CoreDNS does not follow it by itself,
// it says why.
func (r *Reconciler) updateAddons(
	ctx context.Context, o *observe.Observation, fence *fence,
) (dnsProblem string, err error) {
	workload, err := r.workloadClient(ctx, o, fence)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*observe.WorkloadTimeout)
	defer cancel()
	images := observe.NewAddonImages(workload, o.Workload.Images)
	tag, dnsProblem, err := observe.WantedDNSTag(ctx, o.ControlPlane, images)
	if err != nil {
		return "", err
	}
	synthetic := kubeadmControlPlane(o.ControlPlane, tag)
	if err := skipPinned(ctx, images, synthetic); err != nil {
		return dnsProblem, err
	}
	if o.Workload.ProxyHeld != "" {
		synthetic.Annotations[kcpv1.SkipKubeProxyAnnotation] = ""
	}
	if err := workloadFunctions(workload).UpdateCoreDNS(ctx, synthetic); err != nil {
		return dnsProblem, fmt.Errorf("updating CoreDNS: %w", err)
	}
	if err := workloadFunctions(workload).UpdateKubeProxyImageInfo(ctx, synthetic); err != nil {
		return dnsProblem, fmt.Errorf("updating kube-proxy: %w", err)
	}
	return dnsProblem, nil
}

// guardDNS makes the PodDisruptionBudget of CoreDNS, or deletes it where it is not wanted. Nothing depends on it: what
// fails is said in an event, and tried again after a while.
func (r *Reconciler) guardDNS(ctx context.Context, p *reconciliation) {
	o := p.observation
	wanted, uid := o.Workload.DNSBudget, p.controlPlane.UID
	// Changes in the cluster are confirmed by the host of a node, and the first Machine is one a moment after its API
	// answers.
	confirmable := slices.ContainsFunc(o.State.Machines, func(machine controlplane.Machine) bool {
		return machine.Node != ""
	})
	if wanted == (observe.DNSBudget{}) || !o.State.Reachable || o.State.Deleting || o.State.ClusterDeleting ||
		!confirmable || !r.history.DNSBudget.Due(uid, "", r.Clock.Now()) {
		return
	}
	const reason = "DNSBudget"
	done, err := "made, so that a drain evicts one pod of CoreDNS at a time", wanted.Err
	if wanted.Unwanted != "" {
		done = "deleted: " + wanted.Unwanted
	}
	if err == nil {
		err = r.writeDNSBudget(ctx, o, wanted)
	}
	r.history.DNSBudget.Note(uid, "", r.Clock.Now(), err == nil)
	if err != nil {
		r.event(p.controlPlane, corev1.EventTypeWarning, reason, fmt.Sprintf("drains may evict all pods of CoreDNS "+
			"together: PodDisruptionBudget %s: %v", observe.DNSBudgetName, err))
		return
	}
	r.event(p.controlPlane, corev1.EventTypeNormal, reason, fmt.Sprintf("PodDisruptionBudget %s was %s",
		observe.DNSBudgetName, done))
}

func (r *Reconciler) writeDNSBudget(ctx context.Context, o *observe.Observation, wanted observe.DNSBudget) error {
	fence := r.newFence(&o.Inventory)
	defer fence.end(ctx)
	workload, err := r.workloadClient(ctx, o, fence)
	if err != nil {
		return err
	}
	budget := observe.NewDNSBudget(wanted.Selector)
	if wanted.Unwanted != "" {
		return client.IgnoreNotFound(workload.Delete(ctx, budget))
	}
	return client.IgnoreAlreadyExists(workload.Create(ctx, budget))
}

// skipPinned leaves the add-ons alone whose images are named by digests, on which the functions of Cluster API fail.
func skipPinned(ctx context.Context, images *observe.AddonImages, synthetic *kcpv1.KubeadmControlPlane) error {
	dns, err := images.DNS(ctx)
	if err != nil {
		return err
	}
	proxy, err := images.Proxy(ctx)
	if err != nil {
		return err
	}
	if synthetic.Annotations == nil {
		synthetic.Annotations = map[string]string{}
	}
	if observe.Pinned(dns) {
		synthetic.Annotations[kcpv1.SkipCoreDNSAnnotation] = ""
	}
	if observe.Pinned(proxy) {
		synthetic.Annotations[kcpv1.SkipKubeProxyAnnotation] = ""
	}
	return nil
}

// updateKubeadmConfig writes to the workload cluster what a Machine of the wanted version joins with.
func (r *Reconciler) updateKubeadmConfig(ctx context.Context, o *observe.Observation, fence *fence) error {
	workload, err := r.workloadClient(ctx, o, fence)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*observe.WorkloadTimeout)
	defer cancel()
	parsed, err := semver.ParseTolerant(o.ControlPlane.Spec.Version)
	if err != nil {
		return fmt.Errorf("version %q: %w", o.ControlPlane.Spec.Version, err)
	}
	w := workloadFunctions(workload)
	if err := w.EnsureKubeadmPermissions(ctx, parsed); err != nil {
		return fmt.Errorf("granting what kubeadm of %s needs: %w", o.ControlPlane.Spec.Version, err)
	}
	var mutators []func(*bootstrapv1.ClusterConfiguration)
	if wanted := o.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration; wanted.IsDefined() {
		mutators = append(mutators,
			w.UpdateImageRepositoryInKubeadmConfigMap(wanted.ImageRepository),
			w.UpdateAPIServerInKubeadmConfigMap(wanted.APIServer),
			w.UpdateControllerManagerInKubeadmConfigMap(wanted.ControllerManager),
			w.UpdateSchedulerInKubeadmConfigMap(wanted.Scheduler),
			w.UpdateCertificateValidityPeriodDays(wanted.CertificateValidityPeriodDays),
			w.UpdateEncryptionAlgorithm(wanted.EncryptionAlgorithm))
		if desired.StackedEtcd(o.ControlPlane) {
			mutators = append(mutators, w.UpdateEtcdLocalInKubeadmConfigMap(wanted.Etcd.Local))
		} else {
			mutators = append(mutators, w.UpdateEtcdExternalInKubeadmConfigMap(wanted.Etcd.External))
		}
	}
	// Also without a clusterConfiguration: a gate that kubeadm of the new version does not know would make it fail.
	mutators = append(mutators, func(c *bootstrapv1.ClusterConfiguration) { desired.DefaultAPIServer(&c.APIServer) },
		w.UpdateFeatureGatesInKubeadmConfigMap(o.ControlPlane.Spec.KubeadmConfigSpec, parsed))
	if err := w.UpdateClusterConfiguration(ctx, parsed, mutators...); err != nil {
		return fmt.Errorf("updating the kubeadm-config ConfigMap: %w", err)
	}
	return nil
}
