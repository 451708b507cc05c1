// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// UpBare makes what somebody has who begins with Quoin: the first hosts of the lab, and a kind cluster with nothing in it.
func (l *Lab) UpBare(ctx context.Context, hosts int) error {
	l.Hosts = l.Hosts[:hosts]
	return l.up(ctx, l.ground())
}

// WriteRepository writes a clusterctl repository of some providers with their images in the kind cluster, and with the CRDs
// of cert-manager.
func (l *Lab) WriteRepository(ctx context.Context, labels ...string) (*repository.Repository, error) {
	images := map[string]string{}
	for _, label := range labels {
		images[label] = l.tools.managers[label]
	}
	written, err := repository.Write(repository.Options{
		Root: l.Root, Base: l.Path("repository"), Mode: repository.Resolved, Providers: labels, Images: images,
	})
	if err != nil {
		return nil, err
	}
	args := append([]string{"load", "docker-image", "--name", Name}, slices.Sorted(maps.Values(images))...)
	return written, l.kind(ctx, func(string) {}, args...)
}

// Desk is a folder where somebody types commands, with a shell that keeps its variables from one block to the next.
type Desk struct {
	lab *Lab
	// Folder is the checkout's copy.
	Folder string
	env    []string
}

// SSHUser logs in to the hosts, with the key in SSHKey.
const SSHUser = hostUser

// SSHKey is the file of the private key.
func (l *Lab) SSHKey() string { return l.privateKeyFile() }

// NewDesk copies the checkout as git would clone it, with what is not committed yet, and puts kubectl, clusterctl, kind and
// an ssh that knows the lab's key before everything else in PATH.
func (l *Lab) NewDesk(ctx context.Context) (*Desk, error) {
	d := &Desk{lab: l, Folder: l.Path("clone")}
	if err := os.RemoveAll(d.Folder); err != nil {
		return nil, fmt.Errorf("copy of the checkout: %w", err)
	}
	bin := l.Path("bin")
	for _, folder := range []string{d.Folder, bin, l.Path("home")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("desk: %w", err)
		}
	}
	script := `git ls-files --cached --others --exclude-standard -z | while IFS= read -r -d '' file; do
	[ ! -e "$file" ] || cp --parents --no-dereference "$file" "$1"
done`
	args := []string{"-euo", "pipefail", "-c", script, "copy", d.Folder}
	if _, err := l.run(ctx, command{name: "bash", args: args, quiet: true}); err != nil {
		return nil, err
	}
	// By its full name, or it would find itself in PATH.
	ssh, err := l.run(ctx, command{name: "sh", args: []string{"-c", "command -v ssh"}})
	if err != nil {
		return nil, fmt.Errorf("an ssh client is needed: %w", err)
	}
	login := fmt.Sprintf("#!/bin/sh\nexec %s -i %s -o User=%s -o StrictHostKeyChecking=no "+
		"-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \"$@\"\n", strings.TrimSpace(ssh), l.privateKeyFile(), hostUser)
	if err := os.WriteFile(filepath.Join(bin, "ssh"), []byte(login), 0o755); err != nil {
		return nil, fmt.Errorf("desk: %w", err)
	}
	for _, tool := range []string{l.tools.kubectl, l.tools.clusterctl, l.tools.kind} {
		if err := os.RemoveAll(filepath.Join(bin, filepath.Base(tool))); err != nil {
			return nil, fmt.Errorf("desk: %w", err)
		}
		if err := os.Symlink(tool, filepath.Join(bin, filepath.Base(tool))); err != nil {
			return nil, fmt.Errorf("desk: %w", err)
		}
	}
	out, err := l.run(ctx, command{name: "go", args: []string{"env", "GOCACHE", "GOMODCACHE", "GOPATH"}})
	if err != nil {
		return nil, err
	}
	caches := strings.Fields(out)
	if len(caches) != 3 {
		return nil, fmt.Errorf("go env: %q", out)
	}
	d.env = append(append(l.privateHome(), l.kindEnv()...), "GOCACHE="+caches[0], "GOMODCACHE="+caches[1], "GOPATH="+caches[2],
		"PATH="+bin+":"+l.file("hack", "engine", "wrapper")+":"+os.Getenv("PATH"))
	return d, os.RemoveAll(d.memory())
}

// memory is the file that carries variables from one block to the next.
func (d *Desk) memory() string { return d.lab.Path("variables.sh") }

// Write puts a file into the folder.
func (d *Desk) Write(path, content string) error {
	path = filepath.Join(d.Folder, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("desk: %w", err)
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// Home of whoever types.
func (d *Desk) Home() string { return d.lab.Path("home") }

// Type runs a block of commands as a shell does that stops at the first error, and returns what they printed.
func (d *Desk) Type(ctx context.Context, title string, deadline time.Duration, block string) (string, error) {
	return d.enter(ctx, title, deadline, block, func(string) {})
}

// TypeAndKill types a block and kills it at the first line with a text. It is an error when none comes.
func (d *Desk) TypeAndKill(ctx context.Context, title string, deadline time.Duration, block, fatal string) (string, error) {
	running, kill := context.WithCancel(ctx)
	defer kill()
	killed := false
	out, err := d.enter(running, title, deadline, block, func(line string) {
		if strings.Contains(line, fatal) {
			killed = true
			kill()
		}
	})
	if killed {
		return out, nil
	}
	return out, errors.Join(err, fmt.Errorf("%s: no line says %q", title, fatal))
}

func (d *Desk) enter(
	ctx context.Context, title string, deadline time.Duration, block string, each func(line string),
) (string, error) {
	script := "if [ -e '" + d.memory() + "' ]; then . '" + d.memory() + "'; fi\n" + block + "\nexport -p >'" + d.memory() + "'\n"
	out := ""
	// Both a person and the test read what is printed while it is.
	show := `exec > >(tee /dev/stderr); ` + script
	err := d.lab.Step(ctx, title, deadline, func(ctx context.Context, step *progress.Step) (err error) {
		out, err = d.lab.run(ctx, command{
			name: "bash", args: []string{"-euo", "pipefail", "-c", show}, env: d.env, dir: d.Folder,
			line: func(line string) {
				step.Waiting(line)
				each(line)
			},
		})
		return err
	})
	return out, err
}
