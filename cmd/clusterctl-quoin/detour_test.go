// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot/execute"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/upgrade"
)

// memoryDetour is kind and two management clusters in memory, with the workspace's record of the last pivot. A pivot dies
// before its first write, after that, or when everything is done.
type memoryDetour struct {
	found detourFound
	last  *record
	log   []stage
	fail  func(stage, int) error
}

func (m *memoryDetour) next(context.Context) (stage, error) {
	f := m.found
	f.pivots(chargeOf(m.last, "bootstrap"))
	return f.next(), nil
}

func (m *memoryDetour) pivot(next stage, r record) error {
	r.Journal = &pivot.Journal{Phase: pivot.Copying}
	m.last = &r
	if err := m.fail(next, 1); err != nil {
		return err
	}
	r.Journal = &pivot.Journal{Phase: pivot.Done}
	return nil
}

func (m *memoryDetour) reach(_ context.Context, next stage) (err error) {
	if err := m.fail(next, 0); err != nil {
		return err
	}
	m.log = append(m.log, next)
	home, there := cluster.Kubeconfig{Path: "home"}, cluster.Kubeconfig{Path: "bootstrap"}
	switch next {
	case makeBootstrap:
		m.found.Bootstrap, m.found.Left, m.found.Lacks = true, true, []string{"quoin"}
	case installThere:
		m.found.Lacks = nil
	case pivotThere:
		err = m.pivot(next, record{Source: home, Target: there})
	case upgradeThere:
		m.found.Upgraded = true
	case pivotHome:
		err = m.pivot(next, record{Source: there, Target: home, Back: true})
	case removeBootstrap:
		if m.last.Target != home || m.last.Journal.Phase != pivot.Done {
			return errors.New("the only management cluster is deleted")
		}
		m.found.Bootstrap, m.found.Left = false, false
	}
	return errors.Join(err, m.fail(next, 2))
}

// An upgrade through a bootstrap cluster that dies before, in the middle of or after any stage goes on with the same command:
// each stage is reached once, a pivot that was open is finished, and the bootstrap cluster is deleted at the end alone.
//
// Proves: S0-64, S0-65, S0-68, S0-69
func TestADetourThatDiesGoesOn(t *testing.T) {
	all := []stage{makeBootstrap, installThere, pivotThere, upgradeThere, pivotHome, removeBootstrap}
	silent := func(string, ...any) {}
	for _, fatal := range all {
		for when := range 3 {
			t.Run(string(fatal), func(t *testing.T) {
				g, broken, failed := NewWithT(t), errors.New("killed"), false
				m := &memoryDetour{last: &record{Source: cluster.Kubeconfig{Path: "bootstrap"}, Target: cluster.Kubeconfig{Path: "home"},
					Journal: &pivot.Journal{Phase: pivot.Done}}} // as the cluster was born
				m.fail = func(s stage, at int) error {
					if s == fatal && at == when && !failed {
						failed = true
						return broken
					}
					return nil
				}
				if err := reachAll(t.Context(), m, silent); failed {
					g.Expect(err).To(MatchError(broken))
					g.Expect(reachAll(t.Context(), m, silent)).To(Succeed())
				}
				want := all
				if i := len(want); failed && when == 1 {
					for i = range want {
						if want[i] == fatal {
							break
						}
					}
					want = append(append([]stage{}, want[:i+1]...), want[i:]...) // the pivot goes on
				}
				g.Expect(m.log).To(Equal(want))
				g.Expect(m.found.Bootstrap).To(BeFalse())
			})
		}
	}
}

