// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package keepalived

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/programtest"
)

func TestTheCheckAsksWhetherTheServerLives(t *testing.T) {
	programtest.Need(t, "curl")
	check := func(port int) error {
		command := exec.Command("/bin/sh")
		command.Stdin = strings.NewReader(Config{Port: port}.checkScript())
		return command.Run()
	}
	for status, healthy := range map[int]bool{
		http.StatusOK: true,
		// Anonymous requests are off.
		http.StatusUnauthorized: true, http.StatusForbidden: true,
		http.StatusInternalServerError: false, http.StatusServiceUnavailable: false, http.StatusNotFound: false,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			g := NewWithT(t)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				g.Expect(r.URL.Path).To(Equal("/livez"))
				w.WriteHeader(status)
			}))
			port := server.Listener.Addr().(*net.TCPAddr).Port
			err := check(port)
			server.Close()
			if healthy {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(HaveOccurred())
			}
			g.Expect(check(port)).NotTo(Succeed(), "nothing answers any more")
		})
	}
}
