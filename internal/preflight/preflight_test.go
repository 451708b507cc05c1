// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

func found(name string, verdicts ...quoinv1.Verdict) Check {
	return Check{name, func(context.Context, Subject) (string, []quoinv1.Finding, error) {
		var findings []quoinv1.Finding
		for i, verdict := range verdicts {
			findings = append(findings, quoinv1.Finding{Verdict: verdict, Reason: "R", Object: fmt.Sprintf("Node n%d", i),
				Message: "is " + string(verdict)})
		}
		return "looked", findings, nil
	}}
}

// Proves: S0-49
func TestTheWorstVerdictIsThatOfAll(t *testing.T) {
	const pass, warn = quoinv1.VerdictPass, quoinv1.VerdictWarn
	const block, skipped = quoinv1.VerdictBlock, quoinv1.VerdictSkipped
	skip := []quoinv1.SkippedCheck{{Name: "Skipped", Reason: "it is the lab"}}
	for name, c := range map[string]struct {
		checks  []Check
		verdict quoinv1.Verdict
		each    []quoinv1.Verdict
		summary string
	}{
		"all pass": {
			checks: []Check{found("A"), found("B")}, verdict: pass, each: []quoinv1.Verdict{pass, pass},
			summary: "all of 2 checks passed",
		},
		"one warns": {
			checks: []Check{found("A", warn), found("B")}, verdict: warn, each: []quoinv1.Verdict{warn, pass},
			summary: "A: Node n0: is Warn",
		},
		"one blocks": {
			checks: []Check{found("A", warn), found("B", warn, block, block), found("C")}, verdict: block,
			each: []quoinv1.Verdict{warn, block, pass}, summary: "B: Node n1: is Block (and 2 more)",
		},
		"two block": {
			checks: []Check{found("A", block), found("B", block)}, verdict: block,
			each: []quoinv1.Verdict{block, block}, summary: "A: Node n0: is Block; B: Node n0: is Block",
		},
		"what would block is skipped": {
			checks: []Check{found("Skipped", block), found("B")}, verdict: pass, each: []quoinv1.Verdict{skipped, pass},
			summary: "all of 1 checks passed; skipped: Skipped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			results := Run(t.Context(), c.checks, Subject{}, skip, clock.RealClock{})
			var each []quoinv1.Verdict
			for i, result := range results {
				g.Expect(result.Name).To(Equal(c.checks[i].Name))
				each = append(each, result.Verdict)
				if result.Verdict == skipped {
					g.Expect(result.Message).To(Equal("it is the lab"))
				} else {
					g.Expect(result.Message).To(Equal("looked"))
				}
			}
			g.Expect(each).To(Equal(c.each))
			g.Expect(Verdict(results)).To(Equal(c.verdict))
			g.Expect(Summary(results)).To(Equal(c.summary))
		})
	}
}

func TestACheckThatCannotTellBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		look func(context.Context, Subject) (string, []quoinv1.Finding, error)
		says string
		took time.Duration
	}{
		"an error": {
			look: func(context.Context, Subject) (string, []quoinv1.Finding, error) {
				return "", nil, errors.New("no route")
			},
			says: "no route",
		},
		"a panic": {
			look: func(context.Context, Subject) (string, []quoinv1.Finding, error) { panic("oops") },
			says: "the check panicked: oops",
		},
		"silence": {
			look: func(ctx context.Context, _ Subject) (string, []quoinv1.Finding, error) {
				<-ctx.Done()
				return "", nil, ctx.Err()
			},
			says: "context deadline exceeded", took: Timeout,
		},
		"silence that does not heed the deadline": {
			look: func(context.Context, Subject) (string, []quoinv1.Finding, error) {
				time.Sleep(time.Hour)
				return "", nil, nil
			},
			says: "no answer within 30s", took: Timeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, began := NewWithT(t), time.Now()
				results := Run(t.Context(), []Check{{"A", c.look}, found("B")}, Subject{}, nil, clock.RealClock{})
				g.Expect(time.Since(began)).To(Equal(c.took))
				g.Expect(Verdict(results)).To(Equal(quoinv1.VerdictBlock))
				g.Expect(results[0].Findings).To(HaveLen(1))
				g.Expect(results[0].Findings[0].Reason).To(Equal("CheckFailed"))
				g.Expect(results[0].Findings[0].Message).To(ContainSubstring(c.says))
				g.Expect(results[0].Findings[0].Fix).To(ContainSubstring("name A in spec.skip"))
				g.Expect(*results[0].DurationMilliseconds).To(Equal(c.took.Milliseconds()))
				g.Expect(results[1].Verdict).To(Equal(quoinv1.VerdictPass), "the others are made all the same")
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// Proves: S0-48
//
// Named checks are made side by side: all of them take as long as the longest, and each says its own time.
func TestChecksAreMadeSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, began := NewWithT(t), time.Now()
		var checks []Check
		for i, named := range Checks() {
			checks = append(checks, Check{named.Name, func(context.Context, Subject) (string, []quoinv1.Finding, error) {
				time.Sleep(time.Duration(i+1) * time.Second)
				return "", nil, nil
			}})
		}
		results := Run(t.Context(), checks, Subject{}, nil, clock.RealClock{})
		g.Expect(time.Since(began)).To(Equal(time.Duration(len(checks)) * time.Second))
		for i, result := range results {
			g.Expect(result.DurationMilliseconds).To(HaveValue(BeEquivalentTo((i + 1) * 1000)))
		}
	})
}

