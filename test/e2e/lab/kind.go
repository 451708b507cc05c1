// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/quoin-dev/cluster-api-provider-quoin/api/controlplane/v1alpha1"
	infrav1 "github.com/quoin-dev/cluster-api-provider-quoin/api/infrastructure/v1alpha1"
	quoinv1 "github.com/quoin-dev/cluster-api-provider-quoin/api/quoin/v1alpha1"
	"github.com/quoin-dev/cluster-api-provider-quoin/internal/progress"
)

// kindNode is the container of the management cluster's only node.
const kindNode = Name + "-control-plane"

// KindNode is the container of the management cluster's only node.
func (l *Lab) KindNode() string { return kindNode }

// scheme knows every kind that the lab reads.
var scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme,
		infrav1.AddToScheme, controlplanev1.AddToScheme, quoinv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}()

// kindEnv makes kind use the lab's network, and our wrapper as its docker.
func (l *Lab) kindEnv() []string {
	return []string{
		"KIND_EXPERIMENTAL_DOCKER_NETWORK=" + Name,
		"KIND_EXPERIMENTAL_PROVIDER=docker",
		"PATH=" + l.file("hack", "engine", "wrapper") + ":" + os.Getenv("PATH"),
	}
}

func (l *Lab) kind(ctx context.Context, line func(string), args ...string) error {
	_, err := l.run(ctx, command{name: l.tools.kind, args: args, env: l.kindEnv(), line: line})
	return err
}

func (l *Lab) makeKind(ctx context.Context, step *progress.Step) error {
	if err := l.createKind(ctx, step); err != nil {
		return err
	}
	return l.connect()
}

func (l *Lab) createKind(ctx context.Context, step *progress.Step) error {
	config := l.file("test", "hostimage", "kind.yaml")
	return l.kind(ctx, func(line string) { step.Waiting(line) }, "create", "cluster", "--name", Name, "--image", l.tools.kindImage,
		"--config", config, "--kubeconfig", l.KindKubeconfig(), "--wait", "120s", "--retain")
}

// connect makes the client of the management cluster.
func (l *Lab) connect() error {
	var err error
	l.Management, err = clientFor(l.Kubeconfig())
	return err
}

// clientFor makes a client that caches nothing, for a kubeconfig file.
func clientFor(kubeconfig string) (client.Client, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", kubeconfig, err)
	}
	return c, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 100, 200
	config.Timeout = 20 * time.Second
	// What admission warns of is for who works by hand; controller-runtime would log it, with a stack where nobody logs.
	config.WarningHandler = rest.NoWarnings{}
	return config, nil
}
