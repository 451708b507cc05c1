// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/integration/rig"
)

// planes are two API servers with all types, on which no controller runs: what is asserted is what a pivot writes.
var planes = sync.OnceValues(func() ([2]*rig.Rig, error) {
	var both [2]*rig.Rig
	var group errgroup.Group
	for i, name := range []string{"pivot-source", "pivot-target"} {
		group.Go(func() error {
			r, err := rig.StartPlane(context.Background(), rig.Options{Name: name})
			if err != nil {
				return err
			}
			both[i] = r
			r.Config.QPS = -1
			if r.Client, err = client.New(r.Config, client.Options{Scheme: r.Client.Scheme()}); err != nil {
				return err
			}
			inventory := cluster.New(cluster.Kubeconfig{Path: r.Kubeconfig}, nil).ProviderInventory()
			if err := inventory.EnsureCustomResourceDefinitions(context.Background()); err != nil {
				return err
			}
			return errors.Join(provider(r, "v0.1.0"), warm(r))
		})
	}
	return both, group.Wait()
})

// warm lists every type once: the API server answers the first list of a type that was just installed a second later.
func warm(r *rig.Rig) error {
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := r.Client.List(context.Background(), crds); err != nil {
		return err
	}
	var group errgroup.Group
	for i := range crds.Items {
		of := crds.Items[i].Spec
		group.Go(func() error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: of.Group, Version: of.Versions[len(of.Versions)-1].Name,
				Kind: of.Names.ListKind})
			return client.IgnoreNotFound(r.Client.List(context.Background(), list))
		})
	}
	return group.Wait()
}

// provider writes down in clusterctl's inventory that ours is installed in a version.
func provider(r *rig.Rig, version string) error {
	name := clusterctlv1.ManifestLabel("quoin", clusterctlv1.InfrastructureProviderType)
	return cluster.New(cluster.Kubeconfig{Path: r.Kubeconfig}, nil).ProviderInventory().Create(context.Background(),
		clusterctlv1.Provider{
			TypeMeta:     metav1.TypeMeta{APIVersion: clusterctlv1.GroupVersion.String(), Kind: "Provider"},
			ObjectMeta:   metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			ProviderName: "quoin", Type: string(clusterctlv1.InfrastructureProviderType), Version: version,
		})
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := m.Run()
	if os.Getenv(rig.AssetsVariable) != "" {
		if both, err := planes(); err == nil {
			for _, r := range both {
				_ = r.Stop()
			}
		}
	}
	os.Exit(code)
}

// secretWord is in every Secret, and nowhere else.
const secretWord = "the-word-nobody-may-read"

// site is a namespace with a Cluster of one Machine, a free host and their Secrets.
type site struct {
	t              *testing.T
	g              *WithT
	namespace      string
	source, target *rig.Rig
	local          memory
	lines          []string
	// runs of the command; early is how much earlier than the end of the former one's lease the next begins.
	runs  int
	early time.Duration
	// patience with a target that does not answer.
	patience time.Duration
	// graph of owners before the pivot.
	graph []string
}

// memory is a workspace.
type memory struct{ content []byte }

func (m *memory) Load() (*pivot.Journal, error) {
	if m.content == nil {
		return nil, nil
	}
	j := &pivot.Journal{}
	return j, json.Unmarshal(m.content, j)
}

func (m *memory) Save(j *pivot.Journal) (err error) {
	m.content, err = json.Marshal(j)
	return err
}

func newSite(t *testing.T, namespace string) *site {
	t.Helper()
	if os.Getenv(rig.AssetsVariable) == "" {
		t.Skipf("%s is not set", rig.AssetsVariable)
	}
	both, err := planes()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, g: NewWithT(t), namespace: namespace, source: both[0], target: both[1]}
	ctx := t.Context()
	of := func(name string, owners ...client.Object) metav1.ObjectMeta {
		o := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "c"}}
		for _, owner := range owners {
			gvk, err := s.source.Client.GroupVersionKindFor(owner)
			s.g.Expect(err).NotTo(HaveOccurred())
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(),
				Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true)})
		}
		return o
	}
	create := func(o client.Object) client.Object {
		s.g.Expect(s.source.Client.Create(ctx, o)).To(Succeed())
		return o
	}
	secret := func(o metav1.ObjectMeta) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: o, StringData: map[string]string{"value": secretWord}}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	home := &clusterv1.Cluster{ObjectMeta: of("c"), Spec: clusterv1.ClusterSpec{
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
			Kind: "QuoinCluster", Name: "c"}}}
	create(home)
	quoinCluster := &infrav1.QuoinCluster{ObjectMeta: of("c", home)}
	quoinCluster.Finalizers = []string{"quoincluster.infrastructure.cluster.x-k8s.io"}
	create(quoinCluster)
	machine := &clusterv1.Machine{ObjectMeta: of("m", home), Spec: clusterv1.MachineSpec{ClusterName: "c",
		Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("m")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group,
			Kind: "QuoinMachine", Name: "m"}}}
	create(machine)
	quoinMachine := &infrav1.QuoinMachine{ObjectMeta: of("m", machine), Spec: infrav1.QuoinMachineSpec{
		Artifacts: infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: "/opt/{{version}}"}}}}
	quoinMachine.Annotations = map[string]string{"example.com/note": "kept"}
	create(quoinMachine)
	config := create(&bootstrapv1.KubeadmConfig{ObjectMeta: of("m", machine)})
	create(secret(of("m", config)))
	create(secret(of("c-ca")))
	key := secret(metav1.ObjectMeta{Namespace: namespace, Name: "ssh",
		Labels:     map[string]string{clusterctlv1.ClusterctlMoveLabel: ""},
		Finalizers: []string{infrav1.HostSecretFinalizer}})
	create(key)
	create(secret(metav1.ObjectMeta{Namespace: namespace, Name: "stays"}))
	for _, name := range []string{"srv-1", "srv-2"} {
		host := &infrav1.QuoinHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Finalizers: []string{"example.com/host"}},
			Spec: infrav1.QuoinHostSpec{Address: "0.0.0.10", User: "ops", CredentialsRef: infrav1.SecretReference{Name: "ssh"}}}
		if name == "srv-1" {
			host.Spec.ConsumerRef = &infrav1.ConsumerReference{Namespace: namespace, Name: "m", Machine: "m", Claim: "a"}
			host.Spec.ClaimGeneration, host.Spec.ManagedBy = 1, "source"
		}
		create(host)
	}
	s.settle(s.source)
	s.graph = s.ownersIn(s.source)
	return s
}

