// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// Whatever annotations a Machine has: it is held where Cluster API holds it, what others wrote stays as it is, and what
// was made for entries goes with them and comes once.
func FuzzHooks(f *testing.F) {
	const drain, terminate = string(PreDrain), string(PreTerminate)
	f.Add(drain+"/backup", "team-a", "", "backup", "team-b", false)
	f.Add(terminate+"/storage", "team-a", `{"`+terminate+`/storage":"team-a"}`, "storage", "team-b", false)
	f.Add(terminate, "", `{`, "storage", "", true)
	f.Add(drain+"/", "x", `null`, "a.example.com/b", "o", false)
	f.Add(drain+".example.com", "x", `{"other":"x"}`, "quoin", "o", false)
	f.Add("other", "x", `{"other":"x"}`, "backup", "o", true)
	f.Fuzz(func(t *testing.T, key, value, record, name, owner string, deleting bool) {
		// An API server keeps nothing that is no text.
		if name == "" || key == infrav1.LifecycleHooksAnnotation ||
			!utf8.ValidString(strings.Join([]string{key, value, record, name, owner}, " ")) {
			return
		}
		machine := &clusterv1.Machine{}
		machine.Annotations = map[string]string{key: value, infrav1.LifecycleHooksAnnotation: record}
		if deleting {
			machine.DeletionTimestamp = ptr.To(metav1.Unix(1790000000, 0))
		}
		bare, entry := &infrav1.QuoinMachine{}, &infrav1.QuoinMachine{}
		entry.Spec.LifecycleHooks.PreDrain = []infrav1.LifecycleHook{{Name: name, Owner: owner}}
		for _, point := range []Point{PreDrain, PreTerminate} {
			hooks := Hooks(point, bare, machine)
			if held := annotations.HasWithPrefix(string(point), machine.Annotations); held != (len(hooks) > 0) {
				t.Fatalf("held at %s: %v, by %v", point, held, hooks)
			}
			for _, hook := range hooks {
				if hook.Name == "" || !strings.HasSuffix(key, hook.Name) || hook.Owner != value {
					t.Fatalf("%q: %q is held by %+v", key, value, hook)
				}
			}
		}
		if hooks := Hooks(PreDrain, entry, machine); !slices.Contains(hooks, Hook{Name: name, Owner: owner}) &&
			(name != controlplanev1.HookName || owner != "") || len(hooks) > 2 {
			t.Fatalf("%q is not among %v", name, hooks)
		}

		made := recorded(machine)
		first := Annotations(entry, machine)
		if made[key] != value || !slices.Contains(slices.Collect(maps.Keys(made)), key) {
			if found, there := first[key]; !there || found != value {
				t.Fatalf("%q of somebody became %q", value, found)
			}
		}
		for added := range first {
			if added != key && added != infrav1.LifecycleHooksAnnotation && (added != drain+"/"+name || deleting) {
				t.Fatalf("%q was made by nobody", added)
			}
		}
		machine.Annotations = first
		if again := Annotations(entry, machine); !maps.Equal(again, first) {
			t.Fatalf("%v became %v", first, again)
		}
		left := Annotations(bare, machine)
		if _, there := left[infrav1.LifecycleHooksAnnotation]; there || len(left) > 1 ||
			len(left) == 1 && left[key] != value {
			t.Fatalf("%v is left of %v", left, first)
		}
	})
}
