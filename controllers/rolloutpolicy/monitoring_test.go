// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rolloutpolicy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var (
	series  = regexp.MustCompile(`quoin_rollout_\w+`)
	grouped = regexp.MustCompile(`by \(([^)]*)\)`)
	matched = regexp.MustCompile(`(\w+)(?:=~|!=|!~|=)"`)
	// Reasons are constants of package rollout, some of which are named by the API, as are those of conditions.
	reason = regexp.MustCompile(`\bReason = (?:"(\w+)"|quoinv1\.(\w+))`)
	named  = regexp.MustCompile(`quoinv1\.(\w+Reason)\b`)
	values = regexp.MustCompile(`(?m)^\s(\w+Reason)\s*= (?:"(\w+)"|clusterv1\.(\w+)Reason)$`)
	// said are the reasons for which the text of an alert says what to do.
	said = regexp.MustCompile(`\b([A-Z]\w+): [a-z]{3,}`)
)

// unalerted are the reasons for which no alert names what to do, by why none does.
var unalerted = map[string][]string{
	"it is well, or goes on by itself": {"Canary", "Next", "NoRollout", "Replacement", "Validated", "WaitingForPrevious",
		"InFlight", "MaxSurge", "NextToLeave", "LeavesLater", "Outdated", "Selected", "Soaking", "RollingOut", "UpToDate",
		"MaxUnavailable", "Tainting", "Interval", "PostDrainDelay", "DrainStarted", "Drained", "NoNode", "NotDrained",
		"DrainTimeout", "ScheduledForUpdate", "NotScheduledForUpdate", "Remediated", "ReplacementFirst", "OnTime",
		"NoConflict", "NothingRolledBack"},
	"what takes too long of it is a reason of Stalled": {"Provisioning", "NotHealthy", "Evicting", "Validating",
		"NoMachineMade"},
	"a failure domain takes hours to leave; its drains are reasons of Stalled, its hosts say what ails them": {
		"WaitingForWave"},
	"an upgrade of a control plane takes hours; conditions of the Cluster say what ails it": {
		"ControlPlane"},
	"a person wishes it so": {
		"Suspended", "DrainAndTerminateFalse", "Paused", "WindowClosed"},
	"it sums MachineDeployments up, whose reasons are here": {"Held"},
	"an alert is for nothing else, by a metric of its own":  {"RolledBack", "RollbackRefused"},
}

// labelsOf are what each metric has; those of a histogram are known by its series.
func labelsOf(t *testing.T, w *world) map[string][]string {
	t.Helper()
	has := map[string][]string{}
	families, err := metrics.Registry.Gather()
	w.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "quoin_rollout_") {
			continue
		}
		var labels []string
		for _, label := range family.Metric[0].Label {
			labels = append(labels, label.GetName())
		}
		has[family.GetName()] = labels
		if family.Metric[0].Histogram != nil {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				has[family.GetName()+suffix] = append(slices.Clone(labels), "le")
			}
		}
	}
	return has
}

// shown is a world of which every metric has something to say.
func shown(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, machineOf("new-0", "v2"), machineOf("new-1", "v2"), hostedBy("new-0", ""), hostedBy("new-1", ""))
	w.reconcile()
	w.clock.Step(60e9)
	w.joins("new-0")
	w.reconcile()
	t.Cleanup(func() { forgetMetrics(namespace, "c1") })
	return w
}

// What people see of a rollout in a process is what its policy says, and is gone with that.
func TestMetrics(t *testing.T) {
	w := shown(t)
	of := func(state string) float64 {
		return testutil.ToFloat64(machinesOf.WithLabelValues(namespace, "c1", "blue", state))
	}
	w.Expect([]float64{of("outdated"), of("held"), of("in_flight"), of("done")}).To(Equal([]float64{2, 1, 1, 0}))
	w.Expect(testutil.ToFloat64(info.WithLabelValues(namespace, "c1", "blue", "RollingOut"))).To(Equal(1.0))
	w.Expect(testutil.ToFloat64(stalled.WithLabelValues(namespace, "c1"))).To(Equal(0.0))
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.reconcile()
	w.Expect(testutil.CollectAndCount(machinesOf)).To(Equal(0))
	w.Expect(testutil.CollectAndCount(stalled)).To(Equal(0))
}

