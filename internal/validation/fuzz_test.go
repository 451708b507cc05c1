// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/redact"
)

// Whatever a server answers a query: it is one number, or a short sentence that shows nothing of what was sent to it.
func FuzzNumber(f *testing.F) {
	const token = "k7Xp2mQ9vR4tW8zB"
	for _, body := range []string{
		`{"status":"success","data":{"resultType":"scalar","result":[1700000000.1,"1"]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1700000000,"NaN"]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1"}]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[]}}`,
		`{"status":"success","data":{"resultType":"` + token + `","result":[]}}`,
		`{"status":"error","errorType":"bad_data","error":"Bearer ` + token + `"}`, `{"status":"error"}`, `[]`, "\xff",
	} {
		f.Add([]byte(body), 200)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		answer := reply{status: status, body: body, whole: true, hide: redact.New(token)}
		value, err := answer.number()
		if err == nil {
			if !strings.Contains(string(body), "success") {
				t.Fatalf("%g of %q", value, body)
			}
			return
		}
		said := err.Error()
		if value != 0 || said == "" || len(said) > mostSaid+200 || !utf8.ValidString(said) || strings.Contains(said, token) {
			t.Fatalf("%g beside %q", value, said)
		}
	})
}
