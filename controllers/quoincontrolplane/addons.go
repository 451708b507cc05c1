// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincontrolplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	kubeadmpkg "sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg"
	containerutil "sigs.k8s.io/cluster-api/util/container"
	"sigs.k8s.io/cluster-api/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/controllers/quoincontrolplane/desired"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
)

const (
	kubeProxy = "kube-proxy"
	coreDNS   = "coredns"
	// mostAddonVersions is what a QuoinMachine's spec may list.
	mostAddonVersions = 8
)

// coreDNSTags are the CoreDNS versions that kubeadm of a minor installs (its constant CoreDNSVersion). A bundle of that
// minor holds that image. kubeadm would change CoreDNS on an upgrade; replacing Machines never runs that. 1.35 and 1.36
// were read in kubeadm's source, the earlier ones only in lists of others.
var coreDNSTags = map[uint64]string{
	31: "v1.11.3", 32: "v1.11.3", 33: "v1.12.0", 34: "v1.12.1", 35: "v1.13.1", 36: "v1.14.2",
}

// requestAddons tells hosts to get the images of the step's version.
func (r *Reconciler) requestAddons(ctx context.Context, s *scope) error {
	var failures []error
	for i := range s.clusterInfra {
		infra := &s.clusterInfra[i]
		if !slices.Contains(s.step.Hosts, infra.Name) {
			continue
		}
		original := infra.DeepCopy()
		infra.Spec.AddonVersions = withVersion(infra.Spec.AddonVersions, s.step.Version)
		if err := r.Client.Patch(ctx, infra, client.MergeFrom(original)); err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("asking for add-on images on QuoinMachine %s: %w", infra.Name, err))
		}
	}
	return kerrors.NewAggregate(failures)
}

// addRunningAddons makes a new machine's host hold the images that CoreDNS and kube-proxy have now: they keep them
// until every API server is of the new version, and the bundle of a new version does not have them.
func (s *scope) addRunningAddons(infra *unstructured.Unstructured) error {
	running := s.workload.addonsVersion
	if running == "" || running == s.plane.Spec.Version {
		return nil
	}
	versions, _, err := unstructured.NestedStringSlice(infra.Object, "spec", "addonVersions")
	if err != nil {
		return err
	}
	return unstructured.SetNestedStringSlice(infra.Object, withVersion(versions, running), "spec", "addonVersions")
}

