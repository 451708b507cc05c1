// Copyright The Quoin Authors.
// SPDX-License-Identifier: Apache-2.0

package hostaccess

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/quoin-dev/cluster-api-provider-quoin/bootstrap/ssh"
)

const (
	// keyPrefix begins the names of private keys in a Secret; the first one has just this name.
	keyPrefix = corev1.SSHAuthPrivateKey
	// certificatePrefix begins the names of user certificates.
	certificatePrefix = "ssh-certificate"
	// maxSigners is what sshd lets a client try, with its usual MaxAuthTries of 6, before it hangs up on it.
	maxSigners = 5
)

// CredentialsError says that the credentials Secret is missing or unusable. Its text never holds anything of the
// Secret.
type CredentialsError struct {
	// Secret is namespace/name.
	Secret string
	// Problem is what is wrong, and Fix what to do.
	Problem, Fix string
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("credentials Secret %s %s; %s", e.Secret, e.Problem, e.Fix)
}

// keyring is what one Secret holds, in the order in which it is tried.
type keyring struct {
	version string
	signers []ssh.Signer
	notes   []string
}

func readKeyring(ctx context.Context, secrets client.Reader, namespace, name string) (*keyring, error) {
	secret := &corev1.Secret{}
	if err := secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &CredentialsError{
				Secret: namespace + "/" + name, Problem: "does not exist",
				Fix: fmt.Sprintf("create it with: kubectl -n %s create secret generic %s --type=%s --from-file=%s=<private key "+
					"file>",
					namespace, name, corev1.SecretTypeSSHAuth, corev1.SSHAuthPrivateKey),
			}
		}
		return nil, fmt.Errorf("reading credentials Secret %s/%s: %w", namespace, name, err)
	}
	return parse(secret, time.Now())
}

// parse takes the private keys in the order of their names, ssh-privatekey first, each after its own certificates. A
// certificate that no host would accept now is left out and noted; its key may do without it.
func parse(secret *corev1.Secret, now time.Time) (*keyring, error) {
	refuse := func(problem, fix string) (*keyring, error) {
		return nil, &CredentialsError{Secret: secret.Namespace + "/" + secret.Name, Problem: problem, Fix: fix}
	}
	if secret.Type != corev1.SecretTypeSSHAuth {
		return refuse(fmt.Sprintf("has type %q", secret.Type), fmt.Sprintf("delete it and create it again with type %s",
			corev1.SecretTypeSSHAuth))
	}
	var keys []ssh.Signer
	for _, name := range named(secret, keyPrefix) {
		signer, err := ssh.ParseSigner(secret.Data[name])
		if err != nil {
			return refuse(fmt.Sprintf("holds no usable key in %q", name), err.Error())
		}
		if !slices.ContainsFunc(keys, func(k ssh.Signer) bool { return same(k, signer) }) {
			keys = append(keys, signer)
		}
	}
	if len(keys) == 0 {
		return refuse(fmt.Sprintf("has no key %q", corev1.SSHAuthPrivateKey), "store an SSH private key under that key")
	}
	found := &keyring{version: secret.ResourceVersion}
	var certified []ssh.Signer
	for _, name := range named(secret, certificatePrefix) {
		certificate, err := ssh.ParseCertificate(secret.Data[name])
		if err != nil {
			return refuse(fmt.Sprintf("holds no usable certificate in %q", name), err.Error())
		}
		signer := ssh.Certify(certificate, keys)
		if signer == nil {
			return refuse(fmt.Sprintf("holds a certificate in %q for a key that it does not hold (%s)", name,
				ssh.Fingerprint(certificate.Key)),
				"store the private key beside it, or remove the certificate")
		}
		if fault := ssh.CertificateFault(certificate, now); fault != "" {
			found.notes = append(found.notes, fmt.Sprintf("the certificate %q in Secret %s/%s, which %s", name, secret.Namespace,
				secret.Name, fault))
			continue
		}
		certified = append(certified, signer)
	}
	for _, key := range keys {
		for _, signer := range certified {
			if ssh.Fingerprint(signer.PublicKey()) == ssh.Fingerprint(key.PublicKey()) {
				found.signers = append(found.signers, signer)
			}
		}
		found.signers = append(found.signers, key)
	}
	if len(found.signers) > maxSigners {
		return refuse(fmt.Sprintf("holds %d keys and certificates", len(found.signers)),
			fmt.Sprintf("keep at most %d: sshd hangs up on a client that tries more", maxSigners))
	}
	return found, nil
}

// named lists the entries with a name of that kind, the plain name first. Empty ones do not count.
func named(secret *corev1.Secret, prefix string) []string {
	var names []string
	for name, value := range secret.Data {
		if strings.HasPrefix(name, prefix) && len(value) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func same(a, b ssh.Signer) bool {
	return bytes.Equal(a.PublicKey().Marshal(), b.PublicKey().Marshal())
}
