// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"reflect"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// Whatever a ConfigMap has for a catalog of releases: what is taken is written as it was meant, and each version and
// date in it can be compared.
func FuzzCatalog(f *testing.F) {
	for _, text := range []string{"",
		"tool: v1.36.3\nreleases:\n- version: v1.36.3\n  released: 2026-01-31\n  pools: [v1.35.1]\n",
		"tool: 1.36.3\ngates: [a]\nreleases: []\n", "tool: v1.36\nreleases: []\n", "tool: v1.36.3\nlater: 1\n",
		"tool: v1.36.3\nreleases:\n- version: v1.36.3\n  released: 31.1.2026\n", "tool: 1.36\n", "- a\n", "a: &a [*a]\n",
		"\xff",
		"tool: v1.36.3\nreleases:\n- {version: v1.36.3-rc.1+x, released: 2026-02-30}\n", "tool: v1.36.3\ntool: v1.36.2\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		catalog, err := ReadCatalog(text)
		if err != nil {
			if !reflect.DeepEqual(catalog, Catalog{}) || err.Error() == "" {
				t.Fatalf("%+v beside %v", catalog, err)
			}
			return
		}
		versions := []string{catalog.Tool}
		for i := range catalog.Releases {
			release := &catalog.Releases[i]
			versions = append(append(versions, release.Version), release.Pools...)
			if day, err := time.Parse("2006-01-02", release.Released); release.Released != "" &&
				(err != nil || day.Format("2006-01-02") != release.Released) {
				t.Fatalf("%q is no day", release.Released)
			}
		}
		for _, version := range versions {
			parsed, err := Parse(version)
			if err != nil || Compare(parsed, parsed) != 0 {
				t.Fatalf("%q cannot be compared: %v", version, err)
			}
		}
		for i := range catalog.Releases {
			if parsed, _ := Parse(catalog.Releases[i].Version); catalog.release(parsed) == nil {
				t.Fatalf("%s is not found", parsed)
			}
		}
		written, err := yaml.Marshal(catalog)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ReadCatalog(string(written)); err != nil {
			t.Fatalf("%q became %q: %v", text, written, err)
		} else if rewritten, err := yaml.Marshal(again); err != nil || string(rewritten) != string(written) {
			t.Fatalf("%q became %q: %v", written, rewritten, err)
		}
	})
}
