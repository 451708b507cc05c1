// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
)

// Whatever a file of objects has: what is read is the same when each object has a file of its own, in the same order,
// and no object goes with a Cluster that would not move with it.
func FuzzObjects(f *testing.F) {
	const one = "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata:\n  name: edge\n  namespace: metal\n"
	for _, content := range []string{one, one + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: metal}\n",
		one + "---\n# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: bmc, namespace: other}\n",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"x":"eA=="}}`, "", "---\n---\n", "- a\n", "{",
		"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: a}}]\n", "\xff",
		strings.ReplaceAll(one, "  namespace: metal\n", "") + "---\napiVersion: v1\nkind: Node\nmetadata: {name: 7}\n",
		"kind: X\napiVersion: v1\nmetadata: {name: a, labels: {b: 1.0}}\nspec: {f: .inf}\n", "a: &a [*a]\n"} {
		f.Add([]byte(content), "edge")
	}
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		if len(content) > 8192 {
			return
		}
		folder := t.TempDir()
		put := func(name string, content []byte) string {
			name = filepath.Join(folder, name)
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return name
		}
		file := put("all", content)
		objects, err := readObjects([]string{file})
		if err != nil {
			if objects != nil || !strings.Contains(err.Error(), file) {
				t.Fatalf("%d objects beside %v", len(objects), err)
			}
			return
		}
		var files []string
		for i := range objects {
			text, err := json.Marshal(objects[i].Object)
			if err != nil {
				return // no object of an API has a number without end
			}
			files = append(files, put(fmt.Sprint(i), text))
		}
		again, err := readObjects(files)
		if err != nil || len(again) != len(objects) {
			t.Fatalf("%d objects became %d: %v", len(objects), len(again), err)
		}
		for i := range again {
			written, err := json.Marshal(again[i].Object)
			if meant, _ := os.ReadFile(files[i]); err != nil || !bytes.Equal(written, meant) {
				t.Fatalf("%s became %s: %v", meant, written, err)
			}
		}
		namespace, err := oneNamespace(objects, name)
		if err != nil {
			if namespace != "" {
				t.Fatalf("%q beside %v", namespace, err)
			}
			return
		}
		found := false
		for _, o := range objects {
			own := o.GetNamespace() == namespace || o.GetNamespace() == "" && namespace == "default"
			if !own && (o.GetKind() != "Namespace" || o.GetName() != namespace) {
				t.Fatalf("%s %s of %q does not move with %q", o.GetKind(), o.GetName(), o.GetNamespace(), namespace)
			}
			found = found || own && o.GetName() == name && o.GetKind() == "Cluster" &&
				strings.HasPrefix(o.GetAPIVersion(), clusterv1.GroupVersion.Group+"/")
		}
		if !found {
			t.Fatalf("no Cluster %q is in %q", name, namespace)
		}
	})
}

// Whatever lies in the workspace beside the last pivot: it is read as it was written or refused by its name, and nobody
// is in charge while a pivot is open, or where no journal says how it ended.
func FuzzWorkspace(f *testing.F) {
	const sides = `{"source":{"Path":"bootstrap.kubeconfig"},"target":{"Path":"kubeconfig","Context":"c"},` +
		`"namespace":"metal"`
	const journal = `,"journal":{"id":"a","began":"2026-11-23T08:00:00Z","namespace":"metal","source":"s","target":"t",` +
		`"objects":[{"apiVersion":"v1","kind":"Secret","name":"x"}],"phase":`
	for _, content := range []string{sides + "}", sides + journal + `"Copying"}}`, sides + journal + `"Done"}}`,
		sides + `,"back":true` + journal + `"Undone"}}`, sides + journal + `"Later"}}`,
		sides + journal + `"Done"},"later":1}`, "null", "{}", "[]", "", "\xff", `{"journal":{}}`} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		w := workspace{t.TempDir()}
		if err := os.WriteFile(w.recordPath(), content, 0o600); err != nil {
			t.Fatal(err)
		}
		in, last, err := w.inCharge()
		if err != nil {
			if in != (charge{}) || last != nil || !strings.Contains(err.Error(), w.recordPath()) {
				t.Fatalf("%+v beside %v", in, err)
			}
			return
		}
		if !json.Valid(content) {
			t.Fatalf("%q was read", content)
		}
		var said struct {
			Source, Target cluster.Kubeconfig
			Namespace      string
			Back           bool
			Journal        *struct{ Phase string }
		}
		if err := json.Unmarshal(content, &said); err != nil {
			t.Fatalf("%q was read: %v", content, err)
		}
		if last.Source != said.Source || last.Target != said.Target || last.Namespace != said.Namespace ||
			last.Back != said.Back || (last.Journal == nil) != (said.Journal == nil) {
			t.Fatalf("%q was read as %+v", content, last)
		}
		switch {
		case said.Journal == nil || said.Journal.Phase != "Done" && said.Journal.Phase != "Undone":
			if in.By != (cluster.Kubeconfig{}) || in.moved() || in.Open != (said.Journal != nil) {
				t.Fatalf("%q leaves %+v in charge", content, in)
			}
		case said.Journal.Phase == "Done" && in.By != said.Target, said.Journal.Phase == "Undone" && in.By != said.Source,
			in.Open:
			t.Fatalf("%q leaves %+v in charge", content, in)
		}
		if in.moved() == in.Bootstrap && in.By.Path != "" {
			t.Fatalf("%+v moved, and did not", in)
		}
		l := &local{workspace: w, record: *last}
		if err := l.Save(last.Journal); err != nil {
			t.Fatal(err)
		}
		if again, _, err := w.inCharge(); err != nil || again != in {
			t.Fatalf("%+v became %+v: %v", in, again, err)
		}
	})
}
