// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// placeholder stands for the version in a location.
const placeholder = "{{version}}"

// Location is where bundles lie: an absolute path or an http(s) URL, with {{version}} in it.
type Location struct{ text string }

var (
	safeLocation = regexp.MustCompile(`^[A-Za-z0-9._@+:/\[\]{}%~-]+$`)
	versionText  = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]+)?$`)
)

// ParseLocation checks a location.
func ParseLocation(location string) (Location, error) {
	const example = "for example /opt/quoin/bundles/{{version}} or http://10.1.2.3:8080/bundles/{{version}}"
	location = strings.TrimRight(location, "/")
	switch {
	case passwordText.MatchString(location):
		// Before any sentence that repeats the location.
		return Location{}, errors.New("the artifact location carries a password; checksums protect the bundle, so serve it " +
			"without one")
	case !strings.Contains(location, placeholder):
		return Location{}, fmt.Errorf("artifact location %q has no {{version}} in it, so an upgrade could not find its "+
			"bundle; %s", location, example)
	case strings.ContainsAny(strings.ReplaceAll(location, placeholder, ""), "{}") || !safeLocation.MatchString(location):
		return Location{}, fmt.Errorf("artifact location %q holds characters that are not allowed; %s", location, example)
	case strings.HasPrefix(location, "/"):
		if path.Clean(location) != location {
			return Location{}, fmt.Errorf("artifact location %q is not a plain absolute path; %s", location, example)
		}
		return Location{text: location}, nil
	}
	u, err := url.Parse(strings.ReplaceAll(location, placeholder, "v0.0.0"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Location{}, fmt.Errorf("artifact location %q is neither an absolute path nor an http(s) URL; %s", location,
			example)
	}
	return Location{text: location}, nil
}

// At is the location of one version's bundle, version being "v1.36.3".
func (l Location) At(version string) string {
	return strings.ReplaceAll(l.text, placeholder, version)
}

// Remote says that the bundle is fetched by HTTP.
func (l Location) Remote() bool { return !strings.HasPrefix(l.text, "/") }
