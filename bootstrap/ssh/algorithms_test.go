// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"context"
	"crypto/dsa" //nolint:staticcheck // a key that is refused
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"testing"

	. "github.com/onsi/gomega"
	xssh "golang.org/x/crypto/ssh"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
	"github.com/quoin-dev/cluster-api-provider-quoin/test/sshtest"
)

// A host that agrees to nothing but what is known to be weak is not talked to, and its owner learns what is missing.
func TestWeakAlgorithmsAreNotAgreedTo(t *testing.T) {
	weak := xssh.InsecureAlgorithms()
	for name, only := range map[string]xssh.Algorithms{
		"key exchange":            {KeyExchanges: weak.KeyExchanges},
		"client to server cipher": {Ciphers: weak.Ciphers},
		"client to server MAC":    {MACs: weak.MACs, Ciphers: []string{xssh.CipherAES256CTR}},
		"":                        {Ciphers: []string{xssh.CipherAES256CTR}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, target := serve(t, sshtest.ServerOptions{Algorithms: only})
			conn, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
			if name == "" { // nothing is weak
				g.Expect(err).NotTo(HaveOccurred())
				_ = conn.Close()
				return
			}
			g.Expect(err).To(MatchError(MatchRegexp("agrees to no %s that is accepted .*have its sshd_config offer one of ", name)))
			g.Expect(err).To(BeAssignableToTypeOf(&ssh.AlgorithmsError{}), "a host that answers is not silent")
			g.Expect(ssh.NeverRan(err)).To(BeTrue())
		})
	}
}

// An RSA key signs with SHA-2 alone, by itself and with a certificate: a host that wants SHA-1 gets no signature.
func TestAnRSAKeyDoesNotSignWithSHA1(t *testing.T) {
	g := NewWithT(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	key, err := ssh.ParseSigner(pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private),
	}))
	g.Expect(err).NotTo(HaveOccurred())
	authority := sshtest.NewKey()
	for name, signer := range map[string]xssh.Signer{
		"a key": key, "a certificate": sshtest.UserCertificate(authority, key, "root", nil),
	} {
		t.Run(name, func(t *testing.T) {
			for algorithm, accepted := range map[string]bool{
				xssh.KeyAlgoRSASHA512: true, xssh.KeyAlgoRSASHA256: true, xssh.KeyAlgoRSA: false,
			} {
				g := NewWithT(t)
				_, target := serve(t, sshtest.ServerOptions{
					Authorize:  func(string, xssh.PublicKey) bool { return true },
					Algorithms: xssh.Algorithms{PublicKeyAuths: []string{algorithm}},
				})
				target.Signers = []xssh.Signer{signer}
				conn, err := ssh.Dial(context.Background(), target, ssh.PoolOptions{})
				if accepted {
					g.Expect(err).NotTo(HaveOccurred(), algorithm)
					_ = conn.Close()
					continue
				}
				g.Expect(err).To(BeAssignableToTypeOf(&ssh.AuthError{}), algorithm)
			}
		})
	}
}

func TestADSAKeyIsRefused(t *testing.T) {
	g := NewWithT(t)
	var key dsa.PrivateKey
	g.Expect(dsa.GenerateParameters(&key.Parameters, rand.Reader, dsa.L1024N160)).To(Succeed())
	g.Expect(dsa.GenerateKey(&key, rand.Reader)).To(Succeed())
	encoded, err := asn1.Marshal(struct {
		Version       int
		P, Q, G, Y, X *big.Int
	}{0, key.P, key.Q, key.G, key.Y, key.X})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = ssh.ParseSigner(pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: encoded}))
	g.Expect(err).To(MatchError(ContainSubstring("DSA key")))
}
