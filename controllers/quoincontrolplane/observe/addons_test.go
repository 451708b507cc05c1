// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kcpv1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/skew"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/clienttest"
)

// addons are a kube-proxy and a CoreDNS of these images, beside another container; none where there is no image.
func addons(proxy, dns string) client.Reader {
	builder, meta := clienttest.Unmanaged(inside), func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "kube-system", Name: name}
	}
	pod := func(name, image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "beside", Image: "b:1"},
			{Name: name, Image: image}}}}
	}
	if proxy != "" {
		builder.WithObjects(&appsv1.DaemonSet{ObjectMeta: meta(KubeProxy),
			Spec: appsv1.DaemonSetSpec{Template: pod(KubeProxy, proxy)}})
	}
	if dns != "" {
		builder.WithObjects(&appsv1.Deployment{ObjectMeta: meta(CoreDNS),
			Spec: appsv1.DeploymentSpec{Template: pod(CoreDNS, dns)}})
	}
	return builder.Build()
}

// unreadable is a workload cluster whose add-ons cannot be read.
func unreadable() client.Reader { return &down{} }

const (
	proxyImage = "registry.k8s.io/kube-proxy:"
	dnsImage   = "registry.k8s.io/coredns/coredns:"
	digest     = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestAnImageIsReadOnce(t *testing.T) {
	g := NewWithT(t)
	images := NewAddonImages(addons(proxyImage+"v1.35.4", ""), map[string]string{CoreDNS: "known"})
	g.Expect(images.Proxy(t.Context())).To(Equal(proxyImage + "v1.35.4"))
	g.Expect(images.DNS(t.Context())).To(Equal("known"))
	images.reader = unreadable()
	g.Expect(images.Proxy(t.Context())).To(Equal(proxyImage + "v1.35.4"))
	_, err := NewAddonImages(unreadable(), nil).DNS(t.Context())
	g.Expect(err).To(MatchError("reading Deployment coredns of the workload cluster: down"))
	g.Expect(imageOf(nil, "none")).To(BeEmpty())
}

// Where kube-proxy does not say which version the add-ons have, it is the oldest of the control plane.
func TestWhichVersionTheAddonsHave(t *testing.T) {
	kubelets := []clusterv1.StatusVersion{{Version: "v1.34.1"}, {Version: "v1.36.3"}}
	for name, test := range map[string]struct {
		reader   client.Reader
		skip     bool
		kubelets []clusterv1.StatusVersion
		version  string
	}{
		"kube-proxy says so":         {addons(proxyImage+"v1.35.4", ""), false, kubelets, "v1.35.4"},
		"it is another's":            {addons(proxyImage+"v1.35.4", ""), true, kubelets, "v1.34.1"},
		"there is none":              {addons("", ""), false, kubelets, "v1.34.1"},
		"it cannot be read":          {unreadable(), false, kubelets, "v1.34.1"},
		"its tag is no version":      {addons(proxyImage+"latest", ""), false, kubelets, "v1.34.1"},
		"its image is none":          {addons("Not An Image", ""), false, kubelets, "v1.34.1"},
		"nothing runs":               {addons("", ""), false, nil, ""},
		"kube-proxy runs by itself":  {addons(proxyImage+"v1.35.4", ""), false, nil, "v1.35.4"},
		"only one kubelet is to ask": {addons("", ""), false, kubelets[1:], "v1.36.3"},
	} {
		controlPlane := &controlplanev1.QuoinControlPlane{}
		if test.skip {
			controlPlane.Annotations = map[string]string{kcpv1.SkipKubeProxyAnnotation: ""}
		}
		NewWithT(t).Expect(runningAddons(t.Context(), controlPlane, test.kubelets, NewAddonImages(test.reader, nil))).
			To(Equal(test.version), name)
	}
}

// Add-ons follow the version unless somebody chose otherwise.
func TestWhetherAddonsAreCurrent(t *testing.T) {
	old := func(inv *Inventory) {
		inv.all = []clusterv1.Machine{{ObjectMeta: metav1.ObjectMeta{Name: "w"}}}
		inv.all[0].Spec.Version, inv.all[0].Status.NodeRef.Name = "v1.32.1", "w"
		inv.all[0].Status.NodeInfo = &corev1.NodeSystemInfo{KubeletVersion: "v1.32.1"}
	}
	annotated := func(annotations ...string) func(*Inventory) {
		return func(inv *Inventory) {
			inv.ControlPlane.Annotations = map[string]string{}
			for _, annotation := range annotations {
				inv.ControlPlane.Annotations[annotation] = ""
			}
		}
	}
	repository := func(inv *Inventory) {
		inv.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository = "mirror.test/k8s"
	}
	dnsRepository := func(inv *Inventory) {
		inv.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.ImageRepository = "mirror.test/k8s"
		inv.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageRepository = "mirror.test/dns"
	}
	tag := func(inv *Inventory) { inv.ControlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration.DNS.ImageTag = "v9" }
	version := func(version string) func(*Inventory) {
		return func(inv *Inventory) { inv.ControlPlane.Spec.Version = version }
	}
	policy := func(inv *Inventory) {
		inv.Cluster.Annotations = map[string]string{skew.PolicyAnnotation: "None-Such"}
	}
	for name, test := range map[string]struct {
		proxy, dns string
		change     func(*Inventory)
		current    bool
		// held and problem are what is said of kube-proxy and CoreDNS, err why nothing is known.
		held, problem, err string
	}{
		"both are":                {proxyImage + "v1.36.3", dnsImage + "v1.14.2", nil, true, "", "", ""},
		"there are none":          {"", "", nil, true, "", "", ""},
		"kube-proxy is old":       {proxyImage + "v1.35.4", dnsImage + "v1.14.2", nil, false, "", "", ""},
		"CoreDNS is old":          {proxyImage + "v1.36.3", dnsImage + "v1.13.1", nil, false, "", "", ""},
		"CoreDNS is newer":        {"", dnsImage + "v1.15.0", nil, true, "", "", ""},
		"CoreDNS has another tag": {"", dnsImage + "ours", nil, true, "", "", ""},
		"CoreDNS is no image":     {"", "Not An Image", nil, false, "", "", "invalid reference format"},
		"kube-proxy is no image":  {"Not An Image", "", nil, false, "", "", "invalid reference format"},
		"pinned kube-proxy":       {proxyImage + "v1.35.4" + digest, "", nil, true, "", "", ""},
		"pinned CoreDNS":          {"", dnsImage + "v1.13.1" + digest, nil, true, "", "", ""},
		"a user's CoreDNS":        {"", dnsImage + "v1.13.1", annotated(kcpv1.SkipCoreDNSAnnotation), true, "", "", ""},
		"a user's kube-proxy":     {proxyImage + "v1.35.4", "", annotated(kcpv1.SkipKubeProxyAnnotation), true, "", "", ""},
		"kube-proxy elsewhere":    {proxyImage + "v1.36.3", "", repository, false, "", "", ""},
		"kube-proxy of a mirror":  {"mirror.test/k8s/kube-proxy:v1.36.3", "", repository, true, "", "", ""},
		"CoreDNS elsewhere":       {"", dnsImage + "v1.14.2", repository, false, "", "", ""},
		"CoreDNS of a mirror":     {"", "mirror.test/k8s/coredns:v1.14.2", repository, true, "", "", ""},
		"CoreDNS of its mirror":   {"", "mirror.test/dns/coredns:v1.14.2", dnsRepository, true, "", "", ""},
		"a user's tag":            {"", dnsImage + "v9", tag, true, "", "", ""},
		"a user's tag to come":    {"", dnsImage + "v1.14.2", tag, false, "", "", ""},
		"an unknown minor": {"", dnsImage + "v1.14.2", version("v1.99.0"), true, "",
			"Which CoreDNS belongs to Kubernetes 1.99 is not known here", ""},
		"a version that is none": {"", dnsImage + "v1.14.2", version("latest"), false, "", "", "latest"},
		"kube-proxy is held by a kubelet": {proxyImage + "v1.35.4", dnsImage + "v1.14.2", old, true,
			"kube-proxy keeps v1.35.4: ", "", ""},
		"a patch is no reason to hold it": {proxyImage + "v1.36.1", "", old, false, "", "", ""},
		"CoreDNS follows where kube-proxy is held": {proxyImage + "v1.35.4", dnsImage + "v1.13.1", old, false,
			"kube-proxy keeps v1.35.4: ", "", ""},
		"a user's tag without CoreDNS":            {"", "", tag, true, "", "", ""},
		"a user's tag of a pinned CoreDNS":        {"", dnsImage + "v1.13.1" + digest, tag, true, "", "", ""},
		"a user's tag of no image":                {"", "Not An Image", tag, false, "", "", "invalid reference format"},
		"a policy that nobody knows, and a patch": {proxyImage + "v1.36.1", "", policy, false, "", "", ""},
		"a policy that nobody knows": {proxyImage + "v1.35.4", "", policy, true,
			"; correct the annotation", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, w, inv := NewWithT(t), &Workload{}, joined()
			if test.change != nil {
				test.change(inv)
			}
			w.readAddons(t.Context(), inv, inv.Machines, NewAddonImages(addons(test.proxy, test.dns), nil))
			if test.err == "" {
				g.Expect(w.AddonsErr).NotTo(HaveOccurred())
				g.Expect(w.AddonsCurrent).To(Equal(test.current))
			} else {
				g.Expect(w.AddonsErr).To(MatchError(ContainSubstring(test.err)))
			}
			for said, want := range map[string]string{w.ProxyHeld: test.held, w.DNSProblem: test.problem} {
				if want == "" {
					g.Expect(said).To(BeEmpty())
				} else {
					g.Expect(said).To(ContainSubstring(want))
				}
			}
		})
	}
}

