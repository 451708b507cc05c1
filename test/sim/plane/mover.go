// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ErrMoverKilled is what a move ends with that was killed.
var ErrMoverKilled = errors.New("the mover was killed")

// ErrLost is what Before returns for a write that is answered as made, and is not.
var ErrLost = errors.New("the write was lost")

var errSilent = errors.New("the API server does not answer")

// Move is a run of clusterctl's own mover.
type Move struct {
	From, To *Plane
	// Namespace to move, as clusterctl's --namespace.
	Namespace string
	// Before is called before each write, with its number, which begins with 1, and what it writes, such as "source patch Cluster c".
	// With ErrMoverKilled the mover ends there, with ErrLost it believes that it wrote. Nothing happens when nil.
	Before func(number int, what string) error
	// Order in which the target sees the objects that clusterctl takes in no order: those of one group, with the same owners.
	// It is clusterctl's own when empty.
	Order []client.Object

	mu     sync.Mutex
	writes []string
	ahead  map[string]*unstructured.Unstructured
	silent map[string]bool
	killed bool
	kill   context.CancelFunc
}

// Silence has the API server of a side ("source", "target") answer the mover nothing, or answer again.
func (m *Move) Silence(side string, silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent == nil {
		m.silent = map[string]bool{}
	}
	m.silent[side] = silent
}

func (m *Move) answers(side string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent[side] {
		return errSilent
	}
	return nil
}

// Run moves, as `clusterctl move` does.
func (m *Move) Run(ctx context.Context) error {
	ctx, m.kill = context.WithCancel(ctx)
	defer m.kill()
	from, err := m.reach(ctx, "source", m.From)
	if err != nil {
		return err
	}
	to, err := m.reach(ctx, "target", m.To)
	if err != nil {
		return err
	}
	err = from.ObjectMover().Move(ctx, m.Namespace, to, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.killed {
		return ErrMoverKilled
	}
	return err
}

// ToDirectory writes the objects down, as `clusterctl move --to-directory` does.
func (m *Move) ToDirectory(ctx context.Context, directory string) error {
	from, err := m.reach(ctx, "source", m.From)
	if err != nil {
		return err
	}
	return from.ObjectMover().ToDirectory(ctx, m.Namespace, directory)
}

// FromDirectory makes the objects that were written down, as `clusterctl move --from-directory` does.
func (m *Move) FromDirectory(ctx context.Context, directory string) error {
	to, err := m.reach(ctx, "target", m.To)
	if err != nil {
		return err
	}
	return to.ObjectMover().FromDirectory(ctx, to, directory)
}

// reach one side as clusterctl.
func (m *Move) reach(ctx context.Context, side string, p *Plane) (cluster.Client, error) {
	if err := p.Inventory(ctx); err != nil {
		return nil, err
	}
	through, err := m.through(side, p)
	if err != nil {
		return nil, err
	}
	return clusterctl(through), nil
}

// Writes are those that were made.
func (m *Move) Writes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.writes)
}

// write lets a write through, or not: it ends the mover at this instant, or has it believe that it wrote.
func (m *Move) write(side, verb string, object client.Object, through func() error) error {
	if err := m.answers(side); err != nil {
		return err
	}
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
	}
	what := fmt.Sprintf("%s %s %s %s", side, verb, kind, object.GetName())
	m.mu.Lock()
	number, killed := len(m.writes)+1, m.killed
	m.mu.Unlock()
	var err error
	if killed {
		err = ErrMoverKilled
	} else if m.Before != nil {
		err = m.Before(number, what)
	}
	m.mu.Lock()
	if errors.Is(err, ErrMoverKilled) {
		m.killed = true
		m.kill()
	} else if err == nil {
		m.writes = append(m.writes, what)
	}
	m.mu.Unlock()
	switch {
	case errors.Is(err, ErrLost):
		return nil
	case err != nil:
		return err
	}
	// It may have fallen silent meanwhile.
	if err := m.answers(side); err != nil {
		return err
	}
	return through()
}