// runningAddons is the Kubernetes version whose images the add-ons have: that of kube-proxy, which is tagged with it.
// Of a kube-proxy that is not there, or not ours, nothing is told; then it is the oldest version of the control plane,
// which the add-ons follow last.
func (s *scope) runningAddons(ctx context.Context) string {
	oldest := ""
	for _, running := range s.runningVersions() {
		oldest = running.Version
		break
	}
	if _, skip := s.plane.Annotations[kcpv1.SkipKubeProxyAnnotation]; skip {
		return oldest
	}
	image, err := s.proxyImage(ctx)
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

// kubeadmStandIn is a KubeadmControlPlane with what Cluster API's functions on workload clusters read of one.
func (s *scope) kubeadmStandIn(dnsTag string) *kcpv1.KubeadmControlPlane {
	standIn := &kcpv1.KubeadmControlPlane{
		// Its annotations that leave CoreDNS and kube-proxy alone are honored on ours.
		ObjectMeta: metav1.ObjectMeta{Name: s.plane.Name, Namespace: s.plane.Namespace,
			Annotations: maps.Clone(s.plane.Annotations)},
		Spec: kcpv1.KubeadmControlPlaneSpec{
			Version:           s.plane.Spec.Version,
			KubeadmConfigSpec: *s.plane.Spec.KubeadmConfigSpec.DeepCopy(),
		},
	}
	if dnsTag != "" {
		standIn.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = dnsTag
	}
	return standIn
}

func (s *scope) workloadFunctions() *kubeadmpkg.Workload {
	return &kubeadmpkg.Workload{Client: s.workload.client, CoreDNSMigrator: &kubeadmpkg.CoreDNSMigrator{}}
}

// updateAddons gives CoreDNS and kube-proxy the images of the wanted version.
func (r *Reconciler) updateAddons(ctx context.Context, s *scope) error {
	ctx, cancel := context.WithTimeout(ctx, 2*workloadTimeout)
	defer cancel()
	tag, err := s.wantedDNSTag(ctx)
	if err != nil {
		return err
	}
	standIn := s.kubeadmStandIn(tag)
	if err := s.skipPinned(ctx, standIn); err != nil {
		return err
	}
	if err := s.workloadFunctions().UpdateCoreDNS(ctx, standIn); err != nil {
		return fmt.Errorf("updating CoreDNS: %w", err)
	}
	if err := s.workloadFunctions().UpdateKubeProxyImageInfo(ctx, standIn); err != nil {
		return fmt.Errorf("updating kube-proxy: %w", err)
	}
	return nil
}

// skipPinned leaves the add-ons alone whose images are named by digests, on which the functions of Cluster API fail.
func (s *scope) skipPinned(ctx context.Context, standIn *kcpv1.KubeadmControlPlane) error {
	dns, err := s.dnsImage(ctx)
	if err != nil {
		return err
	}
	proxy, err := s.proxyImage(ctx)
	if err != nil {
		return err
	}
	if standIn.Annotations == nil {
		standIn.Annotations = map[string]string{}
	}
	if pinned(dns) {
		standIn.Annotations[kcpv1.SkipCoreDNSAnnotation] = ""
	}
	if pinned(proxy) {
		standIn.Annotations[kcpv1.SkipKubeProxyAnnotation] = ""
	}
	return nil
}

// updateKubeadmConfig writes to the workload cluster what a Machine of the wanted version joins with.
func (r *Reconciler) updateKubeadmConfig(ctx context.Context, s *scope) error {
	ctx, cancel := context.WithTimeout(ctx, 2*workloadTimeout)
	defer cancel()
	parsed, err := semver.ParseTolerant(s.plane.Spec.Version)
	if err != nil {
		return fmt.Errorf("version %q: %w", s.plane.Spec.Version, err)
	}
	w := s.workloadFunctions()
	if err := w.EnsureKubeadmPermissions(ctx, parsed); err != nil {
		return fmt.Errorf("granting what kubeadm of %s needs: %w", s.plane.Spec.Version, err)
	}
	var mutators []func(*bootstrapv1.ClusterConfiguration)
	if wanted := s.plane.Spec.KubeadmConfigSpec.ClusterConfiguration; wanted.IsDefined() {
		mutators = append(mutators,
			w.UpdateImageRepositoryInKubeadmConfigMap(wanted.ImageRepository),
			w.UpdateAPIServerInKubeadmConfigMap(wanted.APIServer),
			w.UpdateControllerManagerInKubeadmConfigMap(wanted.ControllerManager),
			w.UpdateSchedulerInKubeadmConfigMap(wanted.Scheduler),
			w.UpdateCertificateValidityPeriodDays(wanted.CertificateValidityPeriodDays),
			w.UpdateEncryptionAlgorithm(wanted.EncryptionAlgorithm))
		if desired.StackedEtcd(s.plane) {
			mutators = append(mutators, w.UpdateEtcdLocalInKubeadmConfigMap(wanted.Etcd.Local))
		} else {
			mutators = append(mutators, w.UpdateEtcdExternalInKubeadmConfigMap(wanted.Etcd.External))
		}
	}
	// Also without a clusterConfiguration: a gate that kubeadm of the new version does not know would make it fail.
	mutators = append(mutators, func(c *bootstrapv1.ClusterConfiguration) { desired.DefaultAPIServer(&c.APIServer) },
		w.UpdateFeatureGatesInKubeadmConfigMap(s.plane.Spec.KubeadmConfigSpec, parsed))
	if err := w.UpdateClusterConfiguration(ctx, parsed, mutators...); err != nil {
		return fmt.Errorf("updating the kubeadm-config ConfigMap: %w", err)
	}
	return nil
}

// addonsCurrent tells whether CoreDNS and kube-proxy have the wanted images, are absent, or are to be left alone.
func (s *scope) addonsCurrent(ctx context.Context) (bool, error) {
	proxy, err := s.proxyCurrent(ctx)
	if err != nil || !proxy {
		return false, err
	}
	return s.dnsCurrent(ctx)
}

func (s *scope) proxyCurrent(ctx context.Context) (bool, error) {
	if _, skip := s.plane.Annotations[kcpv1.SkipKubeProxyAnnotation]; skip {
		return true, nil
	}
	image, err := s.proxyImage(ctx)
	if err != nil {
		return false, err
	}
	if image == "" || pinned(image) {
		return true, nil
	}
	wanted, err := containerutil.ModifyImageTag(image, s.plane.Spec.Version)
	if err != nil {
		return false, err
	}
	if repository := s.plane.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository; repository != "" {
		if wanted, err = containerutil.ModifyImageRepository(wanted, repository); err != nil {
			return false, err
		}
	}
	return image == wanted, nil
}

func (s *scope) dnsCurrent(ctx context.Context) (bool, error) {
	if _, skip := s.plane.Annotations[kcpv1.SkipCoreDNSAnnotation]; skip {
		return true, nil
	}
	current, err := s.dnsImage(ctx)
	if err != nil || current == "" || pinned(current) {
		return err == nil, err
	}
	tag, err := s.wantedDNSTag(ctx)
	if err != nil || tag == "" {
		return tag == "", err
	}
	wanted, err := containerutil.ModifyImageTag(current, tag)
	if err != nil {
		return false, err
	}
	configuration := s.plane.Spec.KubeadmConfigSpec.ClusterConfiguration
	repository := configuration.ImageRepository
	if configuration.DNS.ImageRepository != "" {
		repository = configuration.DNS.ImageRepository
	}
	if repository != "" {
		if wanted, err = containerutil.ModifyImageRepository(wanted, repository); err != nil {
			return false, err
		}
	}
	return current == wanted, nil
}

// pinned tells that an image is named by its digest. Somebody chose exactly that one: it is not ours to change.
func pinned(image string) bool { return strings.Contains(image, "@") }

// proxyImage is the image of kube-proxy; empty when the cluster has none.
func (s *scope) proxyImage(ctx context.Context) (string, error) {
	return s.addonImage(kubeProxy, func() ([]corev1.Container, error) {
		daemonSet := &appsv1.DaemonSet{}
		err := s.workload.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: kubeProxy}, daemonSet)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading DaemonSet %s of the workload cluster: %w", kubeProxy, err)
		}
		return daemonSet.Spec.Template.Spec.Containers, nil
	})
}

