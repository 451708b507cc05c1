// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// LoseData kills the member and takes its disk: it does not start any more until its data directory was emptied.
func (m *Member) LoseData() {
	id := strings.TrimSpace(m.machine.FS().Text("/var/lib/etcd" + dataMark))
	m.mu.Lock()
	m.dead = id
	m.mu.Unlock()
	m.stop()
	_ = os.RemoveAll(m.plane.scratch("etcd-data", id))
}

// PutData makes a data directory for the member, which does not run, as a person does who restores a snapshot on its host.
func (m *Member) PutData(restore func(directory string) error) error {
	id := m.dataID()
	if err := restore(m.plane.scratch("etcd-data", id)); err != nil {
		return err
	}
	if err := m.machine.FS().WriteFile("/var/lib/etcd/member/wal", machine.File{Mode: fs.ModeDir | 0o700}); err != nil {
		return err
	}
	return m.machine.FS().WriteFile("/var/lib/etcd"+dataMark, machine.File{Content: []byte(id + "\n"), Mode: 0o600})
}

// dataID names a data directory that was never there.
func (m *Member) dataID() string { return fmt.Sprintf("%d-%d", m.number, time.Now().UnixNano()) }

// data finds the directory on this machine that goes with the one on the simulated machine.
func (m *Member) data(p *machine.Process, dir string) (string, error) {
	content, err := p.ReadFile(dir + dataMark)
	id := strings.TrimSpace(string(content))
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if err == nil && id == dead {
		return "", fmt.Errorf("cannot open %s/member/snap/db: input/output error", dir)
	}
	if err != nil {
		// Whatever was there before, somebody has removed it, and perhaps put other data in its place.
		m.forget()
		id = m.dataID()
		if err := takeOver(p, dir+"/member", m.plane.scratch("etcd-data", id, "member")); err != nil {
			return "", err
		}
		for _, sub := range []string{"/member/snap", "/member/wal"} {
			if err := p.MkdirAll(dir+sub, 0o700); err != nil {
				return "", err
			}
		}
		if err := p.WriteFile(dir+dataMark, []byte(id+"\n"), 0o600); err != nil {
			return "", err
		}
	}
	here := m.plane.scratch("etcd-data", id)
	return here, os.MkdirAll(here, 0o700)
}

// takeOver moves the files of etcd in a tree from the simulated machine to this one; none when there is none. etcd
// ignores others.
func takeOver(p *machine.Process, from, to string) error {
	names, err := p.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if stat, err := p.Lstat(from + "/" + name); err != nil {
			return err
		} else if stat.Mode.IsDir() {
			if err := takeOver(p, from+"/"+name, filepath.Join(to, name)); err != nil {
				return err
			}
			continue
		}
		if ext := path.Ext(name); name != "db" && ext != ".wal" && ext != ".snap" {
			continue
		}
		content, err := p.ReadFile(from + "/" + name)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
		if err := p.Remove(from + "/" + name); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the directories of data that is not on the machine any more.
func (m *Member) forget() {
	old, _ := filepath.Glob(m.plane.scratch("etcd-data", strconv.Itoa(m.number)+"-*"))
	for _, dir := range old {
		_ = os.RemoveAll(dir)
	}
}