// through is a client of one side that counts the mover's writes.
func (m *Move) through(side string, p *Plane) (*proxy, error) {
	direct, err := p.clusterctlClient()
	if err != nil {
		return nil, err
	}
	return &proxy{p, interceptor.NewClient(direct, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := m.answers(side); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := m.createAhead(ctx, c, side, o); err != nil {
				return err
			}
			if made := m.ahead[nameOf(o)]; made != nil && side == "target" {
				o.(*unstructured.Unstructured).SetUnstructuredContent(made.DeepCopy().Object)
				return nil
			}
			return m.write(side, "create", o, func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return m.write(side, "update", o, func() error { return c.Update(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return m.write(side, "patch", o, func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return m.write(side, "delete", o, func() error { return c.Delete(ctx, o, options...) })
		},
	})}, nil
}

func nameOf(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}

// createAhead makes those objects before this one that Order puts there and whose owners are in the target, as clusterctl would
// have made them had it taken them first. It believes to make them itself when it comes to them.
func (m *Move) createAhead(ctx context.Context, c client.Client, side string, before client.Object) error {
	if side != "target" || m.ahead[nameOf(before)] != nil {
		return nil
	}
	place := slices.IndexFunc(m.Order, func(o client.Object) bool { return nameOf(o) == nameOf(before) })
	for i := range max(place, 0) {
		next := &unstructured.Unstructured{}
		next.SetGroupVersionKind(m.Order[i].GetObjectKind().GroupVersionKind())
		key := client.ObjectKey{Namespace: m.Namespace, Name: m.Order[i].GetName()}
		if err := c.Get(ctx, key, next.DeepCopy()); !apierrors.IsNotFound(err) {
			if err != nil {
				return err
			}
			continue
		}
		if err := m.From.Client.Get(ctx, key, next); err != nil {
			return err
		}
		if arrived, err := ownedThere(ctx, c, next); err != nil {
			return err
		} else if !arrived {
			continue
		}
		next.SetResourceVersion("")
		if err := m.write(side, "create", next, func() error { return c.Create(ctx, next) }); err != nil {
			return err
		}
		if m.ahead == nil {
			m.ahead = map[string]*unstructured.Unstructured{}
		}
		m.ahead[nameOf(next)] = next
	}
	return nil
}

// ownedThere gives an object the owners that have arrived, and reports whether all have.
func ownedThere(ctx context.Context, c client.Client, o *unstructured.Unstructured) (bool, error) {
	owners := o.GetOwnerReferences()
	for i := range owners {
		owner := &unstructured.Unstructured{}
		owner.SetAPIVersion(owners[i].APIVersion)
		owner.SetKind(owners[i].Kind)
		if err := c.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owners[i].Name}, owner); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		owners[i].UID = owner.GetUID()
	}
	o.SetOwnerReferences(owners)
	return true, nil
}

func clusterctl(p cluster.Proxy) cluster.Client {
	return cluster.New(cluster.Kubeconfig{}, nil, cluster.InjectProxy(p))
}

// Inventory writes down what is installed, as `clusterctl init` does: which providers in which version.
func (p *Plane) Inventory(ctx context.Context) error {
	p.inventory.Lock()
	defer p.inventory.Unlock()
	direct, err := p.clusterctlClient()
	if err != nil {
		return err
	}
	list := clusterctl(&proxy{p, direct}).ProviderInventory()
	if err := list.EnsureCustomResourceDefinitions(ctx); err != nil {
		return fmt.Errorf("installing clusterctl's inventory: %w", err)
	}
	for _, provider := range []struct {
		name string
		kind clusterctlv1.ProviderType
	}{
		{"cluster-api", clusterctlv1.CoreProviderType}, {"kubeadm", clusterctlv1.BootstrapProviderType},
		{"quoin", clusterctlv1.ControlPlaneProviderType}, {"quoin", clusterctlv1.InfrastructureProviderType},
	} {
		err := list.Create(ctx, clusterctlv1.Provider{
			TypeMeta:     metav1.TypeMeta{APIVersion: clusterctlv1.GroupVersion.String(), Kind: "Provider"},
			ObjectMeta:   metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: clusterctlv1.ManifestLabel(provider.name, provider.kind)},
			ProviderName: provider.name, Type: string(provider.kind), Version: "v0.0.1",
		})
		if err != nil {
			return fmt.Errorf("adding provider %s to clusterctl's inventory: %w", provider.name, err)
		}
	}
	return nil
}

// clusterctlClient knows the kinds that clusterctl reads.
func (p *Plane) clusterctlClient() (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, addonsv1.AddToScheme, clusterctlv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building clusterctl's scheme: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(p.Config)
	if err != nil {
		return nil, fmt.Errorf("reaching the API server as clusterctl: %w", err)
	}
	// A mapper of its own: the inventory's kind comes later than all others.
	mapper, err := apiutil.NewDynamicRESTMapper(p.Config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("reaching the API server as clusterctl: %w", err)
	}
	return client.NewWithWatch(p.Config, client.Options{Scheme: scheme, HTTPClient: httpClient, Mapper: mapper})
}

// proxy is how clusterctl reaches a plane.
type proxy struct {
	plane  *Plane
	client client.Client
}

var _ cluster.Proxy = &proxy{}

// GetConfig implements cluster.Proxy.
func (p *proxy) GetConfig() (*rest.Config, error) { return p.plane.Config, nil }

// CurrentNamespace implements cluster.Proxy.
func (p *proxy) CurrentNamespace() (string, error) { return metav1.NamespaceDefault, nil }

// ValidateKubernetesVersion implements cluster.Proxy.
func (p *proxy) ValidateKubernetesVersion() error { return nil }

// NewClient implements cluster.Proxy.
func (p *proxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// CheckClusterAvailable implements cluster.Proxy.
func (p *proxy) CheckClusterAvailable(context.Context) error { return nil }

var errNotForMoves = errors.New("a move does not ask for this")

// ListResources implements cluster.Proxy.
func (p *proxy) ListResources(context.Context, map[string]string, ...string) ([]unstructured.Unstructured, error) {
	return nil, errNotForMoves
}

// GetContexts implements cluster.Proxy.
func (p *proxy) GetContexts(string) ([]string, error) { return nil, errNotForMoves }

// GetResourceNames implements cluster.Proxy.
func (p *proxy) GetResourceNames(context.Context, string, string, []client.ListOption, string) ([]string, error) {
	return nil, errNotForMoves
}