// Each minor has the CoreDNS of its kubeadm (constants of kubernetes/kubernetes), and what is newer stays.
func TestWhichCoreDNSAVersionHas(t *testing.T) {
	for minor, tag := range map[string]string{"v1.30.0": "", "v1.31.0": "v1.11.3", "v1.32.0": "v1.11.3",
		"v1.33.0": "v1.12.0", "v1.34.0": "v1.12.1", "v1.35.0": "v1.13.1", "v1.36.0": "v1.14.2", "v1.37.0": ""} {
		g, controlPlane := NewWithT(t), &controlplanev1.QuoinControlPlane{}
		controlPlane.Spec.Version = minor
		wanted, problem, err := WantedDNSTag(t.Context(), controlPlane, NewAddonImages(addons("", dnsImage+"v1.1.0"), nil))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(wanted).To(Equal(tag), minor)
		g.Expect(problem == "").To(Equal(tag != ""), minor)
		for _, unchanged := range []string{"", dnsImage + "v1.1.0" + digest} {
			wanted, problem, err = WantedDNSTag(t.Context(), controlPlane, NewAddonImages(addons("", unchanged), nil))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(wanted + problem).To(BeEmpty())
		}
		_, _, err = WantedDNSTag(t.Context(), controlPlane, NewAddonImages(unreadable(), nil))
		g.Expect(err).To(HaveOccurred())
	}
}

