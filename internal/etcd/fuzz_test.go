// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"strings"
	"testing"
)

// Whatever a member's metrics are: the peers are those of the lines that name them, and a line that is too long is an
// error and not the end.
func FuzzParsePeers(f *testing.F) {
	const line = `etcd_network_active_peers{Local="8e9e05c52164694d",Remote="91bc3c398fb3c146"} 1` + "\n"
	f.Add(line, "")
	f.Add("# HELP x\n"+line+strings.Replace(line, "} 1", "} 0", 1), "x")
	f.Add(strings.Replace(line, "91bc", "91bc91bc", 1), "\n\n")
	f.Add(strings.Replace(line, "} 1", "} NaN", 1), strings.Repeat("x", 70_000))
	f.Fuzz(func(t *testing.T, before, after string) {
		peers, err := parsePeers(strings.NewReader(before + "\n" + line + after))
		if err != nil {
			if peers != nil || !strings.Contains(err.Error(), "reading its metrics") || len(err.Error()) > 300 {
				t.Fatalf("%v beside %q", peers, err)
			}
			return
		}
		if len(peers) == 0 || len(peers) > strings.Count(before+line+after, "etcd_network_active_peers") {
			t.Fatalf("%d peers", len(peers))
		}
		if _, heard := peers[0x91bc3c398fb3c146]; !heard {
			t.Fatal("the line among the others is not read")
		}
	})
}
