// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package secretprotection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ProtectedSecretsAnnotation lists, on an object that refers to Secrets, those of its namespace that were protected for
// it.
const ProtectedSecretsAnnotation = "quoin.cluster.x-k8s.io/protected-secrets"

// recheck is how long a Secret that was seen protected is taken to be so.
const recheck = 10 * time.Minute

// Protection of Secrets by one kind of referring object. It is safe for concurrent use.
type Protection struct {
	// Client writes. Of Secrets only metadata is read and patched.
	Client client.Client
	// Reader reads Secrets from the API server.
	Reader client.Reader
	// Finalizer on the Secrets; each kind of referring object has its own, so that none takes away what another needs.
	Finalizer string
	// Now is the clock; time.Now when nil.
	Now func() time.Time

	mu   sync.Mutex
	seen map[client.ObjectKey]sighting
}

// sighting is what is remembered of a Secret, and lost with the process.
type sighting struct {
	at     time.Time
	reason string
	// by whom it was looked at, the last who refers to it: it is forgotten with that object.
	by client.ObjectKey
}

// Referrer is an object that refers to Secrets of its namespace.
type Referrer struct {
	Object client.Object
	// Secrets that it refers to now, by name; sorted, each once.
	Secrets []string
	// NeededElsewhere reports whether another object of the kind needs a Secret of that name.
	NeededElsewhere func(ctx context.Context, name string) (bool, error)
}

// Keep protects the Secrets that the object refers to, and releases those that it no longer refers to. The object must
// not be paused, nor in the hands of clusterctl move. A Secret that does not exist is no error: who needs it says so.
// The verdicts are about Secrets that are not as they should be, each once per process and reason, as long as the
// object stays.
func (p *Protection) Keep(ctx context.Context, r Referrer) ([]Verdict, error) {
	recorded := recordedBy(r.Object)
	if err := p.record(ctx, r.Object, names(append(slices.Clone(recorded), r.Secrets...)...)); err != nil {
		return nil, err
	}
	var changed []Verdict
	var errs []error
	for _, name := range r.Secrets {
		verdict, isNew, err := p.keep(ctx, client.ObjectKeyFromObject(r.Object), name)
		if err != nil {
			errs = append(errs, err)
		} else if isNew && !verdict.Allowed {
			changed = append(changed, verdict)
		}
	}
	former := slices.DeleteFunc(recorded, func(name string) bool { return slices.Contains(r.Secrets, name) })
	if len(former) > 0 {
		if err := p.releaseAll(ctx, r, former); err != nil {
			errs = append(errs, err)
		} else if err := p.record(ctx, r.Object, r.Secrets); err != nil {
			errs = append(errs, err)
		}
	}
	return changed, errors.Join(errs...)
}

// Release gives up every Secret that the object refers or referred to, unless another object needs it. The object may
// go afterwards, and not before.
func (p *Protection) Release(ctx context.Context, r Referrer) error {
	return p.releaseAll(ctx, r, names(append(recordedBy(r.Object), r.Secrets...)...))
}

// Forget drops what is remembered for an object that is gone without Release: moved to another management cluster, or
// robbed of its finalizers. Whoever else refers to its Secrets looks at them again.
func (p *Protection) Forget(object client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.seen, func(_ client.ObjectKey, s sighting) bool { return s.by == object })
}

// Holds reports whether the object has Secrets protected, or had and did not release them.
func Holds(object client.Object) bool { return len(recordedBy(object)) > 0 }

func recordedBy(object client.Object) []string {
	return names(strings.Split(object.GetAnnotations()[ProtectedSecretsAnnotation], ",")...)
}

// names sorts names, and drops empty and repeated ones.
func names(all ...string) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

// record writes the list to the object. It patches nothing else, so nobody's change is lost.
func (p *Protection) record(ctx context.Context, object client.Object, protected []string) error {
	if slices.Equal(recordedBy(object), protected) {
		return nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T has no metadata", object)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[ProtectedSecretsAnnotation] = strings.Join(protected, ",")
	if len(protected) == 0 {
		delete(annotations, ProtectedSecretsAnnotation)
	}
	object.SetAnnotations(annotations)
	if err := p.Client.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing down which Secrets are protected for %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (p *Protection) keep(
	ctx context.Context, by client.ObjectKey, name string,
) (verdict Verdict, isNew bool, err error) {
	key := client.ObjectKey{Namespace: by.Namespace, Name: name}
	last, known := p.recall(key)
	if known && p.now().Sub(last.at) < recheck {
		return Verdict{Allowed: true}, false, nil
	}
	secret, err := p.read(ctx, key)
	if err != nil || secret == nil {
		return Verdict{Allowed: true}, false, err
	}
	before := secret.DeepCopy()
	if protect(secret, p.Finalizer) {
		err := p.patch(ctx, before, secret)
		if apierrors.IsConflict(err) {
			// Somebody else wrote it, probably the same for another object: the next reconcile looks again.
			return Verdict{Allowed: true}, false, nil
		}
		if err != nil {
			return Verdict{}, false, fmt.Errorf("protecting Secret %s: %w", key, err)
		}
	}
	if moved(secret) {
		return Verdict{Allowed: true}, false, nil
	}
	verdict = Movable(secret)
	p.remember(key, sighting{p.now(), verdict.Reason, by})
	return verdict, last.reason != verdict.Reason, nil
}

func (p *Protection) releaseAll(ctx context.Context, r Referrer, secrets []string) error {
	for _, name := range secrets {
		needed, err := r.NeededElsewhere(ctx, name)
		if err != nil {
			return err
		}
		if needed {
			continue
		}
		key := client.ObjectKey{Namespace: r.Object.GetNamespace(), Name: name}
		secret, err := p.read(ctx, key)
		if err != nil {
			return err
		}
		if secret != nil {
			before := secret.DeepCopy()
			if release(secret, p.Finalizer) {
				if err := p.patch(ctx, before, secret); err != nil {
					return fmt.Errorf("releasing Secret %s: %w", key, err)
				}
			}
		}
		// Who refers to it from now on looks at it again.
		p.forget(key)
	}
	return nil
}

// read returns nil when there is no such Secret.
func (p *Protection) read(ctx context.Context, key client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := p.Reader.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // no Secret is an answer
		}
		return nil, fmt.Errorf("reading the metadata of Secret %s: %w", key, err)
	}
	return secret, nil
}

// patch is optimistic, because finalizers are a list, which a patch replaces whole. A Secret that is gone needs none.
func (p *Protection) patch(ctx context.Context, before, after *metav1.PartialObjectMetadata) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(p.Client.Patch(ctx, after, patch))
}

func (p *Protection) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Protection) recall(key client.ObjectKey) (sighting, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.seen[key]
	return s, ok
}

func (p *Protection) remember(key client.ObjectKey, s sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[client.ObjectKey]sighting{}
	}
	p.seen[key] = s
}

func (p *Protection) forget(key client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, key)
}
