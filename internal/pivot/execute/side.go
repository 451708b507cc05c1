// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package execute carries pivots out: it reads both management clusters, asks internal/pivot what comes next, and has
// clusterctl's own mover do it, through clients that list, verify and gate what the mover writes.
package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// Write is one that is about to be made.
type Write struct{ Side, Verb, Kind, Name string }

// String is one line of a log.
func (w Write) String() string { return w.Side + " " + w.Verb + " " + w.Kind + " " + w.Name }

// Side is one of the two management clusters.
type Side struct {
	// Name is source or target.
	Name string
	// UID of the management cluster: that of its namespace kube-system.
	UID string
	// Client has the rights of the kubeconfig.
	Client client.WithWatch

	base    cluster.Proxy
	patient *patient
	// types that clusterctl looks for objects of, as they were read last.
	types apiextensionsv1.CustomResourceDefinitionList
	// version of the ConfigMap that was read or written last; empty when there was none.
	version string
}

// Connect reaches a management cluster as clusterctl does. Before is called before each write to it, and keeps it from
// being made with an error; it may be nil.
func Connect(ctx context.Context, name string, kubeconfig cluster.Kubeconfig, before func(Write) error) (*Side, error) {
	s := &Side{Name: name, base: cluster.NewProxy(kubeconfig, cluster.InjectWarningHandler(rest.NoWarnings{})),
		patient: &patient{side: name}}
	plain, err := s.base.NewClient(ctx)
	if err != nil {
		return nil, fmt.Errorf("reaching the %s: %w", name, err)
	}
	config, err := s.base.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("reaching the %s: %w", name, err)
	}
	config = s.patient.configure(config)
	// One client for the whole pivot: clusterctl makes a new one, with its own discovery, for each object.
	direct, err := client.NewWithWatch(config, client.Options{Scheme: plain.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("reaching the %s: %w", name, err)
	}
	s.Client = observed(name, direct, before)
	system := &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return nil, fmt.Errorf("reaching the %s: %w", name, err)
	}
	s.UID = string(system.UID)
	if err := s.clusterctl(s.Client).ProviderInventory().CheckCAPIContract(ctx); err != nil {
		return nil, fmt.Errorf("the %s is no management cluster: %w", name, err)
	}
	return s, nil
}

