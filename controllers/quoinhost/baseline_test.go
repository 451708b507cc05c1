// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/inspect"
)

func tracesOf(users ...string) inspect.Traces {
	t := inspect.Traces{Kinds: []string{"user"}}
	for _, name := range users {
		t.All = append(t.All, inspect.Trace{Kind: "user", Name: name})
	}
	return t
}

// What an inspection of a free host found lies in spec, where neither the host nor a move changes it. What is on a
// claimed host is its tenant's, and never becomes part of it.
func TestChangesAreLetPassOnHostsThatAreNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		namespaces []string
		said       *bool
		pass       bool
	}{
		"nobody else may claim it":     {nil, nil, true},
		"by its own namespace's name":  {[]string{"hosts"}, nil, true},
		"another namespace may":        {[]string{"hosts", "team"}, nil, false},
		"every namespace may":          {[]string{"*"}, nil, false},
		"it is to be compared":         {nil, ptr.To(false), false},
		"shared, and changes may pass": {[]string{"*"}, ptr.To(true), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			host := w.host()
			host.Spec.ConsumerNamespaces, host.Spec.Cleaning.IgnoreChanges = c.namespaces, c.said
			one := &reconciliation{controller: w.r, host: host, now: w.now}
			w.g.Expect(one.cleanOrder("x").IgnoreChanges).To(Equal(c.pass))
		})
	}
}

func TestAReleaseIsComparedWithTheInspectionBeforeTheClaim(t *testing.T) {
	w := claimedWorld(t, false)
	before, dirty := tracesOf("admin"), tracesOf("admin", "tenant")
	w.room.facts.Traces = before
	ref := w.host().Spec.ConsumerRef
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil })
	w.untilState(infrav1.HostStateAvailable)
	w.g.Expect(w.host().Spec.Baseline).To(Equal(before.Encode()))

	w.update(func(h *infrav1.QuoinHost) {
		h.Spec.ConsumerRef = ref
		h.Spec.Cleaning.IgnoreChanges = ptr.To(true)
	})
	w.untilState(infrav1.HostStateProvisioned)
	w.room.set(func() {
		w.room.facts.Traces = dirty
		w.room.skipped = []string{"sets of ipset: ipset is not installed on this host"}
	})
	// As a move leaves it.
	lost := w.host()
	lost.Status = infrav1.QuoinHostStatus{}
	w.g.Expect(w.client.Status().Update(t.Context(), lost)).To(Succeed())
	w.untilState(infrav1.HostStateProvisioned)
	w.g.Expect(w.host().Spec.Baseline).To(Equal(before.Encode()))

	deleteMachine(w)
	w.until("clean", (*infrav1.QuoinHost).Released)
	w.g.Expect(w.room.verified).NotTo(BeEmpty())
	for _, order := range append(w.room.verified, w.room.clean) {
		w.g.Expect(order.Baseline).To(Equal(before.Encode()))
		w.g.Expect(order.IgnoreChanges).To(BeTrue())
	}
	w.g.Expect(condition1(w.host(), infrav1.HostCleanCondition).Message).To(ContainSubstring(
		"not looked for: sets of ipset: ipset is not installed"))
}

// A free host of which an earlier version wrote down less is inspected again when it is probed next, by itself.
func TestAFreeHostIsWrittenDownAnewAfterAnUpgrade(t *testing.T) {
	w := claimedWorld(t, false)
	now := tracesOf("admin")
	w.room.facts.Traces = now
	w.update(func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef = nil })
	w.untilState(infrav1.HostStateAvailable)
	w.update(func(h *infrav1.QuoinHost) { h.Spec.Baseline = "user:" })
	w.until("written down anew", func(h *infrav1.QuoinHost) bool {
		return h.Spec.Baseline == now.Encode() && h.Status.State == infrav1.HostStateAvailable
	})
	inspected := condition1(w.host(), infrav1.HostInspectedCondition).LastTransitionTime
	facts := w.host().Status.Facts.InspectedAt.DeepCopy()
	w.linger(20)
	w.g.Expect(w.host().Status.Facts.InspectedAt).To(Equal(facts), "once")
	w.g.Expect(condition1(w.host(), infrav1.HostInspectedCondition).LastTransitionTime).To(Equal(inspected))
}

// Who shares a host learns that its release has nothing to compare with while there is time.
func TestASharedHostOfWhichNothingIsOnRecordSaysSo(t *testing.T) {
	many := inspect.Traces{Kinds: []string{"user"}}
	for i := range inspect.MaxTraces + 1 {
		many.All = append(many.All, inspect.Trace{Kind: "user", Name: strconv.Itoa(i)})
	}
	for name, c := range map[string]struct {
		claimed bool
		traces  inspect.Traces
		change  func(*infrav1.QuoinHost)
		hint    string
	}{
		"more than fits":        {false, many, func(*infrav1.QuoinHost) {}, "it has 2049 users, files, images and others"},
		"of an earlier version": {true, tracesOf("tenant"), func(*infrav1.QuoinHost) {}, "nothing is on record"},
		"on record":             {false, tracesOf("admin"), func(*infrav1.QuoinHost) {}, ""},
		"on record, and claimed": {true, tracesOf("tenant"), func(h *infrav1.QuoinHost) {
			before := tracesOf("admin")
			h.Spec.Baseline = before.Encode()
		}, ""},
		"not shared": {false, many, func(h *infrav1.QuoinHost) { h.Spec.ConsumerNamespaces = nil }, ""},
		"changes are let pass": {false, many, func(h *infrav1.QuoinHost) {
			h.Spec.Cleaning.IgnoreChanges = ptr.To(true)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := claimedWorld(t, false)
			w.room.facts.Traces = c.traces
			w.update(func(h *infrav1.QuoinHost) {
				h.Spec.ConsumerNamespaces = []string{"team"}
				c.change(h)
				if !c.claimed {
					h.Spec.ConsumerRef = nil
				}
			})
			recorder := events.NewFakeRecorder(100)
			w.r.Recorder = recorder
			w.untilReason(infrav1.HostInspectedCondition, infrav1.HostInspectedReason)
			message, said := condition1(w.host(), infrav1.HostInspectedCondition).Message, told(recorder)
			if c.hint == "" {
				w.g.Expect(message + said).NotTo(ContainSubstring("on record"))
				return
			}
			for _, text := range []string{message, said} {
				w.g.Expect(text).To(And(ContainSubstring(c.hint), ContainSubstring("spec.cleaning.ignoreChanges")))
			}
		})
	}
}
