// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// HostWork collects what the plans on the hosts took, by their own journals: provisioning, resets. A reset forgets the plans
// before it, so the journals of a host are read as soon as a plan has ended there.
type HostWork struct {
	lab   *Lab
	began time.Time
	stop  context.CancelFunc
	done  chan struct{}
	took  map[string]Plan
	// read are the plans at whose end the journals were read.
	read map[string]bool
}

// Plan is a plan that ran on a host.
type Plan struct {
	// Host it ran on, and its ID there, which begins with what it is for.
	Host, ID string
	Began    time.Time
	Took     time.Duration
	// Steps in their order.
	Steps []PlanStep
}

// PlanStep is a step that ended.
type PlanStep struct {
	Name  string
	Ended time.Time
}

// journals prints those of all plans that have ended on a host, each after a line with its name.
const journals = `for dir in /var/lib/quoin/runs/*/; do
	[ ! -e "$dir/result" ] || { echo "plan $(basename "$dir")"; cat "$dir/journal"; }
done`

// Work begins to collect; plans that began before are not of interest.
func (l *Lab) Work(ctx context.Context) *HostWork {
	w := &HostWork{lab: l, began: time.Now(), done: make(chan struct{}), took: map[string]Plan{}, read: map[string]bool{}}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			w.look(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	return w
}

// look leaves out what does not answer: it is asked again a moment later.
func (w *HostWork) look(ctx context.Context) {
	list := &infrav1.QuoinHostList{}
	if err := w.lab.Management.List(ctx, list, client.InNamespace(Namespace)); err != nil {
		return
	}
	for _, object := range list.Items {
		operation := object.Status.Operation
		host, err := w.lab.Host(object.Name)
		if err != nil || operation == nil || !operation.Final() || w.read[operation.ID] {
			continue
		}
		if w.note(ctx, host) {
			w.read[operation.ID] = true
		}
	}
}

// note reads the journals of a host, and reports whether it could.
func (w *HostWork) note(ctx context.Context, host *Host) bool {
	out, err := w.lab.OnHost(ctx, host, journals)
	if err != nil {
		return false
	}
	for _, plan := range plansOf(host.Name, out) {
		if plan.Began.After(w.began) {
			w.took[plan.ID] = plan
		}
	}
	return true
}

// plansOf reads what journals printed. Each line of a journal begins with seconds; a plan took from its first to its last.
func plansOf(host, text string) []Plan {
	var plans []Plan
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if fields[0] == "plan" {
			plans = append(plans, Plan{Host: host, ID: fields[1]})
			continue
		}
		seconds, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || len(plans) == 0 {
			continue
		}
		last := &plans[len(plans)-1]
		if last.Began.IsZero() {
			last.Began = time.Unix(seconds, 0)
		}
		last.Took = time.Unix(seconds, 0).Sub(last.Began)
		if len(fields) > 3 && fields[3] == "done" {
			last.Steps = append(last.Steps, PlanStep{Name: fields[2], Ended: time.Unix(seconds, 0)})
		}
	}
	return plans
}

// Stop ends the collecting, and returns the plans that began and ended meanwhile, in the order of their beginnings.
func (w *HostWork) Stop(ctx context.Context) []Plan {
	w.stop()
	<-w.done
	// The last order of a host may be forgotten before a look sees that it is final.
	for _, host := range w.lab.Hosts {
		w.note(ctx, host)
	}
	return slices.SortedFunc(maps.Values(w.took), func(a, b Plan) int { return a.Began.Compare(b.Began) })
}
