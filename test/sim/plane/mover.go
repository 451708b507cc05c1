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

// Move is a run of clusterctl's own mover.
type Move struct {
	From, To *Plane
	// Namespace to move, as clusterctl's --namespace.
	Namespace string
	// KillBefore says whether the mover is killed before a write, by its number, which begins with 1, and what it writes, such as
	// "source patch Cluster c". Never when nil.
	KillBefore func(number int, what string) bool

	mu     sync.Mutex
	writes []string
	killed bool
	kill   context.CancelFunc
}

// Run moves, as `clusterctl move` does.
func (m *Move) Run(ctx context.Context) error {
	ctx, m.kill = context.WithCancel(ctx)
	defer m.kill()
	var clients []cluster.Client
	for _, side := range []struct {
		name  string
		plane *Plane
	}{{"source", m.From}, {"target", m.To}} {
		if err := side.plane.inventory(ctx); err != nil {
			return err
		}
		through, err := m.through(side.name, side.plane)
		if err != nil {
			return err
		}
		clients = append(clients, clusterctl(through))
	}
	err := clients[0].ObjectMover().Move(ctx, m.Namespace, clients[1], false)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.killed {
		return ErrMoverKilled
	}
	return err
}

// Writes are those that were made.
func (m *Move) Writes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.writes)
}

// write lets a write through, or ends the mover at this instant.
func (m *Move) write(side, verb string, object client.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
	}
	what := fmt.Sprintf("%s %s %s %s", side, verb, kind, object.GetName())
	if m.killed || m.KillBefore != nil && m.KillBefore(len(m.writes)+1, what) {
		m.killed = true
		m.kill()
		return ErrMoverKilled
	}
	m.writes = append(m.writes, what)
	return nil
}

// through is a client of one side that counts the mover's writes.
func (m *Move) through(side string, p *Plane) (*proxy, error) {
	direct, err := p.clusterctlClient()
	if err != nil {
		return nil, err
	}
	return &proxy{p, interceptor.NewClient(direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := m.write(side, "create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if err := m.write(side, "update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if err := m.write(side, "patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := m.write(side, "delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
	})}, nil
}

func clusterctl(p cluster.Proxy) cluster.Client {
	return cluster.New(cluster.Kubeconfig{}, nil, cluster.InjectProxy(p))
}

// inventory writes down what is installed, as `clusterctl init` does: which providers in which version.
func (p *Plane) inventory(ctx context.Context) error {
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
