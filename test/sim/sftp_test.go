// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// The data of an etcd member are two segments of 64 MiB. When each packet of an upload cost the whole file, a host took
// minutes for them beside other work, and those who waited for it gave up.
func TestAnUploadCostsTheSizeOfItsFile(t *testing.T) {
	g := NewWithT(t)
	const size, packet = 16 << 20, 32 << 10
	host := machine.New(machine.Options{})
	defer host.PowerOff()
	up := &upload{files: &files{host, "root"}, name: "/root/wal", mode: 0o600}
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for at := 0; at < size; at += packet {
		_, err := up.WriteAt(content[at:at+packet], int64(at))
		g.Expect(err).NotTo(HaveOccurred())
	}
	runtime.ReadMemStats(&after)
	g.Expect(after.TotalAlloc - before.TotalAlloc).To(BeNumerically("<", 10*size))
	read := func() []byte {
		written, err := host.FS().ReadFile("/root/wal")
		g.Expect(err).NotTo(HaveOccurred())
		return written
	}
	g.Expect(bytes.Equal(read(), content)).To(BeTrue())

	_, err := up.WriteAt([]byte("again"), 8)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(read()[:16])).To(Equal("01234567againdef"))
	_, err = up.WriteAt([]byte("end"), size+4)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(read()[size-2:])).To(Equal("ef\x00\x00\x00\x00end"), "what was skipped is empty")
}
