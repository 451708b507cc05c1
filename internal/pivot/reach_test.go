// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// hostAt is a QuoinHost of which the source says that it reaches it; nothing where the status is empty.
func hostAt(name, address string, reachable metav1.ConditionStatus) infrav1.QuoinHost {
	host := infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrav1.QuoinHostSpec{Address: address,
		HostKeys: []string{"ssh-ed25519 AAAA"}}}
	if reachable != "" {
		host.Status.Conditions = []metav1.Condition{{Type: infrav1.HostReachableCondition, Status: reachable}}
	}
	return host
}

func TestEachAddressIsAskedOnce(t *testing.T) {
	g := NewWithT(t)
	bastion := &infrav1.Bastion{Address: "192.0.2.1", Port: 2222, HostKeys: []string{"ssh-ed25519 BBBB"}}
	behind := []infrav1.QuoinHost{hostAt("b1", "10.0.0.1", metav1.ConditionFalse), hostAt("b2", "10.0.0.2",
		metav1.ConditionTrue)}
	for i := range behind {
		behind[i].Spec.Bastion = bastion
	}
	direct := hostAt("d", "2001:db8::7", "")
	direct.Spec.HostCertificateAuthorities = []string{"ssh-ed25519 CCCC"}
	direct.Spec.BMC = &infrav1.BMC{Address: "https://[2001:db8::8]/"}
	other := hostAt("o", "10.0.0.9", metav1.ConditionFalse)
	other.Spec.BMC = &infrav1.BMC{Address: "https://bmc.test:8443"}
	template := func(name string, bundle *infrav1.Bundle) infrav1.QuoinMachineTemplate {
		o := infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec.Template.Spec.Artifacts.Bundle = bundle
		return o
	}
	const push = infrav1.BundleDeliveryPush
	plane := func(name, endpoint, proxy string) controlplanev1.QuoinControlPlane {
		o := controlplanev1.QuoinControlPlane{ObjectMeta: metav1.ObjectMeta{Name: name}}
		o.Spec.Backup = &controlplanev1.EtcdBackup{Store: controlplanev1.BackupStore{
			S3: &controlplanev1.BackupBucket{Endpoint: endpoint, Proxy: proxy}}}
		return o
	}
	found := Ways(append(behind, direct, other),
		[]controlplanev1.QuoinControlPlane{plane("cp", "https://s3.test", ""), plane("cq", "https://s3.test", ""),
			plane("cr", "https://s3.test", "http://proxy.test:3128"), {}},
		[]infrav1.QuoinMachineTemplate{
			template("fetched", &infrav1.Bundle{Location: "http://fetched.test/{{version}}"}),
			template("folder", &infrav1.Bundle{Location: "/opt/{{version}}", Delivery: push}),
			template("plain", &infrav1.Bundle{Location: "http://bundles.test/{{version}}", Delivery: push}),
			template("proxied", &infrav1.Bundle{Location: "https://b.test/{{version}}", Delivery: push,
				Proxy: "http://proxy.test:3128/"}),
			template("odd", &infrav1.Bundle{Location: "https://{{version}}.test/", Delivery: push}), template("none", nil)})
	var lines []string
	for _, way := range found {
		lines = append(lines, fmt.Sprintf("%s host=%t answers=%t ssh=%t service=%t keys=%d %d", way, way.Host, way.Answers,
			way.SSH, way.Service, len(way.HostKeys), len(way.Authorities)))
	}
	g.Expect(lines).To(Equal([]string{
		"bastion of QuoinHost b1, bastion of QuoinHost b2 (192.0.2.1 port 2222) host=true answers=true ssh=true " +
			"service=false keys=1 0",
		"QuoinHost d (2001:db8::7 port 22) host=true answers=true ssh=true service=false keys=1 1",
		"QuoinHost o (10.0.0.9 port 22) host=true answers=false ssh=true service=false keys=1 0",
		"BMC of QuoinHost d (2001:db8::8 port 443) host=false answers=false ssh=false service=false keys=0 0",
		"BMC of QuoinHost o (bmc.test port 8443) host=false answers=false ssh=false service=false keys=0 0",
		"bundles of QuoinMachineTemplate plain (bundles.test port 80) host=false answers=false ssh=false service=false " +
			"keys=0 0",
		"bundles of QuoinMachineTemplate proxied (proxy.test port 3128) host=false answers=false ssh=false service=false " +
			"keys=0 0",
		"object store of QuoinControlPlane cp, object store of QuoinControlPlane cq (s3.test port 443) host=false " +
			"answers=false ssh=false service=true keys=0 0",
		"object store of QuoinControlPlane cr (proxy.test port 3128) host=false answers=false ssh=false service=true " +
			"keys=0 0",
	}))
	many := Way{To: []string{"QuoinHost a", "QuoinHost b", "QuoinHost c", "QuoinHost d"}, Look: Look{Address: "h",
		Port: 22}}
	g.Expect(many.String()).To(Equal("QuoinHost a, QuoinHost b, QuoinHost c and 1 more (h port 22)"))
}

