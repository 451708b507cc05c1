// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

// placeholder stands for the version in a location.
const placeholder = "{{version}}"

// Source is where bundles come from: an absolute path on the host or an http(s) URL, with {{version}} in it.
type Source struct{ location string }

var (
	safeLocation = regexp.MustCompile(`^[A-Za-z0-9._@+:/\[\]{}%~-]+$`)
	versionText  = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+][A-Za-z0-9.+-]+)?$`)
)

// ParseSource checks a location.
func ParseSource(location string) (Source, error) {
	const example = "for example /opt/quoin/bundles/{{version}} or http://10.1.2.3:8080/bundles/{{version}}"
	location = strings.TrimRight(location, "/")
	switch {
	case !strings.Contains(location, placeholder):
		return Source{}, fmt.Errorf("artifact location %q has no {{version}} in it, so an upgrade could not find its bundle; %s", location, example)
	case strings.ContainsAny(strings.ReplaceAll(location, placeholder, ""), "{}") || !safeLocation.MatchString(location):
		return Source{}, fmt.Errorf("artifact location %q holds characters that are not allowed; %s", location, example)
	case strings.HasPrefix(location, "/"):
		if path.Clean(location) != location {
			return Source{}, fmt.Errorf("artifact location %q is not a plain absolute path; %s", location, example)
		}
		return Source{location: location}, nil
	}
	u, err := url.Parse(strings.ReplaceAll(location, placeholder, "v0.0.0"))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Source{}, fmt.Errorf("artifact location %q is neither an absolute path nor an http(s) URL; %s", location, example)
	}
	if u.User != nil {
		return Source{}, errors.New("the artifact location carries a password; checksums protect the bundle, so serve it without one")
	}
	return Source{location: location}, nil
}

// At is the location of one version's bundle, version being "v1.36.3".
func (s Source) At(version string) string {
	return strings.ReplaceAll(s.location, placeholder, version)
}

// Remote says that the bundle is fetched by HTTP.
func (s Source) Remote() bool { return !strings.HasPrefix(s.location, "/") }

// noManifest is the exit code that says the bundle itself is missing.
const noManifest = 66

// FetchManifest reads the manifest through the host, as the host itself will read the files (one SSH exchange), and checks
// it for version and architecture.
func FetchManifest(ctx context.Context, host ssh.Host, source Source, version, architecture string) (*Manifest, error) {
	if !versionText.MatchString(version) {
		return nil, fmt.Errorf("version %q is not of the form v1.36.3", version)
	}
	at := source.At(version) + "/manifest.json"
	script := fmt.Sprintf("[ -r %[1]s ] || { echo 'no such file' >&2; exit %[2]d; }\ncat %[1]s\n", ssh.Quote(at), noManifest)
	if source.Remote() {
		script = fmt.Sprintf("command -v curl >/dev/null || { echo 'curl is not installed' >&2; exit 67; }\ncurl %s -- %s || exit %d\n",
			curlFlags, ssh.Quote(at), noManifest)
	}
	result, err := host.Run(ctx, ssh.Command{Script: script, Sudo: true})
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit) && exit.Code == noManifest:
		return nil, fmt.Errorf("the host finds no bundle of Kubernetes %s: %s: %s; put the bundle there, or correct the artifact location", version, at, strings.TrimSpace(exit.Stderr))
	case errors.As(err, &exit) && exit.Code == 67:
		return nil, fmt.Errorf("the bundle at %s is fetched by curl, which the host does not have; install curl, or use a path on the host", at)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", at, err)
	}
	manifest, err := ParseManifest([]byte(result.Stdout))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	if err := manifest.Check(version, architecture); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return manifest, nil
}

// curlFlags: fail on HTTP errors, follow redirects, try again what may pass, and give up on a server that stalls.
const curlFlags = "--fail --silent --show-error --location --retry 3 --retry-delay 2 --connect-timeout 10 --speed-limit 1024 --speed-time 30"
