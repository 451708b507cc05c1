// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoincluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
)

// secretInterval is how long it is believed that the hosts' Secrets are as they were: they are neither cached nor watched.
const secretInterval = time.Minute

// secretsRead remembers what the Secrets of a namespace's hosts looked like. The zero value is ready.
type secretsRead struct {
	mu   sync.Mutex
	last map[string]secretsFound
}

type secretsFound struct {
	at    time.Time
	names []string
	stay  []moving.Secret
}

// unmovable are the Secrets of the namespace's hosts that a move would leave behind. They are read anew when fresh is set.
func (r *Reconciler) unmovable(ctx context.Context, namespace string, hosts []*infrav1.QuoinHost, fresh bool) ([]moving.Secret, error) {
	needed := map[string]bool{}
	for _, h := range hosts {
		if h.Namespace == namespace {
			for _, name := range h.SecretNames() {
				needed[name] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(needed))
	r.secrets.mu.Lock()
	known, ok := r.secrets.last[namespace]
	r.secrets.mu.Unlock()
	if ok && !fresh && time.Since(known.at) < secretInterval && slices.Equal(known.names, names) {
		return known.stay, nil
	}
	found := secretsFound{at: time.Now(), names: names}
	for _, name := range names {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading what is to move with Secret %s/%s: %w", namespace, name, err)
			}
			// Its hosts say that it is missing.
			continue
		}
		if verdict := secretprotection.Movable(secret); !verdict.Allowed {
			found.stay = append(found.stay, moving.Secret{Name: name, Problem: verdict.Message})
		}
	}
	r.secrets.mu.Lock()
	defer r.secrets.mu.Unlock()
	if r.secrets.last == nil {
		r.secrets.last = map[string]secretsFound{}
	}
	r.secrets.last[namespace] = found
	return found.stay, nil
}
