// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

func TestARecordOfARecoveryThatCannotBeReadForbidsIt(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]RecoveryState{"": RecoveryAsked, `{"id":"r0","state":"Complete"}`: RecoveryAsked,
		`{"id":"r1","state":"Begun"}`: RecoveryBegun, "{": RecoveryVoid,
		// A later release of Quoin was in the middle of it.
		`{"id":"r1","state":"Verifying"}`: RecoveryVoid, `{"id":"r1","state":"Begun","since":1}`: RecoveryBegun} {
		g.Expect(ReadRecoveryRecord(text, "r1").State).To(Equal(want), text)
	}
}

// Each id that hosts may have done something under, or that is void, is kept when another one is recorded.
func TestARecordOfARecoveryNamesThoseBeforeIt(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                             nil,
		`{"id":"r1","state":"Begun"}`:                  {"r1"},
		`{"id":"r1","state":"Complete"}`:               {"r1"},
		`{"id":"r1","state":"Void"}`:                   {"r1"},
		`{"id":"r1","state":"Verifying"}`:              {"r1"},
		`{"id":"r1","state":"Fetching"}`:               nil,
		`{"id":"r1"}`:                                  nil,
		`{"id":"r1","earlier":["r0"]}`:                 {"r0"},
		`{"id":"r1","state":"Begun","earlier":["r0"]}`: {"r0", "r1"},
		`{"id":"r2","state":"Begun","earlier":["r1"]}`: {"r1"},
	} {
		g, record := NewWithT(t), ReadRecoveryRecord(text, "r2")
		g.Expect(record.Earlier).To(Equal(want), text)
		g.Expect(record.Superseded()).To(BeFalse(), text)
	}
	g := NewWithT(t)
	g.Expect(ReadRecoveryRecord(`{"id":"r2","state":"Begun","earlier":["r1"]}`, "r1").Superseded()).To(BeTrue())
	g.Expect(ReadRecoveryRecord(`{"id":"r2","state":"Fetching","earlier":["r1"]}`, "r1").Superseded()).To(BeTrue())
}

// A record that does not say with what it began may be of any data; one that has not begun is of none.
func TestARecoveryHoldsTheDataThatItBeganWith(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]bool{
		`{"id":"r1","state":"Begun"}`:                                 true,
		`{"id":"r1","state":"Begun","machine":"m","snapshot":"s"}`:    true,
		`{"id":"r1","state":"Begun","machine":"m"}`:                   false,
		`{"id":"r1","state":"Begun","machine":"n","snapshot":"s"}`:    false,
		`{"id":"r1","state":"Begun","machine":"m","snapshot":"t"}`:    false,
		`{"id":"r1","state":"Fetching"}`:                              false,
		`{"id":"r1","state":"Complete","machine":"m","snapshot":"s"}`: false,
		"{": false, "": false,
	} {
		g.Expect(ReadRecoveryRecord(text, "r1").Holds("m", "s")).To(Equal(want), text)
	}
}

func TestWhichRecoveryIsUnderWay(t *testing.T) {
	g := NewWithT(t)
	controlPlane := &controlplanev1.QuoinControlPlane{}
	under := func(record string) string {
		controlPlane.Annotations = map[string]string{controlplanev1.RecoveryAnnotation: record}
		return RecoveryUnderWay(controlPlane)
	}
	g.Expect(under(`{"id":"r1","state":"Begun"}`)).To(BeEmpty(), "nobody asks for it any more")
	controlPlane.Spec.Recovery = &controlplanev1.EtcdRecovery{ID: "r1"}
	g.Expect(under(`{"id":"r1","state":"Begun"}`)).To(Equal("r1"))
	for _, record := range []string{"", `{"id":"r0","state":"Begun"}`, `{"id":"r1","state":"Fetching"}`,
		`{"id":"r1","state":"Complete"}`, `{"id":"r1","state":"Void"}`} {
		g.Expect(under(record)).To(BeEmpty(), record)
	}
}
