// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachetest is a management cluster for tests that count or measure what an event costs. It reads as a manager
// does: through controller-runtime's cache with all our indexes, whose stores are filled by hand. The fake client
// cannot stand in for that, because it copies and decodes every object of a kind for each list.
package cachetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/fieldindex"
)

// Client reads from the cache, where each write is seen at once. It is not safe for concurrent use. What it does not
// implement panics.
type Client struct {
	client.Client

	tb     testing.TB
	scheme *runtime.Scheme
	cache  cache.Cache
	stores map[schema.GroupVersionKind]toolscache.Indexer
	// version of the last write.
	version int

	// Listed counts the objects that lists returned, Writes the requests that change something.
	Listed, Writes int
}

var _ client.Client = (*Client)(nil)

// New makes a cluster with the objects.
func New(tb testing.TB, objects ...client.Object) *Client {
	tb.Helper()
	c := &Client{tb: tb, scheme: runtime.NewScheme(), stores: map[schema.GroupVersionKind]toolscache.Indexer{}}
	c.must(clusterv1.AddToScheme(c.scheme))
	c.must(infrav1.AddToScheme(c.scheme))
	c.must(quoinv1.AddToScheme(c.scheme))
	c.must(controlplanev1.AddToScheme(c.scheme))
	c.must(corev1.AddToScheme(c.scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range c.scheme.AllKnownTypes() {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	var err error
	c.cache, err = cache.New(&rest.Config{Host: "http://unused.invalid"}, cache.Options{
		HTTPClient: http.DefaultClient, Scheme: c.scheme, Mapper: mapper,
		NewInformer: func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			filled := byHand{toolscache.NewSharedIndexInformer(lw, o, resync, indexers)}
			gvk, err := apiutil.GVKForObject(o, c.scheme)
			c.must(err)
			c.stores[gvk] = filled.GetIndexer()
			return filled
		},
	})
	c.must(err)
	c.must(fieldindex.Add(tb.Context(), c.cache))
	// These the API server itself has.
	c.selectable(infrav1.HostConsumerNamespaceField, func(ref *infrav1.ConsumerReference) string { return ref.Namespace })
	c.selectable(infrav1.HostConsumerNameField, func(ref *infrav1.ConsumerReference) string { return ref.Name })
	go func() { _ = c.cache.Start(tb.Context()) }()
	if !c.cache.WaitForCacheSync(tb.Context()) {
		tb.Fatal("the cache did not start")
	}
	for _, object := range objects {
		c.Put(object)
	}
	return c
}

func (c *Client) selectable(field string, value func(*infrav1.ConsumerReference) string) {
	c.must(c.cache.IndexField(c.tb.Context(), &infrav1.QuoinHost{}, field, func(o client.Object) []string {
		if host, ok := o.(*infrav1.QuoinHost); ok && host.Spec.ConsumerRef != nil {
			return []string{value(host.Spec.ConsumerRef)}
		}
		return nil
	}))
}

// byHand is an informer that asks nobody.
type byHand struct{ toolscache.SharedIndexInformer }

// Run implements cache.SharedIndexInformer: nothing is watched.
func (byHand) Run(stop <-chan struct{}) { <-stop }

// RunWithContext implements cache.SharedIndexInformer.
func (byHand) RunWithContext(ctx context.Context) { <-ctx.Done() }

// HasSynced implements cache.SharedIndexInformer: what was put in is all there is.
func (byHand) HasSynced() bool { return true }

func (c *Client) must(err error) {
	if err != nil {
		c.tb.Helper()
		c.tb.Fatal(err)
	}
}

// Put stores the object as somebody else's write, which does not count.
func (c *Client) Put(object client.Object) {
	c.tb.Helper()
	c.version++
	object.SetResourceVersion(strconv.Itoa(c.version))
	stored, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		c.tb.Fatalf("%T is no object", object)
	}
	c.must(c.store(object).Update(stored))
}

// Remove the object as somebody else does, which does not count.
func (c *Client) Remove(object client.Object) {
	c.tb.Helper()
	c.must(c.store(object).Delete(object))
}

func (c *Client) store(object client.Object) toolscache.Indexer {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	c.must(err)
	if c.stores[gvk] == nil {
		_, err := c.cache.GetInformer(c.tb.Context(), object)
		c.must(err)
	}
	return c.stores[gvk]
}

// Scheme implements client.Client.
func (c *Client) Scheme() *runtime.Scheme { return c.scheme }

// Get implements client.Reader.
func (c *Client) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	return c.cache.Get(ctx, key, object, options...)
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.cache.List(ctx, list, options...)
	c.Listed += meta.LenList(list)
	return err
}

// Update implements client.Writer.
func (c *Client) Update(ctx context.Context, object client.Object, _ ...client.UpdateOption) error {
	c.Writes++
	if err := c.fresh(ctx, object, object.GetResourceVersion()); err != nil {
		return err
	}
	c.Put(object)
	return nil
}

// Patch implements client.Writer, for merge patches.
func (c *Client) Patch(ctx context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	c.Writes++
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	stored, ok, err := c.store(object).GetByKey(client.ObjectKeyFromObject(object).String())
	if err != nil || !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, object.GetName())
	}
	var expected struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		return err
	}
	if err := c.fresh(ctx, object, expected.Metadata.ResourceVersion); err != nil {
		return err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		return fmt.Errorf("merging %s: %w", data, err)
	}
	if err := json.Unmarshal(after, object); err != nil {
		return err
	}
	c.Put(object)
	return nil
}

// fresh refuses what was made from another version; an empty one agrees with all.
func (c *Client) fresh(ctx context.Context, object client.Object, version string) error {
	current, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", object)
	}
	if err := c.cache.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
		return err
	}
	if version != "" && version != current.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), nil)
	}
	return nil
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return status{client: c} }

type status struct {
	client.SubResourceWriter
	client *Client
}

// Patch implements client.SubResourceWriter.
func (s status) Patch(
	ctx context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	return s.client.Patch(ctx, object, patch)
}

// Queue is a controller's queue that notes what is put in. What it does not implement panics.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	// Now is to be reconciled at once, Later after a while.
	Now, Later map[reconcile.Request]bool
}

// NewQueue makes an empty queue.
func NewQueue() *Queue {
	return &Queue{Now: map[reconcile.Request]bool{}, Later: map[reconcile.Request]bool{}}
}

// Add implements workqueue.TypedInterface.
func (q *Queue) Add(request reconcile.Request) { q.Now[request] = true }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *Queue) AddAfter(request reconcile.Request, after time.Duration) {
	if after <= 0 {
		q.Add(request)
		return
	}
	q.Later[request] = true
}

// Fastest measures what work takes, and what it takes where nobody disturbs it: on a busy machine the mean is others'.
func Fastest(b *testing.B, work func()) {
	b.Helper()
	fastest := time.Hour
	for b.Loop() {
		start := time.Now()
		work()
		fastest = min(fastest, time.Since(start))
	}
	b.ReportMetric(float64(fastest.Nanoseconds()), "fastest-ns/op")
}
