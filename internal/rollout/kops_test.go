// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
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

// elsewhere are tests of kOps' rolling updates that have no twin among testdata/scripts/kops.txt, each with its reason and
// the test, or the section of another script, that shows the same.
var elsewhere = map[string]string{
	"TestIsExitableError": "a Go error type; which failures stop all groups is shown by validation.txt: It fails before a group begins",

	"TestRollingUpdateAllNeedUpdateErrorsValidation": "a Cluster that cannot be read does not validate: " +
		"TestAClusterThatCannotBeReachedDoesNotValidate in controllers/rolloutpolicy",
	"TestRollingUpdateNodes1NeedsUpdateErrorsValidation": "a Cluster that cannot be read does not validate: " +
		"TestAClusterThatCannotBeReachedDoesNotValidate in controllers/rolloutpolicy",
	"TestRollingUpdateClusterErrorsValidationAfterOneNode": "a Cluster that cannot be read does not validate: " +
		"TestAClusterThatCannotBeReachedDoesNotValidate in controllers/rolloutpolicy",
	"TestRollingUpdateClusterErrorsValidationAfterOneMaster": "the control plane's rollouts: " +
		"TestPromisesHoldAlways in internal/controlplane/plan",
	"TestRollingUpdateClusterFailsValidationAfterOneMaster": "the control plane's rollouts: " +
		"TestPromisesHoldAlways in internal/controlplane/plan",
	"TestRollingUpdateMaxSurgeIgnoredForMaster": "what all groups inherit is not the control plane's: " +
		"TestTheSurgeOfWorkersIsNotTheControlPlanes in controllers/quoincontrolplane",
	"TestRollingUpdateMaxUnavailableAllNeedUpdateMaster": "members leave one by one: " +
		"TestPromisesHoldAlways in internal/controlplane/plan (K-10)",
	"TestRollingUpdateValidatesAfterBastion": "validation.txt: Looks are left out with a threshold of 0",

	"TestAddAnnotatedNodesToNeedsUpdate": "selection.txt: A Machine is marked by a person",
	"TestAddAnnotatedNodesToNeedsUpdateNodesMissing": "a mark is not seen where no Node is: " +
		"TestAMachineIsReplacedWhoseNodeIsMarked in controllers/rolloutpolicy",
	"TestRollingUpdateDisabled":      "drainorder.txt: Nothing is drained or terminated",
	"TestRollingUpdateDisabledSurge": "drainorder.txt: Nothing is drained or terminated",
	"TestRollingUpdateDetachFails": "a surge that cannot be made is a Machine that finds no host: " +
		"TestATemplateWithoutAHostIsNotJudged; none is admitted beside it, where kOps exceeds its limit (K-9)",

	"TestSettings":       "TestAGroupInheritsEachFieldThatItDoesNotSet, and what neither sets: TestLimitsAreResolvedAsKOpsDoes",
	"TestMaxUnavailable": "TestLimitsAreResolvedAsKOpsDoes",
	"TestMaxSurge":       "TestLimitsAreResolvedAsKOpsDoes",
	"TestAWSDefault":     "a default of one cloud; one more is made by default here as well: TestLimitsAreResolvedAsKOpsDoes",
}