// ownersIn is the graph of owners by names.
func (s *site) ownersIn(r *rig.Rig) []string {
	s.t.Helper()
	names, owners := map[types.UID]string{}, map[types.UID][]metav1.OwnerReference{}
	for _, list := range []client.ObjectList{&clusterv1.ClusterList{}, &clusterv1.MachineList{},
		&bootstrapv1.KubeadmConfigList{},
		&infrav1.QuoinClusterList{}, &infrav1.QuoinMachineList{}, &infrav1.QuoinHostList{}, &corev1.SecretList{}} {
		s.g.Expect(r.Client.List(s.t.Context(), list, client.InNamespace(s.namespace))).To(Succeed())
		s.g.Expect(meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			if o.GetName() != "stays" {
				names[o.GetUID()] = fmt.Sprintf("%T %s %v", o, o.GetName(), o.GetFinalizers())
				owners[o.GetUID()] = o.GetOwnerReferences()
			}
			return nil
		})).To(Succeed())
	}
	var lines []string
	for uid, line := range names {
		for _, owner := range owners[uid] {
			line += " <- " + names[owner.UID]
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

var (
	errKilled = errors.New("killed")
	began     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// run the command; before is called before each write, whose answer an error is. errKilled kills the command.
func (s *site) run(from, to *rig.Rig, wish pivot.Wish, before func(number int, w Write) error) ([]Write, error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var writes []Write
	observe := func(w Write) error {
		if ctx.Err() != nil {
			return ctx.Err() // what is killed says no goodbye
		}
		if before != nil {
			if err := before(len(writes)+1, w); errors.Is(err, errKilled) {
				cancel()
				return err
			} else if err != nil {
				return err
			}
		}
		writes = append(writes, w)
		return nil
	}
	return writes, s.command(ctx, from, to, observe).Run(ctx, wish)
}

// command is the next run of it.
func (s *site) command(ctx context.Context, from, to *rig.Rig, observe func(Write) error) *Pivot {
	s.t.Helper()
	source, err := Connect(ctx, "source", cluster.Kubeconfig{Path: from.Kubeconfig}, observe)
	s.g.Expect(err).NotTo(HaveOccurred())
	target, err := Connect(ctx, "target", cluster.Kubeconfig{Path: to.Kubeconfig}, observe)
	s.g.Expect(err).NotTo(HaveOccurred())
	p := &Pivot{Source: source, Target: target, Namespace: s.namespace, Local: &s.local, Report: func(format string,
		args ...any) {
		s.lines = append(s.lines, fmt.Sprintf(format, args...))
	}}
	s.runs++
	now := began.Add(time.Duration(s.runs)*pivot.Lease - s.early)
	p.now, p.Patience = func() time.Time { return now }, s.patience
	return p
}

// acts reports whether the Cluster is reconciled there.
func (s *site) acts(r *rig.Rig) bool {
	home := &clusterv1.Cluster{}
	err := r.Client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "c"}, home)
	return err == nil && !ptr.Deref(home.Spec.Paused, false)
}

// sound asserts what has to be true at every instant.
func (s *site) sound() {
	s.t.Helper()
	s.g.Expect(s.acts(s.source) && s.acts(s.target)).To(BeFalse(), "both sides act")
	somewhere := map[string]bool{}
	for _, r := range []*rig.Rig{s.source, s.target} {
		for _, line := range s.ownersIn(r) {
			somewhere[line] = true
		}
	}
	for _, line := range s.graph {
		s.g.Expect(somewhere).To(HaveKey(line), "an object is lost, or without its owner")
	}
	s.g.Expect(string(s.local.content)).NotTo(ContainSubstring(secretWord))
	for _, r := range []*rig.Rig{s.source, s.target} {
		kept := &corev1.ConfigMap{}
		if r.Client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: JournalName}, kept) == nil {
			s.g.Expect(kept.Data[journalKey]).NotTo(ContainSubstring(secretWord))
		}
	}
	s.g.Expect(strings.Join(s.lines, "\n")).NotTo(ContainSubstring(secretWord))
}

// rests asserts that one side has everything and acts, and the other has nothing.
func (s *site) rests(on, off *rig.Rig) {
	s.t.Helper()
	s.g.Expect(s.ownersIn(on)).To(Equal(s.graph))
	s.g.Expect(s.ownersIn(off)).To(BeEmpty())
	s.g.Expect(s.acts(on)).To(BeTrue(), "paused, and nobody said so")
}

// Proves: S0-68
//
// A namespace goes there and back, each by one command, with what belongs to it as it was.
func TestAPivotThereAndBack(t *testing.T) {
	s := newSite(t, "back")
	writes, err := s.run(s.source, s.target, pivot.Wish{}, func(n int, _ Write) error {
		if n%4 == 0 {
			s.sound()
		}
		return nil
	})
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	t.Logf("%d writes\n%s", len(writes), strings.Join(s.lines, "\n"))
	s.rests(s.target, s.source)
	_, err = s.run(s.source, s.target, pivot.Wish{}, func(int, Write) error { return errKilled })
	s.g.Expect(err).NotTo(HaveOccurred(), "again: there is nothing to do, and nothing is written")

	host := &infrav1.QuoinHost{}
	s.g.Expect(s.target.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "srv-1"}, host)).
		To(Succeed())
	s.g.Expect(host.Spec.ConsumerRef.Machine).To(Equal("m"))
	s.settle(s.target)
	_, err = s.run(s.target, s.source, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	s.rests(s.source, s.target)
}

