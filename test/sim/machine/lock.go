// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

// lockState is who holds the advisory lock of a file: open file descriptions, as flock(2) has it.
type lockState struct {
	holders map[*file]bool
	shared  bool
	wake    chan struct{}
}

// tryLock takes the lock, or returns a channel that closes when it is worth another try; mu is held.
func (m *Machine) tryLock(f *file, shared bool) <-chan struct{} {
	if m.locks == nil {
		m.locks = map[*node]*lockState{}
	}
	s := m.locks[f.n]
	if s == nil {
		s = &lockState{holders: map[*file]bool{}}
		m.locks[f.n] = s
	}
	alone := len(s.holders) == 0 || len(s.holders) == 1 && s.holders[f]
	if alone || shared && s.shared {
		s.holders[f], s.shared = true, shared
		return nil
	}
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// unlock gives the lock back, also when the last descriptor is closed; mu is held.
func (m *Machine) unlock(f *file) {
	s := m.locks[f.n]
	if s == nil || !s.holders[f] {
		return
	}
	delete(s.holders, f)
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
	if len(s.holders) == 0 {
		delete(m.locks, f.n)
	}
}
