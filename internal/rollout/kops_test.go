// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// partly has so many Machines be at the present template already, as an interrupted rollout leaves them.
func (d *deployment) partly(current string) {
	count, _ := strconv.Atoi(current)
	if count == 0 {
		return
	}
	d.template++
	d.current().replicas = count
	d.sets[0].replicas -= count
	for _, n := range d.machines[:count] {
		n.template = d.template
	}
}

// elsewhere are tests of kOps' rolling updates that have no twin among testdata/scripts/kops.txt, each with its reason,
// or with the section of another script that is its twin.
var elsewhere = map[string]string{
	"TestIsExitableError": "a Go error type: which failures stop all groups is what the others show",

	"TestRollingUpdateAllNeedUpdateCloudonly":     "--cloudonly replaces instances without looking: refused, there is no such field",
	"TestAddAnnotatedNodesToNeedsUpdateCloudonly": "the same",
	"TestRollingUpdateUnknownRole":                "roles are kinds of objects here: there is no field to put an unknown one in",
	"TestRollingUpdateAllNeedUpdateNoFailOnValidate": "--fail-on-validate-error=false goes on whatever is broken: refused, " +
		"there is no such field; a person deletes the policy",

	"TestRollingUpdateAllNeedUpdateErrorsValidation": "a Cluster that cannot be read does not validate: " +
		"TestAClusterThatCannotBeReachedDoesNotValidate in controllers/rolloutpolicy",
	"TestRollingUpdateNodes1NeedsUpdateErrorsValidation":     "the same",
	"TestRollingUpdateClusterErrorsValidationAfterOneNode":   "the same",
	"TestRollingUpdateClusterErrorsValidationAfterOneMaster": "the control plane's rollouts: internal/controlplane",
	"TestRollingUpdateClusterFailsValidationAfterOneMaster":  "the control plane's rollouts: internal/controlplane",
	"TestRollingUpdateMaxSurgeIgnoredForMaster":              "a control plane inherits nothing of a RolloutPolicy",
	"TestRollingUpdateMaxUnavailableAllNeedUpdateMaster":     "a control plane inherits nothing of a RolloutPolicy (K-10)",
	"TestRollingUpdateValidatesAfterBastion":                 "validation.txt: Looks are left out with a threshold of 0",

	"TestAddAnnotatedNodesToNeedsUpdate": "selection.txt: A Machine is marked by a person",
	"TestAddAnnotatedNodesToNeedsUpdateNodesMissing": "a mark is not seen where no Node is: " +
		"TestAMachineIsReplacedWhoseNodeIsMarked in controllers/rolloutpolicy",
	"TestRollingUpdateDisabled":      "drainorder.txt: Nothing is drained or terminated",
	"TestRollingUpdateDisabledSurge": "drainorder.txt: Nothing is drained or terminated",
	"TestRollingUpdateDetachFails": "a surge that cannot be made is a Machine that finds no host: " +
		"TestATemplateWithoutAHostIsNotJudged; none is admitted beside it, where kOps exceeds its limit (K-9)",
	"TestRollingUpdateOnlyWarmPoolNodes":   "warm pools are instances of a cloud that are stopped; hosts that are free wait anyway",
	"TestRollingWarmPoolBeforeJoinedNodes": "the same",

	"TestSettings":       "TestAGroupInheritsEachFieldThatItDoesNotSet, and what neither sets: TestLimitsAreResolvedAsKOpsDoes",
	"TestMaxUnavailable": "TestLimitsAreResolvedAsKOpsDoes",
	"TestMaxSurge":       "TestLimitsAreResolvedAsKOpsDoes",
	"TestAWSDefault":     "a default of one cloud; one more is made by default here as well (limits_test.go)",
}