// One line of the table for each way: two hosts that the source reaches, one that it does not, and a BMC.
func TestWhatTheTargetDoesNotReach(t *testing.T) {
	const passed, warning, failed = Passed, Warning, Failed
	ways := Ways([]infrav1.QuoinHost{hostAt("a", "10.0.0.1", metav1.ConditionTrue), hostAt("b", "10.0.0.2",
		metav1.ConditionUnknown),
		hostAt("s", "10.0.0.3", metav1.ConditionFalse)}, nil, nil)
	bmc := Way{To: []string{"BMC of QuoinHost a"}, Look: Look{Address: "10.1.0.1", Port: 443}}
	for name, c := range map[string]struct {
		ways         []Way
		answer       *Answer
		unasked      string
		hosts, other Result
		says         []string
	}{
		"nothing is there": {hosts: passed, other: passed, says: []string{"there are none"}},
		"all are": {ways: append(ways, bmc), answer: &Answer{Looks: 4}, hosts: passed, other: passed,
			says: []string{"by 3 addresses", "by 1 addresses"}},
		"nobody was asked": {ways: append(ways, bmc), unasked: "no node", hosts: warning, other: warning,
			says: []string{"not asked: no node"}},
		"one that the source reaches": {ways: append(ways, bmc), answer: ptr.To(NewAnswer([]string{"refused", "", "", ""})),
			hosts: failed, other: passed, says: []string{"1 of 3 addresses are not: QuoinHost a (10.0.0.1 port 22): refused;",
				"--skip hosts=<"}},
		"one of which nothing is known": {ways: ways, answer: ptr.To(NewAnswer([]string{"", "another host key", ""})),
			hosts: failed, other: passed, says: []string{"QuoinHost b (10.0.0.2 port 22): another host key"}},
		"one that the source does not reach either": {ways: ways, answer: ptr.To(NewAnswer([]string{"", "", "no answer"})),
			hosts: warning, other: passed, says: []string{"QuoinHost s (10.0.0.3 port 22): no answer, and the source does not"}},
		"a BMC": {ways: append(ways, bmc), answer: ptr.To(NewAnswer([]string{"", "", "", "no answer"})), hosts: passed,
			other: warning,
			says:  []string{"BMC of QuoinHost a (10.1.0.1 port 443): no answer"}},
		"more than were named": {ways: append(ways, bmc), answer: &Answer{Looks: 4, Failed: 2,
			Faults: []Fault{{Why: "no answer", Looks: []int{0}}}}, hosts: failed, other: warning,
			says: []string{"2 of 3 addresses are not: QuoinHost a (10.0.0.1 port 22): no answer; and 1 more;"}},
		"BMCs more than were named": {ways: append(ways, bmc, bmc), answer: &Answer{Looks: 5, Failed: 2,
			Faults: []Fault{{Why: "no answer", Looks: []int{3}}}}, hosts: passed, other: warning,
			says: []string{"2 of 2 addresses are not: BMC of QuoinHost a (10.1.0.1 port 443): no answer; and 1 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			checks := Preflight(Facts{Reach: Reach{Ways: c.ways, Answer: c.answer, Unasked: c.unasked}})
			checks = checks[len(checks)-2:]
			g.Expect(checks[0].Name).To(Equal("Hosts are reached from the target"))
			g.Expect([]Result{checks[0].Result, checks[1].Result}).To(Equal([]Result{c.hosts, c.other}), "%v", checks)
			for _, text := range c.says {
				g.Expect(checks[0].Message + "\n" + checks[1].Message).To(ContainSubstring(text))
			}
		})
	}
}

