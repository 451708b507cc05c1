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

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/moving"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/secretprotection"
)

// secretInterval is how long it is believed that Secrets are as they were: they are neither cached nor watched.
const secretInterval = time.Minute

// secretsRead remembers, by QuoinCluster, what the Secrets that move with it looked like. The zero value is ready.
type secretsRead struct {
	mu   sync.Mutex
	last map[client.ObjectKey]secretsFound
}

type secretsFound struct {
	at    time.Time
	names []string
	stay  []moving.Secret
}

// unmovable are the Secrets that a move would leave behind: of the namespace's hosts, and those of the Cluster's
// backups. While the Cluster is paused they are read anew.
func (r *Reconciler) unmovable(
	ctx context.Context, key client.ObjectKey, s *survey, backups []string,
) ([]moving.Secret, error) {
	needed := map[string]bool{}
	for _, name := range backups {
		needed[name] = true
	}
	for _, h := range s.hosts {
		if h.Namespace == s.Namespace {
			for _, name := range h.SecretNames() {
				needed[name] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(needed))
	r.secrets.mu.Lock()
	known, ok := r.secrets.last[key]
	r.secrets.mu.Unlock()
	if ok && !s.Cluster.Paused && time.Since(known.at) < secretInterval && slices.Equal(known.names, names) {
		return known.stay, nil
	}
	found := secretsFound{at: time.Now(), names: names}
	for _, name := range names {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, secret); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading what is to move with Secret %s/%s: %w", s.Namespace, name, err)
			}
			// What refers to it says that it is missing.
			continue
		}
		if verdict := secretprotection.Movable(secret); !verdict.Allowed {
			found.stay = append(found.stay, moving.Secret{Name: name, Problem: verdict.Message})
		}
	}
	r.secrets.mu.Lock()
	defer r.secrets.mu.Unlock()
	if r.secrets.last == nil {
		r.secrets.last = map[client.ObjectKey]secretsFound{}
	}
	r.secrets.last[key] = found
	return found.stay, nil
}

func (s *secretsRead) forget(key client.ObjectKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, key)
}
