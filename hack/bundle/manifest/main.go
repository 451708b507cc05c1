// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manifest describes a bundle: it looks at the files of a folder and
// writes the folder's manifest.json.
//
//	manifest -version v1.36.3 <bundle folder>
//
// What a file is follows from where it lies: bin/, images/ or units/.
package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

// everywhere is for what each host needs.
var everywhere = []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}

// roles says which hosts need an image, by the first part of its file's name
// that matches. An image that is not listed is one of the site's own and goes everywhere.
var roles = []struct {
	prefix string
	roles  []artifacts.Role
}{
	// A new kube-proxy and CoreDNS land on hosts of the old version too.
	{"kube-proxy-", []artifacts.Role{artifacts.ControlPlane, artifacts.Worker, artifacts.Addon}},
	{"coredns-", []artifacts.Role{artifacts.ControlPlane, artifacts.Worker, artifacts.Addon}},
	{"kube-", []artifacts.Role{artifacts.ControlPlane}},
	{"etcd-", []artifacts.Role{artifacts.ControlPlane}},
	// So does the Job by which kubeadm checks a cluster before its upgrade: it
	// runs the new version's pause image on whichever node it lands on.
	{"pause-", []artifacts.Role{artifacts.ControlPlane, artifacts.Worker, artifacts.Addon}},
	{"webserver-", []artifacts.Role{artifacts.Worker}},
}

func main() {
	log.SetFlags(0)
	version := flag.String("version", "", "Kubernetes version, as in v1.36.3")
	flag.Parse()
	if *version == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *version); err != nil {
		log.Fatalf("describing bundle %s: %v", flag.Arg(0), err)
	}
}

// write makes the manifest of the bundle in root.
func write(root, version string) error {
	manifest := artifacts.Manifest{KubernetesVersion: version, OS: "linux", Architecture: runtime.GOARCH}
	for _, folder := range []string{"bin", "units", "images"} {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			file, err := describe(root, path.Join(folder, entry.Name()))
			if err != nil {
				return err
			}
			manifest.Files = append(manifest.Files, file)
		}
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "manifest.json"), append(text, '\n'), 0o644)
}

// describe returns the manifest's entry for one file.
func describe(root, name string) (artifacts.File, error) {
	file := artifacts.File{Path: name, Roles: everywhere}
	full := filepath.Join(root, filepath.FromSlash(name))
	base := path.Base(name)
	var err error
	if file.SHA256, file.Size, err = digest(full); err != nil {
		return file, err
	}
	switch path.Dir(name) {
	case "bin":
		file.Kind, file.Install, file.Mode = artifacts.Binary, "/usr/bin/"+base, "0755"
	case "units":
		file.Kind, file.Install, file.Mode = artifacts.Unit, unitPath(base), "0644"
	case "images":
		file.Kind, file.Roles = artifacts.Image, rolesOf(base)
		if file.Images, err = imageNames(full); err != nil {
			return file, fmt.Errorf("%s: %w", name, err)
		}
	}
	return file, nil
}

// unitPath is where systemd looks for a unit or for a drop-in of the kubelet.
func unitPath(base string) string {
	if strings.HasSuffix(base, ".conf") {
		return "/etc/systemd/system/kubelet.service.d/" + base
	}
	return "/etc/systemd/system/" + base
}

func rolesOf(base string) []artifacts.Role {
	for _, rule := range roles {
		if strings.HasPrefix(base, rule.prefix) {
			return rule.roles
		}
	}
	return everywhere
}

func digest(name string) (string, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), size, err
}

// imageNames reads the names out of a docker-archive, so that the manifest
// cannot say anything else than the archive does.
func imageNames(name string) ([]string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	archive := tar.NewReader(file)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("no manifest.json in the archive")
		}
		if err != nil {
			return nil, err
		}
		if header.Name != "manifest.json" {
			continue
		}
		var images []struct{ RepoTags []string }
		if err := json.NewDecoder(archive).Decode(&images); err != nil {
			return nil, fmt.Errorf("manifest.json in the archive: %w", err)
		}
		if len(images) != 1 || len(images[0].RepoTags) == 0 {
			return nil, errors.New("the archive does not hold exactly one named image")
		}
		return images[0].RepoTags, nil
	}
}
