// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/apierr"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments;machinesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=quoincontrolplanes,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=quoinmachinetemplates,verbs=get;list;watch

// addonArtifacts are the images of a version's add-ons for this host. They come from where the pool's present template
// says: the Machine may have been made when the bundles lay elsewhere, or behind another authority, and is not replaced
// before the upgrade that waits for these images.
func (r *reconciliation) addonArtifacts(ctx context.Context, version string) (artifacts.Wanted, error) {
	wanted := r.artifacts(version)
	wanted.AddonVersions = nil
	template, err := r.controller.presentTemplate(ctx, r.claim.machine)
	if err != nil || template == nil {
		return wanted, err
	}
	present := template.Spec.Template.Spec.Artifacts
	if sameKind(present, r.claim.quoinMachine.Spec.Artifacts) {
		wanted.Source = sourceOf(present)
	}
	return wanted, nil
}

// joining adds to what this worker is installed with what it needs of its control plane's version: the kubeadm that
// joins it, and the images of the add-ons, which follow the oldest API server. Packages, and hosts that carry a version
// already, have their own; nothing is known of another provider's control plane.
func (r *reconciliation) joining(ctx context.Context, wanted artifacts.Wanted) (artifacts.Wanted, error) {
	machine := r.claim.machine
	running, ours, err := r.apiServers(ctx)
	if err != nil || !ours {
		return wanted, err
	}
	oldest := skew.Oldest(running...)
	if wanted.Bundle != nil {
		if version := skew.JoiningKubeadm(machine.Spec.Version, running...); version != machine.Spec.Version {
			wanted.Kubeadm = version
		}
		if oldest != "" && oldest != machine.Spec.Version && !slices.Contains(wanted.AddonVersions, oldest) {
			wanted.AddonVersions = append(slices.Clone(wanted.AddonVersions), oldest)
		}
	}
	if skew.Older(oldest, machine.Spec.Version) {
		oldest = "" // the Machine has waited for its API servers, of which the status may tell later
	}
	return wanted, checkKubeadm(r.claim.cluster, skew.Installer{Object: "Machine " + machine.Name,
		Version: cmp.Or(wanted.Kubeadm, wanted.Version), Kubelet: wanted.Version, Cluster: oldest})
}

// joinable asks whether a control plane would let this Machine's kubeadm join it (R15): one that a later kubeadm has
// upgraded meanwhile would not. An earlier one is what the Machine is to upgrade.
func (r *reconciliation) joinable(ctx context.Context) error {
	running, ours, err := r.apiServers(ctx)
	if err != nil || !ours {
		return err
	}
	own, newest := r.claim.machine.Spec.Version, skew.Newest(running...)
	if !skew.Older(own, newest) {
		return nil
	}
	return checkKubeadm(r.claim.cluster, skew.Installer{Object: "Machine " + r.claim.machine.Name, Version: own,
		Cluster: newest})
}

// apiServers are the versions of the API servers, where the control plane is ours.
func (r *reconciliation) apiServers(ctx context.Context) (versions []string, ours bool, err error) {
	ref := r.claim.cluster.Spec.ControlPlaneRef
	if ref.Kind != "QuoinControlPlane" || ref.APIGroup != controlplanev1.GroupVersion.Group {
		return nil, false, nil
	}
	controlPlane := &controlplanev1.QuoinControlPlane{}
	key := client.ObjectKey{Namespace: r.claim.machine.Namespace, Name: ref.Name}
	found, err := r.controller.find(ctx, key, controlPlane)
	for _, version := range controlPlane.Status.Versions {
		versions = append(versions, version.Version)
	}
	return versions, found, err
}

// kubeadmError says that the kubeadm that a host gets does not fit what it has to do there; the host was not touched.
type kubeadmError struct{ violations []skew.Violation }

func (e *kubeadmError) Error() string {
	return skew.Summary(e.violations) + "; the host was not touched: raise the pool of the Machine, or have it " +
		"installed from bundles, of which a worker takes the kubeadm of its control plane. A Machine of the control plane " +
		"is replaced by one of its version: delete it, if that does not happen by itself"
}

// checkKubeadm asks the policies of the Cluster about a kubeadm before it is installed (R13, R14, R15).
func checkKubeadm(cluster *clusterv1.Cluster, installer skew.Installer) error {
	policies, err := skew.PoliciesOf(cluster)
	if err != nil {
		return err
	}
	var violations []skew.Violation
	for _, policy := range policies {
		violations = append(violations, policy.CheckInstaller(installer)...)
	}
	if len(violations) > 0 {
		return &kubeadmError{violations}
	}
	return nil
}