// settle writes the status that controllers find out anew.
func (s *site) settle(r *rig.Rig) {
	ctx, key := s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "c"}
	home, machine := &clusterv1.Cluster{}, &clusterv1.Machine{}
	s.g.Expect(r.Client.Get(ctx, key, home)).To(Succeed())
	home.Status.Initialization.InfrastructureProvisioned,
		home.Status.Initialization.ControlPlaneInitialized = ptr.To(true), ptr.To(true)
	conditions.Set(home, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition,
		Status: metav1.ConditionTrue, Reason: "Initialized"})
	s.g.Expect(r.Client.Status().Update(ctx, home)).To(Succeed())
	movable := &infrav1.QuoinCluster{}
	s.g.Expect(r.Client.Get(ctx, key, movable)).To(Succeed())
	conditions.Set(movable, metav1.Condition{Type: infrav1.ClusterMovableCondition, Status: metav1.ConditionTrue,
		Reason: "Movable"})
	s.g.Expect(r.Client.Status().Update(ctx, movable)).To(Succeed())
	key.Name = "m"
	s.g.Expect(r.Client.Get(ctx, key, machine)).To(Succeed())
	machine.Status.NodeRef.Name = "m"
	s.g.Expect(r.Client.Status().Update(ctx, machine)).To(Succeed())
}

// sparse leaves out points of a table of kills, but for the pause and the journal. All are run where there is time.
func sparse(i int, w Write) bool {
	special := w.Side == "source" && w.Kind == "ConfigMap" && w.Verb == "update" || w.Kind == "Cluster"
	return os.Getenv("QUOIN_SIM_LONG") == "" && !special && i%15 != 0
}

// A pivot is killed before each of its writes. The same command then finishes it, and with --abort undoes it as long
// as the point of no return is not behind.
func TestAPivotThatIsKilledAnywhere(t *testing.T) {
	s := newSite(t, "kill-none")
	all, err := s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	outcomes := map[string]bool{}
	for i, write := range all {
		if sparse(i, write) {
			continue
		}
		for _, abort := range []bool{false, true} {
			outcome := killed(t, fmt.Sprintf("kill-%t-%d", abort, i+1), i+1, abort)
			outcomes[outcome] = true
			t.Logf("%2d  %-45s %s", i+1, write, outcome)
			if outcome == afterwards {
				break
			}
		}
	}
	s.g.Expect(outcomes).To(HaveLen(4), "%v", outcomes)
}

const afterwards = "not aborted, then finished"

// killed kills the command before a write, and runs it again. Behind the point of no return it is only asked to abort.
func killed(t *testing.T, namespace string, number int, abort bool) string {
	t.Helper()
	s := newSite(t, namespace)
	_, err := s.run(s.source, s.target, pivot.Wish{}, before(number))
	s.g.Expect(err).To(HaveOccurred())
	s.sound()
	released := false
	if j, err := s.local.Load(); err == nil && j != nil {
		released = j.Phase == pivot.Releasing
	}
	_, err = s.run(s.source, s.target, pivot.Wish{Abort: abort || released}, nil)
	switch {
	case errors.Is(err, ErrUndone):
		s.rests(s.source, s.target)
		return "undone"
	case abort && errors.Is(err, ErrRefused) && s.acts(s.source):
		s.rests(s.source, s.target)
		return "nothing to abort"
	case abort || released:
		s.g.Expect(err).To(MatchError(ErrRefused))
		s.sound()
		_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
		s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
		s.rests(s.target, s.source)
		return afterwards
	}
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	s.rests(s.target, s.source)
	return "finished"
}

// before kills the command before a write.
func before(number int) func(int, Write) error {
	return func(n int, _ Write) error {
		if n == number {
			return errKilled
		}
		return nil
	}
}

