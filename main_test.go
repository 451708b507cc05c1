// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// TestPublicAuthoritiesAreKnownInAnEmptyImage asks as an HTTPS client does, where no file of certificates is: the image
// holds the program alone, and backups go to object stores with certificates of public authorities.
func TestPublicAuthoritiesAreKnownInAnEmptyImage(t *testing.T) {
	g := NewWithT(t)
	const inImage = "QUOIN_TEST_EMPTY_IMAGE"
	if os.Getenv(inImage) == "" {
		nowhere := filepath.Join(t.TempDir(), "nowhere")
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), inImage+"=yes", "SSL_CERT_FILE="+nowhere, "SSL_CERT_DIR="+nowhere)
		out, err := again.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return
	}
	known, err := x509.SystemCertPool()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(known.Equal(x509.NewCertPool())).To(BeFalse())
}
