// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lasting is how long a Secret that was read counts as it was.
const lasting = 10 * time.Second

// recentSecrets reads Secrets, and keeps each for a short while. What cannot be read is not kept.
type recentSecrets struct {
	client.Reader
	now func() time.Time

	mu   sync.Mutex
	read map[client.ObjectKey]*recentSecret
}

// recentSecret is locked while it is read: who else wants it waits for that.
type recentSecret struct {
	mu     sync.Mutex
	at     time.Time
	secret *corev1.Secret
}

func recently(reader client.Reader) *recentSecrets {
	return &recentSecrets{Reader: reader, now: time.Now, read: map[client.ObjectKey]*recentSecret{}}
}

// anew reads every Secret, and keeps it for those that may have it from here.
func (r *recentSecrets) anew() client.Reader { return reread{r} }

type reread struct{ *recentSecrets }

// Get implements client.Reader. Nobody waits here for what another one reads.
func (r reread) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	at := r.now()
	err := r.Reader.Get(ctx, key, object, options...)
	if secret, ok := object.(*corev1.Secret); ok && err == nil {
		r.keep(key, secret, at)
	}
	return err
}

// keep takes a Secret that was just read, unless it is being read anyhow.
func (r *recentSecrets) keep(key client.ObjectKey, secret *corev1.Secret, at time.Time) {
	entry := r.entry(key)
	if !entry.mu.TryLock() {
		return
	}
	defer entry.mu.Unlock()
	entry.secret, entry.at = secret.DeepCopy(), at
}

func (r *recentSecrets) entry(key client.ObjectKey) *recentSecret {
	r.mu.Lock()
	defer r.mu.Unlock()
	entry := r.read[key]
	if entry == nil {
		r.prune()
		entry = &recentSecret{}
		r.read[key] = entry
	}
	return entry
}

// Get implements client.Reader.
func (r *recentSecrets) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return r.Reader.Get(ctx, key, object, options...)
	}
	entry := r.entry(key)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.secret != nil && r.now().Sub(entry.at) < lasting {
		entry.secret.DeepCopyInto(secret)
		return nil
	}
	entry.secret, entry.at = nil, r.now()
	if err := r.Reader.Get(ctx, key, secret, options...); err != nil {
		return err
	}
	entry.secret = secret.DeepCopy()
	return nil
}

// prune drops what is not recent any more, so that Secrets that are read no longer are not held for ever.
func (r *recentSecrets) prune() {
	for key, entry := range r.read {
		// One that is locked is being read.
		if !entry.mu.TryLock() {
			continue
		}
		if r.now().Sub(entry.at) >= lasting {
			delete(r.read, key)
		}
		entry.mu.Unlock()
	}
}

// forget makes Secrets be read again.
func (r *recentSecrets) forget(keys ...client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.read, key)
	}
}

// noted remembers what was read.
type noted struct {
	client.Reader
	keys []client.ObjectKey
}

// Get implements client.Reader.
func (n *noted) Get(
	ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	n.keys = append(n.keys, key)
	return n.Reader.Get(ctx, key, object, options...)
}