// half is a pivot that was killed when everything was on the target, and nothing was released.
func half(t *testing.T, namespace string) *site {
	t.Helper()
	s := newSite(t, namespace)
	created := 0
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.Verb == "create" && w.Kind != "ConfigMap" && w.Kind != "Namespace" {
			created++
		} else if created == 10 && w.Kind == "ConfigMap" {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(HaveOccurred())
	s.g.Expect(s.ownersIn(s.target)).To(Equal(s.graph))
	return s
}

// The undoing is killed before each of its writes. The same command goes on with it, also without --abort once it is written
// down that it undoes.
func TestAnUndoingThatIsKilledAnywhere(t *testing.T) {
	s := half(t, "undo-none")
	all, err := s.run(s.source, s.target, pivot.Wish{Abort: true}, nil)
	s.g.Expect(err).To(MatchError(ErrUndone))
	// The last write is a copy of the journal, which the other side has: the same command would begin anew.
	for i, write := range all[:len(all)-1] {
		if sparse(i, write) {
			continue
		}
		s := half(t, fmt.Sprintf("undo-%d", i+1))
		_, killed := s.run(s.source, s.target, pivot.Wish{Abort: true}, before(i+1))
		s.g.Expect(killed).To(HaveOccurred())
		s.sound()
		target, err := Connect(t.Context(), "target", cluster.Kubeconfig{Path: s.target.Kubeconfig}, nil)
		s.g.Expect(err).NotTo(HaveOccurred())
		kept, err := target.journal(t.Context(), s.namespace)
		s.g.Expect(err).NotTo(HaveOccurred())
		s.g.Expect(i < 2 || kept.Phase == pivot.Undoing || kept.Phase == pivot.Undone).To(BeTrue(), "it is written down first")
		_, err = s.run(s.source, s.target, pivot.Wish{Abort: kept.Phase == pivot.Copying}, nil)
		s.g.Expect(err).To(MatchError(ErrUndone), strings.Join(s.lines, "\n"))
		s.rests(s.source, s.target)
		t.Logf("%2d  %-45s undone", i+1, write)
	}
}

// What cannot be finished gives everything back by itself, before anything is deleted on the source.
func TestAPivotThatFailsIsUndone(t *testing.T) {
	tamper := func(s *site, change func(*infrav1.QuoinHost)) error {
		host := &infrav1.QuoinHost{}
		if err := s.target.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "srv-1"},
			host); err != nil {
			return err
		}
		change(host)
		return s.target.Client.Update(t.Context(), host)
	}
	for name, row := range map[string]struct {
		happens func(*site, Write) error
		message string
	}{
		"refused": {func(_ *site, w Write) error {
			if w.String() == "target create Machine m" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("a policy says no"))
			}
			return nil
		}, "the target refuses Machine m"},
		"claim": {atTheEnd(func(s *site) error {
			return tamper(s, func(h *infrav1.QuoinHost) { h.Spec.ConsumerRef.Machine = "other" })
		}), "QuoinHost srv-1 differs in spec.consumerRef.machine"},
		"finalizer": {atTheEnd(func(s *site) error {
			return tamper(s, func(h *infrav1.QuoinHost) { h.Finalizers = nil })
		}), "QuoinHost srv-1 differs in metadata.finalizers[example.com/host]"},
		"gone": {atTheEnd(func(s *site) error {
			return s.target.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
				Name: "c-ca"}})
		}), "Secret c-ca has not arrived"},
		"resumed": {atTheEnd(func(s *site) error {
			home := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
			return s.source.Client.Patch(t.Context(), home, client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"paused":null}}`)))
		}), "Cluster c is no longer paused on the source"},
		"taken-away": {atTheEnd(func(s *site) error {
			m := &infrav1.QuoinMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "m"}}
			return s.source.Client.Patch(t.Context(), m, client.RawPatch(types.MergePatchType,
				[]byte(`{"metadata":{"annotations":{"example.com/note":null}}}`)))
		}), "QuoinMachine m lost metadata.annotations[example.com/note] on the source after it was copied"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "fails-"+name)
			deleted := false
			_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
				deleted = deleted || w.Side == "source" && w.Verb == "delete"
				return row.happens(s, w)
			})
			s.g.Expect(err).To(MatchError(ErrUndone))
			s.g.Expect(err).To(MatchError(ContainSubstring(row.message)))
			s.g.Expect(deleted).To(BeFalse())
			s.rests(s.source, s.target)
		})
	}
}

// A Cluster that is resumed on the source while a pivot waits for it to be quiet is not copied: its copy would act too.
func TestAClusterThatIsResumedMeanwhileIsNotCopied(t *testing.T) {
	s := newSite(t, "resumed-waiting")
	patch := func(o client.Object, content string) {
		s.g.Expect(s.source.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType,
			[]byte(content)))).To(Succeed())
	}
	of := metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}
	blocks := func(value string) {
		patch(&infrav1.QuoinCluster{ObjectMeta: of},
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, clusterctlv1.BlockMoveAnnotation, value))
	}
	blocks(`""`)
	p := s.command(t.Context(), s.source, s.target, func(w Write) error {
		if w.Kind == "Cluster" && w.Verb == "create" {
			t.Error("the copy of a Cluster that acts is made")
		}
		return nil
	})
	waited, report := false, p.Report
	p.Report = func(format string, args ...any) {
		report(format, args...)
		if line := s.lines[len(s.lines)-1]; strings.Contains(line, "waiting until it is quiet") {
			waited = true
			patch(&clusterv1.Cluster{ObjectMeta: of}, `{"spec":{"paused":null}}`)
			blocks("null")
		}
	}
	err := p.Run(t.Context(), pivot.Wish{})
	s.g.Expect(waited).To(BeTrue())
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(err).To(MatchError(ContainSubstring("Cluster c is no longer paused on the source")))
	s.rests(s.source, s.target)
}

// atTheEnd does something once, when the last object is copied.
func atTheEnd(do func(*site) error) func(*site, Write) error {
	done := false
	return func(s *site, w Write) error {
		if done || w.String() != "target patch Secret m" {
			return nil
		}
		done = true
		return do(s)
	}
}

// What somebody deleted on the source while it was copied is not deleted on the target too: a person says what is
// right.
func TestAnUndoLeavesTheLastCopyToAPerson(t *testing.T) {
	s := newSite(t, "alone")
	last := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c-ca"}}
	gone := atTheEnd(func(s *site) error { return s.source.Client.Delete(t.Context(), last.DeepCopy()) })
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error { return gone(s, w) })
	s.g.Expect(err).To(MatchError(And(ContainSubstring("Secret c-ca is on the target alone"),
		ContainSubstring("delete it on the target; else make it again on the source"), Not(ContainSubstring("still paused")))))
	s.g.Expect(s.target.Client.Get(t.Context(), client.ObjectKeyFromObject(last), &corev1.Secret{})).To(Succeed())

	s.g.Expect(s.target.Client.Delete(t.Context(), last.DeepCopy())).To(Succeed())
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).To(MatchError(ErrUndone))
}

// A pivot does not begin where it would not go well, and nothing but the namespace is written then.
func TestAPivotThatWouldNotGoWellDoesNotBegin(t *testing.T) {
	update := func(s *site, o client.Object, name string, change func()) {
		s.g.Expect(s.source.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, o)).To(Succeed())
		change()
		s.g.Expect(s.source.Client.Status().Update(t.Context(), o)).To(Succeed())
	}
	for name, row := range map[string]struct {
		prepare func(*site)
		message string
	}{
		"movable": {(*site).immovable, "Deleting: host h"},
		"node": {func(s *site) {
			m := &clusterv1.Machine{}
			update(s, m, "m", func() { m.Status.NodeRef.Name = ""; m.Status.Phase = "Running" })
		}, "is still provisioning the node"},
		"names": {func(s *site) {
			s.g.Expect(s.target.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).
				To(Succeed())
			s.g.Expect(s.target.Client.Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ssh"}})).
				To(Succeed())
		}, "Secret ssh"},
		"paused": {func(s *site) { s.pause(s.source) }, "--take-over"},
		"versions": {func(s *site) { // the rows come one after another
			s.g.Expect(provider(s.target, "v0.0.9")).To(Succeed())
			s.t.Cleanup(func() { s.g.Expect(provider(s.target, "v0.1.0")).To(Succeed()) })
		}, "is older than in the source cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "begins-"+name)
			row.prepare(s)
			writes, err := s.run(s.source, s.target, pivot.Wish{}, nil)
			s.g.Expect(err).To(MatchError(ErrRefused))
			s.g.Expect(err).To(MatchError(ContainSubstring(row.message)))
			for _, write := range writes {
				s.g.Expect(write.Kind).To(Equal("Namespace"))
			}
			s.g.Expect(s.ownersIn(s.source)).To(Equal(s.graph))
		})
	}
}

// Two people run the command at once: the second is refused while the first lives. A first one that was taken for dead
// writes nothing any more once it is back.
func TestTwoPivotsAtOnce(t *testing.T) {
	for name, early := range map[string]time.Duration{"lives": time.Second, "taken-for-dead": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "two-"+name)
			var first, second error
			created := 0
			_, first = s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
				if w.Verb == "create" && w.Kind != "ConfigMap" && w.Kind != "Namespace" {
					created++
				}
				if created == 10 && w.String() == "target update ConfigMap "+JournalName && second == nil {
					s.early = early
					_, second = s.run(s.source, s.target, pivot.Wish{Abort: true}, nil)
				}
				return nil
			})
			s.sound()
			if early > 0 {
				s.g.Expect(second).To(MatchError(ErrRefused))
				s.g.Expect(second).To(MatchError(ContainSubstring("this command goes on 2m0s after its last word")))
				s.g.Expect(first).NotTo(HaveOccurred())
				s.rests(s.target, s.source)
				return
			}
			s.g.Expect(second).To(MatchError(ErrUndone))
			s.g.Expect(first).To(MatchError(errOvertaken))
			s.rests(s.source, s.target)
		})
	}
}

// Two people begin at once: one journal is written.
func TestTwoPivotsBeginAtOnce(t *testing.T) {
	s := newSite(t, "two-begin")
	var second error
	done := false
	_, first := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create ConfigMap "+JournalName && !done {
			done = true
			_, second = s.run(s.source, s.target, pivot.Wish{}, nil)
		}
		return nil
	})
	s.g.Expect(second).NotTo(HaveOccurred())
	s.g.Expect(first).To(MatchError(ErrRefused))
	s.rests(s.target, s.source)
}

// A run that lives long says so, and ends when another one has gone on.
func TestARunSaysThatItLives(t *testing.T) {
	s := newSite(t, "lives-long")
	side, err := Connect(t.Context(), "target", cluster.Kubeconfig{Path: s.target.Kubeconfig}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	now := began
	p := &Pivot{Target: side, Namespace: s.namespace, holder: "first", now: func() time.Time { return now }}
	j := &pivot.Journal{ID: "a", Phase: pivot.Copying, Namespace: s.namespace}
	s.g.Expect(p.hold(t.Context(), j)).To(Succeed())
	version := side.version
	s.g.Expect(p.alive(t.Context())).To(Succeed())
	s.g.Expect(side.version).To(Equal(version), "not yet")
	now = now.Add(renewal)
	s.g.Expect(p.alive(t.Context())).To(Succeed())
	kept, err := side.journal(t.Context(), s.namespace)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(kept.HeldFrom("second", now.Add(pivot.Lease-1))).NotTo(BeEmpty())
	s.g.Expect(kept.HeldFrom("second", now.Add(pivot.Lease))).To(BeEmpty())
	answering := side.Client
	side.Client = interceptor.NewClient(answering, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch,
		o client.Object, options ...client.UpdateOption) error {
		return errors.Join(c.Update(ctx, o, options...), errors.New("the answer is lost"))
	}})
	now = now.Add(renewal)
	s.g.Expect(p.alive(t.Context())).To(Succeed())
	side.Client = answering
	now = now.Add(renewal)
	s.g.Expect(p.alive(t.Context())).To(Succeed(), "what is there is its own word, and no other run's")
	other, err := Connect(t.Context(), "target", cluster.Kubeconfig{Path: s.target.Kubeconfig}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	second, err := other.journal(t.Context(), s.namespace)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(second.Renewed).To(BeTemporally("==", now))
	second.Holder = "second"
	s.g.Expect(other.keep(t.Context(), second, second.Holder)).To(Succeed())
	now = now.Add(renewal)
	for range 2 {
		s.g.Expect(p.alive(t.Context())).To(MatchError(errOvertaken))
	}
	s.g.Expect(errOvertaken.Error()).To(ContainSubstring("stay paused"))
}

// A run that slept while others finished its pivot resumes nothing that is paused again.
func TestARunThatSleptResumesNothing(t *testing.T) {
	s, now := newSite(t, "slept"), began
	slept := false
	first := s.command(t.Context(), s.source, s.target, func(w Write) error {
		if w.String() == "source delete Cluster c" && !slept {
			slept, now = true, now.Add(pivot.Lease)
			s.runs = 2
			_, err := s.run(s.source, s.target, pivot.Wish{}, nil)
			s.g.Expect(err).NotTo(HaveOccurred())
			s.pause(s.target) // as the way back does
		}
		return nil
	})
	first.now = func() time.Time { return now }
	s.g.Expect(first.Run(t.Context(), pivot.Wish{})).To(MatchError(errOvertaken))
	s.g.Expect(slept).To(BeTrue())
	s.g.Expect(s.acts(s.target)).To(BeFalse())
}

// What an undoing leaves on the target is read when it has ended: a target that does not answer then holds nothing up.
func TestAnUndoingEndsAlsoWhereNobodySaysWhatItLeaves(t *testing.T) {
	s := newSite(t, "undone-silently")
	deleted, silent := false, false
	p := s.command(t.Context(), s.source, s.target, func(w Write) error {
		deleted = deleted || strings.HasPrefix(w.String(), "target delete")
		silent = silent || deleted && w.String() == "source patch Cluster c"
		if w.String() == "target create Machine m" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("a policy says no"))
		}
		return nil
	})
	p.Target.Client = interceptor.NewClient(p.Target.Client, interceptor.Funcs{Get: func(ctx context.Context,
		c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, journal := o.(*corev1.ConfigMap); silent && !journal {
			return errors.New("no route to host")
		}
		return c.Get(ctx, key, o, options...)
	}})
	s.g.Expect(p.Run(t.Context(), pivot.Wish{})).To(MatchError(ErrUndone))
	s.g.Expect(silent).To(BeTrue())
	s.g.Expect(s.lines[len(s.lines)-1]).To(ContainSubstring("What the target keeps is not known"))
	s.rests(s.source, s.target)
}

// A ClusterClass of another namespace stays on the source, and is paused on neither side when the pivot has ended. An
// undoing leaves its copy, and says so.
func TestAClusterClassOfAnotherNamespaceIsResumed(t *testing.T) {
	s := newSite(t, "classes")
	elsewhere := metav1.ObjectMeta{Namespace: s.namespace + "-shared", Name: "k"}
	template := &infrav1.QuoinMachineTemplate{ObjectMeta: elsewhere}
	template.Spec.Template.Spec.Artifacts = infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: "/opt/{{version}}"}}
	class := &clusterv1.ClusterClass{ObjectMeta: elsewhere}
	class.Spec.Infrastructure.TemplateRef = clusterv1.ClusterClassTemplateReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: "QuoinMachineTemplate", Name: "k"}
	class.Spec.ControlPlane.TemplateRef = class.Spec.Infrastructure.TemplateRef
	for _, r := range []*rig.Rig{s.source, s.target} {
		s.g.Expect(r.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere.Namespace}})).
			To(Succeed())
	}
	for _, o := range []client.Object{template, class} {
		s.g.Expect(s.source.Client.Create(t.Context(), o)).To(Succeed())
	}
	home := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
	s.g.Expect(s.source.Client.Patch(t.Context(), home, client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(
		`{"spec":{"topology":{"classRef":{"name":"k","namespace":%q},"version":"v1.36.0"}}}`, elsewhere.Namespace))))).
		To(Succeed())
	isPaused := func(r *rig.Rig) bool {
		found := &clusterv1.ClusterClass{}
		s.g.Expect(r.Client.Get(t.Context(), client.ObjectKeyFromObject(class), found)).To(Succeed())
		_, paused := found.Annotations[clusterv1.PausedAnnotation]
		return paused
	}
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create Cluster c" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "c", errors.New("a policy says no"))
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(isPaused(s.source)).To(BeFalse(), "after the undoing")
	s.g.Expect(s.lines[len(s.lines)-1]).To(ContainSubstring("The target keeps ClusterClass k"))
	s.rests(s.source, s.target)
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	s.g.Expect(isPaused(s.source)).To(BeFalse())
	s.g.Expect(isPaused(s.target)).To(BeFalse())
	s.rests(s.target, s.source)
}

// A target that somebody resumed while it was copied may have taken hosts over: it is neither overwritten nor undone.
func TestATargetThatActsIsNeitherOverwrittenNorUndone(t *testing.T) {
	resume := func(s *site) {
		home := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
		s.g.Expect(s.target.Client.Patch(t.Context(), home, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"paused":null}}`)))).
			To(Succeed())
	}
	untouched := func(_ int, w Write) error {
		if w.Side == "target" && w.Kind != "ConfigMap" {
			t.Errorf("the target acts: %s", w)
		}
		return nil
	}
	s := half(t, "acts-before")
	resume(s)
	for _, wish := range []pivot.Wish{{}, {Abort: true}, {}} {
		_, err := s.run(s.source, s.target, wish, untouched)
		s.g.Expect(err).To(MatchError(ErrRefused))
		s.g.Expect(err).To(MatchError(ContainSubstring("Something arrived")))
		s.g.Expect(s.ownersIn(s.target)).To(Equal(s.graph))
	}
	s.pause(s.target)
	_, err := s.run(s.source, s.target, pivot.Wish{Abort: true}, untouched)
	s.g.Expect(err).To(MatchError(ErrRefused), "it has acted")

	s = half(t, "acts-meanwhile")
	resumed := false
	_, err = s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create Cluster c" {
			resume(s)
			resumed = true
		} else if resumed {
			return untouched(0, w)
		}
		return nil
	})
	s.g.Expect(resumed).To(BeTrue())
	s.g.Expect(err).To(MatchError(ContainSubstring("Cluster c acts on the target")))
	s.g.Expect(err).NotTo(Or(MatchError(ErrUndone), MatchError(ErrRefused)))
	s.g.Expect(s.acts(s.target)).To(BeTrue())
	s.sound()
}

