// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	containerutil "sigs.k8s.io/cluster-api/util/container"
	"sigs.k8s.io/cluster-api/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/redfish"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew/plan"
)

// The names of the add-ons.
const (
	KubeProxy = "kube-proxy"
	CoreDNS   = "coredns"
)

// coreDNSTags are the CoreDNS versions that kubeadm of a minor installs (its constant CoreDNSVersion). A bundle of that
// minor holds that image. kubeadm would change CoreDNS on an upgrade; replacing Machines never runs that. 1.35 and 1.36
// were read in kubeadm's source, the earlier ones only in lists of others.
var coreDNSTags = map[uint64]string{
	31: "v1.11.3", 32: "v1.11.3", 33: "v1.12.0", 34: "v1.12.1", 35: "v1.13.1", 36: "v1.14.2",
}

// AddonImages reads the images of the add-ons, each once.
type AddonImages struct {
	reader client.Reader
	known  map[string]string
}

// NewAddonImages reads from a workload cluster what is not known yet.
func NewAddonImages(reader client.Reader, known map[string]string) *AddonImages {
	images := &AddonImages{reader: reader, known: map[string]string{}}
	maps.Copy(images.known, known)
	return images
}

// Proxy is the image of kube-proxy; empty when the cluster has none.
func (i *AddonImages) Proxy(ctx context.Context) (string, error) {
	daemonSet := &appsv1.DaemonSet{}
	return i.read(ctx, KubeProxy, "DaemonSet", daemonSet, &daemonSet.Spec.Template.Spec)
}

// DNS is the image of CoreDNS; empty when the cluster has none.
func (i *AddonImages) DNS(ctx context.Context) (string, error) {
	deployment := &appsv1.Deployment{}
	return i.read(ctx, CoreDNS, "Deployment", deployment, &deployment.Spec.Template.Spec)
}

func (i *AddonImages) read(
	ctx context.Context, name, kind string, object client.Object, pod *corev1.PodSpec,
) (string, error) {
	if image, ok := i.known[name]; ok {
		return image, nil
	}
	err := i.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, object)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading %s %s of the workload cluster: %w", kind, name, err)
	}
	i.known[name] = imageOf(pod.Containers, name)
	return i.known[name], nil
}

// runningAddons is the Kubernetes version whose images the add-ons have: that of kube-proxy, which is tagged with it. A
// kube-proxy that is not there, or not ours, says nothing; then it is the oldest version of the control plane, which
// the add-ons follow last.
func runningAddons(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, kubelets []clusterv1.StatusVersion,
	images *AddonImages,
) string {
	oldest := ""
	if len(kubelets) > 0 {
		oldest = kubelets[0].Version
	}
	if _, skip := controlPlane.Annotations[kcpv1.SkipKubeProxyAnnotation]; skip {
		return oldest
	}
	image, err := images.Proxy(ctx)
	if err != nil {
		return oldest
	}
	reference, err := containerutil.ImageFromString(image)
	if err != nil {
		return oldest
	}
	if _, err := skew.Parse(reference.Tag); err != nil {
		return oldest
	}
	return reference.Tag
}

// readAddons finds out what the add-ons have.
func (w *Workload) readAddons(
	ctx context.Context, inv *Inventory, machines collections.Machines, images *AddonImages,
) {
	w.AddonsVersion = runningAddons(ctx, inv.ControlPlane, RunningVersions(machines, w.Health), images)
	w.AddonsErr = w.compareAddons(ctx, inv, images)
	w.Images = images.known
}

// compareAddons finds out whether CoreDNS and kube-proxy have the wanted images, are absent, or are to be left alone. A
// kube-proxy that is held back keeps CoreDNS from nothing.
func (w *Workload) compareAddons(ctx context.Context, inv *Inventory, images *AddonImages) error {
	current, err := proxyCurrent(ctx, inv.ControlPlane, images)
	if err != nil {
		return err
	}
	if !current {
		if w.ProxyHeld = inv.proxyHeld(images.known[KubeProxy]); w.ProxyHeld == "" {
			return nil
		}
	}
	w.AddonsCurrent, w.DNSProblem, err = dnsCurrent(ctx, inv.ControlPlane, images)
	return err
}

// proxyHeld says why kube-proxy of this image may not follow the version now, by what a plan would say of it; empty
// when it may. Policies that nobody knows allow no other minor.
func (inv *Inventory) proxyHeld(image string) string {
	reference, err := containerutil.ImageFromString(image)
	if err != nil || !skew.OtherMinor(reference.Tag, inv.ControlPlane.Spec.Version) {
		return ""
	}
	const wayOut = "%s keeps %s: %s. It follows by itself once that is so no more; annotation %s has it left to you"
	say := func(why string) string {
		return fmt.Sprintf(wayOut, KubeProxy, reference.Tag, why, kcpv1.SkipKubeProxyAnnotation)
	}
	policies, err := skew.PoliciesOf(inv.Cluster)
	if err != nil {
		return say(err.Error() + "; correct the annotation")
	}
	state := plan.StateOf(listed(collections.FromMachineList(&clusterv1.MachineList{Items: inv.all})))
	state.KubeProxy = []string{reference.Tag}
	if refused := state.ProxyRefused(policies, inv.ControlPlane.Spec.Version); refused != "" {
		return say(refused)
	}
	return ""
}

