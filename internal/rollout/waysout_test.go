// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

// releases are the reasons that hold a MachineDeployment or a Machine, each with what its message says of what would
// release it.
var releases = map[Reason]string{
	Suspended:        "take suspend off it|resume it",
	ControlPlane:     "until the control plane is healthy|when that is replaced|would not start: |is not made: ",
	Previous:         "comes? first",
	GroupUnhealthy:   "Mend or delete it",
	Paused:           "set spec.continueAfter to",
	Closed:           "the next one opens",
	WillNotFit:       "the next one opens|give them a durationMinutes",
	InFlight:         "has to count first",
	First:            "until it counts",
	Surge:            "has to leave first",
	Wave:             "has to be gone|are marked before",
	MinAvailable:     "see those that are not",
	Limited:          "(set|lower) ",
	Refused:          "Permit it",
	Outdated:         "Cluster API takes it away",
	NoSpare:          "(?i)add a host|take suspend off it",
	Validating:       "is looked at again|looks in a row|is validated after",
	ValidationFailed: "Mend that",
	DrainFailed:      "End the pods",
	DrainOff:         "take that off it",
	Unavailable:      "take the annotation",
	NodeUnknown:      "is drained at|asked for again",
	ReplacementFirst: "take the annotation",
	Soaking:          "counts at",
	DeadlineExceeded: "Mend or delete the Machine|Delete the Machine|(?i)add a host|is deleted first|leaves its host|frees a host|are free",
}

// inMotion are reasons of what is done, of what passes within seconds, and of Machines that only become healthy.
var inMotion = []Reason{Next, NoRollout, Replacement, Validated, Order, Later, Selected, Provisioning, NotHealthy,
	RollingOut, UpToDate, Tainting, Interval, DrainDelay, Evicting, DrainStarted, Drained, NoNode, NotDrained, DrainGivenUp,
	Scheduled, NotScheduled, Remediated, NoneMade}

// said are lines of scripts that give a reason: of a pool, of a decision that holds, and of what is stalled.
var said = regexp.MustCompile(`(?m)^(?:  [a-z]+ (\w+): (.*)|(?:[0-9:]{8} )?(?:Hold|Wait|Keep|HoldDrain|HoldTermination) ` +
	`[\w-]+ \((\w+)\): (.*)|  STALLED: (Machine [\w-]+ (?:was admitted at|is not healthy any more since) .*))$`)

// What cannot progress says what would release it: every reason there is, in every line of every script that gives it.
//
// Proves: C16
func TestEachReasonSaysWhatWouldReleaseIt(t *testing.T) {
	g := NewWithT(t)
	for name, reason := range reasonsOf(t) {
		_, holds := releases[reason]
		g.Expect(slices.Contains(inMotion, reason)).NotTo(Equal(holds), "%s holds something or passes, and not both", name)
	}
	scripts, err := filepath.Glob("testdata/scripts/*.txt")
	g.Expect(err).NotTo(HaveOccurred())
	seen := map[Reason]bool{}
	for _, script := range scripts {
		text, err := os.ReadFile(script) //nolint:gosec // of this repository
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range said.FindAllStringSubmatch(string(text), -1) {
			reason, message := Reason(line[1]+line[3]), line[2]+line[4]+line[5]
			if line[5] != "" {
				reason = DeadlineExceeded
			}
			if slices.Contains(inMotion, reason) {
				continue
			}
			seen[reason] = true
			g.Expect(message).To(MatchRegexp(releases[reason]), "%s: %s", script, reason)
		}
	}
	g.Expect(slices.Sorted(maps.Keys(seen))).To(Equal(slices.Sorted(maps.Keys(releases))), "each is told in a script")
}

// reasonsOf are the constants of this package that are a Reason, by their names.
func reasonsOf(t *testing.T) map[string]Reason {
	t.Helper()
	files, err := filepath.Glob("*.go")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	reasons := map[string]Reason{}
	elsewhere := map[string]Reason{"DeadlineExceededReason": quoinv1.DeadlineExceededReason,
		"WillNotFitReason": quoinv1.WillNotFitReason, "WriteRefusedReason": quoinv1.WriteRefusedReason,
		"DrainFailedReason": quoinv1.DrainFailedReason, "ValidationFailedReason": quoinv1.ValidationFailedReason}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(node ast.Node) bool {
			of, is := node.(*ast.ValueSpec)
			if !is {
				return true
			}
			if kind, is := of.Type.(*ast.Ident); !is || kind.Name != "Reason" || len(of.Values) != 1 {
				return true
			}
			switch value := of.Values[0].(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(value.Value)
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				reasons[of.Names[0].Name] = Reason(text)
			case *ast.SelectorExpr:
				NewWithT(t).Expect(elsewhere).To(HaveKey(value.Sel.Name))
				reasons[of.Names[0].Name] = elsewhere[value.Sel.Name]
			}
			return true
		})
	}
	NewWithT(t).Expect(len(reasons)).To(BeNumerically(">", 40))
	return reasons
}
