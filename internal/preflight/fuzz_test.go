// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"
)

// Whatever an API server's metrics are: what is in use and has an end is found among them, and labels in any order and
// with any value are one resource.
func FuzzDeprecatedUses(f *testing.F) {
	f.Add("flowcontrol.apiserver.k8s.io", "v1beta3", "flowschemas", "", "1.32", "# HELP x\n")
	f.Add(`a"b\c`, "", "", "status", "9999999999999999999.1", "apiserver_requested_deprecated_apis{} 1\n")
	f.Add("\xff", "v1", "x\ny", "", "", deprecatedMetric+"{group=\"\n")
	f.Fuzz(func(t *testing.T, group, version, resource, subresource, removed, more string) {
		if _, err := deprecatedUses([]byte(more)); err != nil && len(err.Error()) > 2*len(more)+500 {
			t.Fatalf("%d bytes for a sentence", len(err.Error()))
		}
		for _, part := range []string{group, version, resource, subresource, removed} {
			if strings.ToValidUTF8(part, "") != part {
				return
			}
		}
		quoted := func(value string) string {
			return `"` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value) + `"`
		}
		line := fmt.Sprintf("%s{removed_release=%s,group=%s,resource=%s,subresource=%s,version=%s} 1\n",
			deprecatedMetric, quoted(removed), quoted(group), quoted(resource), quoted(subresource), quoted(version))
		uses, err := deprecatedUses([]byte(line))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var named []string
		for _, part := range []string{group, version, resource, subresource} {
			if part != "" {
				named = append(named, part)
			}
		}
		for _, use := range uses {
			if use.resource != strings.Join(named, "/") || use.removed.Original() != removed {
				t.Fatalf("%+v of %q", use, line)
			}
		}
	})
}