// sameKind reports whether Kubernetes comes to both in the same way. What a pool changes to, such as images that only
// its next hosts carry, may be no way for those that it has.
func sameKind(a, b infrav1.Artifacts) bool {
	return (a.Bundle == nil) == (b.Bundle == nil) && (a.Packages == nil) == (b.Packages == nil) &&
		(a.Preinstalled == nil) == (b.Preinstalled == nil)
}

// presentTemplate is the template that the next Machine of this one's pool is made from; nil when nothing would replace
// it, or with something else.
func (r *Reconciler) presentTemplate(ctx context.Context,
	machine *clusterv1.Machine) (*infrav1.QuoinMachineTemplate, error) {
	if machine == nil {
		return nil, nil
	}
	ref, err := r.presentReference(ctx, machine)
	if err != nil || ref.Kind != "QuoinMachineTemplate" || ref.APIGroup != infrav1.GroupVersion.Group {
		return nil, err
	}
	template := &infrav1.QuoinMachineTemplate{}
	found, err := r.find(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, template)
	if err != nil || !found {
		return nil, err
	}
	return template, nil
}

// presentReference is what the Machine's pool says of its infrastructure; empty when there is no pool.
func (r *Reconciler) presentReference(ctx context.Context,
	machine *clusterv1.Machine) (clusterv1.ContractVersionedObjectReference, error) {
	var none clusterv1.ContractVersionedObjectReference
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Labels[clusterv1.MachineDeploymentNameLabel]}
	if key.Name != "" {
		deployment := &clusterv1.MachineDeployment{}
		if found, err := r.find(ctx, key, deployment); err != nil || !found {
			return none, err
		}
		return deployment.Spec.Template.Spec.InfrastructureRef, nil
	}
	owner := metav1.GetControllerOfNoCopy(machine)
	if owner == nil {
		return none, nil
	}
	key.Name = owner.Name
	switch owner.Kind {
	case "MachineSet":
		set := &clusterv1.MachineSet{}
		if found, err := r.find(ctx, key, set); err != nil || !found {
			return none, err
		}
		return set.Spec.Template.Spec.InfrastructureRef, nil
	case "QuoinControlPlane":
		controlPlane := &controlplanev1.QuoinControlPlane{}
		if found, err := r.find(ctx, key, controlPlane); err != nil || !found {
			return none, err
		}
		return controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef, nil
	}
	return none, nil
}

// find reports whether the object is there; a kind that is not installed has none.
func (r *Reconciler) find(ctx context.Context, key client.ObjectKey, object client.Object) (bool, error) {
	switch err := r.Client.Get(ctx, key, object); {
	case err == nil:
		return true, nil
	case apierr.IsAbsent(err):
		return false, nil
	default:
		return false, fmt.Errorf("reading %T %s: %w", object, key, err)
	}
}

// artifacts of a version for this host: what the QuoinMachine says, in the words of the package that acts on it.
func (r *reconciliation) artifacts(version string) artifacts.Wanted {
	spec := r.claim.quoinMachine.Spec
	wanted := artifacts.Wanted{Version: version, Source: sourceOf(spec.Artifacts), AddonVersions: spec.AddonVersions}
	if r.host.Status.Facts != nil {
		wanted.Architecture = r.host.Status.Facts.Architecture
	}
	return wanted
}

// sourceOf translates the API's words.
func sourceOf(a infrav1.Artifacts) artifacts.Source {
	var source artifacts.Source
	if b := a.Bundle; b != nil {
		source.Bundle = &artifacts.Bundle{
			Location: b.Location, Push: b.Delivery == infrav1.BundleDeliveryPush, PublicKeys: b.PublicKeys,
			Proxy: b.Proxy, CertificateAuthorities: b.CertificateAuthorities,
		}
		if b.BytesPerSecond != nil {
			source.Bundle.BytesPerSecond = b.BytesPerSecond.Value()
		}
	}
	if p := a.Packages; p != nil {
		source.Packages = &artifacts.Packages{Repository: p.Repository, SigningKey: p.SigningKey}
	}
	if p := a.Preinstalled; p != nil {
		source.Preinstalled = &artifacts.Preinstalled{ImagesRequired: p.Images == "Required"}
	}
	return source
}
