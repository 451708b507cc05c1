// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{answer, "", "end ok\n", "disk a 9223372036854775807 0 x\nend ok\n",
		"memory.kib 9223372036854775807\nend ok", "end ok\ntraced user\n", "address a ::1/129\nend ok",
		"clock 1.2\nclock.end -9223372036854775808.9\nend ok\n",
		"disk a 1 0 a\ndisk.volume a NAME=\"x\\\"\" TYPE=\"part\"\nend ok\n", "owner {}\nlink a b c d\nend ok\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := inspect.Parse(text)
		if (facts == nil) == (err == nil) {
			t.Fatal("either facts or an error")
		}
		if err == nil && !strings.HasSuffix(text, "end ok\n") {
			t.Fatal("an answer that was cut off passes")
		}
		if err != nil {
			return
		}
		for _, disk := range facts.Disks {
			if disk.SizeBytes <= 0 || disk.ID == "" || disk.Name == "" {
				t.Fatalf("disk %+v", disk)
			}
		}
		if text := fmt.Sprintf("%+v", facts); !utf8.ValidString(text) {
			t.Fatalf("%q can be written to no status", text)
		}
		if facts.MemoryBytes < 0 {
			t.Fatalf("%d bytes of memory", facts.MemoryBytes)
		}
	})
}

// A baseline knows the traces that it was made of and no other, whatever a host prints.
func FuzzBaseline(f *testing.F) {
	for _, text := range []string{"", "traced user\ntrace user\ta\t0:0\n", "trace \t\t\n",
		"traced a,b:\ntraced x\ntrace x\t\xff\t",
		"traced user\ntrace user\ta\ntrace user\ta\tb\tc\n"} {
		f.Add(text, "user:")
	}
	f.Fuzz(func(t *testing.T, text, encoded string) {
		traces := &inspect.Traces{}
		for line := range strings.SplitSeq(text, "\n") {
			traces.Take(line)
		}
		if other, err := inspect.ParseBaseline(encoded); err == nil && other != nil {
			other.Later(traces)
			other.Missing(traces)
			other.Gone(traces)
		}
		own, err := inspect.ParseBaseline(traces.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if own == nil {
			return
		}
		if later := own.Later(traces); len(later) > 0 {
			t.Fatalf("of its own it does not know %q", later)
		}
		if lost, unknown := own.Missing(traces); len(lost)+len(unknown) > 0 {
			t.Fatalf("of its own it lacks %q and %q", lost, unknown)
		}
		if gone := own.Gone(traces); len(gone) > 0 || inspect.Outdated(traces.Encode()) {
			t.Fatalf("of its own is gone %v", gone)
		}
		guards := inspect.Trace{Kind: "sudo", Name: text + "-", Value: "x", How: "644 0:0"}
		more := &inspect.Traces{Kinds: []string{"sudo"}, All: append(slices.Clone(traces.All), guards)}
		if fuller, err := inspect.ParseBaseline(more.Encode()); err != nil || fuller != nil &&
			!reflect.DeepEqual(fuller.Gone(&inspect.Traces{Kinds: more.Kinds, All: traces.All}), []inspect.Gone{{Kind: "sudo", Count: 1}}) {
			t.Fatal("what went since is not seen")
		}
		guards.How = "666 0:0"
		changed := &inspect.Traces{Kinds: more.Kinds, All: append(slices.Clone(traces.All), guards)}
		if fuller, _ := inspect.ParseBaseline(more.Encode()); fuller != nil && len(fuller.Later(changed)) != 1 {
			t.Fatal("another mode is not seen")
		}
		if traces.Kinds[0] == "tool" {
			return // one more of them is no change
		}
		came := inspect.Trace{Kind: traces.Kinds[0], Name: text + "+"}
		added := &inspect.Traces{Kinds: traces.Kinds, All: append(traces.All, came)}
		if len(own.Later(added)) != 1 {
			t.Fatal("what came since is not seen")
		}
	})
}

// A file and a link are one trace each, which says what they are, whatever their names and targets are.
func FuzzTracedNames(f *testing.F) {
	for _, name := range []string{"a", "a b", "a\nb", "a\n", "-n", "*", "'", `"\`, "$(x)", "\x01\x7f", "gr\u00fcn", "\xff", "#", "\xae\x0f"} {
		f.Add(name)
	}
	f.Fuzz(tracesOneFile)
}

func tracesOneFile(t *testing.T, name string) {
	t.Helper()
	if name == "" || name == "." || name == ".." || len(name) > 200 || strings.ContainsAny(name, "/\x00") {
		return
	}
	dir := t.TempDir()
	if os.WriteFile(filepath.Join(dir, name), nil, 0o600) != nil || os.Symlink(name, filepath.Join(dir, name+"~")) != nil {
		return
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", inspect.TraceFunctions+`quoin_trace_files x "$1"`, "sh", dir)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	traces := &inspect.Traces{}
	for line := range strings.SplitSeq(string(out), "\n") {
		traces.Take(line)
	}
	if len(traces.All) != 2 || !slices.Equal(traces.Kinds, []string{"x"}) {
		t.Fatalf("%q", out)
	}
	said := func(text string) string {
		if inner, ok := strings.CutPrefix(text, "$'"); ok {
			text, err = strconv.Unquote(`"` + strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `"`, `\"`) + `"`)
			if err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	for _, trace := range traces.All {
		if target, ok := strings.CutPrefix(trace.Value, "-> "); ok {
			if target = said(target); target != strings.TrimRight(name, "\n") {
				t.Fatalf("a link to %q is one to %q", name, target)
			}
		} else if path := said(trace.Name); path != filepath.Join(dir, name) {
			t.Fatalf("%q is called %q", name, path)
		}
	}
}
