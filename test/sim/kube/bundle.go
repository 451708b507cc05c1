// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"path"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sim/machine"
)

// units are those of real bundles: a test compares them with hack/bundle/units.
//
//go:embed units
var units embed.FS

// BundleLocation is where Bundle's files lie on a host, as a QuoinMachine names it.
const BundleLocation = "/opt/quoin/bundles/{{version}}"

// Bundle returns the files of a bundle of the version, by the path that they have on a host: programs that are simulated
// and images that are empty, described by a manifest as complete as that of a real bundle.
func Bundle(version string) map[string]machine.File {
	dir := "/opt/quoin/bundles/" + version
	files := map[string]machine.File{}
	manifest := artifacts.Manifest{KubernetesVersion: version, OS: "linux", Architecture: "amd64"}
	add := func(file artifacts.File, content []byte) {
		file.SHA256 = fmt.Sprintf("%x", sha256.Sum256(content))
		file.Size = int64(len(content))
		manifest.Files = append(manifest.Files, file)
		files[dir+"/"+file.Path] = machine.File{Content: content}
	}
	everyNode := []artifacts.Role{artifacts.ControlPlane, artifacts.Worker}
	for _, name := range []string{"kubeadm", "kubectl", "kubelet"} {
		add(artifacts.File{Path: "bin/" + name, Kind: artifacts.Binary, Install: "/usr/bin/" + name, Mode: "0755", Roles: everyNode},
			machine.Executable(name, version))
	}
	for name, install := range map[string]string{
		"kubelet.service": "/etc/systemd/system/kubelet.service",
		"10-kubeadm.conf": "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
	} {
		content, err := units.ReadFile("units/" + name)
		if err != nil {
			panic(err) // they are compiled in
		}
		add(artifacts.File{Path: "units/" + name, Kind: artifacts.Unit, Install: install, Mode: "0644", Roles: everyNode}, content)
	}
	image := func(name, tag string, roles ...artifacts.Role) {
		reference := "quoin.test/" + name + ":" + tag
		add(artifacts.File{Path: "images/" + name + ".tar", Kind: artifacts.Image, Images: []string{reference}, Roles: roles}, imageArchive(reference))
	}
	image("kube-apiserver", version, artifacts.ControlPlane)
	image("kube-proxy", version, artifacts.ControlPlane, artifacts.Worker, artifacts.Addon)
	image("pause", "3.10", artifacts.ControlPlane, artifacts.Worker, artifacts.Addon)
	content, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		panic(err) // a struct of strings
	}
	files[dir+"/manifest.json"] = machine.File{Content: append(content, '\n')}
	return files
}

// imageArchive is a docker archive without layers.
func imageArchive(reference string) []byte {
	manifest, _ := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{reference}, "Layers": []string{}}})
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"config.json", []byte(`{"architecture":"amd64","os":"linux"}`)}, {"manifest.json", manifest}} {
		_ = archive.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content))})
		_, _ = archive.Write(file.content)
	}
	_ = archive.Close()
	return buffer.Bytes()
}

// imagesIn reads the names in a docker archive.
func imagesIn(content []byte) ([]string, error) {
	archive := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := archive.Next()
		if err != nil {
			return nil, fmt.Errorf("no manifest.json in the archive: %w", err)
		}
		if path.Clean(header.Name) != "manifest.json" {
			continue
		}
		var images []struct{ RepoTags []string }
		if err := json.NewDecoder(archive).Decode(&images); err != nil {
			return nil, fmt.Errorf("manifest.json of the archive: %w", err)
		}
		var names []string
		for _, image := range images {
			names = append(names, image.RepoTags...)
		}
		return names, nil
	}
}
