// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package firmware knows by what the firmware of a machine identifies it: the UUID and the serial number of SMBIOS's
// System Information (DSP0134, 7.2), as the operating system reads them and as a BMC says them.
package firmware

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
)

// placeholders are UUIDs of boards that were never given one.
var placeholders = []string{
	"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
	"03000200-0400-0500-0006-000700080009", "12345678-1234-5678-90ab-cddeefaabbcc",
}

// unfilled are serial numbers of boards that were never given one, in lower case and without spaces and punctuation.
var unfilled = []string{
	"tobefilledbyoem", "tobefilled", "defaultstring", "systemserialnumber", "serialnumber", "notspecified",
	"notapplicable", "notavailable", "none", "na", "null", "unknown", "invalid", "empty", "123456789", "0123456789",
	"1234567890",
}

// UUID is a UUID in its usual form, however it is written; empty when it tells nothing.
func UUID(text string) string {
	other := swapped(strings.TrimSpace(text))
	id := swapped(other)
	if slices.Contains(placeholders, id) || slices.Contains(placeholders, other) {
		return ""
	}
	return id
}

// SameUUID reports whether two UUIDs are one. The first three fields of one may be in the other byte order: what writes
// them as SMBIOS 2.6 says, and what does not, both exist.
func SameUUID(a, b string) bool {
	a, b = CanonicalUUID(a), CanonicalUUID(b)
	return a != "" && a == b
}

// CanonicalUUID is the smaller one of both byte orders of a UUID, by which it is looked for; empty when it tells
// nothing.
func CanonicalUUID(text string) string {
	other := swapped(UUID(text))
	return min(other, swapped(other))
}

// swapped has the bytes of the first three fields the other way round.
func swapped(id string) string {
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	if err != nil || len(raw) != 16 {
		return ""
	}
	for _, field := range [][]byte{raw[:4], raw[4:6], raw[6:8]} {
		slices.Reverse(field)
	}
	out := hex.EncodeToString(raw)
	return strings.Join([]string{out[:8], out[8:12], out[12:16], out[16:20], out[20:]}, "-")
}

// Serial is a serial number; empty when it tells nothing.
func Serial(text string) string {
	serial := strings.TrimSpace(text)
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" .,_-/:", r) {
			return -1
		}
		return r
	}, strings.ToLower(serial))
	if len(plain) < 4 || slices.Contains(unfilled, plain) || len(bytes.Trim([]byte(plain), plain[:1])) == 0 {
		return ""
	}
	return serial
}

// SameSerial reports whether two serial numbers are one.
func SameSerial(a, b string) bool {
	a, b = Serial(a), Serial(b)
	return a != "" && strings.EqualFold(a, b)
}
