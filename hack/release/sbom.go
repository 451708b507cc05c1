// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbomName is the list of what the programs are made of, as CycloneDX.
const sbomName = "quoin.cdx.json"

// builtProgram is a program of an architecture.
type builtProgram struct {
	// name of it, like manager-linux-amd64, and path of its file.
	name, path string
}

// sbom lists what the programs are made of: the modules that the linker says are in them, with the checksums that the
// go command compared with go.sum, the Go that built them, and the programs themselves. Nothing of it says when or
// where it was made.
func sbom(version string, programs []builtProgram) ([]byte, error) {
	files := make([]cyclonedx.Component, 0, len(programs))
	modules := map[string]cyclonedx.Component{}
	for _, one := range programs {
		info, err := buildinfo.ReadFile(one.path)
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", one.name, err)
		}
		sum, err := checksum(one.path)
		if err != nil {
			return nil, fmt.Errorf("checksum of %s: %w", one.name, err)
		}
		files = append(files, cyclonedx.Component{BOMRef: one.name, Type: cyclonedx.ComponentTypeFile, Name: one.name,
			Version: version, Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}}})
		standard := strings.TrimPrefix(info.GoVersion, "go")
		modules["std"] = library("std", standard, nil)
		for _, module := range info.Deps {
			component, err := ofModule(module)
			if err != nil {
				return nil, fmt.Errorf("modules of %s: %w", one.name, err)
			}
			modules[component.BOMRef] = component
		}
	}
	components := slices.Concat(files, slices.SortedFunc(maps.Values(modules), func(a, b cyclonedx.Component) int {
		return cmp.Compare(a.BOMRef, b.BOMRef)
	}))
	list := cyclonedx.NewBOM()
	list.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: "quoin", Type: cyclonedx.ComponentTypeApplication, Name: "quoin", Version: version}}
	list.Components = &components
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list); err != nil {
		return nil, fmt.Errorf("writing %s: %w", sbomName, err)
	}
	return text.Bytes(), nil
}

// ofModule is a module, or what replaces it.
func ofModule(module *debug.Module) (cyclonedx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	if module.Sum == "" {
		return cyclonedx.Component{}, fmt.Errorf("module %s comes from a folder; a release has only what go.sum knows",
			module.Path)
	}
	// "h1:" is a SHA-256 over the names and the sums of the module's files.
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	if err != nil {
		return cyclonedx.Component{}, fmt.Errorf("checksum %s of module %s: %w", module.Sum, module.Path, err)
	}
	return library(module.Path, module.Version,
		&[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}), nil
}

func library(path, version string, hashes *[]cyclonedx.Hash) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: url, Hashes: hashes}
}
