// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command imagetar writes a container image as a docker-archive, without an
// engine: the same input gives the same bytes, so a bundle's checksums change
// only when its content does.
//
//	imagetar -o coredns.tar -name quoin.test/coredns:v1 -entrypoint /coredns <layer>...
//
// A layer is a folder or a tar of one. Everything in it belongs to root.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	log.SetFlags(0)
	var names, entrypoint, environment list
	output := flag.String("o", "", "file to write")
	flag.Var(&names, "name", "full name of the image with its tag; may repeat")
	flag.Var(&entrypoint, "entrypoint", "one word of the entrypoint; may repeat")
	flag.Var(&environment, "env", "NAME=value; may repeat")
	flag.Parse()
	if *output == "" || len(names) == 0 || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	image := image{names: names, entrypoint: entrypoint, environment: environment, layers: flag.Args()}
	if err := image.write(*output); err != nil {
		log.Fatalf("writing %s: %v", *output, err)
	}
}

// image is what is to be written.
type image struct {
	names, entrypoint, environment []string
	layers                         []string
}

// epoch stands for every time in the image: none of them means anything.
var epoch = time.Unix(0, 0).UTC()

// write makes the archive: the layers, the configuration that lists their
// digests, and the manifest that ties them together.
func (i image) write(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	archive := tar.NewWriter(file)

	type history struct {
		Created   time.Time `json:"created"`
		CreatedBy string    `json:"created_by"`
	}
	var config struct {
		Architecture string         `json:"architecture"`
		OS           string         `json:"os"`
		Created      time.Time      `json:"created"`
		Config       map[string]any `json:"config"`
		RootFS       struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
		History []history `json:"history"`
	}
	config.Architecture, config.OS, config.Created = runtime.GOARCH, "linux", epoch
	config.Config = map[string]any{"Env": i.environment, "Entrypoint": i.entrypoint}
	config.RootFS.Type = "layers"

	var manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	manifest.RepoTags = i.names

	for _, source := range i.layers {
		digest, err := addLayer(archive, source)
		if err != nil {
			return err
		}
		manifest.Layers = append(manifest.Layers, digest+".tar")
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, "sha256:"+digest)
		config.History = append(config.History, history{Created: epoch, CreatedBy: "imagetar"})
	}

	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	manifest.Config = hex.EncodeToString(sum[:]) + ".json"
	if err := addText(archive, manifest.Config, text); err != nil {
		return err
	}
	text, err = json.Marshal([]any{manifest})
	if err != nil {
		return err
	}
	if err := addText(archive, "manifest.json", text); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return file.Close()
}

// spool writes a layer to a temporary file, which its size and digest are only
// known from, and returns it rewound.
func spool(source string) (*os.File, string, error) {
	file, err := os.CreateTemp("", "layer")
	if err != nil {
		return nil, "", err
	}
	digest := sha256.New()
	sink := io.MultiWriter(file, digest)
	info, err := os.Stat(source)
	switch {
	case err != nil:
	case info.IsDir():
		err = pack(source, sink)
	default:
		err = copyFile(source, sink)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, "", err
	}
	return file, hex.EncodeToString(digest.Sum(nil)), nil
}

// pack writes a folder as a tar, in the order of names.
func pack(root string, sink io.Writer) error {
	layer := tar.NewWriter(sink)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
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
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		header.Name = filepath.ToSlash(relative)
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
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

// addLayer writes the layer made of a folder or archive as <digest>.tar, and returns the digest.
func addLayer(archive *tar.Writer, source string) (string, error) {
	layer, digest, err := spool(source)
	if err != nil {
		return "", fmt.Errorf("layer %s: %w", source, err)
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	return digest, add(archive, digest+".tar", layer)
}

func copyFile(path string, sink io.Writer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(sink, file)
	return err
}

func add(archive *tar.Writer, name string, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o644, Size: info.Size(), ModTime: epoch, Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

func addText(archive *tar.Writer, name string, text []byte) error {
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: epoch, Typeflag: tar.TypeReg}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, bytes.NewReader(text))
	return err
}
