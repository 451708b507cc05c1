// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newImages lists what is pulled for the providers.
func newImages(o *options) *cobra.Command {
	p := &providers{}
	var output string
	command := &cobra.Command{
		Use:   "images",
		Short: "List the images of the providers that create cluster installs, and of cert-manager",
		Long: `List the images of the providers that create cluster installs, and of cert-manager.

They are those that an empty cluster gets, a bootstrap cluster and the cluster itself. No cluster is asked. A site
without a registry has them in its bundles. Those of Kubernetes and of the network plugin are not among them.`,
		Example: `  for i in $(clusterctl quoin images); do docker pull $i && docker save -o $(echo $i | tr /: __).tar $i; done`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			images, err := p.images(c.Context())
			if err != nil {
				return err
			}
			var rows [][]string
			for _, image := range images {
				rows = append(rows, []string{image})
			}
			return show(o.out, output, images, rows)
		},
	}
	p.add(command)
	addOutput(command, &output)
	return command
}

// images that clusterctl would have an empty cluster pull.
func (p *providers) images(ctx context.Context) ([]string, error) {
	read, err := config.New(ctx, p.config)
	if err != nil {
		return nil, err
	}
	library, err := clusterctl.New(ctx, p.config, clusterctl.InjectConfig(read),
		clusterctl.InjectClusterClientFactory(func(clusterctl.ClusterClientFactoryInput) (cluster.Client, error) {
			return cluster.New(cluster.Kubeconfig{}, read, cluster.InjectProxy(nowhere{})), nil
		}))
	if err != nil {
		return nil, err
	}
	return library.InitImages(ctx, p.missing(nil))
}

// nowhere is how clusterctl reaches a cluster that has nothing. It reaches a real one otherwise, and leaves out what is there.
type nowhere struct{ cluster.Proxy }

// NewClient implements cluster.Proxy.
func (nowhere) NewClient(context.Context) (client.Client, error) { return nothing{}, nil }

// nothing is found.
type nothing struct{ client.Client }

// Get implements client.Client.
func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Client.
func (nothing) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
