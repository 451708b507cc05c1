// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Changes lists the JSON paths, sorted, at which two objects of a type differ. Lists count as a whole.
func Changes(before, after any) ([]string, error) {
	var decoded [2]any
	for i, object := range []any{before, after} {
		encoded, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("encode %T: %w", object, err)
		}
		if err := json.Unmarshal(encoded, &decoded[i]); err != nil {
			return nil, fmt.Errorf("decode %T: %w", object, err)
		}
	}
	paths := differences("", decoded[0], decoded[1])
	slices.Sort(paths)
	return paths, nil
}

func differences(path string, before, after any) []string {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	left, leftIsObject := before.(map[string]any)
	right, rightIsObject := after.(map[string]any)
	// An object that appears or disappears is looked into as well: the leaf says more than the branch.
	if (!leftIsObject && before != nil) || (!rightIsObject && after != nil) {
		return []string{path}
	}
	names := map[string]struct{}{}
	for name := range left {
		names[name] = struct{}{}
	}
	for name := range right {
		names[name] = struct{}{}
	}
	var paths []string
	for name := range names {
		below := name
		if path != "" {
			below = path + "." + name
		}
		paths = append(paths, differences(below, left[name], right[name])...)
	}
	if len(paths) == 0 {
		return []string{path}
	}
	return paths
}

// Unchanged reports whether an update leaves the spec as it is. Such an update is nobody's to refuse: what a newer
// release would not admit must still be labeled, paused, moved and deleted.
func Unchanged(before, after any) bool { return equality.Semantic.DeepEqual(before, after) }
