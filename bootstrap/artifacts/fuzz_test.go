// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	cryptossh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/artifacts"
	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
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
	signer, err := cryptossh.NewSignerFromKey(private)
	if err != nil {
		f.Fatal(err)
	}
	keys := []cryptossh.PublicKey{signer.PublicKey()}
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

// Whatever a location is, it can be a word of a script, and is of one version.
func FuzzParseLocation(f *testing.F) {
	for _, text := range []string{"/opt/{{version}}", "http://10.1.2.3:8080/b/{{version}}", "https://u:p@h/{{version}}",
		"http://[::1]/{{version}}/", "/a/../{{version}}", "http:///{{version}}", "file:///{{version}}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		location, err := artifacts.ParseLocation(text)
		if err != nil {
			return
		}
		at := location.At("v1.36.3")
		if strings.ContainsAny(at, " \t\n'\"`$;|&<>()\\*?#{}") || !strings.Contains(at, "v1.36.3") {
			t.Errorf("%q reaches a script", at)
		}
		if location.Remote() == strings.HasPrefix(at, "/") || strings.Contains(at, "/../") && !location.Remote() {
			t.Errorf("%q", at)
		}
	})
}

// says is a host with one answer for everything.
type says struct {
	ssh.Host
	answer string
}

func (s says) Run(context.Context, ssh.Command) (ssh.Result, error) {
	return ssh.Result{Stdout: s.answer}, nil
}

// What a host says it lacks is never more than what it should have.
func FuzzLacks(f *testing.F) {
	sums := []string{strings.Repeat("a", 64), strings.Repeat("b", 64)}
	for _, text := range []string{"free 100\nend\n", "", "lacks " + sums[0] + " 3\nend\n",
		"lacks " + sums[1] + " -1\nend\n",
		"lacks x 99\nfree -1\nend", "lacks " + sums[0] + " 99999999999999999999\nend\n"} {
		f.Add(text)
	}
	files := []artifacts.File{{SHA256: sums[0], Size: 5, Kind: artifacts.Binary, Install: "/a"},
		{SHA256: sums[1], Size: 7, Kind: artifacts.Image, Images: []string{"x/a:1"}}}
	f.Fuzz(func(t *testing.T, text string) {
		lacking, progress, err := artifacts.Lacks(t.Context(), says{answer: text}, files)
		if err != nil {
			return
		}
		if lacking > len(files) || progress.There < 0 || progress.There > progress.Total ||
			progress.Done != (lacking == 0) {
			t.Fatalf("%d files, %+v", lacking, progress)
		}
	})
}

// Whatever a proxy is, nothing follows its host and port, and it has no password.
func FuzzProxy(f *testing.F) {
	for _, proxy := range []string{"", "http://proxy.example.com:3128", "https://[fd00::1]:8080/", "http://u:p@h",
		"h:3128", "http://h?", "http://h#", "http://h?a=b", "http://h/a", "HTTP://H", "http://:3128", "http://h:", "\xff"} {
		f.Add(proxy)
	}
	f.Fuzz(func(t *testing.T, proxy string) {
		if artifacts.CheckProxy(proxy) != nil || proxy == "" {
			return
		}
		_, at, found := strings.Cut(proxy, "://")
		at = strings.TrimSuffix(at, "/")
		if !found || at == "" || strings.ContainsAny(at, "@/?# \t\n\\") ||
			!strings.HasPrefix(strings.ToLower(proxy), "http") {
			t.Fatalf("%q is accepted", proxy)
		}
	})
}

// Whatever authorities of a server are: each block of them is a certificate, and both the manager and a host mind it.
func FuzzAuthorities(f *testing.F) {
	seed := make([]byte, ed25519.SeedSize)
	key := ed25519.NewKeyFromSeed(seed)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(1790000000, 0), NotAfter: time.Unix(2790000000, 0)}
	raw, err := x509.CreateCertificate(nil, of, of, key.Public(), key)
	if err != nil {
		f.Fatal(err)
	}
	one := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	for _, text := range []string{"", one, one + one, "# my authority\n" + one, one + one[:len(one)/2],
		one[:len(one)/2] + one, one[:len(one)/2] + "\n" + one, strings.Replace(one, "\n", "\nProc-Type: 4\n\n", 1),
		one + "x", " ", strings.ReplaceAll(one, "CERTIFICATE", "PRIVATE KEY"), strings.ReplaceAll(one, "\n", "\r\n")} {
		f.Add(text)
	}
	begins := regexp.MustCompile(`(?m)^-----BEGIN `)
	f.Fuzz(func(t *testing.T, text string) {
		if artifacts.CheckAuthorities(text) != nil || text == "" {
			return
		}
		minded := 0
		for rest := []byte(text); ; minded++ { // as crypto/x509 adds them to a pool
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
				break
			}
		}
		if all := len(begins.FindAllString(text, -1)); minded == 0 || minded != all {
			t.Fatalf("%d of %d blocks count in %q", minded, all, text)
		}
	})
}
