// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package owner_test

import (
	"testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/owner"
)

func FuzzParse(f *testing.F) {
	for _, raw := range []string{"", "{", "null", "[]", `{"uid":"a"}`,
		`{"namespace":"metal","host":"host-1","machine":"m","uid":"a","generation":3}`,
		`{"uid":"a","generation":1e400}`, `{"generation":9}`, `{"uid":"a","uid":""}`, `{"uid":"a"} {"uid":"b"}`} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		record, err := owner.Parse(raw)
		if (record == nil) == (err == nil) {
			t.Fatal("either a record or an error")
		}
	})
}
