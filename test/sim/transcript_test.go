// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/transcript"
)

// TestTheSimulationDoesWhatRealHostsDo holds what a worker's provisioning and release do to a simulated host against
// what they did to a real one. The simulated transcripts come into _artifacts/transcripts, the real ones were recorded
// into testdata.
func TestTheSimulationDoesWhatRealHostsDo(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	l := newLab(t, newFleet(t, kube.Options{}, nil), "transcript")
	host := &machine.Host{Machine: l.host.Machine}
	l.untilState(infrav1.HostStateAvailable)
	recorder, err := transcript.Before(t.Context(), host)
	g.Expect(err).NotTo(HaveOccurred())

	l.addMachine()
	g.Expect(l.untilProvisioned()).To(Equal(infrav1.HostProvisionedReason), l.describe())
	claim := l.untilState(infrav1.HostStateProvisioned).Spec.ConsumerRef.Claim
	provision, err := recorder.After(t.Context(), infrav1.ProvisionOperation(claim))
	g.Expect(err).NotTo(HaveOccurred())
	l.deleteMachine()
	l.untilState(infrav1.HostStateAvailable)
	reset, err := recorder.After(t.Context(), infrav1.ResetOperation(claim))
	g.Expect(err).NotTo(HaveOccurred())

	gaps := readGaps(t)
	for name, simulated := range map[string]*transcript.Transcript{"worker-provision.txt": provision, "worker-reset.txt": reset} {
		keep(t, name, simulated)
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if errors.Is(err, fs.ErrNotExist) {
			t.Logf("testdata/%s was not recorded yet; docs/sim.md says how", name)
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range transcript.Compare(transcript.Parse(string(text)), simulated, gaps) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func readGaps(t *testing.T) transcript.Gaps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "gaps.txt"))
	if err != nil {
		t.Fatal(err)
	}
	gaps, err := transcript.ParseGaps(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return gaps
}

func keep(t *testing.T, name string, simulated *transcript.Transcript) {
	t.Helper()
	dir := filepath.Join(thePlane.Root(), "_artifacts", "transcripts")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(simulated.String()), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