// A host that is silent misses images, unless its Node is well all the same.
func TestHostsThatCanTakeNoImages(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*infrav1.QuoinHost)
		well        bool
		unfit, will string
	}{
		"well": {func(*infrav1.QuoinHost) {}, false, "", ""},
		"on":   {func(h *infrav1.QuoinHost) { h.Status.Power = &infrav1.HostPower{State: "On"} }, false, "", ""},
		"off": {func(h *infrav1.QuoinHost) { h.Status.Power = &infrav1.HostPower{State: "Off"} }, true, "powered off",
			"powered off"},
		"detached": {func(h *infrav1.QuoinHost) { note(h, infrav1.DetachedAnnotation) }, true, "detached", "detached"},
		"paused":   {func(h *infrav1.QuoinHost) { note(h, clusterv1.PausedAnnotation) }, true, "paused", "paused"},
		"maintained": {func(h *infrav1.QuoinHost) { h.Spec.Maintenance = &infrav1.Maintenance{} }, true, "in maintenance",
			"in maintenance"},
		"silent":        {unreachable, false, "unreachable", ""},
		"seems silent":  {unreachable, true, "", ""},
		"of no machine": {nil, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, lists := NewWithT(t), &Lists{hostsByKey: map[client.ObjectKey]*infrav1.QuoinHost{}}
			infra := infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			infra.Spec.ProviderID = infrav1.ProviderID("hosts", "h", "1")
			lists.quoinMachines = []infrav1.QuoinMachine{{}, infra}
			if test.change != nil {
				host := &infrav1.QuoinHost{}
				test.change(host)
				lists.hostsByKey[client.ObjectKey{Namespace: "hosts", Name: "h"}] = host
				g.Expect(Unavailable(host)).To(Equal(test.will))
			}
			unfit := lists.unfitHosts(map[string]bool{"m": test.well})
			if test.unfit == "" {
				g.Expect(unfit).To(BeEmpty())
			} else {
				g.Expect(unfit).To(Equal(map[string]string{"m": test.unfit}))
			}
		})
	}
}

func note(object client.Object, annotation string) {
	object.SetAnnotations(map[string]string{annotation: ""})
}

func unreachable(h *infrav1.QuoinHost) {
	h.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReachableCondition, Status: metav1.ConditionFalse,
		Reason: "Silent"}}
}