// A move that died while it deleted is not gone on with when the target lacks something.
func TestATakeOverLosesNothing(t *testing.T) {
	s := newSite(t, "take-over")
	s.stock("source delete Machine m")
	late := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "late",
		Labels: map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}}}
	s.g.Expect(s.source.Client.Create(t.Context(), late)).To(Succeed())
	_, err := s.run(s.source, s.target, pivot.Wish{TakeOver: true}, func(int, Write) error { return errKilled })
	s.g.Expect(err).To(MatchError(ErrRefused))
	s.g.Expect(err).To(MatchError(ContainSubstring("Secret late is not on the target")))
	s.g.Expect(s.source.Client.Delete(t.Context(), late)).To(Succeed())
	_, err = s.run(s.source, s.target, pivot.Wish{TakeOver: true}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.rests(s.target, s.source)
}

// What a take-over found on the target an undoing leaves there, and says so: nobody but a person knows whether it was
// there before the move that died.
func TestATakeOverThatIsAbortedSaysWhatStays(t *testing.T) {
	s := newSite(t, "take-abort")
	s.stock("source patch Secret m")
	_, err := s.run(s.source, s.target, pivot.Wish{TakeOver: true}, func(_ int, w Write) error {
		if w.Side == "source" && w.Kind != "ConfigMap" {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(HaveOccurred())
	_, err = s.run(s.source, s.target, pivot.Wish{Abort: true}, nil)
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(s.lines[len(s.lines)-1]).To(And(ContainSubstring("The target keeps Cluster c"),
		ContainSubstring("stay paused there"),
		Not(ContainSubstring("no copy"))))
	s.g.Expect(s.ownersIn(s.target)).To(Equal(s.graph))
	s.g.Expect(s.acts(s.source)).To(BeTrue())
	s.sound()
	_, err = s.run(s.source, s.target, pivot.Wish{TakeOver: true}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	s.rests(s.target, s.source)
}

// What is lost on both sides behind the point of no return is said, and does not keep the rest from arriving.
func TestWhatIsOnNeitherSideIsSaid(t *testing.T) {
	s := newSite(t, "neither")
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "source delete Cluster c" {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(HaveOccurred())
	s.g.Expect(s.target.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "c-ca"}})).To(Succeed())
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(s.lines).To(ContainElement(ContainSubstring("On neither side any more: Secret c-ca")))
	s.g.Expect(s.acts(s.target)).To(BeTrue())
	s.g.Expect(s.ownersIn(s.source)).To(BeEmpty())
}

// other makes a Cluster that does not move.
func (s *site) other(r *rig.Rig) {
	s.g.Expect(client.IgnoreAlreadyExists(r.Client.Create(s.t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))).
		To(Succeed())
	s.g.Expect(r.Client.Create(s.t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace,
		Name: "other"},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "QuoinCluster", Name: "other"}}})).To(Succeed())
}