func TestOnlyHostsAreSkippedAndWithAReason(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Wish{}.Unskippable()).To(BeEmpty())
	g.Expect(Wish{Skip: map[string]string{"hosts": "they are behind a VPN"}}.Unskippable()).To(BeEmpty())
	g.Expect(Wish{Skip: map[string]string{"hosts": ""}}.Unskippable()).To(ContainSubstring("hosts=<why"))
	g.Expect(Wish{Skip: map[string]string{"nodes": "x"}}.Unskippable()).To(ContainSubstring(`no check "nodes"`))
}

func TestAQuestionArrivesAsItIs(t *testing.T) {
	g := NewWithT(t)
	q := Question{Services: []string{"10.96.0.0/12"}, Looks: []Look{
		{Address: "$(POD_NAME).test", Port: 22, SSH: true, HostKeys: []string{"ssh-ed25519 AAAA"}, Name: "h"},
		{Address: "a", Port: 1, Service: true}}}
	arguments, err := q.Arguments()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(arguments).To(HaveLen(3))
	g.Expect(arguments).NotTo(ContainElement(ContainSubstring("$")), "a kubelet would put something in its place")
	g.Expect(ParseQuestion(arguments)).To(Equal(q))
	_, err = ParseQuestion([]string{"--verbose"})
	g.Expect(err).To(MatchError(ContainSubstring("--verbose")))
}

func TestAnAnswerHasRoom(t *testing.T) {
	g := NewWithT(t)
	why := make([]string, 2000)
	for i := range why {
		if i%2 == 1 {
			why[i] = fmt.Sprintf("reason %d", i%6) // one after the other, so that each reason has early and late looks
		}
	}
	a := NewAnswer(why)
	message, err := a.Message()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(message)).To(And(BeNumerically("<=", 4096), BeNumerically(">", 4000)))
	g.Expect(NewAnswer(why)).To(Equal(a), "the answer itself is whole")
	read, err := ParseAnswer(string(message), len(why))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(read.Failed).To(Equal(1000))
	named := read.why()
	var last int
	for look, says := range named {
		g.Expect(says).To(Equal(why[look]))
		last = max(last, look)
	}
	g.Expect(named).To(HaveLen((last+1)/2), "the first ones")
	g.Expect(len(named)).To(BeNumerically(">", 700))

	for i := range why {
		why[i] = strings.Repeat(fmt.Sprintf("%04d", i), 50)
	}
	message, err = NewAnswer(why).Message()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(message)).To(BeNumerically("<=", 4096))
	read, err = ParseAnswer(string(message), len(why))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(read.Faults)).To(And(BeNumerically(">", 15), BeNumerically("<", 20)))

	for _, wrong := range []string{"", "E1126 no configuration has been provided", `{"looks":3}`,
		`{"looks":2000,"failed":1,"faults":[{"why":"x","looks":[2000]}]}`,
		`{"looks":2000,"faults":[{"why":"x","looks":[-1]}]}`} {
		_, err := ParseAnswer(wrong, 2000)
		g.Expect(err).To(HaveOccurred(), wrong)
	}
}

func managerDeployment() *appsv1.Deployment {
	labels := map[string]string{"control-plane": "controller-manager", "cluster.x-k8s.io/provider": "infrastructure-quoin"}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("healthz")}}}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "quoin", Name: "m", Labels: labels},
		Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"networks": "hosts"}},
			Spec: corev1.PodSpec{ServiceAccountName: "manager", PriorityClassName: "system-cluster-critical",
				NodeSelector: map[string]string{"zone": "a"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
				Tolerations:               []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane"}},
				TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "kubernetes.io/hostname"}},
				InitContainers:            []corev1.Container{{Name: "first"}},
				Volumes:                   []corev1.Volume{{Name: "cert"}},
				Containers: []corev1.Container{{Name: "sidecar"}, {Name: "manager", Image: "manager:v1",
					Command:       []string{"/manager"},
					Args:          []string{"--leader-elect", "--allowed-networks=10.0.0.0/8"},
					Ports:         []corev1.ContainerPort{{Name: "webhook-server"}},
					LivenessProbe: probe, ReadinessProbe: probe, StartupProbe: probe, Lifecycle: &corev1.Lifecycle{},
					VolumeMounts:    []corev1.VolumeMount{{Name: "cert"}},
					SecurityContext: &corev1.SecurityContext{RunAsUser: ptr.To[int64](65532)}}},
			}}}}
}

