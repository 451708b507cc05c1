// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"regexp"
	"slices"
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
		var written []string
		for _, line := range strings.Split(string(keys), "\n") {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				written = append(written, line)
			}
		}
		short := slices.ContainsFunc(written, func(line string) bool { return len(line) < 32 })
		if (err != nil) != (short || len(written) == 0) || err == nil && len(parsed) != len(written) {
			t.Fatalf("%d keys are read of %q: %v", len(parsed), keys, err)
		}
		if err != nil {
			// It is the same for every key: nothing of one shows but where it is.
			said := regexp.MustCompile("[0-9]+").ReplaceAllString(err.Error(), "N")
			if said != "line N has less than N characters: take one of openssl rand -hex N" &&
				said != "it holds no key: one per line, the first signs" {
				t.Fatal(err)
			}
			return
		}
		for i, key := range parsed {
			if string(key) != written[i] {
				t.Fatalf("key %q of %q", key, written[i])
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

// Whatever schedule a person writes: one that is taken comes again and again, on full minutes and in order.
func FuzzSchedule(f *testing.F) {
	for _, raw := range []string{"0 */6 * * *", "30 2 * * SUN", "0 0 29 2 *", "0 0 30 2 *", "@daily", "@every 1s",
		"TZ=UTC", "CRON_TZ=Europe/Vienna 0 0 * * *", "* * * * * *", "5-1 * * * *",
		"*/0 * * * *", "*/4294967296 * * * *", "? ? ? ? ?",
		"1,2-50/3 0 1 JAN-MAR 1-5", ""} {
		f.Add(raw, int64(1790000000))
	}
	f.Fuzz(func(t *testing.T, raw string, unix int64) {
		schedule, err := ParseSchedule(raw)
		if err != nil {
			return
		}
		// The years that somebody may live in, and in which each fourth is a leap year.
		if unix < 0 || unix > 1<<31 {
			return
		}
		last := time.Unix(unix, 0)
		for range 3 {
			next := schedule.Next(last)
			if !next.After(last) || next.Sub(last) > 5*366*24*time.Hour || next.Second() != 0 || next.Nanosecond() != 0 ||
				next.Location() != time.UTC {
				t.Fatalf("%q comes at %s after %s", raw, next, last)
			}
			if again := schedule.Next(next.Add(-time.Second)); !again.Equal(next) {
				t.Fatalf("%q comes at %s and at %s", raw, next, again)
			}
			last = next
		}
	})
}

// Whatever Secrets hold: those whom snapshots are encrypted to are read as they are written, none of them is a private
// key, and no error shows one.
func FuzzAgeKeys(f *testing.F) {
	const private = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"
	const public = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj"
	for _, raw := range []string{public, "# ours\n\n" + public + "\n" + public + "\n", private, "  " + private,
		"x " + private, strings.ToLower(private), public + "\n" + private, "age1" + strings.Repeat("q", 58), "",
		strings.Repeat(public+"\n", 65), private + "\n" + private, private[:40], "\xff"} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		recipients, err := ParseRecipients(raw)
		if err == nil {
			names := recipients.names()
			again, err := ParseRecipients([]byte(strings.Join(names, "\n")))
			if err != nil || !slices.Equal(names, again.names()) || len(names) == 0 || len(names) > 64 {
				t.Fatalf("%q became %q: %v", names, again, err)
			}
			for line := range strings.Lines(string(raw)) {
				if !strings.HasPrefix(line, "#") && strings.Contains(strings.ToUpper(line), "AGE-SECRET-KEY-") {
					t.Fatalf("%q is a private key", line)
				}
			}
		} else if strings.Contains(strings.ToUpper(err.Error()), "AGE-SECRET-KEY-1") {
			t.Fatal(err)
		}
		identities, err := ParseIdentities(raw)
		if (len(identities) == 0) != (err != nil) || err == nil && recipients != nil {
			t.Fatalf("%d identities beside %v", len(identities), err)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET-KEY-1G") {
			t.Fatal(err)
		}
	})
}
