// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// A dry run says what the command does next, from wherever it is, and writes nothing: no object, no namespace, no
// journal.
func TestADryRunWritesNothing(t *testing.T) {
	plain := func(name string) *site { return newSite(t, name) }
	killedAt := func(name, moment string) *site {
		s := newSite(t, name)
		_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
			if moments[moment](w, false) {
				return errKilled
			}
			return nil
		})
		s.g.Expect(err).To(HaveOccurred())
		return s
	}
	stock := func(name, point string) *site {
		s := newSite(t, name)
		s.stock(point)
		return s
	}
	for name, row := range map[string]struct {
		site   func(string) *site
		wish   pivot.Wish
		action pivot.Action
		// refused is whether the command would do nothing; objects are how many move.
		refused         bool
		objects         int
		noReturn, undo  string
		checks, message string
	}{
		"begins": {site: plain, action: pivot.Begin, objects: 10, noReturn: "when all 10 objects are on the target",
			undo: "deletes the copies on the target (10 objects) and resumes the source", checks: "Passed", message: "Cluster c moves"},
		"is refused by its preflight": {site: func(name string) *site {
			s := newSite(t, name)
			s.immovable()
			return s
		}, action: pivot.Begin, objects: 10, refused: true, noReturn: "when", undo: "--abort", checks: "Failed"},
		"is paused by somebody": {site: func(name string) *site {
			s := newSite(t, name)
			s.pause(s.source)
			return s
		}, action: pivot.Refuse, refused: true, message: "--take-over"},
		"skips a question": {site: plain, wish: pivot.Wish{Skip: map[string]string{pivot.SkipHosts: "the VPN is late"}},
			action: pivot.Begin, objects: 10, noReturn: "when", undo: "--abort", checks: "the VPN is late"},
		"goes on copying": {site: func(name string) *site { return killedAt(name, "the last copy") }, action: pivot.Copy,
			objects: 10, noReturn: "when all 10 objects", undo: "deletes the copies"},
		"undoes": {site: func(name string) *site { return killedAt(name, "the last copy") }, wish: pivot.Wish{Abort: true},
			action: pivot.Undo, objects: 10, noReturn: "not reached", undo: "the copies on the target are deleted"},
		"goes on releasing": {site: func(name string) *site { return killedAt(name, "the last deletion") }, action: pivot.Release,
			objects: 10, noReturn: "behind", undo: "impossible"},
		"takes over what was copied": {site: func(name string) *site { return stock(name, "source patch Secret m") },
			wish: pivot.Wish{TakeOver: true}, action: pivot.Copy, objects: 10, noReturn: "when all 10",
			undo: "deletes the copies on the target (0 objects), leaves 10 others"},
	} {
		t.Run(name, func(t *testing.T) {
			s := row.site("dry-" + strings.ReplaceAll(name, " ", "-"))
			state := func() string {
				return fmt.Sprint(s.ownersIn(s.source), s.ownersIn(s.target), s.kept(s.source), s.kept(s.target), string(s.local.content))
			}
			before := state()
			var writes []Write
			plan, err := s.command(t.Context(), s.source, s.target, func(w Write) error {
				writes = append(writes, w)
				return nil
			}).Plan(t.Context(), row.wish)
			s.g.Expect(err).NotTo(HaveOccurred())
			s.g.Expect(writes).To(BeEmpty())
			s.g.Expect(state()).To(Equal(before))
			s.g.Expect(plan.Next.Action).To(Equal(row.action))
			s.g.Expect(plan.Next.Message).To(ContainSubstring(row.message))
			s.g.Expect(plan.Objects).To(HaveLen(row.objects))
			s.g.Expect(plan.Refused()).To(Equal(row.refused))
			s.g.Expect(plan.PointOfNoReturn).To(ContainSubstring(row.noReturn))
			s.g.Expect(plan.Undo).To(ContainSubstring(row.undo))
			s.g.Expect(fmt.Sprint(plan.Checks)).To(ContainSubstring(row.checks))
			s.g.Expect(len(plan.Checks) > 0).To(Equal(row.checks != ""), "the preflight is made before a pivot begins, and not later")
		})
	}
}

// kept is the version of the namespace and of the journal on a side.
func (s *site) kept(r *rig.Rig) string {
	s.t.Helper()
	namespace, journal := &corev1.Namespace{}, &corev1.ConfigMap{}
	for key, o := range map[client.ObjectKey]client.Object{{Name: s.namespace}: namespace,
		{Namespace: s.namespace, Name: JournalName}: journal} {
		if err := r.Client.Get(s.t.Context(), key, o); !apierrors.IsNotFound(err) {
			s.g.Expect(err).NotTo(HaveOccurred())
		}
	}
	return fmt.Sprint(namespace.ResourceVersion, " ", journal.ResourceVersion)
}
