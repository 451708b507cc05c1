// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/yaml"
)

// arguments are what the command line says.
type arguments struct {
	root, folder, version, image, push, url string
}

// options are the arguments, found good.
type options struct {
	// root of the checkout; folder of the releases, absolute.
	root, folder string
	// version with its v.
	version string
	// tag is the image's name, in full.
	tag name.Tag
	// push says whether the image goes to its registry.
	push bool
	// location of the components.
	location location
}

func (a arguments) parse() (options, error) {
	o := options{root: a.root, version: a.version}
	var err error
	if err := checkVersion(a.root, a.version); err != nil {
		return o, err
	}
	if o.tag, err = parseImage(a.image, a.version); err != nil {
		return o, err
	}
	switch a.push {
	case "yes":
		o.push = true
	case "no", "":
	default:
		return o, fmt.Errorf("PUSH is %q: say yes or no", a.push)
	}
	if o.folder, err = filepath.Abs(a.folder); err != nil {
		return o, fmt.Errorf("folder of the release: %w", err)
	}
	o.location, err = parseLocation(a.url, o.folder)
	return o, err
}

const usage = "usage: make release VERSION=v0.1.0 IMAGE=registry.example.com/quoin/manager [PUSH=yes] [URL=...]"

// checkVersion refuses what clusterctl would, once a user runs it.
func checkVersion(root, version string) error {
	if version == "" {
		return errors.New("VERSION is missing; " + usage)
	}
	parsed, err := semver.Parse(strings.TrimPrefix(version, "v"))
	if err != nil || !strings.HasPrefix(version, "v") {
		return fmt.Errorf("VERSION %q is not a semantic version with a v before it, like v0.1.0 or v0.2.0-rc.1", version)
	}
	if len(parsed.Build) > 0 {
		return fmt.Errorf("VERSION %q has build metadata, which the tag of an image cannot carry: "+
			"leave out what follows the +", version)
	}
	content, err := os.ReadFile(filepath.Join(root, "metadata.yaml"))
	if err != nil {
		return fmt.Errorf("release series: %w", err)
	}
	var metadata struct {
		ReleaseSeries []struct{ Major, Minor uint64 } `json:"releaseSeries"`
	}
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return fmt.Errorf("release series of metadata.yaml: %w", err)
	}
	for _, series := range metadata.ReleaseSeries {
		if series.Major == parsed.Major && series.Minor == parsed.Minor {
			return nil
		}
	}
	return fmt.Errorf("VERSION %s belongs to no release series of metadata.yaml, and clusterctl would refuse it: "+
		"add %d.%d there with its contract", version, parsed.Major, parsed.Minor)
}

// parseImage reads repository[:tag]; the tag is the version when left out.
func parseImage(image, version string) (name.Tag, error) {
	if image == "" {
		return name.Tag{}, errors.New("IMAGE is missing, by which the management cluster finds the manager; " + usage)
	}
	if strings.Contains(image, "@") {
		return name.Tag{}, fmt.Errorf("IMAGE %q names a digest, which only the build tells: give repository[:tag]", image)
	}
	full := image
	if !strings.Contains(image[strings.LastIndex(image, "/")+1:], ":") {
		full += ":" + version
	}
	tag, err := name.NewTag(full, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("IMAGE %q is not the full name of an image, "+
			"like registry.example.com/quoin/manager[:tag]: %w", image, err)
	}
	return tag, nil
}

// location is where clusterctl finds components of a version.
type location struct {
	// base is a URL without the slash at its end.
	base string
	// flat says that all files of a version lie side by side there, as the assets of a release do.
	flat bool
}

// components is the URL of a components file.
func (l location) components(label, version, file string) string {
	if l.flat {
		return l.base + "/" + version + "/" + file
	}
	return l.base + "/" + label + "/" + version + "/" + file
}

// releaseURLs are the remote repositories that clusterctl can read.
var releaseURLs = []*regexp.Regexp{
	regexp.MustCompile(`^https://github\.com/[^/]+/[^/]+/releases$`),
	regexp.MustCompile(`^https://gitlab\.[^/]+/api/v4/projects/[^/]+/packages/generic/[^/]+$`),
}

func parseLocation(text, folder string) (location, error) {
	if text == "" {
		text = folder
	}
	text = strings.TrimSuffix(text, "/")
	for _, known := range releaseURLs {
		if known.MatchString(text) {
			return location{base: text, flat: true}, nil
		}
	}
	path := strings.TrimPrefix(text, "file://")
	if !filepath.IsAbs(path) || strings.Contains(path, "$") {
		return location{}, fmt.Errorf("URL %q is nothing that clusterctl reads: give the absolute path of a folder without $ in it, "+
			"https://github.com/<owner>/<repository>/releases, or https://gitlab.<domain>/api/v4/projects/<id>/packages/generic/<package>; "+
			"behind any other server, copy the folder to where clusterctl runs", text)
	}
	return location{base: (&url.URL{Scheme: "file", Path: filepath.Clean(path)}).String()}, nil
}
