// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package transcript_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/transcript"
)

func TestDifferencesAreNamedByTheirWorld(t *testing.T) {
	g := NewWithT(t)
	actual := transcript.Parse("# recorded\nplan provision\nstep kubeadm-join done 0\ncreated file -rw------- root:root /etc/kubernetes/kubelet.conf\n")
	simulated := transcript.Parse("plan provision\nstep kubeadm-join done 0\ncreated file -rw-r--r-- root:root /etc/kubernetes/kubelet.conf\ncreated file -rw-r--r-- root:root /only/here\n")
	gaps, err := transcript.ParseGaps(".* /only/here # nobody else has it\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(transcript.Compare(actual, simulated, gaps)).To(Equal([]string{
		"real: created file -rw------- root:root /etc/kubernetes/kubelet.conf",
		"simulated: created file -rw-r--r-- root:root /etc/kubernetes/kubelet.conf",
	}))
	g.Expect(transcript.Compare(actual, actual, nil)).To(BeEmpty())
	g.Expect(transcript.Parse(actual.String())).To(Equal(actual))
}

func TestAGapNeedsAReason(t *testing.T) {
	g := NewWithT(t)
	_, err := transcript.ParseGaps("created .*\n")
	g.Expect(err).To(MatchError(ContainSubstring("needs a reason")))
}
