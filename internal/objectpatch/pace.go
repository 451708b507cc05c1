// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package objectpatch

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// wordsInterval lies between two changes of an object's words. Each of them makes all who watch the object look at it,
// and what follows from it may be words again.
const wordsInterval = time.Second

// Pace keeps changes that are nothing but words apart: messages that tell a person how far something is. Whatever else
// changes is never held back, and takes the words along. Safe for concurrent use; its zero value is ready, and nil
// holds nothing back.
type Pace struct {
	// Interval lies between two changes of words; a second when 0.
	Interval time.Duration

	now func() time.Time

	mu      sync.Mutex
	written map[types.UID]time.Time
}

// mostPaced bounds the memory; forgetting lets some words through that could have waited.
const mostPaced = 10000

// early tells how long to wait with the change; zero lets it through, and notes it.
func (p *Pace) early(uid types.UID, before, after map[string]any) time.Duration {
	if equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now
	if p.now != nil {
		now = p.now
	}
	at, known := p.written[uid]
	if left := cmp.Or(p.Interval, wordsInterval) - now().Sub(at); known && left > 0 &&
		equality.Semantic.DeepEqual(withoutWords(before), withoutWords(after)) {
		return left
	}
	if p.written == nil || len(p.written) >= mostPaced {
		p.written = map[types.UID]time.Time{}
	}
	p.written[uid] = now()
	return 0
}

// withoutWords is a copy in which no field is called message.
func withoutWords(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		copied := maps.Clone(typed)
		delete(copied, "message")
		for key := range copied {
			copied[key] = withoutWords(copied[key])
		}
		return copied
	case []any:
		copied := make([]any, len(typed))
		for i := range typed {
			copied[i] = withoutWords(typed[i])
		}
		return copied
	}
	return value
}