// What comes next is found in the workspace, in kind and in both management clusters. Before anything moves the
// management cluster at home is asked whether it takes the upgrade. Both are asked about the namespace that moves,
// whatever their contexts say.
func TestADetourAsksBeforeItMoves(t *testing.T) {
	up := func(version, annotations string) string {
		return "apiVersion: quoin.cluster.x-k8s.io/v1alpha1\nkind: ClusterUpgrade\nmetadata: {name: u, namespace: site, annotations: {" +
			annotations + "}}\nspec: {clusterName: prod, workers: All, version: " + version + "}\n"
	}
	marked := &quoinv1.ClusterUpgrade{ObjectMeta: metav1.ObjectMeta{Name: "u"},
		Spec: quoinv1.ClusterUpgradeSpec{ClusterName: "prod", Version: "v1.36.3", Workers: quoinv1.UpgradeWorkersAll}}
	complete := up("v1.36.3", quoinv1.ClusterUpgradeCompletedAnnotation+": '"+upgrade.Mark(marked, time.Now())+"'")
	const done, undone = pivot.Done, pivot.Undone
	wayThere, wayHome := trip("self", "kind"), back("kind", "self")
	for name, row := range map[string]struct {
		kind, file  bool
		there, home []string
		last        *trips
		phase       pivot.Phase
		refuses     string
		next        stage
		refused     string
	}{
		"nothing is begun": {next: makeBootstrap},
		"born":             {last: trip("kind", "self"), phase: done, next: makeBootstrap},
		"it is not taken":  {refuses: "two minors", refused: "two minors"},
		"it is not taken, and kind is up": {kind: true, file: true, there: providersThere, refuses: "two minors",
			refused: "two minors"},
		"another is under way":    {home: []string{up("v1.35.9", "")}, refused: "v1.35.9"},
		"it is under way at home": {home: []string{up("v1.36.3", "")}, next: makeBootstrap},
		"kind is up":              {kind: true, file: true, next: installThere},
		"providers are there":     {kind: true, file: true, there: providersThere, next: pivotThere},
		"the way there is open":   {kind: true, file: true, last: wayThere, phase: pivot.Copying, next: pivotThere},
		"the way there was undone": {kind: true, file: true, there: providersThere, last: wayThere, phase: undone,
			next: pivotThere},
		"there": {kind: true, file: true, last: wayThere, phase: done, refuses: "not asked",
			next: upgradeThere},
		"there, and upgraded": {kind: true, file: true, there: []string{complete}, last: wayThere, phase: done,
			next: pivotHome},
		"the way home is open": {kind: true, file: true, last: wayHome, phase: pivot.Releasing, next: pivotHome},
		"the way home was undone": {kind: true, file: true, there: []string{complete}, last: wayHome, phase: undone,
			next: pivotHome},
		"its birth was undone": {kind: true, file: true, there: []string{complete}, last: trip("kind", "self"),
			phase: undone, next: pivotHome},
		"home": {kind: true, file: true, home: []string{complete}, last: wayHome, phase: done,
			next: removeBootstrap},
		"only the kubeconfig is left": {file: true, home: []string{complete}, last: wayHome, phase: done,
			next: removeBootstrap},
		"only kind is left": {kind: true, home: []string{complete}, last: wayHome, phase: done,
			next: removeBootstrap},
		"all is over": {home: []string{complete}, last: wayHome, phase: done, next: created},
	} {
		t.Run(name, func(t *testing.T) {
			g, dir, out := NewWithT(t), t.TempDir(), &bytes.Buffer{}
			w, fake := workspace{filepath.Join(dir, "prod")}, &fakeKind{clusters: map[string]string{}}
			there, home := newServed(t, row.there...), newServed(t, row.home...)
			there.refuses, home.refuses = "nothing is made there", row.refuses
			if row.kind {
				fake.clusters[kindName("prod")] = ""
			}
			if row.file {
				g.Expect(w.write(w.bootstrapKubeconfig(), kubeconfigOf(g, there.Server))).To(Succeed())
			}
			g.Expect(w.write(w.kubeconfig(), kubeconfigOf(g, home.Server))).To(Succeed())
			if row.last != nil {
				row.last.save(g, w, row.phase)
			}
			o := &options{workspace: dir, out: out}
			if row.last == nil {
				o.namespace = "site"
			}
			d := &detour{raise: &raise{options: o, dryRun: true}, workspace: w, bootstrap: bootstrap{options: o, kind: fake},
				providers: providers{core: "cluster-api", infras: []string{"quoin"}}}
			d.wish.Version, d.wish.Workers = "v1.36.3", quoinv1.UpgradeWorkersAll
			d.complete("prod")
			var err error
			d.home, _, err = o.managing("prod", true)
			g.Expect(err).NotTo(HaveOccurred())
			if err = d.take(t.Context()); row.refused != "" {
				g.Expect(err).To(And(MatchError(execute.ErrRefused), MatchError(ContainSubstring(row.refused))))
				d.dryRun = false
				g.Expect(d.take(t.Context())).To(MatchError(execute.ErrRefused), "nothing was done")
				g.Expect(fake.created).To(BeZero())
			} else {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out.String()).To(Equal("next: " + string(row.next) + "\n"))
			}
			g.Expect(append(there.writes, home.writes...)).To(BeEmpty())
		})
	}
}

// A namespace is that of the flag, of the pivot that is under way or led away, or else that of home.
func TestADetourKeepsItsNamespace(t *testing.T) {
	g := NewWithT(t)
	w := workspace{t.TempDir()}
	home := cluster.Kubeconfig{Path: w.kubeconfig()}
	g.Expect(w.write(home.Path, kubeconfigOf(g, newServed(t).Server))).To(Succeed())
	g.Expect((&options{}).namespaceOf(w, home)).To(Equal("default"))
	trip("self", "kind").save(g, w, pivot.Done)
	g.Expect((&options{}).namespaceOf(w, home)).To(Equal("site"))
	g.Expect((&options{namespace: "n"}).namespaceOf(w, home)).To(Equal("n"))
}
