// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
)

const (
	// stagedAtOnce is how many hosts an upgrade has at work at a time: they may all fetch from one server.
	stagedAtOnce = 4
	// stageLease is for how long a host is asked. It is renewed when half of it is over.
	stageLease = 24 * time.Hour
	// mostStaged bounds what one host is asked for, as the API does.
	mostStaged = 8
	// stageAgain is after how long to look which hosts are free by now.
	stageAgain = time.Minute
)

// Spare is a host that could be asked to have a version before it is claimed, or that is asked.
type Spare struct {
	// Name is namespace/name.
	Name string
	// Serves are the objects, as steps name them, whose next Machines would claim the host; empty when none would.
	Serves []string
	// Stage is what the host is asked for, and Staged what it has of that.
	Stage  *infrav1.HostStage
	Staged []infrav1.StagedArtifacts
	// Failed says why it cannot get the rest; empty while it can.
	Failed string
}

// StageRequest is what a host is to be asked for; nothing any more when nil.
type StageRequest struct {
	Host  string
	Stage *infrav1.HostStage
}

// stage asks free hosts for what comes next (docs/adr/0032). Nothing waits for that: it is told, and no more.
func (t *deliberation) stage() {
	if t.First != "" || meta.IsStatusConditionTrue(t.Status.Conditions, quoinv1.ClusterUpgradePausedCondition) {
		return
	}
	by, may := t.upgrade.Namespace+"/"+t.upgrade.Name, t.mayStage()
	counted := staging{}
	var due []StageRequest
	for _, spare := range t.Spares {
		asked, wants := spare.Stage != nil && spare.Stage.RequestedBy == by, []infrav1.StagedArtifacts(nil)
		if may {
			wants = t.wants(spare)
		}
		switch {
		case !asked && (len(wants) == 0 || spare.Stage != nil && t.now.Before(spare.Stage.Until.Time)):
			continue // nobody's, or another upgrade's
		case len(wants) == 0:
			t.Stage = append(t.Stage, StageRequest{Host: spare.Name})
			continue
		}
		request := StageRequest{spare.Name, &infrav1.HostStage{RequestedBy: by,
			Until: metav1.NewTime(t.now.Add(stageLease)), Artifacts: wants}}
		switch same := asked && slices.Equal(spare.Stage.Artifacts, wants); {
		case !same:
			due = append(due, request)
		case spare.Stage.Until.Sub(t.now) < stageLease/2:
			t.Stage = append(t.Stage, request)
		}
		counted.add(spare, wants, asked)
	}
	t.Stage = append(t.Stage, due[:min(len(due), max(0, stagedAtOnce-counted.working))]...)
	t.reportStaged(may, counted)
}

// staging is how far the hosts are that could have what comes next.
type staging struct {
	hosts, staged, working int
	versions, failed       []string
}

func (s *staging) add(spare Spare, wants []infrav1.StagedArtifacts, asked bool) {
	s.hosts++
	for _, want := range wants {
		if !slices.Contains(s.versions, want.Version) {
			s.versions = append(s.versions, want.Version)
		}
	}
	lacks := slices.ContainsFunc(wants, func(want infrav1.StagedArtifacts) bool {
		return !slices.Contains(spare.Staged, want)
	})
	switch {
	case !lacks:
		s.staged++
	case asked && spare.Failed != "":
		s.failed = append(s.failed, spare.Name+": "+spare.Failed)
	case asked && slices.Equal(spare.Stage.Artifacts, wants):
		s.working++
	}
}

// mayStage reports whether it is known what comes next, and whether it may come.
func (t *deliberation) mayStage() bool {
	conditions := t.Status.Conditions
	progress := meta.FindStatusCondition(conditions, quoinv1.ClusterUpgradeProgressingCondition)
	return !Completed(t.upgrade) && t.Cluster != nil && !t.Cluster.Deleting &&
		meta.IsStatusConditionTrue(conditions, quoinv1.ClusterUpgradePlannedCondition) &&
		(progress == nil || progress.Reason != quoinv1.BlockedReason)
}

// wants is what a host needs for the next Machines that would claim it: the next version of each group, because an
// installation of that removes what others left.
func (t *deliberation) wants(spare Spare) []infrav1.StagedArtifacts {
	var wants []infrav1.StagedArtifacts
	seen := map[string]bool{}
	for _, step := range t.Status.Steps {
		of, known := t.Supplies[step.Object]
		if !raises(step) || step.State == quoinv1.UpgradeStepDone || seen[step.Object] || !known ||
			!slices.Contains(spare.Serves, step.Object) {
			continue
		}
		seen[step.Object] = true
		of.Version = step.To
		if !slices.Contains(wants, of) && len(wants) < mostStaged {
			wants = append(wants, of)
		}
	}
	return wants
}

// reportStaged tells how far the hosts are.
func (t *deliberation) reportStaged(may bool, counted staging) {
	if !may || len(t.Supplies) == 0 {
		meta.RemoveStatusCondition(&t.Status.Conditions, quoinv1.ClusterUpgradeStagedCondition)
		return
	}
	t.again(stageAgain)
	status, reason := metav1.ConditionFalse, quoinv1.StagingReason
	message := fmt.Sprintf("%s is staged on %d of %d free hosts; nothing waits for that",
		strings.Join(counted.versions, ", "), counted.staged, counted.hosts)
	switch {
	case counted.hosts == 0:
		reason, message = quoinv1.NoFreeHostReason, "no host is free for the next Machines, so nothing is staged"
	case counted.staged == counted.hosts:
		status, reason = metav1.ConditionTrue, quoinv1.StagedReason
	case len(counted.failed) > 0:
		reason = quoinv1.StagingFailedReason
		message += ". " + strings.Join(counted.failed, "; ")
	}
	t.set(quoinv1.ClusterUpgradeStagedCondition, status, reason, message)
}
