// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/controlplane"
)

// Whatever an annotation says of a recovery: it is of the one that is asked for, in a state that is known, and what was
// done or cannot be read is never taken for nothing done. What is read is written as it was meant.
func FuzzRecoveryRecord(f *testing.F) {
	for _, text := range []string{"", "{", "null", "[]", `{}`, `{"id":"r1","state":"Begun"}`,
		`{"id":"r1","state":"Later"}`,
		`{"id":"r1","state":"Begun","machine":"m-1","giveUp":["m-3","m-2"],"snapshot":"20261121T120000Z-0123456789ab.db",` +
			`"data":{"snapshot":"s","sha256":"0f","size":512}}`, `{"id":"r1","state":"Fetching"}`,
		`{"id":"r1","state":"Begun","machine":"m-1","snapshot":"s","data":{"snapshot":"s","snapshotSHA256":"aa"}}`,
		`{"id":"r0","state":"Void","earlier":["r1"]}`, `{"id":"r1","state":"Begun","earlier":[]}`,
		`{"id":"r1","state":"Complete","later":1}`, `{"id":"r1","state":7}`,
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
		if len(record.Earlier) == 0 {
			record.Earlier = nil
		}
		if !reflect.DeepEqual(again, record) {
			t.Fatalf("%+v became %+v", record, again)
		}
		slices.Reverse(again.GiveUp)
		begun := record.State == controlplane.RecoveryBegun
		asked := controlplanev1.RecoverySnapshot{Name: again.Snapshot}
		digest := ""
		if record.Data != nil {
			digest = record.Data.SnapshotSHA256
		}
		for name, edit := range map[string]struct {
			change func(*controlplanev1.EtcdRecovery)
			edited bool
		}{
			"nothing":  {func(*controlplanev1.EtcdRecovery) {}, false},
			"giveUp":   {func(r *controlplanev1.EtcdRecovery) { r.GiveUp = append(r.GiveUp, "another") }, begun},
			"machine":  {func(r *controlplanev1.EtcdRecovery) { r.Machine += "x" }, begun},
			"snapshot": {func(r *controlplanev1.EtcdRecovery) { r.Snapshot.Name += "x" }, begun},
			"none":     {func(r *controlplanev1.EtcdRecovery) { r.Snapshot = nil }, begun && record.Snapshot != ""},
			"digest":   {func(r *controlplanev1.EtcdRecovery) { r.Snapshot.SHA256 = digest + "x" }, begun && digest != ""},
			"its own":  {func(r *controlplanev1.EtcdRecovery) { r.Snapshot.SHA256 = digest }, false},
		} {
			wanted := &controlplanev1.EtcdRecovery{Machine: again.Machine, GiveUp: slices.Clone(again.GiveUp),
				Snapshot: asked.DeepCopy()}
			if edit.change(wanted); record.Edited(wanted) != edit.edited {
				t.Fatalf("%+v is edited where it is not, or is not where it is: %s", record, name)
			}
		}
	})
}
