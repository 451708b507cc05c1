// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/reach"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// managers is the namespace of the target's manager.
const managers = "quoin-managers"

// staffed is a site whose target has a node and a manager, and whose hosts are servers of this machine: srv-2 shows
// another key than is pinned, where it is not sound.
func staffed(t *testing.T, namespace string, isSound bool) *site {
	t.Helper()
	s := newSite(t, namespace)
	ctx := t.Context()
	for _, name := range []string{"srv-1", "srv-2"} {
		server, err := sshtest.NewServer(sshtest.ServerOptions{})
		s.g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(server.Close)
		host := &infrav1.QuoinHost{}
		s.g.Expect(s.source.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, host)).To(Succeed())
		at := server.Target(nil)
		host.Spec.Address, host.Spec.Port = at.Address, int32(at.Port)
		host.Spec.HostKeys = []string{ssh.FormatHostKey(server.HostKey())}
		if name == "srv-2" && !isSound {
			host.Spec.HostKeys = []string{ssh.FormatHostKey(sshtest.NewKey().PublicKey())}
		}
		s.g.Expect(s.source.Client.Update(ctx, host)).To(Succeed())
	}
	s.g.Expect(client.IgnoreAlreadyExists(s.target.Client.Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managers}}))).To(Succeed())
	labels := map[string]string{clusterv1.ProviderNameLabel: "infrastructure-quoin"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-" + namespace}}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: managers, Name: "manager", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager",
				Image: "manager", Args: []string{"--allowed-networks=127.0.0.0/8"}}}}}}}
	for _, o := range []client.Object{node, manager} {
		s.g.Expect(s.target.Client.Create(ctx, o)).To(Succeed())
		t.Cleanup(func() { s.g.Expect(s.target.Client.Delete(context.Background(), o)).To(Succeed()) })
	}
	node.Spec.Taints = nil // admission waits for a kubelet
	s.g.Expect(s.target.Client.Update(ctx, node)).To(Succeed())
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.g.Expect(s.target.Client.Status().Update(ctx, node)).To(Succeed())
	return s
}

// pods are those of the target's manager.
func (s *site) pods() []corev1.Pod {
	list := &corev1.PodList{}
	s.g.Expect(s.target.Client.List(context.Background(), list, client.InNamespace(managers))).To(Succeed())
	return list.Items
}

// kubelet runs what Pods there would, in this process, until the test ends.
func (s *site) kubelet() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, pod := range s.pods() {
				if len(pod.Status.ContainerStatuses) == 0 {
					s.serve(ctx, &pod)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}

// serve a Pod. It may be deleted meanwhile.
func (s *site) serve(ctx context.Context, pod *corev1.Pod) {
	args := pod.Spec.Containers[0].Args
	if strings.Contains(strings.Join(args, " "), secretWord) {
		s.t.Errorf("a Pod has a Secret: %v", args)
	}
	at := slices.Index(args, pivot.ReachCommand)
	q, err := pivot.ParseQuestion(args[at+1:])
	if err != nil {
		s.t.Error(err)
	}
	networks := strings.TrimPrefix(args[0], "--allowed-networks=")
	answer, err := reach.Ask(ctx, q, []string{networks}, reach.Bounds{Each: 10 * time.Second, All: 20 * time.Second})
	if err != nil {
		s.t.Error(err)
	}
	message, err := answer.Message()
	if err != nil {
		s.t.Error(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: string(message)}}}}
	_ = s.target.Client.Status().Update(ctx, pod)
}

func (s *site) says() string { return strings.Join(s.lines, "\n") }

