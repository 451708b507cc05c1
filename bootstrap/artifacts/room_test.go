// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

func TestTheRoomOfAHostIsAskedAhead(t *testing.T) {
	for _, push := range []bool{false, true} {
		l, _, wanted := serve(t, nil)
		t.Cleanup(artifacts.SetRoot(filepath.Join(l.dir, "root")))
		wanted.Bundle.Push = push
		supply, err := l.find(wanted)
		l.g.Expect(err).NotTo(HaveOccurred())
		l.g.Expect(supply.HasRoom(t.Context(), l.host, artifacts.ControlPlane)).To(Succeed())
		l.g.Expect(filepath.Join(l.dir, "root")).NotTo(BeADirectory(), "it is only asked")

		l.write("bin/df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/sda1 100 92 8 92%% /\\n'\n", 0o755)
		err = supply.HasRoom(t.Context(), l.host, artifacts.ControlPlane)
		l.g.Expect(err != nil).To(Equal(push), "what is sent waits on the host until it is installed: %v", err)

		l.write("bin/df", "#!/bin/sh\nprintf 'Filesystem\\n/dev/sda1 100 99 0 100%% /\\n'\n", 0o755)
		var lacks *artifacts.RoomError
		err = supply.HasRoom(t.Context(), l.host, artifacts.ControlPlane)
		l.g.Expect(err).To(BeAssignableToTypeOf(lacks))
		l.g.Expect(err).To(MatchError(ContainSubstring("only 0 KiB are free; make room there")))
		l.g.Expect(supply.HasRoom(t.Context(), l.host, artifacts.Addon)).NotTo(Succeed())
	}
}

// Who only looks does not try again.
func TestWhoOnlyLooksAsksOnce(t *testing.T) {
	l, s, wanted := serve(t, func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	wanted.Once = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := artifacts.Find(ctx, l.host, wanted)
	l.g.Expect(err).To(MatchError(ContainSubstring("503")))
	l.g.Expect(s.asked("manifest.json")).To(HaveLen(1))
}