func TestOfManyFindingsTheWorstAreKept(t *testing.T) {
	g := NewWithT(t)
	verdicts := make([]quoinv1.Verdict, 100)
	for i := range verdicts {
		verdicts[i] = quoinv1.VerdictWarn
	}
	verdicts[99] = quoinv1.VerdictBlock
	result := Run(t.Context(), []Check{found("A", verdicts...)}, Subject{}, nil, clock.RealClock{})[0]
	g.Expect(result.Findings).To(HaveLen(mostFindings))
	g.Expect(result.Findings[0].Verdict).To(Equal(quoinv1.VerdictBlock))
	g.Expect(result.Omitted).To(Equal(ptr.To[int32](80)))
	g.Expect(Summary([]quoinv1.CheckResult{result})).To(HaveSuffix("(and 99 more)"))
	long := Check{"L", func(context.Context, Subject) (string, []quoinv1.Finding, error) {
		return strings.Repeat("x", 1<<20), []quoinv1.Finding{{Object: strings.Repeat("o", 1<<20),
			Message: strings.Repeat("y", 1<<20), Fix: strings.Repeat("z", 1<<20)}}, nil
	}}
	result = Run(t.Context(), []Check{long}, Subject{}, nil, clock.RealClock{})[0]
	g.Expect(len(result.Message)).To(Equal(mostText))
	g.Expect(len(result.Findings[0].Message)).To(Equal(mostText))
	g.Expect(len(result.Findings[0].Object)).To(Equal(512))
	g.Expect(len(result.Findings[0].Fix)).To(Equal(1024))
}

// What may be skipped by name is what there is.
// Of one object and one verdict the order is that of reason, message and fix, however a check came by them.
func TestFindingsHaveOneOrder(t *testing.T) {
	all := []quoinv1.Finding{warns("Node n0", "A", "one", "x"), warns("Node n0", "A", "one", "y"),
		warns("Node n0", "A", "two", "x"), warns("Node n0", "B", "one", "x")}
	for range 20 {
		shuffled := slices.Clone(all)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		checks := []Check{{"A", func(context.Context, Subject) (string, []quoinv1.Finding, error) { return "", shuffled, nil }}}
		NewWithT(t).Expect(Run(t.Context(), checks, Subject{}, nil, clock.RealClock{})[0].Findings).To(Equal(all))
	}
}

func TestTheAPINamesEveryCheck(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../config/crd/control-plane/bases/quoin.cluster.x-k8s.io_preflightchecks.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	crd := &apiextensionsv1.CustomResourceDefinition{}
	g.Expect(yaml.UnmarshalStrict(content, crd)).To(Succeed())
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	var skippable, names []string
	for _, name := range spec.Properties["skip"].Items.Schema.Properties["name"].Enum {
		skippable = append(skippable, strings.Trim(string(name.Raw), `"`))
	}
	for _, check := range Checks() {
		names = append(names, check.Name)
	}
	g.Expect(names).To(Equal(skippable))
}
