// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/quoin-dev/cluster-api-provider-quoin/hack/image"
)

// architectures of the manager's image.
var architectures = []string{"amd64", "arm64"}

// programBuilder builds a package of a checkout for an architecture into a file.
type programBuilder func(ctx context.Context, o options, pkg, architecture, path string) error

// Packages of programs.
const (
	managerPackage = "."
	pluginPackage  = "./cmd/clusterctl-quoin"
)

// buildProgram compiles a program. Nothing of this machine's settings reaches it.
func buildProgram(ctx context.Context, o options, pkg, architecture, path string) error {
	const at = "github.com/quoin-dev/cluster-api-provider-quoin/internal/version"
	flags := "-X " + at + ".version=" + o.version
	if commit := commit(ctx, o.root); commit != "" {
		flags += " -X " + at + ".commit=" + commit
	}
	return compile(ctx, o.root, pkg, flags, architecture, path)
}

// compile a package of the checkout into a program that is the same wherever the checkout lies.
func compile(ctx context.Context, root, pkg, flags, architecture, path string) error {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= "+flags,
		"-o", path, pkg)
	command.Dir, command.Stderr = root, &stderr
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GOOS=linux",
		"GOARCH="+architecture, "GOAMD64=v1", "GOARM64=v8.0")
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s for %s: %w\n%s", pkg, architecture, err, stderr.String())
	}
	return nil
}

// commit of the checkout, with a + behind it when tracked files differ; empty where there is no git to ask.
func commit(ctx context.Context, root string) string {
	git := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, "git", args...)
		command.Dir = root
		out, err := command.Output()
		return strings.TrimSpace(string(out)), err
	}
	revision, err := git("rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no"); err != nil || changed != "" {
		revision += "+"
	}
	return revision
}

// managerIndex makes the manager's image for every architecture, of programs that it builds below a folder.
func managerIndex(
	ctx context.Context, builder *image.Builder, o options, build programBuilder, work string,
) (v1.ImageIndex, []builtProgram, error) {
	images, programs := make([]v1.Image, 0, len(architectures)), make([]builtProgram, 0, len(architectures))
	for _, architecture := range architectures {
		layer := filepath.Join(work, architecture)
		if err := os.Mkdir(layer, 0o755); err != nil {
			return nil, nil, fmt.Errorf("folder of the program: %w", err)
		}
		manager := filepath.Join(layer, "manager")
		if err := build(ctx, o, managerPackage, architecture, manager); err != nil {
			return nil, nil, err
		}
		programs = append(programs, builtProgram{name: "manager-linux-" + architecture, path: manager})
		if err := image.PlainModes(layer); err != nil {
			return nil, nil, fmt.Errorf("modes of the program: %w", err)
		}
		one, err := builder.OCI(image.Options{
			Architecture: architecture, Entrypoint: []string{"/manager"}, User: "65532:65532",
			Labels: map[string]string{"org.opencontainers.image.version": o.version},
		}, layer)
		if err != nil {
			return nil, nil, fmt.Errorf("image for %s: %w", architecture, err)
		}
		images = append(images, one)
	}
	index, err := image.Index(images...)
	return index, programs, err
}

// plugins makes clusterctl's plugin for every architecture.
func plugins(ctx context.Context, o options, build programBuilder, folder string) ([]builtProgram, error) {
	made := make([]builtProgram, 0, len(architectures))
	for _, architecture := range architectures {
		name := "clusterctl-quoin-linux-" + architecture
		path := filepath.Join(folder, name)
		if err := build(ctx, o, pluginPackage, architecture, path); err != nil {
			return nil, err
		}
		made = append(made, builtProgram{name: name, path: path})
	}
	return made, nil
}

// push sends the image to its registry, once: a tag that users may have pulled never changes its meaning.
func push(ctx context.Context, tag name.Tag, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("digest of the image: %w", err)
	}
	access := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	there, err := remote.Head(tag, access...)
	status := 0
	var refused *transport.Error
	if errors.As(err, &refused) {
		status = refused.StatusCode
	}
	switch {
	case err == nil && there.Digest == digest:
		return nil
	case err == nil:
		return fmt.Errorf("the registry has another image as %s: %s instead of %s; "+
			"choose another VERSION or tag, or remove that one", tag, there.Digest, digest)
	case status == http.StatusNotFound:
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("the registry refuses %s: log in with `docker login %s`: %w", tag, tag.RegistryStr(), err)
	default:
		return fmt.Errorf("asking the registry for %s: %w", tag, err)
	}
	if err := remote.WriteIndex(tag, index, access...); err != nil {
		return fmt.Errorf("pushing %s: %w", tag, err)
	}
	return nil
}
