// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package quoinhost

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
)

// absences remembers, while the process lives, what the API server said of consumers that the cache does not show. That is
// asked once and not at each of the many looks at a host that is being released. The zero value is ready.
type absences struct {
	mu        sync.Mutex
	confirmed map[types.NamespacedName]absence
}

// absence is what is there and what is not.
type absence struct {
	host     types.UID
	consumer infrav1.ConsumerReference
	standing standing
	// UIDs; empty for what is not there.
	quoinMachine, machine types.UID
}

func absenceOf(host *infrav1.QuoinHost, c claim) absence {
	a := absence{host: host.UID, consumer: *host.Spec.ConsumerRef, standing: c.standing}
	if c.quoinMachine != nil {
		a.quoinMachine = c.quoinMachine.UID
	}
	if c.machine != nil {
		a.machine = c.machine.UID
	}
	return a
}

// known says that the API server has said the same before.
func (a *absences) known(key types.NamespacedName, seen absence) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	confirmed, ok := a.confirmed[key]
	return ok && confirmed == seen
}

// note keeps what the API server says.
func (a *absences) note(key types.NamespacedName, said absence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.confirmed == nil {
		a.confirmed = map[types.NamespacedName]absence{}
	}
	a.confirmed[key] = said
}

// forget drops what is known of the host's consumer.
func (a *absences) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.confirmed, key)
}
