// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
)

// versionJudge looks all the time, from outside, that no worker of the new version has a host, and no worker of the old
// one leaves, while an API server of the old one is to stay.
type versionJudge struct {
	court *court
	stop  chan struct{}
	ended sync.WaitGroup
	looks int
}

func (c *court) judgeVersions(pool string) *versionJudge {
	j := &versionJudge{court: c, stop: make(chan struct{})}
	j.ended.Go(func() {
		for {
			select {
			case <-j.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if early := j.early(pool); early != "" {
				c.t.Errorf("%s%s", early, c.describeWorkers())
				return
			}
		}
	})
	return j
}

// early is what went before the control plane. The workers are listed first: what they did before the control plane was
// seen to be old, they did too early.
func (j *versionJudge) early(pool string) string {
	workers, _ := j.court.workers(pool, time.Now().Add(time.Hour))
	var early string
	for i := range workers {
		switch worker := &workers[i]; {
		case worker.Spec.Version == version && j.court.hosted(workers[i:i+1]) > 0:
			early = fmt.Sprintf("%s has a host", worker.Name)
		case worker.Spec.Version == before && !worker.DeletionTimestamp.IsZero():
			early = fmt.Sprintf("%s leaves", worker.Name)
		}
	}
	for _, member := range j.court.machines() {
		if member.Spec.Version == before && member.DeletionTimestamp.IsZero() {
			j.looks++
			if early != "" {
				return fmt.Sprintf("%s, and %s runs %s", early, member.Name, before)
			}
		}
	}
	return ""
}

func (j *versionJudge) end() {
	close(j.stop)
	j.ended.Wait()
	if j.looks < 10 {
		j.court.t.Errorf("only %d looks before the control plane was raised", j.looks)
	}
}

// One commit raises the control plane and a pool by a minor, in whichever order they are applied, with Cluster API's
// own controllers: the pool waits for the last API server, without a Machine missing, and then follows by itself.
//
// Proves: S1-21
func TestOneCommitRaisesControlPlaneAndPool(t *testing.T) {
	t.Parallel()
	for name, poolFirst := range map[string]bool{"commit-plane-pool": false, "commit-pool-plane": true} {
		t.Run(name, func(t *testing.T) {
			if !poolFirst {
				needsTime(t)
			}
			t.Parallel()
			court := newCourt(t, courtOptions{name: name, replicas: 1, hosts: 4, strategy: surge, admission: true,
				workers: true})
			court.untilWhole("coming up")
			court.addPool("amber", 2)
			court.until("amber", func() string { return court.lacksPool("amber", time.Time{}, 2) })
			time.Sleep(1100 * time.Millisecond) // the API server counts seconds
			edit := time.Now().Truncate(time.Second)
			judge, available := court.judgeVersions("amber"), court.judgePool("amber", 2, 3)
			edits := []func(){
				func() {
					court.change(func(spec *controlplanev1.QuoinControlPlaneSpec) { spec.Version = version })
				},
				func() {
					court.patchPool("amber", fmt.Sprintf(`{"spec":{"template":{"spec":{"version":%q}}}}`, version))
				},
			}
			if poolFirst {
				edits[0], edits[1] = edits[1], edits[0]
			}
			for _, apply := range edits {
				apply()
			}
			court.until("amber", func() string { return court.lacksPool("amber", edit, 2) })
			court.untilWhole("the control plane")
			judge.end()
			available.end()
			_, young := court.workers("amber", edit)
			for _, worker := range young {
				info := worker.Status.NodeInfo
				if worker.Spec.Version != version || info == nil || info.KubeletVersion != version {
					t.Errorf("%s is %s and runs %v", worker.Name, worker.Spec.Version, info)
				}
			}
		})
	}
}
