// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command components writes a local clusterctl repository with the providers a Quoin cluster needs, for tests.
// hack/release writes that of a release.
//
//	go run ./hack/components --mode resolved --out _artifacts/repository \
//	  --image cluster-api=quoin.test/cluster-api-controller:v1.14.2
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/components/repository"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "components:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var (
		options repository.Options
		mode    string
	)
	flags := pflag.NewFlagSet("components", pflag.ContinueOnError)
	flags.StringVar(&options.Root, "root", ".", "checkout to take config/, templates/ and hack/tools/ from")
	flags.StringVar(&options.Base, "out", "_artifacts/repository", "folder of the repository; replaced as a whole")
	flags.StringVar(&mode, "mode", string(repository.Standard), "standard, resolved (no cert-manager) or envtest (no pods)")
	flags.StringVar(&options.Version, "version", "", "version of our providers; default: newest series of metadata.yaml, patch 0")
	flags.StringSliceVar(&options.Providers, "provider", nil, "label of a provider to include, repeated; default: all")
	flags.StringToStringVar(&options.Images, "image", nil, "label=image of a manager, repeated")
	flags.StringToIntVar(&options.WebhookPorts, "webhook-port", nil, "label=port of a manager's webhooks in envtest mode, repeated")
	flags.StringToStringVar(&options.Variables, "set", nil, "NAME=value for clusterctl.yaml, repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options.Mode = repository.Mode(mode)
	written, err := repository.Write(options)
	if err != nil {
		return err
	}
	for _, provider := range written.Providers {
		fmt.Fprintln(os.Stderr, provider.Label, provider.Version, filepath.Dir(provider.Components))
	}
	fmt.Println(written.Config)
	return nil
}
