// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	manifestName  = "manifest.json"
	signatureName = manifestName + ".sig"
	// maxManifest is far above a manifest of a thousand files.
	maxManifest = 1 << 20
	// noSuchFile is the exit code of a script that finds no file.
	noSuchFile = 66
	// noCurl is the exit code of a script that finds no curl.
	noCurl = 67
)

// reader reads one small file of a bundle. What is not there is an fs.ErrNotExist.
type reader func(ctx context.Context, name string) ([]byte, error)

// readManifest reads, verifies and checks the manifest of a version.
func readManifest(ctx context.Context, read reader, wanted Wanted) (*Manifest, error) {
	at := wanted.Place()
	data, err := read(ctx, manifestName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no bundle of Kubernetes %s: %w; put the bundle there, or correct the artifact "+
			"location", wanted.Version, err)
	case err != nil:
		return nil, fmt.Errorf("reading %s/%s: %w", at, manifestName, err)
	}
	// The signature comes first: nothing of what nobody signed is looked into.
	for _, by := range []struct {
		whose string
		lines []string
	}{{"publicKeys", wanted.Bundle.PublicKeys}, {"the manager's --" + KeysFlag, wanted.OperatorKeys}} {
		if len(by.lines) == 0 {
			continue
		}
		keys, err := ParsePublicKeys(by.lines)
		if err != nil {
			return nil, err
		}
		signature, err := read(ctx, signatureName)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, untrusted("the bundle is not signed, which %s asks for: %v", by.whose, err)
		case err != nil:
			return nil, fmt.Errorf("reading %s/%s: %w", at, signatureName, err)
		}
		if err := VerifySignature(data, signature, keys); err != nil {
			return nil, fmt.Errorf("%s, by %s: %w", at, by.whose, err)
		}
	}
	manifest, err := ParseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	if err := manifest.Check(wanted.Version, wanted.Architecture); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return manifest, nil
}

// readByHost reads a file of the bundle through the host, as the host itself will read the others: one SSH exchange.
func readByHost(
	ctx context.Context, host ssh.Host, wanted Wanted, location Location, name string,
) ([]byte, error) {
	at := location.At(wanted.Version) + "/" + name
	command := ssh.Command{Sudo: true, Script: fmt.Sprintf("[ -r %[1]s ] || { echo 'no such file' >&2; exit %[2]d; "+
		"}\ncat %[1]s\n", ssh.Quote(at), noSuchFile)}
	if location.Remote() {
		command = curlCommand(wanted, at)
	}
	result, err := host.Run(ctx, command)
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit) && exit.Code == noSuchFile:
		return nil, &missingError{at: at, why: strings.TrimSpace(exit.Stderr)}
	case errors.As(err, &exit) && exit.Code == noCurl:
		return nil, fmt.Errorf("the bundle at %s is fetched by curl, which the host does not have; install curl, or use a "+
			"path on the host", at)
	case err != nil:
		return nil, err
	case result.Truncated || len(result.Stdout) > maxManifest:
		return nil, fmt.Errorf("it has more than %d bytes, so it is no %s; make the bundle again", maxManifest, name)
	}
	return []byte(result.Stdout), nil
}

// curlCommand prints a file once it is whole: what is printed as it comes stays printed when an attempt fails and the
// next one begins anew. The authorities come over standard input, for the host has them nowhere yet.
func curlCommand(wanted Wanted, at string) ssh.Command {
	bundle, authorities, patience := wanted.Bundle, "", ""
	if wanted.Once {
		patience = "--retry 0 --connect-timeout 3 --max-time 5 " // the last of each word counts
	}
	if bundle.CertificateAuthorities != "" {
		authorities = `cat >"$dir/authorities.pem" || exit 1` + "\n"
	}
	return ssh.Command{Sudo: true, Stdin: strings.NewReader(bundle.CertificateAuthorities), Script: fmt.Sprintf(
		"command -v curl >/dev/null || { echo 'curl is not installed' >&2; exit %d; }\n"+
			`dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && : >"$dir/file" || exit 1`+"\n"+
			`%s%squoin_curl %s "$dir/file" %s--max-filesize %d || exit %d`+"\n"+`cat "$dir/file"`+"\n",
		noCurl, authorities, curlFunction(bundle, `"$dir/authorities.pem"`, `"$dir/none"`), ssh.Quote(at), patience,
		maxManifest, noSuchFile)}
}

//go:embed curl.sh
var curlLibrary string

// curlFunction defines quoin_curl <url> <file> <option>...: it fails on HTTP errors, follows redirects within the
// scheme, name and port of the URL and no other, as this process does itself, tries again what may pass, and gives up
// on a server that stalls. authorities is the file in shell words, and none a folder beside it that stays empty: many a
// curl was built with a folder of the system's authorities, and trusts those as well unless it is given another one. No
// .curlrc is read: whoever had the host before may have left a proxy there, and that nothing is verified.
func curlFunction(bundle *Bundle, authorities, none string) string {
	stall, before := int64(1024), ""
	words := []string{"--fail --silent --show-error --proto =http,https --retry 3 --retry-delay 2 --connect-timeout 10 " +
		"--speed-time 30"}
	if bundle.Proxy != "" {
		words = append(words, "--proxy "+ssh.Quote(bundle.Proxy))
	}
	if bundle.CertificateAuthorities != "" {
		words = append(words, "--cacert "+authorities, "--capath "+none)
		before = "mkdir -p " + none + " && "
	}
	if bundle.BytesPerSecond > 0 {
		words = append(words, "--limit-rate "+strconv.FormatInt(bundle.BytesPerSecond, 10))
		// What is slow because it was told so does not stall.
		stall = max(1, min(stall, bundle.BytesPerSecond/4))
	}
	words = append(words, "--speed-limit "+strconv.FormatInt(stall, 10))
	return "quoin_ask() { " + before + "curl -q " + strings.Join(words, " ") + ` "$@"; }` + "\n" + curlLibrary
}

// missingError says what is not there.
type missingError struct{ at, why string }

func (e *missingError) Error() string {
	if e.why == "" {
		return e.at
	}
	return e.at + ": " + e.why
}

// Is makes it an fs.ErrNotExist.
func (e *missingError) Is(target error) bool { return target == fs.ErrNotExist }
