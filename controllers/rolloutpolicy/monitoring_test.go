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

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

var (
	series  = regexp.MustCompile(`quoin_rollout_\w+`)
	grouped = regexp.MustCompile(`by \(([^)]*)\)`)
	matched = regexp.MustCompile(`(\w+)(?:=~|!=|!~|=)"`)
	reason  = regexp.MustCompile(`\bReason = "(\w+)"`)
)

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

// Whatever alert rules, dashboard and documentation name there is, and the other way round. It is no parser of PromQL,
// whose module is many times as large as all of this: brackets, metrics and labels are looked at.
func TestWhatIsMonitoredExists(t *testing.T) {
	w := shown(t)
	w.clock.Step(60e9)
	w.reconcile()
	machineSeconds.WithLabelValues(namespace, "c1").Observe(1)
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

// Who is called because a rollout is stalled reads what to do for each reason that it may have.
func TestTheAlertSaysWhatToDo(t *testing.T) {
	w := newWorld(t)
	for _, group := range alerts(w).Spec.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "QuoinRolloutStalled" {
				continue
			}
			for _, reason := range []string{quoinv1.DeadlineExceededReason, quoinv1.DrainFailedReason,
				quoinv1.ValidationFailedReason, quoinv1.WillNotFitReason, quoinv1.WriteRefusedReason} {
				w.Expect(rule.Annotations["description"]).To(MatchRegexp(reason + ": [a-z]{3,}"))
			}
			return
		}
	}
	t.Fatal("there is no such alert")
}

// reasons that a MachineDeployment may have, as they are written down.
func reasons(w *world) (all []string) {
	w.t.Helper()
	files, err := filepath.Glob("../../internal/rollout/*.go")
	w.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of this repository
		w.Expect(err).NotTo(HaveOccurred())
		for _, found := range reason.FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1])
		}
	}
	w.Expect(len(all)).To(BeNumerically(">", 30))
	return all
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
