// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations by which an import names the image of an archive: containerd takes the first, others the tag.
const (
	nameAnnotation = "io.containerd.image.name"
	tagAnnotation  = "org.opencontainers.image.ref.name"
)

// Index ties the images of several architectures together, in the given order.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("configuration of an image: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	return index, nil
}

// WriteOCI writes an OCI archive of an index under a name: what ctr images import and kind load image-archive read.
func (b *Builder) WriteOCI(path string, index v1.ImageIndex, tag name.Tag) error {
	folder, err := os.MkdirTemp(b.scratch, "layout-")
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	written, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	annotations := layout.WithAnnotations(map[string]string{nameAnnotation: tag.Name(), tagAnnotation: tag.TagStr()})
	if err := written.AppendIndex(index, annotations); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	if err := PlainModes(folder); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, folder)
}

func writeFile(path, folder string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = Pack(folder, file)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}

// PlainModes gives everything below a folder the mode that it has under the usual umask, whatever that of this process is.
// Files that anybody may execute, everybody may.
func PlainModes(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if entry.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
}