// Each section of the script is headed by the test of kOps whose situation it has, with the outcome that is wanted here:
// kOps deletes first and validates then, here nothing is deleted before something counts.
//
// Proves: S3-2, S3-6, S3-7, S3-10, S3-25, S3-26, S3-27, S3-28, S3-30, S3-34, S3-35, K-8
func TestKOpsTestsHaveTwins(t *testing.T) {
	g := NewWithT(t)
	script, err := os.ReadFile("testdata/scripts/kops.txt")
	g.Expect(err).NotTo(HaveOccurred())
	var twins []string
	for line := range strings.Lines(string(script)) {
		if name, said, heads := strings.Cut(strings.TrimPrefix(line, "# "), ": "); heads && strings.HasPrefix(line, "# Test") {
			g.Expect(said).NotTo(BeEmpty())
			twins = append(twins, name)
		}
	}
	for _, name := range kOps {
		_, excused := elsewhere[name]
		g.Expect(slices.Contains(twins, name)).NotTo(Equal(excused), "%s has a twin or a reason why not, and not both", name)
	}
	g.Expect(len(twins) + len(elsewhere)).To(Equal(len(kOps)))
	for name, why := range elsewhere {
		if file, section, is := strings.Cut(why, ".txt: "); is {
			script, err := os.ReadFile("testdata/scripts/" + file + ".txt")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect("\n"+string(script)).To(ContainSubstring("\n# "+section), name)
		}
		for _, test := range testNamed.FindAllStringSubmatch(why, -1) {
			files, err := filepath.Glob(filepath.Join("../..", cmp.Or(test[2], "internal/rollout"), "*_test.go"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(slices.ContainsFunc(files, func(file string) bool {
				content, err := os.ReadFile(file) //nolint:gosec // of this repository
				return err == nil && strings.Contains(string(content), "\nfunc "+test[1]+"(")
			})).To(BeTrue(), "%s: no %s", name, test[1])
		}
	}
}

// testNamed is a test that a reason names, with its folder unless that is this one.
var testNamed = regexp.MustCompile(`\b(Test\w+)(?: in ([\w/]+))?`)

// kOps are its tests of rolling updates and of their settings, of the summer of 2026.
var kOps = strings.Fields(`
TestIsExitableError
TestRollingUpdateAllNeedUpdate
TestRollingUpdateAllNeedUpdateCloudonly
TestRollingUpdateAllNeedUpdateNoFailOnValidate
TestRollingUpdateNoneNeedUpdate
TestRollingUpdateNoneNeedUpdateWithForce
TestRollingUpdateEmptyGroup
TestRollingUpdateUnknownRole
TestRollingUpdateAllNeedUpdateFailsValidation
TestRollingUpdateAllNeedUpdateErrorsValidation
TestRollingUpdateNodes1NeedsUpdateFailsValidation
TestRollingUpdateNodes1NeedsUpdateErrorsValidation
TestRollingUpdateClusterFailsValidationAfterOneMaster
TestRollingUpdateClusterErrorsValidationAfterOneMaster
TestRollingUpdateNonRelatedInstanceGroupFailure
TestRollingUpdateRelatedInstanceGroupFailure
TestRollingUpdateMasterGroupFailure
TestRollingUpdateValidationErrorInstanceGroupNil
TestRollingUpdateValidationErrorInstanceGroupExitableError
TestRollingUpdateClusterFailsValidationAfterOneNode
TestRollingUpdateClusterErrorsValidationAfterOneNode
TestRollingUpdateFlappingValidation
TestRollingUpdateValidatesAfterBastion
TestAddAnnotatedNodesToNeedsUpdate
TestAddAnnotatedNodesToNeedsUpdateCloudonly
TestAddAnnotatedNodesToNeedsUpdateNodesMissing
TestRollingUpdateTaintAllButOneNeedUpdate
TestRollingUpdateMaxSurgeIgnoredForMaster
TestRollingUpdateDisabled
TestRollingUpdateDisabledSurge
TestRollingUpdateMaxUnavailableAllNeedUpdate
TestRollingUpdateMaxUnavailableAllButOneNeedUpdate
TestRollingUpdateMaxUnavailableAllNeedUpdateMaster
TestRollingUpdateMaxSurgeAllNeedUpdate
TestRollingUpdateMaxSurgeAllButOneNeedUpdate
TestRollingUpdateMaxSurgeGreaterThanNeedUpdate
TestRollingUpdateDetachFails
TestRollingUpdateMaxSurgeAllNeedUpdateOneAlreadyDetached
TestRollingUpdateMaxSurgeAllNeedUpdateMaxAlreadyDetached
TestRollingUpdateOnlyWarmPoolNodes
TestRollingWarmPoolBeforeJoinedNodes
TestSettings
TestMaxUnavailable
TestMaxSurge
TestAWSDefault
`)
