// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package pivot

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever the copies of a journal are: one that is open and is read has nothing that would be lost when it is written
// again, and all copies together say what one of them says, in whichever order they are read.
func FuzzJournal(f *testing.F) {
	const head = `{"id":"a","began":"2026-11-23T08:00:00Z","namespace":"n","source":"s","target":"t","objects":`
	for _, one := range []string{head + `[],"phase":"Copying"}`, head + `[],"phase":"Done","later":1}`,
		head + `[{"apiVersion":"v1","kind":"Secret","name":"x"}],"phase":"Copying"}`,
		head + `null,"phase":"Releasing","holder":"h","renewed":"2026-11-23T08:00:00+01:00"}`,
		head + `[],"phase":"Later"}`, head + `[],"phase":"Copying","later":1}`, `{}`, `null`, `[]`, "\xff"} {
		f.Add([]byte(one), []byte(head+`[],"phase":"Undoing"}`))
	}
	f.Fuzz(func(t *testing.T, one, other []byte) {
		var read []*Journal
		for _, text := range [][]byte{one, other} {
			j := &Journal{}
			if err := json.Unmarshal(text, j); err != nil {
				// A time is quoted twice in what is said of it.
				if err.Error() == "" || len(err.Error()) > 10*len(text)+300 {
					t.Fatalf("%q is refused: %q", text, err)
				}
				continue
			}
			read = append(read, j)
			written, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			again := &Journal{}
			if err := json.Unmarshal(written, again); err != nil || again.Phase != j.Phase || !again.Began.Equal(j.Began) ||
				!again.Renewed.Equal(j.Renewed) || !slices.Equal(again.Objects, j.Objects) ||
				!slices.Equal(again.Existing, j.Existing) {
				t.Fatalf("%q became %q: %v", text, written, err)
			}
			if j.Open() && j.Phase != "" && !slices.Contains(ranks, j.Phase) {
				t.Fatalf("phase %q is known to nobody", j.Phase)
			}
		}
		if len(read) < 2 {
			return
		}
		merged, reversed := Merge(read...), Merge(nil, read[1], read[0])
		if !slices.Contains(read, merged) || merged.Open() != reversed.Open() ||
			merged.Phase != reversed.Phase && !read[0].Began.Equal(read[1].Began) {
			t.Fatalf("%+v is not %+v", merged, reversed)
		}
		for _, j := range read {
			if j.ID == merged.ID && slices.Index(ranks, j.Phase) > slices.Index(ranks, merged.Phase) ||
				j.ID != merged.ID && j.Open() && !merged.Open() {
				t.Fatalf("%+v is further than %+v", j, merged)
			}
		}
	})
}

// Whatever a question asks and an answer says: the question is understood as it was meant, in arguments that a kubelet
// leaves as they are, and the answer has room where a kubelet keeps it and loses no failure.
func FuzzAsking(f *testing.F) {
	f.Add("10.0.0.1", "a $(HOME) key", "10.96.0.0/12", "no route", 3,
		`{"looks":3,"failed":1,"faults":[{"why":"x","looks":[2]}]}`)
	f.Add("\xff", "", "", strings.Repeat("long", 900), 40, `{"looks":40,"faults":[{"looks":[-1]}]}`)
	f.Add("", "", "", strings.Repeat("long", 200), 9, `{"looks":9}`)
	f.Add("", "$$", "", "", 1, `[]`)
	f.Fuzz(func(t *testing.T, address, key, service, why string, looks int, message string) {
		if looks < 1 || looks > 300 {
			return
		}
		asked := Question{Services: []string{service}}
		failures := make([]string, looks)
		for i := range looks {
			asked.Looks = append(asked.Looks, Look{Address: address, Port: i, HostKeys: []string{key}})
			if i%3 > 0 {
				failures[i] = why + strings.Repeat("!", i%5)
			}
		}
		arguments, err := asked.Arguments()
		if err != nil || len(arguments) != looks+1 || strings.ContainsRune(strings.Join(arguments, ""), '$') {
			t.Fatalf("%q: %v", arguments, err)
		}
		if utf8.ValidString(address + key + service) {
			if understood, err := ParseQuestion(arguments); err != nil || !reflect.DeepEqual(understood, asked) {
				t.Fatalf("%+v became %+v: %v", asked, understood, err)
			}
		}
		answer := NewAnswer(failures)
		kept, err := answer.Message()
		if err != nil || len(kept) > answerBytes {
			t.Fatalf("%d bytes: %v", len(kept), err)
		}
		heard, err := ParseAnswer(string(kept), looks)
		if err != nil || heard.Failed != answer.Failed {
			t.Fatalf("%q: %v", kept, err)
		}
		// Where all has room all is said, and else what the first looks failed for.
		whole, err := json.Marshal(answer)
		said := slices.Sorted(maps.Keys(heard.why()))
		var failed []int
		for look, why := range failures {
			if why != "" {
				failed = append(failed, look)
			}
		}
		if err != nil || len(said) > len(failed) || !slices.Equal(said, failed[:len(said)]) ||
			(len(said) == len(failed)) != (len(whole) <= answerBytes) || answer.Failed != len(failed) {
			t.Fatalf("%d bytes became %q: %v", len(whole), kept, err)
		}
		for look, said := range heard.why() {
			if utf8.ValidString(why) && failures[look] != said {
				t.Fatalf("look %d failed for %q and not for %q", look, failures[look], said)
			}
		}
		if heard, err := ParseAnswer(message, looks); err == nil {
			for look := range heard.why() {
				_ = failures[look]
			}
		} else if len(err.Error()) > 2000 {
			t.Fatalf("%d bytes for a sentence", len(err.Error()))
		}
	})
}

// Whatever a BMC's address, the location of a bundle, a proxy or the endpoint of an object store is: the one address
// that is asked is that which a client of it would connect to, and where a version decides that, none is.
func FuzzAddresses(f *testing.F) {
	for _, location := range []string{"https://10.0.0.9", "https://bmc.example.com:8443/redfish", "http://proxy:3128/",
		"http://[fd00::1]:8080/b/{{version}}", "http://[fd00::1]/", "http://{{version}}.example.com/b", "HTTP://h", "s3",
		"https://u:p@h/b", "https://s3.example.com:", "http://proxy?", "https://bmc#", "https://[fe80::1%25eth0]/", "//h", "",
		"https://h/a@b:9", "http://h:x", "http://h:{{version}}/"} {
		f.Add(location)
	}
	f.Fuzz(func(t *testing.T, location string) {
		var found ways
		found.addURL("it", location, true)
		// A version that is part of the path leads nowhere else; anywhere before that the location is none.
		parsed, err := url.Parse(location)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" {
			if len(found) > 0 && err != nil {
				t.Fatalf("%q leads to %v: %v", location, found, err)
			}
			return
		}
		if len(found) != 1 || len(found[0].To) != 1 || found[0].Host || found[0].SSH || !found[0].Service {
			t.Fatalf("%q leads to %v", location, found)
		}
		port := cmp.Or(parsed.Port(), map[string]string{"http": "80", "https": "443"}[parsed.Scheme])
		if asked := found[0]; asked.Address != parsed.Hostname() || strings.TrimLeft(port, "0") != strings.TrimLeft(
			strconv.Itoa(asked.Port), "0") {
			t.Fatalf("%q leads to %s port %d, and a client to %s port %s", location, asked.Address, asked.Port,
				parsed.Hostname(), port)
		}
	})
}
