// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldowner

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Whatever the managed fields of an object are: who owns a field is found where the API server's own reading has it,
// and nowhere else.
func FuzzOwner(f *testing.F) {
	for _, fields := range []string{`{"f:spec":{"f:version":{},"f:ref":{"f:name":{}}}}`,
		`{"f:spec":{".":{},"f:version":{}}}`,
		`{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"a\"}":{".":{},"f:name":{}}},"f:finalizers":{"v:\"x\"":{}}}}`,
		`{"f:spec":{}}`, `{"f:spec":null}`, `{"f:spec":{"f:version":[]}}`, `{"f:f:spec":{"f:version":{}}}`, `{}`, `[`, "\xff",
		`{"f:spec":{"f:version":{}},"f:spec":{"f:ref":{}}}`} {
		f.Add([]byte(fields), "spec.version")
		f.Add([]byte(fields), "metadata.ownerReferences")
	}
	f.Fuzz(func(t *testing.T, fields []byte, dotted string) {
		if len(fields) > 4096 || len(dotted) > 256 {
			return
		}
		path := strings.Split(dotted, ".")
		owner := func(fields []byte) string {
			entry := metav1.ManagedFieldsEntry{Manager: "flux", Operation: metav1.ManagedFieldsOperationApply,
				FieldsV1: metav1.NewFieldsV1(string(fields))}
			managed := []metav1.ManagedFieldsEntry{entry}
			last := Last(managed, path...)
			if last != Applying(managed, path...) || last != "" && last != "flux (Apply)" {
				t.Fatalf("%q", last)
			}
			return last
		}
		if owner(fields) != "" && !json.Valid(fields) {
			t.Fatalf("%q is owned by what cannot be read: %q", path, fields)
		}
		set := &fieldpath.Set{}
		if !utf8.Valid(fields) || !utf8.ValidString(dotted) || set.FromJSON(bytes.NewReader(fields)) != nil {
			return
		}
		plain, err := set.ToJSON() // each field once
		if err != nil {
			return
		}
		wanted := fieldpath.Path{}
		for i := range path {
			wanted = append(wanted, fieldpath.PathElement{FieldName: &path[i]})
		}
		found := false
		set.Iterate(func(field fieldpath.Path) {
			found = found || len(field) >= len(wanted) && field[:len(wanted)].Equals(wanted)
		})
		if found != (owner(plain) != "") {
			t.Fatalf("%q is in %s: %v", path, plain, found)
		}
	})
}