// Another Cluster of the target's namespace is neither in the way nor touched, when all goes well and when it is
// undone.
func TestAnotherClusterOfTheTargetIsLeftAlone(t *testing.T) {
	s := newSite(t, "other")
	s.other(s.target)
	before := s.ownersIn(s.target)
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create Machine m" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, "m", errors.New("a policy says no"))
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(s.ownersIn(s.source)).To(Equal(s.graph))
	s.g.Expect(s.ownersIn(s.target)).To(Equal(before))
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(s.ownersIn(s.source)).To(BeEmpty())
	s.g.Expect(s.acts(s.target)).To(BeTrue())
}

// What the target had before is neither overwritten nor deleted; where it differs, a pivot does not begin.
func TestWhatTheTargetHadStaysThere(t *testing.T) {
	template := func(location string) *infrav1.QuoinMachineTemplate {
		o := &infrav1.QuoinMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "had", Name: "w"}}
		o.Spec.Template.Spec.Artifacts = infrav1.Artifacts{Bundle: &infrav1.Bundle{Location: location}}
		return o
	}
	s := newSite(t, "had")
	s.g.Expect(s.target.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).
		To(Succeed())
	home := &clusterv1.Cluster{}
	s.g.Expect(s.source.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "c"}, home)).To(Succeed())
	moves := template("/opt/one/{{version}}")
	moves.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
		Name: "c", UID: home.UID}}
	s.g.Expect(s.source.Client.Create(t.Context(), moves)).To(Succeed())
	other := template("/opt/other/{{version}}")
	s.g.Expect(s.target.Client.Create(t.Context(), other)).To(Succeed())
	_, err := s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).To(MatchError(ErrRefused))
	s.g.Expect(err).To(MatchError(ContainSubstring("QuoinMachineTemplate w")))
	s.g.Expect(s.target.Client.Delete(t.Context(), other)).To(Succeed())

	same := template("/opt/one/{{version}}")
	s.g.Expect(s.target.Client.Create(t.Context(), same)).To(Succeed())
	// Unlike a template, clusterctl finds a class without any owner, and so for a deletion too.
	class := func() *clusterv1.ClusterClass {
		o := &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "k"}}
		o.Spec.Infrastructure.TemplateRef = clusterv1.ClusterClassTemplateReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "QuoinClusterTemplate", Name: "k"}
		o.Spec.ControlPlane.TemplateRef = clusterv1.ClusterClassTemplateReference{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "QuoinControlPlaneTemplate", Name: "k"}
		return o
	}
	hadClass := class()
	s.g.Expect(s.source.Client.Create(t.Context(), class())).To(Succeed())
	s.g.Expect(s.target.Client.Create(t.Context(), hadClass)).To(Succeed())
	there := func() *infrav1.QuoinMachineTemplate {
		o := &infrav1.QuoinMachineTemplate{}
		s.g.Expect(s.target.Client.Get(t.Context(), client.ObjectKeyFromObject(same), o)).To(Succeed())
		return o
	}
	_, err = s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create Secret m" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "m",
				errors.New("a policy says no to "+secretWord))
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(there().UID).To(Equal(same.UID))
	s.g.Expect(there().OwnerReferences).To(BeEmpty(), "the copy that owned it is deleted")
	kept := &clusterv1.ClusterClass{}
	s.g.Expect(s.target.Client.Get(t.Context(), client.ObjectKeyFromObject(hadClass), kept)).To(Succeed())
	s.g.Expect(kept.UID).To(Equal(hadClass.UID))
	s.rests(s.source, s.target)
	s.g.Expect(err.Error()).NotTo(ContainSubstring(secretWord))
	s.sound()
	j, loadErr := s.local.Load()
	s.g.Expect(loadErr).NotTo(HaveOccurred())
	s.g.Expect(j.Reason).To(Equal("the target refuses Secret m (Forbidden)"))

	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
	s.g.Expect(there().UID).To(Equal(same.UID))
	s.rests(s.target, s.source)
}

