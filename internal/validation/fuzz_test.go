// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"math"
	"strconv"
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
		`{"status":"success","data":{"resultType":"vector","result":[null]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"2"]},{"value":[1,"3"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":null}}`,
		`{"status":"success","data":{"resultType":"` + token + `","result":[]}}`,
		`{"status":"error","errorType":"bad_data","error":"Bearer ` + token + `"}`, `{"status":"error"}`, `[]`, "\xff",
	} {
		f.Add([]byte(body), 200)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		answer := reply{status: status, body: body, whole: true, hide: redact.New(token)}
		value, err := answer.number()
		if err == nil {
			if said, found := numberIn(body); !found || said != value && !(math.IsNaN(said) && math.IsNaN(value)) {
				t.Fatalf("%g and not %g of %q", value, said, body)
			}
			return
		}
		said := err.Error()
		if value != 0 || said == "" || len(said) > mostSaid+200 || !utf8.ValidString(said) || strings.Contains(said, token) {
			t.Fatalf("%g beside %q", value, said)
		}
	})
}

// numberIn is the one number that a successful answer has, read without what knows Prometheus.
func numberIn(body []byte) (number float64, found bool) {
	var answer struct {
		Status string
		Data   struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if json.Unmarshal(body, &answer) != nil || answer.Status != "success" {
		return 0, false
	}
	pair := answer.Data.Result
	if answer.Data.ResultType == "vector" {
		var elements []struct{ Value json.RawMessage }
		if json.Unmarshal(pair, &elements) != nil || len(elements) != 1 {
			return 0, false
		}
		pair = elements[0].Value
	}
	var sample []any
	if json.Unmarshal(pair, &sample) != nil || len(sample) < 2 {
		return 0, false
	}
	text, _ := sample[1].(string)
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil
}
