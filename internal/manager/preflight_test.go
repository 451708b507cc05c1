// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// looksAhead has PreflightChecks made of a Cluster whose API server is the one of the test itself: what they read of
// it, nodes, webhooks and metrics, a real one answers.
func looksAhead(t *testing.T, c client.Client, config *rest.Config) {
	g := NewWithT(t)
	e := newEstate(t, c, "preflight")
	check := func(name, cluster string, skip ...quoinv1.SkippedCheck) *quoinv1.PreflightCheck {
		return &quoinv1.PreflightCheck{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name},
			Spec: quoinv1.PreflightCheckSpec{ClusterName: cluster, Version: "v1.36.3", Skip: skip}}
	}
	conditionOf := func(check *quoinv1.PreflightCheck) func() (*metav1.Condition, error) {
		return func() (*metav1.Condition, error) {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(check), check)
			return ptr.To(ptr.Deref(conditions.Get(check, quoinv1.PreflightCheckCompletedCondition), metav1.Condition{})), err
		}
	}

	g.Expect(c.Create(t.Context(), check("mistyped", "preflight", quoinv1.SkippedCheck{Name: "Etcdd", Reason: "none"}))).
		To(MatchError(ContainSubstring(`Unsupported value: "Etcdd"`)))
	g.Expect(c.Create(t.Context(), check("unreasoned", "preflight", quoinv1.SkippedCheck{Name: "Etcd"}))).
		To(MatchError(ContainSubstring("reason")))

	nobody := check("nobody", "nobody")
	g.Expect(c.Create(t.Context(), nobody)).To(Succeed())
	g.Eventually(conditionOf(nobody), "20s").Should(HaveField("Reason", quoinv1.ClusterNotFoundReason))

	early := check("early", "preflight")
	g.Expect(c.Create(t.Context(), early)).To(Succeed())
	g.Eventually(conditionOf(early), "20s").Should(HaveField("Reason", quoinv1.WaitingForControlPlaneInitializedReason))
	before := early.DeepCopy()
	early.Spec.Version = "v1.36.4"
	g.Expect(c.Patch(t.Context(), early, client.MergeFrom(before))).
		To(MatchError(ContainSubstring("a PreflightCheck is one look at a Cluster and never changes: make another one")))

	// The Cluster comes up, and what waited for it is looked at.
	for _, machine := range e.machines {
		machine.Spec.Version = "v1.35.4"
		g.Expect(c.Update(t.Context(), machine)).To(Succeed())
	}
	g.Expect(c.Create(t.Context(), kubeconfigOf(t, e.cluster, config))).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(e.cluster), e.cluster)).To(Succeed())
	e.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "QuoinControlPlane", Name: "cp"}
	g.Expect(c.Update(t.Context(), e.cluster)).To(Succeed())
	e.cluster.Status.Initialization = clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true),
		ControlPlaneInitialized: ptr.To(true)}
	g.Expect(c.Status().Update(t.Context(), e.cluster)).To(Succeed())
	g.Eventually(conditionOf(early), "1m").Should(HaveField("Status", metav1.ConditionTrue), func() string {
		return fmt.Sprintf("%+v", early.Status)
	})
	g.Expect(early.Status.Verdict).To(Equal(quoinv1.VerdictBlock))
	g.Expect(early.OwnerReferences).To(ConsistOf(HaveField("UID", e.cluster.UID)))
	g.Expect(early.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "preflight"))
	passed := conditions.Get(early, quoinv1.PreflightCheckPassedCondition)
	g.Expect(passed.Status).To(Equal(metav1.ConditionFalse))
	g.Expect(passed.Reason).To(Equal(quoinv1.BlockedReason))
	g.Expect(passed.Message).To(ContainSubstring("ControlPlane: QuoinControlPlane cp: AddonsUpToDate is not reported"))

	// Nothing but the cluster's own reports is missing: whoever skips that may go on.
	skipped := check("skipped", "preflight", quoinv1.SkippedCheck{Name: "ControlPlane", Reason: "nothing reports here"},
		quoinv1.SkippedCheck{Name: "Supply", Reason: "no hosts are here"},
		quoinv1.SkippedCheck{Name: "Webhooks", Reason: "they are ours"})
	e.read(t, metav1.Now().Time)
	g.Expect(c.Create(t.Context(), skipped)).To(Succeed())
	g.Eventually(conditionOf(skipped), "1m").Should(HaveField("Status", metav1.ConditionTrue))
	g.Expect(skipped.Status.Verdict).To(Equal(quoinv1.VerdictWarn), "%+v", skipped.Status.Checks)
	verdicts := map[string]quoinv1.Verdict{}
	for _, result := range skipped.Status.Checks {
		verdicts[result.Name] = result.Verdict
	}
	g.Expect(verdicts).To(Equal(map[string]quoinv1.Verdict{"Artifacts": quoinv1.VerdictPass, "Backup": quoinv1.VerdictWarn,
		"Management": quoinv1.VerdictWarn, "Network": quoinv1.VerdictWarn, "Volumes": quoinv1.VerdictPass,
		"Certificates": quoinv1.VerdictPass, "Connectivity": quoinv1.VerdictPass,
		"ControlPlane": quoinv1.VerdictSkipped, "DeprecatedAPIs": quoinv1.VerdictPass,
		"Disruption": quoinv1.VerdictPass, "Etcd": quoinv1.VerdictPass, "Nodes": quoinv1.VerdictPass,
		"Supply": quoinv1.VerdictSkipped, "VersionPath": quoinv1.VerdictPass, "Webhooks": quoinv1.VerdictSkipped}))
	passed = conditions.Get(skipped, quoinv1.PreflightCheckPassedCondition)
	g.Expect(passed.Status).To(Equal(metav1.ConditionTrue))
	g.Expect(passed.Reason).To(Equal(quoinv1.PassedWithWarningsReason))
	g.Expect(passed.Message).To(HaveSuffix("skipped: ControlPlane, Supply, Webhooks"))
}

// kubeconfigOf is the Secret by which a Cluster is reached, here the API server of the test.
func kubeconfigOf(t *testing.T, cluster *clusterv1.Cluster, config *rest.Config) *corev1.Secret {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: config.CertData,
			ClientKeyData: config.KeyData}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return kubeconfig.GenerateSecret(cluster, data)
}
