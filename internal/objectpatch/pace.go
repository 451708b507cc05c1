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
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// Counts are the names of fields that are words too, beside message: what they say is counted anew each time.
	Counts []string
	// Now is the clock; time.Now when nil.
	Now func() time.Time

	mu      sync.Mutex
	written map[types.UID]time.Time
	// swept is when what keeps nothing apart any more was last dropped: nobody asks for an object that is gone.
	swept time.Time
}

// Early tells how long the change of an object can wait, because it is too early for it; zero when it is to be written
// now, which is noted. An object that cannot be compared is never early: who writes it finds what is wrong with it.
func (p *Pace) Early(before, after client.Object) time.Duration {
	was, errBefore := contentOf(before)
	is, errAfter := contentOf(after)
	if p == nil || errBefore != nil || errAfter != nil {
		return 0
	}
	return p.early(after.GetUID(), was, is)
}

// early tells how long to wait with the change; zero lets it through, and notes it.
func (p *Pace) early(uid types.UID, before, after map[string]any) time.Duration {
	if equality.Semantic.DeepEqual(before, after) {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.Now != nil {
		now = p.Now()
	}
	interval := cmp.Or(p.Interval, wordsInterval)
	at, known := p.written[uid]
	if left := interval - now.Sub(at); known && left > 0 &&
		equality.Semantic.DeepEqual(p.withoutWords(before), p.withoutWords(after)) {
		return left
	}
	if p.written == nil {
		p.written = map[types.UID]time.Time{}
	}
	if now.Sub(p.swept) >= interval {
		maps.DeleteFunc(p.written, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= interval })
		p.swept = now
	}
	p.written[uid] = now
	return 0
}

// withoutWords is a copy in which no field is called message, or as a count is.
func (p *Pace) withoutWords(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		copied := maps.Clone(typed)
		delete(copied, "message")
		for _, count := range p.Counts {
			delete(copied, count)
		}
		for key := range copied {
			copied[key] = p.withoutWords(copied[key])
		}
		return copied
	case []any:
		copied := make([]any, len(typed))
		for i := range typed {
			copied[i] = p.withoutWords(typed[i])
		}
		return copied
	}
	return value
}