// refused are tests of kOps of what a RolloutPolicy does not have, each with what no field's name may hold, and the reason,
// with the test or the script, if there is one, that shows what is so instead.
var refused = map[string]struct{ field, why string }{
	"TestRollingUpdateAllNeedUpdateCloudonly": {"cloudOnly", "--cloudonly replaces instances of a cluster that does not " +
		"answer: TestAClusterThatCannotBeReachedDoesNotValidate in controllers/rolloutpolicy"},
	"TestAddAnnotatedNodesToNeedsUpdateCloudonly": {"cloudOnly", "--cloudonly does not see the marks of Nodes: " +
		"TestAMachineIsReplacedWhoseNodeIsMarked in controllers/rolloutpolicy"},
	"TestRollingUpdateUnknownRole": {"role", "roles are kinds of objects here: there is no field to put an unknown one in"},
	"TestRollingUpdateAllNeedUpdateNoFailOnValidate": {"failOn", "--fail-on-validate-error=false goes on whatever looks " +
		"find; here a person has none taken: validation.txt: Looks are left out with a threshold of 0"},
	"TestRollingUpdateOnlyWarmPoolNodes": {"warmPool",
		"warm pools are instances of a cloud that are stopped; hosts that are free wait anyway"},
	"TestRollingWarmPoolBeforeJoinedNodes": {"warmPool",
		"warm pools are instances of a cloud that are stopped; hosts that are free wait anyway"},
}

// Each section of the script is headed by the test of kOps whose situation it has, with the outcome that is wanted here:
// kOps deletes first and validates then, here nothing is deleted before something counts. What a section proves it says
// itself: this test shows that none of kOps' tests is left out, and that what is named in their place is there.
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
		places := 0
		for _, is := range []bool{slices.Contains(twins, name), elsewhere[name] != "", refused[name].why != ""} {
			if is {
				places++
			}
		}
		g.Expect(places).To(Equal(1), "%s has a twin, or one elsewhere, or a reason why not, and one of these", name)
	}
	g.Expect(len(twins) + len(elsewhere) + len(refused)).To(Equal(len(kOps)))
	for name, why := range elsewhere {
		g.Expect(shownBy(t, name, why)).NotTo(BeZero(), "%s: no test is named", name)
	}
	for name, is := range refused {
		shownBy(t, name, is.why)
		g.Expect(fieldsOf(reflect.TypeFor[quoinv1.RolloutPolicySpec]())).NotTo(
			ContainElement(ContainSubstring(strings.ToLower(is.field))), name)
	}
	g.Expect(fieldsOf(reflect.TypeFor[quoinv1.RolloutPolicySpec]())).To(ContainElements("maxsurge", "ontimeout", "prometheus"))
}

// shownBy counts the tests and the sections of scripts that a reason names, all of which are there.
func shownBy(t *testing.T, name, why string) int {
	t.Helper()
	g := NewWithT(t)
	scripts, tests := scriptNamed.FindAllStringSubmatch(why, -1), testNamed.FindAllStringSubmatch(why, -1)
	for _, named := range scripts {
		script, err := os.ReadFile("testdata/scripts/" + named[1] + ".txt")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect("\n"+string(script)).To(ContainSubstring("\n# "+named[2]), name)
	}
	for _, test := range tests {
		files, err := filepath.Glob(filepath.Join("../..", cmp.Or(test[2], "internal/rollout"), "*_test.go"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(slices.ContainsFunc(files, func(file string) bool {
			content, err := os.ReadFile(file) //nolint:gosec // of this repository
			return err == nil && strings.Contains(string(content), "\nfunc "+test[1]+"(")
		})).To(BeTrue(), "%s: no %s", name, test[1])
	}
	return len(scripts) + len(tests)
}

// fieldsOf are the names of all fields of our own that a type has, at any depth, in small letters.
func fieldsOf(of reflect.Type) (names []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return fieldsOf(of.Elem())
	case reflect.Struct:
		for field := range of.Fields() {
			names = append(names, strings.ToLower(field.Name))
			if field.Type.Kind() != reflect.Struct || strings.Contains(field.Type.PkgPath(), "quoin") {
				names = append(names, fieldsOf(field.Type)...)
			}
		}
	}
	return names
}

var (
	// testNamed is a test that a reason names, with its folder unless that is this one.
	testNamed = regexp.MustCompile(`\b(Test\w+)(?: in ([\w/]+))?`)
	// scriptNamed is a script that a reason names, and how the heading of its section begins.
	scriptNamed = regexp.MustCompile(`\b(\w+)\.txt: (.+)`)
)

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
