// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Whatever an annotation says of a recovery: it is of the one that is asked for, in a state that is known, and what was
// done or cannot be read is never taken for nothing done. What is read is written as it was meant.
func FuzzRecoveryRecord(f *testing.F) {
	for _, text := range []string{"", "{", "null", "[]", `{}`, `{"id":"r1","state":"Begun"}`,
		`{"id":"r1","state":"Later"}`,
		`{"id":"r1","state":"Begun","machine":"m-1","giveUp":["m-3","m-2"],"snapshot":"20261121T120000Z-0123456789ab.db",` +
			`"data":{"snapshot":"s","sha256":"0f","size":512}}`, `{"id":"r1","state":"Fetching"}`,
		`{"id":"r0","state":"Void"}`, `{"id":"r1","state":"Complete","later":1}`, `{"id":"r1","state":7}`,
		`{"id":"r1","state":""}`} {
		f.Add(text, "r1")
	}
	known := []controlplane.RecoveryState{controlplane.RecoveryAsked, controlplane.RecoveryFetching,
		controlplane.RecoveryBegun, controlplane.RecoveryComplete, controlplane.RecoveryVoid}
	f.Fuzz(func(t *testing.T, text, id string) {
		if id == "" || !utf8.ValidString(id) {
			return // the API takes none
		}
		record := controlplane.ReadRecoveryRecord(text, id)
		if record.ID != id || !slices.Contains(known, record.State) {
			t.Fatalf("%q says %+v of %q", text, record, id)
		}
		var said struct {
			ID    string                     `json:"id"`
			State controlplane.RecoveryState `json:"state"`
		}
		wanted := controlplane.RecoveryVoid
		switch err := json.Unmarshal([]byte(text), &said); {
		case text == "" || err == nil && said.ID != id:
			wanted = controlplane.RecoveryAsked
		case err == nil && slices.Contains(known, said.State):
			wanted = said.State
		}
		// A part that cannot be read makes all of it so.
		if record.State != wanted && record.State != controlplane.RecoveryVoid {
			t.Fatalf("%q is %q and not %q", text, record.State, wanted)
		}
		written, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		again := controlplane.ReadRecoveryRecord(string(written), id)
		if len(record.GiveUp) == 0 {
			record.GiveUp = nil // an empty list is not written
		}
		if !reflect.DeepEqual(again, record) {
			t.Fatalf("%+v became %+v", record, again)
		}
		other := append(slices.Clone(record.GiveUp), "another")
		slices.Reverse(again.GiveUp)
		begun := record.State == controlplane.RecoveryBegun
		if record.Edited(again.Machine, again.GiveUp, again.Snapshot) ||
			record.Edited(again.Machine, other, again.Snapshot) != begun ||
			record.Edited(again.Machine+"x", again.GiveUp, again.Snapshot) != begun ||
			record.Edited(again.Machine, again.GiveUp, again.Snapshot+"x") != begun {
			t.Fatalf("%+v is edited where it is not, or is not where it is", record)
		}
	})
}
