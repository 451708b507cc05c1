// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

// A status that the API server refuses says nothing of why it is not written.
func TestAHostThatSaysMuchStillHasAStatusThatCanBeWritten(t *testing.T) {
	g := NewWithT(t)
	// The longest that Parse takes, of what grows most in JSON.
	much := strings.Repeat("\x01", 16<<10)
	var said strings.Builder
	for _, word := range []string{"hostname", "os.id", "os.name", "kernel", "boot", "machineid", "uuid", "serial", "default",
		"runtime"} {
		fmt.Fprintf(&said, "%s %s\n", word, much)
	}
	facts, err := inspect.Parse(said.String() + "end ok\n")
	g.Expect(err).NotTo(HaveOccurred())
	facts.ProductUUID, facts.SerialNumber, facts.ContainerRuntime.Name, facts.Architecture = much, much, much, much
	for i := range 1024 {
		facts.Addresses = append(facts.Addresses, inspect.Address{Interface: much, Prefix: 64,
			Address: netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::1", i))})
	}
	for range 512 {
		facts.Disks = append(facts.Disks, inspect.Disk{ID: much, Name: much, SizeBytes: 1 << 40})
	}
	shown, err := json.Marshal(hostFacts(facts, newHost(), nil, newWorld(t).now))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(shown)).To(BeNumerically("<", 5<<18), "etcd takes one and a half MiB")
	g.Expect(hostFacts(facts, newHost(), nil, newWorld(t).now).Addresses).To(HaveLen(1024))

	w := newWorld(t)
	probed := ProbeResult{BootID: much, Facts: &inspect.Facts{MachineID: much, ProductUUID: much, SerialNumber: much}}
	r := &reconciliation{controller: w.r, host: newHost(), now: w.now}
	r.host.Status.Facts = hostFacts(&inspect.Facts{}, r.host, nil, w.now)
	r.noteReboot(probed)
	shown, err = json.Marshal(r.host.Status.Facts)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(shown)).To(BeNumerically("<", 16<<10))
}
