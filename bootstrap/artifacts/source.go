// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Source says where the binaries and images of a version come from: exactly one of its fields is set.
type Source struct {
	Bundle       *Bundle
	Packages     *Packages
	Preinstalled *Preinstalled
}

// Bundle is a directory for each version, with a manifest of checksums.
type Bundle struct {
	// Location with {{version}} in it; see ParseLocation.
	Location string
	// Push says that the manager reads the location and sends to each host what it lacks; else each host reads it itself.
	Push bool
	// PublicKeys that may sign manifests, as in an authorized_keys file. Without any, signatures are not looked at.
	PublicKeys []string
	// Proxy for HTTP(S) locations; empty means none but what the environment says.
	Proxy string
	// CertificateAuthorities are the only ones that an HTTPS server is verified with, in PEM; empty means those of the
	// system.
	CertificateAuthorities string
	// BytesPerSecond bounds what one host fetches or is sent; 0 means no bound.
	BytesPerSecond int64
}

// Packages of the host's package manager.
type Packages struct {
	// Repository is a one-line deb entry or the base URL of a dnf repository, in which {{version}}, {{minor}} and {{arch}}
	// are replaced. Empty means that the host knows a repository already.
	Repository string
	// SigningKey of the repository, in ASCII armor.
	SigningKey string
}

// Preinstalled means that the host carries the version already.
type Preinstalled struct {
	// ImagesRequired says that the images must be there too, because nothing can be pulled.
	ImagesRequired bool
}

// Check says what is wrong with a source, before any host is asked.
func (s Source) Check() error {
	set := 0
	for _, is := range []bool{s.Bundle != nil, s.Packages != nil, s.Preinstalled != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("%d sources of artifacts are given; give exactly one of bundle, packages and preinstalled", set)
	case s.Bundle != nil:
		return s.Bundle.check()
	case s.Packages != nil:
		return s.Packages.check()
	}
	return nil
}

// Pushed says that the manager has to send files before a plan may start.
func (s Source) Pushed() bool { return s.Bundle != nil && s.Bundle.Push }

func (b *Bundle) check() error {
	if _, err := ParseLocation(b.Location); err != nil {
		return err
	}
	if _, err := ParsePublicKeys(b.PublicKeys); err != nil {
		return err
	}
	if err := CheckProxy(b.Proxy); err != nil {
		return err
	}
	if err := CheckAuthorities(b.CertificateAuthorities); err != nil {
		return err
	}
	if b.BytesPerSecond < 0 {
		return fmt.Errorf("bytesPerSecond is %d; give a number above 0, or leave it out", b.BytesPerSecond)
	}
	return nil
}

// CheckProxy accepts nothing, or http(s)://<host>:<port>.
func CheckProxy(proxy string) error {
	if proxy == "" {
		return nil
	}
	u, err := url.Parse(proxy)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		return errors.New("the proxy is not a URL such as http://proxy.example.com:3128")
	case u.User != nil:
		return errors.New("the proxy carries a password, which everybody could read who may read this object; use a proxy " +
			"that knows its clients by their address")
	case u.Path != "" && u.Path != "/" || strings.ContainsAny(proxy, "?#"):
		return errors.New("the proxy is more than http://<host>:<port>; leave out what follows")
	}
	return nil
}

// CheckAuthorities accepts nothing, or one or more certificates in PEM and nothing else between them.
func CheckAuthorities(text string) error {
	rest := []byte(text)
	for n := 0; ; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && n == 0 && text != "":
			return errors.New("certificateAuthorities holds no PEM block; give certificates that begin with -----BEGIN " +
				"CERTIFICATE-----")
		case block == nil && strings.Count(text, "-----BEGIN ") > n:
			return fmt.Errorf("certificateAuthorities holds a block that is cut off or garbled, beside %d that can be read; "+
				"copy it again, completely", n)
		case block == nil:
			return nil
		case block.Type != "CERTIFICATE":
			return fmt.Errorf("certificateAuthorities holds a block %q; give certificates only", block.Type)
		}
		if len(block.Headers) > 0 {
			return fmt.Errorf("certificate %d of certificateAuthorities has lines before its content; leave out what is "+
				"between -----BEGIN CERTIFICATE----- and that", n+1)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d of certificateAuthorities cannot be read: %w; copy it again, completely", n+1, err)
		}
	}
}

// Fetched says that the host itself fetches over HTTP(S), for which it needs curl.
func (s Source) Fetched() bool {
	return s.Bundle != nil && !s.Bundle.Push && !strings.HasPrefix(s.Bundle.Location, "/")
}
