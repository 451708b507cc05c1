// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command components writes a local clusterctl repository with the providers a Quoin cluster needs, or the files of a
// release.
//
//	go run ./hack/components --mode resolved --out _artifacts/repository \
//	  --image cluster-api=quoin.test/cluster-api-controller:v1.14.2
//	go run ./hack/components --release dist --version v0.1.0 --image infrastructure-quoin=example.test/quoin:v0.1.0
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
		release string
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
	flags.StringVar(&release, "release", "", "write the files of a release of our providers to this folder instead")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options.Mode = repository.Mode(mode)
	if release != "" {
		return repository.Release(options, release)
	}
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