// A policy that is not kept is seen as long as it is there, with the reason that its condition has.
func TestMetricsOfAPolicyThatIsNotKept(t *testing.T) {
	w := newWorld(t, policyOf("another", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
	problems := func() (all []string) {
		w.reconcile()
		families, err := metrics.Registry.Gather()
		w.Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			if family.GetName() != "quoin_rollout_policy_problem" {
				continue
			}
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					if label.GetName() == "rollout_policy" || label.GetName() == "reason" {
						all = append(all, label.GetValue())
					}
				}
			}
		}
		return all
	}
	w.Expect(problems()).To(Equal([]string{quoinv1.AnotherPolicyReason, "another"}))
	w.Expect(w.client.Delete(t.Context(), w.policy())).To(Succeed())
	w.Expect(problems()).To(BeEmpty(), "the other one holds now")

	left := &quoinv1.RolloutPolicy{}
	w.Expect(w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "another"}, left)).To(Succeed())
	left.Spec.Groups = []quoinv1.RolloutGroup{{Name: "blue", MachineDeployments: quoinv1.RolloutSelector{
		Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}}}}
	w.Expect(w.client.Update(t.Context(), left)).To(Succeed())
	w.Expect(problems()).To(Equal([]string{quoinv1.SelectorInvalidReason, "another"}))
	w.Expect(w.client.Delete(t.Context(), left)).To(Succeed())
	w.Expect(problems()).To(BeEmpty())
}

// What keeps a policy from its order is no other metric's; while it leads nothing that is what it says.
func TestTheProblemOfAPolicy(t *testing.T) {
	g, policy := NewWithT(t), &quoinv1.RolloutPolicy{}
	for _, step := range []struct{ progressing, conflict, want string }{
		{quoinv1.HeldReason, quoinv1.NoConflictReason, ""},
		{quoinv1.RollingOutReason, quoinv1.TopologyOrderReason, quoinv1.TopologyOrderReason},
		{quoinv1.ClusterNotFoundReason, quoinv1.NoConflictReason, quoinv1.ClusterNotFoundReason},
		{quoinv1.AnotherPolicyReason, quoinv1.TopologyOrderReason, quoinv1.AnotherPolicyReason},
		{quoinv1.SelectorInvalidReason, quoinv1.NoConflictReason, quoinv1.SelectorInvalidReason},
	} {
		policy.Status.Conditions = []metav1.Condition{
			{Type: quoinv1.RolloutPolicyProgressingCondition, Status: metav1.ConditionFalse, Reason: step.progressing},
			{Type: quoinv1.RolloutPolicyOrderConflictCondition, Reason: step.conflict, Status: map[bool]metav1.ConditionStatus{
				true: metav1.ConditionTrue, false: metav1.ConditionFalse}[step.conflict == quoinv1.TopologyOrderReason]},
		}
		g.Expect(problemOf(policy)).To(Equal(step.want))
	}
}

// Nobody is called for a rollout that a person paused, whatever it waited for, until that is taken back.
func TestWhatIsPausedIsNotStalled(t *testing.T) {
	w := newWorld(t, machineOf("new-0", "v2"), hostedBy("new-0", ""))
	t.Cleanup(func() { forgetMetrics(namespace, "c1") })
	policy := w.policy()
	w.adjust(policy, func() { policy.Spec.DeadlineSeconds = ptr.To[int32](60) })
	w.reconcile()
	w.clock.Step(time.Minute)
	is := func() float64 {
		w.reconcile()
		return testutil.ToFloat64(stalled.WithLabelValues(namespace, "c1"))
	}
	w.Expect(is()).To(Equal(1.0))
	w.adjust(policy, func() { metav1.SetMetaDataAnnotation(&policy.ObjectMeta, clusterv1.PausedAnnotation, "") })
	w.recorded()
	w.Expect(is()).To(Equal(0.0))
	w.Expect(w.recorded()).To(ConsistOf(HavePrefix("Normal Paused paused since")))
	w.adjust(policy, func() { policy.Annotations = nil })
	w.Expect(is()).To(Equal(1.0))
}

// Whatever alert rules, dashboard and documentation name there is, and the other way round. It is no parser of PromQL,
// whose module is many times as large as all of this: brackets, metrics and labels are looked at.
func TestWhatIsMonitoredExists(t *testing.T) {
	w := shown(t)
	w.clock.Step(60e9)
	w.reconcile()
	machineSeconds.WithLabelValues(namespace, "c1").Observe(1)
	problems.WithLabelValues(namespace, "c1", "another", quoinv1.AnotherPolicyReason).Set(1)
	t.Cleanup(func() { measureProblems(client.ObjectKey{Namespace: namespace, Name: "c1"}, nil) })
	has := labelsOf(t, w)
	w.Expect(has).To(HaveKey("quoin_rollout_expected_end_timestamp_seconds"))
	var used []string
	for from, expr := range expressions(w) {
		w.Expect(balanced(expr)).To(BeTrue(), from)
		names := series.FindAllString(expr, -1)
		w.Expect(names).NotTo(BeEmpty(), from)
		var labels []string
		for _, name := range names {
			w.Expect(has).To(HaveKey(name), from)
			labels = append(labels, has[name]...)
		}
		used = append(used, names...)
		for _, by := range grouped.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				w.Expect(labels).To(ContainElement(strings.TrimSpace(label)), from)
			}
		}
		for _, label := range matched.FindAllStringSubmatch(expr, -1) {
			w.Expect(labels).To(ContainElement(label[1]), from)
		}
	}
	for from, expr := range expressions(w) {
		for label, known := range map[string][]string{
			"reason": reasons(w), "state": {"outdated", "held", "in_flight", "done"},
		} {
			for _, match := range regexp.MustCompile(label+`(?:=~|!=|!~|=)"([^"]*)"`).FindAllStringSubmatch(expr, -1) {
				w.Expect(known).To(ContainElements(strings.Split(match[1], "|")), from)
			}
		}
	}
	docs, err := os.ReadFile("../../docs/rollouts.md")
	w.Expect(err).NotTo(HaveOccurred())
	for name := range has {
		if base := strings.TrimSuffix(name, "_bucket"); !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			w.Expect(string(docs)).To(ContainSubstring("`" + base + "`"))
		}
	}
	for _, name := range series.FindAllString(string(docs), -1) {
		w.Expect(has).To(HaveKey(name), "docs/rollouts.md")
	}
	w.Expect(used).NotTo(BeEmpty())
}

