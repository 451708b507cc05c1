// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plainLayer is a tar that is carried as it is. The library's own layers of files are always compressed, which costs
// each host that imports a bundle more time than it saves.
type plainLayer struct {
	path   string
	digest v1.Hash
	size   int64
}

func newPlainLayer(tar *os.File) (v1.Layer, error) {
	content, err := os.Open(tar.Name())
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	digest, size, err := v1.SHA256(content)
	if err != nil {
		return nil, err
	}
	return plainLayer{path: tar.Name(), digest: digest, size: size}, nil
}

// Digest implements v1.Layer.
func (l plainLayer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements v1.Layer. Nothing is compressed, so it is the digest.
func (l plainLayer) DiffID() (v1.Hash, error) { return l.digest, nil }

// Compressed implements v1.Layer.
func (l plainLayer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed implements v1.Layer.
func (l plainLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Size implements v1.Layer.
func (l plainLayer) Size() (int64, error) { return l.size, nil }

// MediaType implements v1.Layer.
func (l plainLayer) MediaType() (types.MediaType, error) { return types.DockerUncompressedLayer, nil }

// Pack writes a folder as a tar, in the order of names. Everything in it belongs to root.
func Pack(root string, sink io.Writer) error {
	layer := tar.NewWriter(sink)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return add(layer, path, filepath.ToSlash(relative), entry)
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

func add(layer *tar.Writer, path, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = name
	if entry.IsDir() {
		header.Name += "/"
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	header.ModTime, header.AccessTime, header.ChangeTime = epoch, time.Time{}, time.Time{}
	header.Format = tar.FormatPAX
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return copyFile(path, layer)
}
