// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestUUID(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"4C4C4544-0044-4A10-8054-B4C04F4D3132":   "4c4c4544-0044-4a10-8054-b4c04f4d3132",
		" 4c4c4544-0044-4a10-8054-b4c04f4d3132 ": "4c4c4544-0044-4a10-8054-b4c04f4d3132",
		"00000000-0000-0000-0000-000000000000":   "",
		"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF":   "",
		"03000200-0400-0500-0006-000700080009":   "",
		"00020003-0004-0005-0006-000700080009":   "", // the same in the other byte order
		"03000200040005000006000700080009":       "", // without hyphens
		"33221100554477668899AABBCCDDEEFF":       "33221100-5544-7766-8899-aabbccddeeff",
		"":                                       "",
		"To be filled by O.E.M.":                 "",
		"4c4c4544":                               "",
	} {
		g.Expect(UUID(text)).To(Equal(want), text)
	}
}

func TestSameUUID(t *testing.T) {
	g := NewWithT(t)
	const big, little, other = "33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff",
		"00112233-4455-6677-8899-aabbccddeef0"
	g.Expect(SameUUID(big, big)).To(BeTrue())
	g.Expect(SameUUID(big, "33221100-5544-7766-8899-AABBCCDDEEFF")).To(BeTrue())
	g.Expect(SameUUID(big, "33221100554477668899aabbccddeeff")).To(BeTrue())
	g.Expect(SameUUID(big, little)).To(BeTrue())
	g.Expect(SameUUID(little, big)).To(BeTrue())
	g.Expect(SameUUID(little, other)).To(BeFalse())
	g.Expect(SameUUID("", "")).To(BeFalse())
	g.Expect(SameUUID("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000")).To(BeFalse())
}

func TestBothByteOrdersOfAUUIDHaveOneForm(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"33221100-5544-7766-8899-AABBCCDDEEFF", "00112233-4455-6677-8899-aabbccddeeff",
		"33221100554477668899aabbccddeeff"} {
		g.Expect(CanonicalUUID(text)).To(Equal("00112233-4455-6677-8899-aabbccddeeff"))
	}
	g.Expect(CanonicalUUID("ffffffff-ffff-ffff-ffff-ffffffffffff")).To(BeEmpty())
	g.Expect(CanonicalUUID("")).To(BeEmpty())
}

func TestSerial(t *testing.T) {
	g := NewWithT(t)
	for text, want := range map[string]string{
		"S4EWNX0M": "S4EWNX0M", " CN7016346B00AB ": "CN7016346B00AB", "To be filled by O.E.M.": "", "Default string": "",
		"System Serial Number": "", "N/A": "", "0000000000": "", "xxxxxxxx": "", "0123456789": "", "": "", "123": "",
	} {
		g.Expect(Serial(text)).To(Equal(want), text)
	}
	g.Expect(SameSerial("s4ewnx0m", "S4EWNX0M ")).To(BeTrue())
	g.Expect(SameSerial("S4EWNX0M", "S4EWNX0N")).To(BeFalse())
	g.Expect(SameSerial("Default string", "Default string")).To(BeFalse())
}
