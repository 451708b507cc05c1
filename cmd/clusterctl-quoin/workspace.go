// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/pivot"
)

// workspace is the folder of one cluster.
type workspace struct{ dir string }

func (o *options) workspaceOf(name string) (workspace, error) {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return workspace{}, fmt.Errorf("%q is no name of a cluster: %s", name, problems[0])
	}
	return workspace{filepath.Join(o.workspace, name)}, nil
}

// bootstrapKubeconfig is where the kubeconfig of the bootstrap cluster is (S0-67).
func (w workspace) bootstrapKubeconfig() string { return filepath.Join(w.dir, "bootstrap.kubeconfig") }

// kubeconfig is where that of the cluster itself is.
func (w workspace) kubeconfig() string { return filepath.Join(w.dir, "kubeconfig") }

func (w workspace) hasBootstrap() bool {
	_, err := os.Stat(w.bootstrapKubeconfig())
	return err == nil
}

// inCharge is which management cluster the last pivot left in charge.
func (w workspace) inCharge() (charge, *record, error) {
	last, err := w.lastPivot()
	return chargeOf(last, w.bootstrapKubeconfig()), last, err
}

// record of the last pivot.
type record struct {
	// Source and Target are how the command reached them. The files hold the keys, and stay where they are.
	Source cluster.Kubeconfig `json:"source"`
	Target cluster.Kubeconfig `json:"target"`
	// Namespace that moves.
	Namespace string `json:"namespace"`
	// Back says that it was asked for by --back.
	Back    bool           `json:"back,omitempty"`
	Journal *pivot.Journal `json:"journal,omitempty"`

	// named says that the command names the target itself.
	named bool
}

func (w workspace) recordPath() string { return filepath.Join(w.dir, "pivot.json") }

// lastPivot is nil when there was none.
func (w workspace) lastPivot() (*record, error) {
	content, err := os.ReadFile(w.recordPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the workspace: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", w.recordPath(), err)
	}
	return r, nil
}

// forget the last pivot: what it moved is gone.
func (w workspace) forget() error {
	if err := os.Remove(w.recordPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting the last pivot: %w", err)
	}
	return nil
}

// write a file that only its owner may read, at once or not at all.
func (w workspace) write(path string, content []byte) error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return fmt.Errorf("making the workspace: %w", err)
	}
	pending, err := os.CreateTemp(w.dir, ".pending-") // 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(pending.Name()) }()
	_, err = pending.Write(content)
	if err = errors.Join(err, pending.Sync(), pending.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(pending.Name(), path)
}

// local keeps the journal of a pivot beside how its two sides were reached.
type local struct {
	workspace
	record record
}

// Load implements execute.Local.
func (l *local) Load() (*pivot.Journal, error) {
	last, err := l.lastPivot()
	if err != nil || last == nil {
		return nil, err
	}
	return last.Journal, nil
}

// Save implements execute.Local.
func (l *local) Save(j *pivot.Journal) error {
	l.record.Journal = j
	content, err := json.MarshalIndent(l.record, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the journal: %w", err)
	}
	return l.write(l.recordPath(), append(content, '\n'))
}
