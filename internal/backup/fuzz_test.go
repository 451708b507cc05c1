// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Whatever lies in a store beside what was signed: it is believed where it says the same, and not otherwise; a former
// key is believed too, and none shows in an error.
func FuzzSignature(f *testing.F) {
	const first, former = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	digest := strings.Repeat("0f", 32)
	signed := Metadata{Format: Format, Name: "20261121T120000Z-0123456789ab.db", Authority: digest, Revision: 7,
		Entries: 5, Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Size: 512, SnapshotSHA256: digest, StoredSize: 512,
		SHA256: digest}
	signed = SigningKeys{[]byte(former)}.sign(signed)
	sidecar, err := signed.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sidecar, []byte(first+"\n"+former))
	f.Add(bytes.Replace(sidecar, []byte(`"revision": 7`), []byte(`"revision": 8`), 1), []byte(former))
	f.Add(bytes.Replace(sidecar, []byte("12:00:00Z"), []byte("13:00:00+01:00"), 1), []byte("# note\n\n  "+former+"  "))
	f.Add(bytes.Replace(sidecar, []byte(`{`), []byte(`{"later":1,`), 1), []byte("short"))
	f.Fuzz(func(t *testing.T, raw, keys []byte) {
		parsed, err := ParseSigningKeys(keys)
		if err != nil {
			// It is the same for every key: nothing of one shows but where it is.
			said := regexp.MustCompile("[0-9]+").ReplaceAllString(err.Error(), "N")
			if said != "line N has less than N characters: take one of openssl rand -hex N" &&
				said != "it holds no key: one per line, the first signs" {
				t.Fatal(err)
			}
			return
		}
		for _, key := range parsed {
			if len(key) < minSigningKey || bytes.ContainsAny(key, "\n") {
				t.Fatalf("key %q", key)
			}
		}
		found, err := ParseMetadata(raw)
		if err != nil {
			return
		}
		if own := parsed.sign(found); !parsed.believe(own) || !parsed[:1].believe(own) {
			t.Fatalf("%+v is not believed by who signed it", own)
		}
		content, mine := found, signed
		content.Signature, mine.Signature = "", ""
		one, errOne := content.marshal()
		other, errOther := mine.marshal()
		if errOne != nil || errOther != nil {
			t.Fatal(errOne, errOther)
		}
		secret := SigningKeys{[]byte(first), []byte(former)}
		same := bytes.Equal(one, other) && strings.EqualFold(found.Signature, signed.Signature)
		if secret.believe(found) != same {
			t.Fatalf("%+v is believed: %v", found, !same)
		}
	})
}
