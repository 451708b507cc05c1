// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"crypto/ed25519"
	"path"
	"strings"
	"testing"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
)

// A manifest comes from wherever a location points. Whatever is accepted must be harmless in scripts and paths.
func FuzzParseManifest(f *testing.F) {
	f.Add(
		[]byte(
			`{"kubernetesVersion":"v1.36.3","os":"linux","architecture":"amd64","files":[{"path":"bin/kubeadm","sha256":"` +
				strings.Repeat("a", 64) +
				`","size":1,"kind":"binary","install":"/usr/bin/kubeadm","mode":"0755","roles":["worker"]}]}`))
	f.Add([]byte(`{"kubernetesVersion":"v1.36.3","architecture":"amd64","files":[{"path":"images/a.tar","sha256":"` +
		strings.Repeat("b", 64) + `","size":-1,"kind":"image","images":["x/a:1"],"roles":["addon"]}]}`))
	f.Add([]byte(`{"files":[{}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := artifacts.ParseManifest(data)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			for _, text := range append([]string{file.Path, file.Install, file.Mode, file.SHA256}, file.Images...) {
				if strings.ContainsAny(text, " \t\n'\"`$;|&<>()\\*?") {
					t.Errorf("%q reaches a script", text)
				}
			}
			if !strings.HasPrefix(path.Join("/bundle", file.Path), "/bundle/") {
				t.Errorf("%q leaves the bundle", file.Path)
			}
			if file.Size < 0 {
				t.Errorf("%q has %d bytes", file.Path, file.Size)
			}
		}
		if err := m.Check(m.KubernetesVersion, m.Architecture); err == nil && m.OS != "" && m.OS != "linux" {
			t.Error("a bundle for another system is accepted")
		}
	})
}

// The signature is parsed before anything is known about who made it.
func FuzzVerifySignature(f *testing.F) {
	_, private, err := ed25519.GenerateKey(strings.NewReader(strings.Repeat("0123456789abcdef", 8)))
	if err != nil {
		f.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		f.Fatal(err)
	}
	keys := []ssh.PublicKey{signer.PublicKey()}
	const signed = "what was signed"
	for _, namespace := range []string{artifacts.SignatureNamespace, "file"} {
		signature, err := sshsig.Sign(strings.NewReader(signed), signer, sshsig.HashSHA512, namespace)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(signed), sshsig.Armor(signature))
	}
	f.Add([]byte(signed), []byte("-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, data, signature []byte) {
		if err := artifacts.VerifySignature(data, signature, keys); err == nil && string(data) != signed {
			t.Errorf("%q was never signed", data)
		}
	})
}