// A pivot does not begin where the target does not reach a host, unless a person says why that is right.
func TestHostsAreAskedFromTheTarget(t *testing.T) {
	s := staffed(t, "asked", false)
	s.kubelet()
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.Side == "source" {
			t.Errorf("nothing is done to the source: %s", w)
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(ErrRefused))
	s.g.Expect(err).To(MatchError(And(ContainSubstring("Hosts are reached from the target: 1 of 2 addresses are not: "+
		"QuoinHost srv-2"),
		ContainSubstring("another host key"), ContainSubstring("--skip hosts="))))
	s.g.Expect(s.acts(s.source)).To(BeTrue())
	s.g.Expect(s.pods()).To(BeEmpty())

	for fromTarget, result := range map[bool]pivot.Result{false: pivot.Warning, true: pivot.Failed} {
		var pods int
		sides := map[string]*Side{}
		for name, kubeconfig := range map[string]string{"source": s.source.Kubeconfig, "target": s.target.Kubeconfig} {
			sides[name], err = Connect(t.Context(), name, cluster.Kubeconfig{Path: kubeconfig}, func(w Write) error {
				s.g.Expect(fromTarget && w.Kind == "Pod").To(BeTrue(), "a preflight writes %s", w)
				pods++
				return nil
			})
			s.g.Expect(err).NotTo(HaveOccurred())
		}
		p := &Pivot{Source: sides["source"], Target: sides["target"], Namespace: s.namespace, Report: t.Logf}
		checks, err := p.Preflight(t.Context(), fromTarget)
		s.g.Expect(err).NotTo(HaveOccurred())
		s.g.Expect(checks[len(checks)-2].Result).To(Equal(result), "%v", checks)
		s.g.Expect(pods > 0).To(Equal(fromTarget))
	}
	s.g.Expect(s.pods()).To(BeEmpty())

	_, err = s.run(s.source, s.target, pivot.Wish{Skip: map[string]string{"hosts": ""}}, nil)
	s.g.Expect(err).To(MatchError(ErrRefused))
	s.lines = nil
	writes, err := s.run(s.source, s.target, pivot.Wish{Skip: map[string]string{"hosts": "srv-2 is rebuilt"}}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), s.says())
	s.g.Expect(s.says()).To(ContainSubstring("not asked: --skip says: srv-2 is rebuilt"))
	s.g.Expect(writes).NotTo(ContainElement(HaveField("Kind", "Pod")))
}

// Nobody is kept from moving by a Pod that does not run: that is said, and the Pod is gone.
func TestAPodThatNeverStartsIsAWarning(t *testing.T) {
	s := staffed(t, "never-starts", false)
	s.patience = time.Second
	_, err := s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), s.says())
	s.g.Expect(s.says()).To(ContainSubstring("warning: Hosts are reached from the target: not asked: " +
		"asking by Pod quoin-managers/quoin-reach-never-starts: no answer within 1s: nobody has started it"))
	s.g.Expect(s.pods()).To(BeEmpty())
	s.g.Expect(s.acts(s.target)).To(BeTrue())
}

// A command that was killed leaves its Pod, and the next one replaces it.
func TestAPodThatWasLeftIsReplaced(t *testing.T) {
	s := staffed(t, "left", true)
	s.kubelet()
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.Verb == "delete" && w.Kind == "Pod" {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(HaveOccurred())
	s.g.Expect(s.pods()).To(HaveLen(1))
	writes, err := s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), s.says())
	var pods []string
	for _, w := range writes {
		if w.Kind == "Pod" {
			pods = append(pods, w.Verb)
		}
	}
	s.g.Expect(pods).To(Equal([]string{"create", "delete", "create", "delete"}))
	s.g.Expect(s.says()).NotTo(ContainSubstring("warning: Hosts are"), "both are reached")
	s.g.Expect(s.pods()).To(BeEmpty())
}

// An interrupt ends the wait, and takes the Pod away.
func TestAnInterruptTakesThePodAway(t *testing.T) {
	s := staffed(t, "interrupted", true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sides := map[string]*Side{}
	for name, kubeconfig := range map[string]string{"source": s.source.Kubeconfig, "target": s.target.Kubeconfig} {
		side, err := Connect(ctx, name, cluster.Kubeconfig{Path: kubeconfig}, nil)
		s.g.Expect(err).NotTo(HaveOccurred())
		sides[name] = side
	}
	p := &Pivot{Source: sides["source"], Target: sides["target"], Namespace: s.namespace, Local: &s.local, Report: t.Logf}
	ended := make(chan error)
	go func() { ended <- p.Run(ctx, pivot.Wish{}) }()
	s.g.Eventually(s.pods).WithTimeout(20 * time.Second).Should(HaveLen(1))
	cancel()
	s.g.Eventually(ended).WithTimeout(20 * time.Second).Should(Receive(MatchError(context.Canceled)))
	s.g.Expect(s.pods()).To(BeEmpty())
	s.g.Expect(s.acts(s.source)).To(BeTrue())
}
