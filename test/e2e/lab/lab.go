// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lab makes a small data center on one machine: a container engine, a network that nothing leaves, hosts that are
// containers with systemd and sshd, a kind cluster with Cluster API and Quoin as the management plane, and clusters made
// of the hosts. The quickstart and the end-to-end suite drive it; both do what a user would do, with stock clusterctl and
// kubectl.
//
// Everything it makes carries the label dev.quoin.lab, and only what carries it is ever removed.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

const (
	// Name of the lab: its network, its kind cluster, the value of its label.
	Name = "quoin-lab"
	// Label that every container, volume and network of the lab carries.
	Label = "dev.quoin.lab"
	// EarliestVersion is the minor before OldVersion. Its bundle is made when BuildBundle asks for it, and not before.
	EarliestVersion = "v1.34.4"
	// OldVersion and NewVersion are the adjacent minors that a bundle exists for.
	OldVersion = "v1.35.4"
	// NewVersion is what an upgrade goes to.
	NewVersion = "v1.36.3"
	// Namespace of the hosts and the clusters.
	Namespace = "default"
)

// Options of a lab.
type Options struct {
	// Root is the checkout.
	Root string
	// State is the folder for keys, kubeconfigs, logs; empty means $QUOIN_LAB_DIR or _artifacts/lab in the checkout.
	State string
	// Out gets the progress.
	Out io.Writer
}

// Lab is the handle to everything.
type Lab struct {
	*progress.Printer
	// Root is the checkout, State the folder of the lab, Cache where built things lie.
	Root, State, Cache string
	// Hosts in the order of their names.
	Hosts []*Host
	// Management is the client of the management cluster: the kind cluster, until Move. Up and Attach set it.
	Management client.Client

	// management is the kubeconfig of the management cluster.
	management string

	tools  tools
	engine engine
	keys   keys

	logging sync.Mutex
}

// New prepares a handle; it makes nothing but the state folder.
func New(o Options) (*Lab, error) {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, fmt.Errorf("checkout: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "hack", "engine", "ensure.sh")); err != nil {
		return nil, fmt.Errorf("%s is not a checkout of Quoin: %w", root, err)
	}
	state := o.State
	if state == "" {
		state = os.Getenv("QUOIN_LAB_DIR")
	}
	if state == "" {
		state = filepath.Join(root, "_artifacts", "lab")
	}
	if state, err = filepath.Abs(state); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	out := o.Out
	if out == nil {
		out = os.Stdout
	}
	return &Lab{
		Printer: progress.New(out), Root: root, State: state, Cache: cache, Hosts: defaultHosts(),
		management: filepath.Join(state, "kubeconfig"),
	}, nil
}

func cacheFolder() (string, error) {
	if dir := os.Getenv("QUOIN_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "quoin"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return filepath.Join(home, ".cache", "quoin"), nil
}

// Up makes the lab: everything but a workload cluster. What an earlier, perhaps half-made, lab left is removed first:
// nothing in it is worth the doubt whether it is whole, as all that takes long lies in the cache.
func (l *Lab) Up(ctx context.Context) error {
	return l.up(ctx, append(l.ground(), []stage{
		{"Loading the managers' images", 3 * time.Minute, l.loadManagers},
		{"Installing Cluster API and Quoin with clusterctl init", 5 * time.Minute, l.initProviders},
		{"Registering the hosts", 3 * time.Minute, l.registerHosts},
	}...))
}

// stage is a step on the way up.
type stage struct {
	title    string
	deadline time.Duration
	do       func(context.Context, *progress.Step) error
}

// ground is what everything else stands on: hosts with an OS, and an empty kind cluster.
func (l *Lab) ground() []stage {
	return []stage{
		{"Making sure of a container engine", 10 * time.Minute, l.ensureEngine},
		{"Building what is missing", 45 * time.Minute, l.build},
		{"Removing what an earlier run left", 3 * time.Minute, l.removeAll},
		{"Making network " + Name, time.Minute, l.makeNetwork},
		{fmt.Sprintf("Starting %d hosts", len(l.Hosts)), 3 * time.Minute, l.startHosts},
		{"Creating the kind cluster " + Name, 5 * time.Minute, l.makeKind},
	}
}

func (l *Lab) up(ctx context.Context, stages []stage) error {
	for _, stage := range stages {
		if err := l.Step(ctx, stage.title, stage.deadline, stage.do); err != nil {
			return err
		}
	}
	return nil
}

// Attach makes a handle to a lab that is up usable: programs, keys, clients.
func (l *Lab) Attach(ctx context.Context) error {
	if err := l.readEngine(); err != nil {
		return err
	}
	step := func(ctx context.Context, step *progress.Step) error { return l.build(ctx, step) }
	return errors.Join(l.Step(ctx, "Looking at the lab that is up", 10*time.Minute, step), l.loadKeys(), l.connect())
}

// Path is a file in the state folder.
func (l *Lab) Path(elements ...string) string {
	return filepath.Join(append([]string{l.State}, elements...)...)
}

// file is a file in the checkout.
func (l *Lab) file(elements ...string) string {
	return filepath.Join(append([]string{l.Root}, elements...)...)
}

// Kubeconfig of the management cluster. The user's own is never touched.
func (l *Lab) Kubeconfig() string { return l.management }