// A take-over overwrites nothing that is another object of the same name.
func TestATakeOverOverwritesNothing(t *testing.T) {
	s := newSite(t, "take-ssh")
	s.other(s.target)
	key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "ssh"},
		StringData: map[string]string{"value": "another"}}
	s.g.Expect(s.target.Client.Create(t.Context(), key)).To(Succeed())
	_, err := s.run(s.source, s.target, pivot.Wish{TakeOver: true}, nil)
	s.g.Expect(err).To(MatchError(ErrRefused))
	s.g.Expect(err).To(MatchError(ContainSubstring("Secret ssh")))
	s.g.Expect(s.target.Client.Get(t.Context(), client.ObjectKeyFromObject(key), key)).To(Succeed())
	s.g.Expect(string(key.Data["value"])).To(Equal("another"))
	s.g.Expect(s.acts(s.source)).To(BeTrue())
}

// What is made on the source while it is copied would stay behind, or be lost with it: the pivot is undone.
func TestAnObjectThatIsMadeMeanwhileIsNotLost(t *testing.T) {
	s := newSite(t, "meanwhile")
	made, deleted := false, false
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "target create Machine m" && !made {
			made = true
			s.other(s.source)
		}
		deleted = deleted || w.Side == "source" && w.Verb == "delete"
		return nil
	})
	s.g.Expect(err).To(MatchError(ErrUndone))
	s.g.Expect(err).To(MatchError(ContainSubstring("Cluster other was made on the source while it was copied")))
	s.g.Expect(deleted).To(BeFalse())
	s.g.Expect(s.acts(s.source)).To(BeTrue())
	s.g.Expect(s.ownersIn(s.target)).To(BeEmpty())
}

// Where the target has written down that the point of no return is behind, and the source has not, nothing is undone.
func TestThePointOfNoReturnIsTheTargetsToSay(t *testing.T) {
	s := newSite(t, "no-return")
	copied, late := false, errors.New("no space left")
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		copied = copied || w.String() == "target create QuoinMachine m"
		if copied && w.String() == "source update ConfigMap "+JournalName {
			return late
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(And(ContainSubstring("no space left"), ContainSubstring("the target still paused"))))
	s.g.Expect(s.ownersIn(s.source)).To(Equal(s.graph), "nothing is deleted yet")
	s.g.Expect(s.ownersIn(s.target)).To(Equal(s.graph))
	_, err = s.run(s.source, s.target, pivot.Wish{Abort: true}, nil)
	s.g.Expect(err).To(MatchError(ErrRefused), "as it says")
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.rests(s.target, s.source)
}

