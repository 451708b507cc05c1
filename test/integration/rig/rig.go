// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rig runs a management plane without a single container: a real API server and etcd, the parts of the
// controller manager that matter, and the managers of Cluster API and of this project as processes, installed by the
// real clusterctl and each held to the rights of its own ServiceAccount.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

// AssetsVariable names the environment variable with the folder of etcd, kube-apiserver, kubectl and
// kube-controller-manager. It is the one that envtest reads.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Options of a rig.
type Options struct {
	// Name of the folder under _artifacts/integration; the process id is added.
	Name string
	// Providers are the clusterctl labels to install and run; empty means all that the repository knows.
	Providers []string
	// Variables are clusterctl variables, like CLUSTER_TOPOLOGY.
	Variables map[string]string
}

// Rig is a running management plane.
type Rig struct {
	// Root of the checkout.
	Root string
	// ClusterAPI is the folder of Cluster API's module, once StartPlane has looked for it.
	ClusterAPI string
	// Dir keeps logs, kubeconfigs and the repository; it stays when the rig is gone.
	Dir string
	// Config and Client have every right: they are the tests' own.
	Config *rest.Config
	Client client.Client
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Repository is what clusterctl installs from.
	Repository *repository.Repository
	// Managers by provider label.
	Managers map[string]*Manager

	options     Options
	assets      string
	tools       tools
	reaper      *Reaper
	environment *envtest.Environment
	kcm         *process
}

// Start brings up the API server and installs the providers; StartManagers then runs them. On an error everything
// that was started is stopped.
func Start(ctx context.Context, options Options) (*Rig, error) {
	r, err := newRig(options)
	if err != nil {
		return nil, err
	}
	steps := []func(context.Context) error{
		r.startReaper, r.buildTools, r.startAPIServer, r.startControllerManager, r.writeRepository,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, r.Stop())
		}
	}
	return r, nil
}

func newRig(options Options) (*Rig, error) {
	assets := os.Getenv(AssetsVariable)
	if assets == "" {
		return nil, fmt.Errorf("%s is not set: run `export %s=$(hack/bundle/envtest-assets.sh)` first",
			AssetsVariable, AssetsVariable)
	}
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	if len(options.Providers) == 0 {
		options.Providers = repository.Labels()
	}
	dir := filepath.Join(root, "_artifacts", "integration", fmt.Sprintf("%s-%d", options.Name, os.Getpid()))
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clearing the artifacts: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the artifacts folder: %w", err)
	}
	return &Rig{Root: root, Dir: dir, Managers: map[string]*Manager{}, options: options, assets: assets}, nil
}

// Stop ends every process of the rig, managers first: one that loses its API server logs only noise.
func (r *Rig) Stop() error {
	var errs []error
	for _, manager := range r.Managers {
		if manager.process != nil {
			errs = append(errs, manager.process.stop(10*time.Second))
		}
	}
	if r.kcm != nil {
		errs = append(errs, r.kcm.stop(5*time.Second))
	}
	if r.environment != nil {
		// An API server with open watches takes its time; the reaper ends what is still there after the timeout.
		if err := r.environment.Stop(); err != nil && !strings.Contains(err.Error(), "timeout") {
			errs = append(errs, fmt.Errorf("stopping the API server: %w", err))
		}
	}
	if r.reaper != nil {
		errs = append(errs, r.reaper.Finish())
	}
	return errors.Join(errs...)
}

// checkout finds the folder with go.mod above the working directory, where `go test` runs a package's tests.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
}