// A Pod that asks is where the manager's Pods are, and in none of their places.
func TestThePodThatAsks(t *testing.T) {
	g := NewWithT(t)
	manager := managerDeployment()
	pod, err := ReachPod(manager, "prod", Question{Looks: []Look{{Address: "a", Port: 1}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(manager).To(Equal(managerDeployment()), "it is a copy")
	g.Expect(pod.Namespace + "/" + pod.Name).To(Equal("quoin/quoin-reach-prod"))
	g.Expect(pod.Labels).To(Equal(manager.Spec.Template.Labels), "a NetworkPolicy selects it as the managers")
	g.Expect(pod.Annotations).To(HaveKey("networks"))
	spec := pod.Spec
	g.Expect(spec.Containers).To(HaveLen(1))
	container := spec.Containers[0]
	g.Expect(container.Args).To(Equal([]string{"--leader-elect", "--allowed-networks=10.0.0.0/8", "reach", "{}",
		`{"looks":[{"address":"a","port":1}]}`}))
	g.Expect(container.Image).To(Equal("manager:v1"))
	g.Expect(container.SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(65532)))
	g.Expect([]any{spec.NodeSelector, spec.ImagePullSecrets, spec.Tolerations,
		spec.ServiceAccountName}).To(HaveEach(Not(BeEmpty())))

	g.Expect(spec.RestartPolicy).To(Equal(corev1.RestartPolicyNever))
	g.Expect(spec.ActiveDeadlineSeconds).To(HaveValue(BeEquivalentTo(300)))
	g.Expect(spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	g.Expect(spec.ReadinessGates).To(HaveLen(1), "a Service leads to what is ready")
	g.Expect(container.Ports).To(BeEmpty(), "and by the name of its port")
	g.Expect([]any{spec.Volumes, container.VolumeMounts, spec.InitContainers, spec.TopologySpreadConstraints,
		spec.PriorityClassName}).
		To(HaveEach(BeEmpty()))
	g.Expect([]any{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe,
		container.Lifecycle}).To(HaveEach(BeNil()))

	other := *manager
	other.Labels = map[string]string{"cluster.x-k8s.io/provider": "control-plane-quoin"}
	g.Expect(Asker([]appsv1.Deployment{other, *manager})).To(Equal(manager))
	g.Expect(Asker([]appsv1.Deployment{other})).To(BeNil())
	g.Expect(Facts{}.Unaskable()).To(ContainSubstring("no manager"))
	f := Facts{Reach: Reach{Manager: manager}}
	g.Expect(f.Unaskable()).To(ContainSubstring("no node"))
	f.Nodes = []corev1.Node{{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
		Status: corev1.ConditionTrue}}}}}
	g.Expect(f.Unaskable()).To(BeEmpty())
}

func TestWhatAPodLeavesAndWaitsFor(t *testing.T) {
	g := NewWithT(t)
	pod := func(phase corev1.PodPhase, states ...corev1.ContainerState) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager"}}},
			Status: corev1.PodStatus{Phase: phase}}
		for i, state := range states {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: []string{"manager", "injected"}[i], Image: "manager:v1", State: state})
		}
		return p
	}
	left := func(p *corev1.Pod) string {
		message, ended := Left(p)
		return fmt.Sprintf("%t %s", ended, message)
	}
	over := func(message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, Reason: "OOMKilled",
			ExitCode: 137}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	g.Expect(left(pod(corev1.PodPending))).To(Equal("false "))
	g.Expect(left(pod(corev1.PodRunning, running, over("x")))).To(Equal("false "))
	g.Expect(left(pod(corev1.PodRunning, over("answer"), running))).To(Equal("true answer"),
		"what a mesh injects does not end")
	g.Expect(left(pod(corev1.PodFailed, over("")))).To(Equal("true OOMKilled, exit code 137"))
	evicted := pod(corev1.PodFailed)
	evicted.Status.Reason, evicted.Status.Message = "Evicted", "no room"
	g.Expect(left(evicted)).To(Equal("true Evicted: no room"))

	g.Expect(Awaits(pod(corev1.PodPending))).To(Equal("nobody has started it"))
	g.Expect(Awaits(pod(corev1.PodRunning, running))).To(ContainSubstring("does not end"))
	waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}
	g.Expect(Awaits(pod(corev1.PodPending, corev1.ContainerState{Waiting: waiting}))).To(Equal("image manager:v1, ImagePullBackOff: not found"))
	full := pod(corev1.PodPending)
	full.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason:  "Unschedulable",
		Message: "0/1 nodes are available"}}
	g.Expect(Awaits(full)).To(Equal("Unschedulable: 0/1 nodes are available"))
}
