// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var (
	machinesOf = gauge("quoin_rollout_machines", "Number of Machines of each MachineDeployment that a RolloutPolicy "+
		"selects, by state: outdated, held, in_flight or done.", "machine_deployment", "state")
	info = gauge("quoin_rollout_info", "1 for each MachineDeployment that a RolloutPolicy selects, with the reason why "+
		"it is where it is.", "machine_deployment", "reason")
	stalled = gauge("quoin_rollout_stalled",
		"1 while a rollout does not go on by itself, as the condition Stalled says, else 0.")
	rolledBack = gauge("quoin_rollout_rolled_back", "1 while a template is there that was restored, else 0.")
	refused    = gauge("quoin_rollout_rollback_refused", "1 while a template that failed may not be restored, else 0.")
	endsAt     = gauge("quoin_rollout_expected_end_timestamp_seconds", "When the rollout will be done, by what was "+
		"measured; absent while that is not known.")
	problems = gauge("quoin_rollout_policy_problem", "1 for each RolloutPolicy that leads nothing, or in another order "+
		"than its own, with the reason of its condition.", "rollout_policy", "reason")
	machineSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quoin_rollout_machine_duration_seconds", Help: "How long new Machines took from their admission until they " +
			"counted.",
		Buckets: prometheus.ExponentialBuckets(30, 2, 12), // 30 s to 17 h
	}, []string{"namespace", "cluster"})

	gauges = []*prometheus.GaugeVec{machinesOf, info, stalled, rolledBack, refused, endsAt}
)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help},
		append([]string{"namespace", "cluster"}, labels...))
}

func init() {
	metrics.Registry.MustRegister(machinesOf, info, stalled, rolledBack, refused, endsAt, problems, machineSeconds)
}

// measure notes how far the rollouts of a Cluster are.
func measure(policy *quoinv1.RolloutPolicy) {
	namespace, cluster := policy.Namespace, policy.Spec.ClusterName
	forgetMetrics(namespace, cluster)
	for i := range policy.Status.MachineDeployments {
		of := &policy.Status.MachineDeployments[i]
		info.WithLabelValues(namespace, cluster, of.Name, of.Reason).Set(1)
		for state, count := range map[string]*int32{
			"outdated": of.Outdated, "held": of.Held, "in_flight": of.InFlight, "done": of.Done,
		} {
			machinesOf.WithLabelValues(namespace, cluster, of.Name, state).Set(float64(ptr.Deref(count, 0)))
		}
	}
	flag := func(gauge *prometheus.GaugeVec, is bool) {
		gauge.WithLabelValues(namespace, cluster).Set(map[bool]float64{true: 1}[is])
	}
	back := conditions.Get(policy, quoinv1.RolloutPolicyRolledBackCondition)
	flag(stalled, conditions.IsTrue(policy, quoinv1.RolloutPolicyStalledCondition))
	flag(rolledBack, back != nil && back.Reason == quoinv1.RolledBackReason)
	flag(refused, back != nil && back.Reason == quoinv1.RollbackRefusedReason)
	if policy.Status.ExpectedEnd != nil {
		endsAt.WithLabelValues(namespace, cluster).Set(float64(policy.Status.ExpectedEnd.Unix()))
	}
}

// measureProblems notes which of all policies of a Cluster are not kept. One that leads nothing is among them, so it is
// apart from what is measured of the one that leads.
func measureProblems(cluster client.ObjectKey, policies []quoinv1.RolloutPolicy) {
	problems.DeletePartialMatch(prometheus.Labels{"namespace": cluster.Namespace, "cluster": cluster.Name})
	for i := range policies {
		policy := &policies[i]
		if policy.Spec.ClusterName != cluster.Name || !policy.DeletionTimestamp.IsZero() {
			continue
		}
		if reason := problemOf(policy); reason != "" {
			problems.WithLabelValues(cluster.Namespace, cluster.Name, policy.Name, reason).Set(1)
		}
	}
}

// problemOf is the reason why a policy leads nothing, or not in its own order; it is empty when the policy is kept, and
// when a person paused it.
func problemOf(policy *quoinv1.RolloutPolicy) string {
	leads := conditions.GetReason(policy, quoinv1.RolloutPolicyProgressingCondition)
	switch leads {
	case quoinv1.AnotherPolicyReason, quoinv1.ClusterNotFoundReason, quoinv1.SelectorInvalidReason:
		return leads
	}
	if conditions.IsTrue(policy, quoinv1.RolloutPolicyOrderConflictCondition) {
		return conditions.GetReason(policy, quoinv1.RolloutPolicyOrderConflictCondition)
	}
	return ""
}

func forgetMetrics(namespace, cluster string) {
	for _, gauge := range gauges {
		gauge.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": cluster})
	}
}
