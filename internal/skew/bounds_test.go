// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// betweenReleases is a minor of clusters, before which the list of releases has none for eleven minors.
const betweenReleases = "Distribution.Distribution.Pools.Sets[2].From"

// numbers visits every number of a policy that is set.
func numbers(of reflect.Value, path string, visit func(path string, number reflect.Value)) {
	switch of.Kind() {
	case reflect.Pointer:
		if !of.IsNil() {
			numbers(of.Elem(), path, visit)
		}
	case reflect.Struct:
		for i := range of.NumField() {
			numbers(of.Field(i), path+"."+of.Type().Field(i).Name, visit)
		}
	case reflect.Slice:
		for i := range of.Len() {
			numbers(of.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Uint64, reflect.Int32, reflect.Int, reflect.Int64:
		visit(path, of)
	}
}

// holds reports whether the policies judge each vector as it says.
func holds(vectors []vector) bool {
	for _, v := range vectors {
		if violations := v.judge(policies[v.Policy]); rules(violations) != v.Names ||
			!strings.Contains(Summary(violations), v.Says) {
			return false
		}
	}
	return true
}

// distributes reports whether the policy of a distribution judges each vector as it says.
func distributes(vectors []releaseVector, releases Catalog) bool {
	policy := policies["Distribution"]
	for _, v := range vectors {
		world := v.world(releases)
		violations := policy.Check(world)
		if v.To != "" {
			violations = policy.CheckStep(world, v.To)
		}
		if rules(violations) != v.Names || !strings.Contains(Summary(violations), v.Says) {
			return false
		}
	}
	return true
}

// A policy is data, so that a reviewer reads it: each number in it that is one more or one less has a case fail.
func TestEveryNumberOfAPolicyIsHeldByACase(t *testing.T) {
	var vectors []vector
	var ofReleases []releaseVector
	read(t, "vectors", &vectors)
	read(t, "distribution", &ofReleases)
	releases := catalog(t)
	hold := func() bool { return holds(vectors) && distributes(ofReleases, releases) }
	NewWithT(t).Expect(hold()).To(BeTrue())
	t.Cleanup(func() { policies = load(files) })
	seen := 0
	for _, name := range []string{DefaultPolicy, "Kubernetes-1.24", "Distribution"} {
		var paths []string
		whole := policies[name]
		numbers(reflect.ValueOf(&whole), name, func(path string, _ reflect.Value) {
			// What is maintained is asked of one policy.
			if name == DefaultPolicy || !strings.Contains(path, ".Maintained.") {
				paths = append(paths, path)
			}
		})
		for _, wanted := range paths {
			for _, by := range []int64{1, -1} {
				if by < 0 && wanted == betweenReleases {
					continue
				}
				policies = load(files)
				changed, was := policies[name], ""
				numbers(reflect.ValueOf(&changed), name, func(path string, number reflect.Value) {
					switch {
					case path != wanted:
					case number.CanUint() && (by > 0 || number.Uint() > 0):
						was = fmt.Sprint(number.Uint())
						number.SetUint(uint64(int64(number.Uint()) + by)) //nolint:gosec // small numbers
					case number.CanInt() && (by > 0 || number.Int() > 0):
						was = fmt.Sprint(number.Int())
						number.SetInt(number.Int() + by)
					}
				})
				unset := was == "0" && (strings.HasSuffix(wanted, ".From") || strings.HasSuffix(wanted, ".Gated"))
				if was == "" || unset {
					continue
				}
				policies[name] = changed
				seen++
				if hold() {
					t.Errorf("%s may be %s%+d, and no case of testdata notices", wanted, was, by)
				}
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d numbers were changed", seen)
	}
}