// dnsImage is the image of CoreDNS; empty when the cluster has none.
func (s *scope) dnsImage(ctx context.Context) (string, error) {
	return s.addonImage(coreDNS, func() ([]corev1.Container, error) {
		deployment := &appsv1.Deployment{}
		err := s.workload.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: coreDNS}, deployment)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Deployment %s of the workload cluster: %w", coreDNS, err)
		}
		return deployment.Spec.Template.Spec.Containers, nil
	})
}

// addonImage reads the containers of an add-on once in a look.
func (s *scope) addonImage(name string, read func() ([]corev1.Container, error)) (string, error) {
	if image, ok := s.workload.images[name]; ok {
		return image, nil
	}
	containers, err := read()
	if err != nil {
		return "", err
	}
	s.workload.images[name] = imageOf(containers, name)
	return s.workload.images[name], nil
}

// wantedDNSTag is the tag that CoreDNS gets: the user's, else that of the version's kubeadm unless it would be a step
// back; empty leaves it as it is.
func (s *scope) wantedDNSTag(ctx context.Context) (string, error) {
	if tag := s.plane.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag; tag != "" {
		return tag, nil
	}
	image, err := s.dnsImage(ctx)
	if err != nil || image == "" || pinned(image) {
		return "", err
	}
	parsed, err := skew.Parse(s.plane.Spec.Version)
	if err != nil {
		return "", err
	}
	tag, known := coreDNSTags[parsed.Minor()]
	if !known {
		s.workload.dnsProblem = fmt.Sprintf("Which CoreDNS belongs to Kubernetes 1.%d is not known here: set "+
			"spec.kubeadmConfigSpec.clusterConfiguration.dns.imageTag to the tag of the image that the hosts hold",
			parsed.Minor())
		return "", nil
	}
	reference, err := containerutil.ImageFromString(image)
	if err != nil {
		return "", err
	}
	current, err := version.ParseTolerantImageTag(reference.Tag)
	if err != nil {
		// A tag that is no version is the user's own; the way to change it is spec.kubeadmConfigSpec.
		return "", nil //nolint:nilerr // not ours to judge
	}
	if wanted, err := version.ParseTolerantImageTag(tag); err != nil || wanted.LT(current) {
		return "", nil //nolint:nilerr // newer than kubeadm's stays
	}
	return tag, nil
}

func imageOf(containers []corev1.Container, name string) string {
	for _, container := range containers {
		if container.Name == name {
			return container.Image
		}
	}
	return ""
}
