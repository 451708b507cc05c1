// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"strings"
	"testing"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/recovery"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// says is a host with one answer for everything.
type says struct {
	ssh.Host
	answer string
}

func (s says) Run(context.Context, ssh.Command) (ssh.Result, error) {
	return ssh.Result{Stdout: s.answer}, nil
}

// A member is named by both of its words, each in one line.
func FuzzPeer(f *testing.F) {
	for _, text := range []string{"name a\nurl https://10.0.0.1:2380\n", "", "name\nurl ,\n", "url a,b\nname \xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		peer, err := recovery.ReadPeer(t.Context(), says{answer: text})
		if err != nil {
			return
		}
		if peer.Name == "" || peer.URL == "" || strings.Contains(peer.Name+peer.URL, "\n") ||
			strings.Contains(peer.URL, ",") {
			t.Fatalf("%+v", peer)
		}
	})
}