func proxyCurrent(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, images *AddonImages,
) (bool, error) {
	if _, skip := controlPlane.Annotations[kcpv1.SkipKubeProxyAnnotation]; skip {
		return true, nil
	}
	image, err := images.Proxy(ctx)
	if err != nil {
		return false, err
	}
	if image == "" || Pinned(image) {
		return true, nil
	}
	return hasImage(image, controlPlane.Spec.Version,
		controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository)
}

// hasImage reports whether the image has the tag already, and the repository unless that is empty.
func hasImage(image, tag, repository string) (bool, error) {
	wanted, err := containerutil.ModifyImageTag(image, tag)
	if err == nil && repository != "" {
		wanted, err = containerutil.ModifyImageRepository(wanted, repository)
	}
	return err == nil && image == wanted, err
}

func dnsCurrent(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, images *AddonImages,
) (current bool, problem string, err error) {
	if _, skip := controlPlane.Annotations[kcpv1.SkipCoreDNSAnnotation]; skip {
		return true, "", nil
	}
	image, err := images.DNS(ctx)
	if err != nil || image == "" || Pinned(image) {
		return err == nil, "", err
	}
	tag, problem, err := WantedDNSTag(ctx, controlPlane, images)
	if err != nil || tag == "" {
		return tag == "", problem, err
	}
	configuration := controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration
	current, err = hasImage(image, tag, cmp.Or(configuration.DNS.ImageRepository, configuration.ImageRepository))
	return current, "", err
}

// Pinned reports whether an image is named by its digest. Somebody chose exactly that one: it is not ours to change.
func Pinned(image string) bool { return strings.Contains(image, "@") }

// WantedDNSTag is the tag that CoreDNS gets: the user's, else that of the version's kubeadm unless it would be a step
// back; empty leaves it as it is.
func WantedDNSTag(
	ctx context.Context, controlPlane *controlplanev1.QuoinControlPlane, images *AddonImages,
) (tag, problem string, err error) {
	if tag := controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag; tag != "" {
		return tag, "", nil
	}
	image, err := images.DNS(ctx)
	if err != nil || image == "" || Pinned(image) {
		return "", "", err
	}
	parsed, err := skew.Parse(controlPlane.Spec.Version)
	if err != nil {
		return "", "", err
	}
	tag, known := coreDNSTags[parsed.Minor()]
	if !known {
		return "", fmt.Sprintf("Which CoreDNS belongs to Kubernetes 1.%d is not known here: set "+
			"spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag to the tag of the image that the hosts hold",
			parsed.Minor()), nil
	}
	reference, err := containerutil.ImageFromString(image)
	if err != nil {
		return "", "", err
	}
	current, err := version.ParseTolerantImageTag(reference.Tag)
	if err != nil {
		// A tag that is no version is the user's own; the way to change it is spec.kubeadmConfigSpec.
		return "", "", nil //nolint:nilerr // not ours to judge
	}
	if wanted, err := version.ParseTolerantImageTag(tag); err != nil || wanted.LT(current) {
		return "", "", nil //nolint:nilerr // newer than kubeadm's stays
	}
	return tag, "", nil
}

func imageOf(containers []corev1.Container, name string) string {
	for _, container := range containers {
		if container.Name == name {
			return container.Image
		}
	}
	return ""
}

// unfitHosts says, by QuoinMachine, why its host can take no images now. A host that is silent while its Node is well
// may yet be asked, because what runs there would miss them.
func (l *Lists) unfitHosts(nodeWell map[string]bool) map[string]string {
	unfit := map[string]string{}
	for i := range l.quoinMachines {
		infra := &l.quoinMachines[i]
		key, _ := hostOf(infra)
		host := l.hostsByKey[key]
		if host == nil {
			continue
		}
		reason := Unavailable(host)
		if reason == "" && !nodeWell[infra.Name] && conditions.IsFalse(host, infrav1.HostReachableCondition) {
			reason = "unreachable"
		}
		if reason != "" {
			unfit[infra.Name] = reason
		}
	}
	return unfit
}

// Unavailable says by which will of a person nothing is brought to the host; empty when something is.
func Unavailable(host *infrav1.QuoinHost) string {
	_, detached := host.Annotations[infrav1.DetachedAnnotation]
	power := host.Status.Power
	switch {
	case detached:
		return "detached"
	case annotations.HasPaused(host):
		return "paused"
	case power != nil && power.State == string(redfish.Off):
		return "powered off"
	case host.Spec.Maintenance != nil:
		return "in maintenance"
	}
	return ""
}