// Who is called reads what to do for each reason that there may be; for each other one it is written down why nobody is
// called.
func TestEveryReasonIsAlertedOrSaysWhyNot(t *testing.T) {
	w := newWorld(t)
	var alerted, quiet []string
	for _, group := range alerts(w).Spec.Groups {
		for _, rule := range group.Rules {
			for _, match := range said.FindAllStringSubmatch(rule.Annotations["description"], -1) {
				alerted = append(alerted, match[1])
			}
			for _, match := range regexp.MustCompile(`reason=~"([^"]*)"`).FindAllStringSubmatch(rule.Expr, -1) {
				alerted = append(alerted, strings.Split(match[1], "|")...)
			}
		}
	}
	for _, of := range unalerted {
		quiet = append(quiet, of...)
	}
	w.Expect(slices.Compact(slices.Sorted(slices.Values(slices.Concat(alerted, quiet))))).To(Equal(reasons(w)))
	for _, name := range quiet {
		w.Expect(alerted).NotTo(ContainElement(name))
	}
}

// reasons of MachineDeployments, Machines and conditions that there are, as they are written down, in order.
func reasons(w *world) (all []string) {
	w.t.Helper()
	of := map[string]string{}
	each(w, "../../api/quoin/v1alpha1", func(text string) {
		for _, found := range values.FindAllStringSubmatch(text, -1) {
			of[found[1]] = found[2] + found[3]
		}
	})
	each(w, "../../internal/rollout", func(text string) {
		for _, found := range reason.FindAllStringSubmatch(text, -1) {
			all = append(all, found[1]+of[found[2]])
		}
	})
	each(w, ".", func(text string) {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			w.Expect(of).To(HaveKey(found[1]))
			all = append(all, of[found[1]])
		}
	})
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	w.Expect(len(all)).To(BeNumerically(">", 40))
	w.Expect(all).NotTo(ContainElement(""))
	return all
}

// each has the text of every file of a package that is part of the product.
func each(w *world, folder string, has func(text string)) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	w.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // of this repository
		w.Expect(err).NotTo(HaveOccurred())
		has(string(text))
	}
}

// alertRules are an object of the Prometheus operator, as far as it is looked at.
type alertRules struct {
	Spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

func alerts(w *world) (rules alertRules) {
	w.t.Helper()
	raw, err := os.ReadFile("../../config/monitoring/rollout_alerts.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(yaml.Unmarshal(raw, &rules)).To(Succeed())
	return rules
}

// expressions of the alert rules and the dashboard, by where they are.
func expressions(w *world) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, group := range alerts(w).Spec.Groups {
		for _, rule := range group.Rules {
			all[rule.Alert] = rule.Expr
			w.Expect(rule.Labels).To(HaveKey("severity"), rule.Alert)
			w.Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description")), rule.Alert)
		}
	}
	raw, err := os.ReadFile("../../config/monitoring/rollout_dashboard.json")
	w.Expect(err).NotTo(HaveOccurred())
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	w.Expect(json.Unmarshal(raw, &dashboard)).To(Succeed())
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			all[fmt.Sprint(panel.Title, i)] = target.Expr
		}
	}
	w.Expect(len(all)).To(BeNumerically(">", 10))
	return all
}

// balanced reports whether all brackets and quotes of an expression are closed.
func balanced(expr string) bool {
	var open []rune
	quoted := false
	for _, r := range expr {
		switch {
		case r == '"':
			quoted = !quoted
		case quoted:
		case strings.ContainsRune("([{", r):
			open = append(open, r)
		case strings.ContainsRune(")]}", r):
			if len(open) == 0 || strings.IndexRune("([{", open[len(open)-1]) != strings.IndexRune(")]}", r) {
				return false
			}
			open = open[:len(open)-1]
		}
	}
	return len(open) == 0 && !quoted
}