// observed is a client whose writes are shown before they are made.
func observed(side string, direct client.WithWatch, before func(Write) error) client.WithWatch {
	if before == nil {
		return direct
	}
	show := func(verb string, o client.Object) error {
		kind := o.GetObjectKind().GroupVersionKind().Kind
		if kind == "" {
			if gvk, err := direct.GroupVersionKindFor(o); err == nil {
				kind = gvk.Kind
			}
		}
		return before(Write{side, verb, kind, o.GetName()})
	}
	return interceptor.NewClient(direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if !dry(options) {
				if err := show("create", o); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if err := show("update", o); err != nil {
				return err
			}
			return c.Update(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			options ...client.PatchOption) error {
			if err := show("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := show("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
	})
}

func dry(options []client.CreateOption) bool {
	applied := (&client.CreateOptions{}).ApplyOptions(options)
	return len(applied.DryRun) > 0
}

// clusterctl works on the side through the client.
func (s *Side) clusterctl(through client.Client) cluster.Client {
	return cluster.New(cluster.Kubeconfig{}, nil, cluster.InjectProxy(&proxy{s.base, through}))
}

// listTypes answers clusterctl, which asks for them in each run of its mover: with their schemas they are megabytes,
// and the source is paused meanwhile. Their metadata is asked for each time, so that a type that comes, or is labeled
// to move, is seen as before.
func (s *Side) listTypes(ctx context.Context, list *apiextensionsv1.CustomResourceDefinitionList,
	options ...client.ListOption) error {
	known := map[types.UID]string{}
	for i := range s.types.Items {
		known[s.types.Items[i].UID] = s.types.Items[i].ResourceVersion
	}
	if len(known) > 0 {
		there := &metav1.PartialObjectMetadataList{}
		there.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
		if err := s.Client.List(ctx, there, options...); err != nil {
			return fmt.Errorf("listing the types of the %s: %w", s.Name, err)
		}
		current := map[types.UID]string{}
		for i := range there.Items {
			current[there.Items[i].UID] = there.Items[i].ResourceVersion
		}
		if maps.Equal(known, current) {
			s.types.DeepCopyInto(list)
			return nil
		}
	}
	if err := s.Client.List(ctx, list, options...); err != nil {
		return fmt.Errorf("listing the types of the %s: %w", s.Name, err)
	}
	list.DeepCopyInto(&s.types)
	return nil
}

// proxy is clusterctl's own, but for its client.
type proxy struct {
	cluster.Proxy
	client client.Client
}

// NewClient implements cluster.Proxy.
func (p *proxy) NewClient(context.Context) (client.Client, error) { return p.client, nil }

// JournalName is the ConfigMap in the namespace that moves, on both sides.
const JournalName = "quoin-pivot"

// journalKey of the ConfigMap's data.
const journalKey = "journal.json"

// errOvertaken is what a write of the journal ends with when another run has written it meanwhile.
var errOvertaken = errors.New("another run goes on with this pivot, and Clusters stay paused until one ends it: " +
	"look at `clusterctl quoin status`, and run the same command again")

// journal reads that of the side; nil when there is none.
func (s *Side) journal(ctx context.Context, namespace string) (j *pivot.Journal, err error) {
	if j, s.version, err = readJournal(ctx, s.Client, namespace); err != nil {
		return nil, fmt.Errorf("the %s: %w", s.Name, err)
	}
	return j, nil
}

// Journal is what a management cluster has written down of a namespace's last pivot; nil when there is nothing.
func Journal(ctx context.Context, c client.Reader, namespace string) (*pivot.Journal, error) {
	j, _, err := readJournal(ctx, c, namespace)
	return j, err
}

func readJournal(ctx context.Context, c client.Reader, namespace string) (j *pivot.Journal, version string, err error) {
	kept := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: JournalName}, kept); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, "", nil
		}
		return nil, "", fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, JournalName, err)
	}
	j = &pivot.Journal{}
	if err := json.Unmarshal([]byte(kept.Data[journalKey]), j); err != nil {
		return nil, "", fmt.Errorf("decoding the journal of ConfigMap %s/%s: %w", namespace, JournalName, err)
	}
	return j, kept.ResourceVersion, nil
}

// keep writes the journal of the side over the one that was read or written last, or that the holder wrote and had no
// answer for, and over no other.
func (s *Side) keep(ctx context.Context, j *pivot.Journal, holder string) error {
	content, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("encoding the journal: %w", err)
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: JournalName,
		ResourceVersion: s.version}}
	kept.Data = map[string]string{journalKey: string(content)}
	if s.version != "" {
		err = s.Client.Update(ctx, kept)
	} else if err = s.Client.Create(ctx, kept); apierrors.IsNotFound(err) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: j.Namespace}}
		if err = s.Client.Create(ctx, namespace); err == nil {
			err = s.Client.Create(ctx, kept)
		}
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		there, written := &corev1.ConfigMap{}, &pivot.Journal{}
		if s.Client.Get(ctx, client.ObjectKeyFromObject(kept), there) == nil {
			if maps.Equal(there.Data, kept.Data) {
				s.version = there.ResourceVersion
				return nil // It is this very write, whose answer was lost.
			}
			err := json.Unmarshal([]byte(there.Data[journalKey]), written)
			if err == nil && written.ID == j.ID && written.Holder == holder && holder != "" {
				s.version = there.ResourceVersion
				return s.keep(ctx, j, holder)
			}
		}
		return fmt.Errorf("writing the journal of the %s: %w", s.Name, errOvertaken)
	case err != nil:
		return fmt.Errorf("writing the journal of the %s: %w", s.Name, err)
	}
	s.version = kept.ResourceVersion
	return nil
}