// An edit of the source after it was verified is found by its version.
func TestAnEditAfterTheComparisonIsFound(t *testing.T) {
	s := half(t, "edited")
	side, err := Connect(t.Context(), "source", cluster.Kubeconfig{Path: s.source.Kubeconfig}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	target, err := Connect(t.Context(), "target", cluster.Kubeconfig{Path: s.target.Kubeconfig}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	p := &Pivot{Source: side, Target: target, Namespace: s.namespace}
	j, err := s.local.Load()
	s.g.Expect(err).NotTo(HaveOccurred())
	versions, err := p.verify(t.Context(), j, p.run(copying), j.Objects)
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(versions).To(HaveLen(len(j.Objects)))
	s.g.Expect(p.edited(t.Context(), versions)).To(BeEmpty())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c-ca"}}
	s.g.Expect(s.source.Client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType,
		[]byte(`{"data":{"more":"bW9yZQ=="}}`)))).
		To(Succeed())
	s.g.Expect(p.edited(t.Context(), versions)).To(ConsistOf("Secret c-ca"))
	s.g.Expect(p.settled(t.Context(), j, p.run(copying), j.Objects)).To(MatchError(ContainSubstring("Secret c-ca differs in data.more")))
}

// An undoing that is interrupted says how the source is left.
func TestAnUndoingThatIsInterruptedSaysSo(t *testing.T) {
	s := half(t, "undo-says")
	_, err := s.run(s.source, s.target, pivot.Wish{Abort: true}, func(_ int, w Write) error {
		if w.Side == "target" && w.Verb == "delete" {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(ContainSubstring("still paused on the source: run the same command again")))
}

// An undoing that is interrupted when the source is resumed does not call it paused.
func TestAnUndoingWhoseEndIsNotWrittenDownSaysSo(t *testing.T) {
	s := half(t, "undo-end")
	_, err := s.run(s.source, s.target, pivot.Wish{Abort: true}, func(_ int, w Write) error {
		if w.String() == "source update ConfigMap "+JournalName && s.acts(s.source) {
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(MatchError(And(ContainSubstring("the source manages namespace "+s.namespace+" as before"),
		ContainSubstring("again with --abort"), Not(ContainSubstring("paused")))))
	_, err = s.run(s.source, s.target, pivot.Wish{Abort: true}, nil)
	s.g.Expect(err).To(MatchError(ContainSubstring("no pivot is under way")), "the target knows of the end")
	s.rests(s.source, s.target)
}

// A command that was killed before it wrote the end down everywhere makes up for it.
func TestTheEndIsWrittenDownEverywhere(t *testing.T) {
	s := newSite(t, "end")
	ended := false
	_, err := s.run(s.source, s.target, pivot.Wish{}, func(_ int, w Write) error {
		if w.String() == "source update ConfigMap "+JournalName && s.acts(s.target) && !ended {
			ended = true
			return errKilled
		}
		return nil
	})
	s.g.Expect(err).To(HaveOccurred())
	s.g.Expect(ended).To(BeTrue())
	j, err := s.local.Load()
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(j.Phase).To(Equal(pivot.Releasing))
	_, err = s.run(s.source, s.target, pivot.Wish{}, nil)
	s.g.Expect(err).NotTo(HaveOccurred())
	j, err = s.local.Load()
	s.g.Expect(err).NotTo(HaveOccurred())
	s.g.Expect(j.Phase).To(Equal(pivot.Done))
	kept := &corev1.ConfigMap{}
	s.g.Expect(s.source.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: JournalName}, kept)).
		To(Succeed())
	s.g.Expect(kept.Data[journalKey]).To(ContainSubstring(`"phase":"Done"`))
}

// immovable has the QuoinCluster say that it is.
func (s *site) immovable() {
	c := &infrav1.QuoinCluster{}
	s.g.Expect(s.source.Client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "c"}, c)).To(Succeed())
	conditions.Set(c, metav1.Condition{Type: infrav1.ClusterMovableCondition, Status: metav1.ConditionFalse,
		Reason: "Deleting", Message: "host h"})
	s.g.Expect(s.source.Client.Status().Update(s.t.Context(), c)).To(Succeed())
}

func (s *site) pause(r *rig.Rig) {
	home := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "c"}}
	s.g.Expect(r.Client.Patch(s.t.Context(), home, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"paused":true}}`)))).
		To(Succeed())
}

// Stock clusterctl died: it leaves the source paused and refuses to go on, or the target paused and takes that for
// success. The command takes over, when it is told that this is so.
func TestAMoveThatDiedIsTakenOver(t *testing.T) {
	for name, point := range map[string]string{
		"paused": "target create QuoinHost srv-1", "copied": "source patch Secret m", "deleting": "source delete Machine m",
		"resumes": "target patch Cluster c",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "stock-"+name)
			s.stock(point)
			s.sound()
			_, err := s.run(s.source, s.target, pivot.Wish{}, nil)
			s.g.Expect(err).To(MatchError(ErrRefused), "it may be a person's pause")
			_, err = s.run(s.source, s.target, pivot.Wish{TakeOver: true}, nil)
			s.g.Expect(err).NotTo(HaveOccurred(), strings.Join(s.lines, "\n"))
			s.rests(s.target, s.source)
		})
	}
}

// stock runs clusterctl's own mover, and kills it before a write; the last one of that name, which comes with the end.
func (s *site) stock(point string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	deleted := false
	observe := func(w Write) error {
		deleted = deleted || w.Verb == "delete"
		if w.String() == point && (deleted || !strings.HasSuffix(point, "Cluster c")) {
			cancel()
			return errKilled
		}
		return nil
	}
	source, err := Connect(ctx, "source", cluster.Kubeconfig{Path: s.source.Kubeconfig}, observe)
	s.g.Expect(err).NotTo(HaveOccurred())
	target, err := Connect(ctx, "target", cluster.Kubeconfig{Path: s.target.Kubeconfig}, observe)
	s.g.Expect(err).NotTo(HaveOccurred())
	err = source.clusterctl(source.Client).ObjectMover().Move(ctx, s.namespace, target.clusterctl(target.Client), false)
	s.g.Expect(err).To(HaveOccurred())
}
