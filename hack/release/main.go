// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes a release of Quoin's providers: a clusterctl repository, the manager's image and clusterctl's
// plugin for every architecture, and checksums. `make release` runs it; docs/install.md says what to do with the result.
//
//	go run ./hack/release --version v0.1.0 --image registry.example.com/quoin/manager [--push yes] [--url URL]
//
// The same commit, built by the same Go, gives the same bytes.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/pflag"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var given arguments
	flags := pflag.NewFlagSet("release", pflag.ContinueOnError)
	flags.StringVar(&given.root, "root", ".", "checkout to make the release of")
	flags.StringVar(&given.folder, "out", "dist", "folder to write; other versions in it stay")
	flags.StringVar(&given.version, "version", "", "version of the release, like v0.1.0")
	flags.StringVar(&given.image, "image", "", "repository[:tag] of the manager's image; the tag is the version if left out")
	flags.StringVar(&given.push, "push", "no", "yes pushes the image to its registry, as `docker login` allows")
	flags.StringVar(&given.url, "url", "", "where clusterctl will find the release, when that is not the folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	options, err := given.parse()
	if err != nil {
		return err
	}
	return makeRelease(ctx, options, buildProgram, out)
}

// makeRelease writes the release, and pushes its image before anything names it.
func makeRelease(ctx context.Context, o options, build programBuilder, out io.Writer) error {
	builder, err := image.NewBuilder()
	if err != nil {
		return err
	}
	defer func() { _ = builder.Close() }()
	work, err := os.MkdirTemp("", "quoin-release-")
	if err != nil {
		return fmt.Errorf("folder of the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	index, managers, err := managerIndex(ctx, builder, o, build, work)
	if err != nil {
		return err
	}
	if o.push {
		if err := push(ctx, o.tag, index); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return fmt.Errorf("digest of the image: %w", err)
		}
		_, _ = fmt.Fprintf(out, "pushed %s@%s\n", o.tag, digest)
	}
	programs := func(folder string) error {
		if err := builder.WriteOCI(filepath.Join(folder, archiveName), index, o.tag); err != nil {
			return err
		}
		made, err := plugins(ctx, o, build, folder)
		if err != nil {
			return err
		}
		list, err := sbom(o.version, append(managers, made...))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, sbomName), list, 0o644)
	}
	if err := write(o, programs); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "release %s: %s\nclusterctl: %s\nimage %s: %s\n", o.version, o.assets(),
		filepath.Join(o.folder, configName), displayName(o.tag), filepath.Join(o.assets(), archiveName))
	return nil
}

// displayName is a tag as the user wrote it.
func displayName(tag name.Tag) string { return tag.String() }
