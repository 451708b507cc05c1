// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image makes container images of files, without an engine. The same input gives the same bytes: no time, no
// owner and no folder's name reaches an image, so checksums change with content only.
package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch stands for every time in an image: none of them means anything.
var epoch = time.Unix(0, 0).UTC()

// Options of one image.
type Options struct {
	// Architecture as Go names it: amd64, arm64.
	Architecture string
	// Entrypoint and Environment (NAME=value) of its containers.
	Entrypoint, Environment []string
	// User that its containers run as, like 65532:65532; root when empty.
	User string
	// Labels of the image.
	Labels map[string]string
}

// Builder makes images whose layers lie in a scratch folder until Close.
type Builder struct {
	scratch string
}

// NewBuilder makes a builder with a scratch folder of its own.
func NewBuilder() (*Builder, error) {
	scratch, err := os.MkdirTemp("", "quoin-image-")
	if err != nil {
		return nil, fmt.Errorf("folder of layers: %w", err)
	}
	return &Builder{scratch: scratch}, nil
}

// Close removes the scratch folder. Images of the builder cannot be written any more.
func (b *Builder) Close() error { return os.RemoveAll(b.scratch) }

// Docker makes an image of Docker's media types whose layers are not compressed, for archives that lie on disks.
// A source is a folder or a tar of one.
func (b *Builder) Docker(options Options, sources ...string) (v1.Image, error) {
	return b.image(empty.Image, options, sources, newPlainLayer)
}

// OCI makes an image of OCI's media types whose layers are compressed, for registries.
func (b *Builder) OCI(options Options, sources ...string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return b.image(base, options, sources, func(tar *os.File) (v1.Layer, error) {
		return tarball.LayerFromFile(tar.Name(), tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	})
}

func (b *Builder) image(
	base v1.Image, options Options, sources []string, layer func(*os.File) (v1.Layer, error),
) (v1.Image, error) {
	additions := make([]mutate.Addendum, 0, len(sources))
	for _, source := range sources {
		tar, err := b.spool(source)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", source, err)
		}
		one, err := layer(tar)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", source, err)
		}
		history := v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "quoin"}
		additions = append(additions, mutate.Addendum{Layer: one, History: history})
	}
	filled, err := mutate.Append(base, additions...)
	if err != nil {
		return nil, fmt.Errorf("adding the layers: %w", err)
	}
	config, err := filled.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuration of the image: %w", err)
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = options.Architecture, "linux", v1.Time{Time: epoch}
	config.Config = v1.Config{
		Entrypoint: options.Entrypoint, Env: options.Environment, User: options.User, Labels: maps.Clone(options.Labels),
	}
	return mutate.ConfigFile(filled, config)
}

// spool writes a layer into the scratch folder, as its digest and size are known only then, and returns it closed.
func (b *Builder) spool(source string) (*os.File, error) {
	info, err := os.Stat(source)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(b.scratch, "layer-")
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = Pack(source, file)
	} else {
		err = copyFile(source, file)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return file, err
}

// WriteDocker writes a docker-archive of an image under one or more names.
func WriteDocker(path string, image v1.Image, names ...string) error {
	images := map[name.Reference]v1.Image{}
	for _, text := range slices.Compact(slices.Sorted(slices.Values(names))) {
		tag, err := name.NewTag(text, name.StrictValidation)
		if err != nil {
			return fmt.Errorf("name %s: %w", text, err)
		}
		images[tag] = image
	}
	if err := tarball.MultiRefWriteToFile(path, images); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	if err := sortNames(path); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// sortNames puts the names in the manifest of a docker-archive, which the library takes from a map, into their order. That changes
// no length, so the manifest is written over itself.
func sortNames(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if err != nil {
			return err
		}
		if header.Name != "manifest.json" {
			continue
		}
		// The reader stands before the content: it reads headers alone, block by block.
		at, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		var manifest tarball.Manifest
		if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
			return err
		}
		for i := range manifest {
			slices.Sort(manifest[i].RepoTags)
		}
		sorted, err := json.Marshal(manifest)
		if err != nil {
			return err
		}
		if int64(len(sorted)) != header.Size {
			return fmt.Errorf("manifest.json has %d bytes, and %d with its names in order", header.Size, len(sorted))
		}
		_, err = file.WriteAt(sorted, at)
		return err
	}
}

func copyFile(path string, sink io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(sink, file)
	return err
}
