// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/kube"
)

// members asks etcd itself, past every controller and host: the list that a quorum agrees on now.
func (c *court) members(ctx context.Context) ([]kube.MemberView, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.cluster.Membership(ctx)
}

// judge asserts what must hold at every step.
type judge struct {
	c *court
	// floor is how many voters there are at least; it says so only after the control plane was whole once.
	floor int
	// quiet judges do not list what they have seen.
	quiet bool

	mu sync.Mutex
	// lost is how many members the test has taken away, burnt how many of them for good.
	lost, burnt int
	// voters there were at the last look.
	voters int
	seen   []string
	faults []string
	// stall is for how long nothing may be written while no more members are away than etcd tolerates.
	stall   time.Duration
	longest time.Duration
	looks   int
	stop    chan struct{}
	done    chan struct{}
}

// longestStall is as long as a machine that has other things to do may take for an election and a few requests.
const (
	longestStall = 30 * time.Second
	// fewestTries are those that failed in such a time: else it is the writer who had no time.
	fewestTries = 10
)

// watchMembers looks until the test ends it. While no more members are away than etcd tolerates, what somebody writes is
// acknowledged: that processes run proves nothing. How long etcd takes to answer is printed, and nobody's fault: an election
// on a machine that has other things to do.
func (c *court) watchMembers(floor int) *judge {
	j := &judge{c: c, floor: floor, voters: floor, stall: longestStall, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(j.done)
		answered := time.Now()
		progress := c.progress()
		moved := time.Now()
		for {
			select {
			case <-j.stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
			ok, now := j.look(), c.progress()
			j.mu.Lock()
			excused := j.lost > (j.voters-1)/2
			if excused || now.writers != progress.writers || now.acked > progress.acked {
				progress, moved = now, time.Now()
			} else if since := time.Since(moved); now.writers > 0 && since > j.stall && now.tried-progress.tried >= fewestTries {
				j.faults = append(j.faults, fmt.Sprintf("nothing was written for %s in %d attempts, though %d of %d voters are away",
					since.Round(time.Second), now.tried-progress.tried, j.lost, j.voters))
				progress, moved = now, time.Now()
			}
			if !excused {
				j.longest = max(j.longest, time.Since(answered))
			}
			j.mu.Unlock()
			if ok || excused {
				answered = time.Now()
			}
		}
	}()
	return j
}

// progress is what all writers of the court have come to.
type progress struct{ writers, tried, acked int64 }

func (c *court) progress() progress {
	return progress{writers: c.writers.Load(), tried: c.tried.Load(), acked: c.acked.Load()}
}

// lose says that the test takes so many members away for a while, or gives them back when negative.
func (j *judge) lose(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost += n
}

// burn says that the test takes so many members away for good.
func (j *judge) burn(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lost += n
	j.burnt += n
}

// look asserts the invariants once, and says whether a quorum answered.
func (j *judge) look() bool {
	members, err := j.c.members(context.Background())
	if err != nil {
		return false
	}
	voters, learners := 0, 0
	votes := map[string]bool{}
	var names []string
	for _, m := range members {
		if m.Learner {
			learners++
			names = append(names, m.Name+"(learner)")
			continue
		}
		voters++
		// A dead one is not in flight: it is gone already.
		votes[m.Name] = m.Running
		names = append(names, m.Name)
	}
	var leaving []string
	for _, machine := range j.c.machines() {
		_, held := machine.Annotations[controlplanev1.PreDrainHookAnnotation]
		_, kept := machine.Annotations[controlplanev1.PreTerminateHookAnnotation]
		// One that has no Node yet is the learner, or never became one.
		if !machine.DeletionTimestamp.IsZero() && !held && kept && votes[machine.Status.NodeRef.Name] {
			leaving = append(leaving, machine.Status.NodeRef.Name)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.looks++
	j.voters = voters
	sort.Strings(names)
	if state := strings.Join(names, " "); len(j.seen) == 0 || j.seen[len(j.seen)-1] != state {
		j.seen = append(j.seen, state)
	}
	fault := func(format string, args ...any) {
		j.faults = append(j.faults, fmt.Sprintf(format, args...)+": "+strings.Join(names, " "))
	}
	if learners > 1 {
		fault("%d learners at once", learners)
	}
	// A Machine that nothing holds back from leaving, and a learner: each is a member in flight. One that was let go before
	// another member was lost for good is kept again until the replacement of that one votes.
	if len(leaving) > 1 || len(leaving)+learners > 1 && j.burnt == 0 {
		fault("%d members in flight, %v on their way out", len(leaving)+learners, leaving)
	}
	if desired := int(j.c.options.replicas); voters+learners > desired+1 {
		fault("%d members, where %d are wanted", voters+learners, desired)
	}
	// What is dead for good does not vote; what is away for a while stays a member.
	if voters < j.floor-j.burnt {
		fault("%d voters, which is less than %d", voters, j.floor-j.burnt)
	}
	return true
}

// end stops looking, reports, and fails the test for what was wrong.
func (j *judge) end() {
	j.c.t.Helper()
	close(j.stop)
	<-j.done
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := fmt.Sprintf("%d memberships", len(j.seen))
	if !j.quiet {
		seen = "memberships:\n  " + strings.Join(j.seen, "\n  ")
	}
	j.c.t.Logf("  %d looks at etcd, the longest time without an answer %s; %s", j.looks, j.longest.Round(10*time.Millisecond), seen)
	for i, fault := range j.faults {
		if i == 10 {
			j.c.t.Errorf("and %d more", len(j.faults)-i)
			break
		}
		j.c.t.Error(fault)
	}
}

// writer writes through the API server of the workload cluster, and remembers what was acknowledged.
type writer struct {
	c *court
	// run is the value of the label of its keys.
	run     string
	mu      sync.Mutex
	tried   int
	acked   []string
	longest time.Duration
	stop    chan struct{}
	done    chan struct{}
}

const written = "written"

// write begins to write keys, one after another.
func (c *court) write() *writer {
	w := &writer{c: c, run: strconv.FormatUint(rand.Uint64(), 36), stop: make(chan struct{}), done: make(chan struct{})}
	c.writers.Add(1)
	go func() {
		defer close(w.done)
		defer c.writers.Add(-1)
		last := time.Now()
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			name := fmt.Sprintf("key-%s-%d", w.run, i)
			err := w.put(name)
			w.mu.Lock()
			w.tried++
			c.tried.Add(1)
			if err == nil {
				c.acked.Add(1)
				w.acked = append(w.acked, name)
				w.longest = max(w.longest, time.Since(last))
				last = time.Now()
			}
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *writer) put(name string) error {
	workload, err := w.c.workload(2 * time.Second)
	if err != nil {
		return err
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{written: w.run}}}
	_, err = workload.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(context.Background(), object, metav1.CreateOptions{})
	return err
}

// keys are those that the cluster has, by a selector of labels. A busy machine may take several requests to say so.
func (c *court) keys(selector string) map[string]bool {
	c.t.Helper()
	there := map[string]bool{}
	c.until("  reading what was written", func() string {
		workload, err := c.workload(30 * time.Second)
		if err != nil {
			return err.Error()
		}
		list, err := workload.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(context.Background(),
			metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			there[list.Items[i].Name] = true
		}
		return ""
	})
	return there
}

// end waits until one more key was acknowledged and stops writing. It fails the test when nothing can be written any more, and
// when a key is lost that was acknowledged. How long nothing could be written meanwhile is printed.
func (w *writer) end() {
	w.c.t.Helper()
	before := w.count()
	w.c.until("  writing again", func() string {
		if w.count() > before {
			return ""
		}
		return fmt.Sprintf("nothing was written since the first %d keys", before)
	})
	close(w.stop)
	<-w.done
	there := w.c.keys(written + "=" + w.run)
	lost := slices.DeleteFunc(slices.Clone(w.acked), func(key string) bool { return there[key] })
	w.c.t.Logf("  %d of %d writes acknowledged, the longest gap between two %s", len(w.acked), w.tried, w.longest.Round(10*time.Millisecond))
	if len(lost) > 0 {
		w.c.t.Errorf("%d keys are lost that were acknowledged: %s", len(lost), strings.Join(lost[:min(len(lost), 10)], " "))
	}
}

// prober asks the API server again and again.
type prober struct {
	c       *court
	answers atomic.Int64
	longest time.Duration
	stop    chan struct{}
	done    chan struct{}
}

// probe asks every 500 ms whether the cluster answers.
func (c *court) probe() *prober {
	p := &prober{c: c, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		last := time.Now()
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			workload, err := c.workload(2 * time.Second)
			if err == nil {
				_, err = workload.CoreV1().Namespaces().Get(context.Background(), metav1.NamespaceSystem, metav1.GetOptions{})
			}
			if err == nil {
				p.longest = max(p.longest, time.Since(last))
				last = time.Now()
				p.answers.Add(1)
			}
		}
	}()
	return p
}

// end waits for one more answer, and says how long the longest time without one was.
func (p *prober) end() time.Duration {
	p.c.t.Helper()
	before := p.answers.Load()
	p.c.until("  answering again", func() string {
		if p.answers.Load() > before {
			return ""
		}
		return "the API server does not answer"
	})
	close(p.stop)
	<-p.done
	return p.longest
}
